"""An immediate bound: the Lagrangian at the slopes of the best plan's steps, without a linear program.

For any prices w >= 0 of the mean loads of ranks and m >= 0 of all memory, no plan takes less than

    sum_q n_q min_o (w . average_o + m memory_o / limit)  +  sum_p min_u (F_p(u) - s_p u)  -  m       [us]

q  a kind of table, with n_q equal tables;  o  its sharding options;  average_o  mean load of a rank
F_p(u)  time of step p when the busiest rank's load is u
s_p  the sum of w over the resources that step p waits for

Source: weak duality: the busiest rank's loads are at least the mean loads, and a plan's memory is at most the
limit. The slopes of F_p at the loads of a good plan are near the best prices. Repeatedly, the loads of the
cheapest options at these prices are added, and slopes computed again.
Source: Everett, Operations Research 11 (1963): prices of memory; Frank and Wolfe (1956): repeated slopes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.steady import steady
from perfmodel.plan.bounding.problem import Problem, Subspace
from perfmodel.plan.bounding.relaxation import Master, Weights
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 4  # in each of which slopes are computed
_TRIALS = 8  # of the price of memory in a round
_SPREAD = 4.0  # factor between prices of memory, until one price is too low and one too high
_NEAR = 1.05  # final ratio of these two prices
_RISE = 1e-3  # share of the bound by which a round must raise it for another round
_ROUNDING = 1e-9  # of a time


@dataclass(frozen=True, eq=False)
class AtOnce:
    """An immediate bound, with J pairs of a step and a resource that the step waits for.

    bound_s  no plan takes less [s]
    mean     [J] prices of the mean loads;  room  price of all memory together [us]
    chosen   indices of the options that were cheapest at these prices
    """

    bound_s: float
    mean: Array
    room: float
    chosen: Ints


def at_once(problem: Problem, loads: Array) -> AtOnce:
    """The best bound among a few prices w (see the file): the slopes of the steps' times at a few loads.

    loads  [J] loads of the busiest rank of a known plan, for each pair of a step and its resource
    Limits: a table that no scheme fits -> infinite;  tables without loads -> the latency of the steps that
    always run
    """
    prices = _Prices(problem)
    best, first_us = AtOnce(-np.inf, np.zeros(loads.size), 0.0, np.zeros(0, dtype=np.int64)), 0.0
    for turn in range(_ROUNDS):
        mean, first_us = prices.slopes(loads), first_us or prices.step_us(loads)
        found, other = prices.with_memory(mean, best.room or first_us)
        rose = found.bound_s > best.bound_s + _RISE * abs(found.bound_s)
        if found.bound_s > best.bound_s:
            best = found
        if not rose or not np.isfinite(found.bound_s):
            break
        loads = loads + (other - loads) * 2 / (turn + 3)
    return best


class _Prices:
    """Computes prices of loads, and the bound that they give."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.master = problem, Master(problem, Subspace.whole(problem))
        self.active = np.isin(np.arange(problem.curves.step.size), self.master.active)

    def step_us(self, loads: Array) -> float:
        """Estimated time of all steps at these loads [J] of the busiest rank [us]."""
        return float(self.master.step_times(loads).sum())

    def slopes(self, loads: Array) -> Array:
        """Prices of loads [J]: the slope of each step's hull, for the resource that limits the step.

        Limits: a step that does not run -> the steepest line from 0, so that its loads are not free
        """
        master, step = self.master, self.problem.curves.step
        size = np.zeros(len(master.slope))
        np.maximum.at(size, step, loads)
        lines = master.slope * size[:, np.newaxis] + master.cut
        most = lines.max(axis=1, keepdims=True)
        touch = lines >= most - _ROUNDING * (1 + np.abs(most))
        slope = np.where(touch, master.slope, 0).max(axis=1)
        mean = np.zeros(step.size)
        for p in range(slope.size):
            waits = np.flatnonzero(step == p)
            mean[waits[np.argmax(loads[waits])]] = slope[p]
        return np.where(self.active, mean, 0.0)

    def weights(self, mean: Array, room: float) -> Weights:
        """Prices of mean loads [J] and of memory [us] as ``Weights``, whose other weights are 0."""
        master, none = self.master, np.zeros_like(mean)
        steps = np.bincount(self.problem.curves.step, mean, len(master.slope)) / TO_US
        constant = self.problem.curves.least(steps, master.first, master.last).sum() * TO_US - room
        return Weights(mean, none, np.zeros((self.problem.count.size, mean.size)), room, float(constant))

    def with_memory(self, mean: Array, usual_us: float) -> tuple[AtOnce, Array]:
        """(the best bound over a few prices of memory, mean loads [J] of its cheapest options).

        mean  [J] prices of mean loads;  usual_us  a typical time of a pass, from which the tried prices
              follow
        """
        problem, master = self.problem, self.master
        free = self.weights(mean, 0.0)
        price = master.prices(free)
        o = problem.options
        memory = o.average_memory / problem.limit_bytes * problem.count[o.group]
        best, loads = AtOnce(-np.inf, mean, 0.0, np.zeros(0, dtype=np.int64)), mean
        low, high, room = 0.0, np.inf, 0.0
        for _ in range(_TRIALS):
            least, column = problem.least(price + room * memory)
            value = (float(least.sum()) + free.constant - room) / TO_US
            if value > best.bound_s:
                best = AtOnce(value, mean, room, column)
                loads = steady(problem.count @ problem.average[column])
            if float(memory[column].sum()) > 1:
                low = room
            else:
                high = room
            if high == 0 or (low > 0 and high < low * _NEAR):
                break
            if np.isinf(high):
                room = room * _SPREAD or usual_us
            else:
                room = float(np.sqrt(low * high)) if low > 0 else high / _SPREAD
        return best, loads
