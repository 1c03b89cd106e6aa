"""The linear program of some of all plans: shares of options, the sizes of steps, and rows of patterns.

    min   sum_p T_p
    sum over options o of kind q of x_o = n_q       x_o tables use option o
    u_p >= sum_o average_oj x_o                     mean load, of every resource j that step p waits for
    u_p >= low_p + sum_o min_j everywhere_oj x_o    some rank has shards of ``low_p`` or more
    T_p >= F_p(u_p)                                 F_p: lower convex hull of the curve between two sizes
    sum_o memory_o x_o <= limit                     mean of the ranks
    sum_o worth_o parts_o x_o <= G K                each row of ``shard_patterns``
    x_o = 0 where a shard has more than ``high_p``  no rank has shards of more

The program stays with its solver (HiGHS), and each is solved from where the last one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding.hulls import Hulls, lines
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.bounding.shard_patterns import PatternRow, most_worth
from perfmodel.plan.bounding.tangents import TO_US
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LINES = 5  # under the curve of a step
_ROWS = 60  # of patterns that a program has at once
_SAME = 1 + 1e-9
_USED = 1e-6  # of a table


@dataclass(frozen=True, eq=False)
class Rooms:
    """Some of all plans, those whose

    allowed, forced  [6] kinds of exchange may be used, and are
    first, last      [P] places of ``StepCurves.sizes`` that the sizes of steps are between
    low, high        [P] between which the most is that the shards of one rank bring to a step, its room
    options          [n] of the program that tables may use
    """

    allowed: Mask
    forced: Mask
    first: Ints
    last: Ints
    low: Array
    high: Array
    options: Mask


@dataclass(frozen=True, eq=False)
class Solved:
    """value [us];  share [n] tables of each option, and what one table more would cost [us];
    size, time  [P] of each step [units of u, us]"""

    value: float
    share: Array
    more: Array
    size: Array
    time: Array


class RoomProgram:
    """Programs of the plans of one problem.

    options  [n] of the problem that are worth anything;  parts [n] of those whose shards have ranks of their
             own, of others 0;  apart [n] whether they have
    own      [n, J] of a shard in units of u;  memory  [n] of a shard, shares of a rank
    waits    [J] resources of the problem that shards bring, and that count;  step  [J] that waits for each
    """

    def __init__(self, problem: Problem, options: Ints) -> None:
        import highspy

        self.problem, self.options, self.hulls = problem, options, Hulls(problem.curves)
        o, curves = problem.options, problem.curves
        assert isinstance(o, Options)
        self.group, self.exchange, self.gpus = o.group[options], o.exchange[options], float(o.gpus)
        parts = o.parts[options]
        self.apart = (parts > 0) & (parts < o.gpus)
        own, everywhere, self.average = (
            of[options] for of in (problem.own, problem.everywhere, problem.average)
        )
        counts = self.average.any(axis=0) & (curves.times[curves.step, -1] > 0)
        every = everywhere + own * (parts == o.gpus)[:, np.newaxis]
        own = own * self.apart[:, np.newaxis]
        self.parts = np.where(self.apart, parts, 0).astype(np.float64)
        self.active = np.flatnonzero(counts)
        self.waits = np.flatnonzero(counts & own.any(axis=0))
        self.step, self.own = curves.step[self.waits], own[:, self.waits]
        self.memory = np.where(self.apart, o.own_memory[options], 0) / problem.limit_bytes
        self.steps = np.unique(curves.step[self.active])
        self.idle_us = float(np.delete(curves.times[:, 0], self.steps).sum()) * TO_US
        self.last = self._largest(every + own)
        self.rows: list[PatternRow] = []
        self.solved = 0
        self.highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.inf = highspy.kHighsInf
        self.kinds = highspy.HighsModelStatus
        for name, value in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
            self.highs.setOptionValue(name, value)
        self._columns()
        self._tables()
        self._loads(every)
        self._lines()

    def _largest(self, load: Array) -> Ints:
        """[P] places of sizes that no plan that is worth anything goes beyond; load [n, J] of one rank."""
        curves = self.problem.curves
        most = np.zeros(len(curves.times))
        np.maximum.at(most, curves.step, self.problem.largest(self.options, load))
        last = np.minimum(self.problem.last, curves.at_most(np.minimum(most, curves.most)))
        return np.asarray(np.minimum(last, curves.sizes.size - 1))

    def _columns(self) -> None:
        """Tables of each option, sizes in shares of the largest, and times."""
        curves, n, steps = self.problem.curves, self.options.size, self.steps.size
        self.scale = np.maximum(curves.sizes[self.last[self.steps]], 1.0)
        count = n + 2 * steps
        self.cost = np.concatenate([np.zeros(n + steps), np.ones(steps)])
        upper = np.concatenate([self.problem.count[self.group], np.ones(steps), np.full(steps, self.inf)])
        none = np.zeros(0, dtype=np.int32)
        self.highs.addCols(count, self.cost, np.zeros(count), upper, 0, none, none, np.zeros(0))
        self.all = np.arange(count, dtype=np.int32)

    def _add(self, matrix: Array, lower: Array, upper: Array) -> int:
        """Rows of all columns; the number of the first."""
        first = self.highs.getNumRow()
        row, column = np.nonzero(matrix)
        start = np.searchsorted(row, np.arange(len(matrix))).astype(np.int32)
        values = matrix[row, column]
        self.highs.addRows(len(matrix), lower, upper, values.size, start, column.astype(np.int32), values)
        return int(first)

    def _empty(self, rows: int) -> Array:
        return np.zeros((rows, self.all.size))

    def _tables(self) -> None:
        problem, n = self.problem, self.options.size
        rows = self._empty(problem.count.size + 1)
        rows[self.group, np.arange(n)] = 1
        rows[-1, :n] = problem.options.average_memory[self.options] / problem.limit_bytes
        self._add(rows, np.append(problem.count, -self.inf), np.append(problem.count, 1.0))

    def _loads(self, every: Array) -> None:
        n, steps = self.options.size, self.steps.size
        place = np.searchsorted(self.steps, self.problem.curves.step[self.active])
        rows = self._empty(self.active.size)
        rows[:, :n] = -(self.average[:, self.active] / self.scale[place]).T
        rows[np.arange(self.active.size), n + place] = 1
        self._add(rows, np.zeros(len(rows)), np.full(len(rows), self.inf))
        self.roomy = np.unique(self.step)  # steps that shards bring anything to
        rows = self._empty(self.roomy.size)
        for row, p in enumerate(self.roomy.tolist()):
            at = int(np.searchsorted(self.steps, p))
            rows[row, :n] = -every[:, self.waits[self.step == p]].min(axis=1) / self.scale[at]
            rows[row, n + at] = 1
        self.low_at = self._add(rows, np.zeros(len(rows)), np.full(len(rows), self.inf))
        rows = self._empty(1)
        rows[0, n + steps :] = 1
        self.total_at = self._add(rows, np.array([-self.inf]), np.array([self.inf]))

    def _lines(self) -> None:
        """Of every step as many rows as it has lines at most; they are set for each part."""
        n, steps = self.options.size, self.steps.size
        rows = self._empty(_LINES * steps)
        at = np.repeat(np.arange(steps), _LINES)
        rows[np.arange(len(rows)), n + steps + at] = 1
        self.lines_at = self._add(rows, np.zeros(len(rows)), np.full(len(rows), self.inf))
        self.patterns_at = int(self.highs.getNumRow())
        self.set_rows: Sequence[PatternRow] | None = None
        self.set: list[tuple[int, int]] = [(-1, -1)] * steps

    def _set_lines(self, first: Ints, last: Ints) -> None:
        n = self.options.size
        for i, p in enumerate(self.steps.tolist()):
            key = int(first[p]), int(last[p])
            if self.set[i] == key:
                continue
            self.set[i] = key
            slope, cut = lines(*self.hulls.of(p, *key), _LINES)
            for k in range(_LINES):
                row = self.lines_at + i * _LINES + k
                self.highs.changeCoeff(row, n + i, -float(slope[k]) * float(self.scale[i]))
                self.highs.changeRowBounds(row, float(cut[k]), self.inf)

    def room(self, part: Rooms) -> Array:
        """[J + 1] of a rank for shards, in units of u, and for memory."""
        sizes = self.problem.curves.sizes[part.last]
        return np.append(np.minimum(part.high, sizes)[self.step], 1.0)

    def possible(self, part: Rooms) -> Mask:
        """[n] options that a part may use."""
        fits = (self.own <= self.room(part)[:-1] * _SAME).all(axis=1)
        return np.asarray(part.options & part.allowed[self.exchange] & fits)

    def _set_rows(self, rows: Sequence[PatternRow], part: Rooms) -> None:
        """The rows of patterns that hold, and no other."""
        wanted = {id(row) for row in rows}
        known = {id(row) for row in self.rows}
        new = [row for row in rows if id(row) not in known]
        over = len(self.rows) + len(new) - _ROWS
        if over > 0:
            old = [at for at, row in enumerate(self.rows) if id(row) not in wanted][:over]
            self.highs.deleteRows(len(old), np.array(old, dtype=np.int32) + self.patterns_at)
            self.rows = [row for at, row in enumerate(self.rows) if at not in set(old)]
        if new:
            matrix = self._empty(len(new))
            for at, row in enumerate(new):
                matrix[at, : self.options.size] = row.worth * self.parts / self.gpus
            self._add(matrix, np.full(len(new), -self.inf), np.full(len(new), self.inf))
            self.rows += new
        most = np.full(len(self.rows), self.inf)
        used = [at for at, row in enumerate(self.rows) if id(row) in wanted]
        most[used] = most_worth([self.rows[at] for at in used], self.room(part))
        rows_at = np.arange(most.size, dtype=np.int32) + self.patterns_at
        self.highs.changeRowsBounds(most.size, rows_at, np.full(most.size, -self.inf), most)

    def solve(
        self,
        part: Rooms,
        rows: Sequence[PatternRow],
        most_us: float | None = None,
        size: tuple[int, float] | None = None,
    ) -> Solved | None:
        """The optimum of a part, with some rows of patterns.

        most_us  of all times;  size  place among ``steps`` of the one whose size is least (1) or largest (-1)
        Limits: no plan -> None;  the solver gives up -> a value of minus infinity
        """
        n, steps = self.options.size, self.steps.size
        self._set_lines(part.first, part.last)
        if size is None or rows is not self.set_rows:
            self._set_rows(rows, part)  # where a size is narrowed, no more than once
            self.set_rows = rows
        sizes = self.problem.curves.sizes
        first, last = part.first[self.steps], part.last[self.steps]
        lower, upper = np.zeros(self.all.size), np.full(self.all.size, self.inf)
        upper[:n] = np.where(self.possible(part), self.problem.count[self.group], 0.0)
        lower[n : n + steps] = np.where(first > 0, sizes[np.maximum(first - 1, 0)], 0.0) / self.scale
        upper[n : n + steps] = sizes[last] / self.scale
        self.highs.changeColsBounds(self.all.size, self.all, lower, upper)
        for row, p in enumerate(self.roomy.tolist()):
            at = int(np.searchsorted(self.steps, p))
            self.highs.changeRowBounds(self.low_at + row, float(part.low[p] / self.scale[at]), self.inf)
        self.highs.changeRowBounds(
            self.total_at, -self.inf, self.inf if most_us is None else most_us - self.idle_us
        )
        cost = self.cost
        if size is not None:
            cost = np.zeros(self.all.size)
            cost[n + size[0]] = size[1]
        self.highs.changeColsCost(self.all.size, self.all, cost)
        self.highs.run()
        self.solved += 1
        status = self.highs.getModelStatus()
        if status == self.kinds.kInfeasible:
            return None
        ended = status == self.kinds.kOptimal
        solution = self.highs.getSolution()
        none = np.zeros(self.all.size)
        found, more = (np.asarray(of) if ended else none for of in (solution.col_value, solution.col_dual))
        value = self.highs.getInfo().objective_function_value + self.idle_us if ended else -np.inf
        times = np.zeros((2, len(self.problem.curves.times)))
        times[0, self.steps] = found[n : n + steps] * self.scale
        times[1, self.steps] = found[n + steps :]
        return Solved(float(value), found[:n], more[:n], *times)

    def used(self, solved: Solved) -> Ints:
        """Places of the options whose shards have ranks of their own, and that tables use."""
        return np.flatnonzero(self.apart & (solved.share * self.parts > _USED))
