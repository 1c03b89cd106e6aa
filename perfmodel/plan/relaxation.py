"""The relaxed problem: shares of schemes instead of one for each table, loads spread evenly over ranks.

    min  sum_p F_p(u_p)      F_p  lower convex hull of step p's time over the sizes that are possible
    u_p >= e_j + a_j         for every resource j that p waits for: everywhere and, of the shards, the average
    u_p >= e_j + own_jt      for every table t: some rank holds one of its shards
    mean memory of the ranks <= limit

Source: any plan satisfies it with shares of 0 and 1, for a maximum over ranks is no less than their mean, nor
than what the holder of one shard has. A linear program of tangents (HiGHS) over few schemes of each table, to
which those that its multipliers prefer are added; the bound is the Lagrangian's, which holds whatever the
multipliers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.curves import StepCurves
from perfmodel.plan.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TO_US = 1e6
_SLOPES_LOG2 = np.arange(6, 42, 0.75)
_PENALTY_US = 1e7  # of a rank's memory that is too much by all of it


@dataclass(frozen=True, eq=False)
class Tangents:
    """Lines under the curves: time >= slope u + cut, [P, I] each; times in us."""

    slope: Array
    free: Array  # cut where the step may not run at all
    forced: Array  # cut where it runs

    @staticmethod
    def of(curves: StepCurves, limit: Array) -> Tangents:
        """Of curves where u is at most ``limit`` [P]."""
        at = 2.0**_SLOPES_LOG2
        place = np.searchsorted(curves.sizes, np.stack([at, 2 * at]))
        times = curves.times * _TO_US
        chords = np.maximum((times[:, place[1]] - times[:, place[0]]) / at, 0)
        last = np.minimum(np.searchsorted(curves.sizes, limit) + 1, curves.sizes.size - 1)
        beyond = np.arange(curves.sizes.size) > last[:, np.newaxis]
        rise = np.where(beyond, np.inf, times - times[:, :1])[:, 1:] / curves.sizes[1:]
        slope = np.concatenate([np.zeros((len(times), 1)), chords, rise.min(axis=1, keepdims=True)], axis=1)
        least = np.empty_like(slope)
        for p, line in enumerate(times):
            line, sizes = line[1 : last[p] + 1], curves.sizes[1 : last[p] + 1]
            least[p] = np.min(line - slope[p][:, np.newaxis] * sizes, axis=1)
        return Tangents(slope, np.minimum(least, times[:, :1]), least)


@dataclass(eq=False)
class Relaxed:
    """What a relaxed problem came to.

    bound_s  no plan of these kinds of exchange takes less [s]
    chosen   [n] options that were looked at;  share  [n] of each in the relaxed optimum
    columns  [m, Q] an option for every kind of table: what the multipliers preferred on the way
    """

    bound_s: float
    chosen: Ints
    share: Array
    columns: Ints


@dataclass(eq=False)
class Problem:
    """Tables, curves and room of all relaxed problems of one search."""

    options: Options
    curves: StepCurves
    limit_bytes: float
    most_s: float  # of a plan that is known: no better one has a step that takes longer
    tangents: Tangents = field(init=False)
    largest: Array = field(init=False)

    def __post_init__(self) -> None:
        times = self.curves.times
        rest = times.min(axis=1).sum() - times.min(axis=1)
        at = [
            np.searchsorted(line, max(self.most_s - more, 0), "right")
            for line, more in zip(times, rest, strict=True)
        ]
        self.largest = self.curves.sizes[np.minimum(np.array(at), self.curves.sizes.size - 1)]
        self.tangents = Tangents.of(self.curves, self.largest)
        scale = self.curves.scale
        o = self.options
        self.count = o.count.astype(np.float64)
        # [O, J]: of one table in the units of u; own of one shard, everywhere of a table
        self.own = o.own[:, self.curves.resource] / scale
        self.everywhere = o.everywhere[:, self.curves.resource] / scale
        self.average = o.average[:, self.curves.resource] / scale

    def forced_steps(self, forced: Mask) -> Mask:
        """[P] steps that run whenever the kinds of ``forced`` are in use."""
        steps = np.zeros(len(self.curves.times), dtype=bool)
        for kind in np.flatnonzero(forced):
            at = self.options.exchange == kind
            if at.any():
                steps[self.curves.step[(self.average[at] > 0).all(axis=0)]] = True
        return steps


class Master:
    """The linear program over the schemes that are known so far."""

    def __init__(self, problem: Problem, allowed: Mask, forced: Mask) -> None:
        self.problem = problem
        self.mask = allowed[problem.options.exchange]
        self.forced = problem.forced_steps(forced & allowed)
        tangents = problem.tangents
        self.cuts = np.where(self.forced[:, np.newaxis], tangents.forced, tangents.free)
        self.active = np.flatnonzero(problem.average[self.mask].any(axis=0))
        self.chosen = np.zeros(0, dtype=np.int64)
        self.rows = np.zeros((0, 3), dtype=np.int64)  # resource, tangent, kind of table or -1

    def add(self, options: Ints) -> bool:
        """More schemes; False where all are known."""
        before = self.chosen.size
        self.chosen = np.union1d(self.chosen, options)
        return self.chosen.size > before

    def tighten(self, share: Array) -> bool:
        """Tangents at the point of these shares [n]; False where all were there."""
        problem = self.problem
        at, shards = self._sizes(share)
        kind = shards.argmax(axis=0)
        found = []
        for j in self.active:
            p = problem.curves.step[j]
            for size, of in ((at[j], -1), (shards[kind[j], j], int(kind[j]))):
                if of < 0 or size > at[j]:
                    line = int(np.argmax(problem.tangents.slope[p] * size + self.cuts[p]))
                    found.append((int(j), line, of))
        rows = np.unique(np.concatenate([self.rows, np.array(found, dtype=np.int64)]), axis=0)
        more = len(rows) > len(self.rows)
        self.rows = rows
        return more

    def _sizes(self, share: Array) -> tuple[Array, Array]:
        """Mean loads [J], and what the holder of a shard of each kind of table has [Q, J]."""
        problem, chosen = self.problem, self.chosen
        group = problem.options.group[chosen]
        tables = share * problem.count[group]
        own = np.zeros((problem.count.size, problem.own.shape[1]))
        np.add.at(own, group, share[:, np.newaxis] * problem.own[chosen])
        return tables @ problem.average[chosen], own + tables @ problem.everywhere[chosen]

    def solve(self) -> tuple[Array, Array, float, float]:
        """Shares [n], multipliers of the rows [R] and of memory, and the value [us]."""
        from scipy.optimize import linprog

        problem, chosen, R = self.problem, self.chosen, len(self.rows)
        n, steps, tangents = chosen.size, len(problem.curves.times), problem.tangents
        group = problem.options.group[chosen]
        count = problem.count[group]
        j, line, kind = self.rows.T
        p = problem.curves.step[j]
        mean = (problem.average[chosen] * count[:, np.newaxis])[:, j]
        held = (problem.everywhere[chosen] * count[:, np.newaxis])[:, j]
        held = held + problem.own[chosen][:, j] * (group[:, np.newaxis] == kind)
        matrix, right = np.zeros((R + 1, n + steps + 1)), np.ones(R + 1)
        matrix[:R, :n] = (np.where(kind < 0, mean, held) * tangents.slope[p, line]).T
        matrix[np.arange(R), n + p] = -1
        right[:R] = -self.cuts[p, line]
        matrix[R, :n] = problem.options.average_memory[chosen] * count / problem.limit_bytes
        matrix[R, -1] = -1
        cost = np.concatenate([np.zeros(n), np.ones(steps), [_PENALTY_US]])
        least = self.cuts.max(axis=1, where=tangents.slope == 0, initial=0)
        lower = np.concatenate([np.zeros(n), least, [0]])
        whole = np.zeros((problem.count.size, n + steps + 1))
        whole[group, np.arange(n)] = 1
        found: Any = linprog(  # type: ignore[call-overload]
            cost,
            matrix,
            right,
            whole,
            np.ones(problem.count.size),
            np.stack([lower, np.full(lower.size, np.inf)], axis=1),
            method="highs",
        )
        dual = np.maximum(-found.ineqlin.marginals, 0)
        return found.x[:n], dual[:R], float(dual[R]), float(found.fun)

    def price(self, dual: Array, room: float) -> tuple[float, Ints]:
        """The Lagrangian's value [us] at these multipliers, and the option of each kind that it prefers."""
        problem, o = self.problem, self.problem.options
        j, line, kind = self.rows.T
        weight = dual * problem.tangents.slope[problem.curves.step[j], line]
        mean = np.bincount(j[kind < 0], weight[kind < 0], problem.curves.step.size)
        held = np.zeros((o.count.size, problem.curves.step.size))
        np.add.at(held, (kind[kind >= 0], j[kind >= 0]), weight[kind >= 0])
        everywhere = held.sum(axis=0)
        price = problem.average @ mean + room * o.average_memory / problem.limit_bytes
        if everywhere.any():
            price += problem.everywhere @ everywhere
        price *= problem.count[o.group]
        if everywhere.any():
            price += np.einsum("oj,oj->o", problem.own, held[o.group])
        price[~self.mask] = np.inf
        least, column = least_of(price, o.first)
        slope = np.bincount(problem.curves.step, mean + everywhere, len(problem.curves.times))
        value, _ = problem.curves.least(slope / _TO_US, self.forced, problem.largest)
        return float(value.sum() * _TO_US + least.sum() - room), column


