"""Local search: tables get other schemes, one at a time, and the best of several is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import Placement
from perfmodel.plan.searching.packing import Packing, Scale, balance, place

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LESS = 1e-9
_TOP = 3  # fullest ranks that are examined, as two of them may change
_TRIED = 3  # schemes of one table that are really placed
_COMPARED = 6  # schemes of one table of which the next best is chosen


def others(held: Array, one: Ints, other: Ints) -> Array:
    """For n pairs of ranks, the largest load of each resource over all ranks except the pair, [n, K].

    held  [G, K] loads of the ranks, of which at most the three largest matter;  one, other  [n] the pair
    Limits: no other rank -> 0
    """
    count = min(_TOP, len(held))
    top = np.argpartition(-held, count - 1, axis=0)[:count]
    values = np.take_along_axis(held, top, axis=0)
    taken = (top == one[:, np.newaxis, np.newaxis]) | (top == other[:, np.newaxis, np.newaxis])
    return np.asarray(np.where(taken, 0, values).max(axis=1))


def improve(state: Packing, until: Callable[[], bool]) -> Packing:
    """A plan that is at least as fast. ``state`` itself may change. until  returns whether to stop"""
    while not until() and recut(state, until):
        pass
    return state


def recut(state: Packing, until: Callable[[], bool]) -> bool:
    """Give each table in turn, the largest first, the option with which the plan is fastest; whether any
    changed.
    """
    o, changed = state.options, False
    size = Scale.of(state.evaluator, balance(o, state.option)).score(o.average[state.option])
    for table in np.argsort(-size, kind="stable").tolist():
        if until():
            break
        own, ranks, now_s = int(state.option[table]), state.ranks[table], state.time_s
        assert ranks is not None
        state.clear(table)
        best: tuple[float, int, Ints] | None = None
        for option in promising(state, table, own, now_s):
            time_s, at = placed(state, table, option)
            if at is not None and time_s < (best[0] if best else now_s) * (1 - _LESS):
                best = time_s, option, at
            state.clear(table)
        put_back(state, table, *((own, ranks) if best is None else best[1:]))
        changed |= best is not None
    return changed


def put_back(state: Packing, table: int, option: int, ranks: Ints) -> None:
    """Place a table that has no ranks, with this option on these ranks."""
    state.choose([table], np.array([option]))
    if state.ranks[table] is None:
        state.put(table, ranks)


def placed(state: Packing, table: int, option: int) -> tuple[float, Ints | None]:
    """(time of the plan, ranks of the table) if a table without ranks gets this option [s].

    Limits: it does not fit -> None as ranks
    """
    state.choose([table], np.array([option]))
    ranks = state.ranks[table]
    if ranks is None:
        target = np.maximum(state.most, state.base + state.options.own[option])
        ranks = place(state, option, Scale.of(state.evaluator, target))
        if ranks is None:
            return np.inf, None
        state.put(table, ranks)
    return (state.time_s, ranks) if state.fits else (np.inf, None)


def promising(state: Packing, table: int, own: int, below_s: float, count: int = _TRIED) -> list[int]:
    """Options of a table without ranks with which the plan may take less than ``below_s``, best first.

    own  its option before;  count  of options, at most
    They are sorted by a lower bound on the time.
    """
    o, at = state.options, state.options.of(table)
    mean = state.held.mean(axis=0)
    spread = np.where(o.parts[at] > 0, o.parts[at] / o.gpus, 0)[:, np.newaxis] * o.own[at]
    least = np.maximum(np.maximum(state.held.max(axis=0), o.own[at]), mean + spread)
    time = state.evaluator.estimate_times(state.base + o.everywhere[at] + least)
    room = o.average_memory[at] + state.memory.mean()
    time = np.where(room <= state.limit_bytes, time, np.inf)
    order = np.argsort(time, kind="stable")[: count + 1]
    return [at.start + int(i) for i in order if time[i] < below_s and at.start + i != own][:count]


def find_next_best(state: Packing, table: int) -> tuple[float, Placement] | None:
    """(time of the plan [s], placement of a table) with the table's next best scheme, all others as they are.

    Limits: no other scheme fits in memory -> None
    """
    own, ranks = int(state.option[table]), state.ranks[table]
    assert ranks is not None
    state.clear(table)
    best: tuple[float, Placement] | None = None
    for option in promising(state, table, own, np.inf, _COMPARED):
        time_s, at = placed(state, table, option)
        if at is not None and (best is None or time_s < best[0]):
            best = time_s, Placement(state.options.scheme(option), at)
        state.clear(table)
    put_back(state, table, own, ranks)
    return best
