"""Criteria that rank alternatives, and which alternatives their bands do not distinguish."""

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
    """A criterion: ``measure`` of an alternative is better if less, and rises with its time.

    name  one of ``BY``"""

    name: str
    measure: Callable[[Alternative], float]

    def target_s(self, each: Alternative, best: Alternative) -> float:
        """Time of a batch at which the measure of ``each`` equals the measure of ``best`` [s]."""
        return each.time_s * self.measure(best) / self.measure(each)

    def order(self, found: Iterable[Alternative]) -> list[Alternative]:
        """Best first; alternatives without a value, and impossible ones, come last."""
        return sorted(found, key=lambda each: self.measure(each) if each.answer else math.inf)

    def as_good(self, found: Iterable[Alternative], best: Alternative) -> Iterator[Alternative]:
        """Alternatives that are sold and are not significantly worse than the best.

        Source: the interval of the difference (``as_projection.is_slower``) of their costs
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
    """The criterion of this name. Limits: another name -> BadInputError"""
    if name not in CRITERIA:
        raise unknown_name("--by", name, BY)
    return CRITERIA[name]
