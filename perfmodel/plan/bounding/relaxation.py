"""The relaxed problem: tables may have shares of several schemes, and loads are spread evenly over ranks.

    min  sum_p F_p(u_p)      F_p  lower convex hull of step p's time over the possible sizes u
    u_p >= e_j + a_j         for every resource j that p waits for: e_j on every rank, a_j the mean of shards
    u_p >= e_j + own_jt      for every table t: some rank holds one of its shards, with load own_jt
    mean memory of the ranks <= limit

A part of the problem limits the kinds of exchange, the size of the largest shard, the numbers of replicas, or
the sizes of exchanges. Source: any plan satisfies this with shares of 0 and 1, because a maximum over ranks
is at least the mean, and at least the load of any shard's holder. A linear program of tangents (HiGHS) over
few schemes per table is solved repeatedly, adding the schemes that its multipliers prefer; the bound is the
Lagrangian's, which holds for any multipliers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes import work_units as units
from perfmodel.passes.steady import steady
from perfmodel.plan.bounding import linear
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MEAN, _FLOOR = -1, -2  # rows of the linear program that belong to no kind of table
_MOST = -1  # and to no tangent: at most the largest size
_SLACK = 1e-4  # of the program's value: a tangent above it by less is not added
_SHARDS = 4  # kinds of table, per resource, whose shards may be binding in the next program
_CARE, _RISEN = (
    0.1,
    0.25,
)  # of how far a bound is below its goal: allowed error, and least rise
_KEPT = 4  # programs for which a row may be slack before it is dropped
_PENALTY_US = 1e7  # for exceeding a rank's memory by 100 %


class Weights(NamedTuple):
    """Cost of a byte [us], in the units of the curves, for J pairs of a step and its resource.

    mean        [J] cost of the mean load of ranks;  everywhere  [J] cost of load that every rank has
    held        [Q, J] cost of load on the rank that holds a shard, for each of Q kinds of table
    room        cost of all memory;  constant  time that does not depend on loads, from the curves [us]
    """

    mean: Array
    everywhere: Array
    held: Array
    room: float
    constant: float


class Master:
    """The linear program over the schemes added so far; schemes and tangents are added in rounds."""

    def __init__(self, problem: Problem, part: Subspace) -> None:
        self.problem, self.part = problem, part
        self.mask = part.options(problem)
        forced = problem.forced_steps(part, self.mask)
        runs = forced & (problem.curves.times[:, 1] > problem.curves.times[:, 0])
        self.first, self.last = np.maximum(part.first, runs), part.last
        self.slope, self.cut = problem.tangents.of(self.first, self.last)
        self.most = problem.curves.sizes[np.maximum(self.last, 1)]
        self.active = np.flatnonzero(problem.average[self.mask].any(axis=0))
        self.chosen = np.zeros(0, dtype=np.int64)
        self.step_us = self.cut.max(axis=1, where=self.slope == 0, initial=0)  # of the last program
        self.rows = self._usable(problem.binding)  # resource, tangent, and kind of table, _MEAN or _FLOOR
        self.idle = np.zeros(len(self.rows), dtype=np.int64)  # programs in a row in which a row was slack

    def _usable(self, rows: Ints) -> Ints:
        """Which rows (tangents) of another part's program also hold in this program."""
        j, line, kind = rows.T
        bounded = self.last[self.problem.curves.step[j]] < self.problem.last[self.problem.curves.step[j]]
        kept = ((line != _MOST) | bounded) & ((kind != _FLOOR) | (self.part.floor[j] > 0))
        return np.asarray(rows[kept])

    def begin(self, known: Ints) -> list[Ints] | None:
        """Start with the options ``known``; returns groups of options, each with an option per kind of table.

        The groups have least memory or least loads. Limits: a kind of table without an option -> None
        """
        problem, o = self.problem, self.problem.options
        memory = np.where(self.mask, o.average_memory, np.inf)
        rest = np.isinf(problem.least(np.where(o.copied, np.inf, memory))[0])
        if np.isinf(problem.least(memory)[0]).any() or (rest & (self.part.most < 1)).any():
            return None
        loads = np.where(self.mask, problem.average.sum(axis=1), np.inf)
        columns = [problem.least(memory)[1], problem.least(loads)[1]]
        self.add(np.concatenate([known[self.mask[known]], np.flatnonzero(o.copied & self.mask), *columns]))
        return columns

    def add(self, options: Ints) -> bool:
        """Add schemes by the indices of their options; returns False if all of them were there already."""
        before = self.chosen.size
        self.chosen = np.union1d(self.chosen, options)
        return self.chosen.size > before

    def tighten(self, share: Array, chosen: Ints) -> bool:
        """Add tangents of the curves where these exceed the last program's times; False if no curve does.

        chosen  [n] options;  share  [n] their shares in the last solution
        """
        problem = self.problem
        at, shards, everywhere = self.sizes(share, chosen)
        slack = _SLACK * float(self.step_us.sum())
        found = []
        for j in self.active:
            p = problem.curves.step[j]
            floor = everywhere[j] + self.part.floor[j] if self.part.floor[j] else 0.0
            most = np.argsort(-shards[:, j], kind="stable")[:_SHARDS]
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

    def sizes(self, share: Array, chosen: Ints) -> tuple[Array, Array, Array]:
        """(mean loads [J], loads of a rank with a shard of each kind [Q, J], loads that all ranks have [J]).

        share  [n] shares of the options ``chosen`` [n];  J  pairs of a step and its resource;  Q  kinds of
               table
        """
        problem = self.problem
        group = problem.options.group[chosen]
        tables = share * problem.count[group]
        own = np.zeros((problem.count.size, problem.own.shape[1]))
        np.add.at(own, group, share[:, np.newaxis] * problem.own[chosen])
        everywhere = tables @ problem.everywhere[chosen]
        return steady(tables @ problem.average[chosen]), steady(own + everywhere), steady(everywhere)

    def step_times(self, sizes: Array) -> Array:
        """Estimated time of each step at the largest loads [J] of a rank, [P] in us."""
        most = np.zeros(len(self.problem.curves.times))
        np.maximum.at(most, self.problem.curves.step, sizes)
        return np.asarray((self.slope * most[:, np.newaxis] + self.cut).max(axis=1))

    def solve(self) -> tuple[Array, Array, float, float]:
        """(shares of the options, multipliers of the rows, multiplier of memory, least time [us])."""
        from scipy import sparse

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
        flat = self.cut.max(axis=1, where=self.slope == 0, initial=0)
        lower = np.concatenate([np.zeros(n), flat, [0]])
        upper = np.full(lower.size, np.inf)
        copied = np.flatnonzero(problem.options.copied[chosen])
        lower[copied], upper[copied] = self.part.fewest[group[copied]], self.part.most[group[copied]]
        one = np.ones(n), (group, np.arange(n))
        whole = sparse.csr_array(one, shape=(problem.count.size, n + steps + 1))
        rows, every = sparse.csr_array(matrix), np.ones(problem.count.size)
        found = linear.least(
            problem.curves.work, cost, rows, right, whole, every, np.stack([lower, upper], axis=1)
        )
        self.step_us = found.x[n : n + steps]
        dual = np.maximum(-found.ineqlin.marginals, 0)
        self.idle = np.where(dual[:R] > 0, 0, self.idle + 1)
        problem.binding = self.rows[dual[:R] > 0]
        return found.x[:n], dual[:R], float(dual[R]), float(found.fun)

    def weights(self, dual: Array, room: float) -> Weights:
        """The cost of loads at the multipliers ``dual`` of the program's rows and ``room`` of memory."""
        problem = self.problem
        j, line, kind = self.rows.T
        p, J = problem.curves.step[j], problem.curves.step.size
        weight = dual * np.where(line == _MOST, 1 / self.most[p], self.slope[p, line])
        mean, floor = np.zeros(J), np.zeros(J)
        for total, of in ((mean, _MEAN), (floor, _FLOOR)):
            np.add.at(total, j[kind == of], weight[kind == of])
        held = np.zeros((problem.count.size, J))
        np.add.at(held, (kind[kind >= 0], j[kind >= 0]), weight[kind >= 0])
        everywhere = held.sum(axis=0) + floor
        slope = np.bincount(problem.curves.step, mean + everywhere, len(problem.curves.times))
        value = problem.curves.least(slope / TO_US, self.first, self.last).sum() * TO_US
        return Weights(mean, everywhere, held, room, float(value + floor @ self.part.floor - room))

    def prices(self, of: Weights) -> Array:
        """Cost of all tables of each option's kind at these weights [us]; infinite if not allowed."""
        problem, o = self.problem, self.problem.options
        problem.curves.work.add(units.PRICED, problem.average.size)
        price = problem.average @ of.mean
        price += of.room * o.average_memory / problem.limit_bytes
        if of.everywhere.any():
            price += problem.everywhere @ of.everywhere
        price *= problem.count[o.group]
        for q in np.flatnonzero(of.held.any(axis=1)):
            at = slice(o.first[q], o.first[q + 1])
            price[at] += problem.own[at] @ of.held[q]
        price[~self.mask] = np.inf
        return steady(price)

    def priced(self, dual: Array, room: float) -> tuple[float, Ints]:
        """(the Lagrangian's value [us], the option that it prefers for each kind of table).

        dual, room  multipliers of the program's rows and of memory
        """
        weights = self.weights(dual, room)
        least, column = self._cheapest(self.prices(weights))
        return float(least.sum()) + weights.constant, column

    def _cheapest(self, price: Array) -> tuple[Array, Ints]:
        """(least cost per kind of table [us], the options that have it).

        price  cost by option; as many tables of a kind are replicated as the part allows, if that is cheaper
        """
        problem, part = self.problem, self.part
        copied = problem.options.copied
        least, column = problem.least(price)
        if not part.fewest.any() and (part.most == 1).all():
            return least, column
        copy, _ = problem.least(np.where(copied, price, np.inf))
        other, split = problem.least(np.where(copied, np.inf, price))
        share = np.where(copy < other, part.most, part.fewest)
        cost = np.where(share > 0, share * np.where(share > 0, copy, 0), 0)
        cost += np.where(share < 1, (1 - share) * np.where(share < 1, other, 0), 0)
        return cost, np.where((share == 1) | ~np.isfinite(other), column, split)


