"""What a rank asks of its operating system: to end with its parent, memory that it keeps."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from calibrate.machine.node import ROOT, read_fact
from perfmodel.resources import address_space_bytes

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
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
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def end_with_launcher(launcher: str, signal_number: int) -> None:
    """Make the kernel end this process when its launcher dies; SLURM does so itself."""
    if launcher != "srun":
        die_with_parent(os.getppid(), signal_number)


def keep_freed_memory() -> bool:
    """Keep freed memory in the process; returns False if the C library cannot.

    Otherwise every call would get the pages of its new 1 MB output from the kernel, which doubles its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all(
        mallopt(name, value) for name, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    )


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
    taken = read_fact(root / "proc/self/statm").split()[:1]
    used_bytes = float(taken[0]) * os.sysconf("SC_PAGE_SIZE") if taken else 0.0
    allowed = max(address_space_bytes() - used_bytes, 0.0)
    return min(min(free) / local_ranks, allowed) * _MEMORY_SHARE


def count_held_bytes() -> float:
    """Memory that this process uses [bytes]. Limits: unknown -> 0"""
    fields = read_fact(ROOT / "proc/self/statm").split()
    return float(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0.0
