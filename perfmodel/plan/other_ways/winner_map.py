"""The alternative with the fewest GPU-hours, over skew, batch and table size; crossings in closed form.

A cell is one point of the map, a way a place for rows with an exchange, or a sharding (``map_cells``)."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import PerfmodelError
from perfmodel.model import capacity, serving_cost, sharding
from perfmodel.passes.alike import Impossible, best_alike, least_times, may_fit
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.schemes import AUTO
from perfmodel.passes.settings import Setting
from perfmodel.passes.steps import StepCost
from perfmodel.passes.tables import PlanTables
from perfmodel.plan.as_projection import TimedPass, evaluator_for, tables_of
from perfmodel.plan.other_ways.alternatives import ROW_WISE, machines_of
from perfmodel.plan.other_ways.below_hbm import ALL_ROWS, gpus_of_node, loaded
from perfmodel.plan.other_ways.map_cells import CUTS, WAYS, Crossing, MapCell, crossing_batch_of, crossing_of
from perfmodel.plan.other_ways.one_alternative import EqualBatch
from perfmodel.projections import Configs, Forward, prepare
from perfmodel.projections.fitting import gpu_memory
from perfmodel.projections.grid import timed
from perfmodel.projections.projection import rows_at
from perfmodel.question.passes import GLOBAL
from perfmodel.schema.workload import TableSet

Array = NDArray[np.float64]

SKEWS = ("uniform", "zipf:0.8", "zipf:1.05", "zipf:1.2")
BATCHES = (64, 256, 1024, 4096, 16384)
"""Batches of a GPU on the map; if the batch is of all GPUs together, ``_OF_ALL`` times as many samples."""
_OF_ALL = 64
SIZE_FACTORS = (0.1, 1.0, 10.0)


@dataclass(frozen=True, eq=False)
class WinnerMap:
    """The question of the map.

    options  of ``project_one``;  cells  the points so far;  equal  which batch, one of ``EQUAL_BATCHES``"""

    options: Mapping[str, Any]
    equal: str = GLOBAL
    cells: list[MapCell] = field(default_factory=list)
    settings: dict[str, Setting | None] = field(default_factory=dict, repr=False)

    def at(
        self, ids: str, size: float, batches: Sequence[int], ways: Collection[str] | None = None
    ) -> list[MapCell]:
        """Points for one skew and size, one per batch.

        size  total bytes; a set of tables has only its own size;  ways  to compare; None: all
        Limits: a way that is impossible at a point -> not in its ``times``
        """
        own_size = isinstance(self.options.get("tables"), TableSet)
        asked = {**self.options, "distribution": ids, **({} if own_size else {"table_bytes": size})}
        shown, columns = [self._batch(each) for each in batches], dict[str, _Column]()
        alone: dict[tuple[str, str | None], _Column] = {}
        for words, (name, more) in WAYS.items():
            if ways is None or words in ways:
                own, key = {**more, "reduction": _given(asked, more["reduction"])}, (name, more.get("tier"))
                column = alone.get(key) or _column(self._loaded(name, {**asked, **own}), shown)
                columns[words] = column
                if column is not None and (column.gpus == 1).all():  # a single GPU has no exchange
                    alone[key] = column
        cuts = [words for words in CUTS if ways is None or words in ways]
        found = [_cell(ids, size, each, at, columns) for at, each in enumerate(batches)]
        return _with_cuts(found, self._loaded(ROW_WISE, asked), shown, cuts)

    def _loaded(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The options on the machine of an alternative, with its curves loaded."""
        own = machines_of(name, asked)
        machine = str(own["machine"] if isinstance(own["machine"], str) else own["machine"].name)
        if machine not in self.settings:
            self.settings[machine] = loaded(own).get("setting")
        return {**own, "setting": self.settings[machine]}

    def _batch(self, samples: int) -> EqualBatch:
        return EqualBatch(samples if self.equal == GLOBAL else None, samples)

    def crossings(self) -> list[Crossing]:
        """Where the winner changes with the batch: between neighbouring points with different winners.

            a + b B = a' + b' B        [GPU-s], a line per winner, through its costs at two batches

        The batch where the lines meet (``serving_cost.crossing_batch``) is evaluated: if a third way wins
        there, or the two costs still differ, it becomes a neighbour of the crossing, and the lines go through
        it.
        """
        pairs = itertools.pairwise(self.cells)
        found = [each for left, right in pairs for each in self._between(left, right)]
        return sorted(found, key=lambda each: each.table_bytes)

    def _between(self, left: MapCell, right: MapCell, depth: int = 6) -> Iterator[Crossing]:
        same = (left.ids, left.table_bytes) == (right.ids, right.table_bytes)
        first, then = left.winner, right.winner
        if not same or not first or not then or first == then:
            return
        batch = crossing_batch_of(left, right)
        near = right.batch <= left.batch * _CLOSE or right.batch - left.batch < 2
        if near or not depth:
            yield crossing_of(left, right, batch)
            return
        tried = min(max(round(batch), left.batch + 1), right.batch - 1)
        likely = {words for each in (left, right) for words, cost in each.cost.items()
                  if cost <= LIKELY * each.cost[each.winner]}  # fmt: skip
        (middle,) = self.at(left.ids, left.table_bytes, [tried], likely | {first, then})
        apart = abs(middle.cost.get(first, math.inf) / middle.cost.get(then, 1.0) - 1)
        if apart <= _EQUAL and middle.winner in (first, then):
            yield crossing_of(left, right, float(tried))
            return
        yield from self._between(left, middle, depth - 1)
        yield from self._between(middle, right, depth - 1)


