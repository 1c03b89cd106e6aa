"""Loads: bytes of every resource that each rank sends, receives or moves in one step of a plan.

Loads are sums over shards, so moving a shard changes two ranks. A step takes as long as its busiest rank.
Functions of (a, own, everywhere) add the bytes of tables ``a`` to two arrays [..., K] of K resources: to
``own`` what a shard costs its holder, to ``everywhere`` what every rank has for its own samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.engine.cut import LoadInputs, TableCut, Training
from perfmodel.engine.exchange_sets import LookUpGroups
from perfmodel.engine.placement import Plan, Scheme, check_scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import TOGETHER, Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.model import embedding_bag as eb
from perfmodel.model import exchanges as ex
from perfmodel.model.look_ups import Gather

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShardLoads:
    """Bytes that sharded tables add to ranks, by table and scheme; arrays [..., K] for K resources.

    own         load of *one shard*, on the rank that holds it
    everywhere  load of the *whole table*, on every rank, for the rank's own samples
    """

    own: Array
    everywhere: Array

    def at(self, index: NDArray[np.int64]) -> ShardLoads:
        """The loads at some positions of the leading axes."""
        return ShardLoads(self.own[index], self.everywhere[index])


@dataclass(frozen=True)
class Loads:
    """Bytes of every resource on every rank of a plan: ``values`` is [K, G] for K resources, G ranks."""

    values: Array

    @property
    def most(self) -> Array:
        """Largest load over ranks, shape [K], the argument of ``Evaluator.step_times``."""
        return np.asarray(self.values.max(axis=1))

    @property
    def mean(self) -> Array:
        """Mean load over ranks, shape [K]: the loads if the same shards were perfectly balanced."""
        return np.asarray(self.values.mean(axis=1))

    def of(self, resource: int) -> Array:
        """Load of one resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])


