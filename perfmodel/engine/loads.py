"""Loads: bytes of every resource that each rank sends, receives or moves in one step of a plan.

Loads are sums over shards, so moving a shard changes two ranks. A step takes as long as its busiest rank.
Functions of (a, holder, everywhere) add the bytes of tables ``a``, by resource: to ``holder`` what a shard
costs the rank that holds it, to ``everywhere`` what every rank has for its own samples.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.engine.basis import HostRows
from perfmodel.engine.cut import LoadInputs, TableCut, Training
from perfmodel.engine.exchange_sets import list_codes
from perfmodel.engine.placement import Plan, Scheme, check_scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import TOGETHER, Resource
from perfmodel.engine.tables import Array, PlanTables
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels
from perfmodel.model.popularity import Gather

Bytes = defaultdict[Resource, Array]  # bytes of tables by resource; a resource that is absent has none


@dataclass(frozen=True, eq=False)
class ShardLoads:
    """Bytes that sharded tables add to ranks, by table and scheme; arrays [..., K] for K resources.

    on_holder   load of *one shard*, on the rank that holds it
    everywhere  load of the *whole table*, on every rank, for the rank's own samples
    """

    on_holder: Array
    everywhere: Array


@dataclass(frozen=True, eq=False)
class LoadModel(LoadInputs):
    """Computes the loads of tables on G ranks: bytes of every resource (``Resource``)."""

    tables: PlanTables

    def count_shards(
        self, table: ArrayLike, kind: ArrayLike, r: ArrayLike, c: ArrayLike, hot: ArrayLike = 0
    ) -> ShardLoads:
        """Loads of one shard of each table, and of each table on every rank; arguments broadcast.

        table   indices of tables;  kind  ``Exchange`` codes;  r, c  numbers of row and column parts
        hot     h, rows of each table that every rank replicates
        Limits: more parts than rows or columns -> BadInputError, since the equations assume ids uniform over
        parts;  other checks of a plan are not made here (``placement.check_scheme``)
        """
        parts = (np.asarray(number, dtype=np.float64) for number in (r, c, hot))
        t, kinds, rows, cols, head = np.broadcast_arrays(
            np.asarray(table, dtype=np.int64), np.asarray(kind), *parts
        )
        cut = TableCut(self, t, kinds, rows, cols, head)
        full = np.logical_and((cut.E - cut.hot) // cut.r, cut.D // cut.c)  # parts with whole rows and columns
        if not full.all():
            empty = ~full
            numbers = np.array((cut.kind, cut.r, cut.c, cut.hot), dtype=np.int64)[:, empty][:, 0]
            scheme = Scheme(Exchange(numbers[0]), int(numbers[1]), int(numbers[2]), int(numbers[3]))
            check_scheme(self.tables, int(cut.t[empty][0]), scheme, self.gpus, self.domain)
        grouped = np.moveaxis(_count_groups(cut), 0, -1)
        arrays = []
        # What marks a group as launched is a load of every rank; a shard adds none of it to its holder.
        for side, launches in zip(count_loads(cut), (0 * grouped, grouped), strict=True):
            stacked = np.zeros((TOGETHER, *t.shape))
            for resource, size in side.items():
                stacked[resource] = size
            loads = np.moveaxis(stacked, 0, -1)
            if self.sets is not None:
                loads = self.sets.spread(t, kinds, loads)
            arrays.append(np.concatenate((loads, launches), axis=-1))
        return ShardLoads(*arrays)

    def sum_shards(self, plan: Plan, shards: ShardLoads | None = None) -> Array:
        """Loads of all G ranks [K, G], K resources: of the shards that a rank holds, and of its own samples.

        shards  ``count_shards`` of the plan's schemes, if computed before
        """
        if shards is None:
            shards = self.count_shards(np.arange(len(plan.tables)), *plan.schemes)
        values = np.repeat(shards.everywhere.sum(axis=0)[:, np.newaxis], plan.gpus, axis=1)
        tables, ranks = plan.shards
        for resource in np.flatnonzero(shards.on_holder.any(axis=0)):
            weights = shards.on_holder[tables, resource]
            values[resource] += np.bincount(ranks, weights=weights, minlength=plan.gpus)
        return np.asarray(values)


def count_loads(cut: TableCut, *, works: bool = True) -> tuple[Bytes, Bytes]:
    """(bytes of one shard of each table on its holder, bytes of each table on every rank), by resource.

    works  whether look-ups and updates of rows count
    """
    holder = Bytes(float)  # type: ignore[arg-type]
    everywhere = Bytes(float)  # type: ignore[arg-type]
    if cut.model.basis.unpooled:
        _add_sequences(cut, holder, everywhere)
    else:
        for add in (_add_input, _add_unique_rows, _add_reduced_bags, _add_partial_bags, _add_conversions):
            add(cut, holder, everywhere)
    if works:
        _add_look_ups(cut, holder, everywhere)
        if cut.model.basis.rows is not None:
            _add_host_rows(cut, cut.model.basis.rows, holder)
        if cut.model.training is not None:
            _add_updates(cut, cut.model.training, holder, everywhere)
    return holder, everywhere


def sum_even_loads(cut: TableCut, count: Array, *, works: bool = True) -> Array:
    """Loads of every rank, [..., K], if all tables are sharded over all ranks, one part each.

    cut    tables [T, C] of C configurations, each with as many parts as there are ranks
    count  number of equal tables that each stands for;  works  as in ``count_loads``
    """
    groups = cut.model.groups.resources  # launches count as further resources, the last of all K
    loads = np.zeros((groups.stop, *cut.t.shape[1:]))
    launched = dict(zip(groups, _count_groups(cut), strict=True))
    for side in (*count_loads(cut, works=works), launched):
        for resource, size in side.items():
            loads[resource] += (count * size).sum(axis=0)
    return np.moveaxis(loads, 0, -1)


def _count_groups(a: TableCut) -> Array:
    """For each of N groups of tables with a launch of its own, bytes above 0 where a table is of it [N, ...].

    They are the lengths of a rank's own bags, but all that counts is which groups have any. Hot rows are
    looked up with the replicated tables, whose ids are those of the rank's own samples.
    Limits: one GPU -> all tables of a data type are one group
    """
    groups = a.model.groups
    dtype = a.model.tables.dtype[a.t]
    lengths = ex.lengths_bytes(1, a.B, a.n["length_bytes"])
    counted = np.zeros((len(groups.resources), *a.t.shape))
    for kind in (a.kind, np.where(a.hot, Exchange.DP, a.kind)):
        group = groups.find(a.t, kind * (a.G > 1), dtype)
        for place in list_codes(group).tolist():
            counted[place] = np.where(group == place, lengths, counted[place])
    return counted


def _add_input(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of the input: lengths, ids and weights to the holders; in exchange ub only distinct ids."""
    length = a.n["length_bytes"]
    ids = a.ids
    sent = ex.lengths_bytes(a.r * a.c, a.B, length) * a.split
    everywhere[Resource.LENGTHS_SENT] = sent
    holder[Resource.LENGTHS_RECEIVED] = ex.holder_lengths_bytes(a.G, a.B, length) * a.split
    bucketized = sent + ex.ids_bytes(a.c * a.B * a.L, ids) * a.split
    everywhere[Resource.BUCKETIZE] = bucketized + ex.ids_bytes(a.B * a.hot_L, ids) * a.split
    if a.model.sets:  # weights are sent on their own
        weight = ids - a.id_bytes
        ids = a.id_bytes
        everywhere[Resource.WEIGHTS_SENT] = ex.ids_bytes(a.c * a.B * a.L, weight) * a.split
        holder[Resource.WEIGHTS_RECEIVED] = ex.ids_bytes(a.lookups, weight) * a.split
    everywhere[Resource.IDS_SENT] = ex.ids_bytes(a.c * a.B * a.L, ids) * a.split
    holder[Resource.IDS_RECEIVED] = ex.ids_bytes(a.lookups, ids) * a.split
    if not a.ub.any():
        return
    everywhere[Resource.DEDUPLICATE] = a.sort_bytes(a.B * (a.L + a.hot_L)) * a.ub
    request = a.id_bytes + a.n["feature_id_bytes"]
    everywhere[Resource.REQUESTS_SENT] = ex.row_request_bytes(a.U, a.c, request) * a.ub
    holder[Resource.REQUESTS_RECEIVED] = ex.rows_bytes(a.requested, request) * a.ub
    holder[Resource.DEDUPLICATE_REQUESTS] = a.sort_bytes(a.requested) * a.ub


