"""Ids to look up: distribution, bag lengths, and enough sets that caches do not shorten times.

A *set* is the look-up of one rank in one call: ids in the order table, sample, and the length of every bag.
Calls rotate through sets, so that a table larger than the cache is read from memory in every call, as it is
when every batch is new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.planning.kernel_cells import ELEMENT_BYTES, lookups
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import LookupWork

Ids = NDArray[np.int64]

COLD_BYTES = 256 * 2**20
"""Rows that all sets together touch [bytes], so that the rows of a call leave the cache before they recur."""

FEWEST_SETS, MOST_SETS, MOST_IDS = 4, 256, 2**22
"""Fewest and most sets, and most ids of all sets together. A visit makes at most 200 calls; the next visit
starts at another set."""
_ZIPF_HEAD = 2**16


@dataclass(frozen=True)
class IdSet:
    """The look-up of one rank in one call.

    ids      numbers of rows in their own table, bag after bag [n]
    lengths  number of ids of each bag, table by table [tables x samples]
    """

    ids: Ids
    lengths: Ids


def draw_ids(n: int, rows: int, distribution: str, rng: np.random.Generator) -> Ids:
    """``n`` row numbers below ``rows``, drawn from ``distribution``: uniform, one-row or zipf:ALPHA.

    zipf    p(k) ~ k^-ALPHA for the k-th most popular row; popular rows are scattered over the table
    Raises BadInputError for an unknown distribution or an ALPHA that is no positive number.
    """
    if distribution == "uniform":
        return rng.integers(0, rows, n)
    if distribution == "one-row":
        return np.full(n, rows // 2, dtype=np.int64)
    ranks = _zipf_ranks(n, rows, _alpha(distribution), rng)
    return _scattered(ranks, rows)


def bag_lengths(bags: int, pooling: float, rng: np.random.Generator) -> Ids:
    """Number of ids of each of ``bags`` bags, on average ``pooling``.

    An integer ``pooling`` gives equal bags; otherwise round(bags pooling) ids fall into bags at random.
    Limits: pooling 2 -> every bag 2;  pooling 0.5 -> about e^-0.5 of the bags are empty
    """
    if float(pooling).is_integer() and pooling > 0:
        return np.full(bags, int(pooling), dtype=np.int64)
    thrown = rng.integers(0, bags, max(1, round(bags * pooling)))
    return np.bincount(thrown, minlength=bags)


def draw_set(work: LookupWork, rng: np.random.Generator) -> IdSet:
    """Random ids for one call on one rank; every set has ``kernel_cells.lookups(work)`` ids."""
    lengths = bag_lengths(work.batch * work.tables, work.pooling, rng)
    return IdSet(draw_ids(int(lengths.sum()), work.rows, work.distribution, rng), lengths)


def draw_sets(work: LookupWork, dtype: str, seed: int, most_sets: int = MOST_SETS) -> list[IdSet]:
    """``set_count`` sets of random ids, at most ``most_sets``, to look up in turn; equal for equal seeds."""
    rng = np.random.default_rng(seed)
    return [draw_set(work, rng) for _ in range(min(most_sets, set_count(work, dtype)))]


def set_count(work: LookupWork, dtype: str) -> int:
    """Number of sets (4 to 256) that together read ``COLD_BYTES`` of rows; above 4, at most 4 Mi ids."""
    n = lookups(work)
    wanted = math.ceil(COLD_BYTES / (n * work.dim * ELEMENT_BYTES[dtype]))
    return max(FEWEST_SETS, min(wanted, MOST_SETS, MOST_IDS // n))


def table_copies(table_bytes: int, sets: int) -> int:
    """Number of copies of a table on a GPU, so that consecutive calls read different memory.

    sets  number of sets of ids; each set reads one copy
    Limits: a table of COLD_BYTES or more -> 1; at most the number of sets
    """
    return max(1, min(math.ceil(COLD_BYTES / table_bytes), sets))


def _alpha(distribution: str) -> float:
    name, _, text = distribution.partition(":")
    try:
        alpha = float(text)
    except ValueError:
        alpha = -1.0
    if name != "zipf" or not 0 < alpha < math.inf:
        raise BadInputError(
            f"unknown distribution of ids {distribution!r}.",
            "known: uniform, one-row, zipf:ALPHA with a positive ALPHA, like zipf:1.05.",
        )
    return alpha


def _zipf_ranks(n: int, rows: int, alpha: float, rng: np.random.Generator) -> Ids:
    """``n`` random popularity ranks from 0 (the most popular) to rows - 1, with p(k) ~ k^-alpha.

    The probabilities of the first 65536 ranks are exact; all others come from the integral of k^-alpha.
    """
    head = min(rows, _ZIPF_HEAD)
    weights = np.arange(1, head + 1, dtype=np.float64) ** -alpha
    cumulative = np.cumsum(weights)
    tail = _power_integral(head + 0.5, rows + 0.5, alpha)
    u = rng.random(n) * (cumulative[-1] + tail)
    ranks = np.searchsorted(cumulative, u, side="right")
    beyond = u >= cumulative[-1]
    if beyond.any():
        left = u[beyond] - cumulative[-1]
        ranks[beyond] = np.round(_power_inverse(head + 0.5, left, alpha)) - 1
    return np.asarray(np.minimum(ranks, rows - 1), dtype=np.int64)


def _power_integral(low: float, high: float, alpha: float) -> float:
    if math.isclose(alpha, 1):
        return math.log(high / low)
    return float((high ** (1 - alpha) - low ** (1 - alpha)) / (1 - alpha))


def _power_inverse(low: float, area: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """x such that the integral of k^-alpha from ``low`` to x equals ``area``."""
    if math.isclose(alpha, 1):
        return np.asarray(low * np.exp(area))
    return np.asarray((low ** (1 - alpha) + area * (1 - alpha)) ** (1 / (1 - alpha)))


def _scattered(ranks: Ids, rows: int) -> Ids:
    """Row numbers for popularity ranks, so that popular rows are not neighbours in the table."""
    step = max(1, int(rows * 0.6180339887))
    while math.gcd(step, rows) != 1:
        step += 1
    return np.asarray((ranks * step + rows // 3) % rows)
