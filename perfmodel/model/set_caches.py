"""Rows that a set-associative cache misses, batch after batch: FBGEMM's cache in HBM of some of the rows.

A row's set is drawn by its hash, so the other rows of its set are a Poisson sample of all rows. A batch asks
for a row once, however many of its look-ups have it: first all rows that are in the cache are located and
kept, then the others are brought in. Tables that share a cache are bins side by side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.caching import cold_misses

Array = NDArray[np.float64]

_MANY_BINS = 2**14
"""Number of bins above which bins of nearly equal rate are merged. Each bin is evaluated at each gap: 2^14
bins at ``_GAPS`` gaps are 21 MB of doubles, and each of sixty tables with its own bins has 250."""
_NEAR = 0.01
"""Largest difference of the logarithms of rates that are merged, about 1 %. The misses of a bin are a smooth
function of the logarithm of its rate, so a straight line over one such step errs by its square."""
_GAPS = 160
"""Numbers of batches at which the survival of a row is evaluated, evenly in the logarithm, each 1.23 times
the one before. A row's set fills over a factor of about 1 + 2 / sqrt(W), which is 1.35 for 32 ways."""
_WHOLE_GAPS = 16
"""Up to this many batches, every gap is evaluated, with the rows that were requested in the same batch as the
row. In longer gaps such rows are less than 1 / 16 of all requested rows, and half of them are counted."""
_MOST_GAPS = 2.0**48
"""The longest gap. A row that is asked for less than once in so many batches is neglected."""
_SAME = 1e-9  # a difference of a chance, or of a number of rows, that is negligible
_LEAST_LOG = -700.0  # of a share: still a double


