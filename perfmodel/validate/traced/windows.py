"""Cuts traces into the profiler's steps: the collectives and kernels of each step, on every rank."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.trace_alignment import AlignedCollective, align
from perfmodel.schema.traces import RankTrace, TracedCollective, TracedKernel

WARM_UP = 1
"""Steps at the start of a trace that are left out if it has more than two: caches and buffers fill."""


@dataclass(frozen=True, eq=False)
class TracedStep:
    """One step of the profiler, an iteration.

    number   as the profiler counts;  events  collectives in the order of their start on the lowest rank
    kernels  of every traced rank
    """

    number: int
    events: tuple[AlignedCollective, ...]
    kernels: dict[int, tuple[TracedKernel, ...]]


@dataclass(frozen=True, eq=False)
class CutTrace:
    """The steps of the profiler that are compared.

    ranks      that have a trace;  world_size  ranks of the job
    skipped    number of steps left out at the start;  outside  number of collectives that are in no step
    unaligned  number of collectives, on single ranks, on which the ranks' traces disagree
    complete   whether there are traces of all ranks of every process group
    """

    ranks: tuple[int, ...]
    world_size: int
    steps: tuple[TracedStep, ...]
    skipped: int
    outside: int
    unaligned: int
    complete: bool


def cut(traces: Sequence[RankTrace], skip: int | None = None) -> CutTrace:
    """Cuts traces into the steps that all of them have.

    skip  steps at the start to leave out; None: ``WARM_UP``, or none if there are at most two
    A collective belongs to the step in which its lowest rank launched it, a kernel to its own rank's step.
    Limits: no profiler's step, no collective, or none left -> BadInputError
    """
    ranks = tuple(sorted(trace.rank for trace in traces))
    spans = {trace.rank: _Spans.of(trace) for trace in traces}
    common = sorted(set.intersection(*(set(each.numbers) for each in spans.values()))) if spans else []
    if not common:
        raise BadInputError(
            "no step of the profiler is in all of these traces.",
            "call profiler.step() at the end of each training step, on every rank, and trace again.",
        )
    left_out = skip if skip is not None else (WARM_UP if len(common) > 2 else 0)
    used = common[left_out:]
    if not used:
        raise BadInputError(
            f"--skip {left_out} leaves no step of the {len(common)} that were traced.",
            f"leave out at most {len(common) - 1}.",
        )
    alignment = align(traces)
    cut = [trace.file for trace in traces if trace.cut]
    if not alignment.collectives and cut:
        raise BadInputError(
            f"these traces have no collective: {cut[0]} is cut short.",
            "copy it again from where it was written.",
        )
    if not alignment.collectives:
        raise BadInputError(
            "these traces have no collective.", "trace a run on two or more ranks, with torch.distributed."
        )
    events: dict[int | None, list[AlignedCollective]] = defaultdict(list)
    for one in alignment.collectives:
        events[spans[one.first.rank].at(_launched(one.first))].append(one)
    wanted = set(used)
    kernels: dict[int | None, dict[int, list[TracedKernel]]] = defaultdict(lambda: defaultdict(list))
    for trace in traces:
        for kernel in trace.kernels:
            number = spans[trace.rank].at(kernel.start_s - (kernel.queue_s or 0.0))
            if number in wanted:
                kernels[number][trace.rank].append(kernel)
    steps = tuple(
        TracedStep(
            number,
            tuple(sorted(events[number], key=lambda one: one.first.start_s)),
            {rank: tuple(kernels[number][rank]) for rank in ranks},
        )
        for number in used
    )
    return CutTrace(
        ranks,
        max(trace.world_size for trace in traces),
        steps,
        left_out,
        len(events[None]),
        sum(alignment.left_out.values()),
        not alignment.skew_inside,
    )


def _launched(one: TracedCollective) -> float:
    return one.start_s if one.launch_s is None else one.launch_s


@dataclass(frozen=True)
class _Spans:
    """The profiler's steps of one rank in order: numbers, and times of start and end [s]."""

    numbers: tuple[int, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @staticmethod
    def of(trace: RankTrace) -> _Spans:
        """The profiler's steps in a trace."""
        found = sorted(
            (each.start_s, each.start_s + each.time_s, each.step)
            for each in trace.ranges
            if each.step is not None
        )
        starts, ends, numbers = zip(*found, strict=True) if found else ((), (), ())
        return _Spans(numbers, starts, ends)

    def at(self, at_s: float) -> int | None:
        """Number of the step at a time [s]; None outside all steps."""
        place = bisect_right(self.starts, at_s) - 1
        return self.numbers[place] if place >= 0 and at_s < self.ends[place] else None
