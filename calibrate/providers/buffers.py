"""Memory of collectives: buffers on CPUs that are used in turn, and one pair of buffers on a GPU."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate import patterns
from calibrate.patterns import BufferLayout
from perfmodel.errors import BadInputError

ROTATING_L2_SHARE = 4
LEAST_ROTATING = 8
MOST_ROTATING_BYTES = 64 * 2**20
"""Most bytes of rotating send buffers. They have at least 4 times the L2 and at least 8 buffers while they
fit, and never fewer than 2."""

LINE_BYTES = 64
DEFAULT_L2_BYTES = 2**20  # of one core, where the system does not state it


def count_rotating(send_bytes: int, l2: int) -> int:
    """Number of send buffers of ``send_bytes`` that, used in turn, are not in an L2 of ``l2`` bytes."""
    wanted = max(LEAST_ROTATING, -(-ROTATING_L2_SHARE * l2 // send_bytes))
    return max(2, min(wanted, MOST_ROTATING_BYTES // send_bytes))


def map_small_pages(size_bytes: int) -> NDArray[np.uint8]:
    """Zeroed memory of ``size_bytes`` bytes that the system does not put into huge pages.

    numpy requests huge pages if possible, torch does not. A library that copies between processes is up to
    twice as fast on huge pages, which the buffers of a real pass do not have.
    """
    memory = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)


class Pool:
    """CPU memory that all operations of a provider share; a buffer is valid until the next ``prepare``."""

    def __init__(self) -> None:
        self._memory: dict[str, NDArray[np.uint8]] = {}

    def rows(self, name: str, count: int, elements: int) -> NDArray[np.float32]:
        """``count`` aligned buffers as rows of a matrix; a later call with the same name reuses them."""
        stride = -(-elements * patterns.ELEMENT_BYTES // LINE_BYTES) * LINE_BYTES
        needed = count * stride
        memory = self._memory.get(name)
        if memory is None or memory.size < needed:
            memory = self._memory[name] = map_small_pages(needed)  # begins with a page
        return memory[:needed].reshape(count, stride).view(np.float32)[:, :elements]


class Arena:
    """One send and one receive buffer that all operations share; buffers for each would not fit a GPU."""

    def __init__(self, empty: Callable[[int], Any], bytes_each: int) -> None:
        """empty  function that allocates: number of bytes (a multiple of 4) -> 1-D uint8 tensor. Every rank
        must call it together if other ranks reach into that memory
        """
        self.bytes_each = bytes_each
        self.send = empty(bytes_each)
        self.recv = empty(bytes_each)

    def views(self, layout: BufferLayout) -> tuple[Any, Any]:
        """(send, receive) views at the start of the buffers. Limits: too large -> BadInputError"""
        import torch

        if layout.payload_bytes > self.bytes_each:
            raise BadInputError(
                f"{layout.operation} of {layout.payload_bytes} B needs as much symmetric memory.",
                f"{self.bytes_each} B are there.",
            )
        send = self.send.view(torch.float32)
        recv = self.recv.view(torch.float32)
        return send[: layout.send_elements], recv[: layout.recv_elements]


def compute_arena_bytes() -> int:
    """Bytes of one buffer of an arena: a sixteenth of the GPU, equal on all ranks, at most 8 GiB."""
    import torch

    total: int = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return min(total // 16, 8 * 2**30) // 4096 * 4096