def asked_rate(p: ArrayLike, n: ArrayLike) -> Array:
    """Rate at which batches ask for a row: with chance 1 - exp(-k a), at least one of k batches does.

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
    """Chance that a row has left its set after some number of other rows were asked for.

        P(Poisson(U / S) >= W)                                                [-]

    others  U, other rows of the whole table asked for since the row was last asked for [rows], any shape
    sets    S, sets of the cache [-];  ways  W, rows of a set [rows]
    Source: Smith, "A comparative study of set associative memory mapping", IEEE TSE 4 (1978), with the
    binomial number of others in the set in its Poisson limit: a set has a small part of many rows
    Limits: U = 0 -> 0;  U -> inf -> 1;  W -> inf at S W = X -> 0 below U = X, 1 above (``caching``)
    """
    return np.asarray(_poisson_above(ways - 1, np.asarray(others, dtype=np.float64) / np.asarray(sets)))


def evicted_between(few: ArrayLike, many: ArrayLike, sets: ArrayLike, ways: float) -> Array:
    """Chance that a row has left its set, where the rows of one batch are evicted in any order.

        mean of P(Poisson(u / S) >= W) for u from U_0 to U_1                  [-]
        integral from 0 to x of P(Poisson(t) >= W) dt = x P(Poisson(x) >= W) - W P(Poisson(x) > W)

    few   U_0, other rows asked for in later batches than the row [rows];  many  U_1, U_0 and rows that only
          the row's own batch asked for: a uniform share of these, from 0 to 1, is evicted after the row
    sets, ways  as in ``evicted_chance``
    Source: derived; FBGEMM marks all rows of a batch with one time (``lru_cache_insert_kernel``)
    Limits: U_1 -> U_0 -> ``evicted_chance``;  U_0 = U_1 = 0 -> 0
    """
    low, high = (np.asarray(np.asarray(u, dtype=np.float64) / np.asarray(sets)) for u in (few, many))
    apart = high - low
    near = apart <= _SAME * high
    between = (_evicted_sum(high, ways) - _evicted_sum(low, ways)) / np.where(near, 1.0, apart)
    return np.where(near, _poisson_above(ways - 1, high), np.clip(between, 0, 1))


def lru_batch_misses(
    a: ArrayLike, rows: ArrayLike, sets: float, ways: float, repeat: float = _MOST_GAPS
) -> Array:
    """Rows of each bin that miss when a batch asks for them, in a warm least-recently-used cache of S sets.

        m = rows q (1 - x),   x = A y / (1 - A (1 - y))                       [rows]
        A = sum over k of P(gap = k) (1 - e_k) / (1 - e_1),   P(gap = k) = q (1 - q)^(k - 1)
        e_k = ``evicted_between``(U(k - 1), U(k)),   q = 1 - exp(-a)

    x  chance that a row is in the cache: it was asked for k batches ago, and was or became cached then. A
       share y of the missed rows gets a place, since a set keeps at most W of the rows that a batch asks for,
       cached rows first. y is solved for a full cache: the sum of rows x equals the sum of rows A (1 - e_1),
       min(N, W) rows of a set to which N rows belong
    a, rows  as in ``rows_asked``;  sets, ways  S, W of the cache
    repeat   batches after which the same batches recur: no gap is longer [-]
    Source: derived from the order in FBGEMM: ``lru_cache_find_uncached`` before ``lru_cache_insert_kernel``
    Limits: batches of one draw -> ``caching.miss_ratio`` as W -> inf;  S -> inf -> 0;  S -> 0 -> rows q;
            no batch asks for more than W rows of a set -> y = 1, x = A;
            above ``_MANY_BINS`` bins, bins of nearly equal rate are merged, and the others are interpolated
            linearly in log a: within 2e-5 of all bins
    """
    rate, count = np.asarray(a, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    if rate.size > _MANY_BINS and np.all(np.isfinite(rate) & (rate > 0) & (count > 0)):
        near, there = _merged(rate, count)
        part = lru_batch_misses(near, there, sets, ways, repeat) / there
        return np.asarray(count * np.interp(np.log(rate), np.log(near), part))
    asked = np.asarray(count * -np.expm1(-rate))
    gaps, gone = _evicted_after(rate, count, sets, ways, repeat)
    if gone[0] >= 1 - _SAME:
        return asked
    middle = np.sqrt(gaps[:-1] * np.maximum(gaps[1:] - 1, gaps[:-1]))
    left = np.exp(-np.multiply.outer(rate, middle)) @ np.diff(gone)
    return np.asarray(asked * _absent(np.clip(left / (1 - gone[0]), 0, 1), count, float(gone[0])))


def _evicted_after(rate: Array, rows: Array, sets: float, ways: float, repeat: float) -> tuple[Array, Array]:
    """Gaps k [batches], increasing, and e_k: chance that a row is evicted before it is asked for again."""
    longest = min(repeat, _MOST_GAPS)
    gaps = np.unique(np.round(np.geomspace(1, longest, _GAPS)))
    gaps = np.union1d(np.arange(1.0, min(longest, _WHOLE_GAPS) + 1), gaps)
    short = gaps <= _WHOLE_GAPS
    edges = np.append(0.0, gaps[short])
    seen = rows_asked(rate, rows, np.concatenate([edges, gaps[~short] - 1 / 2]))
    first, later = seen[: edges.size], seen[edges.size :]
    gone = evicted_between(first[:-1], first[1:], sets, ways)
    return gaps, np.concatenate([gone, evicted_chance(later, sets, ways)])


def _absent(leaves: Array, rows: Array, overflow: float) -> Array:
    """Chance 1 - x of each bin that a row is not in the cache, with y such that the cache is just full.

        1 - x = (1 - A) / (1 - A (1 - y))                                     [-]

    leaves    1 - A of each bin [-];  overflow  e_1, share of a batch's rows that exceed W in their set [-]
    x, A, y   as in ``lru_batch_misses``
    Limits: overflow = 0 -> y = 1 -> 1 - A;  rows that every batch asks for do not fit -> e_1 of them
    """
    if overflow <= _SAME:
        return leaves
    from scipy.optimize import brentq

    held = float((1 - overflow) * (rows @ (1 - leaves)))

    def absent(log_y: float) -> Array:
        return np.asarray(leaves / (leaves + (1 - leaves) * np.exp(log_y)))

    def over(log_y: float) -> float:
        return float(rows @ (1 - absent(log_y))) - held

    if over(_LEAST_LOG) >= 0:
        return 1 - (1 - leaves) * (1 - overflow)
    return absent(float(brentq(over, _LEAST_LOG, 0.0)))


def _merged(rate: Array, rows: Array) -> tuple[Array, Array]:
    """(rate, rows) of bins, where bins with nearly equal rates (``_NEAR`` in the logarithm) are merged."""
    where = np.unique(np.floor(np.log(rate) / _NEAR), return_inverse=True)[1]
    there = np.asarray(np.bincount(where, weights=rows), dtype=np.float64)
    return np.bincount(where, weights=rows * rate) / there, there


def lfu_absent(a: ArrayLike, rows: ArrayLike, sets: float, ways: float) -> Array:
    """Rows of each bin that have no place in a least-frequently-used cache.

        z = integral over the bin of P(Poisson(v / S) >= W) dv                [rows]
        integral from 0 to x of P(Poisson(t) >= W) dt = x P(Poisson(x) >= W) - W P(Poisson(x) > W)

    v  rows that are asked for more often [rows]: a set keeps its W most popular rows
    a, rows, sets, ways  as in ``lru_batch_misses``: S sets of W rows
    Source: derived; the counts of many batches decide: then no row takes another's place
    Limits: S W >> rows -> 0;  W -> inf at S W = X -> the rows beyond the X most popular;  S -> 0 -> rows
    """
    rate, count = np.asarray(a, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    order = np.argsort(-rate, kind="stable")
    left = _evicted_sum(np.concatenate([[0.0], np.cumsum(count[order])]) / sets, ways)
    absent = np.empty(rate.shape)
    absent[order] = np.clip(np.diff(left) * sets, 0, count[order])
    return absent


def lfu_batch_misses(a: ArrayLike, rows: ArrayLike, sets: float, ways: float) -> Array:
    """Distinct rows of each bin that a batch asks for and that miss a least-frequently-used cache.

        m = q z,   q = 1 - exp(-a)                                            [rows]

    z  ``lfu_absent``;  a, rows, sets, ways  as in ``lfu_absent``
    Source: derived
    Limits: S W >> rows -> 0;  S -> 0 -> rows q
    """
    return lfu_absent(a, rows, sets, ways) * -np.expm1(-np.asarray(a, dtype=np.float64))


def lfu_reads(a: ArrayLike, absent: ArrayLike, n: float, X: float) -> float:
    """Reads over the link of rows that have no place in a cache: each look-up reads its row in place.

        ``caching.cold_misses`` of z rows at p = 1 - exp(-a / n)              [rows]

    a  ``asked_rate`` [1/batch];  absent  z, ``lfu_absent`` of each bin [rows];  n  draws of a batch [-], > 0
    X  rows in flight at once (``tiers.rows_in_flight``): a second read of one of them waits for the first
    Source: FBGEMM 1.8, forward kernels: a look-up whose ``lxu_cache_locations`` says missing reads
            ``uvm_weights``
    Limits: X = 0 -> n sum of z p;  X -> inf -> sum of z q;  z = all rows -> as a table without a cache
    """
    gone = np.asarray(absent, dtype=np.float64)
    if not gone.any():
        return 0.0
    p = -np.expm1(-np.asarray(a, dtype=np.float64) / n)
    some = gone > 0
    return float(cold_misses(p[some], gone[some], n, X))


def _evicted_sum(x: Array, ways: float) -> Array:
    """Integral from 0 to x of P(Poisson(t) >= W) dt."""
    return np.asarray(x * _poisson_above(ways - 1, x) - ways * _poisson_above(ways, x))


def _poisson_above(k: float, mean: Array) -> Array:
    """P(Poisson(mean) > k). scipy is imported here: a question without a tier does not wait for it."""
    from scipy.special import pdtrc

    return np.asarray(pdtrc(k, mean))
