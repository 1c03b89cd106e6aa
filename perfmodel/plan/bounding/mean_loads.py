"""A bound for many different tables: mean loads at prices, branched on the load of each step's busiest rank.

The set of all plans is divided into parts: a part allows some kinds of exchange, and limits the load u of
each step's busiest rank to a range of sizes. For any prices w >= 0 of mean loads and m >= 0 of all memory, no
plan in the part takes less than

    sum_q min_o (w . average_o + m memory_o / limit)  +  sum_p min_u (F_p(u) - s_p u)  -  m           [us]

q  a kind of table;  o  its options with an allowed exchange and shards no larger than the range
F_p  time of step p at load u in the range;  s_p  the sum of w over the resources that p waits for

The best prices are the multipliers of a small linear program. Its columns are whole plans, each of which was
cheapest at some prices. Its size does not grow with the number of tables, and all parts share the columns.

A part is split at a size where the curve of a step is above its convex hull, or between the load in the
optimum and its largest shard. This bound describes single tables less exactly than ``relaxation``, but is
much faster to compute.
Source: Dantzig and Wolfe, Operations Research 8 (1960): columns; Falk and Soland, Management Science 15
(1969): branching on sizes under non-convex curves; Everett (1963): prices
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.schemes import Exchange, copied
from perfmodel.plan.bounding.hulls import Hulls
from perfmodel.plan.bounding.mean_program import Optimum, PlanColumns, solve
from perfmodel.plan.bounding.priced import Priced, WholePlan
from perfmodel.plan.bounding.problem import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NEAR = 2e-3  # of the program's value, a fifth of a search's tolerance: prices this near are good enough
_PRICINGS = 30  # of one part, at most
_WORTH = 5e-5  # of the bound: least gain of a split
_SHARDS = 0.3  # of the excess time of the largest shard over the optimum: few columns may have it
_SMALLEST = 1e-3  # of the largest shard: a size to split at
_STALLED, _RISE = 100, 1e-3  # parts in a row that raise the bound by less than that share
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of all plans.

    kinds        index in ``MeanLoads.sets`` of the kinds of exchange that its plans may use
    first, last  [P] for each step, indices of the sizes between which the busiest rank's load is
    """

    kinds: int
    first: Ints
    last: Ints


