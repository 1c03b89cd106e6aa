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
    """Context in which each Ctrl-C calls ``press`` with their number; yields a function: has any come?

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
    """Raise KeyboardInterrupt at each Ctrl-C; at the first, print that the command is stopping.

    presses  how many there were, for ``ctrl_c``
    """
    if presses == 1:
        with suppress(RuntimeError):  # raised while another line is written
            note("\nstopping…")
    raise KeyboardInterrupt


def end_softly(presses: int) -> None:
    """Raise KeyboardInterrupt at the second Ctrl-C; the search itself ends at the first."""
    if presses > 1:
        raise KeyboardInterrupt
