"""No mapping is faster than this: shares of choices instead of one for each table, spread evenly over cores.

    min  T
    T >= sum of x (time of all cores) / N          T >= W + sum of x (time of what the cores share) + H
    H >= sum over equal tables of x (time that the hottest row adds) / their number
    T >= W + sum of x (time of what the cores share) + what chance adds
    sum of x (bytes kept) <= N capacity            x >= 0, those of a table sum to 1

and choices with a piece longer than T are left out; slices of what is spread are short enough for T, and a
core has room for at most k pieces longer than T / (k + 1) (``_within``). Source: any mapping satisfies these
with shares of 0 and 1: the busiest core is no less busy than the mean one, nor than its longest piece; what
is shared is idle until the piece that waits longest has waited (``one_chip.chip_time``). A linear program
(HiGHS) over few choices of each kind, to which those that its multipliers prefer are added; the bound is the
Lagrangian's, which holds whatever the multipliers are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
_HOT = 0.01  # of the time of all tables: hottest rows that take less are left out
_HALVINGS, _PRECISE = 12, 1e-3
_AT_MOST = 4  # pieces of a core that are counted
_CROWDED = 10.0
_EXTRAS = (0.0, 0.1, 1.0)  # prices of room, in the time of all tables, that first choices are taken for


@dataclass(frozen=True, eq=False)
class RelaxedMapping:
    """The relaxed problem of some choices.

    bound_s   no mapping of these choices is faster [s]; inf: a kind of table has none
    chosen    choices that are taken;  share  how many tables of its kind take each [-]
    price_s   [O] what each choice costs by the multipliers [s]
    """

    bound_s: float
    chosen: Ints
    share: Array
    price_s: Array


@dataclass(frozen=True, eq=False)
class _Within:
    """What choices take where the batch is done within some time, [O].

    loads    [O, 1 + 2 R] time of the mean core, and of what cores share: steadily, and with what chance adds
    least    [1 + 2 R] time beyond that [s]
    room     [O] bytes that are taken for all of that time, as a share of all that the cores can keep [-]
    crowded  [O, K] pieces longer than a half, a third .. of that time, over those that cores have room for
    """

    loads: Array
    least: Array
    room: Array
    crowded: Array


def lower_bound(
    choices: Choices, upper_s: float, near: RelaxedMapping | None = None, budget: Budget | None = None
) -> float:
    """No mapping is faster than this, where one of ``upper_s`` is known [s]; near, budget  as in ``relaxed``.

        max over t of min(t, relaxed(choices whose longest piece is shorter than t, within t))

    Source: a mapping faster than t uses only such choices, slices and numbers of pieces
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
        again = relaxed(choices, choices.longest_s < at, near, budget, within_s=at)
        found, near = again.bound_s, again if np.isfinite(again.bound_s) else near
        best = max(best, min(at, found))
        low, high = (max(low, at), high) if found >= at else (max(low, found), at)
        inside = (choices.longest_s > low) & (choices.longest_s < high)
        if high <= low * (1 + _PRECISE) or not (inside.any() or choices.slicing or choices.vector.any()):
            break
        at = (low + high) / 2
    return best


def relaxed(
    choices: Choices,
    allowed: Mask,
    near: RelaxedMapping | None = None,
    budget: Budget | None = None,
    within_s: float = np.inf,
) -> RelaxedMapping:
    """The relaxed problem of the choices that are allowed.

    near  a problem of much the same choices, which this one begins with
    budget  what counts the work; where it is spent, the first bound that is found will do
    within_s  a bound of the mappings that are done within that alone, as ``_within`` has it
    Limits: a kind without any, no room whatever the shares -> bound_s inf;  all -> a bound of every mapping
    """
    c, budget = choices, budget or unlimited()
    nothing = RelaxedMapping(np.inf, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(allowed.size))
    if np.any(np.add.reduceat(allowed, c.first[:-1]) == 0):
        return nothing
    w = _within(c, allowed, within_s)
    allowed = allowed & np.isfinite(w.loads[:, 0])
    w = replace(w, loads=np.where(allowed[:, np.newaxis], w.loads, 0))
    if np.any(np.add.reduceat(allowed, c.first[:-1]) == 0):
        return nothing
    unit = float(np.sum(c.count * _least(c, w.loads.max(axis=1), allowed)[0])) or 1.0
    chosen = _first(c, w, allowed, near, unit)
    best, best_price = 0.0, np.zeros(allowed.size)
    hot = _hot_rows(c, allowed, unit)
    for _ in range(_ROUNDS):
        share, prices, value = _program(c, w, chosen, hot, unit, budget.work)
        if np.isinf(value):
            return RelaxedMapping(np.inf, chosen, share, best_price)
        price = w.loads @ prices.loads + prices.room * w.room + w.crowded @ prices.crowded
        price += _hot_price(c, hot, prices.hot)
        least, at = _least(c, price, allowed)
        bound = float(c.count @ least + prices.loads @ w.least) - prices.room - float(prices.crowded.sum())
        if bound >= best:
            best, best_price = bound, price
        more = np.setdiff1d(at, chosen)
        if more.size == 0 or best >= value * (1 - _CLOSE) or budget.over():
            break
        chosen = np.union1d(chosen, more)
    return RelaxedMapping(best, chosen, share, best_price)


