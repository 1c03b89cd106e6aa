"""Collectives of several ranks put together: time after the last arrival, waits, traces that begin later."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.schema.trace_alignment import align, rank_skews
from perfmodel.schema.traces import RankTrace, TracedCollective, TraceKind


def collective(rank: int, instance: int, time_s: float, name: str = "all_reduce", **more) -> TracedCollective:
    fields = {"group": "0", "group_ranks": (0, 1, 2), "group_size": 3, "numbered": False, "in_bytes": 64,
              "out_bytes": 64, "payload_bytes": 64, "dtype": "float", "stream": 7,
              "start_s": float(instance)}  # fmt: skip
    return TracedCollective(
        rank=rank, collective=name, instance=instance, time_s=time_s, **{**fields, **more}
    )


def trace(rank: int, *collectives: TracedCollective) -> RankTrace:
    return RankTrace(
        f"rank{rank}.json", TraceKind.KINETO, rank, 3, "nccl", "GPU", "host", 0, collectives, (), (), 10
    )


def test_the_time_is_that_after_the_last_arrival_and_the_rest_is_wait() -> None:
    """Against arrivals from which the durations are made: rank r starts at arrival(r), all end together."""
    draw = np.random.default_rng(3)
    arrivals = draw.uniform(0, 1e-3, size=(3, 40))
    own_s = draw.uniform(1e-5, 2e-5, size=40)
    ends = arrivals.max(axis=0) + own_s
    traces = [trace(r, *(collective(r, i, ends[i] - arrivals[r, i]) for i in range(40))) for r in range(3)]
    found = align(traces).collectives
    assert [one.time_s for one in found] == pytest.approx(own_s)
    assert [one.last_rank for one in found] == list(arrivals.argmax(axis=0))
    for i, one in enumerate(found):
        assert [one.wait_s[r] for r in range(3)] == pytest.approx(arrivals[:, i].max() - arrivals[:, i])


def test_equal_durations_are_no_wait() -> None:
    """0.1 + 0.2 is not 0.3 in binary: the rest of a rounding is not a wait of 5.6e-08 ns."""
    durations = (0.1 + 0.2, 0.3, 0.3 + 2e-9)
    (found,) = align([trace(r, collective(r, 0, time)) for r, time in enumerate(durations)]).collectives
    assert list(found.wait_s.values()) == [0.0, 0.0, pytest.approx(2e-9, rel=1e-6)]


def test_the_slow_rank_is_first_and_waits_for_nobody() -> None:
    traces = [trace(r, *(collective(r, i, 1e-5 if r == 1 else 5e-5) for i in range(10))) for r in range(3)]
    first, *rest = rank_skews(align(traces).collectives)
    assert (first.rank, first.last, first.wait_p99_s) == (1, 10, 0)
    assert first.caused_s == pytest.approx(10 * 4e-5)
    assert [skew.wait_p50_s for skew in rest] == pytest.approx([4e-5, 4e-5])


@pytest.mark.parametrize("late", [1, 3])
def test_a_rank_that_was_traced_later_is_moved_to_where_its_collectives_agree(late: int) -> None:
    names = ["all_reduce", "all_gather", "all_reduce", "all_to_all", "broadcast", "all_gather", "all_reduce"]
    whole = trace(0, *(collective(0, i, 1e-5, name) for i, name in enumerate(names)))
    part = trace(1, *(collective(1, i, 2e-5, name) for i, name in enumerate(names[late:])))
    both = [one for one in align([whole, part]).collectives if len(one.parts) == 2]
    assert [one.first.instance for one in both] == list(range(late, len(names)))


def test_numbers_of_the_trace_are_believed() -> None:
    early = trace(0, *(collective(0, i, 1e-5, numbered=True) for i in (5, 6, 7)))
    later = trace(1, *(collective(1, i, 2e-5, numbered=True) for i in (7, 8)))
    assert [(one.first.instance, len(one.parts)) for one in align([early, later]).collectives] == [
        (5, 1), (6, 1), (7, 2), (8, 1)
    ]  # fmt: skip


def test_one_rank_alone_has_the_skew_inside() -> None:
    alone = align([trace(0, collective(0, 0, 3e-5))])
    assert alone.skew_inside and alone.collectives[0].time_s == 3e-5
    assert rank_skews(alone.collectives) == []


def test_numbers_that_hold_different_collectives_are_left_out() -> None:
    traces = [
        trace(0, collective(0, 4, 1e-5, numbered=True)),
        trace(1, collective(1, 4, 1e-5, "all_gather", numbered=True)),
    ]
    aligned = align(traces)
    assert aligned.collectives == () and aligned.left_out == {"ranks disagree on which collective it is": 2}


@pytest.mark.parametrize(("overlap_s", "counts"), [(0.0, False), (4e-5, False), (4.1e-5, True), (5e-5, True)])
def test_compute_beside_the_wait_alone_does_not_count(overlap_s: float, counts: bool) -> None:
    """Rank 0 waits 40 us of its 50 us for rank 1."""
    waits = collective(0, 0, 5e-5, overlap_s=overlap_s)
    (one,) = align([trace(0, waits), trace(1, collective(1, 0, 1e-5))]).collectives
    assert one.overlapped is counts
