"""Straight lines below the curves of steps' times, for linear programs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes import work_units as units
from perfmodel.plan.bounding.curves import StepCurves

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TO_US = 1e6
"""From seconds to microseconds, the unit of the linear programs."""

_SLOPES_LOG2 = np.arange(6, 42, 0.75)


class Tangents:
    """Lines below the curves: time >= slope u + cut [us], for load u of the busiest rank.

    They are computed once per range of sizes and kept.
    """

    def __init__(self, curves: StepCurves) -> None:
        self.sizes, self.times, self.work = curves.sizes, curves.times * TO_US, curves.work
        at = 2.0**_SLOPES_LOG2
        place = np.searchsorted(curves.sizes, np.stack([at, 2 * at]))
        self.chords = np.maximum((self.times[:, place[1]] - self.times[:, place[0]]) / at, 0)
        self.known: dict[tuple[int, int, int], tuple[Array, Array]] = {}

    def of(self, first: Ints, last: Ints) -> tuple[Array, Array]:
        """(slopes, cuts), each [P, I]: I lines for each of P steps' curves.

        first, last  [P] the lines hold for u between the sizes with these indices
        """
        found = []
        for p in range(len(self.times)):
            key = p, int(first[p]), int(last[p])
            if key not in self.known:
                self.known[key] = self._lines(*key)
            found.append(self.known[key])
        return np.stack([slope for slope, _ in found]), np.stack([cut for _, cut in found])

    def _lines(self, p: int, first: int, last: int) -> tuple[Array, Array]:
        self.work.add(units.LINES)
        here = slice(first, last + 1)
        line, sizes = self.times[p, here], self.sizes[here]
        ends = [0.0, 0.0, 0.0]  # the flat line, and the first and last edges of the hull
        if sizes.size > 1:
            ends[1] = max(np.min((line[1:] - line[0]) / (sizes[1:] - sizes[0])), 0)
            ends[2] = max(np.max((line[-1] - line[:-1]) / (sizes[-1] - sizes[:-1])), 0)
        slope = np.concatenate([ends, self.chords[p]])
        return slope, np.min(line - slope[:, np.newaxis] * sizes, axis=1)
