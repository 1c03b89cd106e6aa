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

_MEAN, _FLOOR = -1, -2  # rows of the linear program that are of no kind of table
_MOST = -1  # and of no tangent: no more than the largest size
_SLACK = 1e-4  # of the program's value: what a tangent must be above it to count
_SHARDS = 4  # kinds of table, of each resource, whose shards may count in the next program
_CARE, _RISEN = (
    0.1,
    0.25,
)  # of how far a bound is below what it must reach: what it may be off, and rise
_KEPT = 4  # programs in which a row need not count before it is left out
_PENALTY_US = 1e7  # of a rank's memory that is too much by all of it


class Weights(NamedTuple):
    """What a byte costs, in the units of u [us], as the mean of the ranks [J], on every rank [J], and at the
    holder of a shard of each kind of table [Q, J]; all the memory [us]; and what the curves add [us]."""

    mean: Array
    everywhere: Array
    held: Array
    room: float
    constant: float


class Master:
    """The linear program over the schemes that are known so far."""

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
        self.idle = np.zeros(len(self.rows), dtype=np.int64)  # programs in a row in which a row did not count

    def _usable(self, rows: Ints) -> Ints:
        """Rows of another part's program that this one may have too."""
        j, line, kind = rows.T
        bounded = self.last[self.problem.curves.step[j]] < self.problem.last[self.problem.curves.step[j]]
        kept = ((line != _MOST) | bounded) & ((kind != _FLOOR) | (self.part.floor[j] > 0))
        return np.asarray(rows[kept])

    def begin(self, known: Ints) -> list[Ints] | None:
        """Options to begin with; [Q] those of least memory, and of least loads; None: a table has none."""
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
        """More schemes; False where all are known."""
        before = self.chosen.size
        self.chosen = np.union1d(self.chosen, options)
        return self.chosen.size > before

    def tighten(self, share: Array, chosen: Ints) -> bool:
        """Tangents at the point of these shares [n] where it is above the last program's; False: nowhere."""
        problem = self.problem
        at, shards, everywhere = self.sizes(share, chosen)
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

    def sizes(self, share: Array, chosen: Ints) -> tuple[Array, Array, Array]:
        """Mean loads [J], what the holder of a shard of each kind of table has [Q, J], what all have [J], of
        shares [n] of options."""
        problem = self.problem
        group = problem.options.group[chosen]
        tables = share * problem.count[group]
        own = np.zeros((problem.count.size, problem.own.shape[1]))
        np.add.at(own, group, share[:, np.newaxis] * problem.own[chosen])
        everywhere = tables @ problem.everywhere[chosen]
        return steady(tables @ problem.average[chosen]), steady(own + everywhere), steady(everywhere)

    def step_times(self, sizes: Array) -> Array:
        """What each step is thought to take at the largest loads [J] of a rank, [P] in us."""
        most = np.zeros(len(self.problem.curves.times))
        np.maximum.at(most, self.problem.curves.step, sizes)
        return np.asarray((self.slope * most[:, np.newaxis] + self.cut).max(axis=1))

    def solve(self) -> tuple[Array, Array, float, float]:
        """Shares [n], multipliers of the rows [R] and of memory, and the value [us]."""
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
        """What loads cost at these multipliers."""
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
        """What all tables of a kind cost with each option; infinite where it may not be."""
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
        """The Lagrangian's value [us] at these multipliers, and the option of each kind that it prefers."""
        weights = self.weights(dual, room)
        least, column = self._cheapest(self.prices(weights))
        return float(least.sum()) + weights.constant, column

    def _cheapest(self, price: Array) -> tuple[Array, Ints]:
        """Least cost of every kind of table with as many copies as there may be; the options that have it."""
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

    known      options to begin with;  until  whether to end early
    tolerance  of the bound, as a share;  stop_s  no need to know more than that it is above [s]
    coarse     whether a bound far below that need not come near its optimum: its part is split further
    Limits: a table that can be sharded in no way of the part -> None
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
