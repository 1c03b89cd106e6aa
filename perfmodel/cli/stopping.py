"""Handles Ctrl-C during a search: the answer is the best result so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from perfmodel.cli.output import note


@contextmanager
def ctrl_c(press: Callable[[int], None]) -> Iterator[Callable[[], bool]]:
    """Call ``press`` with the count at each Ctrl-C; yield a function that says whether any came.

    Limits: not the main thread, which gets no signals, or Ctrl-C is ignored -> never
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
    """End the work at each Ctrl-C; acknowledge the first at once, because the answer takes a moment."""
    if presses == 1:
        with suppress(RuntimeError):  # raised while another line is written
            note("\nstopping…")
    raise KeyboardInterrupt


def end_softly(presses: int) -> None:
    """Let the search see the first Ctrl-C itself; the second one ends it."""
    if presses > 1:
        raise KeyboardInterrupt
