"""Uniform plans, where all tables have one sharding: for each sharding, the fastest plan that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.grid import Configs
from perfmodel.engine.loads import ShardLoads
from perfmodel.engine.placement import COPY, Plan, Scheme, check_scheme, deal_shards
from perfmodel.engine.schemes import (
    FLAT,
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
from perfmodel.units import format_bytes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

VECTOR = 4
"""Columns of a column part are a multiple of this: FBGEMM's kernels read vectors of four elements."""
MOST_TABLES = 10_000
"""Tables that can be compared: a comparison deals each table to its GPUs."""
MOST_COMPARED = 1000
"""Largest number of tables for which every sharding is packed onto GPUs, which takes a second or two."""
_TRIED = 4  # schemes of a sharding that fit and are packed onto GPUs
_PRICED_TOGETHER = 40_000  # shards of tables whose loads are computed together
_MOST_PRICED = 500_000  # shards of tables whose loads are kept
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
    columns = [c for c in parts if c >= least and (c & (c - 1) == 0 or c == parts[-1])]
    if cut.rows == RowParts.ANY:
        return [Scheme(cut.exchange, r, c) for c in columns for r in _list_powers(2, gpus // c)]
    kinds = list_exchanges(library) if cut.exchange == FLAT else (cut.exchange,)
    return [Scheme(kind, cut.count_row_parts(gpus, domain), c) for kind in kinds for c in columns]


def _divide_columns(dim: int, most: int) -> list[int]:
    """Numbers of column parts up to ``most`` that cut ``dim`` columns into whole vectors; 1 is always one."""
    return [1, *(c for c in range(2, min(most, dim // VECTOR) + 1) if dim % (VECTOR * c) == 0)]


def _list_powers(low: int, high: int) -> list[int]:
    """Powers of two from ``low`` to ``high``, and ``high`` itself."""
    powers = [1 << k for k in range(high.bit_length()) if low <= 1 << k <= high]
    return powers if high < low or high in powers else [*powers, high]


@dataclass(frozen=True, eq=False)
class UniformPlan:
    """A plan with its cost: the fastest in which all tables have one sharding, or one with a scheme for each.

    sharding  a name of ``schemes.WAYS``, or ``PLANNED``
    scheme  of the tables; None: each has its own. One with fewer rows than row parts is replicated instead
    """

    sharding: str
    scheme: Scheme | None
    costed: CostedPlan


@dataclass(frozen=True)
class Impossible:
    """A sharding that these tables, GPUs or measurements do not allow, and why, as a sentence."""

    sharding: str
    why: str
    fits = False


@dataclass(frozen=True, eq=False)
class _Spread:
    """One scheme for all tables, as if its shards were spread evenly over the ranks: no packing onto ranks
    takes less time or memory.

    time_s  each load is the mean over ranks, or the largest shard's if that is more; times rise with loads
    held_bytes  rows and optimizer state of the mean rank, or of the largest shard if they are more
    shards  loads of one shard of each kind of table: [Q, K], Q kinds of equal tables, K resources
    """

    time_s: float
    held_bytes: float
    shards: ShardLoads


@dataclass(frozen=True, eq=False)
class UniformPlans:
    """The uniform plans of an evaluator's tables that fit ``usable_bytes`` on each rank.

    Rows, optimizer state and exchange buffers count as memory, as in a projection.
    """

    evaluator: Evaluator
    usable_bytes: float
    _spread: dict[Scheme, _Spread] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(basis: PassBasis, work: Configs, usable_bytes: float, model: str = "the tables") -> UniformPlans:
        """The plans of one configuration, whose tables are named ``model``.

        Limits: more than ``MOST_TABLES`` tables -> BadInputError
        """
        kinds, count = work.tables, int(work.table_count[0])
        if count > MOST_TABLES:
            raise BadInputError(
                f"shardings of {count} tables cannot be compared.", f"give at most {MOST_TABLES} --tables."
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
        """(for each sharding a lower bound on the time of its plans [s], shardings without calibration).

        Limits: a sharding whose rows fit in no packing, or that has no scheme here -> no bound
        """
        allowed = {sharding: self._list_allowed(sharding) for sharding in shardings}
        schemes = [scheme for of_sharding in allowed.values() for scheme in of_sharding]
        if len(schemes) * self.evaluator.tables.kinds[0].size <= _MOST_PRICED:
            with suppress(NoCalibrationError):  # of one of them: the reduce-scatter of NVSHMEM, for example
                self.price(schemes)
        bounds, unknown = dict[str, float](), list[str]()
        for sharding in shardings:
            try:
                spread = self.price(allowed[sharding])
            except NoCalibrationError:
                unknown.append(sharding)
                continue
            times = [even.time_s for even in spread if even.held_bytes <= self.usable_bytes * _ROOM]
            bounds |= {sharding: min(times)} if times else {}
        return bounds, unknown

    def find_best(self, sharding: str) -> UniformPlan | Impossible:
        """The fastest plan with one sharding for all tables.

        Only the four most promising schemes that fit are packed onto ranks. Tables are packed largest first,
        once by memory and once by work; the faster of the two plans is returned.
        """
        evaluator = self.evaluator
        if WAYS[sharding].of_domains and evaluator.gpus % evaluator.domain:
            why = f"{evaluator.gpus} GPUs do not fill scale-up domains of {evaluator.domain} GPUs"
            return Impossible(sharding, why)
        if evaluator.basis.unpooled and sharding not in SEQUENCES:
            return Impossible(sharding, f"unpooled rows are no partial bags: {', '.join(SEQUENCES)}")
        if evaluator.basis.rows and WAYS[sharding].exchange == COPY.kind:
            return Impossible(sharding, "copies on every GPU are in its HBM")
        schemes = self._list_allowed(sharding)
        try:
            if len(schemes) > _TRIED or all(scheme in self._spread for scheme in schemes):
                self.price(schemes)
                schemes.sort(key=lambda scheme: self._spread[scheme].time_s)
        except NoCalibrationError as error:
            return Impossible(sharding, error.message.rstrip("."))
        priced = [(scheme, self._spread.get(scheme)) for scheme in schemes]
        room = self.usable_bytes * _ROOM
        hopeless = [x for x in priced if x[1] and x[1].held_bytes > room]  # tried only to say why
        best: UniformPlan | None = None
        whys: list[tuple[float, str]] = []
        fitting = 0
        for scheme, spread in [x for x in priced if x not in hopeless] + hopeless:
            slower = best and spread and spread.time_s >= best.costed.time_s
            if fitting == _TRIED or slower or (best and (scheme, spread) in hopeless):
                break
            try:
                packed = list(self._pack(sharding, scheme, spread.shards if spread else None))
            except PerfmodelError as error:
                whys.append((np.inf, error.message.rstrip(".")))
                continue
            plans = [plan for plan in packed if isinstance(plan, UniformPlan)]
            whys += [why for why in packed if not isinstance(why, UniformPlan)]
            fitting += bool(plans)
            best = min([*plans, *([best] if best else [])], key=lambda plan: plan.costed.time_s, default=None)
        if best is not None:
            return best
        return Impossible(sharding, min(whys)[1] if whys else _explain_no_scheme(evaluator))

    def has_room(self, shardings: Iterable[str]) -> bool:
        """Whether some scheme leaves memory for rows, optimizer state and exchange buffers on every rank.

            max over ranks of (rows + buffers(loads)) >= mean rows + buffers(mean loads)
                                                      >= k (smallest shard) + buffers(k (least loads))

        k  ceil(N / G): of the N shards of all tables, some rank has at least k
        Source: buffers are the largest of some sums of loads, so they are convex in the loads (Jensen)
        Limits: False -> no plan of these shardings fits;  equal tables -> exact
        """
        schemes = [scheme for sharding in shardings for scheme in self._list_allowed(sharding)]
        for even in _spread_evenly(self.evaluator, schemes):
            ranks = (even.mean, even.held_bytes), (even.most, even.most_bytes)
            times = self.evaluator.times
            needed = [held + times.count_buffers((own + even.everywhere).T) for own, held in ranks]
            if np.any(np.max(needed, axis=0) <= self.usable_bytes * _ROOM):
                return True
        return False

    def _list_allowed(self, sharding: str) -> list[Scheme]:
        """The schemes of a sharding that these tables and GPUs allow."""
        evaluator = self.evaluator
        if evaluator.gpus % evaluator.domain and WAYS[sharding].of_domains:
            return []
        dim, library = int(evaluator.tables.dim.max()), evaluator.setting.backend
        return list_schemes(sharding, evaluator.gpus, evaluator.domain, dim, library)

    def price(self, schemes: Sequence[Scheme]) -> list[_Spread]:
        """The loads and times of schemes, evenly spread, which are kept.

        Limits: one of their collectives was never measured -> NoCalibrationError
        """
        missing = [scheme for scheme in schemes if scheme not in self._spread]
        for even in _spread_evenly(self.evaluator, missing):
            shard = even.shard
            fullest = np.maximum(even.mean, shard.own.max(axis=1)) + even.everywhere
            times = self.evaluator.time_passes(fullest)
            for place, scheme in enumerate(even.schemes):
                loads = ShardLoads(shard.own[place], shard.everywhere[place])
                held_bytes = max(float(even.held_bytes[place]), float(even.largest_bytes[place]))
                self._spread[scheme] = _Spread(float(times[place]), held_bytes, loads)
        return [self._spread[scheme] for scheme in schemes]

    def _pack(
        self, sharding: str, scheme: Scheme, shards: ShardLoads | None
    ) -> Iterator[UniformPlan | tuple[float, str]]:
        """Plans of one scheme, with tables packed onto ranks by memory, and by the work of holders: each with
        its cost, or (bytes, why) if it does not fit.
        """
        evaluator = self.evaluator
        tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
        sample, kind_of, _ = tables.kinds
        kinds, r, c = _cut_kinds(tables, scheme)
        columns = zip(kinds.tolist(), r.tolist(), c.tolist(), strict=True)
        cut = [Scheme(Exchange(kind), *parts) for kind, *parts in columns]
        for table, kind_scheme in sorted(zip(sample.tolist(), cut, strict=True)):
            shape = int(tables.rows[table]), int(tables.dim[table])
            check_scheme(tables.names[table], *shape, kind_scheme, gpus, domain)
        shard_bytes = np.sum(evaluator.memories.count_shard(sample, r, c), axis=0)
        weights = [shard_bytes]
        if sample.size > 1:  # for equal tables every order is the same
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            work = round_off(shards.own.sum(axis=1))
            weights += [work] if np.ptp(weights[0]) or np.ptp(work) else []
        for weight in weights:
            placements = deal_shards(sharding, cut, kind_of, weight, gpus, domain)
            plan = Plan(tables, tuple(placements), gpus, domain)
            held = evaluator.memories.count_held(plan)
            fullest_bytes = float(np.sum(held, axis=0).max())
            if fullest_bytes > self.usable_bytes * _ROOM:
                kind = int(np.argmax(shard_bytes))
                yield fullest_bytes, self._explain_too_much(fullest_bytes, cut[kind], shard_bytes[kind])
                continue
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            of_tables = ShardLoads(shards.own[kind_of], shards.everywhere[kind_of])
            costed = evaluator.cost(plan, of_tables)
            fullest_bytes = costed.fullest_bytes
            if fullest_bytes > self.usable_bytes * _ROOM:
                need, room = (format_bytes(x, binary=False) for x in (fullest_bytes, self.usable_bytes))
                why = f"with its exchange buffers a GPU would hold {need}, and has room for {room}"
                yield fullest_bytes, why
                continue
            yield UniformPlan(sharding, scheme, costed)

    def _explain_too_much(self, fullest_bytes: float, scheme: Scheme, shard_bytes: float) -> str:
        """Why a rank has more rows and state than it may. scheme  of the table with the largest shard"""
        usable, several = self.usable_bytes, len(self.evaluator.tables) > 1
        shard, room, need = (format_bytes(x, binary=False) for x in (shard_bytes, usable, fullest_bytes))
        if scheme.copied and several:
            return f"every GPU would hold {need} of tables, and has room for {room}"
        if shard_bytes <= usable:
            return f"a GPU would hold {need} of tables, and has room for {room}"
        if scheme.parts <= 1:
            return f"one table is {shard}, larger than a GPU ({room})"
        r, c = scheme.row_parts, scheme.col_parts
        parts = f"{r} row parts" if c == 1 else f"{c} column parts" if r == 1 else f"{r} × {c} parts"
        return f"{parts} of one table are {shard} each, larger than a GPU ({room})"


@dataclass(frozen=True, eq=False)
class _Evenly:
    """Loads and memory of S schemes with shards spread evenly: Q kinds of equal tables, K resources.

    shard       loads of a shard of each kind of table [S, Q, K];  everywhere  loads of replicas [S, K]
    mean        loads of the mean rank, without replicas [S, K]
    most        least loads of a rank that has as many shards as the fullest rank must have [S, K]
    held_bytes, most_bytes  rows and optimizer state of these two ranks, with replicas [S]
    largest_bytes  the same of the rank that has the largest shard, at least [S]
    """

    schemes: Sequence[Scheme]
    shard: ShardLoads
    everywhere: Array
    mean: Array
    most: Array
    held_bytes: Array
    most_bytes: Array
    largest_bytes: Array


def _spread_evenly(evaluator: Evaluator, schemes: Sequence[Scheme]) -> Iterator[_Evenly]:
    """Yields the schemes in chunks, as many at a time as memory allows."""
    sample, _, count = evaluator.tables.kinds
    together = max(_PRICED_TOGETHER // sample.size, 1)
    for start in range(0, len(schemes), together):
        chunk = schemes[start : start + together]
        cuts = [_cut_kinds(evaluator.tables, scheme) for scheme in chunk]
        kinds, r, c = (np.stack(column) for column in zip(*cuts, strict=True))
        shard = evaluator.count_shards(sample, kinds, r, c)
        replicated = kinds == COPY.kind
        parts = np.where(replicated, 0, r * c * count)
        everywhere = np.einsum("sqk,q->sk", shard.everywhere, count)
        shard_bytes = np.sum(evaluator.memories.count_shard(sample, r, c), axis=0)
        copies = (np.where(replicated, count, 0) * shard_bytes).sum(axis=1)
        mean = np.einsum("sqk,sq->sk", shard.own, parts) / evaluator.gpus
        held = copies + (parts * shard_bytes).sum(axis=1) / evaluator.gpus
        shards = np.ceil(parts.sum(axis=1) / evaluator.gpus)
        smallest_load = np.where(replicated[..., np.newaxis], np.inf, shard.own).min(axis=1)
        smallest_load = np.where(shards[:, np.newaxis] > 0, smallest_load, 0)
        smallest = np.where(shards > 0, np.where(replicated, np.inf, shard_bytes).min(axis=1), 0)
        fullest, most_held = shards[:, np.newaxis] * smallest_load, copies + shards * smallest
        largest = copies + np.where(replicated, 0, shard_bytes).max(axis=1)
        yield _Evenly(chunk, shard, everywhere, mean, fullest, held, most_held, largest)


def _cut_kinds(tables: PlanTables, scheme: Scheme) -> tuple[Ints, Ints, Ints]:
    """(exchange, row parts, column parts) of each kind of equal tables if a whole plan is to have ``scheme``.

    A table with fewer rows than row parts is replicated; column parts are of whole vectors.
    """
    sample, dims = tables.kinds[0], tables.dim[tables.kinds[0]]
    replicated = tables.rows[sample] < scheme.row_parts
    columns = {dim: _divide_columns(int(dim), scheme.col_parts)[-1] for dim in set(dims.tolist())}
    c = np.array([columns[dim] for dim in dims.tolist()])
    kinds, r = np.where(replicated, COPY.kind, scheme.kind), np.where(replicated, 1, scheme.row_parts)
    return kinds, r, np.where(replicated, 1, c)


def _explain_no_scheme(evaluator: Evaluator) -> str:
    """The reason why a sharding option has no scheme for these tables and GPUs, as a sentence."""
    gpus = evaluator.gpus
    if gpus == 1:
        return "there is one GPU"
    if evaluator.tables.dim.max() < 2 * VECTOR:
        return f"rows of less than {2 * VECTOR} columns have no parts of {VECTOR} or more"
    return f"all {gpus} GPUs are in one scale-up domain: that is {TABLE_ROW_WISE}"
