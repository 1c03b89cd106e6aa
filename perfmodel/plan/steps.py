"""The steps of a pass: which resources each waits for, and how long it takes at any load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.loads import Resource

Array = NDArray[np.float64]

ALL, INSIDE, ACROSS = "all", "inside", "across"
"""Ranks of a collective: all; those of one NVLink domain; those of the same place in all domains."""


@dataclass(frozen=True)
class Step:
    """One step: its time is a function of the most that any rank has of its resources.

    collective  "" for a kernel;  ranks  of a collective: ALL, INSIDE, ACROSS
    resources   of a collective the bytes sent and, where they differ, received: the larger counts;
                of a kernel the bytes it streams, or DRAM and L2 bytes of a gather
    splits      a collective of one size, which runs where the resource is in use
    alone       whether a kernel runs on one GPU too
    like        the step of a projection whose hand-over and kernel constants it has
    """

    name: str
    resources: tuple[Resource, ...]
    collective: str = ""
    ranks: str = ALL
    splits: bool = False
    alone: bool = False
    like: str = ""

    @property
    def gathers(self) -> bool:
        """Whether it is a gather, with DRAM and L2 bytes."""
        return not self.collective and len(self.resources) == 2

    @property
    def always(self) -> bool:
        """Whether it runs in every pass, on one GPU too: the gather."""
        return self.name == "gather_pool"

    @property
    def alike(self) -> str:
        """Name of the step of a projection that it is like."""
        return self.like or self.name


_R = Resource
FORWARD: tuple[Step, ...] = (
    Step("bucketize", (_R.BUCKETIZE,)),
    Step("all_to_all_splits", (_R.LENGTHS_SENT,), "all_to_all", splits=True),
    Step("all_to_all_lengths", (_R.LENGTHS_SENT, _R.LENGTHS_RECEIVED), "all_to_all"),
    Step("all_to_all_ids", (_R.IDS_SENT, _R.IDS_RECEIVED), "all_to_all"),
    Step("deduplicate", (_R.DEDUPLICATE,), like="bucketize"),
    Step(
        "all_to_all_request_splits",
        (_R.REQUESTS_SENT,),
        "all_to_all",
        splits=True,
        like="all_to_all_splits",
    ),
    Step(
        "all_to_all_requests", (_R.REQUESTS_SENT, _R.REQUESTS_RECEIVED), "all_to_all", like="all_to_all_ids"
    ),
    Step("gather_pool", (_R.GATHER_DRAM, _R.GATHER_L2)),
    Step("all_to_all_rows", (_R.ROWS_SENT, _R.ROWS_RECEIVED), "all_to_all", like="all_to_all_bags"),
    Step("pool_unique_rows", (_R.POOL_DRAM, _R.POOL_L2), like="gather_pool"),
    Step("convert_out", (_R.CONVERT_OUT,), like="local_sum"),
    Step("reduce_scatter_bags", (_R.REDUCE_SCATTER,), "reduce_scatter"),
    Step("reduce_scatter_inside", (_R.REDUCE_INSIDE,), "reduce_scatter", INSIDE),
    Step("reduce_scatter_across", (_R.REDUCE_ACROSS,), "reduce_scatter", ACROSS),
    Step(
        "all_to_all_across",
        (_R.ACROSS_SENT, _R.ACROSS_RECEIVED),
        "all_to_all",
        ACROSS,
        like="reduce_scatter_across",
    ),
    Step("all_to_all_bags", (_R.BAGS_SENT, _R.BAGS_RECEIVED), "all_to_all"),
    Step(
        "all_to_all_sparse_bags", (_R.SPARSE_SENT, _R.SPARSE_RECEIVED), "all_to_all", like="all_to_all_bags"
    ),
    Step("convert_in", (_R.CONVERT_IN,), like="local_sum"),
    Step("local_sum", (_R.LOCAL_SUM,)),
)
"""The forward pass, in order."""

BACKWARD: tuple[Step, ...] = (
    Step("convert_gradients_out", (_R.CONVERT_IN,), like="local_sum"),
    Step("all_to_all_gradients", (_R.BAGS_RECEIVED, _R.BAGS_SENT), "all_to_all", like="all_to_all_bags"),
    Step(
        "all_to_all_sparse_gradients",
        (_R.SPARSE_RECEIVED, _R.SPARSE_SENT),
        "all_to_all",
        like="all_to_all_bags",
    ),
    Step(
        "all_to_all_gradients_across",
        (_R.ACROSS_RECEIVED, _R.ACROSS_SENT),
        "all_to_all",
        ACROSS,
        like="reduce_scatter_across",
    ),
    Step("all_gather_across", (_R.REDUCE_ACROSS,), "all_gather", ACROSS),
    Step("all_gather_inside", (_R.REDUCE_INSIDE,), "all_gather", INSIDE),
    Step("all_gather_gradients", (_R.REDUCE_SCATTER,), "all_gather"),
    Step("convert_gradients_in", (_R.CONVERT_OUT,), like="local_sum"),
    Step("accumulate_row_gradients", (_R.ACCUMULATE_DRAM, _R.ACCUMULATE_L2), like="gather_pool"),
    Step(
        "all_to_all_row_gradients",
        (_R.ROW_GRADIENTS_SENT, _R.ROW_GRADIENTS_RECEIVED),
        "all_to_all",
        like="all_to_all_bags",
    ),
    Step("sort_lookups", (_R.SORT,), alone=True, like="bucketize"),
    Step("all_reduce_copies", (_R.COPIED_GRADIENTS,), "all_reduce"),
    Step("update_rows", (_R.UPDATE_DRAM, _R.UPDATE_L2), alone=True, like="gather_pool"),
)
"""The backward pass of the tables, in order: the forward's exchanges transposed, and the update of rows."""

