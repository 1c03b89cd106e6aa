"""Whole row-wise look-ups that a calibration times: random ones for the model, and the paper's two grids.

Implementations: ``exchange`` is ours over a library of collectives, ``torchrec`` TorchRec's, ``three`` and
``fused`` ours by one-sided writes, in the paper's three stages and in one kernel (over NVSHMEM on GPUs; on
CPUs, over shared memory, with the kernels' build for CPUs).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

from calibrate.planning.kernel_cells import ELEMENT_BYTES, LOOKUPS, MIB, POOLED_BYTES
from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

_PASSES = {"quick": 20, "standard": 24, "rigorous": 48}
"""Random passes of each library and implementation, by preset."""

PROVIDER_OF = {"three": "one_sided", "fused": "one_sided"}
"""Provider of an implementation, where it has another name."""

PAPER_GPUS = (1, 2, 4, 8)
ROWS = {"cpu": 1000, "cuda": 1_000_000}
"""Most rows of each table on each rank; the paper does not say how many it has."""

CPU_BATCH_SHARE = 64
"""On CPUs, some thousand times slower at this, a rank has so many times fewer samples, at least 2."""

TENTH = 10


def composed_points(world: World, preset: str) -> list[Point]:
    """Points of ``preset`` that time whole row-wise passes.

    Every second point is held out: no fit uses it, so that predictions can be compared with it. Our pass runs
    with every library that has all-to-all and reduce-scatter, TorchRec's with gloo or nccl. Each call is
    timed alone (eager), as a pass waits for the number of ids that it will receive.
    Limits: one rank -> empty
    """
    works = _composed_works(world, preset)
    points = []
    for backend, implementation in _ways(world):
        kept = works if implementation == "exchange" or preset != "quick" else works[:4]
        for ranks in _rank_counts(world, preset):
            per_node = min(ranks, world.ranks_per_node)
            for index, (work, dtype) in enumerate(kept):
                point = Point(
                    kind=PointKind.COMPOSED,
                    operation="row_wise",
                    backend=backend,
                    implementation=implementation,
                    clock=Clock.EAGER,
                    payload_bytes=POOLED_BYTES * ranks * work.batch * work.tables * work.dim,
                    dtype=dtype,
                    work=work,
                    held_out=index % 2 == 1,
                    gpus=ranks,
                    nodes=math.ceil(ranks / per_node),
                    gpus_per_node=per_node,
                )
                points.append(point)
    return points


def paper_works() -> list[tuple[int, int, float, int]]:
    """(tables, samples per GPU, pooling, columns) of the paper's two grids: 48 and 42.

    Source: arXiv 2512.05831, grids of its embedding-bag benchmark
    """
    first = itertools.product((1,), (128, 256, 512, 1024), (4, 8, 16), (32, 64, 128, 256))
    second = itertools.product((1, 2, 4, 8, 16, 32, 64), (128, 1024, 4096), (32,), (32, 128))
    return [*first, *second]


def paper_points(world: World, implementation: str, *, tenth: bool) -> list[Point]:
    """The points of the paper's two grids for one implementation, on the numbers of GPUs that fit ``world``.

    tenth   only every tenth of the works
    All are timed call by call (eager). One-sided look-ups never wait for the host: they are also timed
    back to back (stream), on a GPU by its own clock.
    """
    points = []
    for tables, batch, pooling, dim in paper_works()[:: TENTH if tenth else 1]:
        for gpus in filter(lambda count: fits(count, world, implementation), PAPER_GPUS):
            work = _paper_work(world, gpus, tables, batch, pooling, dim)
            per_node = min(gpus, world.ranks_per_node)
            for clock in (Clock.EAGER, Clock.STREAM) if implementation in PROVIDER_OF else (Clock.EAGER,):
                point = Point(
                    kind=PointKind.LOOKUP,
                    operation="row_wise",
                    backend=carrier(world, implementation),
                    implementation=implementation,
                    clock=clock,
                    payload_bytes=POOLED_BYTES * gpus * work.batch * tables * dim,
                    work=work,
                    gpus=gpus,
                    nodes=math.ceil(gpus / per_node),
                    gpus_per_node=per_node,
                )
                points.append(point)
    return points


def fits(gpus: int, world: World, implementation: str) -> bool:
    """Whether so many ranks can look up together. NVSHMEM starts with all ranks of a job, and none less."""
    if implementation in PROVIDER_OF and world.device == "cuda":
        return gpus == world.ranks
    return gpus <= world.ranks and (gpus <= world.ranks_per_node or gpus % world.ranks_per_node == 0)


def carrier(world: World, implementation: str) -> str:
    """Library of the collectives of a look-up; "" for one-sided ones, which have none."""
    if implementation in PROVIDER_OF:
        return ""
    if world.device == "cpu":
        return "gloo"
    return "rccl" if implementation == "exchange" and world.runs("rccl") else "nccl"


def _paper_work(world: World, gpus: int, tables: int, batch: int, pooling: float, dim: int) -> LookupWork:
    """The look-ups of one rank; tables take at most an eighth of its memory."""
    if world.device == "cpu":
        batch = max(2, batch // CPU_BATCH_SHARE)
    most = int(world.memory_bytes / 8 / (tables * dim * ELEMENT_BYTES["fp32"]))
    rows = max(1, min(ROWS[world.device], most)) * gpus
    return LookupWork(batch=batch, tables=tables, pooling=pooling, dim=dim, rows=rows)


def _rank_counts(world: World, preset: str) -> list[int]:
    """Numbers of ranks for passes: all, and except in ``quick`` the powers of two that fill whole nodes."""
    if world.ranks < 2:
        return []
    powers = [2**k for k in range(1, world.ranks.bit_length()) if 2**k < world.ranks]
    whole = [p for p in powers if p <= world.ranks_per_node or p % world.ranks_per_node == 0]
    return [world.ranks] if preset == "quick" else [*whole, world.ranks]


def _ways(world: World) -> Iterator[tuple[str, str]]:
    """Pairs (library of the collectives, implementation of the pass) that can run in this world."""
    for backend in ("gloo",) if world.device == "cpu" else ("nccl", "rccl"):
        ours = world.runs("torch") and world.runs(backend)
        if ours and {"all_to_all", "reduce_scatter"} <= set(world.providers[backend].operations):
            yield backend, "exchange"
    torchrec_over = "gloo" if world.device == "cpu" else "nccl"
    if world.runs("torchrec") and world.runs(torchrec_over):
        yield torchrec_over, "torchrec"


def _composed_works(world: World, preset: str) -> list[tuple[LookupWork, str]]:
    """Pairs (work, element type) of random passes whose look-ups and partial bags fit the device's limits."""
    rng = random.Random(f"row_wise {world.device} {preset}")
    most_lookups = LOOKUPS[world.device][1]
    most_bytes = min(world.memory_bytes / 16, (16 if world.device == "cpu" else 1024) * MIB)
    table_bytes = min(world.memory_bytes / 8, (64 if world.device == "cpu" else 4096) * MIB)
    works: list[tuple[LookupWork, str]] = []
    while len(works) < _PASSES[preset]:
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
        rows = max(world.ranks, int(table_bytes * rng.choice((0.1, 0.3, 1)) / per_row) * world.ranks)
        works.append((LookupWork(batch=batch, tables=tables, pooling=pooling, dim=dim, rows=rows), dtype))
    return works
