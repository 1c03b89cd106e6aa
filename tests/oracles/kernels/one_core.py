"""What the look-ups of ``kernels/one_core.cu`` mean, in float64: the specification, whatever the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def lookup(
    tables: Sequence[NDArray[np.floating]],
    ids: NDArray[np.integer],
    offsets: NDArray[np.int64],
    batch: int,
    pooling: str = "sum",
) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """Bags [B, sum D], and ids out of range: how many, and the position of the first (-1: none).

    tables  [E, D] each;  ids  of bag t B + b at offsets[t B + b] .. offsets[t B + b + 1]
    pooling  "sum" or "mean" (over all ids of the bag)
    Limits: an empty bag -> 0;  an id out of range adds nothing
    """
    bags, wrong = [], []
    for table, rows in enumerate(tables):
        made = np.zeros((batch, rows.shape[1]))
        for sample in range(batch):
            first, end = offsets[table * batch + sample], offsets[table * batch + sample + 1]
            own = ids[first:end]
            known = (own >= 0) & (own < rows.shape[0])
            wrong.extend((first + np.flatnonzero(~known)).tolist())
            made[sample] = rows[own[known]].astype(np.float64).sum(0)
            if pooling == "mean" and end > first:
                made[sample] /= end - first
        bags.append(made)
    return np.concatenate(bags, 1), (len(wrong), min(wrong, default=-1))
