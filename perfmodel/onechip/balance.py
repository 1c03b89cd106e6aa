"""Moves and exchanges of pieces that make the busiest core less busy, whatever the choices are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.packing import MappingState

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_LESS = 1 - 1e-9
_ROOM = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class _Pieces:
    """All pieces of a mapping, arrays [n]: table, part of its choice from 0, part of all, core."""

    table: Ints
    part: Ints
    at: Ints
    core: Ints

    @staticmethod
    def of(state: MappingState) -> _Pieces:
        c = state.choices
        rows = [
            (table, part, int(c.parts[state.choice[table]]) + part, core)
            for table, parts in enumerate(state.where)
            for part, cores in enumerate(parts)
            for core in cores.tolist()
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return _Pieces(*columns)


def relieve(state: MappingState) -> None:
    """Move or exchange pieces of the busiest core for as long as that makes it less busy."""
    for _ in range(4 * state.choices.cores):
        busiest = int(np.argmax(state.core_s))
        level = (state.core_s.sum() + state.spread_s) / state.choices.cores
        enough = max(float(level), float(state.shared_s.max(initial=0.0)))
        if state.core_s[busiest] <= enough * (1 + 1e-6):
            return
        pieces = _Pieces.of(state)
        if not (_moved(state, pieces, busiest) or _exchanged(state, pieces, busiest)):
            return


def _moved(state: MappingState, pieces: _Pieces, busiest: int) -> bool:
    """One piece to the core that is least busy with it and has room."""
    c, limit = state.choices, float(state.core_s[busiest])
    best: tuple[float, int, int] | None = None
    for k in np.flatnonzero(pieces.core == busiest).tolist():
        at = int(pieces.at[k])
        after = state.core_s + c.core_s[at]
        after[state.room(at) > c.capacity * _ROOM] = np.inf
        after[state.where[pieces.table[k]][pieces.part[k]]] = np.inf
        target = int(np.argmin(after))
        most = max(float(after[target]), limit - float(c.core_s[at]))
        if most < limit * _LESS and (best is None or most < best[0]):
            best = most, k, target
    if best is not None:
        k = best[1]
        state.move(int(pieces.table[k]), int(pieces.part[k]), busiest, best[2])
    return best is not None


def _exchanged(state: MappingState, pieces: _Pieces, busiest: int) -> bool:
    """One piece for a shorter one of another core, both of which have room."""
    c, limit = state.choices, float(state.core_s[busiest])
    time, local, vector = c.core_s[pieces.at], c.local[pieces.at], c.vector[pieces.at]
    other = pieces.core != busiest
    full = state.local + state.vector
    best: tuple[float, int, int] | None = None
    for k in np.flatnonzero(~other).tolist():
        less = time[k] - time
        most = np.maximum(limit - less, state.core_s[pieces.core] + less)
        fits = full[busiest] - local[k] + local + vector <= c.capacity * _ROOM
        fits &= full[pieces.core] - local + local[k] + vector[k] <= c.capacity * _ROOM
        most[~(other & fits & (less > 0))] = np.inf
        for swap in np.argsort(most, kind="stable")[:4].tolist():
            if not most[swap] < limit * _LESS or (best is not None and most[swap] >= best[0]):
                break
            if _apart(state, pieces, k, swap):
                best = float(most[swap]), k, swap
                break
    if best is not None:
        _, k, swap = best
        target = int(pieces.core[swap])
        state.move(int(pieces.table[k]), int(pieces.part[k]), busiest, target)
        state.move(int(pieces.table[swap]), int(pieces.part[swap]), target, busiest)
    return best is not None


def _apart(state: MappingState, pieces: _Pieces, one: int, other: int) -> bool:
    """Whether neither core has a piece of the other one's part."""
    mine, theirs = (state.where[pieces.table[k]][pieces.part[k]] for k in (one, other))
    return pieces.core[other] not in mine and pieces.core[one] not in theirs
