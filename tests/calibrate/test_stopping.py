"""When a point ends, and how the times of its ranks become a visit."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from oracles.points import make_collective, make_kernel

from calibrate.operations import RankTimes
from calibrate.planning.presets import PRESETS
from calibrate.running.fold import combine_times, compute_median_s, find_problem
from calibrate.running.stopping import Summary, Target, choose_calls, estimate_median, judge
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.schema.runs import Point, Status, Visit


def summarise(times_s: list[float]) -> Summary:
    summary = estimate_median(times_s)
    assert summary is not None
    return summary


def test_the_interval_is_students_on_logs() -> None:
    """Logs -1, 0, 1: mean 0, standard deviation 1, t with 2 degrees 4.303, half of it 4.303 / sqrt(3)."""
    summary = summarise([math.exp(-1), 1.0, math.e])
    assert summary.median_s == pytest.approx(1.0)
    assert summary.high_s == pytest.approx(math.exp(4.302653 / math.sqrt(3)), rel=1e-6)
    assert summary.low_s == pytest.approx(1 / summary.high_s)
    assert summary.relative_halfwidth == pytest.approx(summary.high_s - 1)
    assert summary.visits == 3
    assert estimate_median([]) is estimate_median([1.0, 1.0]) is None  # fewer say nothing
    for wrong in (0.0, math.inf):
        with pytest.raises(BadInputError, match="above 0"):
            estimate_median([1.0, wrong, 1.0])
    assert 0 < summarise([1e-300, 1e-50, 1e300]).high_s < math.inf


def test_a_visit_that_a_neighbour_doubled_does_not_count_from_eight_on() -> None:
    quiet = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0]
    seven, eight = summarise([*quiet[:6], 2.0]), summarise([*quiet, 2.0])
    assert seven.relative_halfwidth > 0.2
    assert eight.relative_halfwidth < 0.02
    assert eight.median_s == pytest.approx(1.0, abs=0.01)
    logs = [0.01 * k for k in (0, 0, 1, 2, 3, 4, 5, 5)]  # of -9, 0 … 5, 9, one trimmed at each end
    squares = sum((log - 0.025) ** 2 for log in logs)
    trimmed = summarise([math.exp(0.01 * k) for k in (9, *range(6), -9)])
    assert math.log(trimmed.median_s) == pytest.approx(0.025)
    assert math.log(trimmed.high_s) == pytest.approx(0.025 + 2.570582 * math.sqrt(squares / 30), rel=1e-6)


@pytest.mark.parametrize(
    ("call_s", "calls"),
    [
        (1e-6, 200),  # 15 ms would be 15 000 calls
        (1e-3, 15),
        (0.025, 10),
        (0.026, 9),
        (10e-3, 10),  # 15 ms would be 2 calls
        (100e-3, 2),  # 10 calls would be 1 s: only what fits 0.25 s
        (10.0, 1),
        (0.0, 10),  # no idea yet
    ],
)
def test_a_visit_lasts_about_fifteen_milliseconds(call_s: float, calls: int) -> None:
    assert choose_calls(Target(0.02), call_s) == calls
    assert choose_calls(Target(0.02, batch_s=1.0), 0.05) == 20, "a visit may be as long as it is meant to be"


@pytest.mark.parametrize(
    ("halfwidth", "spent_s", "visits", "status"),
    [
        (0.05, 0.0, 3, Status.OK),
        (1.0, 0.9, 3, None),
        (1.0, 1.0, 3, Status.NOISY),
        (1.0, 0.0, 10, Status.NOISY),
        (0.0, 99.0, 2, None),  # too few visits
    ],
)
def test_a_point_ends_when_narrow_or_out_of_time(
    halfwidth: float, spent_s: float, visits: int, status: Status | None
) -> None:
    target = Target(0.05, min_visits=3, max_time_s=1.0, max_visits=10)
    assert judge(Summary(1, 1, 1, halfwidth, visits), spent_s, visits, target) is status
    assert judge(None, 99.0, 99, target) is None


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("spread", [0.01, 0.03])
def test_intervals_hold_the_truth_although_they_choose_when_to_stop(name: str, spread: float) -> None:
    """A rule that stops when the interval is narrow stops too early now and then: 90 % at least remain."""
    dice, target, held, trials = random.Random(2), PRESETS[name].target, 0, 400
    for _ in range(trials):
        times, summary = list[float](), None
        while judge(summary, 0.0, len(times), target) is None:
            times.append(math.exp(dice.gauss(0.0, spread)))
            summary = estimate_median(times)
        assert summary is not None
        held += summary.low_s <= 1.0 <= summary.high_s
    assert 0.88 < held / trials < 0.99


POINT = make_collective("all_to_all", backend="gloo", payload_bytes=1024)
COPY = make_kernel("copy", implementation="torch")
ROOT = make_collective("broadcast", backend="gloo", payload_bytes=1024)


def times(starts: list[float], ends: list[float], **more: Any) -> RankTimes:
    return RankTimes(starts, ends, **{"bytes_sent": 512, "checked": 256, **more})


def combine(seen: list[RankTimes], elapsed_s: float = 10.0, point: Point = POINT) -> Visit:
    return combine_times(point, [8, 9], seen, round=1, at="now", elapsed_s=elapsed_s)


def test_the_slowest_rank_counts_in_each_call() -> None:
    first = times([0.0, 2.0, 4.0], [1.0, 3.0, 5.0], steps_s={"a": [1.0, 2.0, 3.0]})
    second = times([0.5, 2.5, 4.5], [2.5, 3.0, 7.5], steps_s={"a": [4.0, 5.0, -6.0], "b": [1.0] * 3})
    visit = combine([first, second])
    assert visit.times_s == [2.0, 1.0, 3.0] and visit.steps_s == {"a": [4.0, 2.0, 0.0]}
    fewer = replace(second, steps_s={"a": [4.0]})
    assert combine([first, fewer]).steps_s == {}
    assert combine([replace(first, calls_each=2)] * 2).times_s == [0.5, 0.5, 0.5]
    assert compute_median_s(visit) == 2.0
    assert (visit.bytes_sent, visit.checked, visit.wrong, visit.note) == (512, 512, 0, "")


@pytest.mark.parametrize(
    ("starts", "ends", "elapsed_s", "why"),
    [
        ([1.0, 2.0], [1.5, 1.5], 10.0, "jumped back or stood still"),
        ([1.0, 2.0], [1.5, 2.0], 10.0, "jumped back or stood still"),
        ([5.0, 2.0], [5.5, 2.5], 10.0, "began before the one before it ended"),
        ([1.0, 2.0], [1.5, 3602.0], 10.0, "jumped ahead"),
        ([1.0, 2.0], [1.5, 12.02], 10.0, "jumped ahead"),
        ([1.0, 2.0], [1.5, 2.5], -3.0, "jumped ahead"),
        ([1.0, 2.0], [1.5, math.nan], 10.0, "not a number"),
        ([1.0, 2.0], [1.5, math.inf], 10.0, "not a number"),
    ],
)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_clock_that_cannot_be_believed_gives_no_times(
    starts: list[float], ends: list[float], elapsed_s: float, why: str, bad: int
) -> None:
    seen = [times([1.0, 2.0], [1.5, 2.5])] * 2
    seen[bad] = times(starts, ends)
    visit = combine(seen, elapsed_s)
    assert visit.times_s == [] and why in visit.note
    assert compute_median_s(visit) is None
    assert combine([times([1.0, 2.0], [2.0, 11.5])] * 2).note == ""  # 5 % and 10 ms longer may be


@pytest.mark.parametrize(
    "seen",
    [
        [times([0.0], [1.0])],
        [times([0.0], [1.0]), times([0.0, 2.0], [1.0, 3.0])],
        [times([0.0], [1.0]), times([0.0], [1.0], calls_each=2)],
        [times([], [])] * 2,
        [times([0.0], [])] * 2,
        [times([0.0], [1.0], calls_each=0)] * 2,
    ],
)
def test_ranks_that_did_different_things_fail_the_point(seen: list[RankTimes]) -> None:
    with pytest.raises(PerfmodelError, match="ranks"):
        combine(seen)


@pytest.mark.parametrize(
    ("point", "of_ranks", "problem"),
    [
        (POINT, [{}, {}], ""),
        (POINT, [{}, {"wrong": 3}], "3 of 512 elements are wrong"),
        (POINT, [{"checked": 0}] * 2, "no element of the result was checked"),
        (POINT, [{"bytes_sent": 0}] * 2, "no rank sent a byte"),
        (ROOT, [{}, {"bytes_sent": 0}], ""),
        (POINT.model_copy(update={"gpus": 1}), [{"bytes_sent": 0}] * 2, ""),
        (COPY, [{"bytes_sent": 0, "checked": 0}] * 2, ""),
    ],
)
def test_what_fails_a_point(point: Point, of_ranks: list[dict[str, int]], problem: str) -> None:
    visit = combine([times([0.0], [1.0], **fields) for fields in of_ranks], point=point)
    assert find_problem(point, visit) == problem
