"""Ids to look up, each row as often as any other: enough sets that caches do not shorten times.

A *set* is the look-up of one rank in one call: ids in the order table, sample, and the length of every bag.
Calls rotate through sets, so that a table larger than the cache is read from memory in every call, as it is
when every batch is new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.passes.pattern_rows import require_exact
from calibrate.planning.kernel_cells import ELEMENT_BYTES, count_lookups
from perfmodel.schema.runs import LookupWork

Ids = NDArray[np.int64]

COLD_BYTES = 256 * 2**20
"""Rows that all sets together touch [bytes], so that the rows of a call leave the cache before they recur."""

FEWEST_SETS = 4
MOST_SETS = 256
MOST_IDS = 2**22
"""Fewest and most sets, and most ids of all sets together. A visit makes at most 200 calls; the next visit
starts at another set."""


@dataclass(frozen=True)
class IdSet:
    """The look-up of one rank in one call.

    ids      numbers of rows in their own table, bag after bag [n]
    lengths  number of ids of each bag, table by table [tables x samples]
    """

    ids: Ids
    lengths: Ids


def draw_lengths(work: LookupWork, rng: np.random.Generator) -> Ids:
    """Number of ids of each bag, on average the pooling factor.

    An integer factor gives equal bags; else as many ids fall into random bags as ``count_lookups`` says.
    Limits: a factor of 2 -> every bag 2;  of 0.5 -> about e^-0.5 of the bags are empty
    """
    bags = work.batch * work.tables
    if work.pooling and float(work.pooling).is_integer():
        return np.full(bags, int(work.pooling), dtype=np.int64)
    return np.bincount(rng.integers(bags, size=count_lookups(work)), minlength=bags)


def draw_sets(work: LookupWork, dtype: str, seed: int) -> list[IdSet]:
    """Sets of random ids for one rank, to look up in turn: ``count_sets`` of them; equal for equal seeds.

    Limits: bags whose sums would be rounded -> BadInputError
    """
    rng = np.random.default_rng(seed)
    sets = []
    for _ in range(count_sets(work, dtype)):
        lengths = draw_lengths(work, rng)
        require_exact(dtype, int(lengths.max()))
        sets.append(IdSet(rng.integers(work.rows, size=int(lengths.sum())), lengths))
    return sets


def count_sets(work: LookupWork, dtype: str) -> int:
    """Number of sets (4 to 256) that together read ``COLD_BYTES`` of rows; above 4, at most 4 Mi ids."""
    n = count_lookups(work)
    wanted = math.ceil(COLD_BYTES / (n * work.dim * ELEMENT_BYTES[dtype]))
    return max(FEWEST_SETS, min(wanted, MOST_SETS, MOST_IDS // n))


def count_copies(table_bytes: int, sets: int) -> int:
    """Number of copies of a table on a GPU, so that consecutive calls read different memory.

    sets  number of sets of ids; each set reads one copy
    Limits: a table of COLD_BYTES or more -> 1; at most the number of sets
    """
    return min(math.ceil(COLD_BYTES / table_bytes), sets)
