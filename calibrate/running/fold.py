"""Combines the times of the ranks into a visit: slowest rank, and whether the clock is credible."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.operations import RankTimes
from perfmodel.errors import PerfmodelError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.fields import limits_of
from perfmodel.schema.runs import Point, PointKind, Visit

_FIGURES = 6  # of a time in the journal
_SLACK = 1.05  # the calls of a visit may seem to take this much longer than the visit,
_SLACK_S = 0.01  # and these seconds: clocks of ranks and coordinator are read at different moments


def combine_times(
    point: Point, ranks: Sequence[int], by_rank: Sequence[RankTimes], *, round: int, at: str, elapsed_s: float
) -> Visit:
    """Combine the times of all ranks into one visit.

        time of a call = max over ranks (end - start) / calls between them

    ranks      numbers of the ranks;  by_rank  the times that each of them measured, in the same order
    round, at  number of the round, and the date and time, to store in the visit
    elapsed_s  time of the whole visit on the coordinator's clock
    Times are seconds per call, rounded to six figures. A visit whose clock is not credible has no times
    and a reason in ``note``.
    Limits: end <= start, not finite, impossibly short or long, together longer than ``elapsed_s`` -> no
    times; another number of ranks or of calls -> PerfmodelError
    """
    _check_shape(ranks, by_rank)
    starts = np.array([rank.starts_s for rank in by_rank], dtype=np.float64)
    ends = np.array([rank.ends_s for rank in by_rank], dtype=np.float64)
    (calls_each,) = {rank.calls_each for rank in by_rank}
    note = _judge_clock(point, starts, ends, elapsed_s)
    spans = ends - starts
    times = np.array([])
    steps: dict[str, list[float]] = {}
    if not note:
        times = spans.max(axis=0) / calls_each
        refused = filter(None, map(limits_of("sample")["time_s"].refusal, times.tolist()))
        note = next((f"dropped: the time of a call {text}" for text in refused), "")
    if not note:
        steps = _pick_steps(by_rank, np.argmax(spans, axis=0).tolist())
    return Visit(
        key=point.key,
        round=round,
        at=at,
        calls_each=calls_each,
        times_s=[] if note else [_round_figures(time_s) for time_s in times],
        bytes_sent=max(rank.bytes_sent for rank in by_rank),
        checked=sum(rank.checked for rank in by_rank),
        wrong=sum(rank.wrong for rank in by_rank),
        slowdowns=sorted({reason for rank in by_rank for reason in rank.slowdowns}),
        steps_s=steps,
        note=note,
    )


def compute_median_s(visit: Visit) -> float | None:
    """Median time of a call [s]; None for a visit without credible times."""
    return statistics.median(visit.times_s) if visit.times_s else None


def find_problem(point: Point, visit: Visit) -> str:
    """Why the visit fails its point, in words; "" if it does not.

    Limits: one wrong element -> fails; a collective or a whole pass that sent or checked nothing -> fails
    """
    if visit.wrong:
        return f"{visit.wrong} of {visit.checked} elements are wrong"
    if point.kind is PointKind.KERNEL:
        return ""
    if not visit.checked:
        return "no element of the result was checked"
    if point.gpus > 1 and not visit.bytes_sent:
        return "no rank sent a byte"
    return ""


def _check_shape(ranks: Sequence[int], by_rank: Sequence[RankTimes]) -> None:
    """Raise PerfmodelError unless every rank gave times, and all timed equally many calls."""
    if len(by_rank) != len(ranks):
        raise PerfmodelError(f"{len(by_rank)} of {len(ranks)} ranks gave times.")
    shapes = {(len(rank.starts_s), len(rank.ends_s), rank.calls_each) for rank in by_rank}
    calls, ends, calls_each = next(iter(shapes))
    if len(shapes) > 1 or calls != ends or calls < 1 or calls_each < 1:
        raise PerfmodelError(f"ranks timed different numbers of calls: {sorted(shapes)}.")


def _judge_clock(
    point: Point, starts: NDArray[np.float64], ends: NDArray[np.float64], elapsed_s: float
) -> str:
    """Why the times are not credible, as the visit's note; "" if they are.

    starts, ends  of each timed call or batch on each rank's clock [s], shape [ranks, calls]
    elapsed_s     time of the whole visit on the coordinator's clock, which no rank's calls can exceed
    """
    if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
        return "dropped: a time is not a number"
    spans = ends - starts
    if (spans <= 0).any():
        return f"dropped: a call of {spans.min():.3g} s: the clock jumped back or stood still"
    if point.clock is Clock.EAGER and (starts[:, 1:] < ends[:, :-1]).any():
        return "dropped: a call began before the one before it ended: the clock jumped back"
    most_s = _SLACK * elapsed_s + _SLACK_S
    longest = float(spans.sum(axis=1).max())
    if longest > most_s:
        return f"dropped: calls of {longest:.3g} s in a visit of {elapsed_s:.3g} s: the clock jumped ahead"
    return ""


def _pick_steps(by_rank: Sequence[RankTimes], slowest: Sequence[int]) -> dict[str, list[float]]:
    """Times of each step that all ranks timed [s], by its name; of call i on rank ``by_rank[slowest[i]]``."""
    return {
        name: [
            _round_figures(max(by_rank[rank].steps_s[name][call], 0.0)) for call, rank in enumerate(slowest)
        ]
        for name in next(iter(by_rank)).steps_s
        if all(len(rank.steps_s.get(name, ())) == len(slowest) for rank in by_rank)
    }


def _round_figures(value: float) -> float:
    """``value`` with six significant figures, which keeps lines of the journal short."""
    return float(f"{value:.{_FIGURES}g}")
