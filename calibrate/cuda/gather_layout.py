"""Layout of gather+pool on a GPU: which threads read which rows and bags. Plain arithmetic, no GPU needed.

A group of lanes (threads of one warp) reads rows together; it sums a run of consecutive bags, or all groups
of a block share one long bag.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WARP = 32
THREADS = 256
"""Threads of a block; the kernels are compiled for at most this number."""
MOST_WIDTH = 16
"""Bytes of the widest access."""
MOST_CHUNKS = 2
"""Accesses of one lane to one row of more than 512 bytes: up to 16 sums in registers. Wider rows are cut."""
ROW_ACCESSES = 4
"""Accesses that a lane has in flight (``kAccesses`` of kernels/row_stream.cuh)."""
RESERVED_BYTES = 1024
"""Shared memory that the system reserves per block [bytes]. Source: CUDA C++ programming guide, for compute
capability 8.0 and higher."""
ID_BYTES = 8
BYTES_IN_FLIGHT = 32 * 1024
"""Bytes that a multiprocessor must have in flight to hide the latency of memory.

By Little's law: an H200 reads 4.3e12 bytes/s with a latency of about 0.8 us, on 132 multiprocessors:
4.3e12 x 0.8e-6 / 132 = 26 000 bytes; rounded up.
"""
RUN_IDS = 128
"""Ids of a group's run of bags: a stream of 8 rows takes the time of about 2 x 8 ids to fill and drain."""


@dataclass(frozen=True)
class RowAccess:
    """How a group of lanes reads a row.

    lanes     number of lanes of the group, a power of two
    width     bytes that a lane reads in one access
    chunks    number of accesses that a lane makes to read its part of a row
    """

    lanes: int
    chunks: int
    width: int

    @property
    def depth(self) -> int:
        """Number of rows of a group that are in flight at a time."""
        return ROW_ACCESSES // self.chunks

    @property
    def blocks(self) -> int:
        """Blocks of THREADS threads that registers let run on one multiprocessor."""
        return 3 if self.chunks > 1 else 4

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that one group of lanes can hold at once."""
        return self.lanes * self.chunks * self.width

    def count_stream_bytes(self, threads: int) -> int:
        """Shared memory of a block for the rows and ids that it is reading [bytes]."""
        turn = max(self.lanes, self.depth)
        return threads * ROW_ACCESSES * self.width + threads // self.lanes * (2 * turn + 1) * ID_BYTES

    def count_block_bytes(self, threads: int, element_bytes: int, *, long: bool = False) -> int:
        """Shared memory of a block [bytes]: also for the ends of bags, or the sums of the ``long`` bag."""
        columns = self.chunks * self.width // element_bytes + 1
        further = threads // WARP * self.lanes * columns * 4 if long else threads * 2 * 4
        return self.count_stream_bytes(threads) + further


@dataclass(frozen=True)
class GatherLayout:
    """How bags are assigned to the threads of a GPU.

    long     whether all groups of a block share one bag; otherwise a group of lanes takes several bags
    threads  threads of a block;  blocks  blocks of the grid
    run      number of consecutive bags of a group
    """

    long: bool
    threads: int
    run: int
    blocks: int


def choose_width(*addresses_and_bytes: int) -> int:
    """The widest access, up to 16 bytes, of which all of these numbers are multiples.

    Limits: 128-byte rows at a multiple of 16 -> 16;  33 fp32 columns -> 4;  an odd number of bytes -> 1
    """
    return math.gcd(MOST_WIDTH, *addresses_and_bytes)


def divide_row(row_bytes: int, width: int) -> tuple[RowAccess, int]:
    """(how to read a row of ``row_bytes`` bytes by accesses of ``width`` bytes, number of pieces of the row).

    A row that is too long for one group of lanes is read in pieces.
    Limits: 16 bytes -> 1 lane;  up to 512 bytes (width 16) -> 1 chunk and as many lanes as cover it;
    1024 bytes -> 2 chunks of 32 lanes;  more -> pieces of that size
    """
    accesses = -(-row_bytes // width)
    lanes = min(WARP, 1 << (accesses - 1).bit_length())
    chunks = min(MOST_CHUNKS, 1 << (-(-accesses // lanes) - 1).bit_length())
    shape = RowAccess(lanes, chunks, width)
    return shape, -(-row_bytes // shape.row_bytes)


def choose(
    bags: int,
    pooling: float,
    row_bytes: int,
    shape: RowAccess,
    multiprocessors: int,
    blocks_at_once: int,
    most_threads: int = THREADS,
) -> GatherLayout:
    """The layout for tables whose rows are read in the same way: each bag by a group of lanes, or by a block.

    bags            number of bags of all pieces of all tables;  pooling  ids of a bag on average
    row_bytes       bytes of one piece of a row
    blocks_at_once  number of blocks of ``most_threads`` threads that memory lets run at once on the whole GPU

    A group has min(ids of its bags, depth) rows in flight. If one bag per group leaves fewer bytes in
    flight than hide the latency of memory (``BYTES_IN_FLIGHT``), and a bag has more ids than a group keeps
    in flight, a block takes a bag, with as many groups as compensate. Otherwise groups take runs of at least
    ``RUN_IDS`` ids, with lengths such that all end at about the same time; if groups are few, blocks are
    small, so that every multiprocessor has some.
    Limits: bags -> inf -> runs;  one bag of many ids -> a block of 256 threads;  pooling <= depth -> runs
    """
    bags = max(1, bags)
    blocks_at_once = min(blocks_at_once, multiprocessors * shape.blocks)
    wanted_rows = BYTES_IN_FLIGHT * multiprocessors / row_bytes
    sharing = min(wanted_rows / bags, pooling) / shape.depth  # groups that can share a bag
    threads = min(most_threads, WARP << math.ceil(math.log2(max(1.0, sharing * shape.lanes / WARP))))
    if sharing > 1:
        return GatherLayout(True, threads, 1, min(bags, blocks_at_once * most_threads // threads))
    groups = blocks_at_once * most_threads // shape.lanes
    shortest = min(math.ceil(RUN_IDS / max(pooling, 1.0)), -(-bags // groups))
    turns = math.ceil(bags / (groups * shortest))
    run = -(-bags // (groups * turns))
    lanes = -(-bags // run) * shape.lanes
    spread = (lanes // multiprocessors | WARP).bit_length() - 1  # at least a warp
    threads = min(most_threads, 1 << spread)
    return GatherLayout(False, threads, run, min(blocks_at_once, -(-lanes // threads)))