def _within(c: Choices, allowed: Mask, time_s: float) -> _Within:
    """What choices take in mappings that are done within some time t.

    What is spread takes at least F(t) of ``slicing`` where no slice is longer than t. A core has at most k
    pieces that are longer than t / (k + 1): all cores have at most k N of them, as k + 1 are longer than t.
    What is shared has nothing to do for W, the longest wait of any piece, and each table has one that waits
    as long as its best choice does. Chance adds sqrt(S) to it, S the sum over tables: no less than on the
    chord between the least S and the largest one, which is at most (t - W - least load)^2.
    Bytes that a piece needs while it works are taken for its share of t: those of a core, weighed by their
    times, are together no more than the largest one, which has room beside what stays.
    Limits: t = inf, neither slices nor waits nor chance -> ``Choices.loads`` and no such pieces
    """
    spread_s, slices, shortest = c.spread_s, np.zeros(c.spread_s.size), np.zeros(c.spread_s.size)
    if c.slicing is not None and np.isfinite(time_s):
        total, slices = c.slicing.within(time_s)
        spread_s, shortest = np.maximum(spread_s, total), c.slicing.shortest_s
    wait = float(_least(c, c.wait_s, allowed)[0].max())
    slope, chance = np.zeros(c.chance_s2.shape[1]), np.zeros(c.chance_s2.shape[1])
    for at in range(slope.size):
        low = float(c.count @ _least(c, c.chance_s2[:, at], allowed)[0])
        high = -float(c.count @ _least(c, -c.chance_s2[:, at], allowed)[0])
        load = float(c.count @ _least(c, c.shared_s[:, at], allowed)[0])
        high = max(low, min(high, max(0.0, time_s - wait - load) ** 2))
        slope[at] = 1 / max(np.sqrt(low) + np.sqrt(high), 1e-300) * (high > 0)
        chance[at] = np.sqrt(low) - slope[at] * low
    mean = (c.total_s + spread_s - c.spread_s) / c.cores
    crowded = np.zeros((c.spread_s.size, _AT_MOST if np.isfinite(time_s) else 0))
    for k in range(crowded.shape[1]):
        longer = time_s / (k + 2) * (1 + _CLOSE)
        pieces = np.bincount(c.choice_of_part, c.number * (c.core_s > longer), c.spread_s.size)
        crowded[:, k] = (pieces + slices * (shortest > longer)) / ((k + 1) * c.cores)
    room = c.room
    if np.isfinite(c.capacity) and np.isfinite(time_s):
        work = np.bincount(c.choice_of_part, c.number * c.vector * c.core_s, c.spread_s.size)
        room = room + work / (c.cores * max(c.capacity, 1.0) * time_s)
    loads = np.column_stack([mean, c.shared_s, c.shared_s + slope * c.chance_s2])
    least = np.concatenate([[0.0], np.full(slope.size, wait), wait + chance])
    return _Within(loads, least, room, crowded)


def _hot_rows(c: Choices, allowed: Mask, unit: float) -> list[tuple[int, int]]:
    """(kind, resource) where the hottest row of a table may matter. Left out: still a bound"""
    most = np.zeros((c.count.size, c.hot_s.shape[1]))
    np.maximum.at(most, c.kind[allowed], c.hot_s[allowed])
    return [(int(kind), int(at)) for kind, at in zip(*np.nonzero(most > _HOT * unit), strict=True)]


def _hot_price(c: Choices, hot: list[tuple[int, int]], weight: Array) -> Array:
    """What its hottest row adds to the price of each choice [s]."""
    price = np.zeros(c.spread_s.size)
    for (kind, at), each in zip(hot, weight, strict=True):
        own = slice(int(c.first[kind]), int(c.first[kind + 1]))
        price[own] += each * c.hot_s[own, at] / c.count[kind]
    return price


