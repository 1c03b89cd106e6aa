"""What each core has, as blocks to show: pieces one by one, or those of many small tables as one block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.in_step import slices, slices_of_pairs, two_slices
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.symmetric import Symmetric
from perfmodel.onechip.work import CoreWork, TablePiece, Way

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_BLOCKS = 6_000
"""Blocks that are shown one by one; of more, those of tables that take least are one block a core."""


@dataclass(frozen=True, eq=False)
class CoreBlock:
    """What one core has of a table, or of several.

    tables  their indices;  piece  None: pieces of several tables, or several pieces
    ways    of the pieces;  pieces  how many
    time_s  of the core for it [s];  held_bytes  of its local buffer: of several where rows persist the sum
    """

    core: int
    tables: tuple[int, ...]
    piece: TablePiece | None
    ways: tuple[Way, ...]
    pieces: int
    time_s: float
    held_bytes: float


def blocks_of(cost: ChipCost, mapping: Mapping, work: CoreWork) -> tuple[CoreBlock, ...]:
    """Of a mapping, by core.

    Limits: more than ``MOST_BLOCKS`` pieces -> those of tables that take least are one block a core
    """
    table = np.array([piece.table for piece in mapping.pieces])
    time_s, held = work.core_s, work.local_bytes
    shown = np.ones(table.size, dtype=bool)
    if table.size > MOST_BLOCKS:
        each = np.bincount(table, minlength=cost.tables.rows.size)
        took = np.bincount(table, time_s, cost.tables.rows.size)
        shown = _largest(took.astype(np.float64), each.astype(np.int64), MOST_BLOCKS - cost.chip.cores)[table]
    found = []
    for at in np.flatnonzero(shown).tolist():
        piece = mapping.pieces[at]
        one = (int(mapping.core[at]), (piece.table,), piece, (Way(piece.way),), 1)
        found.append(CoreBlock(*one, float(time_s[at]), float(held[at])))
    rest = np.flatnonzero(~shown)
    for core in np.unique(mapping.core[rest]).tolist():
        mine = rest[mapping.core[rest] == core]
        ways = tuple(sorted({Way(mapping.pieces[at].way) for at in mine.tolist()}))
        tables = tuple(np.unique(table[mine]).tolist())
        kept = float(held[mine].sum() if cost.chip.buffers.persist else held[mine].max())
        found.append(CoreBlock(core, tables, None, ways, mine.size, float(time_s[mine].sum()), kept))
    return tuple(sorted(found, key=lambda block: block.core))


def blocks_of_symmetric(cost: ChipCost, found: Symmetric) -> tuple[CoreBlock, ...]:
    """Of a symmetric mapping: a slice of every table on every core that has some of the batch.

    Limits: more than ``MOST_BLOCKS`` slices -> those of tables that take least are one block a core
    """
    bags = slices(cost)
    end = np.cumsum(bags)
    cores = np.flatnonzero(bags)
    work = slices_of_pairs(cost, cost.kind_of, found.way).work
    size = np.where(bags == two_slices(cost)[0][0], 0, 1)
    took = work.core_s.sum(axis=1)
    room = MOST_BLOCKS if took.size * cores.size <= MOST_BLOCKS else MOST_BLOCKS - cores.size
    shown = _largest(took, np.full(took.size, cores.size), room)
    rest = np.flatnonzero(~shown)
    ways = tuple(Way(way) for way in np.unique(found.way[rest]).tolist())
    others, some = tuple(rest.tolist()), []
    time_s, held = work.core_s, work.local_bytes
    sums = time_s[rest].sum(axis=0)
    kept = held[rest].sum(axis=0) if cost.chip.buffers.persist else held[rest].max(axis=0, initial=0)
    for core in cores.tolist():
        k, first = int(size[core]), int(end[core] - bags[core])
        for table in np.flatnonzero(shown).tolist():
            whole = (0, int(cost.tables.rows[table])), (0, int(cost.tables.dim[table]))
            piece = TablePiece(table, Way(found.way[table]), *whole, (first, int(end[core])))
            one = (core, (table,), piece, (piece.way,), 1)
            some.append(CoreBlock(*one, float(time_s[table, k]), float(held[table, k])))
        if others:
            some.append(CoreBlock(core, others, None, ways, rest.size, float(sums[k]), float(kept[k])))
    return tuple(some)


def _largest(took: Array, each: Ints, room: int) -> NDArray[np.bool_]:
    """[T] tables that take most and have room together, ``each`` blocks of one."""
    order = np.argsort(-took, kind="stable")
    fits = np.cumsum(each[order]) <= max(room, 0)
    shown = np.zeros(took.size, dtype=bool)
    shown[order[fits]] = True
    return shown
