"""Exclusive prefix sums (the sum of all values before each) in one launch on a device (kernels/scan.cuh)."""

from __future__ import annotations

import ctypes
from typing import Any

from calibrate.cuda.kernel import Kernel
from calibrate.cuda.launch import launch

TILE = 1024
"""Values that a block sums."""

THREADS = 256
SCAN_LENGTHS = Kernel("bucketize.cu", "pm::scan_lengths")


def tiles(count: int) -> int:
    """Number of blocks of a kernel that scans, or copies, ``count`` values."""
    return -(-count // TILE)


def state_words(count: int) -> int:
    """Number of int64 in which the blocks of a scan of ``count`` values exchange their sums."""
    return 1 + tiles(count)


def new_state(count: int, device: Any) -> Any:
    """The tensor in which the blocks of a scan exchange their sums: zeros, to which each call resets it."""
    import torch

    return torch.zeros(state_words(count), dtype=torch.int64, device=device)


def reciprocal(divisor: int) -> int:
    """2^64 / ``divisor``, by which kernels divide (``pm::Divisor``); at most 2^64 - 1."""
    return min(2**64 // divisor, 2**64 - 1)


def queue_scan(lengths: Any, offsets: Any, state: Any) -> None:
    """Queue offsets[i] = sum of lengths before i. A later kernel must reset ``state`` to zeros."""
    count = lengths.numel()
    arguments = [lengths, ctypes.c_int64(count), state, offsets]
    launch(SCAN_LENGTHS, lengths.device, tiles(count), THREADS, arguments)
