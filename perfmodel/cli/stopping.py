"""Ctrl-C while something is searched for: what was found by then is the answer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from perfmodel.cli.output import note


@contextmanager
def ctrl_c(press: Callable[[int], None]) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; ``press`` is called with how often.

    Limits: not the main thread, which has no signals, or Ctrl-C ignored -> never
    """
    presses = 0

    def pressed(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        press(presses)

    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, pressed)
    try:
        yield lambda: presses > 0
    finally:
        signal.signal(signal.SIGINT, before)


def acknowledge(presses: int) -> None:
    """Each Ctrl-C ends what runs; the first one is told of at once, as the answer takes a moment."""
    if presses == 1:
        with suppress(RuntimeError):  # in the middle of another line
            note("\nstopping…")
    raise KeyboardInterrupt


def end_softly(presses: int) -> None:
    """The first Ctrl-C is only looked at by the search; a second one ends it."""
    if presses > 1:
        raise KeyboardInterrupt
