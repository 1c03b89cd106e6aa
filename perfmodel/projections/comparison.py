"""Two answers to one question: which is faster, because of which steps, and whether that is significant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from perfmodel.model.differences import apart, difference_band, ratio_band
from perfmodel.passes.steps import StepRow
from perfmodel.projections.projection import Projection

Span = tuple[float, float, float]
"""(low, middle, high) of a time [s]."""

_NOTHING: Span = (0.0, 0.0, 0.0)


class DifferenceVerdict(StrEnum):
    """Which of two times with bands is smaller, or that the bands leave this open."""

    A = "A is faster"
    B = "B is faster"
    CANNOT_SAY = "cannot say"  # the interval of the difference contains 0, the interval of the ratio 1
    SAME = "the same"


@dataclass(frozen=True)
class Difference:
    """A step's time in answers A and B, each (low, centre, high) [s]; 0 where an answer lacks the step."""

    name: str
    label: str
    a: Span
    b: Span

    @property
    def band(self) -> Span:
        """A - B with its 95 % interval, assuming independent errors [s]."""
        low, middle, high = difference_band(self.a, self.b)
        return float(low), float(middle), float(high)

    @property
    def saved_s(self) -> float:
        """Time that B saves [s]. Limits: B takes longer -> below 0"""
        return self.a[1] - self.b[1]

    @property
    def ratio(self) -> Span:
        """A / B with its 95 % interval, for times above 0 [-]."""
        low, middle, high = ratio_band(self.a, self.b)
        return float(low), float(middle), float(high)

    @property
    def verdict(self) -> DifferenceVerdict:
        """Which is faster. Limits: ``band`` has 0 -> ``CANNOT_SAY``;  equal times and bands -> ``SAME``"""
        if self.a == self.b:
            return DifferenceVerdict.SAME
        return VERDICTS[int(apart(self.a, self.b))]


VERDICTS = {-1: DifferenceVerdict.A, 0: DifferenceVerdict.CANNOT_SAY, 1: DifferenceVerdict.B}
"""Verdicts by the code that ``model.differences.apart`` returns."""


def whole(a: Projection, b: Projection) -> Difference:
    """The difference of the batch times."""
    spans = ((p.totals["low_s"], p.time_s, p.totals["high_s"]) for p in (a, b))
    return Difference("batch", "whole batch", *spans)


def differences(a: Projection, b: Projection) -> tuple[Difference, ...]:
    """The difference of every step of either answer, in the order of A; steps of B alone come last.

    Limits: different exchanges of bags (reduce-scatter; all-to-all and sum) -> one difference for all their
    steps, whose bands add as in a batch, with one cause of error
    """
    first, second = ({step.name: step for step in p.steps} for p in (a, b))
    names = list(dict.fromkeys((*first, *second)))
    ways = [name for name in names if name in _BAGS]
    if [name for name in ways if name in first] == [name for name in ways if name in second]:
        ways = []
    found = [
        Difference(
            name, (first.get(name) or second[name]).label, _span(first.get(name)), _span(second.get(name))
        )
        for name in names
        if name not in ways
    ]
    if ways:
        spans = (_added([_span(own.get(name)) for name in ways]) for own in (first, second))
        found.append(Difference("bags", "exchange of bags", *spans))
    return tuple(found)


_BAGS = (
    *("reduce_scatter_bags", "all_to_all_bags", "local_sum", "all_to_all_sparse_bags"),
    *("reduce_scatter_inside", "reduce_scatter_across", "all_to_all_across", "convert_out", "convert_in"),
)
"""Steps that reduce partial bags to bags."""


def _added(spans: list[Span]) -> Span:
    low, middle, high = (sum(span[at] for span in spans) for at in range(3))
    return low, middle, high


def _span(step: StepRow | None) -> Span:
    return _NOTHING if step is None else (step.low_s, step.time_s, step.high_s)


def largest(found: tuple[Difference, ...], saved_s: float) -> tuple[Difference, float]:
    """(the step that contributes most to the saving of the whole batch, its share of that saving).

    saved_s  saving of the whole batch: time of A less time of B, not 0
    Limits: the share is above 1 if other steps lose part of the saving
    """
    best = max(found, key=lambda one: one.saved_s / saved_s)
    return best, best.saved_s / saved_s
