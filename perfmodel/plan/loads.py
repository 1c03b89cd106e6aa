"""Loads: for every resource the bytes that each rank sends, receives or moves in one step of a plan.

Loads are sums over shards, so moving a shard changes two ranks. A step takes as long as its busiest rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model import kernels
from perfmodel.model.exchanges import Exchange
from perfmodel.plan.placement import Plan, Scheme, check_scheme
from perfmodel.plan.tables import PlanTables

Array = NDArray[np.float64]


class Resource(IntEnum):
    """What a rank has of: all in bytes. SENT and RECEIVED are the two sides of one collective."""

    BUCKETIZE = 0  # ids and lengths sorted by owner
    LENGTHS_SENT = 1
    LENGTHS_RECEIVED = 2
    IDS_SENT = 3
    IDS_RECEIVED = 4
    DEDUPLICATE = 5  # ids of ub
    REQUESTS_SENT = 6  # distinct ids of ub
    REQUESTS_RECEIVED = 7
    GATHER_DRAM = 8
    GATHER_L2 = 9
    ROWS_SENT = 10  # unique rows of ub
    ROWS_RECEIVED = 11
    POOL_DRAM = 12  # pooling of the unique rows that came
    POOL_L2 = 13
    CONVERT_OUT = 14  # bags to another precision before an exchange
    REDUCE_SCATTER = 15
    REDUCE_INSIDE = 16  # two_level, inside a domain
    REDUCE_ACROSS = 17  # two_level, row parts in all domains
    ACROSS_SENT = 18  # two_level, row parts in some domains
    ACROSS_RECEIVED = 19
    BAGS_SENT = 20
    BAGS_RECEIVED = 21
    SPARSE_SENT = 22
    SPARSE_RECEIVED = 23
    CONVERT_IN = 24
    LOCAL_SUM = 25
    SORT = 26  # training: look-ups sorted by row
    UPDATE_DRAM = 27  # gradients added up by row, rows and optimizer state updated
    UPDATE_L2 = 28
    ACCUMULATE_DRAM = 29  # gradients of ub added up by row before they are sent
    ACCUMULATE_L2 = 30
    ROW_GRADIENTS_SENT = 31
    ROW_GRADIENTS_RECEIVED = 32
    COPIED_GRADIENTS = 33  # of tables on every rank


RESOURCES: tuple[str, ...] = tuple(resource.name.lower() for resource in Resource)
"""Names of the K resources, in the order of the arrays."""

_SPLIT = (Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL)


@dataclass(frozen=True)
class ShardLoads:
    """What sharding tables in some ways costs; arrays of shape [..., K].

    own         of *one shard*, on the rank that holds it
    everywhere  of the *whole table*, on every rank: what it does for its own samples
    """

    own: Array
    everywhere: Array


@dataclass(frozen=True)
class Loads:
    """Loads of a plan, [K, G] bytes."""

    values: Array

    @property
    def most(self) -> Array:
        """The busiest rank's, shape [K]: what ``Evaluator.step_times`` takes."""
        return np.asarray(self.values.max(axis=1))

    @property
    def mean(self) -> Array:
        """Mean over ranks, shape [K]: what a perfect balance of the same shards would have."""
        return np.asarray(self.values.mean(axis=1))

    def of(self, resource: Resource) -> Array:
        """One resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])


@dataclass(frozen=True)
class Training:
    """What the backward pass needs.

    per_element, per_row  state of the optimizer [bytes]
    unique_everywhere     U_G, distinct rows that all ranks' samples look up in each table [rows], shape [T]
    """

    per_element: float
    per_row: float
    unique_everywhere: Array


@dataclass(frozen=True)
class LoadModel:
    """Loads of tables on G ranks; ``constant`` and ``machine_value`` give what the equations need.

    batch     B, samples of one rank;  gpus  G;  domain  g;  id_bytes  of one id [bytes]
    payload_bytes  v, bytes of a pooled element in an exchange
    The L2 is shared by the shards of a rank. How many those are depends on the whole plan; each is given the
    share that it has where all tables are cut into as many parts: 1 / max(1, T r c / G).
    Limits: every table on every rank -> 1/T, as in a projection;  few shards -> the whole cache
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

    def shard_loads(self, table: ArrayLike, kind: ArrayLike, r: ArrayLike, c: ArrayLike) -> ShardLoads:
        """Loads of shards of tables (indices) cut into r x c parts and exchanged so; all broadcast.

        Limits: more parts than rows or columns -> BadInputError, for the equations spread ids evenly over
        parts;  whatever else a plan checks is not checked here (``placement.check_scheme``)
        """
        t, kinds, rows, cols = np.broadcast_arrays(
            np.asarray(table, dtype=np.int64), np.asarray(kind), _array(r), _array(c)
        )
        self._check_parts(t, kinds, rows, cols)
        own, everywhere = (np.zeros((*t.shape, len(Resource))) for _ in range(2))
        cut = _Cut(self, t, kinds, rows, cols)
        for fill in (_input, _look_up, _unique, _dense, _two_level, _partial, _convert):
            fill(cut, own, everywhere)
        if self.training is not None:
            _backward(cut, self.training, own, everywhere)
        return ShardLoads(own, everywhere)

    def _check_parts(self, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array) -> None:
        empty = (r > self.tables.rows[t]) | (c > self.tables.dim[t])
        if not empty.any():
            return
        at, parts = t[empty][0], (int(x[empty][0]) for x in (r, c))
        rows, dim = int(self.tables.rows[at]), int(self.tables.dim[at])
        scheme = Scheme(Exchange(int(kind[empty][0])), *parts)
        check_scheme(self.tables.names[at], rows, dim, scheme, self.gpus, self.domain)

    def loads(self, plan: Plan) -> Loads:
        """Loads of all ranks: those of each rank's shards, and what every rank has."""
        t = np.arange(len(plan.tables))
        found = self.shard_loads(t, plan.kinds, plan.row_parts, plan.col_parts)
        values = np.repeat(found.everywhere.sum(axis=0)[:, np.newaxis], plan.gpus, axis=1)
        tables, ranks = plan.shards
        for k in range(len(Resource)):
            if found.own[:, k].any():
                values[k] += np.bincount(ranks, weights=found.own[tables, k], minlength=plan.gpus)
        return Loads(values)


