"""For the simulator: what each core does for its pieces, request by request, with the ids of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.one_chip import read_bytes
from perfmodel.onechip.cost import BAG_BYTES, GLOBAL_ID_BYTES, OFFSET_BYTES
from perfmodel.onechip.layout import BURST_BYTES, CoreBufferLayout, layout
from perfmodel.onechip.simulate import LOCAL, CoreAction, Fetch, Meet, Simulated, simulate
from perfmodel.onechip.traces import Trace
from perfmodel.onechip.work import TableColumns, TablePiece, Way
from perfmodel.schema.chip import Chip

Ints = NDArray[np.int64]

_APART = 2**41  # separates keys of a table's rows in the cache from keys of its copies


def simulate_pieces(
    chip: Chip,
    tables: TableColumns,
    trace: Trace,
    cores: Sequence[Sequence[TablePiece]],
    seed: int = 0,
    *,
    lockstep: bool = False,
) -> Simulated:
    """Simulate a batch: each core processes its pieces in their order, with the ids of a trace.

    seed      determines where tables begin in memory, and so which rows share a channel
    lockstep  whether all cores begin each table together, as with one operator per table
    """
    programs = Programs(chip, tables, trace, seed)
    if not lockstep:
        return simulate(chip, [programs.of(pieces) for pieces in cores])
    order = list(dict.fromkeys(piece.table for pieces in cores for piece in pieces))
    return simulate(chip, [programs.together(pieces, order) for pieces in cores])


def symmetric_pieces(
    chip: Chip, tables: TableColumns, batch: int, ways: Sequence[Way]
) -> list[list[TablePiece]]:
    """The pieces of each core if all N cores have a slice of B/N samples of every table.

    ways  of each table
    """
    starts = [batch * core // chip.cores for core in range(chip.cores + 1)]
    return [
        [
            TablePiece(table, way, (0, int(tables.rows[table])), (0, int(tables.dim[table])), (first, end))
            for table, way in enumerate(ways)
            if end > first
        ]
        for first, end in pairwise(starts)
    ]


class Programs:
    """Makes the actions of cores for pieces on one chip."""

    def __init__(self, chip: Chip, tables: TableColumns, trace: Trace, seed: int = 0) -> None:
        self.chip, self.tables, self.trace = chip, tables, trace
        self.v = {key: quantity.value for key, quantity in chip.values.items()}
        self.random = np.random.default_rng(seed)
        self.begins = self.random.integers(2**40, size=tables.rows.size).tolist()
        self.window = ceil(self.v["dma_bytes_per_s"] * self.v["row_latency_s"] / BURST_BYTES) + 1

    def layout(self, piece: TablePiece) -> tuple[float, CoreBufferLayout]:
        """(bytes of a row of a piece, how the piece uses the buffers)."""
        at, columns, bags = piece.table, _count(piece.columns), _count(piece.bags)
        row = float(read_bytes(columns * self.tables.element_bytes[at], self.v["access_bytes"]))
        lay = layout(self.chip, piece.way, _count(piece.rows), row, columns, bags, self.tables.pooling[at])
        return row, lay

    def of(self, pieces: Sequence[TablePiece]) -> Iterator[CoreAction]:
        """Yields the actions of one core for its pieces."""
        for piece in pieces:
            yield from self._piece(piece)

    def together(self, pieces: Sequence[TablePiece], order: Sequence[int]) -> Iterator[CoreAction]:
        """Yields the actions of one core that waits for all others after each table. order  of the tables"""
        for table in order:
            yield from self.of([piece for piece in pieces if piece.table == table])
            yield Meet()

    def _piece(self, piece: TablePiece) -> Iterator[CoreAction]:
        v, at = self.v, piece.table
        columns, bags = _count(piece.columns), _count(piece.bags)
        row, lay = self.layout(piece)
        kept = int(lay.resident)
        if kept and not self.chip.buffers.persist:
            yield self._copy(kept * row, at, piece.rows[0] * row)
        if bags == 0:
            return
        part = piece.rows != (0, int(self.tables.rows[at]))
        turns = int(lay.passes)
        touched = 0
        for turn in range(turns):
            first, end = (piece.bags[0] + bags * t // turns for t in (turn, turn + 1))
            ids, mine, seen = self._ids(piece, first, end)
            touched += seen
            around = (end - first) * OFFSET_BYTES + ids * GLOBAL_ID_BYTES
            if piece.way.streams:
                yield self._stream(piece, lay, row, kept, mine, ids, around)
                continue
            yield self._copy(around)
            if part and ids:
                yield ids * v["id_s"]
            if piece.way is Way.GM:
                if mine.size:
                    yield self._gather(mine + piece.rows[0], row, at, piece.columns[0])
            else:
                yield float(mine.size * row * max(1 / v["local_bytes_per_s"], v["row_issue_s"] / row))
        wrote = (touched if part else bags) * columns * BAG_BYTES
        if part and wrote:
            yield self._copy(wrote)
        if wrote:
            yield self._copy(wrote, posted=True)

    def _ids(self, piece: TablePiece, first: int, end: int) -> tuple[int, Ints, int]:
        """(ids in bags first .. end - 1, ids of the piece's rows among them, bags with such ids)."""
        offsets = self.trace.offsets[piece.table]
        begin, stop = int(offsets[first]), int(offsets[end])
        ids = self.trace.ids[piece.table][begin:stop]
        inside = (ids >= piece.rows[0]) & (ids < piece.rows[1])
        bag = np.searchsorted(offsets, np.flatnonzero(inside) + begin, side="right")
        return ids.size, ids[inside] - piece.rows[0], int(np.unique(bag).size)

    def _gather(self, ids: Ints, row: float, table: int, column: int) -> Fetch:
        count, v = ids.size, self.v
        places = (ids + self.begins[table]).tolist()
        keys = places if not column else (ids + self.begins[table] + column * _APART).tolist()
        issue = max(row / (v["core_cache_bytes_per_s"] or v["core_bytes_per_s"]), v["row_issue_s"])
        at_once = int(v["rows_in_flight"])
        return Fetch(
            [row] * count, [issue] * count, places, keys, [0] * count, [0.0], at_once, looked_up=True
        )

    def _copy(
        self, size: float, table: int | None = None, first_byte: float = 0.0, *, posted: bool = False
    ) -> Fetch:
        """A copy of ``size`` bytes in equal requests.

        table       whose rows they are; None: ids or bags, which bypass the cache
        first_byte  where the rows begin in the table;  posted  a write, for which the core does not wait
        """
        parts, each = _bursts(size)
        issue = each / self.v["dma_bytes_per_s"]
        if table is None:
            begin, key = int(self.random.integers(2**40)), None
        else:
            begin = self.begins[table] + int(first_byte // BURST_BYTES)
            key = list(range(begin - _APART, begin - _APART + parts))
        places = list(range(begin, begin + parts))
        return Fetch(
            [each] * parts, [issue] * parts, places, key, [0] * parts, [0.0], self.window, posted=posted
        )

    def _stream(
        self,
        piece: TablePiece,
        lay: CoreBufferLayout,
        row: float,
        kept: int,
        mine: Ints,
        ids: int,
        around: float,
    ) -> Fetch:
        """One pass of a streamed table: its ids, then the chunks;
        each chunk is looked up when it has arrived.

        kept  rows that stay in the buffer;  mine  rows that the bags ask for;  ids  their number
        """
        v, rows = self.v, piece.rows[1] - piece.rows[0]
        inside = v["local_to_vector_bytes_per_s"]
        chunk = max(int(lay.chunk_rows), 1)
        scan, each = ids * v["id_s"], row / v["vector_bytes_per_s"]
        begin = 0 if inside else kept
        parts, burst = _bursts(around)
        start = int(self.random.integers(2**40))
        size, place = [burst] * parts, list(range(start, start + parts))
        issue, chunks = [burst / v["dma_bytes_per_s"]] * parts, [0] * parts
        still = 0.0 if inside or not kept else scan + float(np.sum(mine < kept)) * each
        work = [still]
        counts = np.bincount(np.maximum(mine - begin, 0)[mine >= begin] // chunk, minlength=int(lay.chunks))
        at = self.begins[piece.table] + ceil((piece.rows[0] + max(begin, kept)) * row / BURST_BYTES)
        for number, first in enumerate(range(begin, rows, chunk), start=1):
            end = min(rows, first + chunk)
            there = max(0, min(end, kept) - first) if inside else 0
            if there:
                size.append(there * row)
                issue.append(there * row / inside)
                place.append(LOCAL)
                chunks.append(number)
            if end - first > there:
                parts, burst = _bursts((end - first - there) * row)
                size += [burst] * parts
                issue += [burst / v["dma_bytes_per_s"]] * parts
                place += range(at, at + parts)
                chunks += [number] * parts
                at += parts
            work.append(scan + float(counts[number - 1]) * each)
        keys = [at - _APART for at in place]
        return Fetch(size, issue, place, keys, chunks, work, self.window, free_from=1)


def _count(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _bursts(size: float) -> tuple[int, float]:
    """(number of requests of a copy, bytes of each)."""
    parts = max(1, ceil(size / BURST_BYTES))
    return parts, size / parts
