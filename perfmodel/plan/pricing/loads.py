"""Loads: for every resource the bytes that each rank sends, receives or moves in one step of a plan.

Loads are sums over shards, so moving a shard changes two ranks. A step takes as long as its busiest rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels
from perfmodel.model.look_ups import Gather
from perfmodel.passes.basis import row_penalty
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.step_resources import BELOW, RESOURCES, TOGETHER, Resource
from perfmodel.plan.pricing.allowed_tiers import WITH_CACHE, Below
from perfmodel.plan.pricing.exchange_sets import ExchangeSets
from perfmodel.plan.pricing.look_up_groups import LookUpGroups
from perfmodel.plan.pricing.placement import Plan, Scheme, check_scheme
from perfmodel.plan.pricing.rank_loads import Loads, ShardLoads
from perfmodel.plan.pricing.skew import AllLookUps
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.plan.pricing.tier_loads import Part, TierLoads, add_pooled
from perfmodel.plan.pricing.update_loads import backward

Array = NDArray[np.float64]

_SPLIT = (Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL)


@dataclass(frozen=True)
class Training:
    """What the backward pass needs.

    per_element, per_row  state of the optimizer [bytes];  copied  the same two of copies
    unique_everywhere     U_G, distinct rows that all ranks' samples look up in each table [rows], shape [T]
    """

    per_element: float
    per_row: float
    copied: tuple[float, float]
    unique_everywhere: Array


@dataclass(frozen=True)
class LoadModel:
    """Loads of tables on G ranks; ``constant`` and ``machine_value`` give what the equations need.

    batch     B, samples of one rank;  gpus  G;  domain  g;  id_bytes  of one id [bytes]
    payload_bytes  v, bytes of a pooled element in an exchange
    The L2 is shared by the shards of a rank. How many those are depends on the whole plan; each is given the
    share that it has where all tables are cut into as many parts: 1 / max(1, T r c / G); copies of hot rows
    1 / T, for every rank has those of all tables.
    Limits: every table on every rank -> 1/T;  few shards -> the whole cache
    """

    tables: PlanTables
    batch: float
    gpus: int
    domain: int
    constant: Callable[[str], float]
    machine_value: Callable[[str], float]
    id_bytes: float
    payload_bytes: float
    unique: Array  # U of each table for the samples of one rank
    training: Training | None = None
    sets: ExchangeSets | None = None  # of TorchRec; None: all tables exchange together
    below: Below | None = None  # tiers that tables may be in beside the HBM

    @property
    def width(self) -> int:
        """K, resources of a pass."""
        own = self.groups.width if self.groups else TOGETHER
        return own if self.below is None else max(own, BELOW[1])

    @cached_property
    def groups(self) -> LookUpGroups | None:
        """Tables that TorchRec looks up in one launch; None: all that a rank has."""
        ssd = self.below is not None and self.below.ssd
        return LookUpGroups(self.sets, self.tables, ssd) if self.sets else None

    @cached_property
    def look_ups(self) -> AllLookUps:
        """Of all tables."""
        tables = self.tables
        return AllLookUps(tables.ids, tables.rows, tables.pooling, self.batch, float(self.gpus))

    @cached_property
    def pools(self) -> dict[tuple[tuple[Part, int], ...], dict[Part, tuple[float, float]]]:
        """Misses of caches that were priced before, and reads for them."""
        return {}

    @cached_property
    def tiers(self) -> TierLoads | None:
        """Of tables below the HBM."""
        if self.below is None:
            return None
        return TierLoads(self.below, self.constant, self.machine_value, self.training is not None)

    def shard_loads(
        self,
        table: ArrayLike,
        kind: ArrayLike,
        r: ArrayLike,
        c: ArrayLike,
        hot: ArrayLike = 0,
        tier: ArrayLike = 0,
        cached: ArrayLike = 0,
    ) -> ShardLoads:
        """Loads of shards of tables (indices) cut into r x c parts and exchanged so; all broadcast.

        hot     h, rows of each table that every rank has a copy of as well
        tier    code of where they are (``allowed_tiers.CODES``)
        cached  share of the rows that a cache of their own has in HBM

        Limits: more parts than rows or columns -> BadInputError, for the equations spread ids evenly over
        parts;  whatever else a plan checks is not checked here (``placement.check_scheme``)
        """
        t, kinds, rows, cols, head, where, share = np.broadcast_arrays(
            np.asarray(table, dtype=np.int64),
            np.asarray(kind),
            *(_array(x) for x in (r, c, hot)),
            np.asarray(tier, dtype=np.int64),
            _array(cached),
        )
        self._check_parts(t, kinds, rows, cols, head)
        width = TOGETHER if self.tiers is None else BELOW[1]
        own, everywhere = (np.moveaxis(np.zeros((width, *t.shape)), 0, -1) for _ in range(2))
        cut = TableCut(self, t, kinds, rows, cols, head)
        for fill in (_input, _look_up, _look_up_hot, _unique, _dense, _two_level, _partial, _convert):
            fill(cut, own, everywhere)
        if self.training is not None:
            backward(cut, self.training, own, everywhere)
        if self.tiers is not None:
            self.tiers.fill(cut, where, share, own)
            if self.training is not None:
                self.tiers.fill_update(cut, where, self.training, own)
        if self.sets is not None and self.groups is not None:
            own, everywhere = (self._spread(t, kinds, each) for each in (own, everywhere))
            everywhere[..., Resource.COPIED_LENGTHS] = _copied_lengths(cut)
            spread = self.groups.spread
            own, everywhere = spread(t, where, own, False), spread(t, where, everywhere, True)
        return ShardLoads(own, everywhere)

    def _spread(self, t: NDArray[np.int64], kind: NDArray[Any], loads: Array) -> Array:
        """Each where its own set of exchanges is counted."""
        assert self.sets is not None
        found = self.sets.spread(t, kind, loads)
        if self.tiers is None:
            return found
        whole = np.moveaxis(np.zeros((BELOW[1], *t.shape)), 0, -1)
        whole[..., : found.shape[-1]] = found
        whole[..., BELOW[0] :] = loads[..., BELOW[0] :]
        return whole

    def _check_parts(self, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array, hot: Array) -> None:
        empty = (r > self.tables.rows[t] - hot) | (c > self.tables.dim[t])
        if not empty.any():
            return
        at = t[empty][0]
        row_parts, col_parts, few = (int(x[empty][0]) for x in (r, c, hot))
        rows, dim = int(self.tables.rows[at]), int(self.tables.dim[at])
        scheme = Scheme(Exchange(int(kind[empty][0])), row_parts, col_parts, few)
        check_scheme(self.tables.names[at], rows, dim, scheme, self.gpus, self.domain)

    def loads(self, plan: Plan, found: ShardLoads | None = None) -> Loads:
        """Loads of all ranks: those of each rank's shards, and what every rank has.

        found  of a shard of each table [T, K], where they are known
        """
        if found is None:
            found = self.shard_loads(np.arange(len(plan.tables)), *plan.schemes)
        values = np.repeat(found.everywhere.sum(axis=0)[:, np.newaxis], plan.gpus, axis=1)
        tables, ranks = plan.shards
        for k in range(self.width):
            if found.own[:, k].any():
                values[k] += np.bincount(ranks, weights=found.own[tables, k], minlength=plan.gpus)
        if self.tiers is not None and np.isin(plan.tier_codes, WITH_CACHE).any():
            add_pooled(self, plan, values)
        return Loads(values)


class TableCut:
    """Tables cut in some ways: the quantities of ``model.exchanges`` as arrays of one shape."""

    def __init__(
        self, model: LoadModel, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array, hot: Array
    ) -> None:
        self.model, self.t, self.kind, self.r, self.c, self.hot = model, t, kind, r, c, hot
        self.B, self.G, self.g = model.batch, float(model.gpus), float(model.domain)
        tables = model.tables
        self.E, self.D, self.w = tables.rows[t], tables.dim[t], tables.element_bytes[t]
        self.groups = model.look_ups.groups(t, hot)
        self.hot_L = np.zeros(t.shape)
        self.distinct, self.U = np.array(tables.pooling[t]), np.array(model.unique[t])
        for where, asked, h in self.groups:
            self.hot_L[where] = asked.hot_share(h) * asked.pooling
            self.U[where], self.distinct[where] = asked.unique(h), asked.distinct_in_bag(h)
        self.L = tables.pooling[t] - self.hot_L  # look-ups of a bag that ask for the tail
        self.v, self.pooled = model.payload_bytes, model.constant("pooled_element_bytes")
        self.ids = model.id_bytes + tables.weight_bytes[t]  # of an id with the weight of its row
        self.gradient = self.w if model.sets else self.pooled  # of an element of a copy
        self.split = np.isin(kind, _SPLIT)  # lengths and ids go to the holders
        self.dp, self.ub = kind == Exchange.DP, kind == Exchange.UB
        self.sparse, self.two = kind == Exchange.SPARSE, kind == Exchange.TWO_LEVEL
        self.elements = ex.part_elements(self.D, c)
        self.q = np.where(self.sparse, ex.filled_share(r, self.distinct, self.L / tables.pooling[t]), 1.0)
        self.index = np.where(self.sparse, model.constant("sparse_bag_index_bytes"), 0.0)
        self.lookups = ex.shard_lookups(self.G, self.B, self.L, r)
        parts = np.where(self.dp, self.G, r * c)
        self.shards = np.maximum(len(tables) * parts / self.G, 1)  # that share the L2 of their holder
        self.copies = len(tables)  # of hot rows: every rank has those of all tables
        self.domains = np.maximum(r / self.g, 1)  # k, domains that hold row parts of one column

    def updated(self, training: Training) -> tuple[Array, Array, Array]:
        """Look-ups whose gradients a holder reads, rows that it updates, and bytes of the update of one."""
        U = np.array(training.unique_everywhere[self.t])
        for where, asked, h in self.groups:
            U[where] = asked.unique(h, everywhere=True)
        held = np.where(self.ub, ex.requested_rows(self.G, self.U, self.r), self.lookups)
        read = np.where(self.dp, self.B * self.L, held)
        touched = np.where(self.dp, self.E, ex.touched_rows(U, self.r))  # a copy's gradient has all rows
        own = zip(training.copied, (training.per_element, training.per_row), strict=True)
        state = (np.where(self.dp, copied, held) for copied, held in own)
        row = ex.update_row_bytes(self.elements, self.w, *state)
        return read, touched, row + np.where(self.dp, 2 * self.D * self.gradient, 0)  # written and read

    def traffic(
        self,
        E: Array,
        n: Array,
        elements: Array,
        bags: Array,
        bag: Array,
        shards: Array | float,
        w: Array | float,
        gather: NDArray[np.int64] | Gather | None = None,
    ) -> kernels.GatherTraffic:
        """DRAM and L2 bytes of gathering n of E rows of w-byte elements; ``shards`` share the cache.

        gather  ``Gather`` that it is, of each; None: all rows are asked for, and alike, whatever the ids
        """
        value, constant = self.model.machine_value, self.model.constant
        row = elements * w
        phi = row_penalty(row, value, constant)
        cache = value("l2_bytes") * constant("l2_usable_fraction") / shards
        ids = np.where(np.asarray(gather) == Gather.REQUESTS, self.model.id_bytes, self.ids)
        miss = np.array(kernels.uniform_misses(E, np.maximum(n, _LEAST), row, cache))
        if gather is None:
            miss = kernels.misses_of_all(miss, E, np.maximum(n, _LEAST))
        else:
            kind = np.broadcast_to(np.asarray(gather), miss.shape)
            for where, asked, h in self.groups:
                for each in np.unique(kind[where]):
                    at = tuple(place[kind[where] == each] for place in where)
                    parts = self.r[at] if each in (Gather.SHARD, Gather.REQUESTS) else 1
                    miss[at] = asked.miss(Gather(each), h, parts * (cache / row)[at])
        return kernels.traffic_of_misses(miss, n, row, phi, value("sector_bytes"), ids, bags, bag)


_LEAST = 1e-9  # look-ups


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def _input(a: TableCut, own: Array, everywhere: Array) -> None:
    """Lengths, ids and their weights to the holders; the distinct ids of ub, whose weights stay."""
    length, ids, plain = a.model.constant("length_bytes"), a.ids, a.model.id_bytes
    sent = eb.lengths_bytes(a.r * a.c, a.B, length) * a.split
    ids_sent = eb.ids_bytes(a.c * a.B * a.L, ids) * a.split
    apart = (ids - plain if a.model.sets else 0 * ids) * a.split  # of a weight that is exchanged by itself
    everywhere[..., Resource.LENGTHS_SENT] = sent
    everywhere[..., Resource.WEIGHTS_SENT] = eb.ids_bytes(a.c * a.B * a.L, apart)
    own[..., Resource.WEIGHTS_RECEIVED] = eb.ids_bytes(a.lookups, apart)
    everywhere[..., Resource.IDS_SENT] = ids_sent - everywhere[..., Resource.WEIGHTS_SENT]
    everywhere[..., Resource.BUCKETIZE] = sent + ids_sent + eb.ids_bytes(a.B * a.hot_L, ids) * a.split
    own[..., Resource.LENGTHS_RECEIVED] = ex.holder_lengths_bytes(a.G, a.B, length) * a.split
    own[..., Resource.IDS_RECEIVED] = (
        eb.ids_bytes(a.lookups, ids) * a.split - own[..., Resource.WEIGHTS_RECEIVED]
    )
    everywhere[..., Resource.DEDUPLICATE] = ex.deduplicated_bytes(a.B * (a.L + a.hot_L), a.U, plain) * a.ub
    everywhere[..., Resource.REQUESTS_SENT] = ex.row_request_bytes(a.U, a.c, plain) * a.ub
    own[..., Resource.REQUESTS_RECEIVED] = ex.requested_rows(a.G, a.U, a.r) * plain * a.ub


def _copied_lengths(a: TableCut) -> Array:
    """Lengths of the bags that a rank looks up in copies of whole tables."""
    return np.asarray(eb.lengths_bytes(1, a.B, a.model.constant("length_bytes")) * a.dp)


def _look_up(a: TableCut, own: Array, everywhere: Array) -> None:
    """The gather: partial bags of everybody at the holder, bags of one's own where every rank has a copy."""
    dp_lookups, dp_bags = a.B * a.L, a.B
    asked = ex.requested_rows(a.G, a.U, a.r)
    n = np.where(a.dp, dp_lookups, np.where(a.ub, asked, a.lookups))
    bags = np.where(a.dp, dp_bags, np.where(a.ub, asked, a.G * a.B * a.q))
    bag = a.elements * a.pooled + a.model.constant("offset_bytes")
    bag = np.where(a.ub, a.elements * a.w, bag)
    gather = np.where(a.dp, Gather.COPY, np.where(a.ub, Gather.REQUESTS, Gather.SHARD))
    moved = a.traffic(a.E / a.r, n, a.elements, bags, bag, a.shards, a.w, gather)
    for resource, size in ((Resource.GATHER_DRAM, moved.dram_bytes), (Resource.GATHER_L2, moved.l2_bytes)):
        own[..., resource] = size * ~a.dp
        everywhere[..., resource] = size * a.dp


