"""How tables are split over ranks, by rows and by columns, and which bucket of ids each part gets."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from calibrate.cuda.scan import reciprocal
from perfmodel.errors import BadInputError

_DIVISOR = np.dtype([("divisor", np.int64), ("reciprocal", np.uint64)])
_SPLIT = np.dtype(
    [("row_count", np.int64), ("block", _DIVISOR), ("first_part", np.int32), ("part_count", np.int32)]
)
_PLACE = np.dtype([("shift", np.int64), ("bucket", np.int32), ("part", np.int32)])


@dataclass(frozen=True)
class Shard:
    """One part of one table on one rank. The ids that look up its rows form one bucket.

    row_part, column_part  number of the part of the rows, and of the columns: shards that differ only in
                           ``column_part`` get the same ids
    first_row    index of the shard's first row in the tensor in which its rank looks up; 0: its own tensor
    """

    rank: int
    table: int
    row_part: int = 0
    column_part: int = 0
    first_row: int = 0

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Key by which buckets are sorted: rank, table, row part, column part."""
        return self.rank, self.table, self.row_part, self.column_part


@dataclass(frozen=True)
class Split:
    """Tables split over ranks.

    rows    number of rows of each table
    blocks  for each table, number of rows of a row part: part j holds rows j block .. (j + 1) block - 1
    ranks   number of ranks;  shards  in the order of their buckets: rank, table, row part, column part
    """

    rows: tuple[int, ...]
    blocks: tuple[int, ...]
    ranks: int
    shards: tuple[Shard, ...]

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """Number of row parts of each table, also empty parts that ``shards`` names."""
        parts = [-(-rows // block) for rows, block in zip(self.rows, self.blocks, strict=True)]
        for shard in self.shards:
            parts[shard.table] = max(parts[shard.table], shard.row_part + 1)
        return tuple(parts)

    @property
    def copies(self) -> int:
        """Largest number of buckets to which one id belongs: the number of column parts of its row part."""
        return int(np.diff(self._places()[0]).max())

    def rank_buckets(self) -> list[int]:
        """Number of the first bucket of each rank; at the end, the number of all buckets."""
        of_rank = [shard.rank for shard in self.shards]
        return [int(at) for at in np.searchsorted(of_rank, range(self.ranks + 1))]

    def _places(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(where the places of each row part begin, the places), table by table, part by part.

        A place (``pm::Place``) names one bucket of a row part; each column part has its own.
        """
        first = np.concatenate([[0], np.cumsum(self.parts)])
        part = np.array([first[shard.table] + shard.row_part for shard in self.shards])
        places = np.zeros(len(part), _PLACE)
        order = np.argsort(part, kind="stable")
        places["bucket"] = order
        places["part"] = [self.shards[bucket].row_part for bucket in order]
        places["shift"] = [
            shard.first_row - shard.row_part * self.blocks[shard.table]
            for shard in (self.shards[bucket] for bucket in order)
        ]
        return np.searchsorted(part[order], range(first[-1] + 1)).astype(np.int32), places

    def arguments(self, device: Any, batch: int, tile_bags: int, window: int) -> list[Any]:
        """The first arguments of the kernels: ``pm::Splits`` for ``batch`` samples on ``device``.

        tile_bags  bags that a block handles together;  window  number of row parts whose counts a block holds
        """
        import torch

        tables = np.zeros(len(self.rows), _SPLIT)
        tables["row_count"] = self.rows
        tables["block"]["divisor"] = self.blocks
        tables["block"]["reciprocal"] = [reciprocal(block) for block in self.blocks]
        tables["part_count"] = self.parts
        tables["first_part"] = np.cumsum(self.parts) - self.parts
        places_at, places = self._places()
        arrays = (tables, places_at, places, np.array(self.rank_buckets(), np.int32))
        pointers = [torch.from_numpy(array.view(np.uint8).copy()).to(device) for array in arrays]
        tiles, i32, i64 = -(-batch // tile_bags), ctypes.c_int32, ctypes.c_int64
        sizes = [i64(batch), i64(tiles), ctypes.c_uint64(reciprocal(tiles))]
        return [*pointers, *sizes, i32(len(self.rows)), i32(self.ranks), i32(window)]


def make_split(rows: Sequence[int], blocks: Sequence[int], ranks: int, shards: Sequence[Shard]) -> Split:
    """Tables of ``rows`` rows, cut into row parts of ``blocks`` rows, on ``ranks`` ranks.

    shards  which rank holds which part. A table of one part is table-wise or column-wise; several parts are
            row-wise; with several column parts each, it is split both ways (3D: table, rows, columns).
    Limits: no table, rows, blocks or ranks below 1; a shard of a missing table, part or rank; two
            equal shards; a row part on no rank; 2^31 row parts -> BadInputError
    """
    split = Split(tuple(rows), tuple(blocks), ranks, tuple(sorted(shards, key=lambda shard: shard.order)))
    for problem in _problems(split):
        raise BadInputError(f"tables cannot be split so: {problem}.", "see calibrate.cuda.split.make_split.")
    return split


def _problems(split: Split) -> Iterator[str]:
    if not split.rows or len(split.rows) != len(split.blocks) or split.ranks < 1:
        yield f"{len(split.rows)} tables, {len(split.blocks)} block sizes, {split.ranks} ranks"
    if min(split.rows) < 1 or min(split.blocks) < 1:
        yield f"rows {split.rows}, blocks {split.blocks}: all must be at least 1"
    for shard in split.shards:
        if not 0 <= shard.table < len(split.rows) or not 0 <= shard.rank < split.ranks:
            yield f"{shard} of {len(split.rows)} tables on {split.ranks} ranks"
        if shard.row_part < 0 or shard.first_row < 0:
            yield f"{shard} begins before its table or its tensor"
    if sum(split.parts) >= 2**31:
        yield f"{sum(split.parts)} row parts: fewer than 2^31"
    if len({shard.order for shard in split.shards}) < len(split.shards):
        yield "two shards are equal"
    placed = {(shard.table, shard.row_part) for shard in split.shards}
    if len(placed) < sum(split.parts):
        yield f"{sum(split.parts) - len(placed)} row parts lie on no rank"


def row_wise(rows: Sequence[int], ranks: int, *, block: int | None = None) -> Split:
    """A split of every table over all ranks: row r of a table is on rank r // block.

    block  rows of one part, equal for all tables, which a rank keeps in one tensor: there its part of table t
           begins at row t block (calibrate.passes.lookup). None: each table has its own tensor, and the
           smallest block with which ``ranks`` parts hold the table
    Every rank has one bucket per table; for tables with few rows some are empty.
    Limits: a table of more than ranks block rows -> BadInputError
    """
    blocks = [block] * len(rows) if block else [-(-count // ranks) for count in rows]
    starts = np.cumsum(blocks) - blocks
    shards = [
        Shard(rank, table, rank, first_row=int(starts[table]))
        for rank in range(ranks)
        for table in range(len(rows))
    ]
    return make_split(rows, blocks, ranks, shards)
