"""The row-wise look-up over several ranks by one-sided writes: kernels/exchange.cu, on GPUs or on CPUs.

Every rank (NVSHMEM: PE) holds an equal block of the rows of every table and has its own samples. A call
pushes each id to the rank that holds its row; that rank sums its rows of each bag and writes this partial bag
into the memory of the rank that asked, which adds up the partial bags.

    three    the paper's stages, one launch each: send ids, pool into a buffer, push it, add up
    fused    pooling, pushing and adding up in one launch: parts of a few bags, each with its own signal

Source: arXiv 2512.05831 (three stages); fused: no collective, no barrier, see kernels/exchange.cu.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from calibrate.cuda.cache import Kernel
from calibrate.cuda.device_tables import ROW_TYPES, DeviceTables, make_tables
from calibrate.cuda.exchange_memory import ExchangeMemory, Launches, Sizes, count_held
from calibrate.cuda.gather_layout import RowAccess, choose_width, divide_row
from calibrate.cuda.kernel_launch import count_blocks, is_built, launch, prebuild
from calibrate.cuda.symmetric_worlds import SymmetricWorld
from calibrate.planning.kernel_cells import ELEMENT_BYTES
from perfmodel.errors import BadInputError, RankLostError

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "exchange.cu"
SOURCE_NVSHMEM = "exchange_nvshmem.cu"
POOL = 1
PUSH = 2
SUM = 4
"""Stages of ``pm::bags``."""

STAGES = {"fused": ("fused",), "three": ("gather", "", "reduce")}
"""Names of the stages of a call after ``permute``, by method: bags are pushed and summed in ``reduce``."""

PATIENCE_S = {"cuda": 10.0, "cpu": 19.0}
"""How long a rank waits for another rank within a call [s]."""

MOST_PATIENCE_S = {"cuda": math.inf, "cpu": 20.0}
"""A simulated GPU on a CPU gives up a wait after this time [s] (kernels/cpu.hpp)."""

_LAUNCHES = {
    "cuda": {"threads": 256, "scan_threads": 1024, "pieces": 16},
    "cpu": {"threads": 64, "scan_threads": 64, "pieces": 3},
}
_REASON = 2**32  # a kernel reports a lost rank as reason * _REASON + number


def kernels(
    dtype: str, access: RowAccess, *, method: str = "fused", source: str = SOURCE
) -> dict[str, Kernel]:
    """The kernels of a row-wise exchange, by name: count_ids …, and bags<n>, n the sum of its stages' bits.

    access  how rows are read (``choose_access``);  method  fused: pool, push, sum in one kernel; or three
    """
    sizes = f"{access.lanes}, {access.chunks}, {access.width}"
    names = {kernel: kernel for kernel in ("count_ids", "place_ids", "push_ids", "scan_counts")}
    stages = [POOL | PUSH | SUM] if method == "fused" else [POOL, PUSH, SUM]
    for stage in stages:
        rows = f"{ROW_TYPES[dtype]}, {sizes}" if stage & POOL else "float, 1, 1, 16"  # else only bags move
        names[f"bags{stage}"] = f"bags<{rows}, {stage}>"
    return {does: Kernel(source, f"pm::{name}") for does, name in names.items()}


def choose_access(dim: int, dtype: str, width: int) -> RowAccess:
    """How to read rows of ``dim`` columns by accesses of ``width`` bytes; long rows are read in pieces."""
    access, _ = divide_row(dim * ELEMENT_BYTES[dtype], width)
    return access


class RowWiseExchange:
    """Row-wise look-ups by one rank, together with all other ranks of ``world``.

    world      the ranks (calibrate.cuda.symmetric_worlds)
    held       this rank's rows of each table: torch tensors [rows, D], fp32 or fp16. Rank r holds the
               rows r block .. (r + 1) block of a table of E rows, block = ceil(E / ranks); a rank without
               rows of a table passes any single row
    sizes      largest sizes of calls, equal on all ranks
    patience_s how long a call waits for another rank [s], below 20 on CPUs; None: ``PATIENCE_S``
    stage_all  whether bags go through a buffer and a put even to ranks whose memory is mapped here
    blocks     of the kernel that pools; None: as many as run at once

    Construction synchronizes all ranks. Calls do not: see kernels/exchange.cu.
    Limits: sums only, no weights, one D; all ranks make the same calls with the same number of samples, on
            one stream. Symmetric memory (T tables, B samples): ranks (4 T B D + 8 ids) bytes,
            about, and 4 ranks T B D more if bags go through a buffer.
    """

    def __init__(
        self,
        world: SymmetricWorld,
        held: Sequence[Any],
        sizes: Sizes,
        *,
        patience_s: float | None = None,
        stage_all: bool = False,
        blocks: int | None = None,
    ) -> None:
        """Choose how rows are read, build the kernels, allocate; then agree with all ranks."""
        sizes.check()
        kind = world.device.type
        patience_s = PATIENCE_S[kind] if patience_s is None else patience_s
        if not 0 < patience_s < MOST_PATIENCE_S[kind]:
            words = f"give patience_s above 0 and below {MOST_PATIENCE_S[kind]:g} s."
            raise BadInputError(f"a rank cannot wait {patience_s:g} s for another one.", words)
        self._world = world
        self._sizes = sizes
        self._tables = _make_tables(held, sizes, world)
        dtype = self._tables.dtype
        addresses = [rows.data_ptr() for rows in self._tables.rows]
        width = choose_width(sizes.dim * ELEMENT_BYTES[dtype], *addresses, *self._tables.row_bytes)
        access = choose_access(sizes.dim, dtype, width)
        source = SOURCE_NVSHMEM if world.nvshmem else SOURCE
        self._kernels = kernels(dtype, access, method=sizes.method, source=source)
        _build(list(self._kernels.values()), world)
        threads = _LAUNCHES[kind]["threads"]
        shared_bytes = access.count_block_bytes(threads, ELEMENT_BYTES[dtype])
        self._launches = Launches(
            **_LAUNCHES[kind],
            blocks=blocks or count_blocks(self._list_bags_kernels()[0], world.device, threads, shared_bytes),
            shared_before=access.count_stream_bytes(threads),
            shared_bytes=shared_bytes,
        )
        self._memory = ExchangeMemory(world, sizes, self._tables, self._launches, patience_s, stage_all)
        self._broken = ""
        world.agree(f"{sizes} {self._tables.dtype} {stage_all} {self._launches.pieces}")

    def run(self, ids: Tensor, lengths: Tensor, out: Tensor | None = None) -> Tensor:
        """As ``queue``; also waits for the device, and raises errors.

        Limits: lengths that do not add up to the ids, ids out of range (they add nothing) -> BadInputError; a
                rank that does not take part -> RankLostError
        """
        self._check_batch(ids, lengths)
        if int(lengths.sum()) != ids.numel() or int(lengths.min()) < 0:
            sums = f"add up to {int(lengths.sum())}, the least is {int(lengths.min())}"
            raise BadInputError(
                f"lengths {sums}; there are {ids.numel()} ids.",
                "a length for each bag: as many ids together.",
            )
        out = self.queue(ids, lengths, out)
        self.raise_faults()
        return out

    def queue(
        self,
        ids: Tensor,
        lengths: Tensor,
        out: Tensor | None = None,
        *,
        mark: Callable[[str], None] = lambda stage: None,
    ) -> Tensor:
        """Look up: returns the bags of this rank's samples, fp32 [B, T, D]. All ranks call it.

        The work is queued on the current stream: call ``raise_faults`` later.
        ids      numbers of rows in their own table, in the order table, sample [n], int64
        lengths  number of ids of each bag [T B], table by table, int32 or int64
        out      contiguous, on the world's device; None: new memory
        mark     called with the name of each stage, once its last kernel is queued: permute (ids are pushed),
                 gather (which waits for the others' ids), reduce; fused: permute, fused
        Limits: more samples or ids than ``sizes`` allows, another type -> BadInputError
        """
        import torch

        batch = self._check_batch(ids, lengths)
        if self._broken:
            raise RankLostError("the exchange", self._broken, "start all ranks again.")
        memory = self._memory
        device = self._world.device
        sizes = self._sizes
        if out is None:
            shape = (batch, len(sizes.rows), sizes.dim)
            out = torch.empty(shape, dtype=torch.float32, device=device)
        torch.cumsum(lengths, 0, out=memory.offsets[1:][: lengths.numel()])
        self._push(ids, batch)
        mark("permute")
        for stage, kernel in zip(STAGES[sizes.method], self._list_bags_kernels(), strict=True):
            arguments = [memory.exchange, ctypes.c_int32(batch), out]
            launches = self._launches
            launch(kernel, device, launches.blocks, launches.threads, arguments, launches.shared_bytes)
            if stage:
                mark(stage)
        return out

    def raise_faults(self) -> None:
        """Wait for the device, and raise the errors of all calls since ``raise_faults`` was last called.

        Raises RankLostError for a rank that did not take part (the exchange is then unusable), BadInputError
        for ids out of range, and for unequal batches.
        """
        count, position, lost, foreign, _ = self._memory.status.tolist()
        self._memory.reset_status()
        if lost:
            self._raise_lost(*divmod(lost, _REASON))
        if count:
            raise BadInputError(
                f"{count} ids are outside their tables, the first at position {position}.",
                "ids are rows of their own table.",
            )
        if foreign:
            raise BadInputError(
                f"{foreign} ids that rank {self._world.rank} received are not rows of this rank.",
                "all ranks hold the rows that divide_rows says.",
            )

    def close(self) -> None:
        """End the exchange; its memory is freed when the world is closed."""
        self._broken = "is closed"

    def _raise_lost(self, reason: int, number: int) -> None:
        """Raise the error for a fault that a kernel reported, and make the exchange unusable.

        reason  what it waited for: 0 ids, 1 bags, 2 nothing, batches differ;  number  of the rank, from 1
        """
        rank = number - 1
        awaited = ("ids", "partial bags", "")[reason]
        if not awaited:
            self._broken = "has mixed calls of different batches"
            raise BadInputError(
                f"rank {rank} looks up another number of samples than rank {self._world.rank}.",
                "all ranks make the same calls.",
            )
        left = self._world.lost()
        self._world.give_up()
        gone = rank if rank in left or not left else left[0]
        self._broken = f"has lost rank {gone}"
        if left:
            raise RankLostError(f"rank {gone}", f"died or left while {awaited} were awaited")
        late_s = f"{self._memory.patience_s:g} s"
        raise RankLostError(f"rank {rank}", f"does not answer: no {awaited} of it for {late_s}")

    def _push(self, ids: Tensor, batch: int) -> None:
        """Queue the kernels that send ids to the ranks that hold their rows: count, place, push. batch  B"""
        memory = self._memory
        ranks = self._world.ranks
        tile = self._launches.tile
        tiles = -(-len(self._sizes.rows) * batch // tile)
        grid = min(
            tiles, count_blocks(self._kernels["count_ids"], self._world.device, self._launches.threads)
        )
        number = ctypes.c_int32(batch)
        sorting = [memory.exchange, ids, ctypes.c_int64(ids.numel()), memory.offsets, number]
        self._launch("count_ids", grid, sorting, 4 * ranks * tile)  # counts, 4 bytes each
        scanning = [memory.exchange, number, ctypes.c_int32(tile)]
        launch(self._kernels["scan_counts"], self._world.device, ranks, self._launches.scan_threads, scanning)
        self._launch("place_ids", grid, sorting, (8 + 4 * tile) * ranks)  # for each rank a start and cursors
        self._launch("push_ids", ranks * self._launches.pieces, [memory.exchange, number])

    def _launch(self, does: str, grid: int, arguments: Sequence[Any], shared_bytes: int = 0) -> None:
        launch(self._kernels[does], self._world.device, grid, self._launches.threads, arguments, shared_bytes)

    def _list_bags_kernels(self) -> list[Kernel]:
        """The kernels that pool, push and sum bags, in the order of their launches."""
        return [kernel for does, kernel in self._kernels.items() if does.startswith("bags")]

    def _check_batch(self, ids: Tensor, lengths: Tensor) -> int:
        """Check types, places and sizes of a call's inputs; returns its number of samples B."""
        sizes = self._sizes
        device = self._world.device
        tables = len(sizes.rows)
        batch, remainder = divmod(int(lengths.numel()), tables)
        if (
            remainder
            or not 1 <= batch <= sizes.batch
            or ids.numel() > sizes.ids
            or str(ids.dtype) != "torch.int64"
            or not ids.is_contiguous()
            or device.type != ids.device.type
            or device.type != lengths.device.type
        ):
            inputs = f"{ids.numel()} ids of {ids.dtype} on {ids.device} and {lengths.numel()} lengths"
            raise BadInputError(
                f"{inputs} do not fit an exchange of {sizes.ids} torch.int64 ids and "
                f"{sizes.batch} samples of {tables} tables on {device}.",
                "make an exchange with larger sizes.",
            )
        return batch


def _build(kernels: Sequence[Kernel], world: SymmetricWorld) -> None:
    """Build the kernels that are not built yet, all at once; with NVSHMEM if the world's kernels use it."""
    if world.nvshmem:
        from calibrate.cuda.nvshmem_build import load

        load(kernels, world.device)
    elif not all(is_built(kernel, world.device) for kernel in kernels):
        prebuild(kernels, world.device)


def _make_tables(held: Sequence[Any], sizes: Sizes, world: SymmetricWorld) -> DeviceTables:
    """This rank's rows as tables. Limits: other shapes than ``sizes`` and the ranks give -> BadInputError"""
    tables = make_tables(held)
    wanted = [count_held(rows, world.ranks, world.rank) for rows in sizes.rows]
    counts = [table.shape[0] for table in held]
    elsewhere = tables.device.type != world.device.type
    if counts != wanted or set(tables.dims) != {sizes.dim} or elsewhere:
        shapes = f"{counts} rows of {sorted(set(tables.dims))} columns in {tables.dtype}"
        raise BadInputError(
            f"rank {world.rank} holds {shapes} on {tables.device}.",
            f"it holds {wanted} rows of {sizes.dim} columns, fp32 or fp16, on {world.device}.",
        )
    return tables
