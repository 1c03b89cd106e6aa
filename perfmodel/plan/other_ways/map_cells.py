"""One point (cell) of the winner map: the cost of each way there, the winner, and where winners change.

A *way* here is a place for the rows with an exchange (``WAYS``), or a uniform sharding (``CUTS``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from perfmodel.model import serving_cost
from perfmodel.passes.schemes import AUTO, BY_ROWS
from perfmodel.passes.schemes import ROW_WISE as ONE_WAY
from perfmodel.passes.schemes import WAYS as SHARDINGS
from perfmodel.plan.as_projection import TimedPass, is_slower
from perfmodel.plan.other_ways.alternatives import GB200, GH200, HOST, ON_SSD, ROW_WISE

_EXCHANGES = {"": AUTO, **{f" {way}": way for way in BY_ROWS}}
_TIERS = (
    (HOST, "host", "uvm"),
    (HOST, "cached", "uvm-caching"),
    *((name, f"{words}{tail}", tier) for name, words in ((GH200, "GH200"), (GB200, "GB200"))
      for tail, tier in (("", "uvm"), (" cached", "uvm-caching"))),
    (ON_SSD, "SSD", "ssd"),
)  # fmt: skip
WAYS: dict[str, tuple[str, Mapping[str, Any]]] = {
    (words + tail if words else tail.strip() or ONE_WAY): (
        name,
        {"reduction": way, **({"tier": tier} if tier else {})},
    )
    for name, words, tier in ((ROW_WISE, "", ""), *_TIERS)
    for tail, way in _EXCHANGES.items()
}
"""Ways that are compared at every point, by label: name of the alternative, options. ``host`` reads rows in
place, as GH200 and GB200 do; ``cached`` uses a cache in HBM; the others are exchanges of bags."""
CUTS = {
    way.removeprefix(f"{ONE_WAY}-"): way
    for way in SHARDINGS
    if way != ONE_WAY and way.removeprefix(f"{ONE_WAY}-") not in WAYS
}
"""The other uniform shardings, by their labels in the map: ``ub`` is row-wise-ub."""


CANNOT_TELL = "cannot tell"
HBM = "HBM"
_SAME, _MANY = 1e-6, 3
_PLACES = {HOST: "host", GH200: "GH200", GB200: "GB200", ON_SSD: "SSD"}


def place_of(words: str) -> str:
    """Place of the rows by label of ``WAYS`` or ``CUTS``: ``host`` for ``cached``, ``HBM`` for ``ub``."""
    return _PLACES.get(WAYS[words][0] if words in WAYS else "", HBM)


@dataclass(frozen=True, eq=False)
class MapCell:
    """The winner for one skew, batch and table size: one point of the map.

    ids    distribution of the ids, as typed;  batch  samples of all GPUs, or of each GPU
    times  of a batch by label of ``WAYS`` and ``CUTS`` [s], for possible ways;  gpus  of each way, at work
    cost   of each way, paid GPU-seconds per batch: of all GPUs, or divided by the GPUs at work
    answers  of each way, computed on demand, for the bands
    """

    ids: str
    batch: int
    table_bytes: float
    times: Mapping[str, float]
    gpus: Mapping[str, int]
    cost: Mapping[str, float]
    answers: Mapping[str, Callable[[], TimedPass]] = field(default_factory=dict, repr=False)

    @property
    def winner(self) -> str:
        """Label of the way with the fewest GPU-hours (centre of the bands); "" if nothing is possible."""
        return min(self.cost, key=lambda words: self.cost[words]) if self.cost else ""

    @cached_property
    def as_good(self) -> tuple[str, ...]:
        """Ways whose GPU-hours exceed the winner's by less than the uncertainty.

        Considered are the next best way with rows in the same place, and the best of every other place.
        Source: the interval of the difference (``as_projection.is_slower``)
        Limits: equal GPU-hours, to six digits -> the same way under another name: left out
        """
        least, best = self.cost.get(self.winner, math.inf), dict[str, str]()
        for words in sorted(self.cost, key=lambda words: self.cost[words]):
            if self.cost[words] > least * (1 + _SAME) and words in self.answers:
                best.setdefault(place_of(words), words)
        return tuple(words for words in best.values() if not self._is_worse(words))

    def _is_worse(self, words: str) -> bool:
        scales = (self.cost[each] / self.times[each] for each in (words, self.winner))
        return is_slower(self.answers[words](), self.answers[self.winner](), *scales)

    @property
    def shown(self) -> str:
        """The winner; if other ways are ``as_good``, the places where their rows and the winner's are."""
        if not self.as_good:
            return self.winner
        places = list(dict.fromkeys(map(place_of, (self.winner, *self.as_good))))
        return " or ".join(places) if len(places) < _MANY else CANNOT_TELL

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("ids", "batch", "table_bytes", "times", "gpus", "cost")
        known = {name: getattr(self, name) for name in names}
        return {**known, "winner": self.winner or None, "cannot_tell": list(self.as_good)}


@dataclass(frozen=True)
class Crossing:
    """The batch above which another way (``then``) wins instead of ``first``.

    gpus     of ``first`` and of ``then``, each at the neighbouring batch where it wins
    batch    where the straight lines of both through the neighbouring batches meet, in closed form
    between  neighbouring batches, so close that the winner changes between them
    lines    (GPU-seconds per batch, per further sample) of ``first`` and of ``then``; None if they do not
             meet between those batches, or one way is impossible at one of both
    """

    ids: str
    table_bytes: float
    first: str
    then: str
    batch: float
    between: tuple[int, int]
    gpus: tuple[int, int]
    lines: tuple[tuple[float, float], tuple[float, float]] | None = None


def crossing_batch_of(left: MapCell, right: MapCell) -> float:
    """Batch where the lines of both winners meet; if unknown or outside, a batch between the two points."""
    lines = _lines(left, right)
    if lines is None:
        return math.sqrt(left.batch * right.batch)
    return float(serving_cost.crossing_batch(*lines[0], *lines[1]))


def _lines(left: MapCell, right: MapCell) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Lines of both winners through both batches; None if they do not meet between the batches."""
    first, then = left.winner, right.winner
    if first not in right.cost or then not in left.cost:
        return None
    lines = _line(left, right, first), _line(left, right, then)
    batch = float(serving_cost.crossing_batch(*lines[0], *lines[1]))
    return lines if left.batch <= batch <= right.batch else None


def crossing_of(left: MapCell, right: MapCell, batch: float) -> Crossing:
    first, then = left.winner, right.winner
    gpus, beside = (left.gpus[first], right.gpus[then]), (left.batch, right.batch)
    lines = _lines(left, right)
    return Crossing(left.ids, left.table_bytes, first, then, batch, beside, gpus, lines)


def _line(left: MapCell, right: MapCell, words: str) -> tuple[float, float]:
    """(intercept, slope): a straight line through the costs of two batches."""
    slope = (right.cost[words] - left.cost[words]) / (right.batch - left.batch)
    return left.cost[words] - slope * left.batch, slope