def least_of(value: Array, first: Ints) -> tuple[Array, Ints]:
    """Of every kind of table the least value [Q] and the option [Q] that has it; the first of equal ones."""
    least = np.minimum.reduceat(value, first[:-1])
    group = np.repeat(np.arange(least.size), np.diff(first))
    at = np.flatnonzero(value == least[group])
    _, where = np.unique(group[at], return_index=True)
    return least, at[where]


def relax(
    problem: Problem,
    allowed: Mask,
    forced: Mask,
    known: Ints,
    *,
    tolerance: float,
    stop_s: float = np.inf,
    until: Callable[[], bool] = lambda: False,
) -> Relaxed | None:
    """Solve the relaxed problem of plans that use the kinds of ``forced``, and others of ``allowed``.

    allowed, forced  [6] of every ``Exchange``;  known  options to begin with;  until  whether to end early
    tolerance        of the bound, as a share;  stop_s  no need to know more than that it is above [s]
    Limits: a table that no allowed kind can shard -> None
    """
    master = Master(problem, allowed, forced)
    o = problem.options
    if (np.add.reduceat(master.mask, o.first[:-1]) == 0).any():
        return None
    columns = [
        least_of(np.where(master.mask, value, np.inf), o.first)[1]
        for value in (o.average_memory, problem.average.sum(axis=1))
    ]
    master.add(np.concatenate([known[master.mask[known]], *columns]))
    best = -np.inf
    master.tighten(np.isin(master.chosen, columns[0]).astype(np.float64))
    while True:
        share, dual, room, value = master.solve()
        while master.tighten(share):
            share, dual, room, value = master.solve()
        bound, column = master.price(dual, room)
        best, chosen = max(best, bound), master.chosen
        columns.append(column)
        done = best >= value * (1 - tolerance) or best >= stop_s * _TO_US or until()
        if done or not master.add(column):
            return Relaxed(best / _TO_US, chosen, share, np.stack(columns))
