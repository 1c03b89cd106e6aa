"""Sums and packing of partial bags, one bag after the other, in float64: what partial_bags.cu must give."""

from __future__ import annotations

from typing import Any

import numpy as np


def partial_sum(parts: Any) -> Any:
    """Sum over sources [bags, D] of partial bags [G, bags, D], in float64."""
    return parts.astype(np.float64).sum(0)


def pack(lengths: Any, bags: Any) -> tuple[Any, Any, Any]:
    """Rows [n, D] of the bags [G, bags, D] that have ids, their numbers [n], counts of destinations [G]."""
    kept = [
        (destination, bag)
        for destination in range(lengths.shape[0])
        for bag in range(lengths.shape[1])
        if lengths[destination, bag] > 0
    ]
    rows = np.array([bags[at] for at in kept], bags.dtype).reshape(len(kept), bags.shape[2])
    return rows, np.array([bag for _, bag in kept], np.int32), (lengths > 0).sum(1)


def sparse_sum(rows: Any, bag_numbers: Any, counts: Any, bags: int) -> Any:
    """Sum [bags, D] of packed rows [n, D], in float64; a source's rows follow those of the source before."""
    out = np.zeros((bags, rows.shape[1]))
    for row in range(int(counts.sum())):
        out[bag_numbers[row]] += rows[row]
    return out
