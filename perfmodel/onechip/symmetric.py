"""The symmetric mappings: every core looks up a slice of the batch in every table, all in step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.batch import LIMITS
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.in_step import Slices, core_seconds, slices, slices_of, slices_of_pairs
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.work import WAYS, TablePiece, Way
from perfmodel.onechip.work_units import ranked

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_NODES = 1_000  # of the tree of whole-number programs


@dataclass(frozen=True, eq=False)
class Symmetric:
    """One way for each table, on all cores.

    way  [T];  time_s  of a batch: the sum over tables, as cores go through them together [s]
    table_s  [T] of each table [s];  core_s  [N] time of each core alone [s]
    limits   [T] what takes as long as a table: a name of ``cost.LIMITS``
    """

    way: Ints
    time_s: float
    table_s: Array
    core_s: Array
    limits: tuple[str, ...]

    @property
    def limit(self) -> str:
        """What the table that takes longest takes as long as."""
        return self.limits[int(np.argmax(self.table_s))]


def symmetric(cost: ChipCost, way: Ints) -> Symmetric:
    """Each table in a way that is given. Source: ``batch.batch_of`` for each, in step"""
    kinds = np.stack([cost.kind_of, np.asarray(way, dtype=np.int64)])
    (kind, each), of, number = np.unique(kinds, axis=1, return_inverse=True, return_counts=True)
    found, of = slices_of_pairs(cost, kind, each), of.reshape(-1)
    table_s = found.seconds[of]
    core_s = core_seconds(cost, found.work, number.astype(np.float64))
    limits = tuple(LIMITS[at] for at in found.limit[of].tolist())
    return Symmetric(way, float(table_s.sum()), table_s, core_s, limits)


def global_memory(cost: ChipCost) -> Symmetric:
    """Every table in global memory: what a compiler does that knows nothing of tables."""
    return symmetric(cost, np.full(cost.tables.rows.size, Way.GM))


def best_symmetric(cost: ChipCost) -> Symmetric:
    """The ways with which a symmetric mapping is fastest.

        min  sum over tables of t(way)     bytes that all tables keep <= local buffer, where rows persist

    Source: definition; a whole-number program (HiGHS), as tables keep whole rows or none
    Limits: buffers that do not persist -> the best way of each table;  no buffers -> ``global_memory``
    """
    kind_of, sample, count = cost.kind_of, cost.sample, cost.count
    every = [slices_of(cost, way) for way in WAYS]
    time_s = np.stack([found.seconds for found in every], axis=1)
    local = np.stack([_kept(cost, found) for found in every], axis=1)
    local = np.where(np.isfinite(time_s), local, 0)
    if not cost.chip.buffers.persist:
        return symmetric(cost, np.argmin(ranked(time_s), axis=1)[kind_of])
    shares = _knapsack(time_s, local, count, cost.chip.value("local_bytes"))
    chosen = np.zeros(kind_of.size, dtype=np.int64)
    for q in range(sample.size):
        chosen[kind_of == q] = np.repeat(np.arange(len(WAYS)), shares[q])
    return symmetric(cost, chosen)


def _kept(cost: ChipCost, found: Slices) -> Array:
    """[Q] most bytes of a core's buffer: rows, and what works beside them where both are one memory."""
    size = found.work.local_bytes + found.work.vector_bytes * cost.chip.buffers.shared
    return np.asarray(np.max(size, axis=1, where=found.cores > 0, initial=0))


def _knapsack(time_s: Array, local: Array, count: Ints, capacity: float) -> Ints:
    """How many tables of each kind take each way, [Q, 4]."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, vstack

    kinds_, ways = time_s.shape
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


def mapping_of_symmetric(cost: ChipCost, found: Symmetric) -> Mapping:
    """Its pieces: a slice of every table on every core."""
    bags = slices(cost)
    end = np.cumsum(bags)
    core, pieces = [], []
    for table, way in enumerate(found.way):
        whole = int(cost.tables.rows[table]), int(cost.tables.dim[table])
        for at in np.flatnonzero(bags):
            core.append(int(at))
            pieces.append(
                TablePiece(
                    table, Way(way), (0, whole[0]), (0, whole[1]), (int(end[at] - bags[at]), int(end[at]))
                )
            )
    return Mapping(np.array(core, dtype=np.int64), tuple(pieces))
