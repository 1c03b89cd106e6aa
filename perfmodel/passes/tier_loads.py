"""Loads of tables below the HBM: rows read in place, cache misses, updates in host memory.

In FBGEMM all cached tables of a fused group share one cache, and the cost of a plan counts misses that way
(``add_pooled``). A search gives every table its own cache instead, so that loads are sums over tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import exchanges as ex
from perfmodel.model import kernels, set_caches, tiers
from perfmodel.model.look_ups import Gather
from perfmodel.model.popularity import popularity_bins
from perfmodel.passes.allowed_tiers import CACHED, IN_HOST, IN_PLACE, ON_SSD, WITH_CACHE, Below
from perfmodel.passes.basis import Of
from perfmodel.passes.cut import LoadInputs, Part, TableCut, Training
from perfmodel.passes.placement import Plan
from perfmodel.passes.schemes import asks_once
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.tier_times import PACKET
from perfmodel.schema.distributions import Distribution
from perfmodel.schema.tiers import LFU

Array = NDArray[np.float64]
Value = Callable[[str], float]
_READ = (Resource.IN_PLACE, Resource.IN_PLACE_WIRE)
_UPDATED = (Resource.UPDATED_BELOW, Resource.UPDATED_BELOW_WIRE)
FETCHES = {
    CACHED: (Resource.FETCHED, Resource.FETCHED_WIRE),
    ON_SSD: (Resource.SSD_FETCHED, Resource.SSD_FETCHED_WIRE, Resource.SSD_READ, Resource.SSD_WRITTEN),
}
"""Resources that a miss of an LRU cache adds to, for each tier (``TierLoads.of_a_miss``)."""
_IDS = {CACHED: Resource.CACHE_IDS, ON_SSD: Resource.SSD_CACHE_IDS}


@dataclass(frozen=True)
class TierLoads:
    """Computes the loads of tables that are in host memory or on SSDs.

    constant, machine_value  return a constant, or a value of the machine, by key
    training  whether rows are updated, so that an evicted row must be written back
    """

    below: Below
    constant: Value
    machine_value: Value
    training: bool = False

    def fill(self, cut: TableCut, tier: NDArray[np.int64], cached: Array, own: Array) -> None:
        """Adds to ``own`` [..., K] the loads of one shard of each table that is below the HBM.

        tier  code of each table's tier;  cached  share of its rows that its cache holds [-]
        """
        row, wire = self.row_bytes(cut.elements * cut.w)
        self._fill_in_place(cut, tier == IN_PLACE, row, wire, own)
        for code in WITH_CACHE:
            if (tier == code).any():
                self._fill_cached(cut, tier == code, cached, code, own)

    def _fill_cached(
        self, cut: TableCut, some: NDArray[np.bool_], cached: Array, code: int, own: Array
    ) -> None:
        """Adds the loads of cached tables: rows that are looked up in the cache, and rows that miss it.

        some  which of the tables have such a cache;  code  tier that the missed rows come from
        """
        missed, reads, distinct = (np.zeros(some.shape) for _ in range(3))
        of, ways = cut.model.look_ups.of[cut.t], self.constant("cache_ways")
        keys = np.stack([of, cut.r, cached, *self.asked(cut.ub, cut.G, cut.r, cut.elements * cut.w)])
        for key in set(zip(*keys[:, some].tolist(), strict=True)):
            at = some & (keys == np.reshape(key, (-1,) + (1,) * some.ndim)).all(axis=0)
            law = law_of_kind(cut.model, int(key[0]))
            missed[at], reads[at] = law.alone((int(key[0]), *key[1:]), self.below.policy, ways)
            distinct[at] = law.distinct / key[1]
        own[..., _IDS[code]] = distinct * cut.id_bytes
        each = self.of_a_miss(code, cut.elements * cut.w)
        for resource, size in zip(self.fetches(code), each, strict=True):
            own[..., resource] += (reads if resource in _READ else missed) * size

    def asked(self, ub: Array, G: Of, r: Array, row: Array) -> tuple[Array, Array]:
        """(ranks that each request a row once, rows in flight): the last two fields of ``Part``.

        ub  whether the exchange is ub, where each rank requests a row once
        Limits: LRU -> 0, 0: a missed row is fetched once
        """
        if self.below.policy != LFU:
            return np.zeros(np.shape(r)), np.zeros(np.shape(r))
        return np.where(ub, G, 0.0), self.under_way(r, self.row_bytes(row)[0])

    def under_way(self, r: Array, row: Array) -> Array:
        """Rows of a whole table in flight over the link at once, if the table has r row parts [rows].

        row  bytes of one row
        """
        value = self.machine_value
        held = tiers.rows_in_flight(value("host_latency_s"), value("host_link_bytes_per_s"), row)
        return np.where(held >= 1, r * held, 0.0)

    def fetches(self, code: int) -> tuple[Resource, ...]:
        """Resources to which a miss in this tier's caches adds bytes. A settled LFU cache takes in no new
        row."""
        return (*_READ, *_UPDATED) if self.below.policy == LFU else FETCHES[code]

    def of_a_miss(self, code: int, row: Array) -> tuple[Array, ...]:
        """Bytes that one missed row adds on its rank, in the order of ``fetches``.

        A row without a place in an LFU cache is read and updated in place. From SSDs, whole blocks are read,
        and the evicted row is written back if it was updated.
        """
        moved, wire = self.row_bytes(row)
        if self.below.policy == LFU:
            return moved, wire, moved * self.training, wire * self.training
        if code == CACHED:
            return moved, wire
        block = self.machine_value("ssd_block_bytes")
        return moved, wire, block * np.ceil(row / block), row * self.training

    def _fill_in_place(
        self, cut: TableCut, some: NDArray[np.bool_], row: Array, wire: Array, own: Array
    ) -> None:
        """Adds rows read in place: every look-up reads its row, unless the row is already in flight.

        some  which of the tables are read in place;  row, wire  bytes of a row, and with packet headers
        In exchange ub a request is a list of distinct rows, one list per rank: a second rank's read of a row
        finds it in flight only if a whole list is in flight.
        """
        reads = np.where(cut.ub, ex.requested_rows(cut.G, cut.U, cut.r), cut.lookups)
        of = cut.model.look_ups.of[cut.t]
        crossing, held = np.zeros(some.shape), self.under_way(cut.r, row)
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
        """Adds the update of rows and optimizer state in host memory, except rows that a cache holds."""
        there = np.isin(tier, IN_HOST)  # for rows on SSDs, the cache has the rows and HBM the state
        touched = ex.touched_rows(np.array(training.unique_everywhere[cut.t]), cut.r) * there
        per_element = cut.elements * training.per_element
        vectors = (cut.elements * cut.w * (tier == IN_PLACE), per_element, training.per_row + 0 * per_element)
        for vector in vectors:
            some = np.asarray(vector) > 0
            row, wire = self.row_bytes(np.where(some, vector, 1.0))
            own[..., Resource.UPDATED_BELOW] += touched * row * some
            own[..., Resource.UPDATED_BELOW_WIRE] += touched * wire * some

    def row_bytes(self, row: Array) -> tuple[Array, Array]:
        """(bytes of a row in whole sectors, bytes on the wire)."""
        moved = kernels.sector_rounded(row, self.constant("link_sector_bytes"))
        return moved, tiers.wire_bytes(moved, *map(self.constant, PACKET))

    def add_pooled(self, model: LoadInputs, plan: Plan, values: Array) -> None:
        """Replaces the misses of separate caches, in the loads of all ranks, by the misses of FBGEMM's shared
        caches: all cached tables of a fused group share one cache.

            X = sum over its shards of share rows / r,   S = ceil(X / W)          [rows], [-]

        X  rows of the cache;  S  its sets of W rows;  values  loads of all ranks [K, G], changed in place
        Source: TorchRec 1.8, ``_get_weighted_avg_cache_load_factor``; FBGEMM, ``_apply_cache_state``; for
        SSDs ``_populate_ssd_tbe_params``, which rounds S down
        """
        tables, of, policy = plan.tables, model.look_ups.of, self.below.policy
        row = tables.dim / plan.col_parts * tables.element_bytes
        each = {code: self.of_a_miss(code, row) for code in WITH_CACHE if (plan.tier_codes == code).any()}
        ub = asks_once(plan.kinds)
        asked = np.stack(self.asked(ub, float(model.gpus), plan.row_parts.astype(np.float64), row))
        columns = (plan.row_parts, plan.cached_shares, *asked)
        every: list[Part] = list(
            zip(of.tolist(), *(c.astype(np.float64).tolist() for c in columns), strict=True)
        )
        for code in each if policy != LFU else ():
            values[list(FETCHES[code])] = 0
        for rank, caches in enumerate(caches_of(model, plan)):
            for held in caches.values():
                parts = [every[t] for t in held]
                found = _pooled(model, self.below.policy, tuple(sorted(Counter(parts).items())))
                code = int(plan.tier_codes[held[0]])
                for table, part in zip(held, parts, strict=True):
                    missed, reads = found[part]
                    if policy == LFU:  # besides other rows read and updated in place
                        law = law_of_kind(model, part[0])
                        alone = law.alone(part, policy, model.constant("cache_ways"))
                        missed, reads = missed - alone[0], reads - alone[1]
                    for resource, size in zip(self.fetches(code), each[code], strict=True):
                        values[resource, rank] += (reads if resource in _READ else missed) * size[table]
        if policy == LFU:
            some = [*_READ, *_UPDATED]
            values[some] = np.where(values[some] < ROUNDING_BYTES, 0.0, values[some])


@dataclass(frozen=True)
class AskedLaw:
    """How often a batch of all ranks asks for the rows of one kind of table, in bins of equal popularity.

    rate      [bins] how often a batch asks for one row of the bin, ``set_caches.asked_rate`` [1/batch]
    rows      [bins] rows in the bin;  all_rows  rows of the table
    draws     look-ups of a batch in the table;  distinct  distinct rows among them
    """

    rate: Array
    rows: Array
    all_rows: float
    draws: float
    distinct: float

    def missed(self, share: float, policy: str, ways: float) -> float:
        """Rows that a batch misses if the table has its own cache, which holds ``share`` of its rows [rows].

        policy  lru or lfu;  ways  rows in one set of the cache
        """
        return _missed(self, share, policy, ways)

    def alone(self, part: Part, policy: str, ways: float) -> tuple[float, float]:
        """(rows that a shard misses in a cache of its own, reads over the link for these rows) [rows]."""
        return _alone(self, part, policy, ways)

    def reads(self, absent: Array, part: Part) -> float:
        """Reads over the link for rows that have no place in an LFU cache, of the whole table [rows].

        absent  [bins] such rows in each bin;  part  the row part and its requests
        In exchange ub, requests are lists of distinct rows, one per rank: as in ``TierLoads._fill_in_place``
        """
        *_, ranks, held = part
        if not ranks:
            return set_caches.lfu_reads(self.rate, absent, self.draws, held)
        each = float(absent @ -np.expm1(-self.rate / ranks))
        return float(absent @ -np.expm1(-self.rate)) if held >= each else ranks * each

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@lru_cache(maxsize=4096)
def law_of(ids: Distribution, rows: float, draws: float) -> AskedLaw:
    """How often batches ask for the rows of a table.

    draws  look-ups of a batch in it, of all ranks together
    """
    p, count = popularity_bins(ids, rows)
    rate = set_caches.asked_rate(p, draws)
    return AskedLaw(rate, count, rows, draws, float(set_caches.rows_asked(rate, count, 1.0)))


def law_of_kind(model: LoadInputs, kind: int) -> AskedLaw:
    """``law_of`` for the tables of a plan with equal look-ups. kind  index in ``AllLookUps.kinds``"""
    asked = model.look_ups.kinds[kind]
    return law_of(asked.ids, asked.rows, asked.all)


@lru_cache(maxsize=65536)
def _missed(law: AskedLaw, share: float, policy: str, ways: float) -> float:
    sets = share * law.all_rows / ways
    return float(_policy(policy)(law.rate, law.rows, sets, ways).sum())


@lru_cache(maxsize=65536)
def _alone(law: AskedLaw, part: Part, policy: str, ways: float) -> tuple[float, float]:
    r, share = part[1:3]
    missed = law.missed(share, policy, ways)
    if policy != LFU:
        return missed / r, missed / r
    absent = set_caches.lfu_absent(law.rate, law.rows, share * law.all_rows / ways, ways)
    return missed / r, law.reads(absent, part) / r


def _policy(name: str) -> Callable[[Array, Array, float, float], Array]:
    return set_caches.lfu_batch_misses if name == LFU else set_caches.lru_batch_misses


def cache_keys(model: LoadInputs, plan: Plan) -> list[tuple[object, ...]]:
    """A key for every table [T]: tables on one rank with equal keys share a cache. The key begins with the
    tier.

    Source: TorchRec 1.8, ``group_tables``: a group for each compute kernel and dtype, and for each width
            if rows are prefetched or on SSDs; every sharding type has its own groups
    """
    tables, sets = plan.tables, model.sets
    assert model.below is not None
    by_width = (plan.tier_codes == ON_SSD) | model.below.prefetch
    width = tables.dim / plan.col_parts * by_width
    kinds: Iterable[object] = (sets.types or plan.kinds.tolist()) if sets else [0] * len(tables)
    codes = plan.tier_codes.tolist()
    return list(zip(codes, tables.element_bytes.tolist(), width.tolist(), kinds, strict=True))


def caches_of(model: LoadInputs, plan: Plan) -> list[dict[tuple[object, ...], list[int]]]:
    """The caches of every rank: by cache key, the table of each shard that uses the cache."""
    found: list[dict[tuple[object, ...], list[int]]] = [defaultdict(list) for _ in range(plan.gpus)]
    keys, (tables, ranks) = cache_keys(model, plan), plan.shards
    some = np.isin(plan.tier_codes[tables], WITH_CACHE)
    for table, rank in zip(tables[some].tolist(), ranks[some].tolist(), strict=True):
        found[rank][keys[table]].append(table)
    return found


ROUNDING_BYTES = 1e-3
"""Remainder that rounding may leave in the difference of two equal numbers [bytes]."""


def _pooled(
    model: LoadInputs, policy: str, parts: tuple[tuple[Part, int], ...]
) -> dict[Part, tuple[float, float]]:
    known = model.pools
    if parts not in known:
        ways = model.constant("cache_ways")
        laws = {part[0]: law_of_kind(model, part[0]) for part, _ in parts}
        known[parts] = pooled_misses(parts, laws, policy, ways)
    return known[parts]


def pooled_misses(
    parts: tuple[tuple[Part, int], ...], laws: Mapping[int, AskedLaw], policy: str, ways: float
) -> dict[Part, tuple[float, float]]:
    """Misses of row parts that share one cache: by part, (rows that one shard misses, link reads for them).

    parts  (part, number of equal shards of it) for all parts in the cache
    laws   ``AskedLaw`` by kind of look-ups;  policy  lru or lfu;  ways  rows of a set of the cache
    """
    known = [laws[part[0]] for part, _ in parts]
    each = list(zip(parts, known, strict=True))
    size = sum(count * part[2] * law.all_rows / part[1] for (part, count), law in each)
    sets = max(float(np.ceil(size / ways)), 1e-9)
    rate = np.concatenate([law.rate for law in known])
    rows = np.concatenate([count * law.rows / part[1] for (part, count), law in each])
    starts = np.cumsum([0, *(law.rate.size for law in known)])[:-1]
    if policy != LFU:
        sums = np.add.reduceat(set_caches.lru_batch_misses(rate, rows, sets, ways), starts)
        return {part: (float(x) / n, float(x) / n) for (part, n), x in zip(parts, sums, strict=True)}
    absent = set_caches.lfu_absent(rate, rows, sets, ways)
    sums = np.add.reduceat(absent * -np.expm1(-rate), starts)
    found = {}
    for ((part, count), law), total, gone in zip(each, sums, np.split(absent, starts[1:]), strict=True):
        found[part] = float(total) / count, law.reads(gone * part[1] / count, part) / part[1]
    return found
