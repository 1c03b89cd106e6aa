"""Overlap in a training step as an explicit schedule: streams, tasks, dependencies, start and end times.

A stream runs its tasks in the order of issue, as CUDA streams do. Tasks of different streams run at the same
time unless they use the same device: kernels that each fill the GPU, collectives that each fill the links.
Batches follow one another; a task may wait for a task of the batch before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

COMPUTE, NETWORK = "compute", "network"
"""Devices that run one task at a time; a task on "" shares no device."""


@dataclass(frozen=True)
class Task:
    """One task of every batch.

    duration_s  its time when it runs alone [s];  stream  stream on which it is issued
    after       names of tasks of the same batch that must end before it starts
    after_previous  names of tasks of the batch before that must end before it starts
    device      hardware that runs one task at a time: COMPUTE or NETWORK (communication); "": shares none
    """

    name: str
    stream: str
    duration_s: float
    after: tuple[str, ...] = ()
    after_previous: tuple[str, ...] = ()
    device: str = ""

    @property
    def communicates(self) -> bool:
        """Whether the task is communication."""
        return self.device == NETWORK


@dataclass(frozen=True)
class Span:
    """A task of one batch with start and end [s]; ``waited_for``: the last span that it waited for, or -1."""

    task: Task
    batch: int
    start_s: float
    end_s: float
    waited_for: int


@dataclass(frozen=True)
class Schedule:
    """Every task of every batch, in the order of issue: batch after batch; ``tasks``: number per batch."""

    spans: tuple[Span, ...]
    tasks: int  # number of tasks of one batch

    @property
    def end_s(self) -> float:
        """When the last task ends."""
        return max((span.end_s for span in self.spans), default=0.0)

    @property
    def critical(self) -> tuple[int, ...]:
        """Indices of the spans on the critical path, first to last: each begins when the one before ends."""
        if not self.spans:
            return ()
        at = max(range(len(self.spans)), key=lambda k: self.spans[k].end_s)
        path = [at]
        while self.spans[at].waited_for >= 0:
            at = self.spans[at].waited_for
            path.append(at)
        return tuple(reversed(path))

    def records(self) -> list[dict[str, Any]]:
        """The timeline as plain data for a figure, one entry per task."""
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

    def exposed_parts(self) -> list[tuple[int, float, float]]:
        """(index of the span, start, end [s]) of communication while no compute runs: exposed communication.

        Limits: everything on one stream -> all communication;  compute without a gap -> none
        """
        busy = _union((s.start_s, s.end_s) for s in self.spans if s.task.device == COMPUTE)
        found = []
        for at, span in enumerate(self.spans):
            if not span.task.communicates:
                continue
            start = span.start_s
            for first, last in busy:
                if last <= start or first >= span.end_s:
                    continue
                if first > start:
                    found.append((at, start, first))
                start = last
            if start < span.end_s:
                found.append((at, start, span.end_s))
        return found

    def exposed_s(self, first_s: float = 0.0, last_s: float | None = None) -> float:
        """Time in [first_s, last_s] during which communication runs and no compute does [s].

        Limits: everything on one stream -> all communication;  compute without a gap -> 0;
                never more than ``communication_s``
        """
        last_s = self.end_s if last_s is None else last_s
        busy = _union((s.start_s, s.end_s) for s in self.spans if s.task.device == COMPUTE)
        comm = _union((s.start_s, s.end_s) for s in self.spans if s.task.communicates)
        return _length(comm, first_s, last_s) - _overlap(comm, busy, first_s, last_s)


@dataclass(frozen=True)
class Steady:
    """Consecutive batches in steady state, or one batch alone (``alone``).

    schedule         all simulated batches
    first_s, last_s  the interval that is averaged [s];  batches  number of batches in it
    """

    schedule: Schedule
    first_s: float
    last_s: float
    batches: int

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of one batch."""
        return tuple(span.task for span in self.schedule.spans[: self.schedule.tasks])

    @property
    def step_s(self) -> float:
        """Mean time from one batch to the next [s]."""
        return (self.last_s - self.first_s) / self.batches

    @property
    def serial_s(self) -> float:
        """The sum of the times of all tasks of a batch [s]."""
        return sum(task.duration_s for task in self.tasks)

    @property
    def communication_s(self) -> float:
        """Communication time of one batch, hidden or not [s]."""
        return sum(task.duration_s for task in self.tasks if task.communicates)

    @property
    def exposed_s(self) -> float:
        """Communication time of one batch that compute does not hide [s]."""
        return min(self.schedule.exposed_s(self.first_s, self.last_s) / self.batches, self.communication_s)

    def exposed(self) -> dict[str, float]:
        """Exposed time per batch of each communication task [s]; they add up: one runs at a time."""
        spans = self.schedule.spans
        busy = _union((s.start_s, s.end_s) for s in spans if s.task.device == COMPUTE)
        found = {task.name: 0.0 for task in self.tasks if task.communicates}
        for span in spans:
            if span.task.communicates:
                own = [(span.start_s, span.end_s)]
                alone_s = _length(own, self.first_s, self.last_s)
                alone_s -= _overlap(own, busy, self.first_s, self.last_s)
                found[span.task.name] += alone_s / self.batches
        return found

    def on_path(self) -> dict[str, float]:
        """Time per batch of each task on the critical path [s]; they add up to ``step_s``."""
        spans = self.schedule.spans
        found = {task.name: 0.0 for task in self.tasks}
        for at in self.schedule.critical:
            own = [(spans[at].start_s, spans[at].end_s)]
            found[spans[at].task.name] += _length(own, self.first_s, self.last_s) / self.batches
        return found

    def timeline(self, batches: int = 3) -> list[dict[str, Any]]:
        """``Schedule.records`` of consecutive batches, numbered from 0, the first of which starts at 0 s."""
        count = self.schedule.tasks
        total = len(self.schedule.spans) // count
        batches = min(batches, total)
        skipped = (total - batches) // 2
        found = self.schedule.records()[skipped * count : (skipped + batches) * count]
        start_s = min((record["start_s"] for record in found), default=0.0)
        for record in found:
            record["batch"] -= skipped
            record["start_s"] -= start_s
            record["end_s"] -= start_s
        return found


