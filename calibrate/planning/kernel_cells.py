"""Kernels that a calibration times, for the constants of the model.

A *cell* is one measured point of a plan (``schema.runs.Point``). A kernel runs on every rank of one node at
once, as in a real pass, where all ranks share the node's memory. Its ``payload_bytes`` is the model's count
of moved or produced bytes (``payload_bytes`` below). Lists are deterministic: equal worlds and presets give
equal points in equal order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

KIB, MIB, GIB = 2**10, 2**20, 2**30
ELEMENT_BYTES = {"fp32": 4, "fp16": 2}
POOLED_BYTES = 4
"""Bytes of an element of a bag: sums are kept and sent in fp32, whatever type the rows have."""

SMALL_BYTES = 8
"""Bytes of a length, of an offset and of a split: int64."""

POOLINGS = (0.5, 1.25, 2.5, 5.5, 8, 13.5, 32)
"""Rows per bag: integers give equal bags, others bags of random length, as after an exchange.

Short bags are random, because a CPU that predicts the next length looks up single rows in half the time.
"""


@dataclass(frozen=True)
class Extent:
    """How many kernels a preset times. Table sizes and look-ups are of one rank."""

    dims: tuple[int, ...]
    draws: int  # look-up counts for each dim and working set
    stream_cells: int  # points of each streaming kernel


EXTENTS = {
    "quick": Extent((32, 64, 96, 128), 3, 8),
    "standard": Extent((16, 32, 64, 96, 128), 3, 8),
    "rigorous": Extent((16, 32, 48, 64, 96, 128, 256), 5, 16),
}
WORKING_SETS = {
    ("cpu", "quick"): (4 * MIB, 16 * MIB, 128 * MIB),
    ("cpu", "standard"): (MIB, 4 * MIB, 16 * MIB, 128 * MIB, 512 * MIB),
    ("cpu", "rigorous"): (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB),
    ("cuda", "quick"): (16 * MIB, 256 * MIB, 4 * GIB),
    ("cuda", "standard"): (16 * MIB, 64 * MIB, 256 * MIB, 2 * GIB, 8 * GIB),
    ("cuda", "rigorous"): (8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, 2 * GIB, 8 * GIB, 32 * GIB),
}
LOOKUPS = {"cpu": (64, 2**17), "cuda": (2**10, 2**23)}
MOST_BYTES = {"cpu": 16 * MIB, "cuda": 2 * GIB}
COPY_LIMITS = {("cpu", "quick"): 64 * MIB}
"""Most bytes that a copy reads and writes, if not DEFAULT_COPY_LIMIT."""
DEFAULT_COPY_LIMIT = GIB


def payload_bytes(operation: str, work: LookupWork, dtype: str) -> int:
    """Bytes that the model counts for one call of a kernel on one rank.

        gather_pool    n (D w + id) + bags (4 D + 8)    rows and ids read, fp32 bags written, offsets read
        bucketize      n id + 8 G bags                  ids sorted by owner, a length for each bag and owner
        partial_sum    4 (G + 1) bags D                 G partial bags read, one written
        copy           2 D                              D bytes read and written
        launch_floor   0

    B, T, L, D, G  of ``work``: samples, tables, pooling factor, columns, ranks that share the rows
    n = round(B T L) look-ups;  bags = B T;  w  bytes of an element;  id  bytes of an id
    Raises KeyError for an unknown kernel or type. No penalty of short rows, no cache: the fit adds them.
    """
    n, bags, G = lookups(work), work.batch * work.tables, work.shards
    lengths = SMALL_BYTES * G * bags
    return {
        "gather_pool": n * (work.dim * ELEMENT_BYTES[dtype] + work.id_bytes)
        + bags * (POOLED_BYTES * work.dim + SMALL_BYTES),
        "bucketize": n * work.id_bytes + lengths,
        "partial_sum": POOLED_BYTES * (G + 1) * bags * work.dim,
        "copy": 2 * work.dim,
        "launch_floor": 0,
    }[operation]


def lookups(work: LookupWork) -> int:
    """Number of ids that one rank looks up: samples x tables x pooling factor, rounded, at least 1."""
    return max(1, round(work.batch * work.tables * work.pooling))


def kernel_points(world: World, preset: str) -> list[Point]:
    """Points of ``preset`` (quick, standard, rigorous) that time single kernels; quick times only torch's.

    On CPUs each call is timed alone (eager). On GPUs every kernel is timed in back-to-back calls (stream) and
    as a CUDA graph, and every eighth also in single calls. Empty without PyTorch.
    """
    works = list(_kernel_works(world, preset))
    points = []
    for library in ("torch",) if preset == "quick" else ("torch", "fbgemm", "perfmodel"):
        if not world.runs(library):
            continue
        for index, (operation, work, dtype) in enumerate(works):
            if not _times(library, world, operation, work):
                continue
            for clock in _clocks(world.device, operation, index):
                moved = payload_bytes(operation, work, dtype)
                points.append(kernel_point(world, library, operation, work, clock, moved, dtype))
    return points


def _times(library: str, world: World, operation: str, work: LookupWork) -> bool:
    """Whether a library's kernels are timed for a work; FBGEMM allocates tables: only small ones on a GPU."""
    if library == "torch":
        return True
    if library == "perfmodel":  # this project's own kernels run on GPUs
        return world.device != "cpu" and operation == "gather_pool"
    table_bytes = work.tables * work.rows * work.dim * ELEMENT_BYTES["fp32"]
    if operation == "gather_pool" and world.device != "cpu":
        return table_bytes <= world.memory_bytes / 32
    return operation in ("gather_pool", "bucketize")


