"""Shows the progress of a calibration: results on stdout, progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from perfmodel.cli.output import emit, note, on_terminal, rewrite, warn
from perfmodel.report.run import head_text, progress_text
from perfmodel.report.terminal import terminal_columns

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.interfaces import RunOutcome
    from calibrate.running.stopping import Summary
    from perfmodel.schema.runs import Point, RunHeader

_LINE_EVERY_S = 0.2  # on a terminal
_PLAIN_EVERY_S = 15.0  # in a pipe or the output file of a batch job


class CalibrationProgress:
    """Prints the progress of a calibration: on a terminal a line that is rewritten, else a line every 15 s.

    quiet    print only progress, not the results (``--json``)
    outcome  the run's outcome, once it has ended
    """

    def __init__(
        self,
        host: Host,
        *,
        quiet: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._quiet, self._clock = host, quiet, clock
        self._live = on_terminal()
        self._last_s = clock()
        self._shown = ""
        self.outcome: RunOutcome | None = None

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        """Print machine, libraries and plan before anything is measured.

        done  points that are measured already;  left_s  expected time of the others [s]
        """
        if not self._quiet:
            emit(head_text(self._host, header, plan, left_s, done))

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """Show the point that was just measured, unless a line was shown a moment ago.

        done  of ``total`` points;  left_s  expected time to go [s]
        """
        now = self._clock()
        if now - self._last_s < (_LINE_EVERY_S if self._live else _PLAIN_EVERY_S):
            return

        self._last_s = now
        text = progress_text(done, total, point, summary, left_s, terminal_columns(sys.stderr))
        if self._live:
            rewrite(text, self._shown)
            self._shown = text
        else:
            note(text)

    def warning(self, text: str) -> None:
        """Print a warning on a line of its own; the summary repeats it."""
        self.clear()
        warn(text)

    def finished(self, outcome: RunOutcome) -> None:
        """Remove the line, and keep the outcome for messages of errors."""
        self.clear()
        self.outcome = outcome

    def clear(self) -> None:
        """Remove the progress line from the terminal."""
        if self._shown:
            rewrite("", self._shown)
            self._shown = ""
