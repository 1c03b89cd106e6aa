"""FBGEMM's cache of rows of host memory, row by row, in the order of its kernels: 32-way sets, LRU or LFU.

Source: FBGEMM 1.8, ``lru_cache_find_uncached``, ``lru_cache_insert_kernel``, ``lfu_cache_insert_kernel``
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

WAYS = 32


@dataclass(frozen=True)
class Found:
    """Of one batch: different rows asked for, those that were missed, brought in, and pushed out."""

    asked: Ints
    missed: Ints
    inserted: Ints
    evicted: Ints


class SetCache:
    """``sets`` sets of 32 rows for ``rows`` rows, each in a set drawn by chance; empty at first.

    counts  of ``lfu``: how often each row was asked for before
    """

    def __init__(
        self, rows: int, sets: int, random: np.random.Generator, policy: str, counts: Array | None = None
    ) -> None:
        self.set_of = random.integers(sets, size=rows)
        self.held = np.full((sets, WAYS), -1)
        self.used = np.full((sets, WAYS), -1.0)  # when a slot was asked for last
        self.slot_of = np.full(rows, -1)
        self.policy, self.now = policy, 0
        self.counts = np.zeros(rows) if counts is None else counts.copy()

    def batch(self, ids: Ints) -> Found:
        """All rows that are there are found first; then each set takes in rows that are not."""
        asked, often = np.unique(ids, return_counts=True)
        self.now += 1
        self.counts[asked] += often
        slot = self.slot_of[asked]
        self.used.reshape(-1)[slot[slot >= 0]] = self.now
        missed = asked[slot < 0]
        worth = self.counts[missed] if self.policy == "lfu" else np.full(missed.size, float(self.now))
        order = np.lexsort((-worth, self.set_of[missed]))
        return Found(asked, missed, *self._insert(missed[order], worth[order]))

    def _insert(self, rows: Ints, worth: Array) -> tuple[Ints, Ints]:
        """The l-th row of a set takes its l-th cheapest slot, unless what is there is worth more."""
        sets, first, count = np.unique(self.set_of[rows], return_index=True, return_counts=True)
        cost = self.used[sets]
        if self.policy == "lfu":
            held = self.held[sets]
            cost = np.where(held >= 0, self.counts[held], -1.0)
        cheapest = np.argsort(cost, axis=1, kind="stable")
        which, place = np.repeat(np.arange(sets.size), count), np.arange(rows.size) - np.repeat(first, count)
        few = place < WAYS
        slot = cheapest[which[few], place[few]]
        there = cost[which[few], slot]
        fits = there <= worth[few] if self.policy == "lfu" else there < worth[few]
        at, inserted = (sets[which[few]] * WAYS + slot)[fits], rows[few][fits]
        evicted = self.held.reshape(-1)[at]
        evicted = evicted[evicted >= 0]
        self.slot_of[evicted] = -1
        self.held.reshape(-1)[at], self.slot_of[inserted] = inserted, at
        self.used.reshape(-1)[at] = self.now
        return inserted, evicted
