"""The lower convex hull of each step's curve over any range of sizes, with few corners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes import work_units as units
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_FLAT = 1e-4
"""Share of a range's largest time by which omitted corners may lie below the hull.

All times are reduced by this amount, so that the hull stays below the curve: the bound's largest loss."""


class Hulls:
    """The corners of the lower convex hulls of steps' curves; each hull is computed once and kept.

    Source: quickhull in the plane: the point that is furthest below a chord is a corner
    """

    def __init__(self, curves: StepCurves) -> None:
        self.sizes, self.times, self.work = curves.sizes, curves.times * TO_US, curves.work
        self.known: dict[tuple[int, int, int], tuple[Array, Array]] = {}

    def of(self, step: int, first: int, last: int) -> tuple[Array, Array]:
        """(sizes, times [us]) of the hull's corners for a step's curve between two indices of the sizes."""
        key = step, first, last
        if key not in self.known:
            self.known[key] = self._corners(*key)
        return self.known[key]

    def least(self, slope: Array, first: Ints, last: Ints) -> Array:
        """The sum over P steps of the minimum over u of (time - slope u), for n sets of slopes: [n] in us.

        slope  [n, P];  first, last  [P] u of each step is between the sizes with these indices
        """
        total = np.zeros(len(slope))
        for p in range(len(self.times)):
            size, time = self.of(p, int(first[p]), int(last[p]))
            total += (time - slope[:, p, np.newaxis] * size).min(axis=1)
        return total

    def _corners(self, step: int, first: int, last: int) -> tuple[Array, Array]:
        self.work.add(units.LINES)
        x, y = self.sizes[first : last + 1], self.times[step, first : last + 1]
        flat = _FLAT * float(y.max())
        found, todo = {0, x.size - 1}, [(0, x.size - 1)]
        while todo:
            low, high = todo.pop()
            if high - low < 2:
                continue
            inside = slice(low + 1, high)
            chord = (y[high] - y[low]) / (x[high] - x[low])
            above = y[inside] - y[low] - chord * (x[inside] - x[low])
            at = low + 1 + int(np.argmin(above))
            if above[at - low - 1] < -flat:
                found.add(at)
                todo += [(low, at), (at, high)]
        corners = np.array(sorted(found))
        return x[corners], y[corners] - flat