def _look_up_hot(a: TableCut, own: Array, everywhere: Array) -> None:
    """The gather of hot rows from their copies, and their part of each bag added to the tail's."""
    hot = a.hot > 0
    if not hot.any():
        return
    bag = a.D * a.pooled + a.model.constant("offset_bytes")
    rows, n, bags = np.maximum(a.hot, 1), a.B * a.hot_L, np.full(a.hot.shape, a.B)
    moved = a.traffic(rows, n, a.D, bags, bag, a.copies, a.w, Gather.HOT)
    everywhere[..., Resource.GATHER_DRAM] += moved.dram_bytes * hot
    everywhere[..., Resource.GATHER_L2] += moved.l2_bytes * hot
    whole = ex.bags_received_bytes(a.B, 1, 1, a.D, a.pooled, a.c, 0)
    one = ex.bag_sum_bytes(a.B, 2 * whole, a.D, a.pooled)  # to a bag that is whole
    added = np.where(a.ub | (a.r == 1), one, whole)  # or to parts that are added up in any case
    everywhere[..., Resource.LOCAL_SUM] += added * hot


def _unique(a: TableCut, own: Array, everywhere: Array) -> None:
    """Unique rows, as they are stored, to those who asked; pooled from the buffer in which they arrive."""
    if not a.ub.any():
        return
    own[..., Resource.ROWS_SENT] = ex.requested_rows(a.G, a.U, a.r) * a.elements * a.w * a.ub
    everywhere[..., Resource.ROWS_RECEIVED] = a.U * a.D * a.w * a.ub
    bag = a.D * a.pooled + a.model.constant("offset_bytes")
    bags = np.full(a.U.shape, a.B)  # each row that arrived is read: as from the table, U rows at the least
    moved = a.traffic(a.E, a.B * a.L, a.D, bags, bag, len(a.model.tables), a.w, Gather.COPY)
    everywhere[..., Resource.POOL_DRAM] = moved.dram_bytes * a.ub
    everywhere[..., Resource.POOL_L2] = moved.l2_bytes * a.ub


