"""Kernels that a calibration times by themselves, for the constants of the model: look-ups, and copies.

A *cell* is one measured point of a plan (``schema.runs.Point``). A kernel runs on every rank of one node at
once, as in a real pass, where all ranks share the node's memory. Its ``payload_bytes`` is the model's count
of moved bytes. Lists are deterministic: equal worlds and presets give equal points in equal order.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

KIB = 2**10
MIB = 2**20
GIB = 2**30
ELEMENT_BYTES = {"fp32": 4, "fp16": 2}
POOLED_BYTES = 4
"""Bytes of an element of a bag: sums are kept and sent in fp32, whatever type the rows have."""

SMALL_BYTES = 8
"""Bytes of an id, of a length, of an offset and of a split: int64."""

POOLINGS = (0.5, 1.25, 2.5, 5.5, 8, 13.5, 32)
"""Rows per bag: integers give equal bags, others bags of random length, as after an exchange.

Short bags are random, because a CPU that predicts the next length looks up single rows in half the time.
"""

DRAWS = 3
"""Numbers of look-ups that are drawn for each width of rows and size of tables."""


@dataclass(frozen=True)
class KernelGrid:
    """Look-ups and copies of a kind of device and a preset, for one rank.

    dims        columns of the rows;  table_bytes  of all tables together
    lookups     (fewest, most) ids of a call;  most_bytes  most that a call moves
    copy_bytes  most that a copy reads and writes
    """

    dims: tuple[int, ...]
    table_bytes: tuple[int, ...]
    lookups: tuple[int, int]
    most_bytes: int
    copy_bytes: int = GIB


LOOKUPS = {"cpu": (64, 2**17), "cuda": (2**10, 2**23)}
_DIMS = (32, 64, 96, 128)
_TABLES = (1, 2, 4, 8)
_SMALL = (MIB, 4 * MIB, 16 * MIB, 128 * MIB, 512 * MIB)
_LARGE = (16 * MIB, 64 * MIB, 256 * MIB, 2 * GIB, 8 * GIB)
GRIDS = {
    ("cpu", "quick"): KernelGrid(_DIMS, _SMALL[1:4], LOOKUPS["cpu"], 16 * MIB, 64 * MIB),
    ("cpu", "standard"): KernelGrid((16, *_DIMS), _SMALL, LOOKUPS["cpu"], 16 * MIB),
    ("cuda", "quick"): KernelGrid(_DIMS, (16 * MIB, 256 * MIB, 4 * GIB), LOOKUPS["cuda"], 2 * GIB),
    ("cuda", "standard"): KernelGrid((16, *_DIMS), _LARGE, LOOKUPS["cuda"], 2 * GIB),
}


def count_bytes(operation: str, work: LookupWork, dtype: str) -> int:
    """Bytes that the model counts for one call of a kernel on one rank.

        gather_pool    n (D w + id) + bags (4 D + 8)    rows and ids read, fp32 bags written, offsets read
        copy           2 D                              D bytes read and written

    B, T, L, D  of ``work``: samples, tables, pooling factor, columns
    n = round(B T L) look-ups;  bags = B T;  w  bytes of an element;  id  bytes of an id
    Limits: no penalty of short rows, no cache: the fit adds them
    """
    if operation == "copy":
        return 2 * work.dim
    bags = work.batch * work.tables
    rows_bytes = count_lookups(work) * (work.dim * ELEMENT_BYTES[dtype] + work.id_bytes)
    return rows_bytes + bags * (POOLED_BYTES * work.dim + SMALL_BYTES)


def count_lookups(work: LookupWork) -> int:
    """Number of ids that one rank looks up: samples x tables x pooling factor, rounded, at least 1."""
    return max(1, round(work.batch * work.tables * work.pooling))


def list_kernel_points(world: World, preset: str) -> list[Point]:
    """Points of ``preset`` that time single kernels; quick times only torch's.

    On CPUs each call is timed alone (eager). On GPUs every kernel is timed in back-to-back calls (stream),
    and every eighth also in single calls. Empty without PyTorch.
    """
    works = list(_list_works(world, preset))
    ranks = min(world.ranks, world.ranks_per_node)
    points = []
    for library in ("torch",) if preset == "quick" else ("torch", "fbgemm", "perfmodel"):
        for index, (operation, work, dtype) in enumerate(works):
            if not world.runs(library) or not _is_timed(library, world, operation, work):
                continue
            often = (Clock.STREAM, Clock.EAGER) if index % 8 == 0 else (Clock.STREAM,)
            for clock in (Clock.EAGER,) if world.device == "cpu" else often:
                point = Point(
                    kind=PointKind.KERNEL,
                    operation=operation,
                    implementation=library,
                    clock=clock,
                    payload_bytes=count_bytes(operation, work, dtype),
                    dtype=dtype,
                    work=work,
                    gpus=ranks,
                    gpus_per_node=ranks,
                )
                points.append(point)
    return points


def _is_timed(library: str, world: World, operation: str, work: LookupWork) -> bool:
    """Whether a library's kernels are timed for a work; FBGEMM allocates tables: only small ones on a GPU."""
    if library == "torch" or operation != "gather_pool":
        return library == "torch"
    if library == "perfmodel":  # this project's own kernels run on GPUs
        return world.device != "cpu"
    table_bytes = work.tables * work.rows * work.dim * ELEMENT_BYTES["fp32"]
    return world.device == "cpu" or table_bytes <= world.memory_bytes / 32


