"""The relaxed problem: shares of schemes instead of one for each table, loads spread evenly over ranks.

    min  sum_p F_p(u_p)      F_p  lower convex hull of step p's time over the sizes that are possible
    u_p >= e_j + a_j         for every resource j that p waits for: everywhere and, of the shards, the average
    u_p >= e_j + own_jt      for every table t: some rank holds one of its shards
    mean memory of the ranks <= limit

A ``Part`` of the problem holds the plans that use some kinds of exchange, no shard above some size or one
that is, some numbers of copies, some sizes of exchanges. Source: any plan satisfies these with shares of 0
and 1, for a maximum over ranks is no less than their mean, nor than what the holder of one shard has. A
linear program of tangents (HiGHS) over few schemes of each table, to which those that its multipliers
prefer are added; the bound is the Lagrangian's, which holds whatever the multipliers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.cover import Cover
from perfmodel.plan.curves import StepCurves
from perfmodel.plan.options import Options
from perfmodel.plan.tangents import TO_US, Tangents

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MEAN, _FLOOR = -1, -2  # rows of the linear program that are of no kind of table
_MOST = -1  # and of no tangent: no more than the largest size
_SLACK = 1e-4  # of the program's value: what a tangent must be above it to count
_SHARDS = 4  # kinds of table, of each resource, whose shards may count in the next program
_KEPT = 4  # programs in which a row need not count before it is left out
_PENALTY_US = 1e7  # of a rank's memory that is too much by all of it


@dataclass(frozen=True, eq=False)
class Subspace:
    """Some of all plans.

    allowed, forced  [6] kinds of exchange that a plan may use, and that it does use
    cap, floor       [J] no shard has more of a resource than ``cap``; some rank has ``floor`` in one shard
    fewest, most     [Q] share of the tables of each kind that every rank has a copy of
    first, last      [P] places among ``StepCurves.sizes`` that the busiest rank's loads are at
    """

    allowed: Mask
    forced: Mask
    cap: Array
    floor: Array
    fewest: Array
    most: Array
    first: Ints
    last: Ints

    @staticmethod
    def whole(problem: Problem) -> Subspace:
        """All plans."""
        kinds, o = len(Exchange), problem.options
        used = np.isin(np.arange(kinds), o.exchange)
        J, Q = problem.own.shape[1], o.count.size
        return Subspace(
            used,
            np.zeros(kinds, dtype=bool),
            np.full(J, np.inf),
            np.zeros(J),
            np.zeros(Q),
            np.ones(Q),
            np.zeros(len(problem.curves.times), dtype=np.int64),
            problem.last,
        )

    def options(self, problem: Problem) -> Mask:
        """[O] options that its plans may use."""
        return self.among(problem.options, problem.least)

    def among(self, o: Options | Cover, own: Array) -> Mask:
        """[O] which of some options its plans may use; own [O, J] of a shard, in units of u."""
        fits = (own <= self.cap).all(axis=1)
        copied = o.exchange == Exchange.DP
        possible = np.where(copied, self.most[o.group] > 0, self.fewest[o.group] < 1)
        return np.asarray(self.allowed[o.exchange] & fits & possible)


@dataclass(eq=False)
class Relaxation:
    """What a relaxed problem came to.

    bound_s  no plan of these kinds of exchange takes less [s]
    chosen   [n] options that were looked at;  share  [n] of each in the relaxed optimum
    columns  [m, Q] an option for every kind of table: what the multipliers preferred on the way
    sizes    [J] largest load of a rank in the relaxed optimum;  everywhere  [J] what all ranks have of it
    step_s   [P] what each step is thought to take [s]
    room     what all the memory that there is once more would save [s]
    """

    bound_s: float
    chosen: Ints
    share: Array
    columns: Ints
    sizes: Array
    everywhere: Array
    step_s: Array
    room: float


@dataclass(eq=False)
class Problem:
    """Tables, curves and room of all relaxed problems of one search."""

    options: Options | Cover
    curves: StepCurves
    limit_bytes: float
    most_s: float  # of a plan that is known: no better one has a step that takes longer
    last: Ints = field(init=False)
    tangents: Tangents = field(init=False)
    binding: Ints = field(init=False)

    def __post_init__(self) -> None:
        times = self.curves.times
        rest = times.min(axis=1).sum() - times.min(axis=1)
        at = [
            np.searchsorted(line, max(self.most_s - more, 0), "right")
            for line, more in zip(times, rest, strict=True)
        ]
        self.last = np.minimum(np.array(at), self.curves.sizes.size - 1)
        self.tangents = Tangents(self.curves)
        self.binding = np.zeros((0, 3), dtype=np.int64)  # rows of the last linear program that counted
        self.count = self.options.count.astype(np.float64)
        self._taken()

    def _taken(self) -> None:
        """[O, J]: of one table in the units of u; own of one shard, everywhere of a table."""
        o = self.options
        self.own, self.everywhere, self.average = (
            self.curves.units(loads) for loads in (o.own, o.everywhere, o.average)
        )
        self.least = self.curves.units(o.least_own) if isinstance(o, Cover) else self.own

    def split(self, at: Ints, known: Ints) -> Ints:
        """Split boxes ``at`` of the cover; ``known`` boxes as they are numbered then, and the parts of these.

        Limits: no cover, nothing that can be split -> as it was
        """
        if not isinstance(self.options, Cover):
            return known
        some = at[self.options.splittable(at)]
        if not some.size:
            return known
        some = self.options.alike(some)
        some = some[self.options.splittable(some)]
        old, new = self.options.split(some)
        self._taken()
        return np.asarray(new[np.isin(old, np.union1d(known, some))])

    def least_s(self, part: Subspace) -> float:
        """The latency of the steps that every plan of a part has [s]."""
        forced = self.forced_steps(part.forced, part.options(self))
        return float(np.where(forced, self.curves.times[:, 1], self.curves.times[:, 0]).sum())

    def forced_steps(self, forced: Mask, mask: Mask) -> Mask:
        """[P] steps that run whenever the kinds of ``forced`` are in use."""
        steps = np.zeros(len(self.curves.times), dtype=bool)
        for kind in np.flatnonzero(forced):
            at = (self.options.exchange == kind) & mask
            if at.any():
                steps[self.curves.step[(self.average[at] > 0).all(axis=0)]] = True
        return steps


class Master:
    """The linear program over the schemes that are known so far."""

    def __init__(self, problem: Problem, part: Subspace) -> None:
        self.problem, self.part = problem, part
        self.mask = part.options(problem)
        forced = problem.forced_steps(part.forced, self.mask)
        runs = forced & (problem.curves.times[:, 1] > problem.curves.times[:, 0])
        self.first, self.last = np.maximum(part.first, runs), part.last
        self.slope, self.cut = problem.tangents.of(self.first, self.last)
        self.most = problem.curves.sizes[np.maximum(self.last, 1)]
        self.active = np.flatnonzero(problem.average[self.mask].any(axis=0))
        self.chosen = np.zeros(0, dtype=np.int64)
        self.step_us = self.cut.max(axis=1, where=self.slope == 0, initial=0)  # of the last program
        self.rows = self._usable(problem.binding)  # resource, tangent, and kind of table, _MEAN or _FLOOR
        self.idle = np.zeros(len(self.rows), dtype=np.int64)  # programs in a row in which a row did not count

    def _usable(self, rows: Ints) -> Ints:
        """Rows of another part's program that this one may have too."""
        j, line, kind = rows.T
        bounded = self.last[self.problem.curves.step[j]] < self.problem.last[self.problem.curves.step[j]]
        kept = ((line != _MOST) | bounded) & ((kind != _FLOOR) | (self.part.floor[j] > 0))
        return np.asarray(rows[kept])

    def add(self, options: Ints) -> bool:
        """More schemes; False where all are known."""
        before = self.chosen.size
        self.chosen = np.union1d(self.chosen, options)
        return self.chosen.size > before

    def tighten(self, share: Array) -> bool:
        """Tangents at the point of these shares [n] where it is above the last program's; False: nowhere."""
        problem = self.problem
        at, shards, everywhere = self.sizes(share)
        slack = _SLACK * float(self.step_us.sum())
        found = []
        for j in self.active:
            p = problem.curves.step[j]
            floor = everywhere[j] + self.part.floor[j] if self.part.floor[j] else 0.0
            most = np.argsort(-shards[:, j])[:_SHARDS]
            asked = [(at[j], _MEAN), (floor, _FLOOR), *((shards[q, j], int(q)) for q in most)]
            for size, of in asked:
                if of == _MEAN or size > at[j]:
                    values = self.slope[p] * size + self.cut[p]
                    line = int(np.argmax(values))
                    if values[line] > self.step_us[p] + slack:
                        found.append((int(j), line, of))
            if self.last[p] < problem.last[p]:
                found.append((int(j), _MOST, _MEAN))
        known = set(map(tuple, self.rows.tolist()))
        new = [row for row in dict.fromkeys(found) if row not in known]
        kept = self.idle < _KEPT
        self.rows = np.concatenate([self.rows[kept], np.array(new, dtype=np.int64).reshape(-1, 3)])
        self.idle = np.concatenate([self.idle[kept], np.zeros(len(new), dtype=np.int64)])
        return bool(new)

    def sizes(self, share: Array, chosen: Ints | None = None) -> tuple[Array, Array, Array]:
        """Mean loads [J], what the holder of a shard of each kind of table has [Q, J], what all have [J].

        chosen  whose shares [n] they are: all that are known, unless given
        """
        problem = self.problem
        chosen = self.chosen if chosen is None else chosen
        group = problem.options.group[chosen]
        tables = share * problem.count[group]
        own = np.zeros((problem.count.size, problem.own.shape[1]))
        np.add.at(own, group, share[:, np.newaxis] * problem.own[chosen])
        everywhere = tables @ problem.everywhere[chosen]
        return tables @ problem.average[chosen], own + everywhere, everywhere

    def step_times(self, sizes: Array) -> Array:
        """What each step is thought to take at the largest loads [J] of a rank, [P] in us."""
        most = np.zeros(len(self.problem.curves.times))
        np.maximum.at(most, self.problem.curves.step, sizes)
        return np.asarray((self.slope * most[:, np.newaxis] + self.cut).max(axis=1))

    def solve(self) -> tuple[Array, Array, float, float]:
        """Shares [n], multipliers of the rows [R] and of memory, and the value [us]."""
        from scipy import sparse
        from scipy.optimize import linprog

        problem, chosen, R = self.problem, self.chosen, len(self.rows)
        n, steps = chosen.size, len(problem.curves.times)
        group = problem.options.group[chosen]
        count = problem.count[group]
        j, line, kind = self.rows.T
        p = problem.curves.step[j]
        mean = (problem.average[chosen] * count[:, np.newaxis])[:, j]
        held = (problem.everywhere[chosen] * count[:, np.newaxis])[:, j]
        held = held + problem.own[chosen][:, j] * (group[:, np.newaxis] == kind)
        matrix, right = np.zeros((R + 1, n + steps + 1)), np.ones(R + 1)
        bounded = line == _MOST
        slope = np.where(bounded, 1 / self.most[p], self.slope[p, line])
        matrix[:R, :n] = (np.where(kind == _MEAN, mean, held) * slope).T
        matrix[np.arange(R), n + p] = np.where(bounded, 0, -1)
        matrix[np.flatnonzero(bounded), -1] = -1
        right[:R] = np.where(bounded, 1, -self.cut[p, line])
        right[:R] -= np.where(kind == _FLOOR, self.part.floor[j] * slope, 0)
        matrix[R, :n] = problem.options.average_memory[chosen] * count / problem.limit_bytes
        matrix[R, -1] = -1
        cost = np.concatenate([np.zeros(n), np.ones(steps), [_PENALTY_US]])
        least = self.cut.max(axis=1, where=self.slope == 0, initial=0)
        lower = np.concatenate([np.zeros(n), least, [0]])
        upper = np.full(lower.size, np.inf)
        copied = np.flatnonzero(problem.options.exchange[chosen] == Exchange.DP)
        lower[copied], upper[copied] = self.part.fewest[group[copied]], self.part.most[group[copied]]
        one = np.ones(n), (group, np.arange(n))
        whole = sparse.csr_array(one, shape=(problem.count.size, n + steps + 1))
        found: Any = linprog(  # type: ignore[call-overload]
            cost,
            sparse.csr_array(matrix),
            right,
            whole,
            np.ones(problem.count.size),
            np.stack([lower, upper], axis=1),
            method="highs-ds",
            options={"presolve": False},
        )
        self.step_us = found.x[n : n + steps]
        dual = np.maximum(-found.ineqlin.marginals, 0)
        self.idle = np.where(dual[:R] > 0, 0, self.idle + 1)
        problem.binding = self.rows[dual[:R] > 0]
        return found.x[:n], dual[:R], float(dual[R]), float(found.fun)

    def price(self, dual: Array, room: float) -> tuple[float, Ints]:
        """The Lagrangian's value [us] at these multipliers, and the option of each kind that it prefers."""
        problem, o = self.problem, self.problem.options
        j, line, kind = self.rows.T
        weight = dual * np.where(
            line == _MOST,
            1 / self.most[problem.curves.step[j]],
            self.slope[problem.curves.step[j], line],
        )
        mean, floor = (
            np.bincount(j[kind == of], weight[kind == of], problem.curves.step.size) for of in (_MEAN, _FLOOR)
        )
        held = np.zeros((o.count.size, problem.curves.step.size))
        np.add.at(held, (kind[kind >= 0], j[kind >= 0]), weight[kind >= 0])
        everywhere = held.sum(axis=0) + floor
        price = problem.average @ mean + room * o.average_memory / problem.limit_bytes
        if everywhere.any():
            price += problem.everywhere @ everywhere
        price *= problem.count[o.group]
        if everywhere.any():
            price += np.einsum("oj,oj->o", problem.own, held[o.group])
        price[~self.mask] = np.inf
        least, column = self._cheapest(price)
        slope = np.bincount(problem.curves.step, mean + everywhere, len(problem.curves.times))
        value = problem.curves.least(slope / TO_US, self.first, self.last)
        constant = float(floor @ self.part.floor) - room
        return float(value.sum() * TO_US + least.sum() + constant), column

    def _cheapest(self, price: Array) -> tuple[Array, Ints]:
        """Least cost of every kind of table with as many copies as there may be; the options that have it."""
        o, part = self.problem.options, self.part
        copied = o.exchange == Exchange.DP
        least, column = least_of(price, o.first)
        if not part.fewest.any() and (part.most == 1).all():
            return least, column
        copy, _ = least_of(np.where(copied, price, np.inf), o.first)
        other, split = least_of(np.where(copied, np.inf, price), o.first)
        share = np.where(copy < other, part.most, part.fewest)
        cost = np.where(share > 0, share * np.where(share > 0, copy, 0), 0)
        cost += np.where(share < 1, (1 - share) * np.where(share < 1, other, 0), 0)
        return cost, np.where((share == 1) | ~np.isfinite(other), column, split)


