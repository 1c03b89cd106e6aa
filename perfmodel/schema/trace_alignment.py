"""One collective in the traces of all its ranks: its time after the last rank arrived, and each rank's
wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfmodel.schema.traces import OVERLAP_SHARE, RankTrace, TracedCollective

_AGREE = 0.9
"""Share of two ranks' collectives that must agree in order for both traces to begin at the same place."""
RESOLUTION_S = 0.9e-9
"""Resolution of a trace's times, written in nanoseconds: shorter waits are rounding errors [s]."""
_Group = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class AlignedCollective:
    """One collective of one process group, over the ranks whose traces were given.

        time_s = min over ranks of t(r),   wait_s(r) = t(r) - time_s                       [s]

    A collective ends at the same moment on all its ranks, and starts on each when that rank arrives: the
    shortest duration belongs to the last arrival, and the excess of another rank is its wait.

    parts          by rank, the record of the collective in that rank's trace
    complete       whether all ranks of the group were seen; if not, the last rank may be missing, and
                   ``time_s`` is too long by at most the whole wait
    """

    parts: Mapping[int, TracedCollective]
    complete: bool

    @property
    def first(self) -> TracedCollective:
        """The collective in the trace of its lowest rank: name, group, bytes and data type."""
        return self.parts[min(self.parts)]

    @property
    def payload_bytes(self) -> int:
        """The largest buffer of its ranks, as nccl-tests counts it (ranks of an uneven all-to-all differ)."""
        return max(part.payload_bytes for part in self.parts.values())

    @property
    def time_s(self) -> float:
        """Time after the last rank arrived [s]."""
        return min(part.time_s for part in self.parts.values())

    @property
    def last_rank(self) -> int:
        """The rank that arrived last, for which the others waited."""
        return min(self.parts, key=lambda rank: (self.parts[rank].time_s, rank))

    @property
    def wait_s(self) -> dict[int, float]:
        """Wait of each rank for the last rank [s]; 0 for the last rank, and below ``RESOLUTION_S``."""
        least = self.time_s
        waits = {rank: part.time_s - least for rank, part in self.parts.items()}
        return {rank: wait if wait >= RESOLUTION_S else 0.0 for rank, wait in waits.items()}

    @property
    def overlapped(self) -> bool:
        """Whether compute ran beside the collective after the last arrival, for a relevant time, on any rank.

        Compute during the wait alone does not slow it: overlap_s(r) - wait_s(r) > OVERLAP_SHARE time_s.
        """
        time_s = self.time_s
        return any(
            part.overlap_s - (part.time_s - time_s) > OVERLAP_SHARE * time_s for part in self.parts.values()
        )


