"""What a core's buffers hold of a piece: rows that stay, chunks that pass, bags, ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.one_core import passes, passes_time
from perfmodel.onechip.work import Way
from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]

SUM_BYTES = 4
ID_BYTES = 4
"""Of an element of a sum, and of an id, inside a core."""

BURST_BYTES = 1024
"""A copy goes out in requests of so many bytes, each to one channel and one slice."""

CHUNK_SHARE = 8
"""One of so many parts of the vector buffer is one of the two chunks of a table that streams."""


@dataclass(frozen=True, eq=False)
class CoreBufferLayout:
    """Arrays of one shape.

    resident    rows that stay in the local buffer [rows]
    chunk_rows  of one of the two chunks [rows], 0: no room is kept for them
    chunks      of one pass [-], 0: nothing streams
    passes      times that the table streams past [-];  pass_bags  bags of a pass [-]
    local_bytes, vector_bytes  of the two buffers [bytes];  fits  whether they are that large
    """

    resident: Array
    chunk_rows: Array
    chunks: Array
    passes: Array
    pass_bags: Array
    local_bytes: Array
    vector_bytes: Array
    fits: NDArray[np.bool_]


def layout(
    chip: Chip,
    way: ArrayLike,
    rows: ArrayLike,
    row: ArrayLike,
    columns: ArrayLike,
    bags: ArrayLike,
    pooling: ArrayLike,
    local: ArrayLike | None = None,
) -> CoreBufferLayout:
    """How a core's buffers are used; all arguments broadcast.

    row  bytes of one row as it is read [bytes];  local  bytes of the local buffer for it, None: all
    L1 keeps the whole table. What streams is cut into chunks of an eighth of the vector buffer, past as many
    bags as have room beside two of them, equal numbers a pass; ids of a pass have room where bags have the
    mean length. L1-UB keeps as many rows as the local buffer holds, or, where that is the same memory, as
    chunks and bags leave free; there it keeps the whole table, and has no chunks, where that is faster.
    Source: with h resident rows and P bags per pass, b bags move h + b (m - h) / P rows: where the table does
            not fit, room for bags saves more than room for rows
    Limits: GM -> nothing; a table larger than the buffer for L1, a row for the others -> fits is False
    """
    ways, m, x, d, b, pool = np.broadcast_arrays(
        *(np.asarray(a, dtype=np.float64) for a in (way, rows, row, columns, bags, pooling))
    )
    held = np.broadcast_to(np.asarray(chip.value("local_bytes") if local is None else local), m.shape)
    room = chip.value("vector_bytes")
    if chip.buffers.shared:
        room = np.minimum(room, held)
    streams = (ways == Way.GM_UB) | (ways == Way.L1_UB)
    chunk = np.maximum(1, np.minimum(room // (CHUNK_SHARE * x), np.ceil(m / 2)))
    per_bag = d * SUM_BYTES + ID_BYTES + np.ceil(pool) * ID_BYTES
    most = np.maximum(1, (room - 2 * chunk * x - ID_BYTES) // per_bag)
    turns = np.maximum(1, passes(b, most))
    around = 2 * chunk * x
    if chip.buffers.shared:
        shape = _Shape(m, x, b, b * pool, per_bag)
        whole, more = _whole_is_faster(chip, shape, np.asarray(room), turns, chunk)
        whole &= ways == Way.L1_UB
        turns, around = np.where(whole, more, turns), np.where(whole, 0, around)
    at_once = np.ceil(b / turns)
    vector = np.where(streams, around + at_once * per_bag + ID_BYTES, 0)
    free = np.maximum(0, room - vector) if chip.buffers.shared else held
    kept = np.where(ways == Way.L1, m, np.where(ways == Way.L1_UB, np.minimum(m, free // x), 0))
    moved = m - kept if chip.value("local_to_vector_bytes_per_s") == 0 else m
    local_bytes = kept * x
    fits = np.where(
        chip.buffers.shared, local_bytes + vector <= held, (local_bytes <= held) & (vector <= room)
    )
    return CoreBufferLayout(
        resident=kept,
        chunk_rows=np.where(streams & (around > 0), chunk, 0),
        chunks=np.where(streams, np.ceil(moved / chunk), 0),
        passes=np.where(streams, turns, 1),
        pass_bags=np.where(streams, at_once, b),
        local_bytes=local_bytes,
        vector_bytes=vector,
        fits=fits,
    )


@dataclass(frozen=True, eq=False)
class _Shape:
    """Rows, bytes of one, bags and their look-ups, bytes of a bag with its ids: arrays of one shape."""

    rows: Array
    row: Array
    bags: Array
    draws: Array
    per_bag: Array


def _whole_is_faster(
    chip: Chip, s: _Shape, room: Array, turns: Array, chunk: Array
) -> tuple[NDArray[np.bool_], Array]:
    """Whether a table that stays whole beside fewer bags is faster than bags first, and its passes.

    room  of the memory that rows and bags share [bytes]
    turns, chunk  passes and rows of a chunk where bags have room first [-]
    Source: ``one_core.passes_time``
    Limits: no room beside the table for one bag -> False
    """
    copy, scan = s.row / chip.value("dma_bytes_per_s"), s.draws * chip.value("id_s")
    gather, latency = s.draws * s.row / chip.value("vector_bytes_per_s"), chip.value("row_latency_s")
    once = 0 if chip.buffers.persist else copy
    free = np.maximum(0, room - 2 * chunk * s.row - np.ceil(s.bags / turns) * s.per_bag - ID_BYTES)
    kept = np.minimum(s.rows, free // s.row)
    away = s.rows - kept
    parts = np.ceil(away / chunk) + (kept > 0)
    some = passes_time(turns, parts, kept * once, turns * away * copy, gather, latency, scan)
    beside = (room - s.rows * s.row - ID_BYTES) // s.per_bag
    more = np.maximum(1, passes(s.bags, np.maximum(1, beside)))
    return (beside >= 1) & (passes_time(more, 1, s.rows * once, 0, gather, latency, scan) < some), more