def least_of(value: Array, first: Ints) -> tuple[Array, Ints]:
    """Of every kind of table the least value [Q] and the option [Q] that has it; the first of equal ones."""
    least = np.minimum.reduceat(value, first[:-1])
    group = np.repeat(np.arange(least.size), np.diff(first))
    at = np.flatnonzero(value == least[group])
    _, where = np.unique(group[at], return_index=True)
    return least, at[where]


def relax(
    problem: Problem,
    part: Subspace,
    known: Ints,
    *,
    tolerance: float,
    stop_s: float = np.inf,
    until: Callable[[], bool] = lambda: False,
) -> Relaxation | None:
    """Solve the relaxed problem of one part of all plans.

    known      options to begin with;  until  whether to end early
    tolerance  of the bound, as a share;  stop_s  no need to know more than that it is above [s]
    Limits: a table that can be sharded in no way of the part -> None
    """
    master = Master(problem, part)
    o = problem.options
    if (np.add.reduceat(master.mask, o.first[:-1]) == 0).any():
        return None
    columns = [
        least_of(np.where(master.mask, value, np.inf), o.first)[1]
        for value in (o.average_memory, problem.average.sum(axis=1))
    ]
    copied = np.flatnonzero((o.exchange == Exchange.DP) & master.mask)
    split, _ = least_of(
        np.where(master.mask & (o.exchange != Exchange.DP), o.average_memory, np.inf), o.first
    )
    if (np.isinf(split) & (part.most < 1)).any():
        return None
    master.add(np.concatenate([known[master.mask[known]], copied, *columns]))
    best = -np.inf
    master.tighten(np.isin(master.chosen, columns[0]).astype(np.float64))
    while True:
        share, dual, room, value = master.solve()
        bound, column = master.price(dual, room)
        chosen, tight = master.chosen, not master.tighten(share)
        columns.append(column)
        best = max(best, bound)
        near, more = best >= value * (1 - tolerance), master.add(column)
        if best >= stop_s * TO_US or until() or (tight and (near or not more)):
            break
    at, shards, everywhere = master.sizes(share, chosen)
    floor = np.where(part.floor > 0, everywhere + part.floor, 0)
    sizes = np.maximum(np.maximum(at, shards.max(axis=0)), floor)
    step_s, room_s = master.step_times(sizes) / TO_US, room / TO_US
    return Relaxation(best / TO_US, chosen, share, np.stack(columns), sizes, everywhere, step_s, room_s)
