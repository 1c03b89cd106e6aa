"""Steps of a pass with their times, and what one rank looks up, sends and moves in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Timing, select

Array = NDArray[np.float64]

HANDOVER = "handover"


@dataclass(frozen=True)
class Step:
    """One step of the pass: what it is, how many bytes a GPU sends or moves in it, and its times."""

    name: str
    collective: str  # "" for a kernel
    payload_bytes: Array
    timing: Timing

    @property
    def is_kernel(self) -> bool:
        """Whether it runs on one GPU, without communication."""
        return not self.collective and self.name != HANDOVER


@dataclass(frozen=True)
class Traffic:
    """What one rank looks up, sends and moves; sums over the tables."""

    lookups: Array  # ids that leave the rank
    bags: Array  # bags of sharded tables, of the rank's own samples
    elements: Array  # elements of those bags
    sparse_elements: Array  # elements of non-empty partial bags
    sparse_bytes: Array  # those bags with their positions
    sparse_sum_bytes: Array  # what adding those up moves
    dram_bytes: Array
    l2_bytes: Array
    bare_bytes: Array  # DRAM bytes without the penalty of short rows
    base_dram_bytes: Array
    base_l2_bytes: Array


def sum_time(steps: list[Step]) -> Array:
    """Of steps one after the other [s]."""
    return np.asarray(sum(step.timing.time_s for step in steps))


def either(first: NDArray[np.bool_], a: Step, b: Step) -> Step:
    """A step where ``first`` holds, another elsewhere; the name of the one."""
    payload = np.where(first, a.payload_bytes, b.payload_bytes)
    return replace(a, payload_bytes=payload, timing=select(first, a.timing, b.timing))