@dataclass(frozen=True)
class LoadModel(LoadInputs):
    """Computes the loads of tables on G ranks: bytes of every resource."""

    tables: PlanTables

    @property
    def width(self) -> int:
        """K, number of resources: length of an array of loads."""
        return self.groups.width if self.groups else TOGETHER

    @cached_property
    def groups(self) -> LookUpGroups | None:
        """The groups of tables that TorchRec looks up in one launch each; None: one launch for all tables
        of a rank."""
        return LookUpGroups(self.sets, self.tables) if self.sets else None

    def shard_loads(
        self, table: ArrayLike, kind: ArrayLike, r: ArrayLike, c: ArrayLike, hot: ArrayLike = 0
    ) -> ShardLoads:
        """Loads of one shard of each table, and of each table on every rank; arguments broadcast.

        table   indices of tables;  kind  ``Exchange`` codes;  r, c  numbers of row and column parts
        hot     h, rows of each table that are also replicated on every rank

        Limits: more parts than rows or columns -> BadInputError, since the equations assume ids uniform over
        parts;  other checks of a plan are not made here (``placement.check_scheme``)
        """
        t, kinds, rows, cols, head = np.broadcast_arrays(
            np.asarray(table, dtype=np.int64), np.asarray(kind), *(_array(x) for x in (r, c, hot))
        )
        self._check_parts(t, kinds, rows, cols, head)
        own, everywhere = (np.moveaxis(np.zeros((TOGETHER, *t.shape)), 0, -1) for _ in range(2))
        cut = TableCut(self, t, kinds, rows, cols, head)
        for fill in _FILLS:
            fill(cut, own, everywhere)
        if self.training is not None:
            backward(cut, self.training, own, everywhere)
        if self.sets is not None and self.groups is not None:
            own, everywhere = (self.sets.spread(t, kinds, each) for each in (own, everywhere))
            everywhere[..., Resource.COPIED_LENGTHS] = _copied_lengths(cut)
            spread = self.groups.spread
            own, everywhere = spread(t, own, False), spread(t, everywhere, True)
        return ShardLoads(own, everywhere)

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
        """Loads of all ranks: each rank's shards, and what every rank has for its own samples.

        found  loads of one shard of each table [T, K], if computed before
        """
        if found is None:
            found = self.shard_loads(np.arange(len(plan.tables)), *plan.schemes)
        values = np.repeat(found.everywhere.sum(axis=0)[:, np.newaxis], plan.gpus, axis=1)
        tables, ranks = plan.shards
        for k in range(self.width):
            if found.own[:, k].any():
                values[k] += np.bincount(ranks, weights=found.own[tables, k], minlength=plan.gpus)
        return Loads(values)


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def _input(a: TableCut, own: Array, everywhere: Array) -> None:
    """Lengths, ids and their weights go to the holders; exchange ub sends distinct ids and no weights."""
    length, ids, plain = a.model.constant("length_bytes"), a.ids, a.id_bytes
    sent = eb.lengths_bytes(a.r * a.c, a.B, length) * a.split
    ids_sent = eb.ids_bytes(a.c * a.B * a.L, ids) * a.split
    apart = ids - plain if a.model.sets else 0 * ids  # bytes of a weight sent on its own
    everywhere[..., Resource.LENGTHS_SENT] = sent
    everywhere[..., Resource.WEIGHTS_SENT] = eb.ids_bytes(a.c * a.B * a.L, apart) * a.split
    own[..., Resource.WEIGHTS_RECEIVED] = eb.ids_bytes(a.lookups, apart) * a.split
    everywhere[..., Resource.IDS_SENT] = eb.ids_bytes(a.c * a.B * a.L, ids - apart) * a.split
    everywhere[..., Resource.BUCKETIZE] = sent + ids_sent + eb.ids_bytes(a.B * a.hot_L, ids) * a.split
    own[..., Resource.LENGTHS_RECEIVED] = ex.holder_lengths_bytes(a.G, a.B, length) * a.split
    own[..., Resource.IDS_RECEIVED] = eb.ids_bytes(a.lookups, ids - apart) * a.split
    if not a.ub.any():
        return
    everywhere[..., Resource.DEDUPLICATE] = a.sorted(a.B * (a.L + a.hot_L)) * a.ub
    request = plain + a.model.constant("feature_id_bytes")
    asked = ex.requested_rows(a.G, a.U, a.r)
    everywhere[..., Resource.REQUESTS_SENT] = ex.row_request_bytes(a.U, a.c, request) * a.ub
    own[..., Resource.REQUESTS_RECEIVED] = ex.rows_bytes(asked, request) * a.ub
    own[..., Resource.DEDUPLICATE_REQUESTS] = a.sorted(asked) * a.ub


def _copied_lengths(a: TableCut) -> Array:
    """Lengths of the bags that a rank looks up in replicas of whole tables."""
    return np.asarray(eb.lengths_bytes(1, a.B, a.model.constant("length_bytes")) * a.dp)


def _look_up(a: TableCut, own: Array, everywhere: Array) -> None:
    """The gather: partial bags for all ranks at the holder, bags of its own samples from a replica."""
    moved = a.gathered
    for resource, size in ((Resource.GATHER_DRAM, moved.dram_bytes), (Resource.GATHER_L2, moved.l2_bytes)):
        own[..., resource] = size * ~a.dp
        everywhere[..., resource] = size * a.dp


def _look_up_hot(a: TableCut, own: Array, everywhere: Array) -> None:
    """The gather of hot rows from their replicas, and adding their part of each bag to the tail's."""
    hot = a.hot > 0
    if not hot.any():
        return
    bag = a.D * a.pooled + a.model.constant("offset_bytes")
    rows, n, bags = np.maximum(a.hot, 1), a.B * a.hot_L, np.full(a.hot.shape, a.B)
    moved = a.traffic(rows, n, a.whole_row, bags, bag, a.beside, Gather.HOT)
    everywhere[..., Resource.GATHER_DRAM] += moved.dram_bytes * hot
    everywhere[..., Resource.GATHER_L2] += moved.l2_bytes * hot
    whole = ex.bags_received_bytes(a.B, 1, 1, a.D, a.pooled, a.c, 0)
    one = ex.bag_sum_bytes(a.B, 2 * whole, a.D, a.pooled)  # to a bag that is whole
    added = np.where(a.ub | (a.r == 1), one, whole)  # or to parts, which are added up anyway
    everywhere[..., Resource.LOCAL_SUM] += added * hot


