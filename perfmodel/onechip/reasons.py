"""Why a table is looked up as it is: what its way saves, and what the batch would take with another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfmodel.model.one_chip import read_bytes
from perfmodel.onechip.cuts import Cut, Cuts
from perfmodel.onechip.packing import MEAN_SHARE, MappingState, place
from perfmodel.onechip.work import Way
from perfmodel.onechip.work_units import CHOICE, COMPARED, ranked
from perfmodel.units import counted, format_bytes, format_fraction, format_number, format_ratio

_TRIED = 3
_LOOKED_AT = 24
_NO_MATTER = 1.02


@dataclass(frozen=True)
class MappingReason:
    """Why a table is looked up as it is.

    saves    time of all cores for it if it were gathered, over that of its way [-]
    because  in a few words;  other  the best other way, None: no other way has room
    more_s   how much longer a batch takes with it, the other tables left where they are [s]
    whole    whether that is of whole batches; else it is estimated, as the effort was spent
    """

    saves: float
    because: str
    other: Cut | None
    more_s: float
    whole: bool = True


def reason(
    cuts: Cuts, choice: int, table: int, other: int | None, more_s: float, *, whole: bool = True
) -> MappingReason:
    """Of one table of a choice;  other  the best choice of another way."""
    c = cuts.choices
    gathered, own = float(c.total_s[c.of(table).start]), float(c.total_s[choice])
    saves = gathered / own if own > 0 else 1.0
    return MappingReason(
        saves, because(cuts, choice, table), None if other is None else cuts.cuts[other], more_s, whole
    )


def others(cuts: Cuts, state: MappingState, table: int) -> Iterator[tuple[int, MappingState]]:
    """Choices of another way, or of first rows instead of all rows, and the mapping with each.

    Those that could be fastest by ``state.time_s``, and global memory; the other tables stay where they are.
    """
    now_s, own = state.time_s, int(state.choice[table])
    state = state.copy()
    state.clear(table)
    c, at = state.choices, state.choices.of(table)
    listed = range(at.start, at.stop)
    alike = np.array([_kind(cuts, choice, table) == _kind(cuts, own, table) for choice in listed])
    level = (state.core_s.sum() + state.spread_s) / c.cores
    loads = np.append(level, state.shared_s) + c.loads[at]
    least = np.maximum(np.maximum(loads.max(axis=1), c.longest_s[at]), state.core_s.max())
    work = (loads * loads).sum(axis=1) + c.squares[at]
    least = np.where(alike, np.inf, least + MEAN_SHARE * work / np.maximum(least, 1e-300))
    state.work.add(COMPARED)
    state.work.add(CHOICE, least.size)
    tried = 0
    for k in dict.fromkeys([*np.argsort(ranked(least), kind="stable")[:_LOOKED_AT].tolist(), 0]):
        where = place(state, at.start + k, max(now_s, float(least[k]))) if np.isfinite(least[k]) else None
        if where is None or (tried == _TRIED and k > 0):
            continue
        tried += 1
        other = state.copy()
        other.put(table, at.start + k, where)
        yield at.start + k, other


def _kind(cuts: Cuts, choice: int, table: int) -> tuple[Way, bool]:
    """Way, and whether it is of all rows."""
    cut = cuts.cuts[choice]
    return cut.way, cut.head >= cuts.cost.tables.rows[table]


def because(cuts: Cuts, choice: int, table: int) -> str:
    """What speaks for a choice of a table, in a few words.

    Of first rows their share of the look-ups; of a stream look-ups for each row that passes, or rows that
    pass for each look-up; of rows that stay their bytes in buffers, and their share where others stream
    past; of global memory what another way would take.
    """
    cost, cut = cuts.cost, cuts.cuts[choice]
    rows = float(cost.tables.rows[table])
    if cut.way == Way.GM:
        return _left_there(cuts, table)
    if cut.head < rows:
        share = float(cost.popular[table].share(0, cut.head))
        return f"{counted(cut.head, 'row')}: {format_fraction(share)}"
    if cut.way == Way.GM_UB:
        asked = cost.batch * float(cost.tables.pooling[table])
        if asked >= rows:
            return f"{format_number(asked / rows)} look-ups per row"
        return f"{format_number(rows / asked)} rows per look-up"
    held, share = _resident(cuts, choice, table)
    words = f"{format_bytes(held)} {'stay' if cost.chip.buffers.persist else 'are copied'}"
    return words if share >= 1 else f"{words}: {format_fraction(share)}"


def _resident(cuts: Cuts, choice: int, table: int) -> tuple[float, float]:
    """Bytes in buffers of the rows that stay, those of one slice of the batch; their share of all rows."""
    cost, cut = cuts.cost, cuts.cuts[choice]
    part = np.array(cuts.choices.parts_of(choice))
    part = part[np.unique(cuts.first_row[part], return_index=True)[1]]
    rows, columns = cuts.end_row[part] - cuts.first_row[part], float(cost.tables.dim[table]) / cut.col_parts
    of = (table, cut.way, rows, columns, cuts.bags[part], cuts.first_row[part])
    held = cut.col_parts * float(cost.work(*of).local_bytes.sum())
    row = read_bytes(columns * cost.tables.element_bytes[table], cost.chip.value("access_bytes"))
    return held, held / (cut.col_parts * float(cost.tables.rows[table]) * float(row))


def _left_there(cuts: Cuts, table: int) -> str:
    c, at = cuts.choices, cuts.choices.of(table)
    gathered, others = float(c.total_s[at.start]), c.total_s[at.start + 1 : at.stop]
    if not others.size:
        return "no row has room"
    best = float(others.min())
    if best >= gathered / _NO_MATTER:
        return f"others: {format_ratio(best / gathered)} time"
    return f"{format_ratio(gathered / best)} less elsewhere"