class _Cut:
    """Tables cut in some ways: the quantities of ``model.exchanges`` as arrays of one shape."""

    def __init__(
        self, model: LoadModel, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array
    ) -> None:
        self.model, self.t, self.kind, self.r, self.c = model, t, kind, r, c
        self.B, self.G, self.g = model.batch, float(model.gpus), float(model.domain)
        tables = model.tables
        self.E, self.D, self.w = tables.rows[t], tables.dim[t], tables.element_bytes[t]
        self.L, self.U = tables.pooling[t], model.unique[t]
        self.v, self.pooled = model.payload_bytes, model.constant("pooled_element_bytes")
        self.split = np.isin(kind, _SPLIT)  # lengths and ids go to the holders
        self.dp, self.ub = kind == Exchange.DP, kind == Exchange.UB
        self.sparse, self.two = kind == Exchange.SPARSE, kind == Exchange.TWO_LEVEL
        self.elements = ex.part_elements(self.D, c)
        self.q = np.where(self.sparse, ex.filled_share(r, self.L), 1.0)
        self.index = np.where(self.sparse, model.constant("sparse_bag_index_bytes"), 0.0)
        self.lookups = ex.shard_lookups(self.G, self.B, self.L, r)
        parts = np.where(self.dp, self.G, r * c)
        self.shards = np.maximum(len(tables) * parts / self.G, 1)  # that share the L2 of their holder
        self.domains = np.maximum(r / self.g, 1)  # k, domains that hold row parts of one column

    def traffic(
        self,
        E: Array,
        n: Array,
        elements: Array,
        bags: Array,
        bag: Array,
        shards: Array | float,
        w: Array | float,
    ) -> kernels.GatherTraffic:
        """DRAM and L2 bytes of gathering n of E rows of w-byte elements; ``shards`` share the cache."""
        value, constant = self.model.machine_value, self.model.constant
        row = elements * w
        phi = kernels.small_row_penalty(
            row,
            constant("small_row_bytes"),
            constant("medium_row_bytes"),
            value("small_row_penalty_32"),
            value("small_row_penalty_64"),
        )
        cache = value("l2_bytes") * constant("l2_usable_fraction") / shards
        sector, ids = value("sector_bytes"), self.model.id_bytes
        return kernels.gather_traffic(E, n, n, row, phi, cache, sector, ids, bags, bag)


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def _input(a: _Cut, own: Array, everywhere: Array) -> None:
    """Lengths and ids to the holders; the distinct ids of ub."""
    length, ids = a.model.constant("length_bytes"), a.model.id_bytes
    sent = eb.lengths_bytes(a.r * a.c, a.B, length) * a.split
    ids_sent = eb.ids_bytes(a.c * a.B * a.L, ids) * a.split
    everywhere[..., Resource.LENGTHS_SENT] = sent
    everywhere[..., Resource.IDS_SENT] = ids_sent
    everywhere[..., Resource.BUCKETIZE] = sent + ids_sent
    own[..., Resource.LENGTHS_RECEIVED] = ex.holder_lengths_bytes(a.G, a.B, length) * a.split
    own[..., Resource.IDS_RECEIVED] = eb.ids_bytes(a.lookups, ids) * a.split
    everywhere[..., Resource.DEDUPLICATE] = ex.deduplicated_bytes(a.B * a.L, a.U, ids) * a.ub
    everywhere[..., Resource.REQUESTS_SENT] = ex.row_request_bytes(a.U, a.c, ids) * a.ub
    own[..., Resource.REQUESTS_RECEIVED] = ex.requested_rows(a.G, a.U, a.r) * ids * a.ub