class MeanLoads:
    """Computes the bound of this file; ``run`` raises it. Prices are multipliers w and m of the bound.

    mean  [J] initial w: the price of a unit of mean load, for each pair of a step and its resource
    room  initial m: the price of all memory together [us]
    """

    def __init__(self, problem: Problem, mean: Array, room: float) -> None:
        self.problem, curves = problem, problem.curves
        used = problem.average.any(axis=0) & (curves.times[curves.step, -1] > 0)
        self.active = np.flatnonzero(used)
        self.step = curves.step[self.active]
        self.hulls = Hulls(curves)
        self.priced = Priced(problem, self.active)
        self.sets = self._sets()
        self.columns = PlanColumns(self.active.size)
        self.slope, self.value = np.zeros((0, len(curves.times))), np.zeros((0, len(self.sets)))
        self.prices, self.most = np.zeros((0, self.active.size + 1)), np.zeros((0, self.active.size))
        self.number = self.solved = 0
        self.closed_us = np.inf  # least bound of the parts that are not split further
        self.solving_us = np.inf  # bound of the part being solved, also when the search was stopped
        self.open: list[tuple[float, int, _Part]] = []
        most = self._most(problem.last)
        self._price(mean[self.active], room, len(self.sets) - 1, most)
        self.whole = _Part(len(self.sets) - 1, np.zeros_like(problem.last), problem.last)
        self._push(0.0, self.whole)

    @property
    def bound_us(self) -> float:
        """No plan takes less [us], except possibly the best known plan."""
        return min(self.closed_us, self.solving_us, self.open[0][0] if self.open else np.inf)

    def _sets(self) -> Mask:
        """[n, 6] masks of the six kinds of exchange: all include replication, the last has all kinds."""
        kinds = [kind for kind in self.priced.blocks if not copied(kind)]
        sets = np.zeros((1 << len(kinds), len(Exchange)), dtype=bool)
        sets[:, copied(np.arange(len(Exchange)))] = True
        for bit, kind in enumerate(kinds):
            sets[:, kind] = np.arange(len(sets)) >> bit & 1 == 1
        return sets

    def _by_kinds(self) -> list[_Part]:
        """All plans, split by the kinds of exchange that they use: steps of these kinds have a size above
        0.
        """
        problem, o = self.problem, self.problem.options
        sizes = problem.curves.times[:, 1] > problem.curves.times[:, 0]
        runs = np.zeros((len(Exchange), sizes.size), dtype=bool)
        for kind in self.priced.blocks:
            at = np.flatnonzero(o.exchange == kind)
            if not copied(kind):
                runs[kind, problem.curves.step[(problem.average[at] > 0).all(axis=0)]] = True
        firsts = (self.sets @ (runs & sizes)).astype(np.int64)
        return [_Part(at, first, problem.last) for at, first in enumerate(firsts)]

    def _most(self, last: Ints) -> Array:
        """[J] the largest load that a single shard may have, from the last allowed size of each step."""
        return np.asarray(self.problem.curves.sizes[last][self.step] * (1 + _ROUNDING))

    def _push(self, bound_us: float, part: _Part) -> None:
        self.number += 1
        heapq.heappush(self.open, (bound_us, self.number, part))

    def run(self, stop_us: float, until: Callable[[], bool]) -> None:
        """Split parts until none can hold a plan below ``stop_us``, or until splits hardly help.

        until  returns whether to stop early
        """
        mark, since = self.bound_us, self.solved
        while self.open and self.bound_us < stop_us and not until():
            if self.bound_us > mark * (1 + _RISE):
                mark, since = self.bound_us, self.solved
            if self.solved > since + _STALLED:
                break
            if self.open[0][0] >= self.closed_us:
                break  # no split can raise the bound
            above_us, number, part = self.open[0]
            known = self._known(part)
            if known > above_us:  # at prices of other parts
                heapq.heapreplace(self.open, (known, number, part))
                continue
            self.solving_us = above_us
            heapq.heappop(self.open)
            bound, found = self._optimum(above_us, part, stop_us, until)
            self.solved, self.solving_us = self.solved + 1, np.inf
            if found is None:
                heapq.heappush(self.open, (bound, number, part))
                continue
            parts = self._by_kinds() if part is self.whole else self._split(part, bound, found)
            if not parts:
                self.closed_us = min(self.closed_us, bound)
            for child in parts:
                self._push(bound, child)

    def _known(self, part: _Part, since: int = 0) -> float:
        """The best bound of a part at the prices that were used before, from number ``since`` on [us]."""
        at = since + np.flatnonzero((self.most[since:] >= self._most(part.last)).all(axis=1))
        value = self.value[at, part.kinds]
        value = value + self.hulls.least(self.slope[at], part.first, part.last)
        return float(value.max(initial=-np.inf))

    def _optimum(
        self, bound: float, part: _Part, stop_us: float, until: Callable[[], bool]
    ) -> tuple[float, Optimum | None]:
        """(bound of a part [us], its optimum).

        bound  known before [us];  stop_us  a bound above this need not be exact;  until  whether to stop
               early
        Limits: no scheme fits a table -> infinite, None;  bound above ``stop_us``, stopped -> (bound, None)
        """
        found, kinds, most = None, self.sets[part.kinds], self._most(part.last)
        if not self.columns.of(kinds, most).size:
            start = self._best_prices(part)
            if self._price(start[:-1], float(start[-1]), part.kinds, most) is None:
                return np.inf, None
        for _ in range(_PRICINGS):
            found = solve(self.columns, kinds, self.step, self.hulls, part.first, part.last, most)
            self._price(found.mean, found.room, part.kinds, most)
            bound = max(bound, self._known(part, len(self.slope) - 1))
            if bound >= stop_us or until():
                return bound, None
            if bound >= found.value * (1 - _NEAR):
                break
        return bound, found

    def _best_prices(self, part: _Part) -> Array:
        """[J + 1] prices used before, loads then memory: the best for a part without limits on shards."""
        at = np.flatnonzero(np.isfinite(self.value[:, part.kinds]))
        value = self.value[at, part.kinds] + self.hulls.least(self.slope[at], part.first, part.last)
        return np.asarray(self.prices[at[np.argmax(value)]])

    def _price(self, mean: Array, room: float, kinds: int, most: Array) -> WholePlan | None:
        """The cheapest plan at these prices, as a new column, which also gives a bound.

        mean, room  prices of mean loads [J] and of memory [us];  kinds  index of the allowed kinds of
                    exchange
        most  [J] largest load of a shard. The bound holds for parts that allow no more than this
        Limits: no scheme fits a table -> None
        """
        found = self.priced.cheapest(mean, room, self.sets[kinds], most)
        fewer = ~(self.sets & ~self.sets[kinds]).any(axis=1)
        value = np.full(len(self.sets), -np.inf)
        for at in np.flatnonzero(fewer):
            value[at] = found.of(self.sets[at]).sum() - room
        slope = np.bincount(self.step, mean, len(self.problem.curves.times))
        self.slope, self.value = np.vstack([self.slope, slope]), np.vstack([self.value, value])
        self.prices = np.vstack([self.prices, np.append(mean, room)])
        self.most = np.vstack([self.most, most])
        point = self.priced.point(found)
        if point is not None:
            self.columns.add(point)
        return point

    def _split(self, part: _Part, bound: float, found: Optimum) -> list[_Part]:
        """Two parts that together hold the plans of this part; empty if no split would raise the bound.

        bound  of the part [us];  found  its optimum
        """
        sizes, steps = self.problem.curves.sizes, np.arange(part.first.size)
        shard = np.minimum(found.shard, sizes[part.last])
        middle = np.sqrt(np.maximum(found.size, _SMALLEST * shard) * shard)
        hull, between, large = (
            np.clip(np.searchsorted(sizes, u), part.first, part.last) for u in (found.size, middle, shard)
        )
        times = self.hulls.times
        above = np.where(hull > np.maximum(part.first, 1), times[steps, hull] - found.time_us, 0)
        above = np.where(hull < part.last, above, 0)
        more = _SHARDS * (times[steps, large] - found.time_us)
        more = np.where((shard > found.size * (1 + _NEAR)) & (between < part.last), more, 0)
        more = np.where(between >= np.maximum(part.first, 1), more, 0)
        worth = np.maximum(above, more)
        p = int(np.argmax(worth))
        if worth[p] <= _WORTH * bound:
            return []
        place = int(hull[p] if above[p] >= more[p] else between[p])
        last, first = part.last.copy(), part.first.copy()
        last[p], first[p] = place, place + 1
        return [_Part(part.kinds, part.first, last), _Part(part.kinds, first, part.last)]
