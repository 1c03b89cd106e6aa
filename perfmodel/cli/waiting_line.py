"""Lines of progress on the terminal, by rich: of a command that works, and of a calibration."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from perfmodel.cli.output import before_writing, emit, encodable, note, on_terminal, printable, warn
from perfmodel.effort import listeners, tell
from perfmodel.report.terminal import terminal_columns

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.interfaces import RunOutcome
    from calibrate.running.stopping import Summary
    from perfmodel.schema.runs import Point, RunHeader

T = TypeVar("T")
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

        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr
            if self._live is None:
                console = Console(file=sys.stderr, force_terminal=True, highlight=False)
                self._live = Live(
                    console=console,
                    transient=True,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
            line = encodable(printable(text), sys.stderr.encoding)
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def hide(self) -> None:
        """Take the line away."""
        if self._live is not None:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
            self._live = None


class WaitingLine:
    """After two seconds, shows a command's name, time and progress: ``validate   7 s   12 of 40 claims``.

    Work reports its progress by ``effort.each_of``. Output of the command replaces the line.
    Limits: no terminal -> nothing
    """

    def __init__(self, what: str) -> None:
        self._what, self._began, self._done = what, time.monotonic(), ""
        self._next_s, self._line = self._began + _FIRST_S, TerminalLine()
        self._ended, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> WaitingLine:
        before_writing.append(self._hide)
        listeners.append(self._tell)
        if on_terminal():
            threading.Thread(target=self._draw, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._hide()
        before_writing.remove(self._hide)
        listeners.remove(self._tell)

    def _tell(self, done: str) -> None:
        """Take the words for how much is done into the line."""
        self._done = f"   {done}"

    def _hide(self) -> None:
        """Remove the line before something is printed."""
        with self._lock:
            self._next_s = max(self._next_s, time.monotonic() + _EVERY_S)
            self._line.hide()

    def _draw(self) -> None:
        while not self._ended.wait(min(_FIRST_S, _EVERY_S)):
            with self._lock:
                now = time.monotonic()
                if now >= self._next_s and not self._ended.is_set():
                    self._line.show(f"{self._what}   {now - self._began:.0f} s{self._done}")


class Progress:
    """Tells ``listeners`` how many items are done: ``3 of 40 claims``. what  their plural noun"""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.advance(0)

    def advance(self, count: int) -> None:
        """Count ``count`` more items as done."""
        self.done += count
        tell(f"{self.done} of {self.total} {self.what}")

    def over(self, things: Iterable[T]) -> Iterator[T]:
        """Yield the items; an item counts as done when the next is requested."""
        for thing in things:
            yield thing
            self.advance(1)


class CalibrationProgress:
    """Prints the progress of a calibration: on a terminal a line that is rewritten, else a line every 15 s.

    quiet    print only progress, not the results (``--json``)
    outcome  the run's outcome, once it has ended
    """

    def __init__(self, host: Host, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._host, self._quiet, self._clock = host, quiet, clock
        self._line = TerminalLine() if on_terminal() else None
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

        now = self._clock()
        if now - self._last_s < (_EVERY_S if self._line else _PLAIN_EVERY_S):
            return
        self._last_s = now
        text = progress_text(done, total, point, summary, left_s, terminal_columns(sys.stderr))
        show = self._line.show if self._line else note
        show(text)

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
        if self._line is not None:
            self._line.hide()
