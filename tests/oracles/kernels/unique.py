"""The different ids of each bucket, one id after the other: what the kernels of unique.cu must give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def unique(ids: Any, offsets: Any) -> tuple[Any, Any, Any, list[int]]:
    """Different ids [u], inverse [n], counts [K] of ids [n] in buckets at offsets [K + 1]; faults."""
    different, inverse, counts, faults = [], [], [], []
    for begin, end in pairwise(offsets):
        number_of: dict[int, int] = {}
        for position in range(begin, end):
            if ids[position] < 0:
                faults.append(position)
                inverse.append(-1)
            else:
                inverse.append(number_of.setdefault(int(ids[position]), len(number_of)))
        different += list(number_of)
        counts.append(len(number_of))
    return np.array(different, ids.dtype), np.array(inverse, np.int64), np.array(counts, np.int64), faults
