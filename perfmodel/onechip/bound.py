"""A lower bound on all mappings: tables may have shares of several choices, spread evenly over the cores.

    min  T
    T >= sum of x (time of all cores) / N          T >= sum of x (time of each shared resource)
    sum of x (bytes kept) <= N capacity            x >= 0, sum of x of one table = 1

x  share of a choice;  N  cores;  capacity  bytes that a core can keep
Choices that have a piece longer than T are excluded. Source: any mapping satisfies this with shares of 0 and
1: the busiest core is at least as busy as the mean core, and as its longest piece. A linear program (HiGHS)
over few choices of each kind of table is solved repeatedly, adding the choices that its multipliers prefer;
the bound is the Lagrangian's, which holds for any multipliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Budget, Work
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.work_units import CHOICE, COLUMN, PROGRAM, ranked, unlimited

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 40
_CLOSE = 1e-6
_HALVINGS, _PRECISE = 12, 1e-3
_EXTRAS = (0.0, 0.1, 1.0)  # prices of memory, in the time of all tables, for the initial choices


@dataclass(frozen=True, eq=False)
class RelaxedMapping:
    """Solution of the relaxed problem, in which tables may have shares of several choices.

    bound_s   lower bound on mappings of the allowed choices [s]; inf: a kind of table has none
    chosen    choices in use;  share  for each, the share of the tables of its kind that have it [-]
    price_s   cost of every choice by the multipliers [s]
    """

    bound_s: float
    chosen: Ints
    share: Array
    price_s: Array


def lower_bound(
    choices: Choices, upper_s: float, near: RelaxedMapping | None = None, budget: Budget | None = None
) -> float:
    """Lower bound on all mappings [s].

        max over t of min(t, relaxed(choices whose longest piece is shorter than t))

    upper_s  time of a known mapping [s];  near, budget  as in ``relaxed``
    Source: a mapping faster than t uses only such choices
    Limits: never above ``upper_s``
    """
    budget = budget or unlimited()
    if near is None or not budget.over():
        near = relaxed(choices, np.ones(choices.spread_s.size, dtype=bool), near, budget)
    best = min(upper_s, near.bound_s)
    low, high, at = best, upper_s, upper_s
    for _ in range(_HALVINGS):
        if budget.over():
            break
        again = relaxed(choices, choices.longest_s < at, near, budget)
        found, near = again.bound_s, again if np.isfinite(again.bound_s) else near
        best = max(best, min(at, found))
        low, high = (max(low, at), high) if found >= at else (max(low, found), at)
        inside = (choices.longest_s > low) & (choices.longest_s < high)
        if high <= low * (1 + _PRECISE) or not inside.any():
            break
        at = (low + high) / 2
    return best


def relaxed(
    choices: Choices, allowed: Mask, near: RelaxedMapping | None = None, budget: Budget | None = None
) -> RelaxedMapping:
    """Solve the relaxed problem of the allowed choices.

    allowed  mask of the choices;  near  solution of a similar problem, to start from
    budget   counts the work; if it is spent, the first bound is returned
    Limits: a kind of table without choices, or memory too small for any shares -> ``bound_s`` inf
    """
    c, budget = choices, budget or unlimited()
    if np.any(np.add.reduceat(allowed, c.first[:-1]) == 0):
        return RelaxedMapping(np.inf, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(allowed.size))
    unit = float(np.sum(c.count * _least(c, c.loads.max(axis=1), allowed)[0])) or 1.0
    chosen = _first(c, allowed, near, unit)
    best, best_price = 0.0, np.zeros(allowed.size)
    for _ in range(_ROUNDS):
        share, prices, room_s, value = _program(c, chosen, unit, budget.work)
        if np.isinf(value):
            return RelaxedMapping(np.inf, chosen, share, best_price)
        price = c.loads @ prices + room_s * c.room
        least, at = _least(c, price, allowed)
        bound = float(c.count @ least) - room_s
        if bound >= best:
            best, best_price = bound, price
        more = np.setdiff1d(at, chosen)
        if more.size == 0 or best >= value * (1 - _CLOSE) or budget.over():
            break
        chosen = np.union1d(chosen, more)
    return RelaxedMapping(best, chosen, share, best_price)


def _first(c: Choices, allowed: Mask, near: RelaxedMapping | None, unit: float) -> Ints:
    """Choices to start with, among them the choices that need the least memory. unit  a time scale [s]"""
    if near is not None and near.chosen.size:
        kept = near.chosen[allowed[near.chosen]]
        prices = [c.room, near.price_s]
    else:
        kept, prices = np.zeros(0, dtype=np.int64), [c.room]
        prices += [
            c.loads @ one + extra * c.room * unit for one in np.eye(c.loads.shape[1]) for extra in _EXTRAS
        ]
    return np.unique(np.concatenate([kept, *(_least(c, price, allowed)[1] for price in prices)]))


def _least(c: Choices, value: Array, allowed: Mask) -> tuple[Array, Ints]:
    """(least value of each kind of table, index of the choice that has it); value  of each choice"""
    masked = np.where(allowed, value, np.inf)
    rank = ranked(masked)
    places = np.flatnonzero(rank == np.minimum.reduceat(rank, c.first[:-1])[c.kind])
    _, at = np.unique(c.kind[places], return_index=True)
    return np.minimum.reduceat(masked, c.first[:-1]), places[at]


def _program(c: Choices, chosen: Ints, unit: float, work: Work) -> tuple[Array, Array, float, float]:
    """(shares, multipliers of the loads (their sum is 1), multiplier of memory [s], least time [s]).

    chosen  choices in the program;  unit  a time scale [s]
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n, loads = chosen.size, c.loads[chosen] / unit
    K = loads.shape[1]
    above = np.zeros((K + 1, n + 1))
    above[:K, :n], above[:K, -1], above[K, :n] = loads.T, -1, c.room[chosen]
    limit, goal = np.append(np.zeros(K), 1.0), np.append(np.zeros(n), 1.0)
    equal: Any = csr_array((np.ones(n), (c.kind[chosen], np.arange(n))), shape=(c.count.size, n + 1))
    found: Any = linprog(goal, ranked(above), limit, equal, c.count.astype(float), (0, None), "highs")
    work.add(PROGRAM)
    work.add(COLUMN, n)
    work.add(CHOICE, c.spread_s.size)
    if found.status != 0:  # choices of least memory are included: no shares fit
        return np.zeros(n), np.zeros(K), unit, np.inf
    weight = np.maximum(-found.ineqlin.marginals, 0)
    total = max(float(weight[:K].sum()), 1e-300)
    return found.x[:n], weight[:K] / total, float(weight[K] / total * unit), float(found.fun) * unit
