"""A mapping of tables to the cores of one chip: which core has which piece, and the time of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Work
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cuts
from perfmodel.onechip.packing import MappingState
from perfmodel.onechip.work import Batch, CoreWork, TablePiece, Way
from perfmodel.onechip.work_units import DEALT, PIECE, ranked

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEP, _CLOSE = 1.1, 1 + 1e-4  # step of the time up to which all cores are filled
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Mapping:
    """Pieces of tables, and the core of each."""

    core: Ints
    pieces: tuple[TablePiece, ...]

    def work(self, cost: ChipCost, *, lockstep: bool = False) -> CoreWork:
        """The work of each piece. lockstep  as in ``ChipCost.work``"""
        column = {
            name: np.array([getattr(piece, name) for piece in self.pieces])
            for name in ("table", "way", "rows", "columns", "bags")
        }
        size = {name: column[name][:, 1] - column[name][:, 0] for name in ("rows", "columns", "bags")}
        begin = column["rows"][:, 0]
        of = (column["table"], column["way"], size["rows"], size["columns"], size["bags"], begin)
        return cost.work(*of, lockstep=lockstep)

    def batch(self, cost: ChipCost, work: CoreWork | None = None) -> Batch:
        """Time of a batch, with its parts. work  of the pieces; None: it is computed"""
        table = np.array([piece.table for piece in self.pieces])
        return cost.batch_s(self.core, table, work or self.work(cost))


def mapping_of(cuts: Cuts, state: MappingState, few: int = 0) -> Mapping:
    """The mapping for a search's state: look-ups that are spread become pieces on the least busy cores.

    few  number of bags: times of pieces are interpolated between this many bags and all bags; 0: half of the
         mean number per core
    """
    core: list[int] = []
    pieces: list[TablePiece] = []
    for table in range(state.choice.size):
        for part, cores in zip(
            cuts.choices.parts_of(int(state.choice[table])), state.where[table], strict=True
        ):
            made = _pieces(cuts, table, part)
            core += cores.tolist()
            pieces += made
    spread = _spread(cuts, state)
    if spread:
        for at, piece in _dealt(cuts.cost, state.core_s, spread, few, state.work):
            core.append(at)
            pieces.append(piece)
    state.work.add(PIECE, len(pieces))
    return Mapping(np.array(core, dtype=np.int64), tuple(pieces))


def _pieces(cuts: Cuts, table: int, part: int) -> list[TablePiece]:
    """The equal pieces of a part: every column part of every slice of the batch."""
    cut = cuts.cuts[cuts.choices.choice_of_part[part]]
    width = int(cuts.cost.tables.dim[table]) // cut.col_parts
    bags, first = int(cuts.bags[part]), int(cuts.first_bag[part])
    rows = int(cuts.first_row[part]), int(cuts.end_row[part])
    return [
        TablePiece(
            table, cut.way, rows, (c * width, (c + 1) * width), (first + k * bags, first + (k + 1) * bags)
        )
        for k in range(int(cuts.choices.number[part]) // cut.col_parts)
        for c in range(cut.col_parts)
    ]


def _spread(cuts: Cuts, state: MappingState) -> list[tuple[int, int]]:
    """(table, first row) of the look-ups that are spread over all cores, longest first."""
    found = [
        (table, cuts.cuts[choice].head)
        for table, choice in enumerate(state.choice)
        if cuts.choices.spread_s[choice] > 0
    ]
    return sorted(found, key=lambda pair: -ranked(cuts.choices.spread_s[state.choice[pair[0]]]))


def _dealt(
    cost: ChipCost, core_s: Array, spread: list[tuple[int, int]], few: int, counted: Work
) -> list[tuple[int, TablePiece]]:
    """Look-ups in global memory as (core, piece): slices of whole bags that fill all cores up to one time.

    This time is the least with which all fit, if a piece costs a fixed time plus a time per bag.
    core_s  time of each core before;  spread  as returned by ``_spread``;  few  as in ``mapping_of``
    """
    table = np.array([at for at, _ in spread])
    first = np.array([row for _, row in spread])
    rows, dim, bags = cost.tables.rows[table] - first, cost.tables.dim[table], int(cost.batch)
    few = few or max(1, bags // (2 * cost.chip.cores))
    whole, short = _times(cost, table, first, few).T
    each = np.maximum((whole - short) / max(bags - few, 1), 1e-300)
    fixed = np.maximum(whole - each * bags, 0)
    low = max(float(core_s.min()), float(core_s.sum() + np.sum(whole)) / core_s.size)
    high, most = low, float(core_s.min() + np.sum(whole + fixed + each))
    found = None
    while found is None:
        low, high = high, min(most, high * _STEP)
        found = _filled(core_s, fixed, each, bags, high, counted)
    while high > low * _CLOSE:
        middle = (low + high) / 2
        some = _filled(core_s, fixed, each, bags, middle, counted)
        low, high, found = (middle, high, found) if some is None else (low, middle, some)
    made = []
    for core, at, begin, end in found:
        whole_rows = int(first[at]), int(first[at] + rows[at])
        piece = TablePiece(int(table[at]), Way.GM, whole_rows, (0, int(dim[at])), (begin, end))
        made.append((core, piece))
    return made


_KNOWN: WeakKeyDictionary[ChipCost, dict[tuple[int, int, int], Array]] = WeakKeyDictionary()


def _times(cost: ChipCost, table: Ints, first: Ints, few: int) -> Array:
    """Time of one core for the rows from ``first`` on of each table: with all bags, and with ``few``,
    [n, 2] [s].
    """
    known = _KNOWN.setdefault(cost, {})
    keys = [(kind, row, few) for kind, row in zip(cost.kind_of[table].tolist(), first.tolist(), strict=True)]
    new = [at for at, key in enumerate(keys) if key not in known]
    if new:
        at, begin = table[new, np.newaxis], first[new, np.newaxis]
        bags = np.array([cost.batch, few])
        work = cost.work(at, Way.GM, cost.tables.rows[at] - begin, cost.tables.dim[at], bags, begin)
        known.update({keys[k]: time_s for k, time_s in zip(new, work.core_s, strict=True)})
    return np.array([known[key] for key in keys])


def _filled(
    core_s: Array, fixed: Array, each: Array, bags: int, level_s: float, counted: Work
) -> list[tuple[int, int, int, int]] | None:
    """Assigns look-ups to cores as (core, item, first bag, end); None: they do not all fit.

    core_s  time of each core before;  fixed, each  time of an item, and per bag;  level_s  limit of a core's
            time [s]
    Longest items first: whole on the core with the tightest fit, else in parts where most time is left.
    """
    room = level_s - core_s
    found = []
    for at in range(fixed.size):
        done, time = 0, fixed[at] + each[at] * bags
        while done < bags:
            counted.add(DEALT)
            left = room - time
            fits = left >= 0
            core = int(np.argmin(ranked(np.where(fits, left, np.inf)) if fits.any() else -ranked(room)))
            take = min(int((room[core] - fixed[at]) / each[at] + _ROUNDING), bags - done)
            if take <= 0:
                return None
            found.append((core, at, done, done + take))
            room[core] -= fixed[at] + take * each[at]
            done += take
            time = fixed[at] + each[at] * (bags - done)
    return found