def relax(
    problem: Problem,
    part: Subspace,
    known: Ints,
    *,
    tolerance: float,
    stop_s: float = np.inf,
    coarse: bool = False,
    until: Callable[[], bool] = lambda: False,
) -> Relaxation | None:
    """Solve the relaxed problem of one part of all plans.

    known      options to begin with;  until  returns whether to stop early
    tolerance  relative accuracy of the bound [-];  stop_s  a bound above this time need not be exact [s]
    coarse     whether a bound far below ``stop_s`` may be inexact, because its part is split further
    Limits: a table that no scheme of the part fits -> None
    """
    master = Master(problem, part)
    columns = master.begin(known)
    if columns is None:
        return None
    best = before = -np.inf
    master.tighten(np.isin(master.chosen, columns[0]).astype(np.float64), master.chosen)
    while True:
        share, dual, room, value = master.solve()
        chosen = master.chosen
        bound, column = master.priced(dual, room)
        tight = not master.tighten(share, chosen)
        columns.append(column)
        best = max(best, bound)
        left = _CARE * max(1 - best / (stop_s * TO_US), 0) if coarse and np.isfinite(stop_s) else 0.0
        rough = best >= value * (1 - left) and best - before <= _RISEN * left * abs(best)
        before = best
        near, more = best >= value * (1 - tolerance), master.add(column)
        settled = tight and (near or not more)
        if best >= stop_s * TO_US or until() or settled or rough:
            break
    at, shards, everywhere = master.sizes(share, chosen)
    floor = np.where(part.floor > 0, everywhere + part.floor, 0)
    sizes = np.maximum(np.maximum(at, shards.max(axis=0)), floor)
    step_s, room_s = master.step_times(sizes) / TO_US, room / TO_US
    found = np.stack(columns)
    return Relaxation(best / TO_US, chosen, share, found, sizes, everywhere, step_s, room_s, rough)