def _look_up(a: _Cut, own: Array, everywhere: Array) -> None:
    """The gather: partial bags of everybody at the holder, bags of one's own where every rank has a copy."""
    dp_lookups, dp_bags = a.B * a.L, a.B
    asked = ex.requested_rows(a.G, a.U, a.r)
    n = np.where(a.dp, dp_lookups, np.where(a.ub, asked, a.lookups))
    bags = np.where(a.dp, dp_bags, np.where(a.ub, asked, a.G * a.B * a.q))
    bag = a.elements * a.pooled + a.model.constant("offset_bytes")
    bag = np.where(a.ub, a.elements * a.w, bag)
    moved = a.traffic(a.E / a.r, n, a.elements, bags, bag, a.shards, a.w)
    for resource, size in ((Resource.GATHER_DRAM, moved.dram_bytes), (Resource.GATHER_L2, moved.l2_bytes)):
        own[..., resource] = size * ~a.dp
        everywhere[..., resource] = size * a.dp


def _unique(a: _Cut, own: Array, everywhere: Array) -> None:
    """Unique rows, as they are stored, to those who asked; pooled from the buffer in which they arrive."""
    own[..., Resource.ROWS_SENT] = ex.requested_rows(a.G, a.U, a.r) * a.elements * a.w * a.ub
    everywhere[..., Resource.ROWS_RECEIVED] = a.U * a.D * a.w * a.ub
    bag = a.D * a.pooled + a.model.constant("offset_bytes")
    arrived = np.maximum(a.U, 1)
    moved = a.traffic(arrived, a.B * a.L, a.D, np.full(a.U.shape, a.B), bag, len(a.model.tables), a.w)
    everywhere[..., Resource.POOL_DRAM] = moved.dram_bytes * a.ub
    everywhere[..., Resource.POOL_L2] = moved.l2_bytes * a.ub


def _dense(a: _Cut, own: Array, everywhere: Array) -> None:
    """Row-wise over all ranks: reduce-scatter."""
    sent = ex.bags_sent_bytes(a.G, a.B, 1, ex.bag_bytes(a.elements, a.v))
    own[..., Resource.REDUCE_SCATTER] = sent * (a.kind == Exchange.RS)


