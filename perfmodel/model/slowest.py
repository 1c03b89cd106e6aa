"""The slowest of many cores, most of which do the same: ``one_chip.slowest_core`` for many cases at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_FAR, _POINTS = 6.0, 400
"""Standard deviations above the mean, and points, of the sum over normal numbers."""


def slowest_of_alike(mean: ArrayLike, variance: ArrayLike, count: ArrayLike) -> Array:
    """Time until the last core is ready, where ``count`` cores of each of G groups are alike.

        t = max m + integral over x > max m of 1 - prod Phi((x - m) / s)^n
                  - integral over x < max m of prod Phi((x - m) / s)^n        [s]

    mean  m of a core of each group [s], shape [..., G];  variance  s^2 of it [s^2];  count  n, cores [G]
    Source: ``one_chip.slowest_core``
    Limits: n = 1 -> ``one_chip.slowest_core``;  n = 0 -> as if there was no such group;
            variance 0 -> the busiest
    """
    many = np.asarray(count, dtype=np.float64)
    some = many > 0
    m, s = (np.asarray(a, dtype=np.float64)[..., some] for a in (mean, variance))
    s, many = np.sqrt(s), many[some]
    out = np.asarray(np.max(m, axis=-1, initial=0))
    varied = np.any(s > 0, axis=-1)
    if varied.any():
        out[varied] = np.maximum(out[varied], _summed(m[varied], s[varied], many))
    return out


def _summed(m: Array, s: Array, count: Array) -> Array:
    """Mean of the largest, over a grid of points from the largest that does not vary."""
    from scipy.special import log_ndtr

    still = np.max(np.where(s > 0, 0, m), axis=-1, initial=0)
    high = np.maximum(np.max(m + _FAR * s, axis=-1), still)
    step = (high - still) / _POINTS
    middle = still[..., np.newaxis] + step[..., np.newaxis] * (np.arange(_POINTS) + 0.5)
    away = (middle[..., np.newaxis, :] - m[..., np.newaxis]) / np.where(s > 0, s, 1)[..., np.newaxis]
    below = np.where(s[..., np.newaxis] > 0, log_ndtr(away), 0) * count[:, np.newaxis]
    above = -np.expm1(np.sum(below, axis=-2))
    return np.asarray(still + np.sum(above, axis=-1) * step)
