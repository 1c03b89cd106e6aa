"""Improves a plan in steps: ranks are rebalanced, tables get other schemes, until nothing helps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.searching.moves import Moves
from perfmodel.plan.searching.packing import Packing, Scale, balance, place

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LESS = 1e-9
_TRIED = 3  # schemes of one table that are really placed
_MOVES = 200


def improve(state: Packing, mask: Mask, until: Callable[[], bool]) -> Packing:
    """A plan that is at least as fast, with options in ``mask``. ``state`` itself may change.

    until  returns whether to stop
    """
    while not until():
        before = state.time_s
        Moves(state, _scale(state)).run(_MOVES, until)
        changed = recut(state, mask, until)
        if not changed or state.time_s > before * (1 - _LESS):
            break
    return state


def _scale(state: Packing) -> Scale:
    return Scale.of(state.evaluator, balance(state.options, state.option))


def recut(state: Packing, mask: Mask, until: Callable[[], bool]) -> bool:
    """Give each table in turn the option in ``mask`` that makes the plan fastest; whether any changed."""
    changed = False
    for table in _by_size(state):
        if until():
            break
        changed |= _recut_one(state, int(table), mask)
    return changed


def _by_size(state: Packing) -> Ints:
    o = state.options
    size = _scale(state).score(o.average[state.option])
    return np.argsort(-size, kind="stable")


def _recut_one(state: Packing, table: int, mask: Mask) -> bool:
    own, ranks, now = int(state.option[table]), state.ranks[table], state.time_s
    assert ranks is not None
    state.clear(table)
    best: tuple[float, int, Ints] | None = None
    for option in promising(state, table, own, mask, now):
        time_s, at = placed(state, table, option)
        if at is not None and time_s < (best[0] if best else now) * (1 - _LESS):
            best = time_s, option, at
        state.clear(table)
    put_back(state, table, *((own, ranks) if best is None else best[1:]))
    return best is not None


def shake(state: Packing, mask: Mask, random: np.random.Generator, count: int) -> bool:
    """Remove ``count`` random tables and place them again; returns whether the plan is faster.

    A plan that is not faster is restored.

    mask  options that they may have
    """
    o, now = state.options, state.time_s
    size = _scale(state).score(o.average[state.option]) + 1e-3 * now
    kinds, of = np.unique(o.kind_of * o.group.size + state.option, return_inverse=True)
    chance = size / np.bincount(of, minlength=kinds.size)[of]  # equal tables count as one
    tables = random.choice(size.size, min(count, size.size), replace=False, p=chance / chance.sum())
    before = [(int(t), int(state.option[t]), state.ranks[t]) for t in tables]
    for table in tables:
        state.clear(int(table))
    done = all(_insert(state, int(table), mask) for table in random.permutation(tables))
    if done and state.fits and state.time_s < now * (1 - _LESS):
        return True
    for table, option, ranks in before:
        if state.option[table] >= 0:
            state.clear(table)
        assert ranks is not None
        put_back(state, table, option, ranks)
    return False


def _insert(state: Packing, table: int, mask: Mask) -> bool:
    """Place a table that has no ranks, with the option in ``mask`` that costs least; False if none fits."""
    best: tuple[float, int, Ints] | None = None
    for option in promising(state, table, -1, mask, np.inf):
        time_s, at = placed(state, table, option)
        if at is not None and (best is None or time_s < best[0]):
            best = time_s, option, at
        state.clear(table)
    if best is not None:
        put_back(state, table, *best[1:])
    return best is not None


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


def promising(state: Packing, table: int, own: int, mask: Mask, below_s: float) -> list[int]:
    """Options of a table without ranks with which the plan may take less than ``below_s``, best first.

    own  its option before;  mask  allowed options. They are sorted by a lower bound on the time
    """
    o, at = state.options, state.options.of(table)
    mean = state.held.mean(axis=0)
    spread = np.where(o.parts[at] > 0, o.parts[at] / o.gpus, 0)[:, np.newaxis] * o.own[at]
    least = np.maximum(np.maximum(state.held.max(axis=0), o.own[at]), mean + spread)
    time = state.evaluator.estimate_times(state.base + o.everywhere[at] + least)
    room = o.average_memory[at] + state.memory.mean()
    time = np.where(mask[at] & (room <= state.limit_bytes), time, np.inf)
    order = np.argsort(time, kind="stable")[: _TRIED + 1]
    return [at.start + int(i) for i in order if time[i] < below_s and at.start + i != own][:_TRIED]
