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
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_COMMANDS = ("calibrate", "explore")
"""Commands that another program may end, and that start no process by forking."""

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")

_seen: list[int] = []


def listen(words: Sequence[str]) -> None:
    """From now on, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt. words  of the command line

    Limits: ranks other than 0, commands not in _COMMANDS, ignored signals (``nohup``) -> no change
    """
    a_rank = any(os.environ.get(name, "0") not in ("", "0") for name in _RANKS)
    if a_rank or not set(words[:1]) & set(_COMMANDS):
        return
    for name in _NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, _stop)


def was_asked_to_end() -> bool:
    """Whether a signal has come: an error after that may be its consequence."""
    return bool(_seen)


def _stop(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    raise KeyboardInterrupt


@contextmanager
def ctrl_c() -> Iterator[Callable[[], bool]]:
    """Context in which each Ctrl-C raises KeyboardInterrupt, and the first says that the command is stopping.

    Yields a function: has any come?
    Limits: not the main thread, which gets no signals, or Ctrl-C is ignored -> never
    """
    from perfmodel.cli.output import note

    presses = 0

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            with suppress(RuntimeError):  # raised while another line is written
                note("\nstopping…")
        raise KeyboardInterrupt

    ignored = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None)
    if ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: presses > 0
    finally:
        signal.signal(signal.SIGINT, before)
