"""A progress line for commands that show nothing else while they work."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from perfmodel.cli.output import before_writing, on_terminal, within_terminal
from perfmodel.effort import listeners, tell

T = TypeVar("T")
_FIRST_S, _EVERY_S = 2.0, 0.5
_PLAIN_S = 10.0
"""CPU seconds before the first line in a pipe or a file; each later line comes after twice as many."""


class WaitingLine:
    """After two seconds, shows a command's name, time and progress: ``validate   7 s   12 of 40 claims``.

    Work reports its progress by ``effort.each_of``. Output of the command replaces the line, and its own
    progress ends it. In a pipe: a line after 10, 20, 40 ... seconds of CPU time.
    """

    def __init__(self, what: str) -> None:
        self._what, self._began, self._live = what, time.monotonic(), on_terminal()
        self._next_s = self._began + _FIRST_S
        self._worked_s, self._next_work_s = time.process_time(), _PLAIN_S
        self._done = ""
        self._shown, self._ended, self._lock = "", threading.Event(), threading.Lock()

    def __enter__(self) -> WaitingLine:
        before_writing.append(self._hide)
        listeners.append(self._tell)
        threading.Thread(target=self._draw, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._hide(progress=True)
        before_writing.remove(self._hide)
        listeners.remove(self._tell)

    def _tell(self, done: str) -> None:
        """Take the words for how much is done into the line."""
        self._done = f"   {done}"

    def _hide(self, progress: bool) -> None:
        """Remove the line before something is printed; for good if that is the command's own progress."""
        with self._lock:
            if progress:
                self._ended.set()
            self._next_s = max(self._next_s, time.monotonic() + _EVERY_S)
            self._rewrite("")

    def _rewrite(self, text: str) -> None:
        text = within_terminal(text)
        if text or self._shown:
            sys.stderr.write(f"\r{text:<{len(self._shown)}}" + ("" if text else "\r"))
            sys.stderr.flush()
        self._shown = text

    def _draw(self) -> None:
        while not self._ended.wait(min(_FIRST_S, _EVERY_S)):
            with self._lock:
                now = time.monotonic()
                work_s = time.process_time() - self._worked_s
                due = now >= self._next_s if self._live else work_s >= self._next_work_s
                if not due or self._ended.is_set():
                    continue
                text = f"{self._what}   {now - self._began:.0f} s{self._done}"
                if self._live:
                    self._rewrite(text)
                else:
                    self._next_work_s = 2 * work_s
                    with contextlib.suppress(AttributeError, OSError, ValueError):  # nobody reads stderr
                        print(text, file=sys.stderr, flush=True)


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
