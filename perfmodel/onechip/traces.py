"""Traces of look-ups, drawn from popularities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.onechip.popular import RowPopularity
from perfmodel.onechip.work import TableColumns

Ints = NDArray[np.int64]

_MOST_SHUFFLED = 2**22


@dataclass(frozen=True, eq=False)
class Trace:
    """The look-ups of a batch: for each table its ids, and where each bag begins.

    ids  of each table;  offsets  of each table: the first look-up of each bag, and then the number of
         look-ups
    """

    ids: tuple[Ints, ...]
    offsets: tuple[Ints, ...]

    @property
    def look_ups(self) -> int:
        """Look-ups of all tables."""
        return sum(ids.size for ids in self.ids)


def draw(
    tables: TableColumns,
    batch: int,
    popularity: Sequence[RowPopularity] | None = None,
    seed: int = 0,
    *,
    scattered: bool = True,
) -> Trace:
    """Draws the ids of a batch at random, independently; the same seed gives the same ids.

    popularity  of the rows of each table; None: uniform
    scattered   whether popular rows are at random places of the table; False: row 0 is the most popular, and
                so on
    A bag has the table's pooling rounded down, or one more look-up, so that the mean is the pooling.
    Limits: batch below 1 -> BadInputError
    """
    if batch < 1:
        raise BadInputError(f"a batch of {batch} samples has no work.", "give 1 or more.")
    random = np.random.default_rng(seed)
    popular = popularity or [RowPopularity.uniform(float(rows)) for rows in tables.rows]
    ids, offsets = [], []
    for one, rows, pooling in zip(popular, tables.rows, tables.pooling, strict=True):
        whole = int(np.floor(pooling))
        lengths = whole + (random.random(batch) < pooling - whole)
        offsets.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        ranks = _ranks(one, int(offsets[-1][-1]), random)
        ids.append(_scattered(ranks, int(rows), random) if scattered else np.minimum(ranks, int(rows) - 1))
    return Trace(tuple(ids), tuple(offsets))


def _ranks(one: RowPopularity, count: int, random: np.random.Generator) -> Ints:
    """Places in the order of popularity of ``count`` random look-ups: a bin by its share,
    then any row of it.
    """
    ends = np.cumsum(one.p * one.rows)
    bins = np.minimum(np.searchsorted(ends, random.random(count) * ends[-1], side="right"), ends.size - 1)
    inside = np.floor(random.random(count) * one.rows[bins])
    return np.asarray(one.edges[bins] + inside, dtype=np.int64)


def _scattered(ranks: Ints, rows: int, random: np.random.Generator) -> Ints:
    """The row that has each place in the order of popularity.

    It is a random order for tables of usual size, and multiples of a prime for larger tables.
    """
    if rows <= _MOST_SHUFFLED:
        return np.asarray(random.permutation(rows)[np.minimum(ranks, rows - 1)], dtype=np.int64)
    step = int(0.618 * rows)
    while np.gcd(step, rows) != 1:
        step += 1
    return np.asarray(
        (np.minimum(ranks, rows - 1) * step + int(random.integers(rows))) % rows, dtype=np.int64
    )
