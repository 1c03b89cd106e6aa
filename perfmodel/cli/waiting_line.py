"""Progress on the terminal, by rich: of a command that works, and of a calibration."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfmodel.cli.output import before_writing, emit, escape_controls, is_on_terminal, note, warn
from perfmodel.effort import listeners, tell
from perfmodel.report.terminal import terminal_columns

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.interfaces import RunOutcome
    from calibrate.running.stopping import Summary
    from perfmodel.schema.runs import Point, RunHeader

_FIRST_S, _EVERY_S = 2.0, 0.5
_PLAIN_EVERY_S = 15.0  # in a pipe or the output file of a batch job


class TerminalLine:
    """A line of a terminal, which is rewritten and then taken away."""

    def __init__(self) -> None:
        self._live: Any = None

    def show(self, text: str) -> None:
        """Show this text instead of the one before."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        line = Text(escape_controls(text, sys.stderr.encoding), no_wrap=True, overflow="ellipsis")
        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr
            if self._live is None:
                console = Console(file=sys.stderr, force_terminal=True, highlight=False)
                self._live = Live(
                    console=console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
            self._live.update(line, refresh=True)

    def hide(self) -> None:
        """Take the line away."""
        if self._live is not None:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
            self._live = None


class WaitingLine:
    """After two seconds, shows how far a command is: ``validate   7 s   12 of 40 claims``.

    It is drawn when work reports its progress by ``effort.tell``. Output of the command replaces it.
    Limits: no terminal -> nothing
    """

    def __init__(self, command: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._command, self._clock, self._line = command, clock, TerminalLine()
        self._began_s = clock()
        self._next_s = self._began_s + _FIRST_S

    def __enter__(self) -> WaitingLine:
        before_writing.append(self._line.hide)
        listeners.append(self._show)
        return self

    def __exit__(self, *_: object) -> None:
        self._line.hide()
        before_writing.remove(self._line.hide)
        listeners.remove(self._show)

    def _show(self, done: str) -> None:
        now_s = self._clock()
        if now_s >= self._next_s and is_on_terminal():
            self._next_s = now_s + _EVERY_S
            self._line.show(f"{self._command}   {now_s - self._began_s:.0f} s   {done}")


class Progress:
    """Tells ``listeners`` how many items are done: ``3 of 40 claims``. what  their plural noun"""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.advance(0)

    def advance(self, count: int) -> None:
        """Count ``count`` more items as done."""
        self.done += count
        tell(f"{self.done} of {self.total} {self.what}")


class CalibrationProgress:
    """Prints the progress of a calibration: on a terminal a line that is rewritten, else a line every 15 s.

    quiet    print only progress, not the results (``--json``)
    outcome  the run's outcome, once it has ended
    """

    def __init__(self, host: Host, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._host, self._quiet, self._clock, self._line = host, quiet, clock, TerminalLine()
        self._last_s = clock()
        self.outcome: RunOutcome | None = None

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        """Print machine, libraries and plan before anything is measured.

        done  points that are measured already;  left_s  expected time of the others [s]
        """
        from perfmodel.report.run import head_text

        if not self._quiet:
            emit(head_text(self._host, header, plan, left_s, done))

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """Show the point that was just measured, unless a line was shown a moment ago.

        done  of ``total`` points;  left_s  expected time to go [s]
        """
        from perfmodel.report.run import progress_text

        now_s, rewritten = self._clock(), is_on_terminal()
        if now_s - self._last_s >= (_EVERY_S if rewritten else _PLAIN_EVERY_S):
            self._last_s = now_s
            columns = terminal_columns(sys.stderr)
            write = self._line.show if rewritten else note
            write(progress_text(done, total, point, summary, left_s, columns))

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
        self._line.hide()
