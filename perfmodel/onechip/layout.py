"""How a piece uses a core's buffers: rows that stay, streamed chunks, bags and ids."""

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
"""Bytes of an element of a sum, and of an id, inside a core."""

BURST_BYTES = 1024
"""A copy is split into requests of so many bytes, each to one channel and one slice."""

CHUNK_SHARE = 8
"""Each of the two chunks of a streamed table is one of so many parts of the vector buffer."""


@dataclass(frozen=True, eq=False)
class CoreBufferLayout:
    """How pieces use a core's buffers; an array entry per piece.

    resident    rows that stay in the local buffer [rows]
    chunks      number in a pass, 0: nothing streams
    passes      times that the table streams past [-]
    local_bytes, vector_bytes  used in the two buffers [bytes];  fits  whether the buffers are large enough
    """

    resident: Array
    chunks: Array
    passes: Array
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
    """How pieces use a core's buffers; all arguments broadcast.

    row  bytes of one row as read [bytes];  local  bytes of the local buffer for the piece, None: all
    Way L1 keeps the whole table. The ways GM-UB and L1-UB stream it in chunks of an eighth of the vector
    buffer; a pass has as many bags as fit beside two chunks, equally many per pass. Ids of a pass fit if bags
    have the mean length. L1-UB keeps as many rows as the local buffer holds. If both buffers are one memory,
    it keeps the rows for which chunks and bags leave space, or the whole table without chunks if that is
    faster.
    Source: with h of m rows resident and P bags per pass, b bags move h + b (m - h) / P rows: if the table
            does not fit, memory for bags saves more than memory for rows
    Limits: GM -> nothing;  L1, a table larger than the buffer -> fits is False;  other ways, a row larger
    than the buffer -> fits is False
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
    vector = np.where(streams, around + np.ceil(b / turns) * per_bag + ID_BYTES, 0)
    free = np.maximum(0, room - vector) if chip.buffers.shared else held
    kept = np.where(ways == Way.L1, m, np.where(ways == Way.L1_UB, np.minimum(m, free // x), 0))
    moved = m - kept if chip.value("local_to_vector_bytes_per_s") == 0 else m
    local_bytes = kept * x
    fits = np.where(
        chip.buffers.shared, local_bytes + vector <= held, (local_bytes <= held) & (vector <= room)
    )
    return CoreBufferLayout(
        resident=kept,
        chunks=np.where(streams, np.ceil(moved / chunk), 0),
        passes=np.where(streams, turns, 1),
        local_bytes=local_bytes,
        vector_bytes=vector,
        fits=fits,
    )


@dataclass(frozen=True, eq=False)
class _Shape:
    """Sizes of pieces, an array entry each.

    row  bytes of a row;  draws  look-ups;  per_bag  bytes of a bag with its ids
    """

    rows: Array
    row: Array
    bags: Array
    draws: Array
    per_bag: Array


def _whole_is_faster(
    chip: Chip, s: _Shape, room: Array, turns: Array, chunk: Array
) -> tuple[NDArray[np.bool_], Array]:
    """(whether keeping the whole table, with fewer bags per pass, is faster; the number of passes then).

    room  memory that rows and bags share [bytes]
    turns, chunk  number of passes, and rows of a chunk, if bags get memory first
    Source: ``one_core.passes_time``
    Limits: no memory beside the table for one bag -> False
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
