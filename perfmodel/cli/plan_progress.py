"""Tells the line of a command how far a search for a plan is."""

from __future__ import annotations

import math

from perfmodel.effort import tell
from perfmodel.units import counted, format_time


class PlanProgress:
    """Called by a search with the time of its best plan. found  whether it has reported a plan"""

    def __init__(self) -> None:
        self.found = False

    def __call__(self, best_s: float, what: str = "") -> None:
        if math.isfinite(best_s):
            self.found = True
            tell(f"{what}best {format_time(best_s)}")

    def of_gpus(self, gpus: int, best_s: float) -> None:
        """Tell the best time on this number of GPUs, if plans for several are searched."""
        self(best_s, f"{counted(gpus, 'GPU')}: ")