def _add_sequences(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of all exchanges of unpooled rows: ids, in exchange ub each once, to holders; rows back.

    Source: TorchRec 1.8, ``EmbeddingCollection``, without and with use_index_dedup
    """
    length = a.n["length_bytes"]
    sharded = ~a.dp
    count = a.B * a.L
    sent = np.where(a.ub, a.U, count)
    held = ex.requested_rows(a.G, sent, a.even)
    lengths = ex.lengths_bytes(a.r * a.c, a.B, length) * sharded
    ids = ex.ids_bytes(a.c * sent, a.id_bytes) * sharded
    everywhere[Resource.DEDUPLICATE] = a.sort_bytes(count) * a.ub
    everywhere[Resource.BUCKETIZE] = lengths + ids
    everywhere[Resource.LENGTHS_SENT] = lengths
    holder[Resource.LENGTHS_RECEIVED] = ex.holder_lengths_bytes(a.G, a.B, length) * sharded
    everywhere[Resource.IDS_SENT] = ids
    holder[Resource.IDS_RECEIVED] = ex.ids_bytes(held, a.id_bytes) * sharded
    holder[Resource.ROWS_SENT] = ex.rows_bytes(held, a.elements * a.v) * sharded
    everywhere[Resource.ROWS_RECEIVED] = ex.rows_bytes(sent, a.D * a.v) * sharded
    placed = (sent * (a.r > 1) + count * a.ub) * sharded
    everywhere[Resource.PLACED_ROWS] = ex.placed_bytes(placed, a.D * a.pooled)
    if a.v != a.pooled:
        holder[Resource.CONVERT_OUT] = ex.convert_bytes(held, a.elements, a.v, a.pooled) * sharded
        everywhere[Resource.CONVERT_IN] = ex.convert_bytes(sent, a.D, a.v, a.pooled) * sharded


def _add_look_ups(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of the gather: partial bags for all ranks at the holder, a rank's own bags from a replica.

    Hot rows are gathered from their replicas, and their part of each bag is added to that of the other rows.
    """
    moved = a.gathered
    hot = a.hot.astype(bool)
    for resource, size in ((Resource.GATHER_DRAM, moved.dram_bytes), (Resource.GATHER_L2, moved.l2_bytes)):
        holder[resource] = size * ~a.dp
        everywhere[resource] = size * a.dp
    if not hot.any():
        return
    bag = a.D * a.pooled + a.n["offset_bytes"]
    rows = np.maximum(a.hot, 1)
    lookups = a.B * a.hot_L
    bags = np.full(a.hot.shape, a.B)
    moved = a.count_traffic(rows, lookups, a.count_row_bytes(a.D), bags, bag, a.beside, Gather.HOT)
    everywhere[Resource.GATHER_DRAM] += moved.dram_bytes * hot
    everywhere[Resource.GATHER_L2] += moved.l2_bytes * hot
    bag_bytes = ex.bags_received_bytes(a.B, 1, 1, a.D, a.pooled, a.c, 0)
    added = ex.bag_sum_bytes(a.B, 2 * bag_bytes, a.D, a.pooled)  # a sum of two, if the other part is whole
    added = np.where(a.ub | (a.r == 1), added, bag_bytes)  # else a further term of a sum that is made anyway
    everywhere[Resource.LOCAL_SUM] += added * hot


def _add_host_rows(a: TableCut, host: HostRows, holder: Bytes) -> None:
    """Add loads of rows in host memory, which the gather reads over a link; replicas are in HBM."""
    row = kernels.round_to_sectors(a.row, a.n["sector_bytes"])
    reads = a.n["link_request_bytes"], a.n["link_header_bytes"]
    wire = kernels.count_host_row_bytes(row, *reads, a.n["link_row_bytes"])
    rate = a.model.basis.setting.machine.value("host_link_bytes_per_s") * a.n["link_packet_fraction"]
    in_flight = kernels.count_rows_in_flight(a.n["host_latency_s"], rate, wire)
    read, looked_up = a.count_host_reads(host, in_flight)
    holder[Resource.CACHED_INDICES] = ex.ids_bytes(looked_up, a.n["cache_index_bytes"]) * ~a.dp
    holder[Resource.HOST_ROWS] = kernels.read_bytes(read, wire) * ~a.dp
    packets = kernels.count_host_row_bytes(row, *reads, 0.0)
    holder[Resource.HOST_PACKETS] = kernels.read_bytes(read, packets) * ~a.dp


def _add_unique_rows(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of exchange ub: rows are sent as stored to the ranks that asked, and pooled there."""
    if not a.ub.any():
        return
    holder[Resource.ROWS_SENT] = ex.rows_bytes(a.requested, a.row) * a.ub
    everywhere[Resource.ROWS_RECEIVED] = ex.rows_bytes(a.U, a.D * a.row / a.elements) * a.ub
    bag = a.D * a.pooled + a.n["offset_bytes"]
    bags = np.full(a.U.shape, a.B)  # each received row is read: at least U rows, as from the table
    moved = a.count_traffic(a.E, a.B * a.L, a.count_row_bytes(a.D), bags, bag, a.beside, Gather.COPY)
    everywhere[Resource.POOL_DRAM] = moved.dram_bytes * a.ub
    everywhere[Resource.POOL_L2] = moved.l2_bytes * a.ub


def _add_reduced_bags(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of partial bags that reduce-scatters sum: over all ranks, or in each domain and then across.

    Across domains, a table without row parts in all of them uses an all-to-all.
    """
    over_all = a.kind == Exchange.RS
    if not (over_all | a.two).any():
        return
    sent = ex.bags_sent_bytes(a.G, a.B, 1, ex.bag_bytes(a.elements, a.v))
    holder[Resource.REDUCE_SCATTER] = sent * over_all
    if not a.two.any():
        return
    domains = a.G / a.g
    holder[Resource.REDUCE_INSIDE] = sent * a.two
    everywhere_held = a.two & (a.domains == domains) & (domains > 1)
    partly_held = a.two & (a.domains < domains)
    across = ex.across_bytes(a.B, domains, a.elements, a.v)
    holder[Resource.REDUCE_ACROSS] = across * everywhere_held
    holder[Resource.ACROSS_SENT] = across * partly_held
    received = ex.bags_received_bytes(a.B, a.domains, 1, a.D, a.v, a.c, 0)
    everywhere[Resource.ACROSS_RECEIVED] = received * partly_held
    added = ex.bags_received_bytes(a.B, a.domains, 1, a.D, a.pooled, a.c, 0)
    summed = ex.bag_sum_bytes(a.B, added, a.D, a.pooled)
    everywhere[Resource.LOCAL_SUM] += summed * (partly_held & (a.domains > 1))


def _add_partial_bags(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of bags by all-to-all, all or only non-empty ones, and of the sum of those in parts."""
    dense = a.kind == Exchange.RB
    if not (dense | a.sparse).any():
        return
    sent = ex.bags_sent_bytes(a.G, a.B, a.q, ex.bag_bytes(a.elements, a.v, a.index))
    received = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.v, a.c, a.index)
    holder[Resource.BAGS_SENT] = sent * dense
    everywhere[Resource.BAGS_RECEIVED] = received * dense
    holder[Resource.SPARSE_SENT] = sent * a.sparse
    everywhere[Resource.SPARSE_RECEIVED] = received * a.sparse
    added = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.pooled, a.c, a.index)
    summed = ex.bag_sum_bytes(a.B, added, a.D, a.pooled)
    everywhere[Resource.LOCAL_SUM] += summed * ((dense | a.sparse) & (a.r > 1))


def _add_conversions(a: TableCut, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of converting bags to the precision of the exchange and back, if it is another."""
    if a.v == a.pooled:
        return
    received = np.where((a.kind == Exchange.RB) | a.sparse, a.r * a.q, 1.0)
    received = np.where(a.two & (a.domains < a.G / a.g), a.domains, received)
    sent = ex.convert_bytes(a.G * a.B * a.q, a.elements, a.v, a.pooled)
    holder[Resource.CONVERT_OUT] = sent * a.split
    everywhere[Resource.CONVERT_IN] = ex.convert_bytes(a.B * received, a.D, a.v, a.pooled) * a.split


def _add_updates(a: TableCut, training: Training, holder: Bytes, everywhere: Bytes) -> None:
    """Add loads of the backward pass: updates of rows where they are stored, and of replicas everywhere.

    The exchange of gradients of bags has the bytes of the exchange of bags, so nothing is added for it.
    """
    arrived = np.where(a.dp, a.B, np.where(a.ub, a.requested, a.G * a.B * a.q))  # gradients at the holder
    read, touched, row = a.count_updates(training)
    moved = a.count_traffic(np.maximum(arrived, 1), read, a.elements * a.pooled, touched, row, a.shards)
    for resource, size in (
        (Resource.SORT, a.sort_bytes(read, backward=True)),
        (Resource.UPDATE_DRAM, moved.dram_bytes),
        (Resource.UPDATE_L2, moved.l2_bytes),
    ):
        holder[resource] = size * ~a.dp
        everywhere[resource] = size * a.dp
    copied = np.where(a.dp, a.E, a.hot)
    everywhere[Resource.COPIED_GRADIENTS] = ex.copied_gradient_bytes(copied, a.D, a.gradient)
    bag = a.D * a.pooled
    if (hot := a.hot.astype(bool)).any():
        bags = np.full(a.hot.shape, a.B)
        read = a.B * a.hot_L
        row = ex.update_row_bytes(a.D, a.count_row_bytes(a.D) / a.D, *training.state) + 2 * bag
        moved = a.count_traffic(bags, read, bag, a.hot, row, a.beside)
        everywhere[Resource.SORT] += a.sort_bytes(read, backward=True) * hot
        everywhere[Resource.UPDATE_DRAM] += moved.dram_bytes * hot
        everywhere[Resource.UPDATE_L2] += moved.l2_bytes * hot
    if a.ub.any():  # each rank sums the gradients of a row before it sends them
        moved = a.count_traffic(np.full(a.U.shape, a.B), a.B * a.L, bag, a.U, bag, a.beside)
        everywhere[Resource.ACCUMULATE_DRAM] = moved.dram_bytes * a.ub
        everywhere[Resource.ACCUMULATE_L2] = moved.l2_bytes * a.ub
        everywhere[Resource.ROW_GRADIENTS_SENT] = ex.rows_bytes(a.U, a.D * a.v) * a.ub
        holder[Resource.ROW_GRADIENTS_RECEIVED] = ex.rows_bytes(a.requested, a.elements * a.v) * a.ub
