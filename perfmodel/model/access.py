"""Which rows a batch touches: distinct rows, rows that stay in the L2 cache, shards that a bag reaches."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model.recording import Array, as_array


def compute_touched_share(p: ArrayLike, n: ArrayLike) -> Array:
    """Chance that an event of probability p happens at least once in n independent draws.

        q = 1 - (1 - p)^n                                                     [-]

    p      probability of one draw [-], array of any shape, broadcast against n
    n      draws [-], > 0 (a mean, so it need not be whole)
    Source: elementary probability; -expm1(n log1p(-p)) keeps its digits when p is tiny
    Limits: n = 1 -> p;  p = 1 -> 1;  p -> 0 -> n p;  n -> inf -> 1
    """
    with np.errstate(divide="ignore"):
        return -np.expm1(as_array(n) * np.log1p(-as_array(p)))


def count_unique_uniform(E: ArrayLike, n: ArrayLike) -> Array:
    """Expected distinct rows among n uniform draws from a table of E rows.

        U = E (1 - (1 - 1/E)^n)                                               [rows]

    E      rows of the table [rows], >= 1
    n      look-ups [-], > 0
    Source: Lin et al., arXiv 2201.07821 (owensgroup/ml_perf_model)
    Limits: n = 1 -> 1;  E = 1 -> 1;  E -> inf -> n;  n -> inf -> E
    """
    rows = as_array(E)
    return rows * compute_touched_share(1 / rows, n)


def build_zipf_bins(E: float, s: float, bins_per_octave: int) -> tuple[Array, Array]:
    """(probability of a row per draw, rows with that probability), by bin, for E rows under Zipf's law.

        p_v = v^-s / sum_u u^-s                                               [-]

    E      rows of the table [rows], >= 1 (whole part taken);  s  skew [-], 0 = uniform
    bins_per_octave  ranks up to this number have a bin each; above it every doubling of the rank is cut into
                     this many bins, each standing for its rows at their geometric mean rank
    Returns two arrays [bins]: p and the rows of each bin; sum of their product is 1.
    Source: p(v) ~ v^-s as in EMBark (RecSys 2024) and cuEmbed's benchmark
    Limits: s = 0 -> all p = 1/E;  E = 1 -> p = 1;  E <= bins_per_octave -> a bin for each rank
    """
    most = int(E)
    head = np.arange(1, min(most, bins_per_octave) + 1, dtype=np.float64)
    octaves = np.log2(most / head[-1])
    steps = np.linspace(0, octaves, int(np.ceil(octaves * bins_per_octave)) + 1)
    edges = np.unique(np.round(head[-1] * 2**steps))
    ranks = np.concatenate([head, np.sqrt((edges[:-1] + 1) * edges[1:])])
    counts = np.concatenate([np.ones_like(head), np.diff(edges)])
    weight = ranks**-s
    return weight / np.sum(weight * counts), counts


def count_unique_rows(p: ArrayLike, rows: ArrayLike, n: ArrayLike) -> Array:
    """Expected distinct rows among n draws.

        U(n) = sum over bins of rows (1 - (1 - p)^n)                          [rows]

    p, rows   probability of a row and number of such rows, arrays [bins];  n  draws [-], any shape
    Source: linearity of expectation
    Limits: n = 1 -> 1;  one bin of E rows -> ``count_unique_uniform``;  n -> inf -> all rows
    """
    draws = as_array(n)[..., np.newaxis]
    return np.asarray(np.sum(as_array(rows) * compute_touched_share(as_array(p), draws), axis=-1))


def count_resident_rows(E: ArrayLike, n: ArrayLike, row_bytes: ArrayLike, cache_bytes: ArrayLike) -> Array:
    """Rows of one table that the L2 cache holds while n look-ups run.

        X = min(cache_bytes / row_bytes, E, n)                                [rows]

    E            rows of the table [rows];  n  look-ups [-];  row_bytes  of one row [bytes]
    cache_bytes  the share of the L2 that this table gets [bytes]: (usable part) L2 / tables in flight
    Source: Lin et al., arXiv 2201.07821
    Limits: no cache -> 0;  cache_bytes -> inf -> min(E, n)
    """
    return np.minimum(np.minimum(as_array(cache_bytes) / as_array(row_bytes), as_array(E)), as_array(n))


def compute_hit_ratio(E: ArrayLike, n: ArrayLike, X: ArrayLike, U: ArrayLike) -> Array:
    """Fraction of n uniform look-ups that find their row in the L2 cache.

        hit = 1 - U/n                                     if U <= X  (every row is fetched once)
        hit = 1 - [X + (n - T)(E - X)/E] / n              if U > X   (X rows fetched once, the rest by luck)
        T = ln(1 - X/E) / ln(1 - 1/E): draws that ask for X different rows, and so fill the cache

    E      rows of the table [rows];  n  look-ups [-], > 0
    X      rows that stay in the cache [rows];  U  distinct rows of the n look-ups [rows]
    Source: Lin et al., arXiv 2201.07821 (owensgroup/ml_perf_model), who have X for T: up to 18 % more misses
    than a simulated cache (tests/model/test_popularity.py); T is ``find_characteristic_draws``
    Limits: X = 0 -> 0;  E = 1 with X = 1 -> 1 - 1/n;  E -> inf -> 0;  n (1 - hit) never falls as n grows
    """
    rows = as_array(E)
    draws = as_array(n)
    resident = as_array(X)
    unique = as_array(U)
    with np.errstate(divide="ignore", invalid="ignore"):
        filling = np.log1p(-resident / rows) / np.log1p(-1 / rows)
        later = resident + (draws - filling) * (rows - resident) / rows
    misses = np.where(unique <= resident, unique, later)
    return np.maximum(1 - misses / draws, 0)


_HALVINGS = 80  # of an interval of draws: more than a float can tell


def find_characteristic_draws(p: ArrayLike, rows: ArrayLike, X: ArrayLike) -> Array:
    """Draws that ask for X distinct rows: how long a row stays in a cache of X rows.

        T_c with U(T_c) = X                                                   [draws]

    p, rows   as in ``access.count_unique_rows``;  X  rows that the cache holds [rows], any shape
    Source: Che, Tung, Wang, "Hierarchical Web Caching Systems", IEEE JSAC 20 (2002): characteristic time
    Limits: X = 1 -> 1;  X = 0 -> 0;  X >= all rows -> inf;  equal p = 1/E -> ln(1 - X/E) / ln(1 - 1/E)
    """
    held = as_array(X)
    every = float(np.sum(as_array(rows)))
    low = np.zeros(held.shape)
    high = np.full(held.shape, 2.0)
    finite = held < every * (1 - np.finfo(np.float64).eps)
    # The number of draws is between low and high: high doubles until it is, then the interval halves.
    while np.any(short := finite & (count_unique_rows(p, rows, high) < held)):
        high = np.where(short, 2 * high, high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = count_unique_rows(p, rows, middle) < held
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return np.where(finite, np.where(held, (low + high) / 2, 0), np.inf)


def count_cache_misses(p: ArrayLike, rows: ArrayLike, n: float, X: ArrayLike) -> Array:
    """Rows that a batch of n look-ups brings into a warm LRU cache of X rows, each once.

        m = sum over bins of rows (1 - (1 - p)^n) (1 - p)^T_c                 [rows]

    p, rows   as in ``count_unique_rows``;  X  rows that the cache holds [rows], any shape
    T_c  ``find_characteristic_draws``: a row stays that long without a look-up
    Source: Che et al. (2002): a distinct row of the batch that was not asked for in the T_c draws before
    Limits: X = 0 -> U(n);  X >= all rows -> 0;  equal p -> U(n) (1 - X/E);  n = 1 -> chance of a miss
    """
    p = as_array(p)
    rows = as_array(rows)
    stays = find_characteristic_draws(p, rows, X)[..., np.newaxis]
    with np.errstate(divide="ignore", invalid="ignore"):
        absent = np.where(stays, np.exp(stays * np.log1p(-p)), 1.0)
    missed = np.sum(rows * compute_touched_share(p, n) * absent, axis=-1)
    return np.asarray(np.minimum(missed, count_unique_rows(p, rows, n)))
