"""The relaxed problem with whole tables instead of shares: a mixed-integer linear program (HiGHS).

    min   sum_p T_p
    sum over options o of kind q of x_o = n_q       x_o tables use option o, a whole number
    u_p >= sum_o average_oj x_o                     for every resource j that step p waits for
    u_p >= e_j + sum over o of q of own_oj x_o/n_q  e_j = sum_o everywhere_oj x_o; for every kind of table q
    sum_o memory_o x_o <= limit                     mean of the ranks
    u_p = sum_k u_pk,  low_pk z_pk <= u_pk <= high_pk z_pk,  sum_k z_pk <= 1      z: which range u_p is in
    T_p >= F_p(0) + sum_k (slope u_pk + (cut - F_p(0)) z_pk)      for each line under F_p in range k
    sum over o of q that use step p of x_o <= n_q sum_k z_pk      a step in use pays what it costs to begin

Every plan satisfies these (``relaxation``), with whole numbers: no plan takes less than the minimum. Shares
may hide a collective in a part of a table, and may be on a line far below a curve that is not convex. Whole
tables and ranges may not. What is left out is the same: that shards are whole, and uneven on the ranks.
Source: ranges by the multiple-choice model of piecewise linear costs (Croxton, Gendron and Magnanti,
Management Science 49, 2003); branch and cut: Huangfu and Hall, Math. Prog. Comp. 10 (2018) (HiGHS)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.hulls import Hulls, lines
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_RANGES = 8  # of the sizes of a step
_LINES = 6  # under the curve of one range
_TOLERANCES = 1e-4  # of the bound: HiGHS keeps to rows, whole numbers and multipliers within 1e-6
_LEAST = 1e-12  # coefficients below are taken for 0
_GAP = 1e-3  # between HiGHS's best plan and its bound: nearer is no use
_AT_A_TIME = 64  # options that are compared with all others of their kind


@dataclass
class _Rows:
    """Rows of a sparse matrix with their limits."""

    row: list[Ints] = field(default_factory=list)
    column: list[Ints] = field(default_factory=list)
    value: list[Array] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def add(self, columns: Ints, values: Array, lower: float, upper: float) -> None:
        """One row: lower <= sum of values times columns <= upper."""
        self.row.append(np.full(len(columns), len(self.lower), dtype=np.int64))
        self.column.append(np.asarray(columns, dtype=np.int64))
        self.value.append(np.asarray(values, dtype=np.float64))
        self.lower.append(lower)
        self.upper.append(upper)


class MixedInteger:
    """The program of one problem; ``solve`` raises its bound.

    bound_s   no plan takes less [s];  ended  whether HiGHS is done, and the bound rises no more
    Limits: free tables -> the latency of what always runs;  tables of which no plan is as fast as the one
            that is known -> 0: nothing is said
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.hulls = problem, Hulls(problem.curves)
        self.bound_s, self.ended = 0.0, False
        alive = problem.order
        self.options: Ints = alive[undominated(problem, alive)]
        self.columns, self.rows = self.options.size, _Rows()
        self.upper = list(problem.count[problem.options.group[self.options]])
        self.whole: list[bool] = (~mixed(problem)[self.options]).tolist()
        self.cost = [0.0] * self.columns
        self._tables()
        for p in range(len(problem.curves.times)):
            self._step(p)

    def solve(self, until: Callable[[], bool], found: Callable[[Ints], None]) -> None:
        """Raise the bound until the program is solved, or ``until`` says that it is enough.

        found  is called with the options, one of each table in the order of kinds, of every better solution,
               the best one first; with none where some options have shares
        """
        import highspy

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", _GAP),
            ("small_matrix_value", _LEAST),
        ):
            highs.setOptionValue(name, value)
        highs.passModel(self._model(highspy))
        interrupts: list[KeyboardInterrupt] = []
        solutions: list[Array] = []
        enough = False

        def watch(event: Any) -> None:
            nonlocal enough
            try:
                enough = enough or until()
            except KeyboardInterrupt as error:  # HiGHS must end first
                interrupts.append(error)
                enough = True
            if enough:
                event.interrupt()

        def raised(event: Any) -> None:
            self._know(event.data_out.mip_dual_bound)
            watch(event)

        def better(event: Any) -> None:
            solutions.append(np.asarray(event.data_out.mip_solution)[: self.options.size].copy())

        highs.cbMipInterrupt += raised
        highs.cbSimplexInterrupt += watch
        highs.cbMipImprovingSolution += better
        highs.run()
        status, kinds = highs.getModelStatus(), highspy.HighsModelStatus
        self.ended = status in (kinds.kOptimal, kinds.kInfeasible)
        if status != kinds.kInfeasible:  # the plan that is known should be left at least
            self._know(highs.getInfo().mip_dual_bound)
        if interrupts:
            raise interrupts[0]
        if all(self.whole[: self.options.size]):
            for solution in reversed(solutions):
                found(np.repeat(self.options, np.rint(solution).astype(np.int64)))

    def _know(self, bound_us: float) -> None:
        if np.isfinite(bound_us):
            bound_s = bound_us * (1 - _TOLERANCES) / TO_US
            self.bound_s = max(self.bound_s, min(bound_s, self.problem.most_s))

    def _new(self, upper: float, *, whole: bool = False, cost: float = 0.0, count: int = 1) -> Ints:
        """More columns, from 0 to ``upper``."""
        first, self.columns = self.columns, self.columns + count
        self.upper += [upper] * count
        self.whole += [whole] * count
        self.cost += [cost] * count
        return np.arange(first, self.columns)

    def _tables(self) -> None:
        """Every table has one option; all fit the memory."""
        problem, o, at = self.problem, self.problem.options, self.options
        for q in range(problem.count.size):
            mine = np.flatnonzero(o.group[at] == q)
            self.rows.add(mine, np.ones(mine.size), problem.count[q], problem.count[q])
        share = o.average_memory[at] / problem.limit_bytes
        self.rows.add(np.arange(at.size), share, -np.inf, 1.0)

    def _step(self, p: int) -> None:
        """What a step takes at the sizes that these tables bring."""
        problem, curves, at = self.problem, self.problem.curves, self.options
        waits = np.flatnonzero(curves.step == p)
        uses = (problem.average[at][:, waits] > 0).any(axis=1)
        if not uses.any() or not curves.times[p].any():
            return
        time = self._new(np.inf, cost=1.0)
        idle_us = curves.times[p, 0] * TO_US
        least = problem.average[at][uses][:, waits].max(axis=1)
        least = np.min(np.where(np.array(self.whole[: at.size])[uses], least, 0.0))
        loads = (problem.average + problem.everywhere + problem.own)[at][:, waits]
        ranges = self._ranges(p, float(least), float(problem.largest(at, loads).max()))
        high = curves.sizes[[b for _, b in ranges]]
        scale = float(high[-1])
        z = self._new(1.0, whole=True, count=len(ranges))
        u = self._new(1.0, count=len(ranges))  # in units of the largest size of the range
        ones = np.ones(len(ranges))
        self.rows.add(z, ones, -np.inf, 1.0)
        edges = [lines(*self.hulls.of(p, a, b), _LINES) for a, b in ranges]
        for k, (a, _) in enumerate(ranges):
            pair = np.array([u[k], z[k]])
            self.rows.add(pair, np.array([1.0, -1.0]), -np.inf, 0.0)
            low = curves.sizes[a - 1] if k == 0 else curves.sizes[a]
            self.rows.add(pair, np.array([1.0, -low / high[k]]), 0.0, np.inf)
        for slope, cut in zip(*(np.array(each).T for each in zip(*edges, strict=True)), strict=True):
            values = np.concatenate([slope * high, cut - idle_us, [-1.0]])
            self.rows.add(np.concatenate([u, z, time]), values, -np.inf, -idle_us)
        for j in waits:
            self._load(int(j), u, high / scale, scale)
        group, count = problem.options.group[at], problem.count
        for q in np.unique(group[uses]):
            mine = np.flatnonzero(uses & (group == q))
            values = np.concatenate([np.full(mine.size, 1 / count[q]), -ones])
            self.rows.add(np.concatenate([mine, z]), values, -np.inf, 0.0)

    def _load(self, j: int, u: Ints, high: Array, scale: float) -> None:
        """The size of a step is no less than the mean load, nor than what the holder of a shard has."""
        problem, at = self.problem, self.options
        group = problem.options.group[at]
        mean, every, own = (x[at, j] / scale for x in (problem.average, problem.everywhere, problem.own))
        less = -high
        mine = np.flatnonzero(mean)
        if not mine.size:
            return
        self.rows.add(np.concatenate([mine, u]), np.concatenate([mean[mine], less]), -np.inf, 0.0)
        e, mine = self._new(np.inf), np.flatnonzero(every)
        self.rows.add(np.append(mine, e), np.append(every[mine], -1.0), -np.inf, 0.0)
        for q in np.unique(group[own > 0]):
            mine = np.flatnonzero((own > 0) & (group == q))
            values = np.concatenate([own[mine] / problem.count[q], [1.0], less])
            self.rows.add(np.concatenate([mine, e, u]), values, -np.inf, 0.0)

    def _ranges(self, p: int, least: float, largest: float) -> list[tuple[int, int]]:
        """First and last places of the sizes of each range, from where one table is to where all are."""
        sizes = self.problem.curves.sizes
        first = max(1, int(np.searchsorted(sizes, least)))
        last = max(first, min(int(self.problem.last[p]), int(np.searchsorted(sizes, largest))))
        edges = np.unique(np.linspace(first, last, _RANGES + 1).astype(np.int64)).tolist()
        return list(pairwise(edges)) or [(first, last)]

    def _model(self, highspy: Any) -> Any:
        """The program as HiGHS takes it."""
        from scipy import sparse

        rows = self.rows
        found = np.concatenate(rows.value), (np.concatenate(rows.row), np.concatenate(rows.column))
        matrix = sparse.csc_array(found, shape=(len(rows.lower), self.columns))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(rows.lower)
        lp.col_cost_, lp.col_lower_ = np.array(self.cost), np.zeros(self.columns)
        lp.col_upper_ = np.array(self.upper, dtype=np.float64)
        lp.row_lower_, lp.row_upper_ = np.array(rows.lower), np.array(rows.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr, matrix.indices
        lp.a_matrix_.value_ = matrix.data
        types = highspy.HighsVarType
        lp.integrality_ = [types.kInteger if whole else types.kContinuous for whole in self.whole]
        return lp


def undominated(problem: Problem, alive: Ints) -> Mask:
    """[n] options that no other of the same kind of table is as good as in all loads and in memory.

    A plan with the other one has no larger load, and no less room. Of equal ones the first is left.
    """
    o = problem.options
    memory = np.stack([o.average_memory[alive], (o.own_memory + o.everywhere_memory)[alive]], axis=1)
    loads = [x[alive] for x in (problem.own, problem.everywhere, problem.average)]
    worth = np.concatenate([*loads, memory], axis=1)
    kept = np.ones(alive.size, dtype=bool)
    for q in np.unique(o.group[alive]):
        at = np.flatnonzero(o.group[alive] == q)
        mine = worth[at]
        for first in range(0, at.size, _AT_A_TIME):
            some = mine[first : first + _AT_A_TIME, np.newaxis]
            no_more = (mine <= some).all(axis=2)
            less = (mine < some).any(axis=2)
            before = np.arange(at.size) < np.arange(first, first + len(some))[:, np.newaxis]
            kept[at[first : first + _AT_A_TIME]] &= ~(no_more & (less | before)).any(axis=1)
    return kept | mixed(problem)[alive]


def mixed(problem: Problem) -> Mask:
    """[O] options of which tables have shares still: a scheme with hot rows is above a mix of several."""
    o = problem.options
    return o.mixed if isinstance(o, Cover) else np.zeros(o.group.size, dtype=bool)
