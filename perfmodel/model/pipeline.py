"""Overlap of a training step as an explicit schedule: streams, tasks, dependencies, start and end of each.

A stream runs its tasks in the order in which they are issued, as CUDA streams do. Tasks of different streams
run at the same time, unless they name the same device: kernels that each fill the GPU, collectives that each
fill the links. Batches follow one another; a task may wait for one of the batch before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

COMPUTE, NETWORK = "compute", "network"
"""Devices that serve one task at a time; "" shares with nobody."""


@dataclass(frozen=True)
class Task:
    """One piece of work of every batch.

    duration_s  time that it takes alone [s];  stream  that it is issued on
    after       names of tasks of the same batch that must have ended
    after_previous  names of tasks of the batch before: of the batch that was issued one earlier
    device      COMPUTE, NETWORK or "";  a NETWORK task is communication
    """

    name: str
    stream: str
    duration_s: float
    after: tuple[str, ...] = ()
    after_previous: tuple[str, ...] = ()
    device: str = ""

    @property
    def communicates(self) -> bool:
        """Whether it is communication."""
        return self.device == NETWORK


@dataclass(frozen=True)
class Span:
    """A task of one batch with its start and end [s], and what it waited for last (-1: nothing)."""

    task: Task
    batch: int
    start_s: float
    end_s: float
    waited_for: int


@dataclass(frozen=True)
class Schedule:
    """Every task of every batch, in the order of issue: batch after batch."""

    spans: tuple[Span, ...]
    tasks: int  # of one batch

    @property
    def end_s(self) -> float:
        """When the last task ends."""
        return max((span.end_s for span in self.spans), default=0.0)

    @property
    def critical(self) -> tuple[int, ...]:
        """Indices of the spans that the end hangs on, first to last: each begins when the one before ends."""
        if not self.spans:
            return ()
        at = max(range(len(self.spans)), key=lambda k: self.spans[k].end_s)
        path = [at]
        while self.spans[at].waited_for >= 0:
            at = self.spans[at].waited_for
            path.append(at)
        return tuple(reversed(path))

    def records(self) -> list[dict[str, Any]]:
        """The timeline as plain data, one entry a task: what a picture of it needs."""
        critical = set(self.critical)
        return [
            {
                "batch": span.batch,
                "task": span.task.name,
                "stream": span.task.stream,
                "device": span.task.device,
                "start_s": span.start_s,
                "end_s": span.end_s,
                "critical": at in critical,
            }
            for at, span in enumerate(self.spans)
        ]

    def exposed_s(self, first_s: float = 0.0, last_s: float | None = None) -> float:
        """Time in [first_s, last_s] in which only communication runs, or communication and nothing else [s].

        Limits: everything on one stream -> all communication;  compute all the time -> 0;
                never more than ``communication_s``
        """
        last_s = self.end_s if last_s is None else last_s
        busy = _union((s.start_s, s.end_s) for s in self.spans if s.task.device == COMPUTE)
        comm = _union((s.start_s, s.end_s) for s in self.spans if s.task.communicates)
        return _length(comm, first_s, last_s) - _overlap(comm, busy, first_s, last_s)


@dataclass(frozen=True)
class Steady:
    """Consecutive batches once each takes as long as the one before.

    step_s           time from one batch to the next [s]
    communication_s  of one batch [s];  exposed_s  of it, not hidden behind compute [s]
    serial_s         the sum of all tasks [s];  schedule  of the batches that were simulated
    """

    step_s: float
    communication_s: float
    exposed_s: float
    serial_s: float
    schedule: Schedule


def dense_time(flops: float, rate: float, efficiency: float) -> float:
    """Time of a dense part of the model.

        t = flops / (rate efficiency)                                         [s]

    flops  floating-point operations [FLOP];  rate  of the GPU, from its datasheet [FLOP/s]
    efficiency  share of it that is reached [-], above 0
    Source: definition
    Limits: no operations -> 0;  efficiency = 1 -> the datasheet's
    """
    return flops / (rate * efficiency)


def critical_path_s(tasks: Sequence[Task]) -> float:
    """Longest chain of dependencies inside one batch [s]: no schedule of it is shorter, on any streams.

    Limits: no dependencies -> the longest task;  a chain -> the sum
    """
    ends: dict[str, float] = {}
    for task in tasks:
        ends[task.name] = task.duration_s + max((ends[name] for name in task.after), default=0.0)
    return max(ends.values(), default=0.0)


def schedule(tasks: Sequence[Task], batches: int = 1) -> Schedule:
    """List schedule: of the tasks next on their streams, the one that can begin first is begun, and so on.

    tasks    of one batch, in the order of issue: each after those that it waits for
    Source: CUDA streams; SCIENCE's overlap pipeline (EMBark, HugeCTR)
    Limits: one stream -> the sum of the tasks;  own streams, no dependencies -> the longest task;
            never shorter than ``critical_path_s``, nor than the work of any stream or device;
            a name that is unknown or comes later -> ValueError
    """
    _check(tasks)
    index = {task.name: at for at, task in enumerate(tasks)}
    count = len(tasks)
    queues: dict[str, list[int]] = {}
    for at in range(count * batches):
        queues.setdefault(tasks[at % count].stream, []).append(at)
    heads = dict.fromkeys(queues, 0)
    spans: dict[int, Span] = {}
    last: dict[str, int] = {}  # of a stream or device, the task that it ran last
    while len(spans) < count * batches:
        best: tuple[float, int, int] | None = None
        for stream, queue in queues.items():
            if heads[stream] == len(queue):
                continue
            at = queue[heads[stream]]
            needs = _needs(tasks, index, at)
            if any(need not in spans for need in needs):
                continue
            device = tasks[at % count].device
            needs += [last[name] for name in (f"stream {stream}", f"device {device}") if name in last]
            start, waited = max(((spans[k].end_s, k) for k in needs), default=(0.0, -1))
            best = min(best, (start, at, waited)) if best else (start, at, waited)
        assert best is not None  # dependencies point backwards, so some task can always begin
        start, at, waited = best
        task = tasks[at % count]
        spans[at] = Span(task, at // count, start, start + task.duration_s, waited)
        heads[task.stream] += 1
        last[f"stream {task.stream}"] = at
        if task.device:
            last[f"device {task.device}"] = at
    return Schedule(tuple(spans[at] for at in range(count * batches)), count)


IN_FLIGHT = 2
"""Batches that are worked on at a time: a third begins when the first has ended."""


def _needs(tasks: Sequence[Task], index: dict[str, int], at: int) -> list[int]:
    """Spans that must have ended: of the same batch, and of the one before."""
    count = len(tasks)
    batch, task = at // count, tasks[at % count]
    needs = [batch * count + index[name] for name in task.after]
    needs += [(batch - 1) * count + index[name] for name in task.after_previous if batch > 0]
    if batch >= IN_FLIGHT:
        needs += range((batch - IN_FLIGHT) * count, (batch - IN_FLIGHT + 1) * count)
    return needs


def _check(tasks: Sequence[Task]) -> None:
    known: set[str] = set()
    everything = {task.name for task in tasks}
    for task in tasks:
        missing = [name for name in task.after if name not in known]
        missing += [name for name in task.after_previous if name not in everything]
        if missing or task.name in known or not task.duration_s >= 0:
            raise ValueError(
                f"task {task.name!r} waits for {missing}, repeats a name, or takes no time at all"
            )
        known.add(task.name)


_BATCHES = 27


def steady(tasks: Sequence[Task], batches: int = _BATCHES) -> Steady:
    """Time of a step when batches follow one another without end.

    The first half of the simulated batches settles, the second half is averaged; two are in flight at a time.
    Limits: one stream -> the sum of the tasks;  nothing waits for the batch before -> the busiest stream or
            device, or half a batch's critical path;  never less than either
    """
    found = schedule(tasks, batches)
    count, first, last = (
        len(tasks),
        batches // 2,
        batches - 1 - IN_FLIGHT,
    )  # what follows the last ones is there
    ends = [max(span.end_s for span in found.spans[: (batch + 1) * count]) for batch in (first, last)]
    measured = last - first
    communication = sum(task.duration_s for task in tasks if task.communicates)
    exposed = found.exposed_s(*ends) / measured
    return Steady(
        (ends[1] - ends[0]) / measured,
        communication,
        min(exposed, communication),
        sum(task.duration_s for task in tasks),
        found,
    )


Interval = tuple[float, float]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times without overlap."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval], first: float, last: float) -> float:
    return sum(max(min(end, last) - max(start, first), 0.0) for start, end in intervals)


def _overlap(one: Iterable[Interval], two: Sequence[Interval], first: float, last: float) -> float:
    """Time that lies in both."""
    return sum(_length(two, max(start, first), min(end, last)) for start, end in one)


@dataclass(frozen=True)
class Parts:
    """Times of the parts of one training step [s]; "dp" of tables that are on every rank.

    bucketize, keys  ids sorted by holder, and sent to them;  lookup, dp_lookup  gathers
    forward, backward  exchange of bags, of gradients
    bottom, top  MLPs (the interaction counts as top), forward; ``*_backward`` their gradients
    update, dp_update  rows and state;  dp_reduce  all-reduce of copied tables;  dense_reduce  of the MLPs
    pool, unpool  kernels beside the exchanges: sums of partial bags, conversions, gradients added up by row
    """

    keys: float
    lookup: float
    forward: float
    backward: float
    update: float
    top: float
    top_backward: float
    bottom: float = 0.0
    bottom_backward: float = 0.0
    dp_lookup: float = 0.0
    dp_reduce: float = 0.0
    dp_update: float = 0.0
    dense_reduce: float = 0.0
    pool: float = 0.0
    unpool: float = 0.0
    bucketize: float = 0.0


def overlapped(parts: Parts) -> tuple[Task, ...]:
    """The pipeline of three streams: tables on one rank (mp), tables on all (dp), the dense model (default).

    The bottom MLP and the look-ups of dp run during the forward exchange; the top MLP waits for both; the
    gradient exchange runs during the backward of the bottom MLP and the reduction of dp; the keys of the next
    batch travel during this one.
    Source: EMBark (RecSys 2024), the pipeline of HugeCTR
    Limits: no communication -> the compute of a step;  see ``steady``
    """
    p = parts
    return (
        Task("lookup", "mp", p.lookup, (), ("next keys", "update"), COMPUTE),
        Task("forward exchange", "mp", p.forward, ("lookup",), (), NETWORK),
        Task("dp lookup", "dp", p.dp_lookup, (), ("dp update",), COMPUTE),
        Task("bottom", "default", p.bottom, (), ("dense reduce",), COMPUTE),
        Task("pool", "mp", p.pool, ("forward exchange",), (), COMPUTE),
        Task("next bucketize", "keys", p.bucketize, ("lookup",), (), COMPUTE),
        Task("next keys", "keys", p.keys, ("next bucketize", "forward exchange"), (), NETWORK),
        Task("top", "default", p.top, ("bottom", "pool", "dp lookup"), (), COMPUTE),
        Task("top backward", "default", p.top_backward, ("top",), (), COMPUTE),
        Task("unpool", "mp", p.unpool, ("top backward",), (), COMPUTE),
        Task("backward exchange", "mp", p.backward, ("unpool",), (), NETWORK),
        Task("bottom backward", "default", p.bottom_backward, ("top backward",), (), COMPUTE),
        Task("dp reduce", "dp", p.dp_reduce, ("top backward",), (), NETWORK),
        Task("dp update", "dp", p.dp_update, ("dp reduce",), (), COMPUTE),
        Task("dense reduce", "dense", p.dense_reduce, ("bottom backward",), (), NETWORK),
        Task("update", "mp", p.update, ("backward exchange",), (), COMPUTE),
    )


def serial(parts: Parts) -> tuple[Task, ...]:
    """The same tasks on one stream: nothing overlaps, the step is their sum."""
    return tuple(
        Task(task.name, "default", task.duration_s, task.after, (), task.device) for task in overlapped(parts)
    )
