"""A progress line on a terminal while a service is simulated."""

from __future__ import annotations

import time

from perfmodel.cli.plan_progress import PlanProgress

_FIRST_S = 2.0


class LoadProgress(PlanProgress):
    """A line with what is being simulated and for how long; nothing is shown in the first two seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.tell("reading the pass")

    def close(self) -> None:
        """Remove the line when the work is done or has failed."""
        self.clear()

    def text(self) -> str:
        """The words of the line at this moment; "" in the first two seconds."""
        spent_s = time.monotonic() - self._began
        return f"{self._what}   {spent_s:.0f} s" if spent_s >= _FIRST_S else ""
