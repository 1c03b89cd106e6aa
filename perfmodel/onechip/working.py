"""Initial mappings if rows that stay and the working memory of pieces are in the same memory.

The relaxed problem (``bound``) counts what pieces keep, not their working memory, which a core needs once,
however many pieces run there one after the other. Pieces with working memory on all cores would leave no
memory for rows that stay; so they are placed on few cores, and other cores have the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Work
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.packing import MappingState, place
from perfmodel.onechip.work_units import PLACED, ranked

Ints = NDArray[np.int64]
_ROOM = 1 + 1e-9


def kept_for_work(choices: Choices, target_s: float) -> Choices:
    """The same choices, but each piece also keeps a part of its working memory, in proportion to its time.

        local + vector core_s / target        [bytes], core_s at most the target

    local, vector  bytes that a piece keeps, and that it needs while it works;  core_s  its time
    target_s       target: intended time of the cores
    Source: cores that run such pieces for the whole target keep no rows. Not a bound
    Limits: no piece has working memory -> the same bytes
    """
    share = np.minimum(1.0, choices.core_s / max(target_s, 1e-300))
    return replace(choices, local=choices.local + choices.vector * share)


def pack_together(
    choices: Choices, options: Sequence[Sequence[int]], target_s: float, work: Work | None = None
) -> MappingState | None:
    """As ``packing.pack``, but first places the pieces that keep nothing and need working memory.

    options  for each table the choices to try; the first that fits is used
    target_s  intended time of the cores [s];  work  counts the work
    Limits: no choice of a table fits -> None
    """
    state, c = MappingState(choices, work), choices
    size = np.minimum(c.core_s / max(target_s, 1e-300), 1) + c.local / max(c.capacity, 1e-300)
    longest, works = np.zeros(c.spread_s.size), np.zeros(c.spread_s.size)
    np.maximum.at(longest, c.choice_of_part, size)
    np.maximum.at(works, c.choice_of_part, np.where(c.local == 0, c.vector, 0.0))
    first = np.array([tried[0] for tried in options])
    for table in np.lexsort((ranked(-longest[first]), works[first] == 0)).tolist():
        for choice in options[table]:
            where = _together(state, choice, target_s) if works[choice] > 0 else None
            where = where or place(state, choice, target_s)
            if where is not None:
                state.put(table, choice, where)
                break
        else:
            return None
    return state


def _together(state: MappingState, choice: int, target_s: float) -> list[Ints] | None:
    """Cores for the pieces of a choice: the cores that need least more working memory, busiest first.

    Limits: too few cores that finish within the target -> None
    """
    c, where = state.choices, []
    core_s, vector = state.core_s.copy(), state.vector.copy()
    state.work.add(PLACED, 1 + len(c.parts_of(choice)))
    for part in c.parts_of(choice):
        number = int(c.number[part])
        more = np.maximum(c.vector[part] - vector, 0)
        fits = core_s + c.core_s[part] <= target_s * _ROOM
        fits &= state.local + vector + more <= c.capacity * _ROOM
        cores = np.lexsort((ranked(-core_s), more, ~fits))[:number]
        if cores.size < number or not fits[cores].all():
            return None
        core_s[cores] += c.core_s[part]
        vector[cores] += more[cores]
        where.append(np.sort(cores))
    return where
