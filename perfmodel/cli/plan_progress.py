"""A progress line on a terminal while a plan is searched for."""

from __future__ import annotations

import math
import threading
import time

from perfmodel.cli.output import on_terminal, rewrite, terminal_columns
from perfmodel.report.bound_text import progress_text
from perfmodel.report.terminal import WIDTH
from perfmodel.units import counted

_LINE_EVERY_S = 0.5


class PlanProgress:
    """A line on a terminal with the best plan so far, the bound and the time; redrawn twice a second.

    after_s  seconds before it is first drawn;  what  the activity that it shows first
    found    whether the search has reported a plan
    A thread redraws it, because a search reports only when it finds something.
    """

    def __init__(self, after_s: float = _LINE_EVERY_S, what: str = "searching") -> None:
        self._began = time.monotonic()
        self._best_s, self._bound_s, self._what = math.inf, 0.0, what
        self._shown, self._live = "", on_terminal()
        self.found = False
        self._after_s = after_s
        self._ended, self._lock = threading.Event(), threading.Lock()
        if self._live:
            threading.Thread(target=self._draw, daemon=True).start()

    def __call__(self, best_s: float, bound_s: float, what: str = "") -> None:
        self._best_s, self._bound_s, self._what = best_s, bound_s, what
        self.found = self.found or math.isfinite(best_s)

    def tell(self, what: str) -> None:
        """Show another activity, ``what``, and no plan."""
        self._best_s, self._what = math.inf, what

    def of_gpus(self, gpus: int, best_s: float, bound_s: float) -> None:
        """Show the best plan and the bound for this number of GPUs, if plans for several are searched."""
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
        spent_s, columns = time.monotonic() - self._began, terminal_columns()
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
