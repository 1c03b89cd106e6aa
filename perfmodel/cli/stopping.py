"""Ctrl-C while a plan is searched for: it is acknowledged at once, as the answer takes a moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from perfmodel.cli.output import note


@contextmanager
def acknowledged_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: each press raises KeyboardInterrupt, and the first is told of on stderr.

    Limits: not the main thread, which has no signals, or Ctrl-C ignored -> never
    """
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) == 1:
            with suppress(RuntimeError):  # in the middle of another line
                note("\nstopping…")
        raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
