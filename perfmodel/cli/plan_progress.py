"""Tells the line of a command how far a search for a plan is."""

from __future__ import annotations

import math
import sys
import threading
import time

from perfmodel.cli.output import on_terminal, rewrite
from perfmodel.report.bound_text import progress_text
from perfmodel.report.terminal import WIDTH, terminal_columns
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

    def clear(self) -> None:
        """Remove the line, and end the thread that draws it."""
        with self._lock:
            self._ended.set()
            if self._shown:
                rewrite("", self._shown)
                self._shown = ""

    def text(self) -> str:
        """The words of the line at this moment: activity or best plan, bound, time."""
        spent_s, columns = time.monotonic() - self._began, terminal_columns(sys.stderr)
        if math.isinf(self._best_s):
            spent = f"   {spent_s:.0f} s"
            room = (columns or WIDTH) - 1 - len(spent)
            text = (self._what if len(self._what) <= room else f"{self._what[: room - 1]}…") + spent
        else:
            text = self._what + progress_text(self._best_s, self._bound_s, spent_s, columns)
        return text[: (columns or len(text) + 1) - 1]

    def _draw(self) -> None:
        wait_s = self._after_s
        while not self._ended.wait(wait_s):
            wait_s = _LINE_EVERY_S
            with self._lock:
                text = self.text()
                if text and not self._ended.is_set():
                    rewrite(text, self._shown)
                    self._shown = text
