"""Gather and pool: rows of many tables are looked up and summed into bags, with a launch per class of tables.

Tables whose rows are read in the same way (``RowAccess``) form a class. ``GatherPool`` is prepared once and
then only launches, as timings need.

Order of bags: ``kernels/tables.cuh``. Specification: ``tests/oracles/kernels/gather_pool.py``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.cuda.cache import Kernel
from calibrate.cuda.device_tables import DESCRIPTOR, ROW_TYPES, DeviceTables, Records
from calibrate.cuda.gather_layout import (
    RESERVED_BYTES,
    THREADS,
    GatherLayout,
    RowAccess,
    choose,
    choose_width,
    divide_row,
)
from calibrate.cuda.kernel_launch import count_blocks, launch
from calibrate.planning.kernel_cells import ELEMENT_BYTES
from perfmodel.errors import BadInputError

SOURCE = "gather_pool.cu"
_MOST = 2**31 - 2
"""Most ids, and most bags, of a call: positions are 31-bit numbers."""
_MOST_THREADS = {"cuda": THREADS, "cpu": 64}
_CPU_MULTIPROCESSORS = 1

PIECE = np.dtype([("table", DESCRIPTOR), ("number", np.int32), ("reports", np.int32)])
"""``pm::Piece`` of kernels/row_stream.cuh."""


def gather_kernel(shape: RowAccess, dtype: str, *, long: bool = False) -> Kernel:
    """The kernel that looks up rows of ``dtype``, read as ``shape`` says. long  a block takes one bag"""
    sizes = f"{shape.lanes}, {shape.chunks}, {shape.width}"
    name = f"pm::gather_pool{'_long' if long else ''}<{ROW_TYPES[dtype]}, {sizes}>"
    block_bytes = shape.count_block_bytes(THREADS, ELEMENT_BYTES[dtype], long=long)
    return Kernel(SOURCE, name, shape.blocks * (block_bytes + RESERVED_BYTES))  # what is left is L1 cache


@dataclass(frozen=True)
class TableClass:
    """Pieces of tables whose rows are read in the same way, and which one launch looks up.

    pieces  ``pm::Piece`` of each, on the device;  count  number of pieces
    wide    whether bags can be written in wide accesses if the output is aligned to 16 bytes
    shared_bytes  dynamic shared memory of a block
    """

    shape: RowAccess
    plan: GatherLayout
    kernel: Kernel
    pieces: Any
    count: int
    wide: bool
    shared_bytes: int


class GatherPool:
    """Looks up rows for ``batch`` samples, as often as it is called; everything else is prepared once.

    Limits: D and B as large as memory; any number of rows, less than 4 GiB apart, and at most 2^31 - 2 ids
            and bags
    """

    def __init__(
        self, tables: DeviceTables, batch: int, pooling: float = 1.0, plan: GatherLayout | None = None
    ) -> None:
        """Sort the tables into classes, and choose a launch for each.

        batch  B, samples of a call;  pooling  expected ids per bag: determines the layout on the GPU
        plan   layout to use for all tables; None: by ``choose``
        """
        if batch < 0 or batch * len(tables.rows) > _MOST or max(tables.row_bytes) >= 2**32:
            raise BadInputError(
                f"{len(tables.rows)} tables of rows {max(tables.row_bytes)} bytes apart, {batch} samples: "
                "too much, or less than nothing.",
                f"at most {_MOST} bags, and rows less than 4 GiB apart.",
            )
        self.tables = tables
        self.batch = batch
        self.classes = [
            self._make_class(shape, pieces, pooling, plan) for shape, pieces in _cut_pieces(tables).items()
        ]

    def __call__(self, ids: Any, offsets: Any, out: Any, faults: Any = None) -> None:
        """Queue the launches, without allocation, checks or waits.

        ids      [n] int64 on the tables' device
        offsets  [T B + 1] int64: bag i has the ids offsets[i] .. offsets[i + 1]
        out      of ``make_out``'s shape and type
        faults   tensor of ``make_faults``, to which the call adds wrong ids and offsets
        """
        wide_out = not out.data_ptr() % 16
        for tables in self.classes:
            threads = tables.plan.threads
            arguments = (
                tables.pieces,
                ctypes.c_int32(tables.count),
                ctypes.c_int32(self.batch),
                ctypes.c_int32(tables.plan.run),
                ctypes.c_int32(tables.shape.count_stream_bytes(threads)),
                ids,
                ctypes.c_int32(ids.numel()),
                offsets,
                out,
                ctypes.c_int32(tables.wide and wide_out),
                faults,
            )
            launch(
                tables.kernel, self.tables.device, tables.plan.blocks, threads, arguments, tables.shared_bytes
            )

    def make_out(self) -> Any:
        """Uninitialised memory for the bags, fp32 [B, sum D]."""
        import torch

        shape = self.batch, sum(self.tables.dims)
        return torch.empty(shape, dtype=torch.float32, device=self.tables.device)

    def _make_class(
        self, shape: RowAccess, pieces: Records, pooling: float, plan: GatherLayout | None
    ) -> TableClass:
        """What one launch needs to look up these pieces of tables, which are all read as ``shape`` says."""
        dtype = self.tables.dtype
        element = ELEMENT_BYTES[dtype]
        if plan is None:
            limit = _MOST_THREADS[self.tables.device.type]
            row_bytes = int(pieces["table"]["dim"].max()) * element
            multiprocessors, blocks = self._count_room(shape, limit)
            plan = choose(self.batch * len(pieces), pooling, row_bytes, shape, multiprocessors, blocks, limit)
        store = min(16, shape.width // element * 4)  # bytes that a lane writes: its columns as fp32
        starts = [*pieces["table"]["out_at"].tolist(), *pieces["table"]["out_stride"].tolist()]
        return TableClass(
            shape=shape,
            plan=plan,
            kernel=gather_kernel(shape, dtype, long=plan.long),
            pieces=self.tables.to_device(pieces),
            count=len(pieces),
            wide=not any(start * 4 % store for start in starts),
            shared_bytes=shape.count_block_bytes(plan.threads, element, long=plan.long),
        )

    def _count_room(self, shape: RowAccess, threads: int) -> tuple[int, int]:
        """(number of multiprocessors, blocks of ``threads`` threads that run at once on all of them)."""
        import torch

        device, dtype = self.tables.device, self.tables.dtype
        shared_bytes = shape.count_block_bytes(threads, ELEMENT_BYTES[dtype])
        blocks = count_blocks(gather_kernel(shape, dtype), device, threads, shared_bytes)
        if device.type == "cpu":
            return _CPU_MULTIPROCESSORS, blocks
        return int(torch.cuda.get_device_properties(device).multi_processor_count), blocks


def _cut_pieces(tables: DeviceTables) -> dict[RowAccess, Records]:
    """The tables in pieces, ranges of columns that one launch can read, as ``PIECE``, by how rows are read.

    A piece has an address in the first row and a place in a bag; the first of a table reports wrong ids.
    """
    element = ELEMENT_BYTES[tables.dtype]
    classes: dict[RowAccess, list[Records]] = {}
    for number, table in enumerate(tables.descriptors()):
        row = int(table["dim"]) * element
        width = choose_width(int(table["rows"]), int(table["row_bytes"]), row)
        shape, count = divide_row(row, width)
        columns = shape.row_bytes // element
        for index in range(count):
            column = index * columns
            piece = np.zeros((), PIECE)
            piece["table"] = table
            piece["table"]["rows"] += np.uint64(column * element)
            piece["table"]["out_at"] += column
            piece["table"]["dim"] = min(columns, int(table["dim"]) - column)
            piece["number"] = number
            piece["reports"] = not index
            classes.setdefault(shape, []).append(piece)
    return {shape: np.array(pieces) for shape, pieces in classes.items()}


def make_faults(device: Any) -> Any:
    """Faults, int64 [4]: wrong ids, place of the first or -1; wrong offsets, place of the first or -1."""
    import torch

    return torch.tensor([0, -1, 0, -1], device=device)
