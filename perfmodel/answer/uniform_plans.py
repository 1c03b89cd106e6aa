"""Uniform plans, where all tables have one sharding: for each sharding, the fastest plan that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.inputs import write
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.grid import Configs
from perfmodel.engine.loads import ShardLoads
from perfmodel.engine.placement import COPY, Plan, Scheme, check_scheme, deal_shards
from perfmodel.engine.schemes import (
    FLAT,
    ROW_WISE,
    SEQUENCES,
    TABLE_ROW_WISE,
    WAYS,
    Exchange,
    RowParts,
    list_exchanges,
)
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.timing import round_off
from perfmodel.errors import BadInputError, NoCalibrationError, PerfmodelError
from perfmodel.units import format_count

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

VECTOR = 4
"""Columns of a column part are a multiple of this: FBGEMM's kernels read vectors of four elements."""
MOST_TABLES = 10_000
"""Tables that can be compared: a comparison deals each table to its GPUs."""
_TRIED = 4  # schemes of a sharding that fit and are packed onto GPUs
_PRICED_TOGETHER = 40_000  # shards of tables whose loads are computed together
_FAR = np.finfo(np.float64).max  # more than any load: no shard, which 0 of them make 0
_ROOM = 1 + 1e-6  # rows are not divisible: the largest row part has up to one row more