def kernel_point(
    world: World,
    implementation: str,
    operation: str,
    work: LookupWork,
    clock: Clock,
    moved: int,
    dtype: str = "fp32",
) -> Point:
    """A point for a kernel that runs on all ranks of a node at once. moved  its ``payload_bytes``"""
    ranks = min(world.ranks, world.ranks_per_node)
    return Point(
        kind=PointKind.KERNEL,
        operation=operation,
        implementation=implementation,
        clock=clock,
        payload_bytes=moved,
        dtype=dtype,
        work=work,
        gpus=ranks,
        gpus_per_node=ranks,
    )


def _clocks(device: str, operation: str, index: int) -> tuple[Clock, ...]:
    if device == "cpu":
        return (Clock.EAGER,)
    some = operation == "launch_floor" or index % 8 == 0
    return (Clock.STREAM, Clock.GRAPH, Clock.EAGER) if some else (Clock.STREAM, Clock.GRAPH)


def _kernel_works(world: World, preset: str) -> Iterator[tuple[str, LookupWork, str]]:
    """Triples (kernel, work that it does, element type of the rows), the cheapest first."""
    yield "launch_floor", LookupWork(batch=1), "fp32"
    most = COPY_LIMITS.get((world.device, preset), DEFAULT_COPY_LIMIT)
    limit = min(most, int(world.memory_bytes / 4))
    step = 2 if preset == "rigorous" else 4
    moved = 64 * KIB
    while moved <= limit:
        yield "copy", LookupWork(batch=1, dim=moved // 2), "fp32"
        moved *= step
    yield from _streams(world, EXTENTS[preset].stream_cells)
    yield from _gathers(world, preset)


def _streams(world: World, cells: int) -> Iterator[tuple[str, LookupWork, str]]:
    """Works for kernels that stream through memory; triples as in ``_kernel_works``.

    Bucketize gets from 64 (GPU: 1024) to the most ids of the device, partial_sum gets 2, 4 or 8
    partial bags of 4 KiB to 16 MiB each.
    """
    low, high = LOOKUPS[world.device]
    own = min(world.ranks, 255)
    owners = sorted(({2, own} if world.device == "cpu" else {2, 8, 64, own}) - {1})
    for index in range(cells):
        n = _between(low, high, index, cells)
        tables, pooling, G = (1, 4, 8)[index % 3], (4, 20, 1, 7)[index % 4], owners[index % len(owners)]
        batch = max(1, round(n / tables / pooling))
        work = LookupWork(batch=batch, tables=tables, pooling=pooling, rows=100_000, shards=G)
        yield "bucketize", work, "fp32"
        chunk = _between(4 * KIB, 16 * MIB, index, cells)
        dim = (32, 128, 64)[index % 3]
        bags = max(1, chunk // (POOLED_BYTES * dim))
        yield "partial_sum", LookupWork(batch=bags, dim=dim, shards=(2, 8, 4)[index % 3]), "fp32"


def _gathers(world: World, preset: str) -> Iterator[tuple[str, LookupWork, str]]:
    """Works for ``gather_pool``; triples as in ``_kernel_works``.

    First every dim with every table size and random numbers of look-ups; then, for some, skewed ids and fp16.
    """
    extent = EXTENTS[preset]
    sets = [size for size in WORKING_SETS[world.device, preset] if size <= world.memory_bytes / 8]
    rng = random.Random(f"gather {world.device} {preset}")
    for dim in extent.dims:
        for size in sets:
            for draw in range(extent.draws):
                yield "gather_pool", _drawn(world.device, rng, dim, size, draw, extent.draws, 4), "fp32"
    for size in sets[-2:]:
        for dim in extent.dims[1:3]:
            for distribution in ("zipf:1.05", "one-row"):
                work = _drawn(world.device, rng, dim, size, 1, 2, 4)
                yield "gather_pool", work.model_copy(update={"distribution": distribution}), "fp32"
    for size in sets:
        for dim in extent.dims[1:3]:
            yield "gather_pool", _drawn(world.device, rng, dim, size, 1, 2, 2), "fp16"


def _drawn(
    device: str, rng: random.Random, dim: int, size: int, draw: int, draws: int, element_bytes: int
) -> LookupWork:
    """A random ``gather_pool`` work over tables of ``size`` bytes together.

    The range of look-ups is divided into ``draws`` parts; the number of look-ups is in part number ``draw``.
    """
    low, high = LOOKUPS[device]
    start = low * (high / low) ** (draw / draws)
    n = start * (high / low) ** (rng.random() / draws)
    pooling = rng.choice([each for each in POOLINGS if each <= n / 8])
    tables = rng.choice([count for count in (1, 2, 4, 8) if count * pooling <= n / 8])
    rows = max(1, size // (tables * dim * element_bytes))
    per_sample = tables * (pooling * (dim * element_bytes + SMALL_BYTES) + POOLED_BYTES * dim + SMALL_BYTES)
    batch = min(round(n / tables / pooling), int(MOST_BYTES[device] / per_sample))
    return LookupWork(batch=batch, tables=tables, pooling=pooling, dim=dim, rows=rows)


def _between(low: int, high: int, index: int, count: int) -> int:
    """The ``index``-th of ``count`` sizes from ``low`` to ``high``, equidistant in the logarithm."""
    return round(low * math.pow(high / low, index / max(1, count - 1)))
