"""A whole calibration on simulated ranks: what it finds, what stops it, and how it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles import environment
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve
from recorded import assert_recorded
from waiting import PATIENCE_S

from calibrate.planning.measurement_plan import Request
from calibrate.running import stack
from calibrate.running.interfaces import RunOptions, RunOutcome
from calibrate.running.session import calibrate
from perfmodel.errors import BadInputError, RankLostError
from perfmodel.fit.curve_fits import fit_curve
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Status

CURVE = TrueCurve(alpha_s=4e-6, beta_bytes_per_s=1e9)
SIZES = (1000, 4000, 16000)
REQUEST = Request("quick", only=["gloo:all_reduce"], sizes=SIZES)
AIM = replace(REQUEST, noise=0.01)


@pytest.fixture(autouse=True)
def _stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may change between two starts."""
    monkeypatch.setattr(stack, "describe", lambda world: {"gloo": "5"})


def team(**changes: Any) -> SimulatedTeam:
    return SimulatedTeam({"": CURVE}, **changes)


def run(folder: Path, ranks: SimulatedTeam, recorder: Recorder | None = None, **more: Any) -> RunOutcome:
    fields = {"request": REQUEST, "seed": 5, **more}
    options = RunOptions(machine="m", runs_folder=folder, **fields)
    return calibrate(options, ranks, recorder or Recorder(), ranks.clock)


def list_stored(ranks: SimulatedTeam) -> list[int]:
    """Payloads of the visits of one start, in order, without the pilot before the first of each."""
    payloads = [point.payload_bytes for point, _ in ranks.visits]
    return [size for index, size in enumerate(payloads) if size in payloads[:index]]


def count_visits(folder: Path) -> int:
    """Visits in the file of the run in a folder."""
    (samples,) = folder.glob("*/samples.jsonl")
    return sum(len(visits) for visits in read_run(samples).visits.values())


def test_a_curve_without_noise_is_found_exactly(tmp_path: Path) -> None:
    """4 µs + S / 1 GB/s: 5, 8 and 20 µs; three visits each and no more."""
    ranks, recorder = team(), Recorder()
    outcome = run(tmp_path, ranks, recorder)
    assert {point.payload_bytes: finish.median_s for point, finish in outcome.finishes} == pytest.approx(
        {1000: 5e-6, 4000: 8e-6, 16000: 20e-6}
    )
    assert all(finish.status is Status.OK and finish.visits == 3 for _, finish in outcome.finishes)
    assert outcome.complete and outcome.stopped == "" and len(ranks.visits) == 9 + 3
    assert recorder.done_at_start == 0 and recorder.outcome is outcome
    far = [round(done, 3) for done, *_ in recorder.seen]  # of 4.5 visits, then of 3
    assert far == [0.222, 0.444, 0.667, 0.889, 1.111, 1.333, 1.889, 2.444, 3.0]
    assert recorder.seen[-1][3] == 0.0
    assert sum(state.checked for state in outcome.states.values()) == 3 * 2 * (250 + 1000 + 4000)
    assert outcome.folder.parent == tmp_path and outcome.folder.name == f"m-{outcome.header.fingerprint[:8]}"
    stored = read_run(outcome.folder)
    samples = stored.collective_samples()
    assert stored.header == outcome.header and stored.complete and "null" not in outcome.samples.read_text()
    assert sorted(samples.payload_bytes) == sorted(3 * SIZES) and set(samples.flag) == {"ok"}
    run(tmp_path, again := team(), request=AIM)  # an interval of nothing is precise enough for any aim
    assert again.visits == []


@pytest.mark.parametrize("limit_s", [None, 2.0])
def test_a_noisy_run_makes_the_visits_that_it_made(tmp_path: Path, limit_s: float | None) -> None:
    """With faults of all kinds; how far it is and what is left are told after each visit."""
    faults = {9: "wrong", 14: "ahead", 30: "refused"} | dict.fromkeys(range(60, 75), "throttled")
    ranks, recorder = team(visit_noise=0.06, call_noise=0.02, kernels=True, faults=faults), Recorder()
    request = Request("quick", only=["gloo", "composed"], sizes=SIZES)
    outcome = run(tmp_path, ranks, recorder, request=request, time_limit_s=limit_s)
    told = [sum(done for done, *_ in recorder.seen), sum(left_s for *_, left_s in recorder.seen)]
    told.append(ranks.deadlines_s)
    ends = sorted(f"{f.status} {f.visits} {f.calls} {f.reason}".strip() for _, f in outcome.finishes)
    calls = sum(calls for _, calls in ranks.visits)
    assert_recorded(f"session {limit_s}", len(ranks.visits), calls, *told, ends, recorder.warnings)


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_a_higher_aim_goes_on_where_the_lower_one_stopped(tmp_path: Path, noise: float) -> None:
    first = run(tmp_path, team(visit_noise=noise))
    ranks = team(visit_noise=noise, seed=1)
    second = run(tmp_path, ranks, request=AIM)
    finishes = [finish for _, finish in second.finishes]
    assert all(finish.target == 0.01 for finish in finishes)
    earlier = sum(finish.visits for _, finish in first.finishes)
    assert sum(finish.visits for finish in finishes) == earlier + len(ranks.visits)
    for request in (AIM, REQUEST):  # quick is content with less
        run(tmp_path, again := team(), request=request)
        assert again.visits == []


