"""From a relaxed optimum, where tables have shares of options, to plans with one option per table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding.problem import Relaxation, least_of
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_COLUMNS = 2  # columns that multipliers preferred last


def leanest(o: Options, mask: Mask) -> Ints | None:
    """For every table, its option in ``mask`` with least memory; None if a table has none."""
    memory, column = least_of(np.where(mask, o.average_memory, np.inf), o.first)
    return column[o.kind_of] if np.isfinite(memory).all() else None


def roundings(o: Options, relaxed: Relaxation) -> Iterator[Ints]:
    """Yields options of every table near a relaxed optimum.

    First its shares rounded to whole tables, then the options that its last rounds preferred.
    """
    option = np.zeros(o.kind_of.size, dtype=np.int64)
    group = o.group[relaxed.chosen]
    for kind in range(o.count.size):
        at = np.flatnonzero(group == kind)
        option[o.kind_of == kind] = _whole(relaxed.chosen[at], relaxed.share[at], int(o.count[kind]))
    yield option
    for column in relaxed.columns[: -_COLUMNS - 1 : -1]:
        yield column[o.kind_of]


def _whole(options: Ints, share: Array, count: int) -> Ints:
    """``count`` options, each about as often as its share, rounded by largest remainders."""
    exact = np.maximum(share, 0) / share.sum() * count
    tables = np.floor(exact + 1e-9).astype(np.int64)
    short = count - int(tables.sum())
    tables[np.argsort(tables - exact, kind="stable")[:short]] += 1
    return np.repeat(options, tables)
