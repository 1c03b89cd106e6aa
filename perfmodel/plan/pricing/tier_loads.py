"""What tables below the HBM bring to a rank: rows in place, misses of its caches, updates in host memory.

FBGEMM has one cache for all cached tables of a fused group: a plan is priced with it (``add_pooled``). A
search gives every table a cache of its own, so that its loads are its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import exchanges as ex
from perfmodel.model import kernels, set_caches, tiers
from perfmodel.model.look_ups import Gather
from perfmodel.model.popularity import popularity_bins
from perfmodel.passes.step_resources import Resource
from perfmodel.plan.pricing.allowed_tiers import CACHED, IN_HOST, IN_PLACE, ON_SSD, WITH_CACHE, Below
from perfmodel.schema.distributions import Distribution
from perfmodel.schema.tiers import LFU

if TYPE_CHECKING:
    from perfmodel.plan.pricing.loads import LoadModel, TableCut, Training
    from perfmodel.plan.pricing.placement import Plan

Array = NDArray[np.float64]
Value = Callable[[str], float]
Part = tuple[int, float, float]
"""A shard of a cache: look-up kind of its table, row parts, share of its rows that the cache is sized for."""
FETCHES = {
    CACHED: (Resource.FETCHED, Resource.FETCHED_WIRE),
    ON_SSD: (Resource.SSD_FETCHED, Resource.SSD_FETCHED_WIRE, Resource.SSD_READ, Resource.SSD_WRITTEN),
}
"""What the misses of the caches of each tier bring to a rank (``TierLoads.of_a_miss``)."""
_IDS = {CACHED: Resource.CACHE_IDS, ON_SSD: Resource.SSD_CACHE_IDS}


@dataclass(frozen=True)
class TierLoads:
    """Of tables of a plan whose ``look_ups`` are known by kind.

    constant, machine_value  give what the equations need;  training  whether rows that leave a cache were
    updated
    """

    below: Below
    constant: Value
    machine_value: Value
    training: bool = False

    def fill(self, cut: TableCut, tier: NDArray[np.int64], cached: Array, own: Array) -> None:
        """Loads of one shard [..., K] of tables that are cut so."""
        row, wire = self.row_bytes(cut.elements * cut.w)
        self._fill_in_place(cut, tier == IN_PLACE, row, wire, own)
        for code in WITH_CACHE:
            if (tier == code).any():
                self._fill_cached(cut, tier == code, cached, code, own)

    def _fill_cached(
        self, cut: TableCut, some: NDArray[np.bool_], cached: Array, code: int, own: Array
    ) -> None:
        """Rows that are looked for in a cache, and those that are not in it."""
        missed, distinct = np.zeros(some.shape), np.zeros(some.shape)
        of = cut.model.look_ups.of[cut.t]
        for kind, share in set(zip(of[some].tolist(), cached[some].tolist(), strict=True)):
            at = some & (of == kind) & (cached == share)
            law = law_of_kind(cut.model, int(kind))
            missed[at] = law.missed(share, self.below.policy, self.constant("cache_ways")) / cut.r[at]
            distinct[at] = law.distinct / cut.r[at]
        own[..., _IDS[code]] = distinct * cut.model.id_bytes
        each = self.of_a_miss(code, cut.elements * cut.w)
        for resource, size in zip(FETCHES[code], each, strict=True):
            own[..., resource] = missed * size

    def of_a_miss(self, code: int, row: Array) -> tuple[Array, ...]:
        """What one row of so many bytes that a cache has not brings to its rank, by ``FETCHES`` [bytes].

        Of SSDs whole blocks are read, and the row that leaves the cache is written if it was updated.
        """
        moved, wire = self.row_bytes(row)
        if code == CACHED:
            return moved, wire
        block = self.machine_value("ssd_block_bytes")
        return moved, wire, block * np.ceil(row / block), row * self.training

    def _fill_in_place(
        self, cut: TableCut, some: NDArray[np.bool_], row: Array, wire: Array, own: Array
    ) -> None:
        """Every look-up reads its row, unless it is on its way already.

        Requests of ``ub`` are lists of different rows, one of each rank: a row that two ranks ask for is
        still on its way only where a whole list is.
        """
        value = self.machine_value
        reads = np.where(cut.ub, ex.requested_rows(cut.G, cut.U, cut.r), cut.lookups)
        under_way = tiers.rows_in_flight(value("host_latency_s"), value("host_link_bytes_per_s"), row)
        of = cut.model.look_ups.of[cut.t]
        crossing, held = np.zeros(some.shape), np.where(under_way >= 1, cut.r * under_way, 0.0)
        for kind in np.unique(of[some]):
            at, lists = some & ~cut.ub & (of == kind), some & cut.ub & (of == kind)
            if at.any():
                crossing[at] = cut.model.look_ups.kinds[int(kind)].miss(Gather.SHARD, 0, held[at])
            if lists.any():
                once = law_of_kind(cut.model, int(kind)).distinct / (cut.r * reads)[lists]
                crossing[lists] = np.where((held < cut.U)[lists], 1.0, once)
        own[..., Resource.IN_PLACE] = reads * crossing * row
        own[..., Resource.IN_PLACE_WIRE] = reads * crossing * wire

    def fill_update(self, cut: TableCut, tier: NDArray[np.int64], training: Training, own: Array) -> None:
        """What an update reads and writes in host memory: state, and rows that no cache has."""
        there = np.isin(tier, IN_HOST)  # of rows on SSDs the cache has both, and the state is in HBM
        touched = ex.touched_rows(np.array(training.unique_everywhere[cut.t]), cut.r) * there
        per_element = cut.elements * training.per_element
        vectors = (cut.elements * cut.w * (tier == IN_PLACE), per_element, training.per_row + 0 * per_element)
        for vector in vectors:
            some = np.asarray(vector) > 0
            row, wire = self.row_bytes(np.where(some, vector, 1.0))
            own[..., Resource.UPDATED_BELOW] += touched * row * some
            own[..., Resource.UPDATED_BELOW_WIRE] += touched * wire * some

    def row_bytes(self, row: Array) -> tuple[Array, Array]:
        """Bytes of a row in whole sectors, and on the wire."""
        moved = kernels.sector_rounded(row, self.constant("link_sector_bytes"))
        packet = self.constant("link_request_bytes"), self.constant("link_header_bytes")
        return moved, tiers.wire_bytes(moved, *packet)


@dataclass(frozen=True)
class AskedLaw:
    """Of one kind of look-ups, all ranks, in bins of rows that are asked for alike.

    rate  [bins] of one row, ``set_caches.asked_rate`` [1/batch];  rows  [bins] in the bin
    all_rows  of the table
    distinct  rows that a batch asks for
    """

    rate: Array
    rows: Array
    all_rows: float
    distinct: float

    def missed(self, share: float, policy: str, ways: float) -> float:
        """Rows of the table that a batch brings into a cache that has that share of them, alone."""
        return _missed(self, share, policy, ways)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@lru_cache(maxsize=4096)
def law_of(ids: Distribution, rows: float, draws: float) -> AskedLaw:
    """``draws``  of a batch, all ranks together."""
    p, count = popularity_bins(ids, rows)
    rate = set_caches.asked_rate(p, draws)
    return AskedLaw(rate, count, rows, float(set_caches.rows_asked(rate, count, 1.0)))


def law_of_kind(model: LoadModel, kind: int) -> AskedLaw:
    """Of a kind of look-ups of a plan."""
    asked = model.look_ups.kinds[kind]
    return law_of(asked.ids, asked.rows, asked.all)


@lru_cache(maxsize=65536)
def _missed(law: AskedLaw, share: float, policy: str, ways: float) -> float:
    sets = share * law.all_rows / ways
    return float(_policy(policy)(law.rate, law.rows, sets, ways).sum())


def _policy(name: str) -> Callable[[Array, Array, float, float], Array]:
    return set_caches.lfu_batch_misses if name == LFU else set_caches.lru_batch_misses


def cache_keys(model: LoadModel, plan: Plan) -> list[tuple[object, ...]]:
    """Of every table [T]: those of one key that are on one rank share a cache there. Its tier is first.

    Source: TorchRec 1.8, ``group_tables``: a group for each compute kernel and dtype, and for each width
            where rows are prefetched or on SSDs; every sharding type has groups of its own
    """
    tables, sets = plan.tables, model.sets
    assert model.below is not None
    by_width = (plan.tier_codes == ON_SSD) | model.below.prefetch
    width = tables.dim / plan.col_parts * by_width
    kinds: Iterable[object] = (sets.types or plan.kinds.tolist()) if sets else [0] * len(tables)
    codes = plan.tier_codes.tolist()
    return list(zip(codes, tables.element_bytes.tolist(), width.tolist(), kinds, strict=True))


def caches_of(model: LoadModel, plan: Plan) -> list[dict[tuple[object, ...], list[int]]]:
    """Of every rank its caches: the table of each of their shards."""
    found: list[dict[tuple[object, ...], list[int]]] = [defaultdict(list) for _ in range(plan.gpus)]
    keys, (tables, ranks) = cache_keys(model, plan), plan.shards
    some = np.isin(plan.tier_codes[tables], WITH_CACHE)
    for table, rank in zip(tables[some].tolist(), ranks[some].tolist(), strict=True):
        found[rank][keys[table]].append(table)
    return found


def add_pooled(model: LoadModel, plan: Plan, values: Array) -> None:
    """Misses of all ranks [K, G] as FBGEMM has them: a cache for all cached tables of a fused group.

        X = sum over its shards of share rows / r,   S = ceil(X / W)          [rows], [-]

    Source: TorchRec 1.8, ``_get_weighted_avg_cache_load_factor``; FBGEMM, ``_apply_cache_state``; of SSDs
            ``_populate_ssd_tbe_params``, which rounds S down
    """
    assert model.tiers is not None
    tables, of = plan.tables, model.look_ups.of
    row = tables.dim / plan.col_parts * tables.element_bytes
    each = {code: model.tiers.of_a_miss(code, row) for code in WITH_CACHE if (plan.tier_codes == code).any()}
    for code in each:
        values[list(FETCHES[code])] = 0
    for rank, caches in enumerate(caches_of(model, plan)):
        for held in caches.values():
            parts = [(int(of[t]), float(plan.row_parts[t]), float(plan.cached_shares[t])) for t in held]
            missed = _pooled(model, tuple(sorted(Counter(parts).items())))
            code = int(plan.tier_codes[held[0]])
            for table, part in zip(held, parts, strict=True):
                for resource, size in zip(FETCHES[code], each[code], strict=True):
                    values[resource, rank] += missed[part] * size[table]


def _pooled(model: LoadModel, parts: tuple[tuple[Part, int], ...]) -> dict[Part, float]:
    known = model.pools
    if parts not in known:
        assert model.tiers is not None
        below, ways = model.tiers.below, model.constant("cache_ways")
        laws = {part[0]: law_of_kind(model, part[0]) for part, _ in parts}
        known[parts] = pooled_misses(parts, laws, below.policy, ways)
    return known[parts]


def pooled_misses(
    parts: tuple[tuple[Part, int], ...], laws: Mapping[int, AskedLaw], policy: str, ways: float
) -> dict[Part, float]:
    """Rows that one shard of each part of a cache misses, when all shards share it.

    parts  of the cache, and how many shards are like each;  laws  of the kinds of look-ups
    """
    known = [laws[kind] for (kind, _, _), _ in parts]
    each = list(zip(parts, known, strict=True))
    size = sum(count * share * law.all_rows / r for ((_, r, share), count), law in each)
    sets = max(float(np.ceil(size / ways)), 1e-9)
    rate = np.concatenate([law.rate for law in known])
    rows = np.concatenate([count * law.rows / r for ((_, r, _), count), law in each])
    gone = _policy(policy)(rate, rows, sets, ways)
    sums = np.add.reduceat(gone, np.cumsum([0, *(law.rate.size for law in known)])[:-1])
    return {part: float(total) / count for (part, count), total in zip(parts, sums, strict=True)}
