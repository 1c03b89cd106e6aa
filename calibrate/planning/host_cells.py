"""Host points of a calibration: times of the host to issue a pass, and host memory as GPUs read it."""

from __future__ import annotations

from collections.abc import Iterator

from calibrate.planning.kernel_cells import ELEMENT_BYTES, kernel_point, payload_bytes
from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point

CALLS = {
    "python_calls": (350, 1400),
    "operator_calls": (26, 104),
    "kernel_calls": (12, 48),
    "graph_calls": (1, 16),
}
"""Calls per round: about half of the calls in TorchRec's row-wise pass, where code comes from memory, and
four times as many, where most code is in the caches. A pass on a quiet machine is in between."""
ON_GPUS = ("kernel_calls", "graph_calls")


KIB, MIB, GIB = 2**10, 2**20, 2**30
ROW_BYTES = {
    "quick": (32, 128, 512),
    "standard": (32, 64, 96, 128, 256, 512, 1024),
    "rigorous": (32, 64, 96, 128, 160, 256, 512, 1024),
}
TABLE_BYTES = {"quick": (256 * MIB,), "standard": (256 * MIB, GIB), "rigorous": (256 * MIB, GIB, 4 * GIB)}
"""Table sizes in host memory: several times an L2 cache."""

LOOKUPS = (64, 2**11, 2**15)
"""Rows per call: few, some, and enough to fill ``MOST_BYTES``; from the latency to the rate of the link."""

MOST_BYTES = 32 * MIB
"""Most bytes of rows that one call reads over the link: half a millisecond at 64 GB/s."""

BAG_ROWS = 8
COPIES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB)
"""Sizes of copies [bytes]."""


def host_points(world: World, preset: str) -> list[Point]:
    """Points that time the host's part of a pass, measured on all ranks of a node at once.

    Host calls (Python, operators; on GPUs also kernels and CUDA graphs) are timed one by one (eager). They
    are the same in every preset and take about a second. On a CPU, an operator's time includes its kernel. On
    GPUs there are also transfers, timed back to back (stream): gathers of random rows that a kernel of this
    project reads from pinned host memory, and copies over the link. Empty without PyTorch.
    """
    if not world.runs("torch"):
        return []
    return [*_calls(world), *(_tier(world, preset) if world.device == "cuda" else ())]


def _calls(world: World) -> Iterator[Point]:
    for operation, counts in CALLS.items():
        if world.device == "cuda" or operation not in ON_GPUS:
            for calls in counts:
                yield kernel_point(world, "torch", operation, LookupWork(batch=calls), Clock.EAGER, 0)


def _tier(world: World, preset: str) -> Iterator[Point]:
    for operation in ("copy_to_device", "copy_to_host"):
        for size in COPIES:
            if size <= world.memory_bytes / 16:
                yield kernel_point(
                    world, "torch", operation, LookupWork(batch=1, dim=size), Clock.STREAM, size
                )
    if "perfmodel" not in world.providers:
        return
    for row in ROW_BYTES[preset]:
        for size in (one for one in TABLE_BYTES[preset] if one <= world.memory_bytes / 16):
            for n in (*LOOKUPS, MOST_BYTES // row):
                dim = row // ELEMENT_BYTES["fp32"]
                work = LookupWork(batch=max(1, n // BAG_ROWS), pooling=BAG_ROWS, dim=dim, rows=size // row)
                moved = payload_bytes("gather_pool", work, "fp32")
                yield kernel_point(world, "perfmodel", "gather_host", work, Clock.STREAM, moved)