def schedule(tasks: Sequence[Task], batches: int = 1) -> Schedule:
    """List schedule: repeatedly starts the task that can start first, among the next tasks of all streams.

    tasks    of one batch, in the order of issue: each comes after the tasks that it waits for
    Source: CUDA streams; SCIENCE's overlap pipeline (EMBark, HugeCTR)
    Limits: one stream -> the sum of the tasks;  own streams, no dependencies -> the longest task;
            never shorter than the longest chain of dependencies, nor than the work of any stream or device;
            a name that is unknown or comes later -> ValueError
    """
    _check(tasks)
    index = {task.name: at for at, task in enumerate(tasks)}
    count, needed = len(tasks), [_needs(task, index) for task in tasks]
    queues: dict[str, list[int]] = {}
    for at in range(count * batches):
        queues.setdefault(tasks[at % count].stream, []).append(at)
    heads = dict.fromkeys(queues, 0)
    spans: dict[int, Span] = {}
    last: dict[str, Ended] = {}  # per stream: the task that it ran last
    free: dict[str, Ended] = {}  # per device: the task that it ran last
    ready: dict[str, Ended] = {}  # of the next task of each stream: the last task that it waited for
    begun, ended = [0] * batches, [NOTHING] * batches  # per batch: tasks begun; the last to end
    while len(spans) < count * batches:
        best: tuple[float, int, int] | None = None
        for stream, queue in queues.items():
            if heads[stream] == len(queue):
                continue
            at = queue[heads[stream]]
            if stream not in ready:
                earlier = at // count - IN_FLIGHT
                if earlier >= 0 and begun[earlier] < count:
                    continue
                own = at - at % count
                needs = [own + k for k in needed[at - own] if own + k >= 0]
                if not spans.keys() >= set(needs):
                    continue
                before = ended[earlier] if earlier >= 0 else NOTHING
                ready[stream] = max([before, *((spans[k].end_s, k) for k in needs)])
            device = free.get(tasks[at % count].device, NOTHING)
            start, waited = max(ready[stream], last.get(stream, NOTHING), device)
            best = min(best, (start, at, waited)) if best else (start, at, waited)
        assert best is not None  # dependencies point backwards, so some task can always begin
        start, at, waited = best
        task = tasks[at % count]
        spans[at] = Span(task, at // count, start, start + task.duration_s, waited)
        end = spans[at].end_s, at
        begun[at // count] += 1
        ended[at // count] = max(ended[at // count], end)
        heads[task.stream] += 1
        del ready[task.stream]
        last[task.stream] = end
        if task.device:
            free[task.device] = end
    return Schedule(tuple(spans[at] for at in range(count * batches)), count)


Ended = tuple[float, int]
NOTHING: Ended = (0.0, -1)
"""When something ended [s], and the index of its span; here: nothing to wait for."""

IN_FLIGHT = 2
"""Batches in flight at a time: a third begins when the first has ended."""


def _needs(task: Task, index: dict[str, int]) -> list[int]:
    """Spans that must have ended before a task may start, as offsets from its batch's first span.

    index  position of each task in its batch, by name
    An offset below 0 is a task of the batch before. The limit ``IN_FLIGHT`` is applied elsewhere.
    """
    count = len(index)
    return [*(index[name] for name in task.after), *(index[name] - count for name in task.after_previous)]


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
    """The steady state when batches follow one another without end.

    The first half of the simulated batches settles, the second half is averaged. Two batches are in flight at
    a time, so a schedule may repeat every two batches: an even number is averaged.
    Limits: one stream -> the sum of the tasks;  no wait for the batch before -> the largest of the busiest
    stream or device, and half a batch's critical path;  never less than either
    """
    found = schedule(tasks, batches)
    count, last = len(tasks), batches - 1 - IN_FLIGHT  # batches after it are simulated too
    first = last - (last - batches // 2 + 1) // IN_FLIGHT * IN_FLIGHT
    ends = [max(span.end_s for span in found.spans[: (batch + 1) * count]) for batch in (first, last)]
    return Steady(found, ends[0], ends[1], last - first)


def alone(tasks: Sequence[Task]) -> Steady:
    """The schedule of one batch alone, without others. Limits: one stream -> the sum of the tasks"""
    found = schedule(tasks)
    return Steady(found, 0.0, found.end_s, 1)


Interval = tuple[float, float]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of the intervals, as intervals that do not overlap."""
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
    """Length of the intersection of both within [first, last]."""
    return sum(_length(two, max(start, first), min(end, last)) for start, end in one)
