"""The best mapping of a small case, as a mixed-integer program: what a search is judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.onechip.choices import Choices

Array = NDArray[np.float64]

MOST_UNKNOWNS = 20_000


def exact(choices: Choices) -> float:
    """Time of a batch with the best mapping of these choices [s].

    Unknowns: y of every choice of every table, whole z pieces of every part on every core, time of the
    hottest row for each thing that is shared, T. Bytes that a piece needs while it works are left out.
    Limits: more than ``MOST_UNKNOWNS``, or none has room -> BadInputError
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    c = choices
    tables = c.kind_of.size
    columns = [
        (table, choice) for table in range(tables) for choice in range(c.of(table).start, c.of(table).stop)
    ]
    pieces = [(k, part) for k, (_, choice) in enumerate(columns) for part in c.parts_of(choice)]
    resources = c.hot_s.shape[1]
    whole = len(columns) + len(pieces) * c.cores
    unknowns = whole + resources + 1
    if unknowns > MOST_UNKNOWNS:
        raise BadInputError(f"{unknowns} unknowns are too many to try.", f"at most {MOST_UNKNOWNS}.")
    unit = float(np.sum([c.loads[c.of(table)].max(axis=1).min() for table in range(tables)])) or 1.0
    rows, low, high = _rows(c, columns, pieces, unknowns, unit)
    most = np.concatenate(
        [
            np.ones(len(columns)),
            np.repeat(c.number[[p for _, p in pieces]], c.cores),
            np.full(resources + 1, np.inf),
        ]
    )
    found: Any = milp(
        np.append(np.zeros(unknowns - 1), 1.0),
        integrality=(np.arange(unknowns) < whole).astype(np.int64),
        bounds=Bounds(0, most),
        constraints=LinearConstraint(rows, low, high),
        options={"mip_rel_gap": 1e-6},
    )
    if found.status != 0:
        raise BadInputError(f"no best mapping was found: {found.message}", "try a smaller case.")
    return float(found.fun) * unit


def _rows(
    c: Choices,
    columns: list[tuple[int, int]],
    pieces: list[tuple[int, int]],
    unknowns: int,
    unit: float,
) -> tuple[Array, Array, Array]:
    """Constraints low <= rows x <= high, times in ``unit``."""
    tables, first, resources = c.kind_of.size, len(columns), c.hot_s.shape[1]
    choices = np.array([choice for _, choice in columns])
    matrix: list[Array] = []
    low: list[float] = []
    high: list[float] = []

    def add(row: Array, least: float, most: float) -> None:
        matrix.append(row)
        low.append(least)
        high.append(most)

    def blank() -> Array:
        return np.zeros(unknowns)

    for table in range(tables):  # one choice
        row = blank()
        row[[k for k, (of, _) in enumerate(columns) if of == table]] = 1
        add(row, 1, 1)
    for at, (k, part) in enumerate(pieces):  # all pieces of what is chosen are somewhere
        row = blank()
        row[first + at * c.cores : first + (at + 1) * c.cores] = 1
        row[k] = -c.number[part]
        add(row, 0, 0)
    parts = np.array([part for _, part in pieces], dtype=np.int64)
    for core in range(c.cores):
        of_core = first + np.arange(len(pieces)) * c.cores + core
        row = blank()
        row[of_core], row[-1] = c.core_s[parts] / unit, -1
        add(row, -np.inf, 0)
        if np.isfinite(c.capacity):
            row = blank()
            row[of_core] = c.local[parts] / max(c.capacity, 1.0)
            add(row, -np.inf, min(c.capacity, 1.0))
    for load, hot in zip(
        c.loads.T, [-1, *range(resources)], strict=True
    ):  # the mean core, and what cores share
        row = blank()
        row[:first], row[-1] = load[choices] / unit, -1
        if hot >= 0:
            row[unknowns - 1 - resources + hot] = 1
        add(row, -np.inf, 0)
    for k, choice in enumerate(choices):
        if c.alone_s[choice] > 0:
            row = blank()
            row[k], row[-1] = c.alone_s[choice] / unit, -1
            add(row, -np.inf, 0)
        for resource in np.flatnonzero(c.hot_s[choice]):
            row = blank()
            row[k], row[unknowns - 1 - resources + resource] = c.hot_s[choice, resource] / unit, -1
            add(row, -np.inf, 0)
    return np.array(matrix), np.array(low), np.array(high)
