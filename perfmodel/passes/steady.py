"""Numbers that a search compares are rounded, because the last bits of a sum depend on the CPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_BITS = 20  # of 52 that are dropped: about 10 decimal digits stay
_HALF = np.int64(1 << (_BITS - 1))
_KEPT = np.int64(-(1 << _BITS))


def steady(values: Array) -> Array:
    """Values rounded to 33 significant bits, ties away from 0.

    Values that differ by rounding alone become equal, except the few in a million at an edge.
    Limits: 0, infinities -> unchanged;  relative change -> at most 2^-33
    """
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.asarray(((bits + _HALF) & _KEPT).view(np.float64))
