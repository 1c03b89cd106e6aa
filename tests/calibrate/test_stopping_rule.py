"""When a point ends, and how the times of its ranks become a visit."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from calibrate.operations import RankTimes
from calibrate.planning.presets import PRESETS
from calibrate.running.fold import combine_times, compute_median_s, find_problem
from calibrate.running.stopping import Summary, Target, choose_calls, estimate_median, judge
from perfmodel.errors import PerfmodelError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind, Status, Visit


def summary_of(times_s: list[float]) -> Summary:
    found = estimate_median(times_s)
    assert found is not None
    return found


def test_fewer_than_three_visits_say_nothing() -> None:
    assert estimate_median([]) is None
    assert estimate_median([1.0, 1.0]) is None


def test_the_interval_is_students_on_logs() -> None:
    """Logs -1, 0, 1: mean 0, standard deviation 1, t with 2 degrees 4.303, half of it 4.303 / sqrt(3)."""
    found = summary_of([math.exp(-1), 1.0, math.e])
    assert found.median_s == pytest.approx(1.0)
    assert found.high_s == pytest.approx(math.exp(4.302653 / math.sqrt(3)), rel=1e-6)
    assert found.low_s == pytest.approx(1 / found.high_s)
    assert found.relative_halfwidth == pytest.approx(found.high_s - 1)
    assert found.visits == 3


def test_a_visit_that_a_neighbour_doubled_does_not_count_from_eight_on() -> None:
    quiet = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0]
    seven, eight = summary_of([*quiet[:6], 2.0]), summary_of([*quiet, 2.0])
    assert seven.relative_halfwidth > 0.2
    assert eight.relative_halfwidth < 0.02
    assert eight.median_s == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("call_s", "calls"),
    [
        (1e-6, 200),  # 15 ms would be 15 000 calls
        (1e-3, 15),
        (10e-3, 10),  # 15 ms would be 2 calls
        (100e-3, 2),  # 10 calls would be 1 s: only what fits 0.25 s
        (10.0, 1),
        (0.0, 10),  # no idea yet
    ],
)
def test_a_visit_lasts_about_fifteen_milliseconds(call_s: float, calls: int) -> None:
    assert choose_calls(Target(0.02), call_s) == calls


def test_a_point_ends_when_narrow_or_out_of_time() -> None:
    target = Target(0.05, min_visits=3, max_time_s=1.0, max_visits=10)
    narrow, wide = Summary(1, 0.95, 1.05, 0.05, 3), Summary(1, 0.5, 2, 1.0, 3)
    assert judge(None, 99.0, 99, target) is None
    assert judge(narrow, 0.0, 3, target) is Status.OK
    assert judge(wide, 0.9, 3, target) is None
    assert judge(wide, 1.0, 3, target) is Status.NOISY
    assert judge(wide, 0.0, 10, target) is Status.NOISY
    few = Summary(1, 1, 1, 0.0, 3)
    assert judge(few, 99.0, 3, Target(0.05, min_visits=4)) is None


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_intervals_hold_the_truth_although_they_choose_when_to_stop(name: str, spread: float) -> None:
    """A rule that stops when the interval is narrow stops too early now and then: 90 % at least remain."""
    chance = random.Random(2)
    target = PRESETS[name].target
    held, trials = 0, 400
    for _ in range(trials):
        times: list[float] = []
        while True:
            times.append(math.exp(chance.gauss(0.0, spread)))
            found = estimate_median(times)
            if judge(found, 0.0, len(times), target) is not None:
                break
        assert found is not None
        held += found.low_s <= 1.0 <= found.high_s
    assert 0.88 < held / trials < 0.99


def point(**changes: Any) -> Point:
    fields: dict[str, Any] = {
        "kind": PointKind.COLLECTIVE, "operation": "all_to_all", "backend": "mpi", "clock": Clock.EAGER,
        "payload_bytes": 1024, "gpus": 2, "gpus_per_node": 2,
    }  # fmt: skip
    return Point(**(fields | changes))


def times(starts: list[float], ends: list[float], **more: Any) -> RankTimes:
    fields: dict[str, Any] = {"bytes_sent": 512, "checked": 256}
    return RankTimes(starts, ends, **(fields | more))


def folded(seen: list[RankTimes], elapsed_s: float = 10.0, ranks: list[int] | None = None, **p: Any) -> Visit:
    return combine_times(point(**p), ranks or [0, 1], seen, round=1, at="now", elapsed_s=elapsed_s)


def test_the_slowest_rank_counts_in_each_call() -> None:
    visit = folded(
        [times([0.0, 2.0, 4.0], [1.0, 3.0, 5.0]), times([0.5, 2.5, 4.5], [2.5, 3.0, 7.5])], ranks=[8, 9]
    )
    assert visit.times_s == [2.0, 1.0, 3.0]
    assert compute_median_s(visit) == 2.0
    assert (visit.bytes_sent, visit.checked, visit.wrong, visit.note) == (512, 512, 0, "")


@pytest.mark.parametrize(
    ("starts", "ends", "elapsed_s", "why"),
    [
        ([1.0, 2.0], [1.5, 1.5], 10.0, "jumped back or stood still"),
        ([1.0, 2.0], [1.5, 2.0], 10.0, "jumped back or stood still"),
        ([5.0, 2.0], [5.5, 2.5], 10.0, "began before the one before it ended"),
        ([1.0, 2.0], [1.5, 3602.0], 10.0, "jumped ahead"),
        ([1.0, 2.0], [1.5, 2.5], -3.0, "jumped ahead"),
        ([1.0, 2.0], [1.5, math.nan], 10.0, "not a number"),
        ([1.0, 2.0], [1.5, math.inf], 10.0, "not a number"),
    ],
)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_clock_that_cannot_be_believed_gives_no_times(
    starts: list[float], ends: list[float], elapsed_s: float, why: str, bad: int
) -> None:
    seen = [times([1.0, 2.0], [1.5, 2.5]), times([1.0, 2.0], [1.5, 2.5])]
    seen[bad] = times(starts, ends)
    visit = folded(seen, elapsed_s)
    assert visit.times_s == [] and why in visit.note
    assert compute_median_s(visit) is None


@pytest.mark.parametrize(
    "seen",
    [
        [times([0.0], [1.0])],
        [times([0.0], [1.0]), times([0.0, 2.0], [1.0, 3.0])],
        [times([0.0], [1.0]), times([0.0], [1.0], calls_each=2)],
        [times([], []), times([], [])],
        [times([0.0], []), times([0.0], [])],
    ],
)
def test_ranks_that_did_different_things_fail_the_point(seen: list[RankTimes]) -> None:
    with pytest.raises(PerfmodelError, match="ranks"):
        folded(seen)


def test_what_fails_a_point() -> None:
    good = times([0.0], [1.0])
    assert find_problem(point(), folded([good, good])) == ""
    wrong = folded([good, times([0.0], [1.0], wrong=3)])
    assert find_problem(point(), wrong) == "3 of 512 elements are wrong"
    unchecked = folded([times([0.0], [1.0], checked=0)] * 2)
    assert find_problem(point(), unchecked) == "no element of the result was checked"
    silent = folded([times([0.0], [1.0], bytes_sent=0)] * 2)
    assert find_problem(point(), silent) == "no rank sent a byte"
    root_only = folded([good, times([0.0], [1.0], bytes_sent=0)])
    assert find_problem(point(operation="broadcast"), root_only) == ""
    kernel = point(kind=PointKind.KERNEL, operation="copy", backend="", implementation="torch", gpus=1)
    assert find_problem(kernel, folded([times([0.0], [1.0], bytes_sent=0, checked=0)] * 2)) == ""
