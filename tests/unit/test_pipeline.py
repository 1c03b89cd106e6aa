"""The overlap pipeline: schedules that a person can draw, and what no schedule may do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from perfmodel.model.pipeline import Parts, dense_time, forward_overlapped, in_line, overlapped
from perfmodel.model.schedule import (
    COMPUTE,
    NETWORK,
    Steady,
    Task,
    alone,
    schedule,
    steady,
)


def critical_path_s(tasks: Sequence[Task]) -> float:
    """Longest chain of dependencies inside one batch [s]."""
    ends: dict[str, float] = {}
    for task in tasks:
        ends[task.name] = task.duration_s + max((ends[name] for name in task.after), default=0.0)
    return max(ends.values(), default=0.0)


def test_dense_time_by_hand() -> None:
    assert dense_time(96e12, 1000e12, 0.5) == pytest.approx(0.192)


FORK = (
    Task("a", "one", 2.0, device=COMPUTE),
    Task("send", "two", 5.0, ("a",), device=NETWORK),
    Task("b", "one", 3.0, ("a",), device=COMPUTE),
    Task("c", "one", 1.0, ("send", "b"), device=COMPUTE),
)


def test_a_fork_by_hand() -> None:
    """a 0-2, send 2-7 beside b 2-5, c 7-8: 8 in all, 2 of the 5 of communication are exposed."""
    found = schedule(FORK)
    assert [(s.task.name, s.start_s, s.end_s) for s in found.spans] == [
        ("a", 0, 2),
        ("send", 2, 7),
        ("b", 2, 5),
        ("c", 7, 8),
    ]
    assert found.end_s == 8 == critical_path_s(FORK)
    assert found.exposed_s() == 2
    assert [found.spans[k].task.name for k in found.critical] == ["a", "send", "c"]


def test_one_stream_is_the_sum() -> None:
    alone = tuple(Task(t.name, "only", t.duration_s, t.after, (), t.device) for t in FORK)
    found = schedule(alone)
    assert found.end_s == 11
    assert found.exposed_s() == 5


def test_no_dependencies_and_own_streams_are_the_longest_task() -> None:
    tasks = [Task(str(n), str(n), float(n)) for n in (3, 1, 2)]
    assert schedule(tasks).end_s == 3


def test_a_device_serves_one_task_at_a_time() -> None:
    tasks = [Task("x", "one", 2.0, device=COMPUTE), Task("y", "two", 3.0, device=COMPUTE)]
    assert schedule(tasks).end_s == 5
    tasks = [Task("x", "one", 2.0, device=COMPUTE), Task("y", "two", 3.0, device=NETWORK)]
    assert schedule(tasks).end_s == 3


def test_the_timeline_names_every_task_of_every_batch() -> None:
    records = schedule(FORK, 2).records()
    assert [(r["batch"], r["task"]) for r in records] == [
        (b, n) for b in (0, 1) for n in ("a", "send", "b", "c")
    ]
    second = records[4:]
    assert [(r["start_s"], r["end_s"]) for r in second] == [(8, 10), (10, 15), (10, 13), (15, 16)]
    assert [r["task"] for r in records if r["critical"]] == ["a", "send", "c", "a", "send", "c"]
    assert {r["device"] for r in records} == {COMPUTE, NETWORK}


def test_batches_overlap_where_nothing_waits() -> None:
    """send of 5 and compute of 4 on streams of their own: a batch every 5, 1 of the send is exposed."""
    tasks = (Task("send", "n", 5.0, device=NETWORK), Task("work", "c", 4.0, device=COMPUTE))
    found = steady(tasks)
    assert found.step_s == pytest.approx(5)
    assert found.exposed_s == pytest.approx(1)
    assert (found.serial_s, found.communication_s) == (9, 5)


def test_keys_of_the_next_batch_travel_during_this_one() -> None:
    """work 4 needs keys 3 of the batch before: 4 a batch; without the overlap it would be 7."""
    work = Task("work", "c", 4.0, (), ("keys",), COMPUTE)
    keys = Task("keys", "n", 3.0, (), (), NETWORK)
    assert steady((work, keys)).step_s == pytest.approx(4)
    late = Task("keys", "n", 3.0, ("work",), (), NETWORK)
    assert steady((work, late)).step_s == pytest.approx(7)


def test_two_batches_are_in_flight() -> None:
    """A chain of three streams, 1 s each: two batches every 3 s, 1.5 s a step; three in flight would be 1."""
    chain = (Task("a", "x", 1.0), Task("b", "y", 1.0, ("a",)), Task("c", "z", 1.0, ("b",)))
    assert steady(chain).step_s == 1.5
    starts = [span.start_s for span in schedule(chain, 5).spans if span.task.name == "a"]
    assert starts == [0, 1, 3, 4, 6]  # the third begins when the first has ended


PARTS = Parts(
    bucketize=1, keys=2, lookup=3, forward=6, backward=6, update=4, top=5, top_backward=10, bottom=2,
    bottom_backward=4, dp_lookup=1, dp_reduce=2, dp_update=1, dense_reduce=3, dense_update=1,
    pool=1, unpool=1,
)  # fmt: skip


def test_the_pipeline_by_hand() -> None:
    """Lookup 0-3, then dp lookup 3-4 and bottom 4-6 beside the forward exchange 3-9, the keys
    of the next batch 6-7 and 9-11, pool 9-10, top 10-15, its backward 15-25, ..."""
    spans = {s.task.name: (s.start_s, s.end_s) for s in schedule(overlapped(PARTS)).spans}
    assert spans["lookup"] == (0, 3)
    assert spans["forward exchange"] == (3, 9)
    assert spans["dp lookup"] == (3, 4)
    assert spans["bottom"] == (4, 6)
    assert spans["next bucketize"] == (6, 7)
    assert spans["next keys"] == (9, 11)
    assert spans["pool"] == (9, 10)
    assert spans["top"] == (10, 15)
    assert spans["top backward"] == (15, 25)
    assert spans["unpool"] == (25, 26)
    assert spans["bottom backward"] == (26, 30)
    assert spans["dp reduce"] == (25, 27)  # takes the links first
    assert spans["backward exchange"] == (27, 33)
    assert spans["dp update"] == (30, 31)
    assert spans["dense reduce"] == (33, 36)
    assert spans["update"] == (33, 37)
    assert spans["dense update"] == (37, 38)


def test_the_next_batch_begins_with_updated_weights() -> None:
    """An optimizer of 100 s for the dense layers, one of 100 s for the rows."""
    long = Parts(**{**vars(PARTS), "dense_update": 100.0, "update": 100.0})
    spans = {(s.batch, s.task.name): s for s in schedule(overlapped(long), 2).spans}
    assert spans[1, "bottom"].start_s >= spans[0, "dense update"].end_s
    assert spans[1, "lookup"].start_s >= spans[0, "update"].end_s


def test_the_serial_step_is_the_sum() -> None:
    found = steady(in_line(overlapped(PARTS)))
    assert found.step_s == pytest.approx(53) == pytest.approx(found.serial_s)
    assert found.exposed_s == pytest.approx(19) == pytest.approx(found.communication_s)


def test_infinite_compute_hides_what_may_overlap() -> None:
    """Bottom MLP of 1000, forward and backward: the exchanges vanish behind it, the last reduction behind the
    updates of rows and the next look-up."""
    long = Parts(**{**vars(PARTS), "bottom": 1000.0, "bottom_backward": 1000.0})
    found = steady(overlapped(long))
    assert found.exposed_s == pytest.approx(0, abs=1e-9)
    assert found.step_s == pytest.approx(found.serial_s - found.communication_s)


def test_one_batch_alone_by_hand() -> None:
    """FORK: 2 of the send are exposed, and it is on the path a, send, c of 2 + 5 + 1."""
    found = alone(FORK)
    assert (found.step_s, found.serial_s, found.communication_s, found.exposed_s) == (8, 11, 5, 2)
    assert found.exposed() == {"send": 2}
    assert found.on_path() == {"a": 2, "send": 5, "b": 0, "c": 1}
    assert [record["start_s"] for record in found.timeline()] == [0, 2, 2, 7]


def test_the_forward_pass_alone_by_hand() -> None:
    """Bucketize 1, keys 2, lookup 3, exchange 6 beside the look-up of copies 1 and the bottom MLP 2, pool 1,
    top 5: 18; one after the other 21."""
    found = alone(forward_overlapped(PARTS))
    assert (found.step_s, found.serial_s) == (18, 21)
    assert found.exposed() == {"keys": 2, "forward exchange": 3}
    assert alone(in_line(forward_overlapped(PARTS))).step_s == 21


def test_the_timeline_is_of_settled_batches_and_begins_at_0() -> None:
    """send 5 and work 4 on their own streams: a batch every 5."""
    tasks = (Task("send", "n", 5.0, device=NETWORK), Task("work", "c", 4.0, device=COMPUTE))
    records = steady(tasks).timeline(2)
    assert [(r["batch"], r["task"]) for r in records] == [(b, n) for b in (0, 1) for n in ("send", "work")]
    sends = [(r["start_s"], r["end_s"]) for r in records if r["task"] == "send"]
    assert sends[1][0] - sends[0][0] == 5 and min(r["start_s"] for r in records) == 0


durations = st.floats(0, 100, allow_nan=False)


def computed_s(many: Steady) -> float:
    """Compute inside the batches that are averaged, per batch; where two batches take turns, one more or one
    less may be cut at an end, so that it is not always the work of a batch [s]."""
    spans = [s for s in many.schedule.spans if s.task.device == COMPUTE]
    inside = (min(s.end_s, many.last_s) - max(s.start_s, many.first_s) for s in spans)
    return sum(max(0.0, length) for length in inside) / many.batches


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(st.builds(Parts, **{name: durations for name in vars(PARTS)}))
def test_no_schedule_beats_its_work(parts: Parts) -> None:
    tasks = overlapped(parts)
    one, many = schedule(tasks), steady(tasks)
    work = {d: sum(t.duration_s for t in tasks if t.device == d) for d in (COMPUTE, NETWORK)}
    assert one.end_s >= critical_path_s(tasks) * (1 - 1e-12)
    assert one.end_s <= many.serial_s * (1 + 1e-12)
    for busy in work.values():
        assert many.step_s >= busy * (1 - 1e-9) - 1e-12
    assert many.step_s <= many.serial_s * (1 + 1e-9) + 1e-12
    assert 0 <= many.exposed_s <= many.communication_s
    assert many.step_s >= computed_s(many) + many.exposed_s - 1e-9 * (1 + many.serial_s)
    assert sum(many.on_path().values()) == pytest.approx(many.step_s)
    assert sum(many.exposed().values()) == pytest.approx(many.exposed_s, abs=1e-9)
    ordered = [one.spans[k] for k in one.critical]
    for before, after in pairwise(ordered):
        assert after.start_s == before.end_s


def test_what_cannot_be_scheduled() -> None:
    with pytest.raises(ValueError, match=r"waits for \['b'\]"):
        schedule([Task("a", "s", 1.0, ("b",)), Task("b", "s", 1.0)])
    with pytest.raises(ValueError, match=r"task 'a'"):
        schedule([Task("a", "s", 1.0), Task("a", "s", 1.0)])
    with pytest.raises(ValueError, match=r"task 'a'"):
        schedule([Task("a", "s", -1.0)])
    with pytest.raises(ValueError, match=r"task 'a'"):
        schedule([Task("a", "s", float("nan"))])
