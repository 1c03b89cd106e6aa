"""What is spread over cores as whole bags: each slice waits for its first row, so many slices take longer.

Look-ups of a table that are spread have B bags in all. A slice of b bags takes a core f(b), which never falls
with b. A mapping that is done within t has only slices with f(b) <= t, so at least

    p(t) = ceil(B / b(t)),   b(t) = max {b: f(b) <= t}                       slices, and takes at least

    F(t) = min over p >= p(t) of p g(B / p)                                  time of all cores together [s]

where g is the largest convex function below f. Proof: with p slices of b_1 .. b_p bags, sum of f(b_i) >= sum
of g(b_i) >= p g(B / p) (Jensen). p g(B / p) is convex in p, and least at p = B / x where g(x) / x is least:
the minimum is at the larger one of p(t) and that p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_EVERY, _STEP = 32, 1.05  # numbers of bags that are looked at: all of them, then each so much more


def numbers(bags: int) -> Ints:
    """Numbers of bags of a slice that are looked at, from 1 to ``bags``."""
    few = np.arange(1, min(bags, _EVERY) + 1)
    if bags <= _EVERY:
        return few
    many = np.round(_EVERY * _STEP ** np.arange(1, np.ceil(np.log(bags / _EVERY) / np.log(_STEP)))).astype(
        int
    )
    return np.unique(np.concatenate([few, many[many < bags], [bags]]))


@dataclass(frozen=True, eq=False)
class Slicing:
    """Times of slices of S different things that are spread.

    bags  [G] numbers of bags, from 1 to all of them;  slice_s  [S, G] f of each [s], 0: nothing is spread
    of    [O] which of the S things each choice spreads
    """

    bags: Ints
    slice_s: Array
    of: Ints

    @cached_property
    def _hulls(self) -> list[tuple[Array, Array]]:
        """Corners (bags, time) of g of each thing.

        Between numbers that are looked at f is no less than at the one below.
        """
        gap = np.flatnonzero(np.diff(self.bags) > 1)
        x = np.concatenate([self.bags, self.bags[gap + 1] - 1]).astype(np.float64)
        order = np.argsort(x, kind="stable")
        found = []
        for f in np.maximum.accumulate(self.slice_s, axis=1):
            found.append(_hull(x[order], np.concatenate([f, f[gap]])[order]))
        return found

    @cached_property
    def _best(self) -> Array:
        """[S] slices with which the time of all cores is least."""
        least = [x[np.argmin(y / x)] for x, y in self._hulls]
        return float(self.bags[-1]) / np.array(least)

    def within(self, time_s: float) -> tuple[Array, Array]:
        """F of each choice [O] [s], and its least number of slices p [O], if none is longer than ``time_s``.

        Limits: nothing is spread -> 0, 0;  one bag takes longer -> inf;  time_s -> inf -> the least of any p
        """
        every = float(self.bags[-1])
        fits = (np.maximum.accumulate(self.slice_s, axis=1) <= time_s).sum(axis=1)
        most = np.append(self.bags, every + 1)[fits] - 1  # one less than the first that is too long
        pieces = np.ceil(every / np.maximum(most, 1e-300))
        spread = self.slice_s[:, -1] > 0
        total = np.zeros(spread.size)
        for at in np.flatnonzero(spread & (fits > 0)).tolist():
            number = max(float(pieces[at]), float(self._best[at]))
            total[at] = number * np.interp(every / number, *self._hulls[at])
        total[spread & (fits == 0)] = np.inf
        return np.asarray(total[self.of]), np.where(spread, pieces, 0)[self.of]

    @property
    def shortest_s(self) -> Array:
        """[O] time of one bag [s]."""
        return np.asarray(self.slice_s[self.of, 0])


def _hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Lower convex hull of points in order of x."""
    kept: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and _above(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    corners = np.array(kept)
    return corners[:, 0], corners[:, 1]


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b is on the line from a to c, or above it."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
