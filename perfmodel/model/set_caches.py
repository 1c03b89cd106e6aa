"""Rows that a set-associative cache misses, batch after batch: FBGEMM's cache of a share of the rows in HBM.

A row's set is drawn by its hash, so the other rows of its set are a Poisson sample of all rows. A batch asks
for a row once, however often its look-ups have it. Tables that share a cache are bins side by side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_MANY_BINS = 2**14
"""Bins from which on those of nearly one rate are merged. Each bin is evaluated at each gap: 2^14 bins at
``_GAPS`` gaps are 21 MB of doubles, and each of sixty tables in bins of its own has 250."""
_NEAR = 0.01
"""How near rates are that are merged, in the logarithm: about 1 %. What a bin misses is a smooth function
of the logarithm of its rate, so a straight line over one such step errs by its square."""
_GAPS = 160
"""Numbers of batches at which the survival of a row is evaluated, evenly in the logarithm, each 1.23 times
the one before. A row's set fills over a factor of about 1 + 2 / sqrt(W), which is 1.35 for 32 ways."""
_MOST_GAPS = 2.0**48
"""The longest gap. A row that is asked for more rarely than once in so many batches adds nothing."""


def asked_rate(p: ArrayLike, n: ArrayLike) -> Array:
    """Rate at which batches ask for a row: in k batches it is asked for with chance 1 - exp(-k a).

        a = -n ln(1 - p)                                                      [1/batch]

    p  probability of one draw of the row [-], array [bins];  n  draws of a batch from its table [-], > 0
    Source: n independent draws; k batches are k n of them
    Limits: p -> 0 -> n p;  p = 1 -> inf
    """
    with np.errstate(divide="ignore"):
        return -np.asarray(n, dtype=np.float64) * np.log1p(-np.asarray(p, dtype=np.float64))


def rows_asked(a: ArrayLike, rows: ArrayLike, k: ArrayLike) -> Array:
    """Distinct rows that k batches ask for.

        U(k) = sum over bins of rows (1 - exp(-k a))                          [rows]

    a  ``asked_rate`` of each bin [1/batch];  rows  of each bin [rows];  k  batches, any shape
    Source: ``access.unique_rows`` of k n draws
    Limits: k = 0 -> 0;  k -> inf -> all rows
    """
    with np.errstate(invalid="ignore"):
        asked = np.multiply.outer(np.asarray(k, dtype=np.float64), np.asarray(a, dtype=np.float64))
    return np.asarray(-np.expm1(-np.nan_to_num(asked, nan=0.0)) @ np.asarray(rows, dtype=np.float64))


def evicted_chance(others: ArrayLike, sets: ArrayLike, ways: float) -> Array:
    """Chance that a row has left its set after so many other rows were asked for.

        P(Poisson(U / S) >= W)                                                [-]

    others  U, other rows of the whole table asked for since the row was [rows], any shape
    sets    S, sets of the cache [-];  ways  W, rows of a set [rows]
    Source: Smith, "A comparative study of set associative memory mapping", IEEE TSE 4 (1978), with the
    binomial number of others in the set in its Poisson limit: a set has a small part of many rows
    Limits: U = 0 -> 0;  U -> inf -> 1;  W -> inf at S W = X -> 0 below U = X, 1 above (``caching``)
    """
    return np.asarray(_poisson_above(ways - 1, np.asarray(others, dtype=np.float64) / np.asarray(sets)))


def lru_batch_misses(
    a: ArrayLike, rows: ArrayLike, sets: float, ways: float, repeat: float = _MOST_GAPS
) -> Array:
    """Rows of each bin that a batch brings into a warm least-recently-used cache of S sets.

        m = rows q sum over k of P(gap = k) P(Poisson(U(k) / S) >= W)       [rows]
        q = 1 - exp(-a),   P(gap = k) = q (1 - q)^(k - 1)

    a, rows  as in ``rows_asked``;  sets, ways  S, W of the cache
    repeat   batches after which the same batches come again: no gap is longer [-]
    Source: ``evicted_chance`` over the gaps between two batches that ask for a row (derived)
    Limits: batches of one draw -> ``caching.miss_ratio`` as W -> inf;  S -> inf -> 0;  S -> 0 -> rows q;
    above ``_MANY_BINS`` bins those of nearly one rate are one, and what lies between follows a straight line
    in log a: within 2e-5 of all bins
    """
    rate, count = np.asarray(a, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    if rate.size > _MANY_BINS and np.all(np.isfinite(rate) & (rate > 0) & (count > 0)):
        near, there = _merged(rate, count)
        part = lru_batch_misses(near, there, sets, ways, repeat) / there
        return np.asarray(count * np.interp(np.log(rate), np.log(near), part))
    gaps = np.unique(np.round(np.geomspace(1, min(repeat, _MOST_GAPS), _GAPS)))
    gone = evicted_chance(rows_asked(rate, rows, gaps), sets, ways)
    middle = np.sqrt(gaps[:-1] * np.maximum(gaps[1:] - 1, gaps[:-1]))
    later = np.exp(-np.multiply.outer(rate, middle)) @ np.diff(gone)
    return np.asarray(np.asarray(rows) * -np.expm1(-rate) * np.clip(gone[0] + later, 0, 1))


def _merged(rate: Array, rows: Array) -> tuple[Array, Array]:
    """Bins of ``_NEAR`` in the logarithm of their rate as one each: mean rate of their rows, and all rows."""
    where = np.unique(np.floor(np.log(rate) / _NEAR), return_inverse=True)[1]
    there = np.asarray(np.bincount(where, weights=rows), dtype=np.float64)
    return np.bincount(where, weights=rows * rate) / there, there


def lfu_batch_misses(a: ArrayLike, rows: ArrayLike, sets: float, ways: float) -> Array:
    """Distinct rows of each bin that a batch asks for and a least-frequently-used cache has not.

        m = q integral over the bin of P(Poisson(v / S) >= W) dv              [rows]
        integral from 0 to x of P(Poisson(t) >= W) dt = x P(Poisson(x) >= W) - W P(Poisson(x) > W)

    v  rows that are asked for more often [rows]: a set keeps the W most popular of its own
    a, rows, sets, ways  as in ``lru_batch_misses``: S sets of W rows
    Source: derived; the counts that decide are those of many batches
    Limits: S W >> rows -> 0;  W -> inf at S W = X -> the rows beyond the X most popular;  S -> 0 -> rows q
    """
    rate, count = np.asarray(a, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    order = np.argsort(-rate, kind="stable")
    x = np.concatenate([[0.0], np.cumsum(count[order])]) / sets
    left = x * _poisson_above(ways - 1, x) - ways * _poisson_above(ways, x)
    missed = np.empty(rate.shape)
    missed[order] = np.clip(np.diff(left) * sets, 0, count[order])
    return missed * -np.expm1(-rate)


def _poisson_above(k: float, mean: Array) -> Array:
    """P(Poisson(mean) > k). scipy is imported here: a question without a tier does not wait for it."""
    from scipy.special import pdtrc

    return np.asarray(pdtrc(k, mean))