_CLOSE = 1.05
_EQUAL = 0.005  # smaller differences count as equal
LIKELY = 2.0
"""Ways that cost more than this multiple of the winner at two batches are skipped between these batches, if
they are among ``CUTS``: they win nowhere in between."""


def winner_map(options: Mapping[str, Any], equal: str = GLOBAL) -> WinnerMap:
    """The winner at every point. options  of ``project_one``; a set of tables has only its own size"""
    tables = options.get("tables")
    one = [float(tables.total_bytes)] if isinstance(tables, TableSet) else []
    sizes = one or [f * float(options["table_bytes"]) for f in SIZE_FACTORS]
    kept = {name: value for name, value in options.items() if name not in ("batch", "gpus", "table_bytes")}
    found = WinnerMap(kept, equal)
    batches = [each * _OF_ALL if equal == GLOBAL else each for each in BATCHES]
    cells = [cell for ids in SKEWS for size in sizes for cell in found.at(ids, size, batches)]
    return replace(found, cells=cells)


@dataclass(frozen=True, eq=False)
class _OneWay:
    """One way at all batches: times [s], GPUs at work, cost as in ``MapCell``; answer  takes an index."""

    times: Array
    gpus: Array
    cost: Array
    answer: Callable[[int], TimedPass]


_Column = _OneWay | None


def _given(asked: Mapping[str, Any], way: str) -> str:
    """The exchange of a way's bags: the exchange that the user gave, else the way's own."""
    given = asked.get("reduction") or AUTO
    return way if given == AUTO else given


def _column(asked: dict[str, Any], equal: Sequence[EqualBatch]) -> _Column:
    """One way at all batches; None if it is impossible.

    Below the HBM, also on all GPUs of a node if fewer hold the rows: the cheaper of the two.
    """
    try:
        forward, work, copies = _placed(asked, equal)
        found = _priced(forward, work, copies, equal)
    except PerfmodelError:
        return None
    node = gpus_of_node(asked)
    if "tier" not in asked or (work.gpus >= node).all():
        return found
    try:
        filled = _priced(*_placed({**asked, "gpus": node}, equal), equal)
    except PerfmodelError:
        return found
    better = filled.cost < found.cost
    times, gpus, cost = (
        np.where(better, getattr(filled, name), getattr(found, name)) for name in ("times", "gpus", "cost")
    )
    return _OneWay(times, gpus, cost, lambda at: (filled if better[at] else found).answer(at))


def _placed(asked: dict[str, Any], equal: Sequence[EqualBatch]) -> tuple[Forward, Configs, Array]:
    """(engine, configurations, replicas) on the fewest GPUs at every batch; replicas in HBM fill a node.

    Source: ``below_hbm.fewest_gpus``: fewer samples per GPU need no more GPUs
    """
    node, own_batches = gpus_of_node(asked), equal[0].total is None

    def at(batches: list[int], **more: Any) -> tuple[Forward, Configs]:
        return prepare(None, **{**asked, "batch": batches, **more})

    def copied(gpus: Array) -> Array:
        return np.asarray(serving_cost.copies_in_machine(gpus, node, whole="tier" in asked))

    def shared(gpus: Array) -> list[int]:
        return [each.on(int(g)) for each, g in zip(equal, gpus * copied(gpus), strict=True)]

    forward, work = at([each.of_gpu if own_batches else 1 for each in equal])
    if not own_batches:
        least = work.gpus
        forward, work = at(shared(least))
        if (work.gpus != least).any():
            forward, work = at(shared(work.gpus), gpus=work.gpus.tolist())
    return forward, work, copied(work.gpus)


def _priced(forward: Forward, work: Configs, copies: Array, equal: Sequence[EqualBatch]) -> _OneWay:
    steps, band = timed(forward, work)
    fits = capacity.fits(gpu_memory(forward, work).total_bytes, work.usable_bytes)
    held = np.zeros(len(work)) if work.cached is None else work.cached
    times = np.where(fits & (np.asarray(held) < ALL_ROWS), band[1], np.inf)

    def answer(at: int) -> TimedPass:
        low, time, high = (float(each[at]) for each in band)
        return TimedPass(forward.setting, tuple(rows_at(forward, steps, at, time)), (low, time, high))

    return _OneWay(times, work.gpus * copies, times * _paid(forward, work.gpus * copies, equal), answer)


