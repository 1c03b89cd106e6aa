"""Popularity of the rows of a table, most popular first: shares of look-ups and cache misses of any rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.access import touched_fraction, unique_rows
from perfmodel.model.caching import characteristic_draws
from perfmodel.model.popularity import popularity_bins
from perfmodel.schema.distributions import Distribution

Array = NDArray[np.float64]

_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class RowPopularity:
    """Rows of a table in bins of equal probability, most popular first.

    p  for each bin, the probability that a look-up asks for a given row of it;  rows  number of rows in it
    """

    p: Array
    rows: Array

    @staticmethod
    def of(p: ArrayLike, rows: ArrayLike) -> RowPopularity:
        """The popularity with bins sorted, and probabilities scaled so that their sum over rows is 1."""
        chance, count = (np.asarray(a, dtype=float) for a in (p, rows))
        order = np.argsort(-chance, kind="stable")
        return RowPopularity(chance[order] / np.sum(chance * count), count[order])

    @staticmethod
    def uniform(rows: float) -> RowPopularity:
        """The popularity of a table with so many rows, all equally popular."""
        return RowPopularity(np.array([1 / rows]), np.array([float(rows)]))

    @property
    def edges(self) -> Array:
        """Number of rows before each bin, and then of all rows."""
        return np.concatenate([[0.0], np.cumsum(self.rows)])

    def share(self, first: ArrayLike, end: ArrayLike) -> Array:
        """Share of the look-ups that ask for rows first .. end - 1 [-]. Limits: all rows -> 1"""
        return self.part(self.p, first, end)

    def part(self, of_a_row: Array, first: ArrayLike, end: ArrayLike) -> Array:
        """Sum of a value over rows first .. end - 1. of_a_row  the value of a row, for each bin"""
        summed = np.concatenate([[0.0], np.cumsum(of_a_row * self.rows)])
        upto, before = (np.interp(np.asarray(a, dtype=float), self.edges, summed) for a in (end, first))
        return np.asarray(upto - before)

    def at(self, of_a_row: Array, row: ArrayLike) -> Array:
        """The value of the row with this number. of_a_row  the value of a row, for each bin"""
        found = np.searchsorted(self.edges, np.asarray(row, dtype=float), side="right") - 1
        return of_a_row[np.clip(found, 0, self.p.size - 1)]

    def unique(self, draws: ArrayLike) -> Array:
        """Expected number of distinct rows among so many look-ups (``access.unique_rows``)."""
        return unique_rows(self.p, self.rows, draws)

    def misses(self, draws: float, stays: float) -> Array:
        """Expected misses of a row, for each bin, in a cache that is empty at first.

            1 - (1 - p)^n                                         n <= T_c
            1 - (1 - p)^T_c + (n - T_c) p (1 - p)^T_c             n > T_c

        p  probability of the row;  draws  n, look-ups of the table
        stays  T_c, look-ups during which a row stays in the cache (``caching.characteristic_draws``)
        Source: ``caching.cold_misses``, for one row
        Limits: T_c = 0 -> n p;  T_c -> inf -> the chance that the row is asked for
        """
        if stays <= 0:
            return np.asarray(draws * self.p)
        if draws <= stays:
            return touched_fraction(self.p, draws)
        gone = 1 - touched_fraction(self.p, stays)
        return np.asarray(1 - gone + (draws - stays) * self.p * gone)


def stays_alone(popularity: RowPopularity, rows_held: float) -> float:
    """Look-ups during which a row stays in a cache that only this table uses (T_c of ``misses``).

    rows_held  rows that fit the cache
    Limits: the cache holds nothing -> 0;  it holds all rows that are ever asked for -> inf
    """
    if rows_held >= np.sum(popularity.rows[popularity.p > 0]):
        return np.inf
    return float(characteristic_draws(popularity.p, popularity.rows, rows_held))


def stays_together(
    popular: Sequence[RowPopularity], draws: Array, row_bytes: Array, cache_bytes: float
) -> float:
    """How long a row stays in a cache that several tables use side by side [batches].

        tau with sum over tables of row_t U_t(n_t tau) = C

    U_t(n) distinct rows of table t among n look-ups;  draws  n_t of a batch [-]
    row_bytes  row_t of a row of each table [bytes];  cache_bytes  C [bytes]
    Source: Che et al. (2002), with rows of all tables in one popularity, weighted by their bytes; T_c of a
            table is n_t tau
    Limits: C = 0 -> 0;  all distinct rows of the batch fit -> inf
    """
    if cache_bytes <= 0:
        return 0.0

    def held(tau: float) -> float:
        asked = [one.unique(max(n * tau, 1e-300)) for one, n in zip(popular, draws, strict=True)]
        return float(np.sum(np.array(asked) * row_bytes))

    if held(1.0) <= cache_bytes:
        return np.inf
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) < cache_bytes else (low, middle)
    return (low + high) / 2


def shared_misses(
    popular: Sequence[RowPopularity], draws: Array, row_bytes: Array, count: ArrayLike, cache_bytes: float
) -> tuple[float, dict[bool, list[Array]]]:
    """(time that a row stays in the shared cache [batches], expected misses of one row in a batch [-]).

    The misses have two keys: True, if all cores look up the same table at a time (lockstep), so that this
    table has the cache for itself; False, if the tables share the cache. Each value lists an array for each
    kind of table, with a number for each bin of its rows by popularity.
    popular, draws, row_bytes, cache_bytes  as in ``stays_together``;  count  number of tables of each kind
    The cores' own caches do not change these misses: the first core to ask for a row also misses in the
    shared cache, which is larger, so that a row in a core's cache is still in it.
    """
    kept = stays_together(popular, draws, row_bytes * np.asarray(count), cache_bytes)
    stays = {
        True: [stays_alone(one, cache_bytes / row) for one, row in zip(popular, row_bytes, strict=True)],
        False: [n * kept if n > 0 else 0.0 for n in draws],
    }
    return kept, {
        key: [one.misses(n, t) for one, n, t in zip(popular, draws, every, strict=True)]
        for key, every in stays.items()
    }


def popularities(ids: Iterable[Distribution], rows: Iterable[float]) -> list[RowPopularity]:
    """Popularity of the rows of each table. Source: ``model.popularity.popularity_bins``"""
    return [_popularity(each, float(E)) for each, E in zip(ids, rows, strict=True)]


@lru_cache(maxsize=4096)
def _popularity(ids: Distribution, E: float) -> RowPopularity:
    """Popularity of a table of E rows; rows that are never asked for are the last bin."""
    p, rows = popularity_bins(ids, E)
    never = E - float(np.sum(rows))
    if never > 0.5:
        p, rows = np.append(p, 0.0), np.append(rows, never)
    else:
        rows = rows * (E / np.sum(rows))
    return RowPopularity.of(p / np.sum(p * rows), rows)
