"""One line on a terminal while a plan is searched for."""

from __future__ import annotations

import time

from perfmodel.cli.output import on_terminal, rewrite, terminal_columns
from perfmodel.report.plan_text import progress_text

_LINE_EVERY_S = 0.2


class PlanProgress:
    """The best plan so far, the bound, the time that is left.

    first_s  how long it took to the first plan [s]; the whole time while there is none
    """

    def __init__(self, time_limit_s: float) -> None:
        self._limit_s, self._began = time_limit_s, time.monotonic()
        self._last_s, self._shown, self._live = -1.0, "", on_terminal()
        self._first_s: float | None = None

    @property
    def first_s(self) -> float:
        """Seconds to the first plan."""
        return time.monotonic() - self._began if self._first_s is None else self._first_s

    def __call__(self, best_s: float, bound_s: float, what: str = "") -> None:
        now = time.monotonic() - self._began
        self._first_s = now if self._first_s is None else self._first_s
        if not self._live or now - self._last_s < _LINE_EVERY_S:
            return

        self._last_s = now
        text = what + progress_text(best_s, bound_s, now, self._limit_s, terminal_columns())
        text = text[: (terminal_columns() or len(text) + 1) - 1]
        rewrite(text, self._shown)
        self._shown = text

    def tell(self, what: str) -> None:
        """What is done now."""
        if self._live:
            rewrite(what, self._shown)
            self._shown = what

    def of_gpus(self, gpus: int, best_s: float, bound_s: float) -> None:
        """The same of one of several numbers of GPUs."""
        self(best_s, bound_s, f"{gpus} GPUs: ")

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            rewrite("", self._shown)
            self._shown = ""
