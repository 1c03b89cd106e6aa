"""Why a table is looked up as it is: what its way saves, and what the batch would take with another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.chip.cuts import Cut, Cuts
from perfmodel.chip.packing import MEAN_SHARE, State, place
from perfmodel.chip.work import Way
from perfmodel.units import counted, format_bytes, format_fraction, format_number, format_ratio

_TRIED = 3
_LOOKED_AT = 24
_NO_MATTER = 1.02


@dataclass(frozen=True)
class Reason:
    """Why a table is looked up as it is.

    saves    time of all cores for it if it were gathered, over that of its way [-]
    because  in a few words;  other  the best other way, None: no other way has room
    more_s   how much longer a batch takes with it, the other tables left where they are [s]; below 0: less
    """

    saves: float
    because: str
    other: Cut | None
    more_s: float


def reason(cuts: Cuts, state: State, table: int) -> Reason:
    """Of one table of a mapping, which is left as it was."""
    other, more_s = _next_best(cuts, state.copy(), table)
    c, choice = cuts.choices, int(state.choice[table])
    gathered, own = float(c.total_s[c.of(table).start]), float(c.total_s[choice])
    return Reason(gathered / own if own > 0 else 1.0, because(cuts, choice, table), other, more_s)


def _next_best(cuts: Cuts, state: State, table: int) -> tuple[Cut | None, float]:
    """The best choice of another way, or of first rows instead of all rows, and what it costs."""
    c, now_s, own = cuts.choices, state.time_s, int(state.choice[table])
    state.clear(table)
    at = c.of(table)
    listed = range(at.start, at.stop)
    alike = np.array([_kind(cuts, choice, table) == _kind(cuts, own, table) for choice in listed])
    level = (state.core_s.sum() + state.spread_s) / c.cores
    loads = np.append(level, state.shared_s) + c.loads[at]
    least = np.maximum(np.maximum(loads.max(axis=1), c.longest_s[at]), state.core_s.max())
    least = np.where(
        alike,
        np.inf,
        least + MEAN_SHARE * ((loads * loads).sum(axis=1) + c.squares[at]) / np.maximum(least, 1e-300),
    )
    best: tuple[float, int] | None = None
    tried = 0
    for k in [*np.argsort(least, kind="stable")[:_LOOKED_AT].tolist(), 0]:
        where = place(state, at.start + k, max(now_s, float(least[k]))) if np.isfinite(least[k]) else None
        if where is None or (tried == _TRIED and k > 0):
            continue
        tried += 1
        state.put(table, at.start + k, where)
        if best is None or state.time_s < best[0]:
            best = state.time_s, at.start + k
        state.clear(table)
    return (None, 0.0) if best is None else (cuts.cuts[best[1]], best[0] - now_s)


def _kind(cuts: Cuts, choice: int, table: int) -> tuple[Way, bool]:
    """Way, and whether it is of all rows."""
    cut = cuts.cuts[choice]
    return cut.way, cut.head >= cuts.cost.tables.rows[table]


def because(cuts: Cuts, choice: int, table: int) -> str:
    """What speaks for a choice of a table, in a few words.

    Of first rows their share of the look-ups; of a stream look-ups for each row that passes, or rows that
    pass for each look-up; of rows that stay their size; of global memory what another way would take.
    """
    cost, cut = cuts.cost, cuts.cuts[choice]
    rows, row = (
        float(cost.tables.rows[table]),
        float(cost.tables.dim[table] * cost.tables.element_bytes[table]),
    )
    if cut.way == Way.GM:
        return _left_there(cuts, table)
    if cut.head < rows:
        share = float(cost.popular[table].share(0, cut.head))
        return f"{counted(cut.head, 'row')}: {format_fraction(share)}"
    if cut.way == Way.GM_UB:
        asked = cost.batch * float(cost.tables.pooling[table])
        if asked >= rows:
            return f"{format_number(asked / rows)} look-ups a row"
        return f"{format_number(rows / asked)} rows a look-up"
    return f"{format_bytes(rows * row)} {'stay' if cost.chip.buffers.persist else 'are copied'}"


def _left_there(cuts: Cuts, table: int) -> str:
    c, at = cuts.choices, cuts.choices.of(table)
    gathered, others = float(c.total_s[at.start]), c.total_s[at.start + 1 : at.stop]
    if not others.size:
        return "no row has room"
    best = float(others.min())
    if best >= gathered / _NO_MATTER:
        return f"others: {format_ratio(best / gathered)} time"
    return f"{format_ratio(gathered / best)} less elsewhere"
