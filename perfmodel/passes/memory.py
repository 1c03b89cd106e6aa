"""The memory of every rank: rows, optimizer state, exchange buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.model import exchanges as ex
from perfmodel.passes.allowed_tiers import IN_HOST, ON_SSD, WITH_CACHE, Below
from perfmodel.passes.loads import Loads
from perfmodel.passes.placement import Plan
from perfmodel.passes.tables import PlanTables
from perfmodel.passes.timing import PassTimes
from perfmodel.schema.files import unknown_name
from perfmodel.units import format_bytes

Array = NDArray[np.float64]

OPTIMIZERS: dict[str, tuple[int, int]] = {
    "none": (0, 0),
    "sgd": (0, 0),
    "rowwise-adagrad": (0, 1),
    "adagrad": (1, 0),
    "adam": (2, 0),
}
"""State of each optimizer as fp32 numbers: (per element, per row of a shard), as in FBGEMM."""


def optimizer_state(optimizer: str, number_bytes: float) -> tuple[float, float]:
    """State of an optimizer [bytes]: (per element, per row of a shard).

    number_bytes  size of one number of the state
    Limits: unknown optimizer -> BadInputError
    """
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    per_element, per_row = OPTIMIZERS[optimizer]
    return per_element * number_bytes, per_row * number_bytes


@dataclass(frozen=True)
class PlanMemory:
    """Memory of every rank, arrays [G] in bytes: HBM, host memory and SSDs.

    rows_bytes, optimizer_bytes  rows and optimizer state in HBM, with the gradients of replicas where
            gradients are kept from step to step
    buffer_bytes                 send and receive buffer of the largest exchange
    """

    rows_bytes: Array
    optimizer_bytes: Array
    buffer_bytes: Array
    host_bytes: Array | None = None  # rows in host memory with their optimizer state
    ssd_bytes: Array | None = None  # rows on SSDs

    @property
    def total_bytes(self) -> Array:
        """HBM of every rank, all parts together [G]."""
        return self.rows_bytes + self.optimizer_bytes + self.buffer_bytes

    @property
    def host(self) -> Array:
        """Bytes of host memory of every rank, [G]."""
        return np.zeros(self.rows_bytes.shape) if self.host_bytes is None else self.host_bytes

    @property
    def ssd(self) -> Array:
        """Bytes that the tables of every rank take on the SSDs of its node, [G]."""
        return np.zeros(self.rows_bytes.shape) if self.ssd_bytes is None else self.ssd_bytes

    @property
    def below(self) -> Array:
        """Bytes of every rank in host memory and on SSDs, [2, G]."""
        return np.stack([self.host, self.ssd])

    def check(self, limit_bytes: float) -> None:
        """Check memory. Limits: a rank above ``limit_bytes`` -> BadInputError with rank and excess"""
        total = self.total_bytes
        at, over = int(np.argmax(total)), int(np.sum(total > limit_bytes))
        if not over:
            return
        needs, room, more = (
            format_bytes(x, binary=False)
            for x in (float(total[at]), limit_bytes, float(total[at]) - limit_bytes)
        )
        raise BadInputError(
            f"rank {at} needs {needs}, {more} more than the {room} that it may use "
            f"({over} of {total.size} ranks do not fit).",
            "split large tables further, use more GPUs, or allow more memory.",
        )


@dataclass(frozen=True)
class MemoryModel:
    """Memory of tables with an optimizer: rows, state and exchange buffers of every rank.

    state_bytes  size of one number of the optimizer's state [bytes]
    below     tiers besides the HBM that tables may be in: rows and state are in host memory, or rows on SSDs
              and state in HBM (FBGEMM, ``ssd_state_splits``)
    torchrec  replicas are kept as TorchRec does: one dense parameter of one dimension, whose optimizer has
              state for every element (row-wise Adagrad becomes Adagrad), and whose gradient stays where DDP
              reduces it;  training  whether there are gradients
    ways      rows in one set of a cache (its associativity)
    cache_state  bookkeeping of a cache: (bytes per slot, bytes per row of the cached tables)
    Source: TorchRec 1.8, ``BatchedDenseEmbeddingBag`` in ``DistributedDataParallel`` with
            ``gradient_as_bucket_view``
    Limits: unknown optimizer -> BadInputError
    """

    tables: PlanTables
    optimizer: str
    state_bytes: float
    torchrec: bool = False
    training: bool = False
    below: Below | None = None
    ways: float = 1.0  # rows of a set of a cache
    cache_state: tuple[float, float] = (0.0, 0.0)  # ``tier_times.cache_state_bytes``

    def __post_init__(self) -> None:
        optimizer_state(self.optimizer, self.state_bytes)  # raises if unknown

    @property
    def table_bytes(self) -> float:
        """Bytes of the rows of all tables."""
        return float(self.tables.stored_bytes(training=self.training).sum())

    @property
    def state(self) -> tuple[float, float]:
        """(state per element, state per row of a shard) of the optimizer [bytes]."""
        return optimizer_state(self.optimizer, self.state_bytes)

    @property
    def copied_state(self) -> tuple[float, float]:
        """(state per element, state per row of a shard) for replicated tables [bytes]."""
        per_element, per_row = self.state
        return (per_element or per_row, 0.0) if self.torchrec else (per_element, per_row)

    def shard(
        self,
        table: ArrayLike,
        r: ArrayLike,
        c: ArrayLike,
        hot: ArrayLike = 0,
        tier: ArrayLike = 0,
        cached: ArrayLike = 0,
    ) -> tuple[Array, Array]:
        """(rows, optimizer state) of one shard in HBM [bytes]; arrays broadcast.

        table   index of the table;  r, c  its numbers of row and column parts, 1 and 1 for a replicated table
        hot     rows of the table that are replicated (``copies``): they are not in the parts
        tier    code of the memory that holds the table's rows: in host memory or on SSDs, only the rows in
                the table's own cache in HBM count;  cached  share of the rows in that cache
        """
        t = np.asarray(table, dtype=np.int64)
        rows, state = self._held(t, self.tables.rows[t] - np.asarray(hot), r, c, self.state)
        if self.below is None:
            return rows, state
        code = np.asarray(tier)
        own = ex.part_elements(self.tables.dim[t], c) * self.tables.element_bytes[t]
        slot = np.where((code == ON_SSD) | self.below.prefetch, own, self.slot_bytes[t])
        per_slot, per_row = self.cache_state
        mapped = ex.shard_rows(self.tables.rows[t], r) * (code != ON_SSD)  # tables without a map in FBGEMM
        cache = capacity.cache_bytes(self.cache_rows(t, r, cached), slot, per_slot, mapped, per_row)
        cache = cache * np.isin(code, WITH_CACHE)
        return np.where(code == 0, rows, cache), np.where(np.isin(code, IN_HOST), 0.0, state)

    def state_of(self, table: ArrayLike, r: ArrayLike, c: ArrayLike, tier: ArrayLike) -> Array:
        """Optimizer state that one shard keeps in HBM while its rows are on SSDs [bytes].

        table, r, c, tier  as in ``shard``. Limits: rows in HBM, or in host memory with their state -> 0
        """
        t = np.asarray(table, dtype=np.int64)
        _, state = self._held(t, self.tables.rows[t], r, c, self.state)
        return np.where(np.asarray(tier) == ON_SSD, state, 0.0)

    def cache_rows(self, table: ArrayLike, r: ArrayLike, cached: ArrayLike) -> Array:
        """Rows in the cache of one shard, rounded up to whole sets. table, r, cached  as in ``shard``"""
        held = np.asarray(cached) * self.tables.rows[np.asarray(table)] / np.asarray(r)
        return np.asarray(self.ways * np.ceil(held / self.ways))

    @cached_property
    def slot_bytes(self) -> Array:
        """Bytes of a slot of each table's cache [T]: as long as the longest row that it may hold.

        Source: TorchRec has one cache per width only for prefetched tables or rows on SSDs
                (``tier_loads.cache_keys``)
        """
        tables = self.tables
        row = tables.dim * tables.element_bytes
        return np.array([row[tables.element_bytes == width].max() for width in tables.element_bytes])

    def host(self, table: ArrayLike, r: ArrayLike, c: ArrayLike, tier: ArrayLike) -> Array:
        """Host memory of a shard and its state [bytes]; 0 if elsewhere. table, r, c, tier  as in ``shard``"""
        t = np.asarray(table, dtype=np.int64)
        rows, state = self._held(t, self.tables.rows[t], r, c, self.state)
        return np.where(np.isin(tier, IN_HOST), rows + state, 0.0)

    def ssd(self, table: ArrayLike, r: ArrayLike, c: ArrayLike, tier: ArrayLike) -> Array:
        """Bytes of one shard on SSDs; 0 for a table that is elsewhere. table, r, c, tier  as in ``shard``"""
        t = np.asarray(table, dtype=np.int64)
        rows, _ = self._held(t, self.tables.rows[t], r, c, self.state)
        return np.where(np.asarray(tier) == ON_SSD, rows, 0.0)

    def copies(self, table: ArrayLike, hot: ArrayLike) -> tuple[Array, Array]:
        """(rows, optimizer state and kept gradients) of the replica of ``hot`` rows on every rank [bytes].

        Limits: no hot rows -> 0;  all rows are hot -> the memory of a replicated table
        """
        t = np.asarray(table, dtype=np.int64)
        rows, state = self._held(t, np.asarray(hot, dtype=np.float64), 1, 1, self.copied_state)
        return rows, state + (rows if self.torchrec and self.training else 0.0)

    def _held(
        self, t: NDArray[np.int64], rows: ArrayLike, r: ArrayLike, c: ArrayLike, state: tuple[float, float]
    ) -> tuple[Array, Array]:
        per_element, per_row = state
        elements = ex.part_elements(self.tables.dim[t], c)
        width = self.tables.stored_width(t, elements, training=self.training)
        held = ex.shard_bytes(rows, r, elements, width, 0, 0)
        return held, ex.shard_bytes(rows, r, elements, width, per_element, per_row) - held

    def held(self, plan: Plan) -> tuple[Array, Array]:
        """(rows, optimizer state) that every rank of a plan has in HBM [bytes], each [G]."""
        tables, ranks = plan.shards
        whole = np.array([p.ranks.size == 0 for p in plan.placements])
        t, sums = np.arange(len(self.tables)), []
        shards = self.shard(t, *plan.schemes[1:])
        copies = self.copies(t, np.where(whole, self.tables.rows, plan.hot_rows))
        for part, copied in zip(shards, copies, strict=True):
            sums.append(np.bincount(ranks, weights=part[tables], minlength=plan.gpus) + np.sum(copied))
        return sums[0], sums[1]

    def ranks(self, plan: Plan, loads: Loads, times: PassTimes) -> PlanMemory:
        """Memory of every rank of a plan with these loads [bytes]."""
        buffers = buffer_bytes(loads.values, times)
        if not plan.tier_codes.any():
            return PlanMemory(*self.held(plan), buffers)
        tables, which = plan.shards
        cut = np.arange(len(self.tables)), plan.row_parts, plan.col_parts, plan.tier_codes
        host, ssd = (
            np.asarray(np.bincount(which, weights=of[tables], minlength=plan.gpus), np.float64)
            for of in (self.host(*cut), self.ssd(*cut))
        )
        return PlanMemory(*self.held(plan), buffers, host, ssd)


def buffer_bytes(values: Array, times: PassTimes) -> Array:
    """Send and receive buffer of the largest collective on every rank [G], from loads [K, G].

    Limits: one GPU -> 0
    """
    largest = np.zeros(values.shape[-1:])
    for sent, received, parts in zip(*times.buffers, strict=True):
        if values[sent].any() or values[received].any():
            largest = np.maximum(largest, capacity.buffer_bytes((values[sent], values[received] / parts)))
    return np.where(np.asarray(times.gpus) > 1, largest, 0.0)