_SMALLEST_LOG2, _LARGEST_LOG2, _CELL_BITS = -20, 48, 8
_MANTISSA_BITS, _BIAS = 52, 1023


class FastCurve:
    """A curve t(S) as straight pieces, 256 to an octave, read by the bits of S.

    S   bytes, any shape; 0 (or less than 2^-20) takes no time, less than 1 as long as 1
    Source: an octave of IEEE numbers is 2^52 equal steps: the exponent and the first 8 bits name the piece
    Limits: at piece boundaries exact; elsewhere within 0.1 % of any curve whose exponent d ln t / d ln S
            changes by less than 1 within a piece;  above 2^48 -> the last piece goes on
    """

    def __init__(self, time: Callable[[Array], Array]) -> None:
        octaves = _LARGEST_LOG2 - _SMALLEST_LOG2
        cells = 1 << _CELL_BITS
        steps = np.tile(1 + np.arange(cells) / cells, octaves)
        exponents = np.repeat(np.arange(octaves), cells) + _SMALLEST_LOG2
        edges = np.append(np.ldexp(steps, exponents), 2.0**_LARGEST_LOG2)
        values = np.asarray(time(np.maximum(edges, 1)), dtype=np.float64)
        slope = np.diff(values) / np.diff(edges)
        self._slope = np.concatenate([[0.0], slope])
        self._base = np.concatenate([[0.0], values[:-1] - slope * edges[:-1]])
        self._first = ((_SMALLEST_LOG2 + _BIAS) << _CELL_BITS) - 1
        self._shift = _MANTISSA_BITS - _CELL_BITS

    def __call__(self, size: Any) -> Array:
        """Times [s] of sizes [bytes]."""
        S = np.asarray(size, dtype=np.float64)
        piece = (S.view(np.int64) >> self._shift) - self._first
        piece = np.minimum(np.maximum(piece, 0), self._slope.size - 1)
        return np.asarray(self._base[piece] + self._slope[piece] * S)