def _unique(a: TableCut, own: Array, everywhere: Array) -> None:
    """Unique rows are sent as stored to the ranks that asked, and pooled there from the receive buffer."""
    if not a.ub.any():
        return
    own[..., Resource.ROWS_SENT] = ex.rows_bytes(ex.requested_rows(a.G, a.U, a.r), a.row) * a.ub
    everywhere[..., Resource.ROWS_RECEIVED] = ex.rows_bytes(a.U, a.D * a.w) * a.ub
    bag = a.D * a.pooled + a.model.constant("offset_bytes")
    bags = np.full(a.U.shape, a.B)  # each received row is read: at least U rows, as from the table
    moved = a.traffic(a.E, a.B * a.L, a.whole_row, bags, bag, a.beside, Gather.COPY)
    everywhere[..., Resource.POOL_DRAM] = moved.dram_bytes * a.ub
    everywhere[..., Resource.POOL_L2] = moved.l2_bytes * a.ub


def _dense(a: TableCut, own: Array, everywhere: Array) -> None:
    """Row-wise over all ranks: bags by reduce-scatter."""
    sent = ex.bags_sent_bytes(a.G, a.B, 1, ex.bag_bytes(a.elements, a.v))
    own[..., Resource.REDUCE_SCATTER] = sent * (a.kind == Exchange.RS)


def _two_level(a: TableCut, own: Array, everywhere: Array) -> None:
    """Reduce-scatter in each domain, then an exchange across domains: a reduce-scatter if the table has row
    parts in all domains, else an all-to-all.
    """
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
    """Bags by all-to-all, all of them or only non-empty bags, and the sum of bags that arrive in parts."""
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
    """Bags are converted to the precision of the exchange and back, if it is not the precision of pooling."""
    if a.v == a.pooled:
        return
    received = np.where((a.kind == Exchange.RB) | a.sparse, a.r * a.q, 1.0)
    received = np.where(a.two & (a.domains < a.G / a.g), a.domains, received)
    sent = ex.convert_bytes(a.G * a.B * a.q, a.elements, a.v, a.pooled)
    came = ex.convert_bytes(a.B * received, a.D, a.v, a.pooled)
    own[..., Resource.CONVERT_OUT] = sent * a.split
    everywhere[..., Resource.CONVERT_IN] = came * a.split


_OF_BAGS = (_dense, _two_level, _partial, _convert)
_FILLS = (_input, _look_up, _look_up_hot, _unique, *_OF_BAGS)


def compute_resource_loads(cut: TableCut) -> tuple[Mapping[Resource, Array], Mapping[Resource, Array]]:
    """(loads of a shard of each table, loads of each table on every rank), as ``shard_loads`` adds them."""
    own, everywhere = _Columns(), _Columns()
    for fill in _FILLS:
        fill(cut, cast("Array", own), cast("Array", everywhere))
    if cut.model.training is not None:
        backward(cut, cut.model.training, cast("Array", own), cast("Array", everywhere))
    return own, everywhere


def even_loads(cut: TableCut, count: Array, *, works: bool = True, exchanges: bool = True) -> Array:
    """Loads of every rank, [..., K], if all tables are sharded over all ranks, one part each.

    cut    tables [..., C] or [T, C], as many parts of each as there are ranks;  count  number of equal tables
    works  whether look-ups and updates of rows count;  exchanges  whether all other loads count
    """
    own, everywhere = (cast("Array", _Columns()) for _ in range(2))
    for fill in (*((_look_up,) if works else ()), *((_input, *_OF_BAGS) if exchanges else ())):
        fill(cut, own, everywhere)
    if works and cut.model.training is not None:
        backward(cut, cut.model.training, own, everywhere)
    most = np.zeros((TOGETHER, cut.t.shape[-1]))
    for resource, side in (each for loads in (own, everywhere) for each in cast("_Columns", loads).items()):
        most[resource] += (count * side).reshape(-1, cut.t.shape[-1]).sum(axis=0)
    return np.moveaxis(most, 0, -1)


