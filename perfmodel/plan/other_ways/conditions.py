"""Condition for an alternative to be as good as the best: a shorter time, or a lower price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.model import serving_cost
from perfmodel.passes.steps import StepRow
from perfmodel.plan.other_ways.criteria import GPU_HOURS, Criterion
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.projections import prepare
from perfmodel.projections.grid import project_grid


@dataclass(frozen=True)
class Needed:
    """The speed-up with which an alternative is as good as the best.

    target_s  time of a batch at which both are equally good
    steps   to speed up: the single step with the least factor; if no single step is enough, all exchanges;
            if these are not enough, all steps
    factor  by which these steps must be faster, together
    step    the longest of ``steps``;  rest_s  time of the alternative without ``step``
    """

    target_s: float
    steps: tuple[StepRow, ...]
    factor: float
    step: StepRow
    rest_s: float

    @property
    def alone(self) -> bool:
        """Whether one step is enough."""
        return len(self.steps) == 1


def needed(each: Alternative, best: Alternative, by: Criterion = GPU_HOURS) -> Needed | None:
    """The speed-up with which an alternative is as good as the best (``Needed``).

    Limits: the best itself, a better alternative, no price, or impossible -> None
    """
    if each.answer is None or each is best or not by.measure(best) < by.measure(each) < math.inf:
        return None
    target_s = by.target_s(each, best)
    rows = each.answer.steps
    exchanges = tuple(row for row in rows if row.collective)
    single: list[tuple[StepRow, ...]] = [(row,) for row in sorted(rows, key=lambda row: -row.time_s)]
    factors = [(_factor(group, each.time_s, target_s), group) for group in single]
    factor, group = min(factors, key=lambda pair: pair[0])
    for more in (exchanges, rows):
        if factor == math.inf and more:
            factor, group = _factor(more, each.time_s, target_s), more
    longest = max(group, key=lambda row: row.time_s)
    return Needed(target_s, group, factor, longest, each.time_s - longest.time_s)


def _factor(group: tuple[StepRow, ...], time_s: float, target_s: float) -> float:
    """Speed-up factor of the steps ``group`` together that reduces ``time_s`` to ``target_s``."""
    return float(serving_cost.speedup_to_match(sum(row.time_s for row in group), time_s, target_s))


def price_to_match(each: Alternative, cost: float | None) -> float | None:
    """Price per hour, in the unit of ``hour``, at which an alternative costs as much as another [money].

        c = C / h                                                             [money/h]

    cost  C, cost of the other alternative;  h  hours that are paid (``Alternative.priced_hours``)
    Source: h c = C
    Limits: impossible, or no price of the other -> None
    """
    return None if cost is None or each.answer is None else cost / each.priced_hours


def least_rate(asked: Mapping[str, Any], values: tuple[float, ...], target_s: float) -> float | None:
    """Rate of the one memory at which a batch takes ``target_s`` [bytes/s].

    asked   options of ``project_one``;  values  its ``local_memory``;  target_s  that time [s]
    Source: bisection, since the time falls as the rate rises
    Limits: a memory that takes longer even at its own rate -> None
    """
    size, high, *rest = values
    if _time_at(asked, values) >= target_s:
        return None
    low = high
    while _time_at(asked, (size, low, *rest)) < target_s:
        low /= _APART
    high = low * _APART
    while high > low * (1 + _NEAR):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _time_at(asked, (size, middle, *rest)) > target_s else (low, middle)
    return high


_APART, _NEAR = 8.0, 1e-3


def _time_at(asked: Mapping[str, Any], values: tuple[float, ...]) -> float:
    """Time of a batch from a memory with these ``local_memory`` values [s]."""
    forward, work = prepare(None, **{**asked, "local_memory": values})
    return float(project_grid(forward, work).columns["time_s"][0])
