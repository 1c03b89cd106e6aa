"""Signals: SIGTERM and SIGHUP act as Ctrl-C from the start; Ctrl-C in a search gives the best so far."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

STOPPED = 130
"""Exit code of a command that Ctrl-C stopped."""
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_COMMANDS = ("calibrate", "explore")
"""Commands that another program may end, and that start no process by forking."""
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_IGNORED = (signal.SIG_IGN, None)

seen: list[int] = []
"""Signals that have come: an error after that may be their consequence."""


def listen(words: Sequence[str]) -> None:
    """From now on, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. words  of the command line

    Limits: ranks other than 0, commands not in _COMMANDS, ignored signals (``nohup``) -> no change
    """
    a_rank = any(os.environ.get(name, "0") not in ("", "0") for name in _RANKS)
    if not a_rank and set(words[:1]) & set(_COMMANDS):
        for number in _SIGNALS:
            if signal.getsignal(number) not in _IGNORED:
                signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    """What Python calls for a signal, by its number: remember it, and interrupt the command."""
    seen.append(number)
    raise KeyboardInterrupt


@contextmanager
def ctrl_c() -> Iterator[Callable[[], bool]]:
    """Context in which each Ctrl-C raises KeyboardInterrupt, and the first says that the command is stopping.

    Yields a function: has any come?
    Limits: not the main thread, which gets no signals, or Ctrl-C is ignored -> never
    """
    from perfmodel.cli.output import note

    presses: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        if len(presses) == 1:
            with suppress(RuntimeError):  # raised while another line is written
                note("\nstopping…")
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before in _IGNORED or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(presses)
    finally:
        signal.signal(signal.SIGINT, before)
