"""Criteria that rank the ways to serve the tables, and which ways the bands do not separate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from perfmodel.plan.as_projection import is_slower
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.question.passes import BY
from perfmodel.schema.files import unknown_name


@dataclass(frozen=True)
class Criterion:
    """By its name, one of ``BY``. measure  of an alternative: less is better, and it grows with its time"""

    name: str
    measure: Callable[[Alternative], float]

    def target_s(self, each: Alternative, best: Alternative) -> float:
        """Time of a batch at which one is as good as another [s]: in proportion."""
        return each.time_s * self.measure(best) / self.measure(each)

    def order(self, found: Iterable[Alternative]) -> list[Alternative]:
        """The best first; those without a number, and those that are not possible, last."""
        return sorted(found, key=lambda each: self.measure(each) if each.answer else math.inf)

    def as_good(self, found: Iterable[Alternative], best: Alternative) -> Iterator[Alternative]:
        """Those that are sold and of which nobody can say that they are worse than the best.

        Source: the interval of the difference (``as_projection.is_slower``), of what their times cost
        """
        for each in found:
            if each is best or each.stated or each.answer is None or best.answer is None:
                continue
            scales = [self.measure(one) / one.time_s for one in (each, best)]
            if math.isfinite(scales[0]) and not is_slower(each.answer, best.answer, *scales):
                yield each


def _cost(each: Alternative) -> float:
    return math.inf if each.cost is None else each.cost


_MEASURES: tuple[Callable[[Alternative], float], ...] = (
    lambda each: each.time_s,
    lambda each: 1 / each.samples_per_s,
    lambda each: each.gpu_hours,
    _cost,
)
CRITERIA = {name: Criterion(name, measure) for name, measure in zip(BY, _MEASURES, strict=True)}
TIME, THROUGHPUT, GPU_HOURS, COST = CRITERIA.values()


def criterion(name: str) -> Criterion:
    """Limits: another name -> BadInputError"""
    if name not in CRITERIA:
        raise unknown_name("--by", name, BY)
    return CRITERIA[name]
