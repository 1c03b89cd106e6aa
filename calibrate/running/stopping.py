"""Decides when a point has been measured precisely enough: statistics over visits, and calls per visit.

A *visit* is one batch of timed calls; its median is one observation. Calls inside a visit share clocks,
caches and neighbours, so only visits count as independent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Status

LEAST_VISITS = 3
_TRIMMED_SHARE = 8  # one visit in eight is trimmed at each end
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Target:
    """When a point is precise enough, and when it ends without this precision.

    relative      half-width of the 95 % interval, as a share of the time
    min_visits    visits before any decision;  max_visits  visits after which the point is noisy
    max_time_s    time of all visits of a point, with their checks, after which it is noisy
    batch_s       intended time of the calls of a visit
    slow_batch_s  allowed time of a visit if even the fewest calls take longer than ``batch_s``
    min_calls, max_calls  limits of the calls per visit
    """

    relative: float
    min_visits: int = LEAST_VISITS
    max_time_s: float = 3.0
    max_visits: int = 100
    batch_s: float = 0.015
    slow_batch_s: float = 0.25
    min_calls: int = 10
    max_calls: int = 200


@dataclass(frozen=True)
class Summary:
    """Time of a point, estimated from its visits.

    median_s            the estimate;  low_s, high_s  its 95 % interval [s]
    relative_halfwidth  half of the interval's width, as a share of the estimate
    """

    median_s: float
    low_s: float
    high_s: float
    relative_halfwidth: float
    visits: int


@functools.lru_cache(maxsize=256)
def _find_quantile(degrees: int) -> float:
    """t by which |Student's t| of so many ``degrees`` of freedom is exceeded in 5 % of cases."""
    from scipy import special

    return float(special.stdtrit(degrees, 0.5 + _CONFIDENCE / 2))


def estimate_median(visit_medians_s: Sequence[float]) -> Summary | None:
    """Time of a point from its n visits: exp of the trimmed mean of the logs of their medians, with interval.

        k = floor(n / 8) visits trimmed at each end,   h = n - 2k
        median = exp(c),   c = mean of the h middle logs
        low, high = exp(c ∓ w),   w = t(h - 1) sqrt((n - 1) s_w² / (h (h - 1)))

    t(d)  quantile of Student's t for 95 % (``_find_quantile``)
    s_w   standard deviation of all logs, those trimmed set to the nearest middle one (winsorised)
    For n < 8 it is Student's t on logs. From 8 visits on, a visit that a neighbour doubled has no effect.
    Source: Tukey and McLaughlin 1963, Yuen 1974.
    Limits: fewer than 3 visits -> None; equal visits -> half-width 0; a time <= 0 -> BadInputError
    """
    count = len(visit_medians_s)
    if any(not (time_s > 0 and math.isfinite(time_s)) for time_s in visit_medians_s):
        raise BadInputError("a visit's median must be above 0 s.", "drop visits that the clock spoiled.")
    if count < LEAST_VISITS:
        return None
    logs = sorted(math.log(time_s) for time_s in visit_medians_s)
    cut = count // _TRIMMED_SHARE
    middle = logs[cut : count - cut]
    centre = math.fsum(middle) / len(middle)
    bounded = [min(max(log, middle[0]), middle[-1]) for log in logs]
    mean = math.fsum(bounded) / count
    squares = math.fsum((log - mean) ** 2 for log in bounded)
    half = _find_quantile(len(middle) - 1) * math.sqrt(squares / (len(middle) * (len(middle) - 1)))
    half = min(half, 700.0 - abs(centre))  # exp stays finite
    return Summary(
        math.exp(centre), math.exp(centre - half), math.exp(centre + half), math.expm1(half), count
    )


def choose_calls(target: Target, call_s: float) -> int:
    """Number of calls in one visit if one call takes about ``call_s``.

    It is batch_s / call_s, between min_calls and max_calls. Limits: call_s -> 0: max_calls; slow calls ->
    min_calls, and fewer only if these would take longer than slow_batch_s; never below 1
    """
    if not call_s > 0:
        return target.min_calls
    wanted = min(max(round(target.batch_s / call_s), target.min_calls), target.max_calls)
    return max(1, min(wanted, int(max(target.slow_batch_s, target.batch_s) / call_s)))


def judge(summary: Summary | None, spent_s: float, visits: int, target: Target) -> Status | None:
    """Status with which a point ends now; None if it needs more visits.

    summary  its time so far;  spent_s  time of its visits so far
    OK if the interval is narrow enough, noisy if time or visits ran out.
    Limits: fewer than min_visits -> None, however long they took
    """
    if summary is None or summary.visits < target.min_visits:
        return None
    if summary.relative_halfwidth <= target.relative:
        return Status.OK
    return Status.NOISY if spent_s >= target.max_time_s or visits >= target.max_visits else None
