"""Any number of hot rows of a table with uniform ids, as a mix of two ends: none of its rows, and all.

With f of the rows hot the tail has 1 - f of the look-ups and of the rows. For each load x

    x(f) >= (1 - f) x_none + f x_all

    look-ups, ids, unique rows, memory, gradients    linear in f: (1 - f) of the tail's, f of a whole copy's
    lengths, dense bags                              as without hot rows, whatever f: the same at both ends
    non-empty bags                                   concave in 1 - f: above (1 - f) of those of the whole
    L2                                               n (row + id) + bags: linear, and the bags of the copy
    DRAM                                             L2 - saved(f)

A tail or a copy of the part f with X rows of cache saves at most min(n X / E, its look-ups) rows, n of the
whole table. Either bound holds alone: the first, constant, is taken off both ends; by the second, linear,
nothing but ids and bags passes DRAM. Where the caches hold less than half of the table it is the first.
Reads of gradients save (1 - f) of what they do at f = 0 or less: fewer reads of as many bags repeat less.
Source: derived from ``plan.loads``; ``access.l2_hit_ratio`` is at most X / E
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.loads import Resource

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_R = Resource
_TAIL = 1 - 1e-12  # of the tail's loads: what is left of them where nearly all rows are hot is not nothing
READ = 1 - 1e-3
"""Part of the misses without hot rows that is there at the least beside them: those are interpolated."""
_RUNS = 1e-15  # of the tail's loads at the other end: nothing, but its steps run
_FIXED_EVERYWHERE = [_R.LENGTHS_SENT, _R.BAGS_RECEIVED, _R.LOCAL_SUM, _R.CONVERT_IN]
_FIXED = [_R.LENGTHS_RECEIVED, _R.BAGS_SENT, _R.CONVERT_OUT]
_OF_COPY = [_R.GATHER_L2, _R.SORT, _R.UPDATE_L2, _R.COPIED_GRADIENTS]
_MOST_CACHED, _LITTLE = 0.5, 0.4


class Tables(NamedTuple):
    """Of each box: loads of a copy on every rank [n, K]; rows, columns, look-ups of a bag [n]."""

    copy: Array
    rows: Array
    dim: Array
    width: Array


def cached_share(evaluator: Evaluator, of: Tables) -> Array:
    """X / E, the part of a copied table that the L2 of a rank can hold [-].

    Source: ``LoadModel``: copies of T tables share it
    """
    value, T = evaluator.setting.machine.value, len(evaluator.tables)
    cache = value("l2_bytes") * evaluator.basis.constant("l2_usable_fraction")
    return np.asarray(np.minimum(cache / T / (of.rows * of.dim * of.width), 1))


def hot_rows_help(evaluator: Evaluator, of: Tables) -> NDArray[np.bool_]:
    """[n] whether the end f = 0 may cost less than the same scheme without hot rows; else that stands for it.

        X / E <= G C / (T E D w)                                              [-]

    of all parts together, C the cache: not where that is little, and bags added up cost more than it saves
    """
    bags = evaluator.batch * of.dim * evaluator.basis.constant("pooled_element_bytes")
    share = cached_share(evaluator, of)
    parts = np.minimum(share * evaluator.gpus, 1)
    return np.asarray((parts > _LITTLE) | (share * of.copy[:, _R.GATHER_L2] >= bags))


def mostly_cached(loads: Array, gather: Array) -> NDArray[np.bool_]:
    """[n] whether the L2 saves more than half of what holders gather."""
    return np.asarray(gather > _MOST_CACHED * loads[:, _R.GATHER_L2])


def _pools_much(loads: Array) -> NDArray[np.bool_]:
    return np.asarray(loads[:, _R.POOL_DRAM] < _MOST_CACHED * loads[:, _R.POOL_L2])


def none_hot(
    evaluator: Evaluator, kind: Ints, of: Tables, everywhere: Array, total: Array, saved: Array
) -> None:
    """Make loads [n, K] of schemes without hot rows those of the end f = 0, in place.

    saved  [n] what the L2 saves their holders in the gather [bytes]
    """
    bags = evaluator.batch * of.dim * evaluator.basis.constant("pooled_element_bytes")
    share = cached_share(evaluator, of)
    little = share <= _MOST_CACHED
    total *= _TAIL
    everywhere *= _TAIL
    ids = np.where(kind == Exchange.UB, total[:, _R.REQUESTS_RECEIVED], total[:, _R.IDS_RECEIVED])
    gathered, much = total[:, _R.GATHER_DRAM], mostly_cached(total, saved)
    total[:, _R.GATHER_DRAM] = np.where(much, np.minimum(ids, gathered), gathered)
    everywhere[:, _R.POOL_DRAM] *= ~_pools_much(everywhere)
    everywhere[:, _R.GATHER_L2] += bags
    everywhere[:, _R.GATHER_DRAM] += bags - np.where(little, share * of.copy[:, _R.GATHER_L2], 0)
    everywhere[:, _R.LOCAL_SUM] += bags


def all_hot(
    evaluator: Evaluator, kind: Ints, of: Tables, everywhere: Array, total: Array, saved: Array
) -> None:
    """The same for the end f = 1."""
    pooled = evaluator.basis.constant("pooled_element_bytes")
    bags = evaluator.batch * of.dim * pooled
    share = cached_share(evaluator, of)
    little, dense = share <= _MOST_CACHED, (kind == Exchange.RB)[:, np.newaxis]
    before, parts = everywhere.copy(), total.copy()
    everywhere *= _RUNS
    total *= _RUNS
    everywhere[:, _FIXED_EVERYWHERE] = before[:, _FIXED_EVERYWHERE] * dense
    total[:, _FIXED] = parts[:, _FIXED] * dense
    for fixed in (_R.LENGTHS_SENT, _R.BUCKETIZE):
        everywhere[:, fixed] = before[:, _R.LENGTHS_SENT]
    total[:, _R.LENGTHS_RECEIVED] = parts[:, _R.LENGTHS_RECEIVED]
    everywhere[:, _R.DEDUPLICATE] = before[:, _R.DEDUPLICATE] / 2  # ids of all look-ups, hot ones as well
    everywhere[:, _R.LOCAL_SUM] += bags
    everywhere[:, _OF_COPY] += of.copy[:, _OF_COPY]
    copy = of.copy[:, _R.GATHER_L2]
    everywhere[:, _R.GATHER_DRAM] = np.where(little, copy * (1 - share), bags)
    total[:, _R.GATHER_DRAM] = np.where(mostly_cached(parts, saved), 0, -saved)
    pool = before[:, _R.POOL_L2] - before[:, _R.POOL_DRAM]
    everywhere[:, _R.POOL_DRAM] = np.where(_pools_much(before), 0, -pool)
    trained = of.copy[:, _R.COPIED_GRADIENTS] > 0
    everywhere[:, _R.UPDATE_DRAM] = 2 * of.rows * of.dim * pooled * trained
    reads = parts[:, _R.UPDATE_L2] - parts[:, _R.UPDATE_DRAM]
    total[:, _R.UPDATE_DRAM] = np.where(kind == Exchange.SPARSE, -reads, 0)
