"""A whole calibration on simulated ranks: what it finds, what stops it, and how it goes on."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve

from calibrate.operations import RankTimes
from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions, RunOutcome
from calibrate.running.session import calibrate
from perfmodel.errors import BadInputError, RankLostError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.run_files import read_run
from perfmodel.schema.runs import Point, PointKind, Status

CURVE = TrueCurve(alpha_s=4e-6, beta_bytes_per_s=1e9)
STACK = {"gloo": "5"}
SIZES = (1000, 4000, 16000)


def team(**changes: Any) -> SimulatedTeam:
    return SimulatedTeam({"": CURVE}, **changes)


def options(folder: Path, preset: str = "quick", **changes: Any) -> RunOptions:
    request = Request(preset, only=["gloo:all_reduce"], sizes=SIZES)
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


def test_rounds_are_random_and_recorded(tmp_path: Path) -> None:
    ranks = team()
    run(tmp_path / "a", ranks, seed=5)
    again, other = team(), team()
    run(tmp_path / "b", again, seed=5)
    run(tmp_path / "c", other, seed=6)
    order = recorded(ranks)
    assert order == recorded(again) != recorded(other)
    for number in range(3):
        assert sorted(order[3 * number : 3 * number + 3]) == list(SIZES)
    visits = (tmp_path / "a").glob("*/samples.jsonl")
    header, *lines = map(json.loads, next(visits).read_text().splitlines())
    assert header["seed"] == 5
    rounds = sorted({line["round"] for line in lines if "round" in line})
    assert rounds == list(range(1, len(rounds) + 1)) and len(rounds) >= 3


def test_a_pilot_says_how_many_calls_last_ten_milliseconds(tmp_path: Path) -> None:
    slow = SimulatedTeam({"": TrueCurve(1e-4, 1e12)})
    outcome = run(tmp_path, slow)
    assert [calls for _, calls in slow.visits] == [10, 100] * 3 + [100] * 6
    assert outcome.calls == 900 and outcome.wrong == 0  # pilots are warm-up


def test_back_to_back_clocks_say_what_one_call_takes(tmp_path: Path) -> None:
    ranks = team(clocks=[Clock.STREAM])
    request = Request("quick", only=["gloo:all_reduce"], sizes=[1000], clocks=[Clock.STREAM])
    outcome = calibrate(RunOptions(request, "m", tmp_path, STACK), ranks, Recorder(), ranks.clock)
    assert outcome.finishes[0][1].median_s == pytest.approx(5e-6)
    assert outcome.calls == sum(calls for _, calls in ranks.visits[1:])


def test_noise_ends_a_point_as_noisy_after_its_time(tmp_path: Path) -> None:
    outcome = run(tmp_path, team(visit_noise=0.5))
    noisy = outcome.with_status(Status.NOISY)
    assert noisy and outcome.complete
    assert all("% after" in finish.reason and finish.median_s for _, finish in noisy)
    assert outcome.seconds < 3 * 2.0 + 1.0  # 2 s a point


def test_the_time_of_a_preset_ends_what_stays_noisy(tmp_path: Path) -> None:
    """Quick shares 45 s: with 0.5 s a visit, 40 noisy points end after the fewest visits, not after 2 s."""
    slow = team(visit_noise=0.5, overhead_s=0.5)
    request = Request("quick", only=["gloo:all_reduce"], sizes=range(4000, 4160, 4))
    outcome = calibrate(RunOptions(request, "m", tmp_path, STACK, seed=1), slow, Recorder(), slow.clock)
    noisy = outcome.with_status(Status.NOISY)
    assert outcome.complete and len(noisy) > 30
    assert {finish.visits for _, finish in outcome.finishes} == {3}


def test_the_time_left_falls_to_nothing_and_is_about_right(tmp_path: Path) -> None:
    ranks, recorder = team(visit_noise=0.1, overhead_s=0.05), Recorder()
    began_s = ranks.clock()
    run(tmp_path, ranks, recorder)
    left = [seconds for *_, seconds in recorder.seen]
    assert left[-1] == 0.0 and max(left) < 3 * 2.0
    halfway = left[len(left) // 2] / ((ranks.clock() - began_s) / 2)
    assert 0.4 < halfway < 2.5


def test_fresh_measures_all_of_it_again(tmp_path: Path) -> None:
    run(tmp_path, team())
    slower = SimulatedTeam({"": TrueCurve(1e-4, 1e12)})
    outcome = run(tmp_path, slower, fresh=True)
    assert len(slower.visits) == 12
    assert [finish.median_s for _, finish in outcome.finishes] == pytest.approx([1e-4] * 3, rel=1e-3)
    samples = read_run(outcome.folder).collective_samples()
    assert samples.time_s.to_list() == pytest.approx([1e-4] * 9, rel=1e-3)


def test_a_higher_aim_goes_on_where_the_lower_one_stopped(tmp_path: Path) -> None:
    first = run(tmp_path, team(visit_noise=0.02))
    ranks = team(visit_noise=0.02, seed=1)
    second = run(tmp_path, ranks, preset="rigorous")
    finishes = {point.payload_bytes: finish for point, finish in second.finishes}
    assert all(finish.target == 0.01 for finish in finishes.values())
    earlier = sum(finish.visits for _, finish in first.finishes)
    assert sum(finish.visits for finish in finishes.values()) == earlier + len(ranks.visits)
    again = team()
    run(tmp_path, again)  # quick is content with what rigorous found
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


def test_a_failed_point_is_measured_again_by_the_same_line(tmp_path: Path) -> None:
    failed = run(tmp_path, team(faults={1: "wrong"}))
    assert len(failed.with_status(Status.FAILED)) == 1
    recorder, again = Recorder(), team()
    outcome = run(tmp_path, again, recorder)
    assert recorder.done_at_start == 2 and len(again.visits) == 1 + 3  # a pilot, and three visits
    assert len(outcome.with_status(Status.OK)) == 3 and outcome.wrong == 0
    assert all(finish.visits == 3 for _, finish in outcome.finishes)
    nothing = team()
    assert run(tmp_path, nothing).complete and nothing.visits == []


class Deadly(SimulatedTeam):
    """Loses a rank whenever 4000 B are exchanged."""

    def visit(self, point: Point, ranks: Sequence[int], **more: Any) -> list[RankTimes]:
        self.faults = {len(self.visits) + 1: "dead"} if point.payload_bytes == 4000 else {}
        return super().visit(point, ranks, **more)


def test_a_point_that_always_fails_is_tried_once_a_start_and_last(tmp_path: Path) -> None:
    """What it would spoil is measured before it, whatever the random order."""
    with pytest.raises(RankLostError):
        run(tmp_path, Deadly({"": CURVE}))
    for start, others in ((2, 2 * (1 + 3)), (3, 0), (4, 0)):
        ranks, recorder = Deadly({"": CURVE}), Recorder()
        with pytest.raises(RankLostError):
            run(tmp_path, ranks, recorder)
        sizes = [point.payload_bytes for point, _ in ranks.visits]
        assert sizes.count(4000) == 1 and sizes[-1] == 4000, start
        assert len(sizes) - 1 <= others
        assert recorder.outcome is not None
        assert len(recorder.outcome.with_status(Status.OK)) == 2
        assert len(recorder.outcome.with_status(Status.FAILED)) == 1


@pytest.mark.parametrize("fault", ["back", "zero", "ahead", "nan"])
def test_a_clock_that_jumps_costs_a_visit_and_the_third_time_the_point(tmp_path: Path, fault: str) -> None:
    outcome = run(tmp_path / "once", ranks := team(faults={2: fault, 7: fault}))
    assert len(outcome.with_status(Status.OK)) == 3 and len(ranks.visits) == 14
    visits = [v for found in read_run(outcome.folder).visits.values() for v in found]
    assert [bool(v.note) for v in visits].count(True) == 2
    assert all(bool(v.note) != bool(v.times_s) for v in visits)
    always = run(tmp_path / "always", ranks := team(faults=dict.fromkeys(range(1, 99), fault)))
    assert len(always.with_status(Status.FAILED)) == 3 and len(ranks.visits) == 12
    assert "3 visits dropped" in always.finishes[0][1].reason


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


def test_a_hung_rank_gets_a_deadline_that_grows_with_the_work(tmp_path: Path) -> None:
    seen: list[float] = []

    class Watched(SimulatedTeam):
        def visit(self, *words: Any, **named: Any) -> Any:
            seen.append(named["deadline_s"])
            return super().visit(*words, **named)

    run(tmp_path, Watched({"": TrueCurve(0.1, 1e12)}), deadline_s=30.0)
    assert seen[-1] == pytest.approx(30.0 + 20 * 2 * 0.1)


def test_throttled_points_are_flagged(tmp_path: Path) -> None:
    outcome = run(tmp_path, team(faults=dict.fromkeys(range(1, 13), "throttled")))
    throttled = outcome.with_status(Status.THROTTLED)
    assert len(throttled) == 3 and {finish.reason for _, finish in throttled} == {"thermal"}
    once = run(tmp_path / "once", team(faults={2: "throttled"}))
    assert len(once.with_status(Status.OK)) == 3


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    recorder, ranks = Recorder(), team(call_noise=0.1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(BadInputError, match="cannot be written: file too large"):
            run(tmp_path, ranks, recorder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert recorder.outcome is not None and recorder.outcome.stopped == "error"
    kept = sum(len(v) for v in read_run(recorder.outcome.folder).visits.values())
    assert 0 < kept == len(recorded(ranks)) - 1
    after = run(tmp_path, team(call_noise=0.1))
    assert after.complete and sum(finish.visits for _, finish in after.finishes) >= 9


def test_another_stack_is_another_folder(tmp_path: Path) -> None:
    first = run(tmp_path, team())
    ranks = team()
    second = run(tmp_path, ranks, stack={"gloo": "6"})
    assert first.folder != second.folder and len(recorded(ranks)) == 9
    third = run(tmp_path, team(), environment={"MALLOC_ARENA_MAX": "2", "SECRET": "x"})
    assert third.folder not in (first.folder, second.folder)
    assert "SECRET" not in third.samples.read_text()


def test_a_visit_that_was_wrong_before_a_kill_no_longer_counts(tmp_path: Path) -> None:
    outcome = run(tmp_path, team(faults={1: "wrong"}))
    lines = outcome.samples.read_text().splitlines(keepends=True)
    ended = next(i for i, line in enumerate(lines) if '"failed"' in line)
    outcome.samples.write_text("".join(lines[:ended]))  # killed between the visit and the end
    after = run(tmp_path, team())
    assert len(after.with_status(Status.OK)) == 3 and after.wrong == 0
    assert all(finish.visits == 3 for _, finish in after.finishes)


def test_kernels_and_whole_passes_go_the_same_way(tmp_path: Path) -> None:
    ranks = team(kernels=True)
    request = Request("quick", only=["kernels:copy", "composed"])
    outcome = calibrate(RunOptions(request, "m", tmp_path, STACK), ranks, Recorder(), ranks.clock)
    assert {point.kind for point, _ in outcome.finishes} == {PointKind.KERNEL, PointKind.COMPOSED}
    assert len(outcome.with_status(Status.OK)) == outcome.total


def test_groups_get_their_own_ranks(tmp_path: Path) -> None:
    seen: set[tuple[int, ...]] = set()

    class Watched(SimulatedTeam):
        def visit(self, point: Any, ranks: Any, **named: Any) -> Any:
            seen.add(tuple(ranks))
            return super().visit(point, ranks, **named)

    ranks = Watched({"": CURVE}, ranks=4, nodes=2)
    request = Request("standard", only=["gloo:broadcast"], sizes=[4096], clocks=[Clock.EAGER])
    outcome = calibrate(RunOptions(request, "m", tmp_path, STACK), ranks, Recorder(), ranks.clock)
    assert seen == {(0, 1), (0, 2), (0, 1, 2, 3)} and outcome.complete
