"""Which alternative wins where: over skew of the ids, batch and table size, with crossings in closed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import PerfmodelError
from perfmodel.model import serving_cost
from perfmodel.passes.schemes import AUTO, BY_ROWS
from perfmodel.passes.schemes import ROW_WISE as ONE_WAY
from perfmodel.passes.schemes import WAYS as SHARDINGS
from perfmodel.plan.as_projection import evaluator_for, tables_of
from perfmodel.plan.other_ways.alternatives import ALL_ROWS, GB200, GH200, HOST, ON_SSD, ROW_WISE, machines_of
from perfmodel.plan.pricing.alike import Impossible, best_alike, least_times
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.projections import prepare
from perfmodel.projections.grid import project_grid
from perfmodel.schema.workload import TableSet

Array = NDArray[np.float64]

SKEWS = ("uniform", "zipf:0.8", "zipf:1.05", "zipf:1.2")
BATCHES = (64, 256, 1024, 4096, 16384)
SIZE_FACTORS = (0.1, 1.0, 10.0)
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
"""What is compared in every cell, by its words: name of the alternative, options. ``host`` reads rows in
place, as GH200 and GB200 do; ``cached`` through a cache in HBM; the rest are exchanges of bags."""
CUTS = {
    way.removeprefix(f"{ONE_WAY}-"): way
    for way in SHARDINGS
    if way != ONE_WAY and way.removeprefix(f"{ONE_WAY}-") not in WAYS
}
"""The other shardings that cut all tables alike, by the words of the map: ``ub`` is row-wise-ub."""


@dataclass(frozen=True, eq=False)
class MapCell:
    """The winner at one skew, batch and table size.

    times  of a batch by words of ``WAYS`` and ``CUTS`` [s], those that are possible;  gpus  of each
    """

    ids: str
    batch: int
    table_bytes: float
    times: Mapping[str, float]
    gpus: Mapping[str, int]

    @property
    def winner(self) -> str:
        """Fewest GPU-hours, which at one batch a GPU is the least time; "" where nothing is possible."""
        return min(self.times, key=lambda words: self.times[words]) if self.times else ""


@dataclass(frozen=True)
class Crossing:
    """The batch at which the next way overtakes the one that wins at the smaller batch.

    gpus     of the first where it wins, and of the next where that one does
    batch    in closed form, from latency and time per sample of both at the batches beside it
    between  batches beside it, that close: the winner changes in between
    lines    latency [s] and time per sample [s] of the first and of the next there; None: they do not meet
             between those batches, or one of the two is not possible at both
    """

    ids: str
    table_bytes: float
    first: str
    then: str
    batch: float
    between: tuple[int, int]
    gpus: tuple[int, int]
    lines: tuple[tuple[float, float], tuple[float, float]] | None = None


@dataclass(frozen=True, eq=False)
class WinnerMap:
    """What is compared where. options  of ``project_one``;  cells  of ``winner_map``"""

    options: Mapping[str, Any]
    cells: list[MapCell] = field(default_factory=list)

    def at(
        self, ids: str, size: float, batches: Iterable[int], ways: Collection[str] | None = None
    ) -> list[MapCell]:
        """Cells of one skew and size. size  of a set of tables its own; ways  that are compared, None: all

        Limits: a way that is not possible in a cell -> not in its ``times``
        """
        own_size = isinstance(self.options.get("tables"), TableSet)
        asked = {**self.options, "distribution": ids, **({} if own_size else {"table_bytes": size})}
        shown, columns = list(batches), dict[str, _Column]()
        alone: dict[tuple[str, str | None], _Column] = {}
        for words, (name, more) in WAYS.items():
            if ways is None or words in ways:
                own, key = {**more, "reduction": _given(asked, more["reduction"])}, (name, more.get("tier"))
                column = alone.get(key) or _column(machines_of(name, {**asked, **own}), shown)
                columns[words] = column
                if column is not None and (column[1] == 1).all():  # a GPU exchanges with nobody
                    alone[key] = column
        cuts = [words for words in CUTS if ways is None or words in ways]
        found = [_cell(ids, size, shown, at, columns) for at in range(len(shown))]
        return _with_cuts(found, asked, cuts)

    def crossings(self) -> list[Crossing]:
        """Where the winner changes with the batch: between neighbours of the map with different winners.

        a + b B = a' + b' B, each through its two batches (``serving_cost.crossing_batch``). The batch that it
        gives is tried: where another way wins there, or the two differ, it lies beside the crossing, and the
        lines go through it.
        """
        pairs = itertools.pairwise(self.cells)
        found = [each for left, right in pairs for each in self._between(left, right)]
        return sorted(found, key=lambda each: each.table_bytes)

    def _between(self, left: MapCell, right: MapCell, depth: int = 6) -> Iterator[Crossing]:
        same = (left.ids, left.table_bytes) == (right.ids, right.table_bytes)
        first, then = left.winner, right.winner
        if not same or not first or not then or first == then:
            return
        batch = _crossing_batch(left, right)
        near = right.batch <= left.batch * _CLOSE or right.batch - left.batch < 2
        if near or not depth:
            yield _crossing(left, right, batch)
            return
        tried = min(max(round(batch), left.batch + 1), right.batch - 1)
        likely = {words for each in (left, right) for words, time in each.times.items()
                  if time <= LIKELY * each.times[each.winner]}  # fmt: skip
        (middle,) = self.at(left.ids, left.table_bytes, [tried], likely | {first, then})
        apart = abs(middle.times.get(first, math.inf) / middle.times.get(then, 1.0) - 1)
        if apart <= _EQUAL and middle.winner in (first, then):
            yield _crossing(left, right, float(tried))
            return
        yield from self._between(left, middle, depth - 1)
        yield from self._between(middle, right, depth - 1)


_CLOSE = 1.05
_EQUAL = 0.005  # times that differ by less are equal
LIKELY = 2.0
"""Ways that take longer than so many times the winner at two batches win nowhere between them, and no cell
has those among ``CUTS`` that must."""


def winner_map(options: Mapping[str, Any]) -> WinnerMap:
    """The winner of every cell. options  of ``project_one``; a set of tables has one size: its own"""
    tables = options.get("tables")
    one = [float(tables.total_bytes)] if isinstance(tables, TableSet) else []
    sizes = one or [f * float(options["table_bytes"]) for f in SIZE_FACTORS]
    kept = {name: value for name, value in options.items() if name not in ("batch", "gpus", "table_bytes")}
    found = WinnerMap(kept)
    cells = [cell for ids in SKEWS for size in sizes for cell in found.at(ids, size, BATCHES)]
    return replace(found, cells=cells)


_Column = tuple[Array, Array] | None


def _given(asked: Mapping[str, Any], way: str) -> str:
    """How bags become bags: as asked, else each way."""
    given = asked.get("reduction") or AUTO
    return way if given == AUTO else given


def _column(asked: dict[str, Any], batches: list[int]) -> _Column:
    """Times and GPUs of one way at all batches; None where it is not possible."""
    try:
        forward, work = prepare(None, **{**asked, "batch": batches})
        grid = project_grid(forward, work).columns
    except PerfmodelError:
        return None
    held = np.zeros(len(batches)) if work.cached is None else work.cached
    possible = grid["fits"] & (np.asarray(held) < ALL_ROWS)
    return np.where(possible, grid["time_s"], np.inf), work.gpus


def _cell(ids: str, size: float, batches: list[int], at: int, columns: Mapping[str, _Column]) -> MapCell:
    known = {words: column for words, column in columns.items() if column is not None}
    times = {words: float(t[at]) for words, (t, _) in known.items() if np.isfinite(t[at])}
    gpus = {words: int(g[at]) for words, (_, g) in known.items()}
    return MapCell(ids, batches[at], size, times, gpus)


def _with_cuts(cells: list[MapCell], asked: Mapping[str, Any], cuts: list[str]) -> list[MapCell]:
    """With the other shardings that may win, or come close, each on the GPUs of row-wise."""
    if not cuts or (asked.get("reduction") or AUTO) != AUTO:
        return cells
    try:
        forward, work = prepare(None, **{**asked, "batch": [cell.batch for cell in cells]})
        tables = tables_of(work, "the tables", forward.ids)
    except PerfmodelError:  # too many tables to deal, or no number of GPUs that holds them
        return cells
    return [
        _with_cuts_at(cell, evaluator_for(forward, work, at, tables), float(work.usable_bytes), cuts)
        for at, cell in enumerate(cells)
    ]


def _with_cuts_at(cell: MapCell, evaluator: Evaluator, usable: float, cuts: list[str]) -> MapCell:
    """A sharding is dealt to GPUs unless even a perfect deal of it takes ``LIKELY`` times the winner."""
    times, gpus = dict(cell.times), dict(cell.gpus)
    ways = {CUTS[words]: words for words in cuts}
    least, known = least_times(evaluator, list(ways), usable)
    for way in sorted(least, key=lambda way: least[way]):
        if least[way] > LIKELY * min(times.values(), default=math.inf):
            break
        found = best_alike(evaluator, way, usable, known)
        if not isinstance(found, Impossible):
            times[ways[way]], gpus[ways[way]] = found.cost.time_s, evaluator.gpus
    return replace(cell, times=times, gpus=gpus)


def _crossing_batch(left: MapCell, right: MapCell) -> float:
    """Where the lines of both winners meet; outside the two batches, or unknown: between them."""
    lines = _lines(left, right)
    if lines is None:
        return math.sqrt(left.batch * right.batch)
    return float(serving_cost.crossing_batch(*lines[0], *lines[1]))


def _lines(left: MapCell, right: MapCell) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Of both winners through both batches; None where they do not meet between those."""
    first, then = left.winner, right.winner
    if first not in right.times or then not in left.times:
        return None
    lines = _line(left, right, first), _line(left, right, then)
    batch = float(serving_cost.crossing_batch(*lines[0], *lines[1]))
    return lines if left.batch <= batch <= right.batch else None


def _crossing(left: MapCell, right: MapCell, batch: float) -> Crossing:
    first, then = left.winner, right.winner
    gpus, beside = (left.gpus[first], right.gpus[then]), (left.batch, right.batch)
    lines = _lines(left, right)
    return Crossing(left.ids, left.table_bytes, first, then, batch, beside, gpus, lines)


def _line(left: MapCell, right: MapCell, words: str) -> tuple[float, float]:
    """Latency and time per sample of a straight line through two batches."""
    slope = (right.times[words] - left.times[words]) / (right.batch - left.batch)
    return left.times[words] - slope * left.batch, slope