def _dense(a: TableCut, own: Array, everywhere: Array) -> None:
    """Row-wise over all ranks: reduce-scatter."""
    sent = ex.bags_sent_bytes(a.G, a.B, 1, ex.bag_bytes(a.elements, a.v))
    own[..., Resource.REDUCE_SCATTER] = sent * (a.kind == Exchange.RS)


def _two_level(a: TableCut, own: Array, everywhere: Array) -> None:
    """Reduce-scatter in each domain, then across: reduce-scatter from all domains, else all-to-all."""
    if not a.two.any():
        return
    domains = a.G / a.g
    sent = ex.bags_sent_bytes(a.G, a.B, 1, ex.bag_bytes(a.elements, a.v))
    own[..., Resource.REDUCE_INSIDE] = sent * a.two
    everywhere_held = a.two & (a.domains == domains) & (domains > 1)
    some = a.two & (a.domains < domains)
    across = ex.across_bytes(a.B, domains, a.elements, a.v)
    own[..., Resource.REDUCE_ACROSS] = across * everywhere_held
    own[..., Resource.ACROSS_SENT] = across * some
    received = ex.bags_received_bytes(a.B, a.domains, 1, a.D, a.v, a.c, 0)
    everywhere[..., Resource.ACROSS_RECEIVED] = received * some
    added = ex.bags_received_bytes(a.B, a.domains, 1, a.D, a.pooled, a.c, 0)
    summed = ex.bag_sum_bytes(a.B, added, a.D, a.pooled)
    everywhere[..., Resource.LOCAL_SUM] += summed * (some & (a.domains > 1))


