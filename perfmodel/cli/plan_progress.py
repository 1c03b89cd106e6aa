"""Tells the line of a command how far a search for a plan is."""

from __future__ import annotations

import math

from perfmodel.effort import tell
from perfmodel.report.bound_text import progress_words
from perfmodel.units import counted


class PlanProgress:
    """Called by a search with its best plan and its bound. found  whether it has reported a plan"""

    def __init__(self) -> None:
        self.found = False

    def __call__(self, best_s: float, bound_s: float, what: str = "") -> None:
        if math.isfinite(best_s):
            self.found = True
            tell(what + progress_words(best_s, bound_s))

    def of_gpus(self, gpus: int, best_s: float, bound_s: float) -> None:
        """Tell the best plan and the bound for this number of GPUs, if plans for several are searched."""
        self(best_s, bound_s, f"{counted(gpus, 'GPU')}: ")
