"""The symmetric mappings: every core looks up a slice of the batch in every table, all in step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.chip.cost import ChipCost
from perfmodel.chip.mapping import Mapping
from perfmodel.chip.work import WAYS, Batch, Piece, Way, Work

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def slices(cost: ChipCost) -> Ints:
    """[N] bags of each core. Source: definition; the first cores have one more"""
    least, more = divmod(int(cost.batch), cost.chip.cores)
    return np.array([least + (core < more) for core in range(cost.chip.cores)])


def one_table(cost: ChipCost, table: int, way: Way) -> tuple[Batch, Work]:
    """A table with a slice of the batch on every core: time of the batch, and what each slice takes."""
    t = cost.tables
    work = cost.work(table, way, t.rows[table], t.dim[table], slices(cost), lockstep=True)
    batch = cost.batch_s(np.arange(cost.chip.cores), np.full(cost.chip.cores, table), work)
    return batch, work


def symmetric(cost: ChipCost, way: Ints) -> Symmetric:
    """Each table in a way that is given."""
    known: dict[tuple[int, int], Batch] = {}
    kind_of, sample = cost.kind_of, cost.sample
    for table, each in enumerate(way):
        key = int(kind_of[table]), int(each)
        if key not in known:
            known[key] = one_table(cost, int(sample[key[0]]), Way(key[1]))[0]
    found = [known[int(kind), int(each)] for kind, each in zip(kind_of, way, strict=True)]
    table_s = np.array([batch.seconds for batch in found])
    core_s = np.sum([batch.core_s for batch in found], axis=0)
    return Symmetric(way, float(table_s.sum()), table_s, core_s, tuple(batch.limit for batch in found))


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
    time_s = np.full((sample.size, len(WAYS)), np.inf)
    local = np.zeros((sample.size, len(WAYS)))
    for q, table in enumerate(sample):
        for way in WAYS:
            batch, work = one_table(cost, int(table), way)
            if work.fits.all():
                time_s[q, way] = batch.seconds
                local[q, way] = work.local_bytes.max() + _working(cost, work)
    if not cost.chip.buffers.persist:
        return symmetric(cost, np.argmin(time_s, axis=1)[kind_of])
    shares = _knapsack(time_s, local, count, cost.chip.value("local_bytes"))
    chosen = np.zeros(kind_of.size, dtype=np.int64)
    for q in range(sample.size):
        chosen[kind_of == q] = np.repeat(np.arange(len(WAYS)), shares[q])
    return symmetric(cost, chosen)


def _working(cost: ChipCost, work: Work) -> float:
    """Bytes beside rows that persist where the local and the vector buffer are one memory."""
    return float(work.vector_bytes.max()) if cost.chip.buffers.shared else 0.0


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
        options={"mip_rel_gap": 1e-6, "time_limit": 5.0},
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
                Piece(table, Way(way), (0, whole[0]), (0, whole[1]), (int(end[at] - bags[at]), int(end[at])))
            )
    return Mapping(np.array(core, dtype=np.int64), tuple(pieces))
