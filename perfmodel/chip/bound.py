"""No mapping is faster than this: shares of choices instead of one for each table, spread evenly over cores.

    min  T
    T >= sum of x (time of all cores) / N          T >= sum of x (time of what the cores share) + H
    H >= sum over equal tables of x (time that the hottest row adds) / their number
    sum of x (bytes kept) <= N capacity            x >= 0, those of a table sum to 1

and choices with a piece longer than T are left out. Source: any mapping satisfies these with shares of 0
and 1: the busiest core is no less busy than the mean one, nor than its longest piece. A linear program
(HiGHS) over few choices of each kind, to which those that its multipliers prefer are added; the bound is the
Lagrangian's, which holds whatever the multipliers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.chip.choices import Choices, never

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 40
_CLOSE = 1e-6
_HOT = 0.01  # of the time of all tables: hottest rows that take less are left out
_HALVINGS = 12
_EXTRAS = (0.0, 0.1, 1.0)  # prices of room, in the time of all tables, that first choices are taken for


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxed problem of some choices.

    bound_s   no mapping of these choices is faster [s]; inf: a kind of table has none
    chosen    choices that are taken;  share  how many tables of its kind take each [-]
    price_s   [O] what each choice costs by the multipliers [s]
    """

    bound_s: float
    chosen: Ints
    share: Array
    price_s: Array


def lower_bound(
    choices: Choices, upper_s: float, near: Relaxed | None = None, late: Callable[[], bool] = never
) -> float:
    """No mapping is faster than this, where one of ``upper_s`` is known [s]; near, late  as in ``relaxed``.

        max over t of min(t, relaxed(choices whose longest piece is shorter than t))

    Source: a mapping faster than t uses only such choices
    Limits: never above ``upper_s``
    """
    if near is None or not late():
        near = relaxed(choices, np.ones(choices.spread_s.size, dtype=bool), near, late)
    best = min(upper_s, near.bound_s)
    low, high, at = best, upper_s, upper_s
    for _ in range(_HALVINGS):
        if late():
            break
        again = relaxed(choices, choices.longest_s < at, near, late)
        found, near = again.bound_s, again if np.isfinite(again.bound_s) else near
        best = max(best, min(at, found))
        low, high = (max(low, at), high) if found >= at else (max(low, found), at)
        inside = (choices.longest_s > low) & (choices.longest_s < high)
        if high <= low * (1 + _CLOSE) or not inside.any():
            break
        at = (low + high) / 2
    return best


def relaxed(
    choices: Choices, allowed: Mask, near: Relaxed | None = None, late: Callable[[], bool] = never
) -> Relaxed:
    """The relaxed problem of the choices that are allowed.

    near  a problem of much the same choices, which this one begins with
    late  whether the first bound that is found will do
    Limits: a kind without any, no room whatever the shares -> bound_s inf;  all -> a bound of every mapping
    """
    c = choices
    if np.any(np.add.reduceat(allowed, c.first[:-1]) == 0):
        return Relaxed(np.inf, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(allowed.size))
    unit = float(np.sum(c.count * _least(c, c.loads.max(axis=1), allowed)[0])) or 1.0
    chosen = _first(c, allowed, near, unit)
    best, best_price = 0.0, np.zeros(allowed.size)
    hot = _hot_rows(c, allowed, unit)
    for _ in range(_ROUNDS):
        share, weight, extra, value = _program(c, chosen, hot, unit)
        if np.isinf(value):
            return Relaxed(np.inf, chosen, share, best_price)
        price = c.loads @ weight[: c.loads.shape[1]] + extra * c.room + _hot_price(c, hot, weight)
        least, at = _least(c, price, allowed)
        bound = float(c.count @ least) - extra
        if bound >= best:
            best, best_price = bound, price
        more = np.setdiff1d(at, chosen)
        if more.size == 0 or best >= value * (1 - _CLOSE) or late():
            break
        chosen = np.union1d(chosen, more)
    return Relaxed(best, chosen, share, best_price)


def _hot_rows(c: Choices, allowed: Mask, unit: float) -> list[tuple[int, int]]:
    """(kind, resource) where the hottest row of a table may matter. Left out: still a bound"""
    most = np.zeros((c.count.size, c.hot_s.shape[1]))
    np.maximum.at(most, c.kind[allowed], c.hot_s[allowed])
    return [(int(kind), int(at)) for kind, at in zip(*np.nonzero(most > _HOT * unit), strict=True)]


def _hot_price(c: Choices, hot: list[tuple[int, int]], weight: Array) -> Array:
    """What its hottest row adds to the price of each choice [s]."""
    price = np.zeros(c.spread_s.size)
    for (kind, at), each in zip(hot, weight[c.loads.shape[1] :], strict=True):
        own = slice(int(c.first[kind]), int(c.first[kind + 1]))
        price[own] += each * c.hot_s[own, at] / c.count[kind]
    return price


def _first(c: Choices, allowed: Mask, near: Relaxed | None, unit: float) -> Ints:
    """Choices to begin with; those that keep least are among them."""
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
    """The least value of each kind, and where it is."""
    masked = np.where(allowed, value, np.inf)
    least = np.minimum.reduceat(masked, c.first[:-1])
    places = np.flatnonzero(masked == least[c.kind])
    _, at = np.unique(c.kind[places], return_index=True)
    return least, places[at]


def _program(
    c: Choices, chosen: Ints, hot: list[tuple[int, int]], unit: float
) -> tuple[Array, Array, float, float]:
    """Shares, multipliers of the loads (their sum is 1) and of ``hot``, of the room [s], and the optimum [s].

    Unknowns: shares, H of each thing that is shared, T. A row says T >= load + H, or H >= mean hottest row of
    the tables of a kind.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n, loads = chosen.size, c.loads[chosen] / unit
    K, R, Q = loads.shape[1], c.hot_s.shape[1], c.count.size
    above = np.zeros((K + len(hot) + 1, n + R + 1))
    above[:K, :n], above[:K, -1] = loads.T, -1
    above[1:K, n : n + R] = np.eye(R)
    for row, (kind, at) in enumerate(hot, start=K):
        mine = np.flatnonzero(c.kind[chosen] == kind)
        above[row, mine] = c.hot_s[chosen[mine], at] / (c.count[kind] * unit)
        above[row, n + at] = -1
    above[-1, :n] = c.room[chosen]
    limit = np.append(np.zeros(K + len(hot)), 1.0)
    equal: Any = csr_array((np.ones(n), (c.kind[chosen], np.arange(n))), shape=(Q, n + R + 1))
    goal = np.append(np.zeros(n + R), 1.0)
    found: Any = linprog(goal, above, limit, equal, c.count.astype(float), (0, None), "highs")
    if found.status != 0:  # those that keep least are among them: no shares have room
        return np.zeros(n), np.zeros(K + len(hot)), unit, np.inf
    weight = np.maximum(-found.ineqlin.marginals, 0)
    total = max(float(weight[:K].sum()), 1e-300)
    return (
        found.x[:n],
        feasible(weight[:-1] / total, hot, K),
        float(weight[-1] / total) * unit,
        float(found.fun) * unit,
    )


def feasible(weight: Array, hot: list[tuple[int, int]], loads: int) -> Array:
    """Multipliers whose hottest rows of a resource are together no more than that of the resource."""
    of = np.array([at for _, at in hot], dtype=np.int64)
    for at in np.unique(of):
        mine = loads + np.flatnonzero(of == at)
        most, total = float(weight[1 + at]), float(weight[mine].sum())
        if total > most:
            weight[mine] *= most / total
    return weight
