"""Uniform plans, where all tables have one sharding: for each sharding, the fastest plan that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.grid import Configs
from perfmodel.engine.loads import ShardLoads
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.placement import Plan, Scheme, check_scheme, cut_to_table, deal_shards
from perfmodel.engine.schemes import (
    SEQUENCES,
    TABLE_ROW_WISE,
    WAYS,
    RowParts,
    copied,
    list_exchanges,
    over_all,
)
from perfmodel.engine.steps import StepCost
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
_ROUNDING = 1e-6  # rows are not divisible: the largest row part has up to one row more


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
    kinds = list_exchanges(library) if over_all(cut.exchange) else (cut.exchange,)
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
    """The fastest plan in which all tables have one sharding, a name of ``schemes.WAYS``.

    scheme  of the tables; a table with fewer rows than row parts is replicated instead
    """

    sharding: str
    scheme: Scheme
    plan: Plan
    cost: StepCost
    memory: GpuMemory


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


def build_evaluator(basis: PassBasis, work: Configs, tables: PlanTables) -> Evaluator:
    """An evaluator of plans for these tables, at the batch and GPUs of the one configuration."""
    id_dtype = {4: "int32", 8: "int64"}[int(work.id_bytes[0])]
    return Evaluator(basis, tables, int(work.batch[0]), int(work.gpus[0]), id_dtype=id_dtype)


def list_tables(work: Configs, model: str) -> PlanTables:
    """The tables of one configuration, named after ``model``. Limits: too many -> BadInputError"""
    kinds, count = work.tables, int(work.table_count[0])
    if count > MOST_TABLES:
        raise BadInputError(
            f"shardings of {count} tables cannot be compared.", f"give at most {MOST_TABLES} --tables."
        )
    counts = kinds.count[:, 0].astype(np.int64)
    columns = (np.repeat(column[:, 0], counts) for column in kinds.columns)
    names = tuple(f"table_{place}" for place in range(count))
    law = np.repeat(kinds.law, counts)
    return PlanTables(*columns, kinds.laws, law, model, names)


class UniformPlans:
    """The uniform plans of an evaluator's tables that fit ``usable_bytes`` on each rank.

    Rows, optimizer state and exchange buffers count as memory, as in a projection.
    """

    def __init__(self, evaluator: Evaluator, usable_bytes: float) -> None:
        self.evaluator, self.usable_bytes = evaluator, usable_bytes
        self._spread: dict[Scheme, _Spread] = {}

    def price(self, shardings: Iterable[str]) -> None:
        """Compute the loads of the shards of these shardings together, where they are few enough to keep.

        Limits: one of their collectives was never measured -> NoCalibrationError
        """
        schemes = [scheme for sharding in shardings for scheme in self._list_allowed(sharding)]
        if len(schemes) * self.evaluator.tables.kinds[0].size <= _MOST_PRICED:
            self._price(schemes)

    def bound_times(self, shardings: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """(for each sharding a lower bound on the time of its plans [s], shardings without calibration).

        Limits: a sharding whose rows fit in no packing, or that has no scheme here -> no bound
        """
        bounds, unknown = dict[str, float](), list[str]()
        with suppress(NoCalibrationError):  # of one of them: the reduce-scatter of NVSHMEM, for example
            self.price(shardings)
        for sharding in shardings:
            try:
                spread = [self._price([scheme])[0] for scheme in self._list_allowed(sharding)]
            except NoCalibrationError:
                unknown.append(sharding)
                continue
            times = [even.time_s for even in spread if even.held_bytes <= self._room_bytes]
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
        if evaluator.basis.rows and copied(WAYS[sharding].exchange):
            return Impossible(sharding, "copies on every GPU are in its HBM")
        try:
            promising = self._sort_promising(sharding)
        except NoCalibrationError as error:
            return Impossible(sharding, error.message.rstrip("."))
        best: UniformPlan | None = None
        whys: list[tuple[float, str]] = []
        fitting = 0
        for scheme in sorted(promising, key=self._is_too_large):  # these only to say why
            spread, hopeless = self._spread.get(scheme), self._is_too_large(scheme)
            if best and (fitting == _TRIED or hopeless or (spread and spread.time_s >= best.cost.time_s)):
                break
            try:
                packed = list(self._pack(sharding, scheme, spread.shards if spread else None))
            except PerfmodelError as error:
                whys.append((np.inf, error.message.rstrip(".")))
                continue
            plans = [plan for plan in packed if isinstance(plan, UniformPlan)]
            whys += [why for why in packed if not isinstance(why, UniformPlan)]
            fitting += bool(plans)
            best = min([*plans, *([best] if best else [])], key=lambda plan: plan.cost.time_s, default=None)
        if best is not None:
            return best
        return Impossible(sharding, min(whys)[1] if whys else _explain_no_scheme(evaluator, sharding))

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
            if np.any(np.max(needed, axis=0) <= self._room_bytes):
                return True
        return False

    def _list_allowed(self, sharding: str) -> list[Scheme]:
        """The schemes of a sharding that these tables and GPUs allow."""
        evaluator = self.evaluator
        if evaluator.gpus % evaluator.domain and WAYS[sharding].of_domains:
            return []
        dim, library = int(evaluator.tables.dim.max()), evaluator.setting.backend
        return list_schemes(sharding, evaluator.gpus, evaluator.domain, dim, library)

    @property
    def _room_bytes(self) -> float:
        return self.usable_bytes * (1 + _ROUNDING)

    def _is_too_large(self, scheme: Scheme) -> bool:
        """Whether some rank has too much in any packing of a scheme, as far as it was priced."""
        return scheme in self._spread and self._spread[scheme].held_bytes > self._room_bytes

    def _price(self, schemes: Sequence[Scheme]) -> list[_Spread]:
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

    def _sort_promising(self, sharding: str) -> list[Scheme]:
        """The schemes of a sharding, fastest first, if shards were spread evenly over the ranks."""
        schemes = self._list_allowed(sharding)
        if len(schemes) <= _TRIED and not all(scheme in self._spread for scheme in schemes):
            return schemes
        self._price(schemes)
        return sorted(schemes, key=lambda scheme: self._spread[scheme].time_s)

    def _pack(
        self, sharding: str, scheme: Scheme, shards: ShardLoads | None
    ) -> Iterator[UniformPlan | tuple[float, str]]:
        """Plans of one scheme, with tables packed onto ranks by memory, and by the work of holders: each with
        its cost, or (bytes, why) if it does not fit.
        """
        evaluator = self.evaluator
        tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
        sample, kind_of, _ = tables.kinds
        cut = _cut_kinds(tables, scheme)
        for table, kind_scheme in sorted(zip(sample.tolist(), cut, strict=True)):
            shape = int(tables.rows[table]), int(tables.dim[table])
            check_scheme(tables.names[table], *shape, kind_scheme, gpus, domain)
        kinds, r, c = _list_columns(cut)
        weights = [np.sum(evaluator.memories.count_shard(sample, r, c), axis=0)]
        if sample.size > 1:  # for equal tables every order is the same
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            work = round_off(shards.own.sum(axis=1))
            weights += [work] if np.ptp(weights[0]) or np.ptp(work) else []
        for weight in weights:
            plan = Plan(
                tables, tuple(deal_shards(sharding, cut, kind_of, weight, gpus, domain)), gpus, domain
            )
            over = _explain_too_much(evaluator, plan, self.usable_bytes)
            if over:
                yield over
                continue
            shards = shards or evaluator.count_shards(sample, kinds, r, c)
            loads = evaluator.loads(plan, shards.at(kind_of))
            memory = evaluator.memory(plan, loads)
            fullest_bytes = float(memory.total_bytes.max())
            if fullest_bytes > self._room_bytes:
                need, room = (format_bytes(x, binary=False) for x in (fullest_bytes, self.usable_bytes))
                yield (
                    fullest_bytes,
                    f"with its exchange buffers a GPU would hold {need}, and has room for {room}",
                )
                continue
            yield UniformPlan(sharding, scheme, plan, evaluator.step(loads), memory)


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
        cut = (_list_columns(_cut_kinds(evaluator.tables, scheme)) for scheme in chunk)
        kinds, r, c = (np.stack(x) for x in zip(*cut, strict=True))
        shard = evaluator.count_shards(sample, kinds, r, c)
        replicated = copied(kinds)
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


def _cut_kinds(tables: PlanTables, scheme: Scheme) -> list[Scheme]:
    """The scheme that each kind of equal tables gets if a whole plan is to have ``scheme``."""
    cut = []
    for table in tables.kinds[0].tolist():
        rows, dim = int(tables.rows[table]), int(tables.dim[table])
        cut.append(
            cut_to_table(replace(scheme, col_parts=_divide_columns(dim, scheme.col_parts)[-1]), rows, dim)
        )
    return cut


def _list_columns(cut: list[Scheme]) -> tuple[Ints, Ints, Ints]:
    """(exchanges, row parts, column parts) of the schemes, as arrays."""
    kinds, r, c = zip(*((s.kind, s.row_parts, s.col_parts) for s in cut), strict=True)
    return np.array(kinds), np.array(r), np.array(c)


def _explain_no_scheme(evaluator: Evaluator, sharding: str) -> str:
    """The reason why a sharding option has no scheme for these tables and GPUs, as a sentence."""
    gpus = evaluator.gpus
    if gpus == 1:
        return "there is one GPU"
    if evaluator.tables.dim.max() < 2 * VECTOR:
        return f"rows of less than {2 * VECTOR} columns have no parts of {VECTOR} or more"
    return f"all {gpus} GPUs are in one scale-up domain: that is {TABLE_ROW_WISE}"


def _explain_too_much(evaluator: Evaluator, plan: Plan, usable: float) -> tuple[float, str] | None:
    """(bytes, why) if a rank has more rows and optimizer state than it may; None if it fits."""
    fullest_bytes = float(np.sum(evaluator.memories.count_held(plan), axis=0).max())
    if fullest_bytes <= usable * (1 + _ROUNDING):
        return None
    t = np.arange(len(evaluator.tables))
    shard_bytes = np.sum(evaluator.memories.count_shard(t, plan.row_parts, plan.col_parts), axis=0)
    table = int(np.argmax(shard_bytes))
    sizes = float(shard_bytes[table]), usable, fullest_bytes
    shard, room, need = (format_bytes(x, binary=False) for x in sizes)
    scheme = plan.placements[table].scheme
    if scheme.copied and shard_bytes.size > 1:
        return fullest_bytes, f"every GPU would hold {need} of tables, and has room for {room}"
    if shard_bytes[table] <= usable:
        return fullest_bytes, f"a GPU would hold {need} of tables, and has room for {room}"
    if scheme.parts <= 1:
        return fullest_bytes, f"one table is {shard}, larger than a GPU ({room})"
    r, c = scheme.row_parts, scheme.col_parts
    parts = f"{r} row parts" if c == 1 else f"{c} column parts" if r == 1 else f"{r} × {c} parts"
    return fullest_bytes, f"{parts} of one table are {shard} each, larger than a GPU ({room})"
