"""Steps of many configurations with their times and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Timing
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
        """Name of the step."""
        return self.step.name

    @property
    def collective(self) -> str:
        """Collective that the step runs; "" for a kernel."""
        return self.step.collective


def sum_time(steps: Iterable[TimedStep]) -> Array:
    """Time of steps that run one after the other [s]."""
    return np.asarray(sum(step.timing.time_s for step in steps))