def _list_works(world: World, preset: str) -> Iterator[tuple[str, LookupWork, str]]:
    """Triples (kernel, work that it does, element type of the rows): copies, then look-ups.

    Every width of rows with every size of tables and random numbers of look-ups; then some in fp16.
    """
    grid = GRIDS[world.device, preset]
    moved = 64 * KIB
    while moved <= min(grid.copy_bytes, int(world.memory_bytes / 4)):
        yield "copy", LookupWork(batch=1, dim=moved // 2), "fp32"
        moved *= 4
    sizes = [size for size in grid.table_bytes if size <= world.memory_bytes / 8]
    rng = random.Random(f"gather {world.device} {preset}")
    for dim in grid.dims:
        for size in sizes:
            for draw in range(DRAWS):
                yield "gather_pool", _draw_work(grid, rng, dim, size, draw / DRAWS, "fp32"), "fp32"
    for size in sizes:
        for dim in grid.dims[1:3]:
            yield "gather_pool", _draw_work(grid, rng, dim, size, 0.5, "fp16"), "fp16"


def _draw_work(
    grid: KernelGrid, rng: random.Random, dim: int, size: int, share: float, dtype: str
) -> LookupWork:
    """A random ``gather_pool`` work over tables of ``size`` bytes together, with rows of ``dim`` columns.

    share   0 … 1: the number of look-ups n is drawn from the part share … share + 1 / DRAWS of the grid's
            range, on a logarithmic scale, so that small and large calls are equally frequent
    """
    low, high = grid.lookups
    n = low * (high / low) ** (share + rng.random() / DRAWS)
    pooling = rng.choice(POOLINGS[: bisect(POOLINGS, n / 8)])  # 8 bags at least
    tables = rng.choice(_TABLES[: bisect(_TABLES, n / 8 / pooling)])
    row_bytes = dim * ELEMENT_BYTES[dtype]
    sample_bytes = tables * (pooling * (row_bytes + SMALL_BYTES) + POOLED_BYTES * dim + SMALL_BYTES)
    batch = min(round(n / tables / pooling), int(grid.most_bytes / sample_bytes))  # samples
    rows = size // (tables * row_bytes)
    return LookupWork(batch=batch, tables=tables, pooling=pooling, dim=dim, rows=rows)