def list_schemes(sharding: str, gpus: int, domain: int, dim: int, library: str = "") -> list[Scheme]:
    """All schemes of one sharding option: powers of two as numbers of parts, and the largest possible number.

    sharding  a name of ``schemes.WAYS``
    gpus  G;  domain  g, ranks of a scale-up domain;  dim  elements of the widest row
    library  the collective library; it limits the exchanges of row parts on all GPUs (``list_exchanges``)
    Limits: an option that needs more GPUs, domains or columns than there are -> none
    """
    cut = WAYS[sharding]
    parts = _divide_columns(dim, cut.limit_columns(gpus, domain) if cut.columns else 1)
    least = 2 if cut.columns and cut.rows != RowParts.ANY else 1
    columns = [c for c in _list_powers(parts[-1]) if c >= least and c in parts]
    if cut.rows == RowParts.ANY:
        return [Scheme(cut.exchange, r, c) for c in columns for r in _list_powers(gpus // c) if r > 1]
    kinds = list_exchanges(library) if cut.exchange == FLAT else (cut.exchange,)
    return [Scheme(kind, cut.count_row_parts(gpus, domain), c) for kind in kinds for c in columns]


def _list_powers(most: int) -> list[int]:
    """Powers of two up to ``most``, and ``most`` itself, each once and in order."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})


def _divide_columns(dim: int, most: int) -> list[int]:
    """Numbers of column parts up to ``most`` that cut ``dim`` columns into whole vectors; 1 is always one."""
    return [1, *(c for c in range(2, min(most, dim // VECTOR) + 1) if dim % (VECTOR * c) == 0)]


@dataclass(frozen=True, eq=False)
class UniformPlan:
    """A plan with its cost: the fastest in which all tables have one sharding, or one with a scheme for each.

    sharding  a name of ``schemes.WAYS``, or ``PLANNED``
    scheme  of the tables; None: each has its own. One with fewer rows than row parts is replicated instead
    """

    sharding: str
    scheme: Scheme | None
    costed: CostedPlan


@dataclass(frozen=True, eq=False)
class Impossible:
    """A sharding that these tables, GPUs or measurements do not allow. explain  returns why, as a sentence"""

    sharding: str
    explain: Callable[[], str]
    fits = False


@dataclass(frozen=True, eq=False)
class UniformPlans:
    """The uniform plans of an evaluator's tables that fit ``usable_bytes`` on each rank.

    Rows, optimizer state and exchange buffers count as memory, as in a projection. Of each scheme are kept,
    as if its shards were spread evenly over the ranks, for no packing takes less: rows and optimizer state of
    the mean rank, or of the largest shard if they are more [bytes]; the time of a pass, whose loads are the
    mean over ranks, or the largest shard's if that is more [s]; the loads of a shard of each kind of table.
    """

    evaluator: Evaluator
    usable_bytes: float
    _held: dict[Scheme, float] = field(default_factory=dict, repr=False)
    _times: dict[Scheme, float] = field(default_factory=dict, repr=False)
    _shards: dict[Scheme, ShardLoads] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(basis: PassBasis, work: Configs, usable_bytes: float, model: str = "the tables") -> UniformPlans:
        """The uniform plans of one configuration.

        usable_bytes  memory of a rank that the pass may use;  model  name of the set of tables, for texts
        Limits: more than ``MOST_TABLES`` tables -> BadInputError
        """
        kinds = work.tables
        count = int(work.table_count[0])
        if count > MOST_TABLES:
            raise BadInputError(
                f"shardings of {format_count(count)} tables are not compared.",
                f"give at most {format_count(MOST_TABLES)} tables, or --sharding {ROW_WISE}.",
            )
        counts = kinds.count[:, 0].astype(np.int64)
        columns = {name: np.repeat(column[:, 0], counts) for name, column in kinds.columns.items()}
        law = np.repeat(kinds.law, counts)
        names = kinds.names or tuple(f"table_{place}" for place in range(count))
        tables = PlanTables(**columns, laws=kinds.laws, law=law, model=model, names=names)
        id_dtype = {4: "int32", 8: "int64"}[int(work.id_bytes[0])]
        evaluator = Evaluator(basis, tables, int(work.batch[0]), int(work.gpus[0]), id_dtype=id_dtype)
        return UniformPlans(evaluator, usable_bytes)

    def bound_times(self, shardings: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """(for each sharding a lower bound on its plans' times [s], those that fit but have no calibration).

        Limits: a sharding whose rows fit in no packing, or that has no scheme here -> no bound
        """
        allowed = {sharding: self._list_allowed(sharding) for sharding in shardings}
        self._select_fitting([scheme for schemes in allowed.values() for scheme in schemes])  # at once
        fitting = {sharding: self._select_fitting(schemes) for sharding, schemes in allowed.items()}
        together = [scheme for schemes in fitting.values() for scheme in schemes]
        with suppress(NoCalibrationError):  # of one of them: the reduce-scatter of NVSHMEM, for example
            self.price(together)
        bounds: dict[str, float] = {}
        unknown: list[str] = []
        for sharding, schemes in fitting.items():
            try:
                times = self.price(schemes)
            except NoCalibrationError:
                unknown.append(sharding)
                continue
            bounds |= {sharding: min(times)} if times else {}
        return bounds, unknown

    def find_best(self, sharding: str) -> UniformPlan | Impossible:
        """The fastest plan with one sharding for all tables.

        Only the four most promising schemes that fit are packed onto ranks. Tables are packed largest first,
        once by memory and once by work; the faster of the two plans is returned.
        """
        evaluator = self.evaluator
        why = ""
        if WAYS[sharding].of_domains and evaluator.gpus % evaluator.domain:
            why = f"{evaluator.gpus} GPUs do not fill scale-up domains of {evaluator.domain} GPUs"
        elif evaluator.basis.unpooled and sharding not in SEQUENCES:
            why = f"unpooled rows are no partial bags: {', '.join(SEQUENCES)}"
        elif evaluator.basis.rows and WAYS[sharding].exchange == COPY.kind:
            why = "copies on every GPU are in its HBM"
        schemes = [] if why else self._select_fitting(self._list_allowed(sharding))
        try:
            if schemes[_TRIED:] or all(scheme in self._times for scheme in schemes):
                self.price(schemes)
                schemes.sort(key=lambda scheme: self._times[scheme])
        except NoCalibrationError as error:
            why = error.message.rstrip(".")
            schemes = []
        best: UniformPlan | None = None
        fitting = 0
        for scheme in schemes:
            if fitting == _TRIED or (best and self._times.get(scheme, 0.0) >= best.costed.time_s):
                break
            with suppress(PerfmodelError):
                packed = list(self._pack(sharding, scheme, self._shards.get(scheme)))
                plans = [plan for plan in packed if isinstance(plan, UniformPlan)]
                fitting += bool(plans)
                best = min([*plans, *([best] if best else [])], key=lambda x: x.costed.time_s, default=None)
        return best or Impossible(sharding, lambda: why or self._explain_unfit(sharding))

    def _explain_unfit(self, sharding: str) -> str:
        """Why no scheme of a sharding fits: the reason of the plan that needs the least memory."""
        whys: list[tuple[float, str]] = []
        for scheme in self._list_allowed(sharding):
            try:
                packed = list(self._pack(sharding, scheme, self._shards.get(scheme)))
                whys += [why for why in packed if not isinstance(why, UniformPlan)]
            except PerfmodelError as error:
                whys.append((np.inf, error.message.rstrip(".")))
        return min(whys)[1] if whys else _explain_no_scheme(self.evaluator)

    def _list_allowed(self, sharding: str) -> list[Scheme]:
        """The schemes of a sharding that these tables and GPUs allow."""
        evaluator = self.evaluator
        if evaluator.gpus % evaluator.domain and WAYS[sharding].of_domains:
            return []
        dim = int(evaluator.tables.dim.max())
        return list_schemes(sharding, evaluator.gpus, evaluator.domain, dim, evaluator.setting.backend)

    def _select_fitting(self, schemes: Sequence[Scheme]) -> list[Scheme]:
        """The schemes that may fit: those whose rows and buffers, evenly spread, do.

            max over ranks of (rows + buffers(loads)) >= mean rows + buffers(mean loads)
                                                      >= k (smallest shard) + buffers(k (least loads))

        k  ceil(N / G): of the N shards of all tables, some rank has at least k;  rows  and optimizer state
        Source: buffers are the largest of some sums of loads, so they are convex in the loads (Jensen)
        Limits: equal tables -> exact
        """
        e = self.evaluator
        missing = [scheme for scheme in schemes if scheme not in self._held]
        for even in _spread_evenly(e, missing):
            shard, everywhere, mean = even.count_loads(e)
            placed = even.parts.astype(bool)
            shards = np.ceil(even.parts.sum(axis=1) / e.gpus)
            least_bytes = np.where(placed, even.shard_bytes, _FAR).min(axis=1)
            least_loads = np.where(placed[..., np.newaxis], shard.on_holder, _FAR).min(axis=1)
            rows_bytes = even.copies_bytes + shards * least_bytes
            ranks = (mean, even.mean_bytes), (shards[:, np.newaxis] * least_loads, rows_bytes)
            needed = [held + e.times.count_buffers((on_rank + everywhere).T) for on_rank, held in ranks]
            held = np.maximum(even.largest_bytes, np.max(needed, axis=0)).tolist()
            self._held.update(zip(even.schemes, held, strict=True))
        return [scheme for scheme in schemes if self._fits(self._held[scheme])]

    def _fits(self, held_bytes: float) -> bool:
        """Whether a rank has room for these bytes, but for rows that are not divisible."""
        return held_bytes <= self.usable_bytes * _ROOM

    def price(self, schemes: Sequence[Scheme]) -> list[float]:
        """The times of schemes, evenly spread [s], which are kept with their loads.

        Limits: one of their collectives was never measured -> NoCalibrationError
        """
        missing = [scheme for scheme in schemes if scheme not in self._times]
        for even in _spread_evenly(self.evaluator, missing):
            shard, everywhere, mean = even.count_loads(self.evaluator)
            fullest = np.maximum(mean, shard.on_holder.max(axis=1)) + everywhere
            times = self.evaluator.time_passes(fullest)
            for place, scheme in enumerate(even.schemes):
                self._times[scheme] = float(times[place])
                self._shards[scheme] = ShardLoads(shard.on_holder[place], shard.everywhere[place])
        return [self._times[scheme] for scheme in schemes]

    def _pack(
        self, sharding: str, scheme: Scheme, shards: ShardLoads | None
    ) -> Iterator[UniformPlan | tuple[float, str]]:
        """Plans of one scheme, with tables packed onto ranks by memory, and by the work of holders: each with
        its cost, or (bytes, why) if it does not fit.
        """
        evaluator = self.evaluator
        tables = evaluator.tables
        gpus, domain = evaluator.gpus, evaluator.domain
        sample, kind_of, _ = tables.kinds
        kinds, r, c = _cut_kinds(tables, scheme)
        cut = [Scheme(Exchange(kind), *parts) for kind, *parts in np.transpose((kinds, r, c)).tolist()]
        for table, kind_scheme in sorted(zip(sample.tolist(), cut, strict=True)):
            check_scheme(tables, table, kind_scheme, gpus, domain)
        shard_bytes = np.sum(evaluator.memories.count_shard(sample, r, c), axis=0)
        weights = [shard_bytes]
        if sample[1:].size:  # for equal tables every order is the same
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            work = round_off(shards.on_holder.sum(axis=1))
            weights += [work] if np.ptp(weights[0]) or np.ptp(work) else []
        for weight in weights:
            placements = deal_shards(sharding, cut, kind_of, weight, gpus, domain)
            plan = Plan(tables, tuple(placements), gpus, domain)
            held = evaluator.memories.count_held(plan)
            fullest_bytes = float(np.sum(held, axis=0).max())
            if not self._fits(fullest_bytes):
                kind = int(np.argmax(shard_bytes))
                yield fullest_bytes, self._explain_too_much(fullest_bytes, cut[kind], shard_bytes[kind])
                continue
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            of_tables = ShardLoads(shards.on_holder[kind_of], shards.everywhere[kind_of])
            costed = evaluator.cost(plan, of_tables)
            fullest_bytes = costed.fullest_bytes
            if not self._fits(fullest_bytes):
                need, room = write(fullest_bytes), write(self.usable_bytes)
                why = f"with its exchange buffers a GPU would hold {need}, and has room for {room}"
                yield fullest_bytes, why
                continue
            yield UniformPlan(sharding, scheme, costed)

    def _explain_too_much(self, fullest_bytes: float, scheme: Scheme, shard_bytes: float) -> str:
        """Why a rank has more rows and state than it may. scheme  of the table with the largest shard"""
        need, room = write(fullest_bytes), write(self.usable_bytes)
        shard = write(shard_bytes)
        if scheme.copied and len(self.evaluator.tables) > 1:
            return f"every GPU would hold {need} of tables, and has room for {room}"
        if self._fits(shard_bytes):
            return f"a GPU would hold {need} of tables, and has room for {room}"
        if scheme.parts in (0, 1):
            return f"one table is {shard}, larger than a GPU ({room})"
        r, c = scheme.row_parts, scheme.col_parts
        parts = f"{r} row parts" if c == 1 else f"{c} column parts" if r == 1 else f"{r} × {c} parts"
        return f"{parts} of one table are {shard} each, larger than a GPU ({room})"


@dataclass(frozen=True, eq=False)
class _Evenly:
    """S schemes with shards spread evenly over the ranks; arrays for Q kinds of equal tables.

    cut  exchange, row parts, column parts of each kind [3, S, Q];  count  tables of each kind [Q]
    parts  shards of all tables of each kind; 0 if they are replicated [S, Q]
    shard_bytes  rows and optimizer state of a shard [S, Q];  copies_bytes  those of all replicas [S]
    mean_bytes  those of the mean rank;  largest_bytes  of the rank with the largest shard, at least [S]
    """

    schemes: Sequence[Scheme]
    cut: Ints
    count: Ints
    parts: Ints
    shard_bytes: Array
    copies_bytes: Array
    mean_bytes: Array
    largest_bytes: Array

    def count_loads(self, evaluator: Evaluator) -> tuple[ShardLoads, Array, Array]:
        """(loads of a shard of each kind [S, Q, K], of replicas [S, K], of the mean rank without them)."""
        shard = evaluator.count_shards(evaluator.tables.kinds[0], *self.cut)
        everywhere = np.einsum("sqk,q->sk", shard.everywhere, self.count)
        return shard, everywhere, np.einsum("sqk,sq->sk", shard.on_holder, self.parts) / evaluator.gpus


def _spread_evenly(evaluator: Evaluator, schemes: Sequence[Scheme]) -> Iterator[_Evenly]:
    """Yields the schemes in chunks, as many at a time as memory allows."""
    sample, _, count = evaluator.tables.kinds
    together = _PRICED_TOGETHER // sample.size  # some, for ``MOST_TABLES`` are fewer
    for start in range(0, len(schemes), together):
        chunk = schemes[start : start + together]
        cut = np.stack([_cut_kinds(evaluator.tables, scheme) for scheme in chunk], axis=1)
        replicated = cut[0] == COPY.kind
        shard_bytes = np.sum(evaluator.memories.count_shard(sample, cut[1], cut[2]), axis=0)
        copies = (replicated * count * shard_bytes).sum(axis=1)
        parts = ~replicated * cut[1] * cut[2] * count
        mean = copies + (parts * shard_bytes).sum(axis=1) / evaluator.gpus
        largest = copies + (~replicated * shard_bytes).max(axis=1)
        yield _Evenly(chunk, cut, count, parts, shard_bytes, copies, mean, largest)


def _cut_kinds(tables: PlanTables, scheme: Scheme) -> tuple[Ints, Ints, Ints]:
    """(exchange, row parts, column parts) of each kind of equal tables if a whole plan is to have ``scheme``.

    A table with fewer rows than row parts is replicated; column parts are of whole vectors.
    """
    sample = tables.kinds[0]
    dims = tables.dim[sample]
    replicated = tables.rows[sample] < scheme.row_parts
    columns = {dim: _divide_columns(int(dim), scheme.col_parts)[-1] for dim in set(dims.tolist())}
    c = np.array([columns[dim] for dim in dims.tolist()])
    kinds = np.where(replicated, COPY.kind, scheme.kind)
    return kinds, np.where(replicated, 1, scheme.row_parts), np.where(replicated, 1, c)


def _explain_no_scheme(evaluator: Evaluator) -> str:
    """The reason why a sharding option has no scheme for these tables and GPUs, as a sentence."""
    gpus = evaluator.gpus
    if gpus == 1:
        return "there is one GPU"
    if evaluator.tables.dim.max() < 2 * VECTOR:
        return f"rows of less than {2 * VECTOR} columns have no parts of {VECTOR} or more"
    return f"all {gpus} GPUs are in one scale-up domain: that is {TABLE_ROW_WISE}"
