"""Counts the look-ups that miss a core's own cache and so are requested from shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.core_cache import stays_in_core, unique_of_pieces
from perfmodel.onechip.popular import RowPopularity

Array = NDArray[np.float64]

_SURE = 1 - 2.0**-53  # chance of a row that every look-up asks for


@dataclass(frozen=True, eq=False)
class Passed:
    """Requests of rows that leave a core because its own cache misses; an entry per piece.

    requests  number, of all rows [-];  hottest  number for the first (most popular) row of the piece [-]
    begin     distinct rows that a core requests before its first row returns [-]
    begun     the same, counted together for all cores with a slice of the batch [-]
    squares   sum over rows of the mean square of the requests by all slices of the batch, times the piece's
              part of the batch [-]
    cubes     sum over rows of the cube of a row's excess over the mean row, times the piece's part of the
              batch and the chance that two rows are in the same channel or slice, relative to random places
              [-]
    """

    requests: Array
    hottest: Array
    squares: Array
    cubes: Array
    begin: Array
    begun: Array


@dataclass(frozen=True, eq=False)
class Cores:
    """Properties of the cores that gather some pieces: one number for all, or an array entry per piece."""

    part: Array
    held: Array
    at_once: float
    parts: float


def passed_of(
    v: Mapping[str, float],
    popular: Sequence[RowPopularity],
    look_ups: Array,
    batch: float,
    pieces: tuple[Array, ...],
    gathers: NDArray[np.bool_],
) -> Passed | None:
    """Requests that leave the cores, for pieces of several tables. Limits: cores without caches -> None

    v  values of the chip;  popular, look_ups  popularity and look-ups per batch of each table;  batch
       samples
    pieces   arrays of one shape: table, first row, rows, bags, bytes of one row
    gathers  which pieces request rows; the others request nothing
    """
    if v["core_cache_bytes"] <= 0:
        return None
    of, which = np.unique(np.column_stack([a[gathers] for a in pieces]), axis=0, return_inverse=True)
    found = np.zeros((len(fields(Passed)), of.shape[0]))
    for table in np.unique(of[:, 0]).astype(np.intp):
        mine = of[:, 0] == table
        _, first, rows, bags, row = of[mine].T
        part, parts = bags / batch, v["cache_slices"] or v["channels"]
        cores = Cores(part, v["core_cache_bytes"] / row, v["rows_in_flight"], parts)
        one = passed(popular[table], first, first + rows, look_ups[table] * part, cores)
        found[:, mine] = [getattr(one, each.name) for each in fields(Passed)]
    out = np.zeros((len(fields(Passed)), *gathers.shape))
    out[:, gathers] = found[:, which.reshape(-1)]
    return Passed(*out)


def passed(one: RowPopularity, first: Array, end: Array, draws: Array, cores: Cores) -> Passed:
    """Requests that leave the cores, for pieces of one table. Each core's cache is empty when a piece begins.

    one  popularity of the rows;  first, end  a piece has rows first .. end - 1;  draws  its bags' look-ups n
         [-]
    A row of probability p is missed c + max(n - T_c, 0) p (1 - p)^T_c times, with c = 1 - (1 - p)^min(n,
    T_c), as in ``RowPopularity.misses``. The first term counts at most one miss, so the variance is mean -
    c^2.
    Source: a core processes one piece at a time; rows of the piece before are useless, and evicted first
    Limits: held = 0 -> n p of each row;  held >= rows of the piece -> distinct rows of the slice
    """
    part, parts, edges, p = cores.part, cores.parts, one.edges, np.minimum(one.p, _SURE)
    rows = np.clip(
        np.minimum(end[:, np.newaxis], edges[1:]) - np.maximum(first[:, np.newaxis], edges[:-1]), 0, None
    )
    stays = stays_in_core(p, rows, draws, cores.held)
    before = np.minimum(draws, stays)
    gone = np.exp(before[:, np.newaxis] * np.log1p(-p))
    surely = 1 - gone
    mean = surely + (draws - before)[:, np.newaxis] * p * gone
    squares = mean - surely**2 + mean**2 / part[:, np.newaxis]
    hot = np.clip(np.searchsorted(edges, first, side="right") - 1, 0, p.size - 1)
    every, of_all = np.sum(rows, axis=1), mean / part[:, np.newaxis]
    above = of_all - (np.sum(rows * of_all, axis=1) / np.maximum(every, 1))[:, np.newaxis]
    meet = parts * (np.ceil(every / parts) - 1) / np.maximum(every - 1, 1)
    cubes = part * meet * np.sum(rows * above**3, axis=1)
    wave = np.minimum(draws, cores.at_once / np.maximum(rows @ one.p, 1e-300))
    return Passed(
        np.sum(rows * mean, axis=1),
        mean[np.arange(first.size), hot],
        np.sum(rows * squares, axis=1),
        np.maximum(cubes, 0),
        unique_of_pieces(p, rows, wave),
        unique_of_pieces(p, rows, wave / part),
    )
