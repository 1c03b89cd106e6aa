"""Finds the fastest way to look up a table, for numbers of rows of the table and look-ups of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.work import WAYS, Way
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import UNIFORM, Distribution

Array = NDArray[np.float64]

ROWS = tuple(10.0**e for e in np.arange(1, 6.5, 0.5))
LOOK_UPS = tuple(10.0**e for e in np.arange(1, 6.5, 0.5))


@dataclass(frozen=True, eq=False)
class _One:
    """A table shape with several numbers of rows, as arrays."""

    rows: Array
    dim: Array
    element_bytes: Array
    pooling: Array


@dataclass(frozen=True, eq=False)
class WaysMap:
    """The fastest way on one core that has a whole table, over a grid of rows and look-ups.

    rows      of the table, R values;  look_ups  of a batch, in whole bags, N values
    seconds   time of each way, shape [4, R, N] [s], inf if buffers are too small
    best      index of the fastest ``Way``, shape [R, N]
    """

    chip: Chip
    dim: int
    element_bytes: float
    pooling: float
    ids: Distribution
    rows: Array
    look_ups: Array
    seconds: Array
    best: NDArray[np.int64]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, SI units; null where buffers are too small."""
        return {
            "chip": self.chip.name,
            "dim": self.dim,
            "element_bytes": self.element_bytes,
            "pooling": self.pooling,
            "distribution": self.ids.name,
            "rows": self.rows.tolist(),
            "look_ups": self.look_ups.tolist(),
            "seconds": {way.label: self.seconds[way].tolist() for way in WAYS},
            "best": [[Way(way).label for way in row] for row in self.best.tolist()],
        }


def ways_map(
    chip: Chip,
    dim: int = 64,
    element_bytes: float = 4.0,
    pooling: float = 1.0,
    ids: Distribution = UNIFORM,
    rows: Sequence[float] = ROWS,
    look_ups: Sequence[float] = LOOK_UPS,
) -> WaysMap:
    """Predicted time of every way over a grid, for one core with a whole table.

    Source: ``ChipCost.work``
    look_ups  rounded to whole bags, at least one; duplicates become one column
    Limits: a shape below 1 -> BadInputError
    """
    m = np.round(np.asarray(rows, dtype=np.float64)).astype(np.float64)
    n = np.round(np.asarray(look_ups, dtype=np.float64)).astype(np.float64)
    if min(dim, element_bytes, pooling, float(m.min(initial=1)), float(n.min(initial=1))) < 1:
        raise BadInputError(
            f"no map has dim {dim}, {element_bytes:g} bytes an element and {pooling:g} look-ups of a bag.",
            "each is 1 or more, and so are rows and look-ups.",
        )
    n = np.unique(np.maximum(1.0, np.round(n / pooling))) * pooling
    tables = _One(m, *(np.full(m.shape, float(a)) for a in (dim, element_bytes, pooling)))
    popular = popularities([ids] * m.size, m)
    seconds = np.empty((len(WAYS), m.size, n.size))
    every = np.arange(m.size)
    for column, draws in enumerate(n):
        cost = ChipCost(chip, tables, float(round(draws / pooling)), popular)
        for way in WAYS:
            work = cost.work(every, way, m, dim, cost.batch, lockstep=True)
            seconds[way, :, column] = np.where(work.fits, work.core_s, np.inf)
    best = np.argmin(seconds, axis=0).astype(np.int64)
    return WaysMap(chip, dim, element_bytes, pooling, ids, m, n, seconds, best)
