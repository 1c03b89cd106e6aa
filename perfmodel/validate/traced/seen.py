"""Measures each step of a plan in a trace: own time, wait for other ranks, and gaps between steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfmodel.schema.trace_alignment import RESOLUTION_S, AlignedCollective
from perfmodel.schema.traces import KernelFamily, TracedKernel
from perfmodel.validate.traced.expected import KERNELS, PlannedPass
from perfmodel.validate.traced.matching import (
    BATCH,
    LeftOver,
    Matched,
    MatchedStep,
    batches,
    instances,
    matched,
)
from perfmodel.validate.traced.windows import CutTrace, TracedStep

OVERLAP_LEAST = 0.2
"""Least share of an event's time beside kernels of other streams."""
_PARTS = (KernelFamily.DENSE,)
"""Kernels that interrupt the pass: a gap that contains one is not a gap of the tables."""


@dataclass(frozen=True)
class StepSeen:
    """A step of a plan as the trace shows it; times in seconds, a value per iteration (step of the profiler).

    own_s       time after the last rank arrived; for kernels, of the slowest rank
    wait_s      time before that, mean over the ranks
    in_bytes, out_bytes  bytes that each rank passes in and gets out, medians over the iterations
    rank_s      median time of each rank;  ran_as  collective that ran
    overlapped  whether compute ran at the same time for ``OVERLAP_LEAST`` of it
    """

    name: str
    own_s: tuple[float, ...]
    wait_s: tuple[float, ...] = ()
    in_bytes: Mapping[int, float] = field(default_factory=dict)
    out_bytes: Mapping[int, float] = field(default_factory=dict)
    rank_s: Mapping[int, float] = field(default_factory=dict)
    ran_as: str = ""
    overlapped: tuple[bool, ...] = ()


@dataclass(frozen=True)
class TracedBar:
    """An event on a rank's timeline [s].

    step  planned step that it belongs to; "": none;  own_s  part of its time after the last rank arrived
    """

    step: str
    name: str
    start_s: float
    end_s: float
    own_s: float


@dataclass(frozen=True)
class WholeSeen:
    """The time of one iteration, divided into parts; means over the ranks [s].

    busy_s   a step of the plan runs, or waits for other ranks;  wait_s  the waits in ``busy_s``
    idle_s   gaps between steps in which nothing runs;  other_s  gaps in which other kernels run
    """

    busy_s: float
    wait_s: float
    idle_s: float
    other_s: float

    @property
    def whole_s(self) -> float:
        """Time of the whole pass [s]."""
        return self.busy_s + self.idle_s + self.other_s


