"""Uniform plans, where all tables have one sharding option: for each option (``schemes.WAYS``), the
fastest plan that fits, or why no plan fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.fast_times import steady
from perfmodel.passes.loads import ShardLoads
from perfmodel.passes.memory import PlanMemory, buffer_bytes
from perfmodel.passes.placement import Placement, Plan, Scheme, check_scheme, cut_to_table
from perfmodel.passes.schemes import TABLE_ROW_WISE, WAYS, RowParts, copied, exchanges_of, over_all
from perfmodel.passes.steps import StepCost
from perfmodel.passes.tables import PlanTables
from perfmodel.units import format_bytes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_COMPARED = 1000
"""Largest number of tables for which every option is packed onto GPUs, which takes a second or two."""
_TRIED = 4  # schemes of an option that fit and are packed onto GPUs
_AT_ONCE = 40_000  # shards of tables whose loads are computed together
_ROUNDING = 1e-6  # rows are not divisible: the largest row part has up to one row more


def schemes_of(way: str, gpus: int, domain: int, dim: int, library: str = "") -> list[Scheme]:
    """All schemes of one sharding option: powers of two as numbers of parts, and the largest possible number.

    way     name of the option, among ``schemes.WAYS``
    gpus  G;  domain  g, ranks of a scale-up domain;  dim  elements of the widest row
    library  the collective library; it limits the exchanges of row parts on all GPUs (``exchanges_of``)
    Limits: an option that needs more GPUs, domains or columns than there are -> none
    """
    cut = WAYS[way]
    most = min(dim, cut.most_columns(gpus, domain))
    columns = _powers(1 if cut.rows == RowParts.ANY else 2, most) if cut.columns else [1]
    if cut.rows == RowParts.ANY:
        return [Scheme(cut.exchange, r, c) for c in columns for r in _powers(2, gpus // c)]
    kinds = exchanges_of(library) if over_all(cut.exchange) else (cut.exchange,)
    return [Scheme(kind, cut.row_parts(gpus, domain), c) for kind in kinds for c in columns]


def _powers(least: int, most: int) -> list[int]:
    """Powers of two from ``least`` to ``most``, and ``most`` itself."""
    found = [1 << k for k in range(most.bit_length()) if least <= 1 << k <= most]
    return found if most < least or most in found else [*found, most]


@dataclass(frozen=True, eq=False)
class Alike:
    """The fastest plan in which all tables have one sharding option.

    way     name of the option, among ``schemes.WAYS``
    scheme  of the tables; a table with fewer rows than row parts is replicated instead
    """

    way: str
    scheme: Scheme
    plan: Plan
    cost: StepCost
    memory: PlanMemory

    @property
    def copied(self) -> int:
        """Number of tables that are replicated because they have fewer rows than ``scheme`` has row parts."""
        copies = sum(p.scheme.copied for p in self.plan.placements)
        return 0 if self.scheme.copied else copies


@dataclass(frozen=True)
class Impossible:
    """A sharding option that these tables, GPUs or measurements do not allow, and why, as a sentence."""

    way: str
    why: str


def best_alike(
    evaluator: Evaluator,
    way: str,
    usable_bytes: float,
    known: Mapping[Scheme, Even] | None = None,
    priced: Mapping[Scheme, Even] | None = None,
) -> Alike | Impossible:
    """The fastest plan with one sharding option for all tables that fits ``usable_bytes`` on each rank.

    Only the four most promising schemes that fit are packed onto ranks. Rows, optimizer state and exchange
    buffers count as memory, as in a projection.
    Tables are packed largest first, once by memory and once by work; the faster of the two plans is returned.
    known  ``spread_evenly`` of the option's schemes, if computed: schemes that cannot win are skipped
    priced  as ``known``, used only for the loads of their shards: no scheme is skipped
    """
    priced = known or priced
    if WAYS[way].of_domains and evaluator.gpus % evaluator.domain:
        return Impossible(
            way, f"{evaluator.gpus} GPUs do not fill scale-up domains of {evaluator.domain} GPUs"
        )
    try:
        promising = _promising(evaluator, way, known, priced)
    except NoCalibrationError as error:
        return Impossible(way, error.message.rstrip("."))
    best: Alike | None = None
    whys: list[tuple[float, str]] = []
    fitting = 0
    for scheme in promising:
        even = known[scheme] if known else None
        shards = priced[scheme].shards if priced else None
        if fitting == _TRIED or (best and even and even.time_s >= best.cost.time_s):
            break
        try:
            found = list(_costed(evaluator, way, scheme, usable_bytes, shards))
        except PerfmodelError as error:
            whys.append((np.inf, error.message.rstrip(".")))
            continue
        good = [each for each in found if isinstance(each, Alike)]
        whys += [each for each in found if not isinstance(each, Alike)]
        fitting += bool(good)
        best = min([*good, *([best] if best else [])], key=lambda each: each.cost.time_s, default=None)
    if best is not None:
        return best
    return Impossible(way, min(whys)[1] if whys else _nothing_to_cut(evaluator, way))


def _promising(
    evaluator: Evaluator,
    way: str,
    known: Mapping[Scheme, Even] | None,
    priced: Mapping[Scheme, Even] | None,
) -> list[Scheme]:
    """The schemes of a sharding option, fastest first, if shards were spread evenly over the ranks."""
    schemes = schemes_here(evaluator, [way])[way]
    if known is None and len(schemes) <= _TRIED:
        return schemes
    even = priced or spread_evenly(evaluator, schemes)
    return sorted(schemes, key=lambda scheme: even[scheme].time_s)


@dataclass(frozen=True, eq=False)
class Even:
    """One scheme for all tables, as if its shards were spread evenly over the ranks: no packing onto ranks
    takes less time or memory.

    time_s  each load is the mean over ranks, or the largest shard's if that is more; times rise with loads
    held_bytes  mean rows and optimizer state of a rank
    shards  loads of one shard of each kind of table: [Q, K], Q kinds of equal tables, K resources
    """

    time_s: float
    held_bytes: float
    shards: ShardLoads


def least_times(
    evaluator: Evaluator, ways: Sequence[str], usable_bytes: float
) -> tuple[dict[str, float], dict[Scheme, Even], list[str]]:
    """For each sharding option, a lower bound on the time of its plans [s].

    Returns (bound by option, every scheme with its shards spread evenly, options without calibration).
    ways  options, names among ``schemes.WAYS``;  usable_bytes  memory of one rank that tables may use
    Without calibration: one of its collectives was never measured, as the reduce-scatter of NVSHMEM.
    Limits: an option whose rows fit in no packing, or that has no scheme here -> no bound
    """
    of_way = schemes_here(evaluator, ways)
    known, unknown = dict[Scheme, Even](), list[str]()
    try:
        known = spread_evenly(evaluator, [scheme for schemes in of_way.values() for scheme in schemes])
    except NoCalibrationError:
        for way, schemes in of_way.items():
            try:
                known |= spread_evenly(evaluator, schemes)
            except NoCalibrationError:
                unknown.append(way)
    of_way = {way: schemes for way, schemes in of_way.items() if way not in unknown}
    room = usable_bytes * (1 + _ROUNDING)
    fitting = {
        way: [known[scheme].time_s for scheme in schemes if known[scheme].held_bytes <= room]
        for way, schemes in of_way.items()
    }
    return {way: min(times) for way, times in fitting.items() if times}, known, unknown


def schemes_here(evaluator: Evaluator, ways: Iterable[str]) -> dict[str, list[Scheme]]:
    """For each sharding option, its schemes that these tables and GPUs allow."""
    dim, uneven = int(evaluator.tables.dim.max()), evaluator.gpus % evaluator.domain > 0
    kept = [way for way in ways if not (uneven and WAYS[way].of_domains)]
    here = evaluator.gpus, evaluator.domain, dim, evaluator.setting.backend
    return {way: schemes_of(way, *here) for way in kept}


def spread_evenly(evaluator: Evaluator, schemes: Sequence[Scheme]) -> dict[Scheme, Even]:
    """Each scheme with its shards spread evenly."""
    found = dict[Scheme, Even]()
    for even in _evenly(evaluator, schemes):
        shard = even.shard
        times = evaluator.exact_times(np.maximum(even.mean, shard.own.max(axis=1)) + even.everywhere)
        for k, scheme in enumerate(even.schemes):
            loads = ShardLoads(shard.own[k], shard.everywhere[k])
            found[scheme] = Even(float(times[k]), float(even.held_bytes[k]), loads)
    return found


def may_fit(evaluator: Evaluator, ways: Iterable[str], usable_bytes: float) -> bool:
    """Whether some scheme leaves memory for rows, optimizer state and exchange buffers on every rank.

        max over ranks of (rows + buffers(loads)) >= mean rows + buffers(mean loads)
                                                  >= k (smallest shard) + buffers(k (least loads))

    k  ceil(N / G): of the N shards of all tables, some rank has at least k
    Source: buffers are the largest of some sums of loads, so they are convex in the loads (Jensen)
    Limits: False -> no plan of these sharding options fits;  equal tables -> exact
    """
    schemes = [scheme for some in schemes_here(evaluator, ways).values() for scheme in some]
    room = usable_bytes * (1 + _ROUNDING)
    for even in _evenly(evaluator, schemes):
        ranks = (even.mean, even.held_bytes), (even.most, even.most_bytes)
        needed = [held + buffer_bytes((own + even.everywhere).T, evaluator.times) for own, held in ranks]
        if np.any(np.max(needed, axis=0) <= room):
            return True
    return False


@dataclass(frozen=True, eq=False)
class _Evenly:
    """Loads and memory of S schemes with shards spread evenly: Q kinds of equal tables, K resources.

    shard       loads of a shard of each kind of table [S, Q, K];  everywhere  loads of replicas [S, K]
    mean        loads of the mean rank, without replicas [S, K]
    most        least loads of a rank that has as many shards as the fullest rank must have [S, K]
    held_bytes, most_bytes  rows and optimizer state of these two ranks, with replicas [S]
    """

    schemes: Sequence[Scheme]
    shard: ShardLoads
    everywhere: Array
    mean: Array
    most: Array
    held_bytes: Array
    most_bytes: Array


def _evenly(evaluator: Evaluator, schemes: Sequence[Scheme]) -> Iterator[_Evenly]:
    """Yields the schemes in chunks, as many at a time as memory allows."""
    sample, _, count = evaluator.tables.kinds
    each = max(_AT_ONCE // sample.size, 1)
    for at in range(0, len(schemes), each):
        some = schemes[at : at + each]
        cut = (_columns(_cuts(evaluator.tables, scheme)) for scheme in some)
        kinds, r, c = (np.stack(x) for x in zip(*cut, strict=True))
        shard = evaluator.shard_loads(sample, kinds, r, c)
        whole = copied(kinds)
        parts = np.where(whole, 0, r * c * count)
        everywhere = np.einsum("sqk,q->sk", shard.everywhere, count)
        one = np.sum(evaluator.shard_memory(sample, r, c), axis=0)
        copies = (np.where(whole, count, 0) * one).sum(axis=1)
        mean = np.einsum("sqk,sq->sk", shard.own, parts) / evaluator.gpus
        held = copies + (parts * one).sum(axis=1) / evaluator.gpus
        shards = np.ceil(parts.sum(axis=1) / evaluator.gpus)
        least = np.where(whole[..., np.newaxis], np.inf, shard.own).min(axis=1)
        least = np.where(shards[:, np.newaxis] > 0, least, 0)
        smallest = np.where(shards > 0, np.where(whole, np.inf, one).min(axis=1), 0)
        most, most_held = shards[:, np.newaxis] * least, copies + shards * smallest
        yield _Evenly(some, shard, everywhere, mean, most, held, most_held)


def _cuts(tables: PlanTables, scheme: Scheme) -> list[Scheme]:
    """The scheme that each kind of equal tables gets if a whole plan is to have ``scheme``."""
    sample, _, _ = tables.kinds
    return [cut_to_table(scheme, int(tables.rows[at]), int(tables.dim[at])) for at in sample]


def _columns(cut: list[Scheme]) -> tuple[Ints, Ints, Ints]:
    """(exchanges, row parts, column parts) of the schemes, as arrays."""
    kinds, r, c = zip(*((s.kind, s.row_parts, s.col_parts) for s in cut), strict=True)
    return np.array(kinds), np.array(r), np.array(c)


def _nothing_to_cut(evaluator: Evaluator, way: str) -> str:
    """The reason why a sharding option has no scheme for these tables and GPUs, as a sentence."""
    gpus = evaluator.gpus
    if gpus == 1:
        return "there is one GPU"
    if evaluator.tables.dim.max() == 1:
        return "rows of one element have no columns to cut"
    return f"all {gpus} GPUs are in one scale-up domain: that is {TABLE_ROW_WISE}"


def _too_much(evaluator: Evaluator, plan: Plan, usable: float) -> tuple[float, str] | None:
    """(bytes, why) if a rank has more rows and optimizer state than it may; None if it fits."""
    most = float(np.sum(evaluator.memories.held(plan), axis=0).max())
    if most <= usable * (1 + _ROUNDING):
        return None
    t = np.arange(len(evaluator.tables))
    each = np.sum(evaluator.shard_memory(t, plan.row_parts, plan.col_parts), axis=0)
    at = int(np.argmax(each))
    part, room, need = (format_bytes(x, binary=False) for x in (float(each[at]), usable, most))
    scheme = plan.placements[at].scheme
    if scheme.copied and each.size > 1:
        return most, f"every GPU would hold {need} of tables, and has room for {room}"
    if each[at] <= usable:
        return most, f"a GPU would hold {need} of tables, and has room for {room}"
    if scheme.parts <= 1:
        return most, f"one table is {part}, larger than a GPU ({room})"
    parts = f"{scheme.row_parts} × {scheme.col_parts} parts" if scheme.row_parts > 1 else ""
    parts = parts or f"{scheme.col_parts} column parts"
    if scheme.col_parts == 1:
        parts = f"{scheme.row_parts} row parts"
    return most, f"{parts} of one table are {part} each, larger than a GPU ({room})"


def _costed(
    evaluator: Evaluator, way: str, scheme: Scheme, usable_bytes: float, shards: ShardLoads | None = None
) -> Iterator[Alike | tuple[float, str]]:
    """Plans of one scheme, with tables packed onto ranks by memory, and by the work of holders: each with its
    cost, or (bytes, why) if it does not fit.
    """
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    sample, kind_of, _ = tables.kinds
    cut = _cuts(tables, scheme)
    for at, each in sorted(zip(sample.tolist(), cut, strict=True)):
        check_scheme(tables.names[at], int(tables.rows[at]), int(tables.dim[at]), each, gpus, domain)
    kinds, r, c = _columns(cut)
    weights = [np.sum(evaluator.shard_memory(sample, r, c), axis=0)]
    if sample.size > 1:  # for equal tables every order is the same
        shards = shards or evaluator.shard_loads(sample, kinds, r, c)
        work = steady(shards.own.sum(axis=1))
        weights += [work] if np.ptp(weights[0]) or np.ptp(work) else []
    for weight in weights:
        plan = Plan(tables, tuple(_dealt(way, cut, kind_of, weight, gpus, domain)), gpus, domain)
        over = _too_much(evaluator, plan, usable_bytes)
        if over:
            yield over
            continue
        shards = shards or evaluator.shard_loads(sample, kinds, r, c)
        loads = evaluator.loads(plan, shards.at(kind_of))
        memory = evaluator.memory(plan, loads)
        most = float(memory.total_bytes.max())
        if most > usable_bytes * (1 + _ROUNDING):
            need, room = (format_bytes(x, binary=False) for x in (most, usable_bytes))
            yield most, f"with its exchange buffers a GPU would hold {need}, and has room for {room}"
            continue
        yield Alike(way, scheme, plan, evaluator.step(loads), memory)


def _dealt(
    way: str, cut: list[Scheme], kind_of: Ints, weight: Array, gpus: int, domain: int
) -> list[Placement]:
    """Ranks of every table [T]: heaviest shards first, each to the ranks (or domains) with the least weight.

    cut, weight   scheme and weight of each kind of table [Q]
    Tables of one kind that begin with equal weight on every rank are dealt in rounds, each like the first.
    Equal placements are one object.
    """
    held, placed = np.zeros(gpus), dict[int, Placement]()
    made: dict[tuple[Scheme, bytes], Placement] = {}
    order = np.argsort(-weight[kind_of], kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(kind_of[order])) + 1):
        scheme, each = cut[kind_of[run[0]]], float(weight[kind_of[run[0]]])
        even, dealt = run.size > 1 and not np.ptp(held), list[Placement]()
        while len(dealt) < run.size:
            ranks = _lightest(way, scheme, held, gpus, domain)
            held[ranks] += each
            key = scheme, ranks.tobytes()
            if key not in made:
                made[key] = Placement(scheme, ranks)
            dealt.append(made[key])
            if even and len(dealt) * scheme.parts % gpus == 0 and not np.ptp(held):
                break
        placed |= {at: dealt[n % len(dealt)] for n, at in enumerate(run.tolist())}
        if len(placed) < order.size:
            for n in range(len(dealt), run.size):
                held[dealt[n % len(dealt)].ranks] += each
    return [placed[at] for at in range(order.size)]


def _lightest(way: str, scheme: Scheme, held: Array, gpus: int, domain: int) -> Ints:
    if scheme.parts == gpus and scheme.col_parts == 1:
        return np.arange(gpus)
    if scheme.by_domain:
        each = scheme.row_parts // domain
        chosen = np.argsort(held.reshape(-1, domain).sum(axis=1), kind="stable")[: each * scheme.col_parts]
        ranks = np.sort(chosen).reshape(-1, each)[:, :, np.newaxis] * domain + np.arange(domain)
        return np.asarray(ranks.reshape(scheme.col_parts, -1).T.reshape(-1))
    if scheme.parts == 1:
        return np.array([np.argmin(held)])
    first = 0
    if WAYS[way].inside:
        first = int(np.argmin(held.reshape(-1, domain).sum(axis=1))) * domain
        held = held[first : first + domain]
    return np.sort(np.argsort(held, kind="stable")[: scheme.parts]) + first