@dataclass(frozen=True)
class Alignment:
    """The collectives of several ranks' traces, one entry each.

    left_out  number of ranks' records that could not be matched, by reason
    """

    collectives: tuple[AlignedCollective, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def skew_inside(self) -> bool:
        """Whether the time of any collective may still include the wait for a rank whose trace is missing."""
        return any(not one.complete for one in self.collectives)


@dataclass(frozen=True)
class RankSkew:
    """How long one rank waits, and is waited for, over collectives of which two or more ranks were traced.

    last           collectives in which it arrived last, of ``seen``
    caused_s       longest wait of any rank for it, summed over the collectives in which it was last [s]
    wait_p50_s, wait_p99_s   percentiles of its own waits [s]
    """

    rank: int
    seen: int
    last: int
    caused_s: float
    wait_p50_s: float
    wait_p99_s: float
    wait_s: float


def align(traces: Sequence[RankTrace]) -> Alignment:
    """Collectives of all ranks, matched by process group and sequence number.

    If the traces number their collectives, equal numbers are one collective. If not, the collectives of each
    rank are counted, and ranks whose traces begin at different collectives are shifted against the lowest
    rank
    until collectives and bytes agree. Remaining differences between the ranks are left out.

    Limits: one rank, or a group without recorded ranks -> its own durations, not complete;
            equal traces of all ranks -> no wait
    """
    left_out: Counter[str] = Counter()
    by_group: dict[_Group, dict[int, list[TracedCollective]]] = defaultdict(dict)
    for trace in traces:
        for one in trace.collectives:
            alone = -1 if one.group_ranks else trace.rank  # parts cannot be assigned to it
            by_group[(one.group, one.group_ranks, alone)].setdefault(trace.rank, []).append(one)
    found: list[AlignedCollective] = []
    for _, ranks in sorted(by_group.items()):
        found += _align_group(ranks, left_out)
    found.sort(key=lambda one: (one.first.start_s, one.first.group, one.first.instance))
    return Alignment(tuple(found), dict(left_out))


def rank_skews(collectives: Iterable[AlignedCollective]) -> list[RankSkew]:
    """Skew of each rank, ordered by the waits that it causes, largest first.

    Limits: no collective with two ranks -> []
    """
    waits: dict[int, list[float]] = defaultdict(list)
    last: Counter[int] = Counter()
    caused: dict[int, float] = defaultdict(float)
    for one in collectives:
        if len(one.parts) < 2:
            continue
        own = one.wait_s
        for rank, wait in own.items():
            waits[rank].append(wait)
        last[one.last_rank] += 1
        caused[one.last_rank] += max(own.values())
    skews = [
        RankSkew(
            rank, len(own), last[rank], caused[rank],
            float(np.quantile(own, 0.5)), float(np.quantile(own, 0.99)), sum(own),
        )
        for rank, own in waits.items()
    ]  # fmt: skip
    return sorted(skews, key=lambda skew: (-skew.caused_s, skew.rank))


def _align_group(
    ranks: Mapping[int, list[TracedCollective]], left_out: Counter[str]
) -> list[AlignedCollective]:
    """One group's collectives, matched by number; a number with different collectives is left out."""
    lowest = min(ranks)
    shifts = {rank: _shift(ranks[lowest], own) for rank, own in ranks.items()}
    by_number: dict[int, dict[int, TracedCollective]] = defaultdict(dict)
    for rank, own in ranks.items():
        for one in own:
            by_number[one.instance + shifts[rank]][rank] = one
    aligned = []
    for _, parts in sorted(by_number.items()):
        if len({one.collective for one in parts.values()}) > 1:
            left_out["ranks disagree on which collective it is"] += len(parts)
            continue
        size = next(iter(parts.values())).group_size
        aligned.append(AlignedCollective(parts, complete=len(parts) == size))
    return aligned


def _shift(reference: Sequence[TracedCollective], own: Sequence[TracedCollective]) -> int:
    """Offset of a rank's numbers with which most of its collectives and bytes agree with the reference's.

    Limits: the trace has numbers -> 0;  equal traces -> 0;  two equally good offsets -> the smaller
    """
    if reference is own or (reference[0].numbered and own[0].numbered):
        return 0
    codes: dict[tuple[str, str, int], int] = {}
    theirs, mine = (
        np.array([codes.setdefault(_signature(one), len(codes)) for one in many]) for many in (reference, own)
    )
    begin = own[0].instance - reference[0].instance
    if begin == 0 and len(theirs) == len(mine) and (theirs == mine).mean() > _AGREE:
        return 0
    wide = 1 << (len(theirs) + len(mine)).bit_length()
    agreeing = np.zeros(len(theirs) + len(mine) - 1)
    for code in range(len(codes)):  # number of matches at each shift: a convolution
        one, other = ((many == code) * 1.0 for many in (theirs, mine[::-1]))
        agreeing += np.fft.irfft(np.fft.rfft(one, wide) * np.fft.rfft(other, wide), wide)[: len(agreeing)]
    shifts = np.arange(len(agreeing)) - (len(mine) - 1) - begin
    best = np.flatnonzero(np.round(agreeing) == np.round(agreeing).max())
    return int(min(shifts[best], key=abs))


def _signature(one: TracedCollective) -> tuple[str, str, int]:
    """Properties on which all ranks must agree; bytes only if the all-to-all is even."""
    uneven = one.collective == "all_to_all" and (one.in_split or one.out_split)
    return one.collective, one.dtype, 0 if uneven else one.payload_bytes
