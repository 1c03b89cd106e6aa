"""Any number of hot rows of a table with uniform ids, as a mix of a few shares f of its rows.

With f of the rows hot the tail has 1 - f of the look-ups and of the rows. For each load x, but for reads
that a cache saves, x is above a line from f = 0 to f = 1:

    look-ups, ids, unique rows, memory, gradients    linear in f: (1 - f) of the tail's, f of a whole copy's
    lengths, dense bags                              as without hot rows, whatever f: the same at both ends
    non-empty bags                                   concave in 1 - f: above (1 - f) of those of the whole, of
                                                     which a row that a bag has twice is one
    L2                                               rows, ids and bags: linear

    DRAM of the tail >= L2 - min(s, (1 - f) R),    of the copy >= L2 - min(s', f R')                  [bytes]

s, s'  what the L2 saves where none, or all, of the rows are hot: never more with fewer rows for the cache
R, R'  what all reads of the whole tail, or copy, move

These have one kink each: at 1 - f = s/R, at f = s'/R'. Any number of hot rows is above a mix of its two
neighbours among 0, the kinks and 1. A saving so small that its kink is not worth a share of its own is taken
off at every f. Source: derived from ``plan.loads``; ``access.l2_hit_ratio``: a cache of X rows of (1 - f) E
saves at most n X / E look-ups, whatever f
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.access import unique_rows_uniform
from perfmodel.model.exchanges import Exchange
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.pricing.loads import Resource
from perfmodel.plan.pricing.tables import PlanTables

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NONE_HOT, ALL_HOT, COPY_KEPT, TAIL_KEPT, READS_KEPT = VERTICES = range(2, 7)
"""Shares of hot rows: the two ends; as many as the L2 keeps of the copy; all but those that it keeps of the
tail; the same of what is read besides (rows of ub that came, gradients of non-empty bags)."""

_R = Resource
_TAIL = 1 - 1e-12  # of the tail's loads: what is left of them where nearly all rows are hot is not nothing
_READ = 1 - 1e-3  # part of the misses that is there at the least: those of hot rows are interpolated
_RUNS = 1e-15  # of the tail's loads at the other end: nothing, but its steps run
_FIXED_EVERYWHERE = [_R.LENGTHS_SENT, _R.BAGS_RECEIVED, _R.LOCAL_SUM, _R.CONVERT_IN]
_FIXED = [_R.LENGTHS_RECEIVED, _R.BAGS_SENT, _R.CONVERT_OUT]
_OF_COPY = [_R.GATHER_L2, _R.SORT, _R.UPDATE_L2, _R.UPDATE_DRAM, _R.COPIED_GRADIENTS]
_LITTLE = 0.02


class Tables(NamedTuple):
    """Of each box [n]: loads of a copy on every rank [n, K]; rows, columns, bytes of an element; distinct
    rows of a bag over its look-ups."""

    copy: Array
    rows: Array
    dim: Array
    width: Array
    distinct: Array

    @staticmethod
    def of(tables: PlanTables, sample: Ints, copy: Array) -> Tables:
        """Of tables ``sample`` with copies of these loads."""
        rows, L = tables.rows[sample], np.maximum(tables.pooling[sample], 1)
        distinct = np.minimum(unique_rows_uniform(rows, L) / L, 1)
        return Tables(copy, rows, tables.dim[sample], tables.element_bytes[sample], distinct)


class Saving(NamedTuple):
    """Reads that a cache saves: at most min(saved, share R), share the part of the rows that they are of."""

    saved: Array
    reads: Array
    kept: Mask  # whether the kink is a share of its own

    def kink(self) -> Array:
        """Share of the rows below which all reads are saved."""
        return np.asarray(np.clip(self.saved / np.maximum(self.reads, _RUNS), 0, 1))

    def at(self, share: Array) -> Array:
        """Saved of this share of the rows, never less than a mix of the shares that there are would be."""
        all_reads = share * np.maximum(self.reads, self.saved)
        line = np.where(self.kink() > 0.5, all_reads, self.saved)
        return np.where(self.kept, np.minimum(self.saved, all_reads), line)


def worth_kinks(evaluator: Evaluator, of: Tables) -> Mask:
    """[n, 7] whether a share of hot rows is worth one of its own, for kinds of table.

        X / E <= G C / (T E D w)                                              [-]

    of all parts of a table together, C the cache;  C / (T E D w) of its copy
    Source: ``LoadModel``: copies of T tables share the L2 of a rank
    """
    value, T = evaluator.setting.machine.value, len(evaluator.tables)
    cache = value("l2_bytes") * evaluator.basis.constant("l2_usable_fraction")
    share = cache / T / (of.rows * of.dim * of.width)
    worth = np.zeros((share.size, len(VERTICES) + NONE_HOT), dtype=bool)
    worth[:, [NONE_HOT, ALL_HOT]] = True
    worth[:, COPY_KEPT] = share > _LITTLE
    worth[:, TAIL_KEPT] = share * evaluator.gpus > _LITTLE
    worth[:, READS_KEPT] = (share > _LITTLE) | (evaluator.model.training is not None)
    return worth


def vertex(
    evaluator: Evaluator, what: Ints, kind: Ints, of: Tables, worth: Mask, everywhere: Array, total: Array
) -> Array:
    """Make loads [n, K] of schemes without hot rows those with the share f of ``what``, in place; f [n].

    total  of all holders;  worth  [n, 7] ``worth_kinks``
    """
    bags = evaluator.batch * of.dim * evaluator.basis.constant("pooled_element_bytes")
    sparse = kind == Exchange.SPARSE
    for loads in (everywhere, total):
        loads *= (np.where(sparse, of.distinct, 1) * _TAIL)[:, np.newaxis]
    ids = np.where(kind == Exchange.UB, total[:, _R.REQUESTS_RECEIVED], total[:, _R.IDS_RECEIVED])
    copy_l2, copy_dram = of.copy[:, _R.GATHER_L2], of.copy[:, _R.GATHER_DRAM] * _READ
    tail = _saving(total, _R.GATHER_DRAM, _R.GATHER_L2, ids, worth[:, TAIL_KEPT])
    copied = Saving(copy_l2 - copy_dram, copy_l2 - bags, worth[:, COPY_KEPT])
    reads = worth[:, READS_KEPT]
    pool = _saving(everywhere, _R.POOL_DRAM, _R.POOL_L2, 0, reads & (kind == Exchange.UB))
    update = _saving(total, _R.UPDATE_DRAM, _R.UPDATE_L2, 0, reads & sparse)
    second = np.where(sparse, update.kink(), pool.kink())
    f = np.select(
        [what == NONE_HOT, what == COPY_KEPT, what == TAIL_KEPT, what == READS_KEPT],
        [0.0, copied.kink(), 1 - tail.kink(), 1 - second],
        1.0,
    )
    concave = total[:, _R.UPDATE_DRAM].copy()  # fewer reads of as many dense bags, or of each row once
    _mix(kind, of, f, bags, everywhere, total)
    total[:, _R.GATHER_DRAM] = total[:, _R.GATHER_L2] - tail.at(1 - f)
    total[:, _R.UPDATE_DRAM] = np.where(sparse, total[:, _R.UPDATE_L2] - update.at(1 - f), (1 - f) * concave)
    everywhere[:, _R.POOL_DRAM] = everywhere[:, _R.POOL_L2] - pool.at(1 - f)
    everywhere[:, _R.GATHER_DRAM] = everywhere[:, _R.GATHER_L2] - copied.at(f)
    return f


def held_whatever_hot(kind: int) -> Mask:
    """[K] loads that a shard has as much of with any number of hot rows: lengths, and bags that are dense."""
    fixed = _FIXED if kind == Exchange.RB else [_R.LENGTHS_RECEIVED]
    return np.isin(np.arange(len(_R)), fixed)


def _saving(loads: Array, dram: int, l2: int, fixed: Array | float, kept: Mask) -> Saving:
    """Of a tail whose ``fixed`` bytes pass DRAM in any case."""
    return Saving(loads[:, l2] - loads[:, dram] * _READ, loads[:, l2] - fixed, kept)


def _mix(kind: Ints, of: Tables, f: Array, bags: Array, everywhere: Array, total: Array) -> None:
    """All loads on the lines between both ends, in place."""
    dense = (kind == Exchange.RB)[:, np.newaxis]
    before, parts = everywhere.copy(), total.copy()
    none, all_rows, all_parts = before.copy(), before * _RUNS, parts * _RUNS
    none[:, _R.GATHER_L2] += bags
    none[:, _R.LOCAL_SUM] += bags
    all_rows[:, _FIXED_EVERYWHERE] = before[:, _FIXED_EVERYWHERE] * dense
    all_parts[:, _FIXED] = parts[:, _FIXED] * dense
    for fixed in (_R.LENGTHS_SENT, _R.BUCKETIZE):
        all_rows[:, fixed] = before[:, _R.LENGTHS_SENT]
    all_parts[:, _R.LENGTHS_RECEIVED] = parts[:, _R.LENGTHS_RECEIVED]
    all_rows[:, _R.DEDUPLICATE] = before[:, _R.DEDUPLICATE] / 2  # ids of all look-ups, hot ones as well
    all_rows[:, _R.LOCAL_SUM] += bags
    all_rows[:, _OF_COPY] += of.copy[:, _OF_COPY] * _READ
    hot = f[:, np.newaxis]
    everywhere[:] = (1 - hot) * none + hot * all_rows
    total[:] = (1 - hot) * parts + hot * all_parts
