"""Sizes of a row-wise exchange of one-sided writes, and the memory of its kernels (``pm::Exchange``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.cuda.device_tables import DeviceTables
from calibrate.cuda.gather_layout import ID_BYTES
from calibrate.cuda.symmetric_worlds import ALIGN_BYTES, Region, SymmetricWorld
from perfmodel.errors import BadInputError

METHODS = ("three", "fused")
PART_BYTES = {"three": 256 * 1024, "fused": 8 * 1024}
"""Approximate bytes of one put of partial bags, by method."""

FEWEST_BAGS = 8
FEWEST_BYTES = 512
FUSED_PARTS = 64
"""Least bags and bytes of a put. If a fused call has more, it is cut into at least ``FUSED_PARTS`` parts, so
that many blocks have work."""

LANES = 8
"""Number of lanes that sort the ids of a bag."""

_HEAD = 4
_NO_FAULTS = (0, -1, 0, 0, -1)  # ids out of range, the first; a lost rank; ids of other ranks, the first
_COUNTS = range(1, 2**31 - 8)  # of ids and bags: kernels count in 31 bits
_PLACES = (
    *("peers", "tables", "splits", "status", "progress", "tile_sums", "totals", "ids_here", "bags_here"),
    *("landed_offsets", "landed_ids", "landed_bags", "staged_offsets", "staged_ids", "staged_bags"),
)
_NUMBERS = (
    *("me", "PEs", "table_count", "dim", "max_batch", "part_bags", "parts", "pieces", "lag", "stage_all"),
    *("shared_before", "padding"),
)


class ExchangeArguments(ctypes.Structure):
    """``pm::Exchange`` of kernels/exchange.cu, which its kernels take by value."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _PLACES),
        *((name, ctypes.c_int64) for name in ("capacity", "words", "patience_ns")),
        *((name, ctypes.c_int32) for name in _NUMBERS),
    )


