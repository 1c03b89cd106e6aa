"""Waiting for what another process or thread does: no assertion depends on how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found")

PATIENCE_S = 120.0
"""For a busy machine: on an idle one all of it happens at once [s]."""


def until(happened: Callable[[], Found], what: object = "it") -> Found:
    """What ``happened`` returns as soon as that is something. Limits: never -> the test fails, saying what"""
    ends = time.monotonic() + PATIENCE_S
    while not (result := happened()):
        if time.monotonic() > ends:
            pytest.fail(f"{what} did not happen within {PATIENCE_S:.0f} s")
        time.sleep(0.01)
    return result


def a_moment() -> None:
    """Others get further, or not: what is asserted afterwards holds in either case."""
    time.sleep(0.3)


def alive(process: int) -> bool:
    """Whether a process is there and runs: one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(processes: Sequence[int]) -> bool:
    """Waits until none of them runs."""
    return until(lambda: not any(map(alive, processes)), f"the end of processes {processes}")
