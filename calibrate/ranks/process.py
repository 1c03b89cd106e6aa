"""What a rank asks of its operating system: to end with its parent, memory that it keeps."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from calibrate.machine.node import ROOT, read_fact
from perfmodel.resources import address_space_bytes

_PR_SET_PDEATHSIG = 1
_MALLOPTS = {-4: 0, -1: -1, -8: 1}
"""Parameters of glibc's mallopt: M_MMAP_MAX, M_TRIM_THRESHOLD and M_ARENA_MAX."""

_MEMORY_SHARE = 0.5
"""Share of the free memory that the ranks of a node may use for their buffers."""


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Make the kernel end this process when the thread that started it ends, even if this process is stuck.

    parent         id of the process that started this one; if that has ended already, this process exits
    signal_number  signal that the kernel sends
    Limits: not Linux -> no effect; there the store that is gone ends the rank
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number))
    if os.getppid() != parent:
        os._exit(os.EX_OK)


def end_with_launcher(launcher: str, signal_number: int) -> None:
    """Make the kernel end this process when its launcher dies; SLURM does so itself."""
    if launcher != "srun":
        die_with_parent(os.getppid(), signal_number)


def keep_freed_memory() -> None:
    """Keep freed memory in the process. Limits: another C library than glibc -> no effect

    Otherwise every call would get the pages of its new 1 MB output from the kernel, which doubles its time.
    """
    with contextlib.suppress(AttributeError, OSError):
        for name, value in _MALLOPTS.items():
            ctypes.CDLL(None).mallopt(name, value)


def estimate_memory_bytes(local_ranks: int, root: Path = ROOT) -> float:
    """Memory that one of ``local_ranks`` ranks of a node may use for buffers [bytes].

    It is half of what is free, divided equally. Limits: limits of a container and of the address space
    (``ulimit -v``) count too; unknown -> 2 GiB are taken as free
    """
    free = [2.0**31]
    for line in read_fact(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = [float(line.split()[1]) * 1024]
    limit = read_fact(root / "sys/fs/cgroup/memory.max")
    used = read_fact(root / "sys/fs/cgroup/memory.current")
    if limit.isdigit() and used.isdigit():
        free.append(max(float(limit) - float(used), 0.0))
    taken, _ = _count_taken_bytes(root)
    allowed = max(address_space_bytes() - taken, 0.0)
    return min(min(free) / local_ranks, allowed) * _MEMORY_SHARE


def count_held_bytes(root: Path = ROOT) -> float:
    """Memory that this process uses [bytes]. Limits: unknown -> 0"""
    _, held = _count_taken_bytes(root)
    return held


def _count_taken_bytes(root: Path) -> tuple[float, float]:
    """(address space, memory) that this process takes [bytes]. Limits: unknown -> 0"""
    pages = read_fact(root / "proc/self/statm").split() or ["0", "0"]
    space, held = map(float, pages[:2])
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return space * page_bytes, held * page_bytes
