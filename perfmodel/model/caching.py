"""Rows that a cache misses, for ids of any popularity: the characteristic time of an LRU cache.

A row stays in a cache of X rows until X other rows have been asked for. T draws ask for U(T) distinct rows;
so T_c with U(T_c) = X is about how long any row stays in the cache. A draw of a row with probability p then
misses with chance (1 - p)^T_c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.access import unique_rows

Array = NDArray[np.float64]

_HALVINGS = 80


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def characteristic_draws(p: ArrayLike, rows: ArrayLike, X: ArrayLike) -> Array:
    """Draws that ask for X distinct rows: how long a row stays in a cache of X rows.

        T_c with U(T_c) = X                                                   [draws]

    p, rows   as in ``access.unique_rows``;  X  rows that the cache holds [rows], any shape
    Source: Che, Tung, Wang, "Hierarchical Web Caching Systems", IEEE JSAC 20 (2002): characteristic time
    Limits: X = 1 -> 1;  X = 0 -> 0;  X >= all rows -> inf;  equal p = 1/E -> ln(1 - X/E) / ln(1 - 1/E)
    """
    held, every = _array(X), float(np.sum(_array(rows)))
    low, high = np.zeros(held.shape), np.full(held.shape, 2.0)
    finite = held < every * (1 - np.finfo(np.float64).eps)
    while np.any(short := finite & (unique_rows(p, rows, high) < held)):
        high = np.where(short, 2 * high, high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = unique_rows(p, rows, middle) < held
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(finite, np.where(held > 0, (low + high) / 2, 0), np.inf)


def miss_ratio(p: ArrayLike, rows: ArrayLike, T: ArrayLike) -> Array:
    """Chance that a draw misses, in a cache that has already seen many draws of the same popularity.

        m = sum over bins of rows p (1 - p)^T_c                               [-]

    p, rows   as in ``access.unique_rows``;  T  T_c of ``characteristic_draws`` [draws], any shape
    Source: Che et al. (2002)
    Limits: T = 0 -> 1;  T -> inf -> 0;  equal p = 1/E -> 1 - X/E
    """
    stays = _array(T)[..., np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        gone = np.exp(np.where(stays > 0, stays * np.log1p(-_array(p)), 0))
    return np.asarray(np.sum(_array(rows) * _array(p) * gone, axis=-1))


def cold_misses(p: ArrayLike, rows: ArrayLike, n: ArrayLike, X: ArrayLike) -> Array:
    """Misses of n draws in a cache of X rows that is empty at first.

        U(n)                         if n <= T_c  (nothing that was asked for has left yet)
        max(U(n), X + (n - T_c) m)   if n > T_c  (every row is missed once)   [rows]

    p, rows   as in ``access.unique_rows``;  n  draws [-]; it and X broadcast
    X         rows that the cache holds [rows]: 0, or at least 1
    Source: Che et al. (2002) for m and T_c; Lin et al., arXiv 2201.07821 has X for T_c
    Limits: X = 0 -> n;  X >= all rows -> U(n);  n = 1 -> 1
    """
    draws, held = np.broadcast_arrays(_array(n), _array(X))
    stays = characteristic_draws(p, rows, held)
    with np.errstate(invalid="ignore"):
        later = held + (draws - stays) * miss_ratio(p, rows, stays)
    once = unique_rows(p, rows, draws)
    return np.where(draws <= stays, once, np.maximum(once, later))
