"""A whole calibration on simulated ranks: what it finds, what stops it, and how it goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve

from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions, RunOutcome
from calibrate.running.session import calibrate
from perfmodel.errors import RankLostError
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Status

CURVE = TrueCurve(alpha_s=4e-6, beta_bytes_per_s=1e9)
STACK = {"gloo": "5"}
SIZES = (1000, 4000, 16000)


def team(**changes: Any) -> SimulatedTeam:
    return SimulatedTeam({"": CURVE}, **changes)


def options(folder: Path, preset: str = "quick", **changes: Any) -> RunOptions:
    request = Request(preset, only=["gloo:all_reduce"], sizes=SIZES)
    request = replace(request, noise=changes.pop("noise", None))
    fields: dict[str, Any] = {"stack": STACK, "environment": {}, "seed": 5}
    return RunOptions(request, "m", folder, **(fields | changes))


def run(folder: Path, ranks: SimulatedTeam, recorder: Recorder | None = None, **changes: Any) -> RunOutcome:
    return calibrate(options(folder, **changes), ranks, recorder or Recorder(), ranks.clock)


def recorded(ranks: SimulatedTeam) -> list[int]:
    """Payloads of the visits of one start, in order, without the pilot before the first of each."""
    payloads = [point.payload_bytes for point, _ in ranks.visits]
    return [size for index, size in enumerate(payloads) if size in payloads[:index]]


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
    assert outcome.wrong == 0 and outcome.checked == 3 * 2 * (250 + 1000 + 4000)
    assert outcome.folder.parent == tmp_path and outcome.folder.name == f"m-{outcome.header.fingerprint[:8]}"


def test_the_file_holds_what_the_outcome_says(tmp_path: Path) -> None:
    outcome = run(tmp_path, team(visit_noise=0.02, call_noise=0.05, seed=3))
    found = read_run(outcome.folder)
    assert found.header == outcome.header and found.complete
    samples = found.collective_samples()
    assert set(samples.payload_bytes) == set(SIZES) and set(samples.flag) == {"ok"}
    for point, finish in outcome.finishes:
        medians = samples.loc[samples.payload_bytes == point.payload_bytes, "time_s"]
        assert len(medians) == finish.visits
        assert finish.median_s == pytest.approx(medians.median(), rel=0.05)
        assert finish.low_s is not None and finish.high_s is not None
        assert finish.low_s <= CURVE.time_s(point.payload_bytes) * 1.2 <= finish.high_s * 1.4


def test_a_higher_aim_goes_on_where_the_lower_one_stopped(tmp_path: Path) -> None:
    first = run(tmp_path, team(visit_noise=0.02))
    ranks = team(visit_noise=0.02, seed=1)
    second = run(tmp_path, ranks, noise=0.01)
    finishes = {point.payload_bytes: finish for point, finish in second.finishes}
    assert all(finish.target == 0.01 for finish in finishes.values())
    earlier = sum(finish.visits for _, finish in first.finishes)
    assert sum(finish.visits for finish in finishes.values()) == earlier + len(ranks.visits)
    again = team()
    run(tmp_path, again)  # quick is content with less
    assert again.visits == []


def test_a_time_limit_ends_after_a_visit_and_the_next_start_goes_on(tmp_path: Path) -> None:
    first = team()
    outcome = run(tmp_path, first, time_limit_s=0.030)
    assert outcome.stopped == "time limit" and not outcome.complete
    assert 0 < len(recorded(first)) < 9
    kept = sum(len(v) for v in read_run(outcome.folder).visits.values())
    assert kept == len(recorded(first))
    assert (after := run(tmp_path, team())).complete
    assert sum(finish.visits for _, finish in after.finishes) == 9


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_after_the_visit_under_way(tmp_path: Path, number: str) -> None:
    ranks = team(faults={4: number})
    outcome = run(tmp_path, ranks)
    assert outcome.interrupted and len(ranks.visits) == 4
    assert sum(len(v) for v in read_run(outcome.folder).visits.values()) == 2
    assert run(tmp_path, second := team()).complete
    assert len(second.visits) == 2 + 2 + 1 + 3  # only the point that was not begun has a pilot


@pytest.mark.usefixtures("signals")
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    class Impatient(SimulatedTeam):
        def visit(self, *words: Any, **named: Any) -> Any:
            if len(self.visits) == 2:
                self._fail("SIGINT", [0], 0.0)
                self._fail("SIGINT", [0], 0.0)
            return super().visit(*words, **named)

    recorder = Recorder()
    outcome = run(tmp_path, Impatient({"": CURVE}), recorder)
    assert outcome.interrupted and recorder.outcome is outcome
    assert sum(len(v) for v in read_run(outcome.folder).visits.values()) == 1
    with pytest.raises(KeyboardInterrupt):  # Ctrl-C means what it always does again
        os.kill(os.getpid(), 2)


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
    recorder, ranks = Recorder(), team()
    first = options(tmp_path)
    order = team()
    run(tmp_path / "order", order)
    number = next(i for i, (point, _) in enumerate(order.visits, 1) if point.payload_bytes == 4000)
    ranks.faults = {number: fault}
    outcome = calibrate(first, ranks, recorder, ranks.clock)
    ((point, finish),) = outcome.with_status(Status.FAILED)
    assert (point.payload_bytes, finish.reason, finish.median_s) == (4000, reason, None)
    assert len(outcome.with_status(Status.OK)) == 2 and outcome.complete
    assert len(recorder.warnings) == 1 and reason in recorder.warnings[0]
    assert set(read_run(outcome.folder).collective_samples().payload_bytes) == {1000, 16000}


@pytest.mark.parametrize(("fault", "what"), [("dead", "died"), ("hung", "did not answer")])
def test_a_lost_rank_ends_the_run_and_is_named(tmp_path: Path, fault: str, what: str) -> None:
    ranks, recorder = team(faults={5: fault}), Recorder()
    with pytest.raises(RankLostError, match=f"rank 1 .*{what}") as caught:
        run(tmp_path, ranks, recorder)
    assert caught.value.exit_code == 4 and len(ranks.visits) == 5
    assert recorder.outcome is not None and recorder.outcome.stopped == "error"
    assert recorder.outcome.error is caught.value
    ((_, finish),) = recorder.outcome.with_status(Status.FAILED)
    assert finish.reason.startswith("rank 1 (node 0) ")
    after = run(tmp_path, team())  # the rest is measured, and that point once more
    assert (len(after.with_status(Status.OK)), len(after.with_status(Status.FAILED))) == (3, 0)
