"""Gather and pool in float64, bag by bag: what the kernels of gather_pool.cu must give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def gather_pool(tables: Sequence[Any], batch: int, ids: Any, offsets: Any) -> list[Any]:
    """Bags [B, D] of each table, float64.

    tables   values [E, D] of each;  ids  [n] of bag t B + b at offsets[t B + b] .. offsets[t B + b + 1]
    An id out of range adds nothing. A bag of no rows is 0.
    """
    columns = []
    for number, table in enumerate(tables):
        values = table.astype(np.float64)
        bags = np.zeros((batch, values.shape[1]))
        for sample in range(batch):
            begin, end = offsets[number * batch + sample : number * batch + sample + 2]
            valid = np.array([place for place in range(begin, end) if 0 <= ids[place] < len(values)], int)
            bags[sample] = values[ids[valid]].sum(0)
        columns.append(bags)
    return columns


def wrong_ids(rows: Sequence[int], batch: int, ids: Any, offsets: Any) -> list[int]:
    """Positions of ids that their table does not have; ``rows``  E of each table."""
    bag_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return [place for place, bag in enumerate(bag_of.tolist()) if not 0 <= ids[place] < rows[bag // batch]]
