"""Which alternative wins where: over skew of the ids, batch and table size, with crossings in closed form."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import PerfmodelError
from perfmodel.model import serving_cost
from perfmodel.plan.alternatives import GB200, GH200, HOST, ON_SSD, ROW_WISE, machines_of
from perfmodel.project import prepare
from perfmodel.project.grid import project_grid

Array = NDArray[np.float64]

SKEWS = ("uniform", "zipf:0.8", "zipf:1.05", "zipf:1.2")
BATCHES = (64, 256, 1024, 4096, 16384)
SIZE_FACTORS = (0.1, 1.0, 10.0)
WAYS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    (ROW_WISE, "row-wise", {}),
    (ROW_WISE, "two-level", {"reduction": "two_level"}),
    (ROW_WISE, "sparse", {"reduction": "sparse"}),
    (HOST, "host", {"tier": "uvm"}),
    (HOST, "host two-level", {"tier": "uvm", "reduction": "two_level"}),
    (HOST, "host sparse", {"tier": "uvm", "reduction": "sparse"}),
    (HOST, "cached", {"tier": "uvm-caching"}),
    (HOST, "cached two-level", {"tier": "uvm-caching", "reduction": "two_level"}),
    (HOST, "cached sparse", {"tier": "uvm-caching", "reduction": "sparse"}),
    (GH200, "GH200", {"tier": "uvm"}),
    (GB200, "GB200", {"tier": "uvm"}),
    (ON_SSD, "SSD", {"tier": "ssd"}),
)
"""What is compared in every cell: name of the alternative, words, options. ``host`` reads rows in place, as
GH200 and GB200 do; ``cached`` through a cache in HBM; two-level and sparse are exchanges of bags."""


@dataclass(frozen=True, eq=False)
class MapCell:
    """The winner at one skew, batch and table size.

    times  of a batch by words of ``WAYS`` [s], those that are possible;  gpus  of each
    """

    ids: str
    batch: int
    table_bytes: float
    times: Mapping[str, float]
    gpus: Mapping[str, int]

    @property
    def winner(self) -> str:
        """Fewest GPU-hours, which at one batch a GPU is the least time; "" where nothing is possible."""
        return min(self.times, key=lambda words: self.times[words]) if self.times else ""


@dataclass(frozen=True)
class Crossing:
    """The batch at which the next way overtakes the one that wins at the smaller batch.

    gpus     of the first where it wins, and of the next where that one does
    batch    in closed form, from latency and time a sample of both at the batches beside it
    between  batches of the map beside it: the winner changes in between
    """

    ids: str
    table_bytes: float
    first: str
    then: str
    batch: float
    between: tuple[int, int]
    gpus: tuple[int, int]


def winner_map(options: Mapping[str, Any]) -> list[MapCell]:
    """The winner of every cell. options  of ``project_one``; a set of tables has one size: its own

    Limits: a way that is not possible in a cell -> not in its ``times``
    """
    sizes = [f * float(options["table_bytes"]) for f in SIZE_FACTORS] if options.get("table_bytes") else [0.0]
    kept = {name: value for name, value in options.items() if name not in ("batch", "gpus", "table_bytes")}
    found = []
    for ids in SKEWS:
        for size in sizes:
            asked = {**kept, "distribution": ids, **({"table_bytes": size} if size else {})}
            columns = {words: _column(machines_of(name, {**asked, **more})) for name, words, more in WAYS}
            found += [_cell(ids, size, at, columns) for at in range(len(BATCHES))]
    return found


_Column = tuple[Array, Array] | None


def _column(asked: dict[str, Any]) -> _Column:
    """Times and GPUs of one way at all batches; None where it is not possible."""
    try:
        forward, work = prepare(None, **{**asked, "batch": list(BATCHES)})
        grid = project_grid(forward, work).columns
    except PerfmodelError:
        return None
    times = np.where(grid["fits"], grid["time_s"], np.inf)
    return times, work.gpus


def _cell(ids: str, size: float, at: int, columns: Mapping[str, _Column]) -> MapCell:
    known = {words: column for words, column in columns.items() if column is not None}
    times = {words: float(t[at]) for words, (t, _) in known.items() if np.isfinite(t[at])}
    gpus = {words: int(g[at]) for words, (_, g) in known.items()}
    return MapCell(ids, BATCHES[at], size, times, gpus)


def crossings(cells: list[MapCell]) -> list[Crossing]:
    """Where the winner changes with the batch: each pair of neighbours of the map with different winners.

    a + b B = a' + b' B, each through its two batches (``serving_cost.crossing_batch``)
    """
    found = []
    for left, right in itertools.pairwise(cells):
        if (left.ids, left.table_bytes) != (right.ids, right.table_bytes) or left.winner == right.winner:
            continue
        first, then = left.winner, right.winner
        if not first or not then or first not in right.times or then not in left.times:
            continue
        lines = [_line(left, right, words) for words in (first, then)]
        batch = float(serving_cost.crossing_batch(*lines[0], *lines[1]))
        between, gpus = (left.batch, right.batch), (left.gpus[first], right.gpus[then])
        found.append(Crossing(left.ids, left.table_bytes, first, then, batch, between, gpus))
    return found


def _line(left: MapCell, right: MapCell, words: str) -> tuple[float, float]:
    """Latency and time a sample of a straight line through two batches."""
    slope = (right.times[words] - left.times[words]) / (right.batch - left.batch)
    return left.times[words] - slope * left.batch, slope