@dataclass(frozen=True)
class Sizes:
    """Largest sizes of the calls of an exchange, and how calls are cut. They are equal on all ranks.

    rows      number of rows of each table, over all ranks;  dim  number of columns D
    batch     most samples of a rank in a call;  ids  most ids of a rank in a call
    method    fused (one launch pools and pushes) or three (a launch each)
    part_bags number of bags per put; None: about 8 KiB fused, 256 KiB else
    """

    rows: tuple[int, ...]
    dim: int
    batch: int
    ids: int
    method: str = "fused"
    part_bags: int | None = None

    @property
    def bags(self) -> int:
        """Number of bags of one rank in a call: tables x samples."""
        return len(self.rows) * self.batch

    @property
    def capacity(self) -> int:
        """Most ids from one rank to another, all of its ids, rounded up to a multiple of 2."""
        return -(-self.ids // 2) * 2

    @property
    def bags_a_part(self) -> int:
        """Number of bags in one put."""
        limit = max(PART_BYTES[self.method] // (4 * self.dim), FEWEST_BAGS)
        if self.method == "fused":
            fewest = max(-(-FEWEST_BYTES // (4 * self.dim)), FEWEST_BAGS)
            limit = min(limit, max(fewest, self.bags // FUSED_PARTS))
        return min(self.part_bags or limit, self.bags)

    @property
    def parts(self) -> int:
        """Number of puts in which one rank writes its partial bags to another."""
        return -(-self.bags // self.bags_a_part)

    def check(self) -> None:
        """Check sizes. Limits: unknown method, sizes below 1, 2^31 ids or bags -> BadInputError"""
        if self.method not in METHODS:
            raise BadInputError(f"exchange {self.method!r} is unknown.", f"known: {', '.join(METHODS)}.")
        counts = (self.dim, self.batch, self.ids, self.bags)
        if not all(count in _COUNTS for count in counts) or any(rows < 1 for rows in self.rows):
            raise BadInputError(f"sizes of an exchange: {self}.", "all are at least 1 and below 2^31.")
        if self.bags_a_part * self.dim not in _COUNTS:
            words = "give part_bags at least 1, and fewer than 2^31 numbers."
            raise BadInputError(f"puts of {self.bags_a_part} bags of {self.dim} columns.", words)


def divide_rows(rows: Sequence[int], ranks: int) -> list[int]:
    """Rows of each table on one rank; the last ranks may hold fewer, or none."""
    return [-(-count // ranks) for count in rows]


def count_held(rows: int, ranks: int, rank: int) -> int:
    """Rows of a table that a rank passes: those that it holds, or any single row where it holds none."""
    (block,) = divide_rows([rows], ranks)
    return max(min(block, rows - rank * block), 1)


@dataclass(frozen=True)
class Launches:
    """Launch parameters of the kernels of an exchange.

    threads       threads of a block;  scan_threads  of a block of the kernel scan_counts
    pieces        number of puts in which ids are sent to one rank
    blocks        blocks of the kernels that pool
    shared_bytes  dynamic shared memory of such a block;  shared_before  its part for rows that are being read
    """

    threads: int
    scan_threads: int
    pieces: int
    blocks: int
    shared_before: int
    shared_bytes: int

    @property
    def tile(self) -> int:
        """Bags whose ids a block sorts at a time."""
        return self.threads // LANES


class ExchangeMemory:
    """Device memory of the kernels of one exchange: one symmetric region, and memory of this rank only."""

    def __init__(
        self,
        world: SymmetricWorld,
        sizes: Sizes,
        tables: DeviceTables,
        launches: Launches,
        patience_s: float,
        stage_all: bool,
    ) -> None:
        """Allocate all memory, and fill the structure of its addresses and sizes that kernels get.

        patience_s  how long a kernel waits for another rank [s]
        stage_all   whether partial bags always go through a buffer and a put
        """
        import torch

        device, ranks = world.device, world.ranks
        self.patience_s = patience_s
        tile = launches.tile
        tiles = -(-sizes.bags // tile)
        staged = stage_all or sizes.method == "three" or not world.all_mapped  # bags go through a buffer
        lengths = _list_lengths(sizes, ranks, launches.pieces, staged)
        lag = -(-2 * launches.blocks // (ranks + 1))  # parts between the push of one and its sum, if fused
        if sizes.parts * ranks >> 29:  # turns of blocks, two for each and some more, are 31-bit numbers
            raise BadInputError(
                f"{sizes.parts} puts to each of {ranks} ranks are too many.", "give part_bags more."
            )
        # the parts of the symmetric region, one after the other, each aligned
        begins = np.concatenate(
            [[0], np.cumsum([-(-n // ALIGN_BYTES) * ALIGN_BYTES for n in lengths.values()])]
        )
        self.region: Region = world.allocate(int(begins[-1]))
        base = self.region.memory.data_ptr()
        self.offsets = torch.zeros(sizes.bags + 1, dtype=torch.int64, device=device)
        self.status = torch.tensor(_NO_FAULTS, device=device)
        splits = np.stack([sizes.rows, divide_rows(sizes.rows, ranks)], axis=1).astype(np.int64)
        self._kept = {
            "peers": self.region.peers(world.rank),
            "tables": tables.to_device(tables.descriptors()),
            "splits": torch.from_numpy(splits).to(device),
            "status": self.status,
            "progress": torch.zeros(4, dtype=torch.int64, device=device),
            "tile_sums": torch.zeros(ranks * tiles, dtype=torch.int32, device=device),
            "totals": torch.zeros(ranks, dtype=torch.int64, device=device),
        }
        numbers = {name: tensor.data_ptr() for name, tensor in self._kept.items()}
        numbers |= {name: base + int(begin) for name, begin in zip(lengths, begins, strict=False)}
        numbers |= {
            "capacity": sizes.capacity,
            "words": _count_words(sizes),
            "patience_ns": int(patience_s * 1e9),
            "me": world.rank,
            "PEs": ranks,
            "table_count": len(sizes.rows),
            "dim": sizes.dim,
            "max_batch": sizes.batch,
            "part_bags": sizes.bags_a_part,
            "parts": sizes.parts,
            "pieces": launches.pieces,
            "lag": lag,
            "stage_all": int(stage_all),
            "shared_before": launches.shared_before,
        }
        self.exchange = ExchangeArguments(**numbers)

    def reset_status(self) -> None:
        """Clear the errors that kernels have reported."""
        self.status.copy_(self.status.new_tensor(_NO_FAULTS))


def _count_words(sizes: Sizes) -> int:
    """32-bit words that one rank sends another about its bags: a head, then bags + 1 offsets, in fours."""
    return _HEAD + (sizes.bags // 4 + 1) * 4


def _list_lengths(sizes: Sizes, ranks: int, pieces: int, staged: bool) -> dict[str, int]:
    """Bytes of each part of a rank's symmetric region, by the part's name in ``pm::Exchange``.

    pieces  number of puts of ids to one rank;  staged  whether partial bags go through a buffer
    """
    bags = 4 * ranks * sizes.bags * sizes.dim
    return {
        "ids_here": 8 * ranks * 2 * pieces,
        "bags_here": 8 * ranks * sizes.parts,
        "landed_offsets": 4 * ranks * _count_words(sizes),
        "landed_ids": ID_BYTES * ranks * sizes.capacity,
        "landed_bags": bags,
        "staged_offsets": 4 * ranks * _count_words(sizes),
        "staged_ids": ID_BYTES * sizes.ids + 16 * ranks,
        "staged_bags": bags if staged else 0,
    }
