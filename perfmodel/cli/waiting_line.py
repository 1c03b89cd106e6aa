"""A line of progress on the terminal, drawn by rich while a command works."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from time import monotonic

from perfmodel.cli.output import before_writing, escape_controls, note
from perfmodel.effort import listeners

_FIRST_S = 2.0  # before the first line
_EVERY_S = 0.5  # between two, on a terminal
_PLAIN_EVERY_S = 15.0  # and where there is none


class WaitingLine:
    """After two seconds, shows how far a command is: ``validate   7 s   12 of 40 claims``.

    It is drawn when work reports its progress by ``effort.tell``. Output of the command replaces it.
    """

    def __init__(self, command: str, *, plain: bool = False, clock: Callable[[], float] = monotonic) -> None:
        """plain  whether progress is a line every 15 s where no terminal is, as in a batch job"""
        self._command = command
        self._plain = plain
        self._clock = clock
        self._began_s = clock()
        self._next_s = self._began_s + _FIRST_S
        self._drawn = False

    def __enter__(self) -> WaitingLine:
        before_writing.append(self._hide)
        listeners.append(self._show)
        return self

    def __exit__(self, *_: object) -> None:
        self._hide()
        before_writing.remove(self._hide)
        listeners.remove(self._show)

    def _show(self, done: str) -> None:
        """Show the progress ``done``, in words, if it is time for that."""
        now_s = self._clock()
        if now_s < self._next_s:
            return
        if is_on_terminal():
            self._next_s = now_s + _EVERY_S
            self._draw(done if self._plain else f"{self._command}   {now_s - self._began_s:.0f} s   {done}")
        elif self._plain:
            self._next_s = now_s + _PLAIN_EVERY_S
            note(done)

    def _draw(self, text: str) -> None:
        """Draw the line on the terminal, in place of the one before."""
        from rich.console import Console
        from rich.text import Text

        line = Text(escape_controls(text, sys.stderr.encoding), no_wrap=True, overflow="ellipsis")
        self._hide()
        with contextlib.suppress(OSError, ValueError):  # nobody reads stderr
            Console(file=sys.stderr).print(line, end="")
            self._drawn = True

    def _hide(self) -> None:
        if self._drawn:
            self._drawn = False
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write("\r\x1b[2K")  # erases the line


def is_on_terminal() -> bool:
    """Whether stderr is a terminal on which a line can be rewritten."""
    with contextlib.suppress(AttributeError, ValueError):  # there is no stderr, or it is closed
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return False
