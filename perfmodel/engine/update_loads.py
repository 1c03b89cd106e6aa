"""Loads of the backward pass: arriving gradients, look-ups sorted by row, updated rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cut import TableCut, Training
from perfmodel.engine.step_resources import Resource
from perfmodel.model import exchanges as ex

Array = NDArray[np.float64]


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
