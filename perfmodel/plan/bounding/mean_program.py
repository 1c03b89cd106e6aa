"""The linear program of a part in ``mean_loads``: it mixes whole plans, and steps' times are convex hulls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding import linear
from perfmodel.plan.bounding.hulls import Hulls
from perfmodel.plan.bounding.priced import WholePlan

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOST = 120
"""Columns of one program, the most recently used first: an optimum uses at most one per resource and memory,
about 40."""
_USED = 1e-7
_PENALTY_US = 1e7  # for exceeding memory, or a size, by 100 %


class PlanColumns:
    """The columns of the linear program: each is a whole plan that was cheapest at some prices."""

    def __init__(self, resources: int) -> None:
        self.points: list[WholePlan] = []
        self.used: list[int] = []  # the last program that used each column
        self.programs = 0
        self._least, self._kinds = np.zeros((0, resources)), np.zeros((0, 0), dtype=bool)

    def add(self, point: WholePlan) -> None:
        """Add one column."""
        self.points.append(point)
        self.used.append(self.programs)
        self._stacked()

    def _stacked(self) -> None:
        width = self._least.shape[1]
        self._least = np.array([point.least for point in self.points]).reshape(-1, width)
        self._kinds = np.array([point.kinds for point in self.points])

    def of(self, kinds: Mask, most: Array) -> Ints:
        """Indices of columns that use only exchanges in ``kinds``, with no shard above ``most`` [J]."""
        if not self.points:
            return np.zeros(0, dtype=np.int64)
        at = np.flatnonzero(~(self._kinds & ~kinds).any(axis=1) & (self._least <= most).all(axis=1))
        if at.size > _MOST:
            used = np.array(self.used)[at]
            at = np.sort(at[np.argsort(-used, kind="stable")[:_MOST]])
        return at


@dataclass(frozen=True, eq=False)
class Optimum:
    """Solution of one program, for P steps and J pairs of a step and its resource.

    mean [J], room  prices (multipliers) of the mean loads and of memory [us];  value  the least time [us]
    size      [P] load of the busiest rank for each step;  time_us  [P] time there, by the convex hull [us]
    shard     [P] load of the largest shard for each step
    """

    mean: Array
    room: float
    value: float
    size: Array
    time_us: Array
    shard: Array


def solve(
    columns: PlanColumns, kinds: Mask, step: Ints, hulls: Hulls, first: Ints, last: Ints, most: Array
) -> Optimum:
    """The optimum over mixes of the columns that the limits allow.

    kinds  [6] allowed kinds of exchange;  step  [J] index of the step that waits for each resource
    first, last  [P] each step's load is between the sizes with these indices;  most  [J] largest load of a
                 shard
    Limits: no mix of columns fits -> multipliers of the violated limits, and a very large value
    """
    at = columns.of(kinds, most)
    points = [columns.points[i] for i in at]
    loads, n, steps = np.array([point.loads for point in points]), at.size, first.size
    corners = [hulls.of(p, int(first[p]), int(last[p])) for p in range(steps)]
    size, time = (np.concatenate(each) for each in zip(*corners, strict=True))
    of: Ints = np.repeat(np.arange(steps), [x.size for x, _ in corners])
    used = np.flatnonzero(loads.any(axis=0))
    R, end = used.size, n + size.size
    scale = np.maximum(hulls.sizes[last], 1)[step[used]]
    matrix = np.zeros((R + 1, end + steps + 1))
    matrix[:R, :n] = loads[:, used].T
    matrix[:R, n:end] = np.where(step[used][:, np.newaxis] == of, -size, 0)
    matrix[:R] /= scale[:, np.newaxis]
    matrix[np.arange(R), end + step[used]] = -1
    matrix[R, :n], matrix[R, -1] = [point.memory for point in points], -1
    whole = np.zeros((1 + steps, matrix.shape[1]))
    whole[0, :n] = 1
    whole[1 + of, n + np.arange(size.size)] = 1
    cost = np.concatenate([np.zeros(n), time, np.full(steps + 1, _PENALTY_US)])
    right = np.append(np.zeros(R), 1.0)
    found = linear.least(hulls.work, cost, matrix, right, whole, np.ones(1 + steps))
    dual, share, corner = np.maximum(-found.ineqlin.marginals, 0), found.x[:n], found.x[n:end]
    mean = np.zeros(step.size)
    mean[used] = dual[:R] / scale
    columns.programs += 1
    some = np.flatnonzero(share > _USED)
    for i in at[some]:
        columns.used[i] = columns.programs
    shard = np.zeros(steps)
    np.maximum.at(shard, step, share @ np.array([point.least for point in points]))
    return Optimum(
        mean,
        float(dual[R]),
        float(found.fun),
        np.asarray(np.bincount(of, corner * size, steps), np.float64),
        np.asarray(np.bincount(of, corner * time, steps), np.float64),
        shard,
    )