class _Columns(dict[Resource, Array]):
    """Loads by resource, as a dictionary that acts like an array [..., K]: absent resources are 0."""

    def __setitem__(self, at: Any, column: Array) -> None:
        super().__setitem__(at[-1], column)

    def __getitem__(self, at: Any) -> Any:
        return self.get(at[-1], 0.0)


__all__ = ["LoadModel", "Loads", "Resource", "ShardLoads"]


def backward(a: TableCut, training: Training, own: Array, everywhere: Array) -> None:
    """Adds the bytes of updating rows where they are stored.

    own         loads [..., K] of one shard, on the rank that holds it; changed in place
    everywhere  loads [..., K] that every rank has, for its own samples; changed in place
    The exchange of gradients of bags has the bytes of the exchange of bags, so nothing is added for it.
    """
    asked = ex.requested_rows(a.G, a.U, a.r)
    arrived = np.where(a.dp, a.B, np.where(a.ub, asked, a.G * a.B * a.q))  # gradients at the holder
    read, touched, row = a.updated(training)
    moved = a.traffic(np.maximum(arrived, 1), read, a.elements * a.pooled, touched, row, a.shards)
    for resource, size in (
        (Resource.SORT, a.sorted(read, backward=True)),
        (Resource.UPDATE_DRAM, moved.dram_bytes),
        (Resource.UPDATE_L2, moved.l2_bytes),
    ):
        own[..., resource] = size * ~a.dp
        everywhere[..., resource] = size * a.dp
    copied = np.where(a.dp, a.E, a.hot)
    everywhere[..., Resource.COPIED_GRADIENTS] = ex.copied_gradient_bytes(copied, a.D, a.gradient)
    _update_hot(a, training, everywhere)
    _unique_gradients(a, own, everywhere)


def _unique_gradients(a: TableCut, own: Array, everywhere: Array) -> None:
    """Adds the exchange of gradients of unique rows: each rank sums them by row before it sends them."""
    if not a.ub.any():
        return
    added = a.traffic(np.full(a.U.shape, a.B), a.B * a.L, a.D * a.pooled, a.U, a.D * a.pooled, a.beside)
    everywhere[..., Resource.ACCUMULATE_DRAM] = added.dram_bytes * a.ub
    everywhere[..., Resource.ACCUMULATE_L2] = added.l2_bytes * a.ub
    everywhere[..., Resource.ROW_GRADIENTS_SENT] = ex.rows_bytes(a.U, a.D * a.v) * a.ub
    asked = ex.requested_rows(a.G, a.U, a.r)
    own[..., Resource.ROW_GRADIENTS_RECEIVED] = ex.rows_bytes(asked, a.elements * a.v) * a.ub


def _update_hot(a: TableCut, training: Training, everywhere: Array) -> None:
    """Adds the update of replicated hot rows, as for a replicated table."""
    hot = a.hot > 0
    if not hot.any():
        return
    row = (
        ex.update_row_bytes(a.D, a.whole_row / a.D, training.per_element, training.per_row)
        + 2 * a.D * a.pooled
    )
    bags, read = np.full(a.hot.shape, a.B), a.B * a.hot_L
    moved = a.traffic(bags, read, a.D * a.pooled, a.hot, row, a.beside)
    everywhere[..., Resource.SORT] += a.sorted(read, backward=True) * hot
    everywhere[..., Resource.UPDATE_DRAM] += moved.dram_bytes * hot
    everywhere[..., Resource.UPDATE_L2] += moved.l2_bytes * hot
