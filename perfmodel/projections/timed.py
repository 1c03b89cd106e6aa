"""Steps of many configurations with their times, and what one rank looks up, sends and moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Timing, select
from perfmodel.passes.steps import Step

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TimedStep:
    """A step of many configurations: bytes that a GPU sends or moves in it, and its times."""

    step: Step
    payload_bytes: Array
    timing: Timing

    @property
    def name(self) -> str:
        """Of the step."""
        return self.step.name

    @property
    def collective(self) -> str:
        """That the step runs; "" for a kernel."""
        return self.step.collective


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
    bare_bytes: Array  # DRAM bytes if short rows took what they have
    base_dram_bytes: Array
    base_l2_bytes: Array


def sum_time(steps: list[TimedStep]) -> Array:
    """Of steps one after the other [s]."""
    return np.asarray(sum(step.timing.time_s for step in steps))


def either(first: NDArray[np.bool_], a: TimedStep, b: TimedStep) -> TimedStep:
    """A step where ``first`` holds, another elsewhere; the name of the one."""
    payload = np.where(first, a.payload_bytes, b.payload_bytes)
    return replace(a, payload_bytes=payload, timing=select(first, a.timing, b.timing))
