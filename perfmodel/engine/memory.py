"""The memory of every rank: rows, optimizer state, exchange buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.engine.placement import Plan
from perfmodel.engine.tables import Array, PlanTables, row_bytes
from perfmodel.model import exchanges as ex


@dataclass(frozen=True, eq=False)
class GpuMemory:
    """Memory of every rank of a plan [G], or of a GPU in every configuration [C], in bytes.

    rows_bytes, optimizer_bytes  rows and optimizer state, with the gradients of replicas where
            gradients are kept from step to step
    buffer_bytes                 send and receive buffer of the largest exchange
    """

    rows_bytes: Array
    optimizer_bytes: Array
    buffer_bytes: Array

    @property
    def kept_bytes(self) -> Array:
        """Memory in use between exchanges."""
        return self.rows_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> Array:
        """All memory together."""
        return self.rows_bytes + self.optimizer_bytes + self.buffer_bytes


@dataclass(frozen=True, eq=False)
class MemoryModel:
    """Memory of tables with an optimizer: rows, state and exchange buffers of every rank.

    state  of the optimizer: (per element, per row of a shard) [bytes]
    torchrec  replicas are kept as TorchRec does: one dense parameter of one dimension, whose optimizer has
              state for every element (row-wise Adagrad becomes Adagrad), and whose gradient stays where DDP
              reduces it;  training  whether there are gradients
    Source: TorchRec 1.8, ``BatchedDenseEmbeddingBag`` in ``DistributedDataParallel`` with
            ``gradient_as_bucket_view``
    """

    tables: PlanTables
    state: tuple[float, float]
    torchrec: bool = False
    training: bool = False

    @property
    def table_bytes(self) -> float:
        """Bytes of the rows of all tables."""
        return float(self.tables.count_bytes(training=self.training).sum())

    @property
    def copied_state(self) -> tuple[float, float]:
        """(state per element, state per row of a shard) for replicated tables [bytes].

        TorchRec's are dense parameters: row-wise state becomes state of every element.
        """
        per_element, per_row = self.state
        return (per_element or per_row, 0.0) if self.torchrec else (per_element, per_row)

    def count_shard(
        self, table: ArrayLike, r: ArrayLike, c: ArrayLike, hot: ArrayLike = 0
    ) -> tuple[Array, Array]:
        """(rows, optimizer state) of one shard [bytes]; arrays broadcast.

        table   index of the table;  r, c  its numbers of row and column parts, 1 and 1 for a replicated table
        hot     rows of the table that are replicated (``count_copies``): they are not in the parts
        """
        t = np.asarray(table, dtype=np.int64)
        return self._count_parts(t, self.tables.rows[t] - np.asarray(hot), r, c, self.state)

    def count_copies(self, table: ArrayLike, hot: ArrayLike) -> tuple[Array, Array]:
        """(rows, optimizer state and kept gradients) of the replica of ``hot`` rows on every rank [bytes].

        Limits: no hot rows -> 0;  all rows are hot -> the memory of a replicated table
        """
        t = np.asarray(table, dtype=np.int64)
        rows, state = self._count_parts(t, np.asarray(hot, dtype=np.float64), 1, 1, self.copied_state)
        return rows, state + (rows if self.torchrec and self.training else 0.0)

    def _count_parts(
        self, t: NDArray[np.int64], rows: ArrayLike, r: ArrayLike, c: ArrayLike, state: tuple[float, float]
    ) -> tuple[Array, Array]:
        """(rows, optimizer state) [bytes] of a shard if ``rows`` of each table t are cut in r x c parts."""
        per_element, per_row = state
        elements = ex.count_part_elements(self.tables.dim[t], c)
        width = row_bytes(self.tables.dtype[t], elements, training=self.training) / elements
        even = ex.count_even_parts(r, self.tables.buckets[t])
        held = ex.count_shard_bytes(rows, even, elements, width, 0, 0)
        return held, ex.count_shard_bytes(rows, even, elements, width, per_element, per_row) - held

    def count_held(self, plan: Plan) -> tuple[Array, Array]:
        """(rows, optimizer state) that every rank of a plan has [bytes], each [G]."""
        tables, ranks = plan.shards
        replicated = np.array([not p.ranks.size for p in plan.placements])
        t = np.arange(len(self.tables))
        sums = []
        shards = self.count_shard(t, *plan.schemes[1:])
        copies = self.count_copies(t, np.where(replicated, self.tables.rows, plan.schemes[3]))
        for sizes, copied in zip(shards, copies, strict=True):
            sums.append(np.bincount(ranks, weights=sizes[tables], minlength=plan.gpus) + np.sum(copied))
        return sums[0], sums[1]