def test_a_time_limit_ends_after_a_visit_and_the_next_start_goes_on(tmp_path: Path) -> None:
    outcome = run(tmp_path, first := team(), recorder := Recorder(), time_limit_s=0.030)
    assert all(0 <= left_s <= 0.030 for *_, left_s in recorder.seen)
    assert outcome.stopped == "time limit" and not outcome.complete
    assert 0 < len(list_stored(first)) < 9
    assert run(tmp_path / "none", none := team(), time_limit_s=0.0).stopped and not none.visits
    assert count_visits(tmp_path) == len(list_stored(first))
    assert (after := run(tmp_path, team())).complete
    assert sum(finish.visits for _, finish in after.finishes) == 9


def test_a_fresh_start_forgets_the_visits_before_it(tmp_path: Path) -> None:
    run(tmp_path, team(visit_noise=0.02))
    outcome = run(tmp_path, again := team(), fresh=True)
    assert len(again.visits) == 9 + 3 and all(finish.visits == 3 for _, finish in outcome.finishes)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_after_the_visit_under_way(tmp_path: Path, number: str) -> None:
    outcome = run(tmp_path, ranks := team(faults={4: number}))
    assert outcome.interrupted and len(ranks.visits) == 4
    assert count_visits(tmp_path) == 2
    assert run(tmp_path, second := team()).complete
    assert len(second.visits) == 2 + 2 + 1 + 3  # only the point that was not begun has a pilot


@pytest.mark.usefixtures("signals")
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    class Impatient(SimulatedTeam):
        def visit(self, *words: Any, **named: Any) -> Any:
            for _ in range(2 if len(self.visits) == 2 else 0):
                signal.raise_signal(signal.SIGINT)
            return super().visit(*words, **named)

    recorder = Recorder()
    outcome = run(tmp_path, Impatient({"": CURVE}), recorder)
    assert outcome.interrupted and recorder.outcome is outcome
    assert count_visits(tmp_path) == 1
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C means what it always does again
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong", "1 of 2000 elements are wrong"),
        ("unchecked", "no element of the result was checked"),
        ("silent", "no rank sent a byte"),
        ("refused", "the library refuses this size"),
    ],
)
def test_a_wrong_result_fails_its_point_and_the_run_goes_on(tmp_path: Path, fault: str, reason: str) -> None:
    run(tmp_path / "order", order := team())
    number = next(i for i, (point, _) in enumerate(order.visits, 1) if point.payload_bytes == 4000)
    recorder = Recorder()
    outcome = run(tmp_path / "run", team(faults={number: fault}), recorder)
    ((point, finish),) = outcome.with_status(Status.FAILED)
    assert (point.payload_bytes, finish.reason, finish.median_s) == (4000, reason, None)
    assert len(outcome.with_status(Status.OK)) == 2 and outcome.complete
    assert len(recorder.warnings) == 1 and reason in recorder.warnings[0]
    assert set(read_run(outcome.folder).collective_samples().payload_bytes) == {1000, 16000}
    after = run(tmp_path / "run", again := team())  # that point is measured afresh
    assert len(after.with_status(Status.OK)) == 3
    assert {point.payload_bytes for point, _ in again.visits} == {4000}


@pytest.mark.parametrize("fault", ["throttled", "ahead"])
def test_a_slow_gpu_and_a_clock_that_jumps_end_points(tmp_path: Path, fault: str) -> None:
    outcome = run(tmp_path, team(faults=dict.fromkeys(range(1, 99), fault)))
    status = Status.THROTTLED if fault == "throttled" else Status.FAILED
    reasons = {finish.reason.partition(":")[0] for _, finish in outcome.with_status(status)}
    assert reasons == {"thermal" if fault == "throttled" else "3 visits dropped"} and outcome.complete


@pytest.mark.parametrize(
    ("fault", "number", "what"),
    [("dead", 2, "died"), ("dead", 5, "died"), ("dead", 12, "died"), ("hung", 8, "did not answer")],
)
def test_a_lost_rank_ends_the_run_is_named_and_costs_the_visit_under_way(
    tmp_path: Path, fault: str, number: int, what: str
) -> None:
    ranks, recorder = team(faults={number: fault}), Recorder()
    with pytest.raises(RankLostError, match=f"rank 1 .*{what}") as caught:
        run(tmp_path, ranks, recorder)
    assert caught.value.exit_code == 4 and len(ranks.visits) == number
    assert recorder.outcome is not None and recorder.outcome.stopped == "error"
    assert recorder.outcome.error is caught.value
    ((_, finish),) = recorder.outcome.with_status(Status.FAILED)
    assert finish.reason.startswith("rank 1 (node 0) ")
    before = count_visits(tmp_path)
    after = run(tmp_path, again := team())  # the rest is measured, and that point once more
    assert len(after.with_status(Status.OK)) == 3 and after.complete
    assert count_visits(tmp_path) == 9 and len(list_stored(again)) <= 9 - before, "no visit is made twice"


