"""Symmetric mappings: every core has a slice of the batch of every table, and all work on the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.work import WAYS, Batch, TableColumns, TablePiece, Way
from perfmodel.onechip.work_units import ranked
from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_NODES = 1_000  # of the tree of integer programs


@dataclass(frozen=True, eq=False)
class Symmetric:
    """A symmetric mapping: one way to look up each table, on all cores.

    way      of each table;  time_s  of a batch: the sum over tables, which all cores process together [s]
    table_s  time of each table [s];  limits  what limits each table: a name of ``cost.LIMITS``
    """

    way: Ints
    time_s: float
    table_s: Array
    limits: tuple[str, ...]

    @property
    def limit(self) -> str:
        """What limits the table that takes longest."""
        return self.limits[int(np.argmax(self.table_s))]

    def mapping(self, cost: ChipCost) -> Mapping:
        """Its pieces: a slice of every table on every core."""
        cores = symmetric_pieces(
            cost.chip, cost.tables, int(cost.batch), [Way(way) for way in self.way.tolist()]
        )
        owner = np.repeat(np.arange(len(cores)), [len(pieces) for pieces in cores])
        return Mapping(owner, tuple(piece for pieces in cores for piece in pieces))

    def in_any_order(self, cost: ChipCost) -> Batch:
        """Time of a batch if cores go through the tables in the same order without waiting for each other."""
        mapping = self.mapping(cost)
        return mapping.batch(cost, mapping.work(cost, lockstep=True))


def symmetric_pieces(
    chip: Chip, tables: TableColumns, batch: int, ways: Sequence[Way]
) -> list[list[TablePiece]]:
    """The pieces of each core if all N cores have a slice of B/N samples of every table.

    ways  of each table
    """
    starts = [batch * core // chip.cores for core in range(chip.cores + 1)]
    return [
        [
            TablePiece(table, way, (0, int(tables.rows[table])), (0, int(tables.dim[table])), (first, end))
            for table, way in enumerate(ways)
            if end > first
        ]
        for first, end in pairwise(starts)
    ]


def symmetric(cost: ChipCost, way: Ints) -> Symmetric:
    """The symmetric mapping with these ways of the tables. Source: ``batch.batch_of``, in lockstep"""
    kinds = np.stack([cost.kind_of, np.asarray(way, dtype=np.int64)])
    pairs, of = np.unique(kinds, axis=1, return_inverse=True)
    found = [cost.in_step(int(cost.sample[kind]), Way(each)) for kind, each in pairs.T.tolist()]
    every = [found[at] for at in of.reshape(-1).tolist()]
    table_s = np.array([one.seconds for one in every])
    return Symmetric(way, float(table_s.sum()), table_s, tuple(one.limit for one in every))


def global_memory(cost: ChipCost) -> Symmetric:
    """Every table in global memory: what a compiler without knowledge of tables does."""
    return symmetric(cost, np.full(cost.tables.rows.size, Way.GM))


def best_symmetric(cost: ChipCost) -> Symmetric:
    """The fastest symmetric mapping.

        min  sum over tables of t(way)     bytes that all tables keep <= local buffer, where rows persist

    t(way)  time of the table if it is looked up in this way
    Source: definition; an integer program (HiGHS), as tables keep all rows or none
    Limits: buffers that do not persist -> the best way of each table;  no buffers -> ``global_memory``
    """
    kind_of, sample, count = cost.kind_of, cost.sample, cost.count
    time_s = np.array([[cost.in_step(table, way).seconds for way in WAYS] for table in sample.tolist()])
    if not cost.chip.buffers.persist:
        return symmetric(cost, np.argmin(ranked(time_s), axis=1)[kind_of])
    local = np.array([[_kept(cost, table, way) for way in WAYS] for table in sample.tolist()])
    local = np.where(np.isfinite(time_s), local, 0)
    shares = _knapsack(time_s, local, count, cost.chip.value("local_bytes"))
    chosen = np.zeros(kind_of.size, dtype=np.int64)
    for q in range(sample.size):
        chosen[kind_of == q] = np.repeat(np.arange(len(WAYS)), shares[q])
    return symmetric(cost, chosen)


def _kept(cost: ChipCost, table: int, way: Way) -> float:
    """Bytes of a core's buffer that a table needs: its rows,
    and working memory if both are in the same memory.
    """
    bags = cost.bags_of_cores
    work = cost.work(
        table, way, cost.tables.rows[table], cost.tables.dim[table], bags[bags > 0], lockstep=True
    )
    return float(np.max(work.local_bytes + work.vector_bytes * cost.chip.buffers.shared))


def _knapsack(time_s: Array, local: Array, count: Ints, capacity: float) -> Ints:
    """How many tables of each kind are looked up in each way, so that they fit together in least time.

    time_s, local  time and bytes kept of a table, for each of Q kinds and 4 ways;  count  tables of each kind
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, vstack

    kinds_, ways = time_s.shape
    time_s, local = ranked(time_s), ranked(local)
    possible = np.isfinite(time_s).ravel()
    unit = float(np.sum(time_s[:, Way.GM] * count)) or 1.0
    one = csr_array(
        (np.ones(kinds_ * ways), (np.repeat(np.arange(kinds_), ways), np.arange(kinds_ * ways))),
        shape=(kinds_, kinds_ * ways),
    )
    rows = vstack([one, csr_array(local.reshape(1, -1) / max(capacity, 1.0))])
    low = np.append(count, 0.0)
    high = np.append(count, 1.0)
    found = milp(
        np.where(possible, time_s.ravel() / unit, 0.0),
        integrality=np.ones(kinds_ * ways),
        bounds=Bounds(0, np.where(possible, np.repeat(count, ways), 0)),
        constraints=LinearConstraint(rows, low, high),
        options={"mip_rel_gap": 1e-6, "node_limit": _NODES},
    )
    if found.x is None:
        return np.column_stack([count, np.zeros((kinds_, ways - 1), dtype=np.int64)])
    return np.rint(found.x).astype(np.int64).reshape(kinds_, ways)
