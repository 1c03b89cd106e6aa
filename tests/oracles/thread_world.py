"""Threads of one process that play the PEs of a one-sided exchange on one device: CPUs, or one GPU."""

from __future__ import annotations

import threading
from typing import Any

from calibrate.cuda.symmetric_worlds import ALIGN_BYTES, WAIT_S, Region, require_equal
from perfmodel.errors import RankLostError


class ThreadWorld:
    """One of several threads of a process that play PEs on one device: for checks, and sanitizers on one GPU.

    Make all with ``threads_of``.
    """

    nvshmem = False
    all_mapped = True

    def __init__(self, rank: int, ranks: int, device: Any, shared: _Shared) -> None:
        self.rank, self.ranks, self.device, self._shared = rank, ranks, device, shared

    def allocate(self, count: int) -> Region:
        """Plain memory of the process."""
        import torch

        memory = torch.zeros(count + ALIGN_BYTES, dtype=torch.uint8, device=self.device)
        memory = memory[-memory.data_ptr() % ALIGN_BYTES :][:count]
        if self.device.type == "cuda":  # zero before another thread's stream writes into it
            torch.cuda.current_stream(self.device).synchronize()
        self._shared.said[self.rank] = memory
        self._meet()
        bases = tuple(buffer.data_ptr() for buffer in self._shared.said)
        self._meet()
        return Region(memory, bases)

    def agree(self, what: str) -> None:
        """A barrier of threads."""
        self._shared.said[self.rank] = what
        self._meet()
        heard = list(self._shared.said)
        self._meet()
        require_equal(heard, self.rank)

    def lost(self) -> list[int]:
        """Nothing is known of threads."""
        return []

    def give_up(self) -> None:
        """Nobody waits here anyway."""

    def close(self) -> None:
        """Memory goes with its tensors."""

    def _meet(self) -> None:
        try:
            self._shared.barrier.wait(WAIT_S)
        except threading.BrokenBarrierError:
            raise RankLostError("one of the threads", "does not answer", "start all ranks again.") from None


class _Shared:
    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.said: list[Any] = [None] * ranks


def threads_of(ranks: int, device: Any) -> list[ThreadWorld]:
    """A world for each of ``ranks`` threads of this process, all on ``device``."""
    shared = _Shared(ranks)
    return [ThreadWorld(rank, ranks, device, shared) for rank in range(ranks)]