def move(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def exchange(folder: Path) -> None:
    move(folder)
    folder.mkdir()
    (folder / "samples.jsonl").write_text("")


@pytest.mark.parametrize("take", [move, shutil.rmtree, exchange])
def test_a_folder_that_is_taken_away_ends_the_run_within_a_point(
    tmp_path: Path, take: Callable[[Path], None]
) -> None:
    class Taken(SimulatedTeam):
        def visit(self, *words: Any, **named: Any) -> Any:
            if len(self.visits) == 4:
                take(*tmp_path.iterdir())
            return super().visit(*words, **named)

    ranks = Taken({"": CURVE})
    with pytest.raises(BadInputError, match="was removed or replaced"):
        run(tmp_path, ranks)
    assert len(ranks.visits) <= 6  # a pilot and its visit


TRUTH = {
    "all_to_all": TrueCurve(5e-6, 4e9, 0.8),
    "reduce_scatter": TrueCurve(8e-6, 2e9, 1.0),
    "all_gather": TrueCurve(3e-6, 6e9, 1.4),
    "all_reduce": TrueCurve(12e-6, 1e9, 2.0),
    "broadcast": TrueCurve(4e-6, 8e9, 1.2),
}


def test_the_intervals_of_a_whole_calibration_hold_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """95 % intervals of a run hold floor, rate and knee in 90 to 99 % of the cases.

    The stop rule chooses the number of visits (4 a point here), so this is not the coverage of a fit alone.
    60 runs, 300 curves each, gave 93 to 96 % of each parameter.
    """
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    only, sizes, held = [f"gloo:{name}" for name in TRUTH], [2**k for k in range(8, 25)], list[bool]()
    for seed in range(5, 10):
        ranks = SimulatedTeam(TRUTH, visit_noise=0.02, call_noise=0.05, seed=seed)
        request = Request("quick", only=only, sizes=sizes)
        outcome = run(tmp_path / str(seed), ranks, request=request, seed=seed)
        for name, rows in read_run(outcome.folder).collective_samples().groupby("collective"):
            true = TRUTH[str(name)]
            fit = fit_curve(rows["payload_bytes"].to_numpy(float), rows["time_s"].to_numpy(float))
            intervals = (fit.alpha_interval, fit.beta_interval, fit.p_interval)
            values = (true.alpha_s, true.beta_bytes_per_s, true.p)
            held += [low <= value <= high for (low, high), value in zip(intervals, values, strict=True)]
    assert len(held) == 5 * 5 * 3
    assert 0.90 < sum(held) / len(held) < 0.99


PROGRAM = """
import sys
from pathlib import Path
from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions
from calibrate.running import stack
from calibrate.running.session import calibrate
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve
from recorded import assert_recorded

class Loud(Recorder):
    def progress(self, *words):
        print("visit", flush=True)

    def finished(self, outcome):
        print("finished", outcome.stopped or "whole", outcome.done, outcome.total, flush=True)

class Waiting(SimulatedTeam):
    def visit(self, *words, **named):
        if len(self.visits) + 1 == int(sys.argv[2]):
            print("waits", flush=True)
            sys.stdin.readline()
        return super().visit(*words, **named)

stack.describe = lambda world: {"gloo": "5"}
team = Waiting({"": TrueCurve(5e-6, 1e9)})
request = Request("quick", only=["gloo:all_to_all", "gloo:all_reduce"])
calibrate(RunOptions(request, "m", Path(sys.argv[1]), seed=1), team, Loud(), team.clock)
"""
"""A calibration that waits in one of its visits for a line to read."""

POINTS = 17 + 17  # all-to-all, all-reduce


def start(folder: Path, waits: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(waits)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment())


def wait_for_visit(process: subprocess.Popen[str]) -> int:
    """Until it waits; how many visits it told of before."""
    assert process.stdout is not None
    lines = list(iter(process.stdout.readline, "waits\n"))
    assert set(lines) == {"visit\n"}, process.communicate()
    return len(lines)


def test_a_run_that_is_killed_goes_on_and_a_second_writer_is_refused(tmp_path: Path) -> None:
    """``kill -9``: at most the visit under way is lost."""
    first = start(tmp_path, 40)
    visits = wait_for_visit(first)
    _, problems = (second := start(tmp_path)).communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    assert f"another calibration is writing to {tmp_path}" in problems
    assert f"(process {first.pid})" in problems
    first.kill()
    assert first.wait(PATIENCE_S) == -signal.SIGKILL
    assert count_visits(tmp_path) == visits > 0
    out, problems = (third := start(tmp_path)).communicate(timeout=PATIENCE_S)
    assert third.returncode == 0, problems
    assert out.splitlines()[-1] == f"finished whole {POINTS} {POINTS}"
    assert out.count("visit") == 3 * POINTS - visits
    assert count_visits(tmp_path) == 3 * POINTS
