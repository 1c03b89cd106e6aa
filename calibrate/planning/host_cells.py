"""What a calibration times of the host that issues a pass: the cells behind ``--host``."""

from __future__ import annotations

from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

CALLS = {
    "python_calls": (350, 1400),
    "operator_calls": (26, 104),
    "kernel_calls": (12, 48),
    "graph_calls": (1, 16),
}
"""Calls of a round: about half of what TorchRec's row-wise pass has, whose code comes from memory, and four
times that, most of whose code is in the caches. A pass on a quiet machine lies between."""
ON_GPUS = ("kernel_calls", "graph_calls")


def host_points(world: World, preset: str) -> list[Point]:
    """Cells of the host, each timed with one host call (eager), on all ranks of a node at once.

    Every preset has the same: they take a second together. Kernels and CUDA graphs are timed on GPUs: on a
    CPU, an operator has the time of its kernel in it. Empty without PyTorch.
    """
    known = world.providers.get("torch")
    if known is None or not known.usable:
        return []
    ranks = min(world.ranks, world.ranks_per_node)
    return [
        Point(
            kind=PointKind.KERNEL,
            operation=operation,
            implementation="torch",
            clock=Clock.EAGER,
            work=LookupWork(batch=calls),
            gpus=ranks,
            gpus_per_node=ranks,
        )
        for operation, counts in CALLS.items()
        if world.device == "cuda" or operation not in ON_GPUS
        for calls in counts
    ]
