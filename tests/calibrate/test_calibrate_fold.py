"""From the times of ranks to a visit: the slowest counts, and a clock that jumped is not believed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from calibrate.operations import RankTimes
from calibrate.running.fold import fold, problem_of, visit_median_s
from perfmodel.errors import PerfmodelError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind, Visit


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
    return fold(point(**p), ranks or [0, 1], seen, round=1, at="now", elapsed_s=elapsed_s)


def test_the_slowest_rank_counts_in_each_call() -> None:
    visit = folded(
        [times([0.0, 2.0, 4.0], [1.0, 3.0, 5.0]), times([0.5, 2.5, 4.5], [2.5, 3.0, 7.5])], ranks=[8, 9]
    )
    assert visit.times_s == [2.0, 1.0, 3.0]
    assert visit_median_s(visit) == 2.0
    assert visit.skew_s == 1.0  # 1, 0.5 and 2 s between slowest and fastest
    assert visit.slowest_rank == 9
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
    assert visit_median_s(visit) is None


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
    assert problem_of(point(), folded([good, good])) == ""
    wrong = folded([good, times([0.0], [1.0], wrong=3)])
    assert problem_of(point(), wrong) == "3 of 512 elements are wrong"
    unchecked = folded([times([0.0], [1.0], checked=0)] * 2)
    assert problem_of(point(), unchecked) == "no element of the result was checked"
    silent = folded([times([0.0], [1.0], bytes_sent=0)] * 2)
    assert problem_of(point(), silent) == "no rank sent a byte"
    root_only = folded([good, times([0.0], [1.0], bytes_sent=0)])
    assert problem_of(point(operation="broadcast"), root_only) == ""
    kernel = point(kind=PointKind.KERNEL, operation="copy", backend="", implementation="torch", gpus=1)
    assert problem_of(kernel, folded([times([0.0], [1.0], bytes_sent=0, checked=0)] * 2)) == ""