def _two_level(a: _Cut, own: Array, everywhere: Array) -> None:
    """Reduce-scatter in each domain, then across: reduce-scatter from all domains, else all-to-all."""
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


def _partial(a: _Cut, own: Array, everywhere: Array) -> None:
    """Bags by all-to-all, all of them or the non-empty ones, and the sum of those that came in parts."""
    sent = ex.bags_sent_bytes(a.G, a.B, a.q, ex.bag_bytes(a.elements, a.v, a.index))
    received = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.v, a.c, a.index)
    dense = a.kind == Exchange.RB
    own[..., Resource.BAGS_SENT] = sent * dense
    everywhere[..., Resource.BAGS_RECEIVED] = received * dense
    own[..., Resource.SPARSE_SENT] = sent * a.sparse
    everywhere[..., Resource.SPARSE_RECEIVED] = received * a.sparse
    added = ex.bags_received_bytes(a.B, a.r, a.q, a.D, a.pooled, a.c, a.index)
    summed = ex.bag_sum_bytes(a.B, added, a.D, a.pooled)
    everywhere[..., Resource.LOCAL_SUM] += summed * ((dense | a.sparse) & (a.r > 1))


def _convert(a: _Cut, own: Array, everywhere: Array) -> None:
    """Bags to the precision of the exchange and back, where it is not that of the pooling."""
    if a.v == a.pooled:
        return
    received = np.where((a.kind == Exchange.RB) | a.sparse, a.r * a.q, 1.0)
    received = np.where(a.two & (a.domains < a.G / a.g), a.domains, received)
    sent = ex.convert_bytes(a.G * a.B * a.q, a.elements, a.v, a.pooled)
    came = ex.convert_bytes(a.B * received, a.D, a.v, a.pooled)
    own[..., Resource.CONVERT_OUT] = sent * a.split
    everywhere[..., Resource.CONVERT_IN] = came * a.split


def _backward(a: _Cut, training: Training, own: Array, everywhere: Array) -> None:
    """The update of rows at their holders. Gradients of bags travel as the bags did: the same loads."""
    U = training.unique_everywhere[a.t]
    arrived = np.where(a.ub, ex.requested_rows(a.G, a.U, a.r), a.G * a.B * a.q)  # gradients at the holder
    read = np.where(a.ub, arrived, a.lookups)
    arrived, read = (np.where(a.dp, mine, x) for mine, x in ((a.B, arrived), (a.B * a.L, read)))
    touched = np.where(a.dp, a.E, ex.touched_rows(U, a.r))  # a copy's gradient has all rows
    row = ex.update_row_bytes(a.elements, a.w, training.per_element, training.per_row)
    row = row + np.where(a.dp, 2 * a.D * a.pooled, 0)  # its dense gradient is written and read
    moved = a.traffic(np.maximum(arrived, 1), read, a.elements, touched, row, a.shards, a.pooled)
    sorted_bytes = ex.deduplicated_bytes(read, np.where(a.dp, 0, touched), a.model.id_bytes)
    for resource, size in (
        (Resource.SORT, sorted_bytes),
        (Resource.UPDATE_DRAM, moved.dram_bytes),
        (Resource.UPDATE_L2, moved.l2_bytes),
    ):
        own[..., resource] = size * ~a.dp
        everywhere[..., resource] = size * a.dp
    added = a.traffic(
        np.full(a.U.shape, a.B), a.B * a.L, a.D, a.U, a.D * a.pooled, len(a.model.tables), a.pooled
    )
    everywhere[..., Resource.ACCUMULATE_DRAM] = added.dram_bytes * a.ub
    everywhere[..., Resource.ACCUMULATE_L2] = added.l2_bytes * a.ub
    everywhere[..., Resource.ROW_GRADIENTS_SENT] = a.U * a.D * a.v * a.ub
    own[..., Resource.ROW_GRADIENTS_RECEIVED] = ex.requested_rows(a.G, a.U, a.r) * a.elements * a.v * a.ub
    everywhere[..., Resource.COPIED_GRADIENTS] = ex.copied_gradient_bytes(a.E, a.D, a.pooled) * a.dp
