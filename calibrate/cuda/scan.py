"""Exclusive prefix sums on a device in a launch (kernels/scan.cuh): sizes, state, offsets of lengths."""

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
    """Blocks that scan ``count`` values, or copy them."""
    return -(-count // TILE)


def state_words(count: int) -> int:
    """Words of the state of a scan of ``count`` values."""
    return 1 + tiles(count)


def new_state(count: int, device: Any) -> Any:
    """A state for scans of ``count`` values: zeros, which each call restores."""
    import torch

    return torch.zeros(state_words(count), dtype=torch.int64, device=device)


def reciprocal(divisor: int) -> int:
    """``reciprocal`` of ``pm::Divisor``."""
    return min(2**64 // divisor, 2**64 - 1)


def queue_scan(lengths: Any, offsets: Any, state: Any) -> None:
    """Queue offsets[i] = sum of lengths before i; a kernel that is queued later clears ``state``."""
    count = lengths.numel()
    arguments = [lengths, ctypes.c_int64(count), state, offsets]
    launch(SCAN_LENGTHS, lengths.device, tiles(count), THREADS, arguments)