def median_whole(wholes: Sequence[WholeSeen]) -> WholeSeen:
    """The parts of the iteration of median length; for an even number, means of the two in the middle.

    These parts add up to the median, unlike medians of the parts.
    """
    found = sorted(wholes, key=lambda each: each.whole_s)
    middle = found[(len(found) - 1) // 2 : len(found) // 2 + 1]
    return WholeSeen(
        *(
            float(np.mean([getattr(each, name) for each in middle]))
            for name in ("busy_s", "wait_s", "idle_s", "other_s")
        )
    )


@dataclass(frozen=True, eq=False)
class PassSeen:
    """A traced run, matched with a plan.

    plan      as matched: with the splits of all sharding types in one all-to-all, or separate
    steps     by name of the step or of the family of kernels
    missing   names of steps without an event
    left_over  collectives without a planned step, with (their number, seconds)
    other_kernels  seconds per iteration of kernels without a planned step, by family, on the mean rank
    wholes    each iteration;  timeline  of the lowest rank, in the iteration of median length
    caused    per iteration, by rank: how long the mean rank waited for it [s]
    cost      of the matching: distance between traces and plan [-]
    """

    plan: PlannedPass
    trace: CutTrace
    steps: Mapping[str, StepSeen]
    missing: tuple[str, ...]
    left_over: tuple[tuple[LeftOver, int, float], ...]
    other_kernels: Mapping[str, float]
    wholes: tuple[WholeSeen, ...]
    timeline: tuple[TracedBar, ...]
    caused: tuple[Mapping[int, float], ...]
    cost: float


def seen(trace: CutTrace, plan: PlannedPass) -> PassSeen:
    """Matches the traced steps with the steps of a plan, and measures them."""
    cost, chosen, matches = min(_ways(trace, plan), key=lambda way: way[0])
    return PassSeen(
        chosen,
        trace,
        {**_exchanges(matches), **_kernels(trace, chosen)},
        _missing(trace, chosen, matches),
        _left_over(matches),
        _other_kernels(trace, chosen),
        tuple(
            _whole(step, found, trace.ranks, chosen) for step, found in zip(trace.steps, matches, strict=True)
        ),
        _timeline(trace, matches, chosen),
        tuple(_caused(match) for match in matches),
        cost,
    )


def _caused(match: Matched) -> dict[int, float]:
    found: dict[int, float] = defaultdict(float)
    for pair in match.pairs:
        waits = pair.event.wait_s
        if len(waits) > 1:
            found[pair.event.last_rank] += sum(waits.values()) / len(waits)
    return dict(found)


def _ways(trace: CutTrace, plan: PlannedPass) -> Iterator[tuple[float, PlannedPass, list[Matched]]]:
    """Yields (cost, plan, matching of each iteration) for each variant of a plan.

    Splits are separate or in one all-to-all; the batch is the plan's, or another that fits the bytes.
    """
    for way in dict.fromkeys((plan, plan.fused_splits)):
        planned = instances(way.exchanges, trace.ranks)
        for batch in dict.fromkeys(batches(trace.steps[0].events, planned)):
            found = [matched(step.events, planned, batch) for step in trace.steps]
            cost = sum(each.cost for each in found) + BATCH * len(found) * abs(np.log(batch))
            yield float(cost), way, found


def _exchanges(matches: Sequence[Matched]) -> dict[str, StepSeen]:
    """Each exchange over the iterations, by name; of several process groups the slowest counts."""
    by_step: dict[str, list[list[MatchedStep]]] = defaultdict(list)
    for match in matches:
        here: dict[str, list[MatchedStep]] = defaultdict(list)
        for pair in match.pairs:
            here[pair.instance.step.name].append(pair)
        for name, pairs in here.items():
            by_step[name].append(pairs)
    return {name: _exchange(name, iterations) for name, iterations in by_step.items()}


def _exchange(name: str, iterations: Sequence[Sequence[MatchedStep]]) -> StepSeen:
    own, waits = [], []
    sizes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    kinds: Counter[str] = Counter()
    beside = []
    for pairs in iterations:
        events = [pair.event for pair in pairs]
        own.append(max(event.time_s for event in events))
        waits.append(float(np.mean([wait for event in events for wait in event.wait_s.values()])))
        parts = [part for event in events for part in event.parts.values()]
        beside.append(any(part.overlap_s > OVERLAP_LEAST * part.time_s for part in parts))
        for event in events:
            kinds[event.first.collective] += 1
            for rank, part in event.parts.items():
                sizes[rank].append((part.in_bytes, part.out_bytes))
    return StepSeen(
        name,
        tuple(own),
        tuple(waits),
        {rank: float(np.median([each[0] for each in found])) for rank, found in sizes.items()},
        {rank: float(np.median([each[1] for each in found])) for rank, found in sizes.items()},
        ran_as=kinds.most_common(1)[0][0],
        overlapped=tuple(beside),
    )


def _kernels(trace: CutTrace, plan: PlannedPass) -> dict[str, StepSeen]:
    """Each family of kernels, its times added up per iteration; the slowest rank counts."""
    found = {}
    for kernel in plan.kernels:
        each = [
            {
                rank: sum(k.time_s for k in kernels if k.family is kernel.family)
                for rank, kernels in step.kernels.items()
            }
            for step in trace.steps
        ]
        if not any(any(times.values()) for times in each):
            continue
        found[kernel.name] = StepSeen(
            kernel.name,
            tuple(max(times.values()) for times in each),
            rank_s={rank: float(np.median([times[rank] for times in each])) for rank in trace.ranks},
            overlapped=tuple(
                any(
                    k.overlap_s > OVERLAP_LEAST * k.time_s
                    for kernels in step.kernels.values()
                    for k in kernels
                    if k.family is kernel.family
                )
                for step in trace.steps
            ),
        )
    return found


def _missing(trace: CutTrace, plan: PlannedPass, matches: Sequence[Matched]) -> tuple[str, ...]:
    found = {pair.instance.step.name for match in matches for pair in match.pairs}
    families = {k.family for step in trace.steps for kernels in step.kernels.values() for k in kernels}
    names = [each.name for each in plan.exchanges if each.name not in found]
    return (*names, *(each.name for each in plan.kernels if each.family not in families))


def _left_over(matches: Sequence[Matched]) -> tuple[tuple[LeftOver, int, float], ...]:
    times: dict[LeftOver, list[float]] = defaultdict(list)
    for match in matches:
        for event, why in match.left_over:
            times[why].append(event.time_s)
    found = [(why, len(each), sum(each)) for why, each in times.items()]
    return tuple(sorted(found, key=lambda item: -item[2]))


def _other_kernels(trace: CutTrace, plan: PlannedPass) -> dict[str, float]:
    planned = {kernel.family for kernel in plan.kernels}
    times: dict[str, float] = defaultdict(float)
    for step in trace.steps:
        for kernels in step.kernels.values():
            for kernel in kernels:
                if kernel.family not in planned:
                    times[str(kernel.family)] += kernel.time_s
    runs = len(trace.steps) * len(trace.ranks)
    return {name: total / runs for name, total in sorted(times.items())}


def _events(
    step: TracedStep, match: Matched, rank: int, plan: PlannedPass
) -> tuple[list[TracedBar], list[TracedKernel], list[AlignedCollective]]:
    """On one rank: (events of the pass in order of start, other kernels, other collectives)."""
    families = {kernel.family for kernel in plan.kernels}
    bars = [
        TracedBar(
            pair.instance.step.name, pair.event.first.collective, part.start_s, part.end_s, pair.event.time_s
        )
        for pair in match.pairs
        if (part := pair.event.parts.get(rank)) is not None
    ]
    kernels = step.kernels.get(rank, ())
    bars += [
        TracedBar(str(k.family), k.name, k.start_s, k.start_s + k.time_s, k.time_s)
        for k in kernels
        if k.family in families
    ]
    others = [k for k in kernels if k.family not in families]
    rest = [event for event, _ in match.left_over if rank in event.parts]
    return sorted(bars, key=lambda bar: bar.start_s), others, rest


def _whole(step: TracedStep, match: Matched, ranks: Sequence[int], plan: PlannedPass) -> WholeSeen:
    found = [_rank_whole(step, match, rank, plan) for rank in ranks]
    return WholeSeen(*(float(np.mean(part)) for part in zip(*found, strict=True)))


def _rank_whole(
    step: TracedStep, match: Matched, rank: int, plan: PlannedPass
) -> tuple[float, float, float, float]:
    """(busy, wait, idle, other) of one rank [s].

    A gap between two steps of the pass counts if both are in the forward, or both in the backward pass, and
    no dense kernel runs in it; other work in it is "other", the rest of it idle.
    """
    bars, others, rest = _events(step, match, rank, plan)
    links = [bar for bar in bars if bar.step not in _FAMILIES]
    spans = [(bar.start_s, bar.end_s - bar.own_s) for bar in links]
    waits = _union([(start, end) for start, end in spans if end - start >= RESOLUTION_S])
    runs = [(k.start_s, k.start_s + k.time_s) for k in others]
    runs += [(e.parts[rank].start_s, e.parts[rank].end_s) for e in rest]
    dense = [k for k in others if k.family in _PARTS]
    backward = {each.name for each in plan.exchanges if each.backward}
    backward |= {each.name for each in plan.kernels if each.backward}
    busy = idle = other = 0.0
    end, before = -np.inf, False
    for bar in bars:
        after = bar.step in backward
        if bar.start_s > end > -np.inf and after == before:
            gap = (end, bar.start_s)
            if not any(_within((k.start_s, k.start_s + k.time_s), gap) > 0 for k in dense):
                filled = _union(
                    [(max(a, gap[0]), min(b, gap[1])) for a, b in runs if _within((a, b), gap) > 0]
                )
                other += filled
                idle += gap[1] - gap[0] - filled
        busy += max(bar.end_s - max(bar.start_s, end), 0.0)
        if bar.end_s >= end:
            end, before = bar.end_s, after
    return busy, waits, idle, other


_FAMILIES = {str(family) for family in KERNELS}


def _within(span: tuple[float, float], gap: tuple[float, float]) -> float:
    return min(span[1], gap[1]) - max(span[0], gap[0])


def _union(spans: Sequence[tuple[float, float]]) -> float:
    total, end = 0.0, -np.inf
    for first, last in sorted(spans):
        total += max(last - max(first, end), 0.0)
        end = max(end, last)
    return total


def _timeline(trace: CutTrace, matches: Sequence[Matched], plan: PlannedPass) -> tuple[TracedBar, ...]:
    """Timeline of the lowest rank, in the iteration of median length; it begins at 0."""
    rank, found = trace.ranks[0], []
    for step, match in zip(trace.steps, matches, strict=True):
        bars, others, rest = _events(step, match, rank, plan)
        if bars:
            bars += [TracedBar("", k.name, k.start_s, k.start_s + k.time_s, k.time_s) for k in others]
            bars += [
                TracedBar("", e.first.collective, e.parts[rank].start_s, e.parts[rank].end_s, e.time_s)
                for e in rest
            ]
            found.append(sorted(bars, key=lambda bar: bar.start_s))
    if not found:
        return ()
    found.sort(key=lambda bars: max(bar.end_s for bar in bars) - bars[0].start_s)
    middle = found[len(found) // 2]
    first = next((bar.start_s for bar in middle if bar.step), middle[0].start_s)
    return tuple(
        TracedBar(bar.step, bar.name, bar.start_s - first, bar.end_s - first, bar.own_s)
        for bar in middle
        if bar.start_s >= first
    )
