"""Simulated caches of 32-way sets, row by row: what closed forms are compared with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

WAYS, ROWS = 32, 12_000


def batches(s: float, n: int, count: int, seed: int) -> Iterator[list[int]]:
    p = np.arange(1, ROWS + 1, dtype=float) ** -s
    ids = np.random.default_rng(seed).choice(ROWS, (count, n), p=p / p.sum())
    return (batch.tolist() for batch in ids)


def sets_of(sets: int) -> list[int]:
    return np.random.default_rng(7).integers(sets, size=ROWS).tolist()


def lru_fetched(asked: Iterator[list[int]], sets: int, warm: int) -> float:
    """Rows a batch that a cache of 32-way sets has to fetch: each row once a batch, the oldest leaves."""
    place, kept, found = sets_of(sets), [OrderedDict[int, None]() for _ in range(sets)], []
    for batch in asked:
        missed = set()
        for row in batch:
            ways = kept[place[row]]
            if row in ways:
                ways.move_to_end(row)
                continue
            missed.add(row)
            ways[row] = None
            if len(ways) > WAYS:
                ways.popitem(last=False)
        found.append(len(missed))
    return float(np.mean(found[warm:]))
