"""Tells the reader of the terminal how a calibration goes: the answer on stdout, progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.cli.output import emit, note, on_terminal, rewrite, terminal_columns, warn
from perfmodel.report.doctor_text import warnings_text
from perfmodel.report.run import head_text, progress_text

if TYPE_CHECKING:
    from calibrate.machine.doctor import MachineDoubt
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.interfaces import RunOutcome
    from calibrate.running.stopping import Summary
    from perfmodel.schema.runs import Point, RunHeader

_LINE_EVERY_S = 0.2  # on a terminal
_PLAIN_EVERY_S = 15.0  # in a pipe or a file of a batch system


class CalibrationProgress:
    """A listener that prints: one line rewritten on a terminal, a plain line now and then anywhere else.

    quiet      print no page, only progress (``--json``)
    new_stack  what to say of a run (header, folder) that begins because the stack changed
    outcome   of the run, once it has ended
    """

    def __init__(
        self,
        host: Host,
        findings: Sequence[MachineDoubt],
        *,
        quiet: bool,
        new_stack: Callable[[RunHeader, Path], str] = lambda header, folder: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._findings, self._quiet, self._clock = host, findings, quiet, clock
        self._new_stack, self._live = new_stack, on_terminal()
        self._last_s = clock()
        self._shown = ""
        self.outcome: RunOutcome | None = None

    def started(
        self, plan: MeasurementPlan, header: RunHeader, folder: Path, done: int, left_s: float
    ) -> None:
        """Machine, stack, plan and what to doubt, before anything is measured."""
        changed = self._new_stack(header, folder)
        if self._quiet:
            if changed:
                warn(changed)
            return
        doubts = warnings_text(self._findings)
        emit(head_text(self._host, header, plan, left_s, done) + (f"\n\n{doubts}" if doubts else ""))
        if changed:
            warn(changed)

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """A visit ended: show it, unless the last line is too fresh."""
        now = self._clock()
        if now - self._last_s < (_LINE_EVERY_S if self._live else _PLAIN_EVERY_S):
            return

        self._last_s = now
        text = progress_text(done, total, point, summary, left_s, terminal_columns() if self._live else None)
        if self._live:
            rewrite(text, self._shown)
            self._shown = text
        else:
            note(text)

    def warning(self, text: str) -> None:
        """On a line of its own; the page repeats it."""
        self.clear()
        warn(text)

    def finished(self, outcome: RunOutcome) -> None:
        """The line has done its work; what is there is kept for who handles an error."""
        self.clear()
        self.outcome = outcome

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            rewrite("", self._shown)
            self._shown = ""