def _first(c: Choices, w: _Within, allowed: Mask, near: RelaxedMapping | None, unit: float) -> Ints:
    """Choices to begin with; those that keep least are among them."""
    if near is not None and near.chosen.size:
        kept = near.chosen[allowed[near.chosen]]
        prices = [w.room, near.price_s]
    else:
        kept, prices = np.zeros(0, dtype=np.int64), [w.room]
        prices += [
            w.loads @ one + extra * w.room * unit for one in np.eye(w.loads.shape[1]) for extra in _EXTRAS
        ]
    return np.unique(np.concatenate([kept, *(_least(c, price, allowed)[1] for price in prices)]))


def _least(c: Choices, value: Array, allowed: Mask) -> tuple[Array, Ints]:
    """The least value of each kind, and where it is."""
    masked = np.where(allowed, value, np.inf)
    rank = ranked(masked)
    places = np.flatnonzero(rank == np.minimum.reduceat(rank, c.first[:-1])[c.kind])
    _, at = np.unique(c.kind[places], return_index=True)
    return np.minimum.reduceat(masked, c.first[:-1]), places[at]


@dataclass(frozen=True, eq=False)
class _Prices:
    """Multipliers: of the loads (their sum is 1), of hottest rows, of the room, of crowded cores [s]."""

    loads: Array
    hot: Array
    room: float
    crowded: Array


def _program(
    c: Choices, w: _Within, chosen: Ints, hot: list[tuple[int, int]], unit: float, work: Work
) -> tuple[Array, _Prices, float]:
    """Shares, their multipliers, and the optimum [s].

    Unknowns: shares, H of each thing that is shared, T, and how far cores are too crowded, which costs
    ``_CROWDED`` of the time of all tables. A row says T >= load + H, H >= mean hottest row of the tables of a
    kind, room, or pieces of each length that cores have room for.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n, loads = chosen.size, w.loads[chosen] / unit
    K, R, Q, P = loads.shape[1], c.hot_s.shape[1], c.count.size, w.crowded.shape[1]
    above = np.zeros((K + len(hot) + 1 + P, n + R + 2))
    above[:K, :n], above[:K, -2] = loads.T, -1
    above[1 : 1 + R, n : n + R] = np.eye(R)
    for row, (kind, at) in enumerate(hot, start=K):
        mine = np.flatnonzero(c.kind[chosen] == kind)
        above[row, mine] = c.hot_s[chosen[mine], at] / (c.count[kind] * unit)
        above[row, n + at] = -1
    last = K + len(hot)
    above[last, :n] = w.room[chosen]
    above[last + 1 :, :n], above[last + 1 :, -1] = w.crowded[chosen].T, -1
    limit = np.concatenate([-w.least / unit, np.zeros(len(hot)), np.ones(1 + P)])
    equal: Any = csr_array((np.ones(n), (c.kind[chosen], np.arange(n))), shape=(Q, n + R + 2))
    goal = np.append(np.zeros(n + R), [1.0, _CROWDED])
    above, limit = ranked(above), ranked(limit)
    found: Any = linprog(goal, above, limit, equal, c.count.astype(float), (0, None), "highs")
    work.add(PROGRAM)
    work.add(COLUMN, n)
    work.add(CHOICE, c.spread_s.size)
    if found.status != 0:  # those that keep least are among them: no shares have room
        return np.zeros(n), _Prices(np.zeros(K), np.zeros(len(hot)), unit, np.zeros(P)), np.inf
    weight = np.maximum(-found.ineqlin.marginals, 0)
    total = max(float(weight[:K].sum()), 1e-300)
    steady = feasible(weight[:last] / total, hot, K)
    room, crowded = weight[last] / total * unit, weight[last + 1 :] / total * unit
    prices = _Prices(steady[:K], steady[K:], float(room), crowded)
    return found.x[:n], prices, float(found.fun) * unit


def feasible(weight: Array, hot: list[tuple[int, int]], loads: int) -> Array:
    """Multipliers whose hottest rows of a resource are together no more than that of the resource."""
    of = np.array([at for _, at in hot], dtype=np.int64)
    for at in np.unique(of):
        mine = loads + np.flatnonzero(of == at)
        most, total = float(weight[1 + at]), float(weight[mine].sum())
        if total > most:
            weight[mine] *= most / total
    return weight