def _paid(forward: Forward, gpus: Array, equal: Sequence[EqualBatch]) -> Array:
    """GPUs that are paid: all GPUs; or, if batches are per GPU, paid GPUs per GPU at work."""
    machine = forward.setting.machine
    node = forward.gpus_per_node or machine.gpus_per_node
    paid = serving_cost.machines_in_use(1, gpus, node, whole=True) * machine.gpus_per_node
    return paid if equal[0].total is not None else paid / gpus


def _cell(ids: str, size: float, batch: int, at: int, columns: Mapping[str, _Column]) -> MapCell:
    known = {words: each for words, each in columns.items() if each and np.isfinite(each.cost[at])}
    times = {words: float(each.times[at]) for words, each in known.items()}
    cost = {words: float(each.cost[at]) for words, each in known.items()}
    gpus = {words: int(each.gpus[at]) for words, each in known.items()}
    answers = {words: partial(each.answer, at) for words, each in known.items()}
    return MapCell(ids, batch, size, times, gpus, cost, answers)


def _with_cuts(
    cells: list[MapCell], asked: dict[str, Any], equal: Sequence[EqualBatch], cuts: list[str]
) -> list[MapCell]:
    """The cells with other shardings that may win or come close, on the fewest GPUs where any fits."""
    if not cuts or (asked.get("reduction") or AUTO) != AUTO:
        return cells
    try:
        forward, work, copies = _placed(asked, equal)
        tables = tables_of(work, "the tables", forward.ids)
    except PerfmodelError:  # too many tables to pack, or no number of GPUs holds them
        return cells
    found = []
    for at, cell in enumerate(cells):
        evaluators = partial(_evaluator, forward, work.part(slice(at, at + 1)), tables, equal[at])
        gpus = _fewest(work.part(slice(at, at + 1)), gpus_of_node(asked), evaluators)
        fewer = gpus < int(work.gpus[at])
        evaluator = evaluators(gpus) if fewer else evaluator_for(forward, work, at, tables)
        paid = float(_paid(forward, np.array([float(evaluator.gpus * copies[at])]), equal)[0])
        found.append(_with_cuts_at(cell, evaluator, float(work.usable_bytes), cuts, int(copies[at]), paid))
    return found


def _evaluator(
    forward: Forward, work: Configs, tables: PlanTables, equal: EqualBatch, gpus: int
) -> Evaluator:
    one = replace(work, gpus=np.array([float(gpus)]), batch=np.array([float(equal.on(gpus))]))
    return evaluator_for(forward, one, 0, tables)


def _fewest(work: Configs, node: int, on: Callable[[int], Evaluator]) -> int:
    """Fewest nodes on which some sharding may fit (``alike.may_fit``), by bisection.

    work  row-wise on as many GPUs as it needs, often more, because it needs memory for its buffers
    Limits: one node -> as row-wise
    """
    many, usable = int(work.gpus[0]), float(work.usable_bytes)
    numbers = sharding.allowed_gpus(int(sharding.gpus_needed(work.table_bytes[0], usable, 0.0)), many, node)
    if many <= node:
        return many
    return numbers[
        bisect.bisect_left(numbers, True, key=lambda n: n == many or may_fit(on(n), CUTS.values(), usable))
    ]


def _with_cuts_at(
    cell: MapCell, evaluator: Evaluator, usable: float, cuts: list[str], copies: int, paid: float
) -> MapCell:
    """The cell with further shardings.

    A sharding is skipped if even a perfect balance would cost ``LIKELY`` times the winner.
    copies, paid  replicas, and paid GPUs, on this number of GPUs
    """
    times, gpus, cost, answers = dict(cell.times), dict(cell.gpus), dict(cell.cost), dict(cell.answers)
    ways = {CUTS[words]: words for words in cuts}
    least, known, _ = least_times(evaluator, list(ways), usable)
    for way in sorted(least, key=lambda way: least[way]):
        if least[way] * paid > LIKELY * min(cost.values(), default=math.inf):
            break
        found = best_alike(evaluator, way, usable, known)
        if not isinstance(found, Impossible):
            words, time_s = ways[way], found.cost.time_s
            times[words], gpus[words], cost[words] = time_s, evaluator.gpus * copies, time_s * paid
            answers[words] = partial(_cut_answer, evaluator.setting, found.cost)
    return replace(cell, times=times, gpus=gpus, cost=cost, answers=answers)


def _cut_answer(setting: Setting, cost: StepCost) -> TimedPass:
    return TimedPass(setting, cost.rows, (cost.low_s, cost.time_s, cost.high_s))