def _partial(a: TableCut, own: Array, everywhere: Array) -> None:
    """Bags by all-to-all, all of them or the non-empty ones, and the sum of those that came in parts."""
    dense = a.kind == Exchange.RB
    if not (dense | a.sparse).any():
        return
    sent = ex.bags_sent_bytes(a.G, a.B, a.q, ex.bag_bytes(a.elements, a.v, a.index))
    received = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.v, a.c, a.index)
    own[..., Resource.BAGS_SENT] = sent * dense
    everywhere[..., Resource.BAGS_RECEIVED] = received * dense
    own[..., Resource.SPARSE_SENT] = sent * a.sparse
    everywhere[..., Resource.SPARSE_RECEIVED] = received * a.sparse
    added = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.pooled, a.c, a.index)
    summed = ex.bag_sum_bytes(a.B, added, a.D, a.pooled)
    everywhere[..., Resource.LOCAL_SUM] += summed * ((dense | a.sparse) & (a.r > 1))


def _convert(a: TableCut, own: Array, everywhere: Array) -> None:
    """Bags to the precision of the exchange and back, where it is not that of the pooling."""
    if a.v == a.pooled:
        return
    received = np.where((a.kind == Exchange.RB) | a.sparse, a.r * a.q, 1.0)
    received = np.where(a.two & (a.domains < a.G / a.g), a.domains, received)
    sent = ex.convert_bytes(a.G * a.B * a.q, a.elements, a.v, a.pooled)
    came = ex.convert_bytes(a.B * received, a.D, a.v, a.pooled)
    own[..., Resource.CONVERT_OUT] = sent * a.split
    everywhere[..., Resource.CONVERT_IN] = came * a.split


__all__ = ["RESOURCES", "LoadModel", "Loads", "Resource", "ShardLoads", "TableCut", "Training"]
