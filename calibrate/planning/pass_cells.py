"""Whole row-wise look-ups that a calibration times: random ones for the model, and the paper's two grids.

Implementations: ``exchange`` is ours over a library of collectives, ``torchrec`` TorchRec's, ``three`` and
``fused`` ours by one-sided writes, in the paper's three stages and in one kernel (over NVSHMEM on GPUs; on
CPUs, over shared memory, with the kernels' build for CPUs).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from calibrate.planning.kernel_cells import ELEMENT_BYTES, LOOKUPS, MIB, POOLED_BYTES
from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

PASSES = {"quick": 20, "standard": 24}
"""Random passes of each library and implementation, by preset."""

LOOK_UPS = ("torchrec", "exchange", "three", "fused")
"""Implementations of the paper's look-ups."""

PROVIDER_OF = {"three": "one_sided", "fused": "one_sided"}
"""Provider of an implementation, where it has another name."""

PAPER_GPUS = (1, 2, 4, 8)
ROWS = {"cpu": 1000, "cuda": 1_000_000}
"""Most rows of each table on each rank; the paper does not say how many it has."""

CPU_BATCH_SHARE = 64
"""On CPUs, some thousand times slower at this, a rank has so many times fewer samples, at least 2."""

TENTH = 10


def list_model_passes(world: World, preset: str) -> list[Point]:
    """Points of ``preset`` that time whole row-wise passes.

    Every second point is held out: no fit uses it, so that predictions can be compared with it. Our pass runs
    with every library that has all-to-all and reduce-scatter, TorchRec's with gloo or nccl. Each call is
    timed alone (eager), as a pass waits for the number of ids that it will receive.
    """
    counts = [world.ranks]
    if preset != "quick":  # the powers of two that fill whole nodes, too
        powers = [2**k for k in range(1, (world.ranks - 1).bit_length())]
        even = [p for p in powers if p % world.ranks_per_node in (0, p)]
        counts = [*even, world.ranks]
    works = _draw_works(world, preset)
    points = []
    for backend, implementation in _list_ways(world):
        few = implementation == "torchrec" and preset == "quick"  # a look at it, in seconds
        for ranks in counts:
            for index, (work, dtype) in enumerate(works[:4] if few else works):
                point = _make_point(world, PointKind.COMPOSED, implementation, backend, work, ranks)
                update = {"dtype": dtype, "held_out": index % 2 == 1}
                points.append(point.model_copy(update=update))
    return points


def _make_point(
    world: World, kind: PointKind, implementation: str, backend: str, work: LookupWork, ranks: int
) -> Point:
    """The point of a whole pass on so many ranks, each call timed alone. backend  of its collectives"""
    per_node = min(ranks, world.ranks_per_node)
    return Point(
        kind=kind,
        operation="row_wise",
        backend=backend,
        implementation=implementation,
        clock=Clock.EAGER,
        payload_bytes=POOLED_BYTES * ranks * work.batch * work.tables * work.dim,  # partial bags of a rank
        work=work,
        gpus=ranks,
        nodes=-(-ranks // per_node),
        gpus_per_node=per_node,
    )


def list_paper_works() -> list[tuple[int, int, float, int]]:
    """(tables, samples per GPU, pooling, columns) of the paper's two grids: 48 and 42.

    Source: arXiv 2512.05831, grids of its embedding-bag benchmark
    """
    grid = itertools.product((1,), (128, 256, 512, 1024), (4, 8, 16), (32, 64, 128, 256))
    second = itertools.product((1, 2, 4, 8, 16, 32, 64), (128, 1024, 4096), (32,), (32, 128))
    return [*grid, *second]


def list_paper_points(world: World, implementation: str, *, tenth: bool) -> list[Point]:
    """The points of the paper's two grids for one implementation, on the numbers of GPUs that fit ``world``.

    tenth   only every tenth of the works
    All are timed call by call (eager). One-sided look-ups never wait for the host: they are also timed
    back to back (stream), on a GPU by its own clock.
    """
    points = []
    backend = name_carrier(world, implementation)
    for tables, batch, pooling, dim in list_paper_works()[:: TENTH if tenth else 1]:
        samples = max(2, batch // CPU_BATCH_SHARE) if world.device == "cpu" else batch
        limit = int(world.memory_bytes / 8 / (tables * dim * ELEMENT_BYTES["fp32"]))
        rows = min(ROWS[world.device], limit)  # shards of a rank: an eighth of its memory at most
        for gpus in PAPER_GPUS:
            if not fits(gpus, world, implementation):
                continue
            work = LookupWork(batch=samples, tables=tables, pooling=pooling, dim=dim, rows=rows * gpus)
            point = _make_point(world, PointKind.LOOKUP, implementation, backend, work, gpus)
            points.append(point)
            if implementation in PROVIDER_OF:
                points.append(point.model_copy(update={"clock": Clock.STREAM}))
    return points


def fits(gpus: int, world: World, implementation: str) -> bool:
    """Whether so many ranks can look up together. NVSHMEM starts with all ranks of a job, and none less."""
    if implementation in PROVIDER_OF and world.device == "cuda":
        return gpus == world.ranks
    return gpus <= world.ranks and gpus % world.ranks_per_node in (0, gpus)  # whole nodes, or part of one


def name_carrier(world: World, implementation: str) -> str:
    """Library of the collectives of a look-up; "" for one-sided ones, which have none."""
    if implementation in PROVIDER_OF:
        return ""
    if world.device == "cpu":
        return "gloo"
    return "rccl" if implementation == "exchange" and world.runs("rccl") else "nccl"


def _list_ways(world: World) -> Iterator[tuple[str, str]]:
    """Pairs (library of the collectives, implementation of the pass) that can run in this world."""
    for backend in ("gloo",) if world.device == "cpu" else ("nccl", "rccl"):
        ours = world.runs("torch") and world.runs(backend)
        if ours and {"all_to_all", "reduce_scatter"}.issubset(world.providers[backend].operations):
            yield backend, "exchange"
    torchrec_over = "gloo" if world.device == "cpu" else "nccl"
    if world.runs("torchrec") and world.runs(torchrec_over):
        yield torchrec_over, "torchrec"


def _draw_works(world: World, preset: str) -> list[tuple[LookupWork, str]]:
    """Pairs (work, element type) of random passes whose look-ups and partial bags fit the device's limits."""
    rng = random.Random(f"row_wise {world.device} {preset}")
    most_lookups = LOOKUPS[world.device][1]
    most_bytes = min(world.memory_bytes / 16, (16 if world.device == "cpu" else 1024) * MIB)  # partial bags
    table_bytes = min(world.memory_bytes / 8, (64 if world.device == "cpu" else 4096) * MIB)  # of a rank
    works: list[tuple[LookupWork, str]] = []
    while len(works) < PASSES[preset]:
        batch = rng.choice((32, 64, 100, 128, 256, 500, 512, 1024, 2048))
        tables = rng.choice((1, 1, 2, 3, 4, 8))
        pooling = rng.choice((1, 2, 4, 7.5, 10, 16, 30, 64))
        dim = rng.choice((32, 48, 64, 96, 128))
        if batch * tables * pooling > most_lookups:
            continue
        if POOLED_BYTES * world.ranks * batch * tables * dim > most_bytes:
            continue
        dtype = "fp16" if len(works) % 5 == 4 else "fp32"
        per_row = tables * dim * ELEMENT_BYTES[dtype]
        rows = int(table_bytes * rng.choice((0.1, 0.3, 1)) / per_row) * world.ranks
        works.append((LookupWork(batch=batch, tables=tables, pooling=pooling, dim=dim, rows=rows), dtype))
    return works
