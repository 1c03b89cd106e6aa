"""Threads of one process that play the PEs of a one-sided exchange on one device: CPUs, or one GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from calibrate.cuda.symmetric_worlds import ALIGN_BYTES, WAIT_S, Region, SymmetricWorld, require_equal
from perfmodel.errors import RankLostError


class ThreadWorld(SymmetricWorld):
    """One of several threads of a process that play PEs on one device. texts  what each thread said last"""

    def __init__(self, rank: int, device: Any, barrier: threading.Barrier, texts: list[Any]) -> None:
        self.rank, self.ranks, self.device = rank, len(texts), device
        self._barrier, self._texts = barrier, texts

    def allocate(self, count: int) -> Region:
        """Plain memory of the process."""
        memory = torch.zeros(count + ALIGN_BYTES, dtype=torch.uint8, device=self.device)
        memory = memory[-memory.data_ptr() % ALIGN_BYTES :][:count]
        if self.device.type == "cuda":  # zero before another thread's stream writes into it
            torch.cuda.current_stream(self.device).synchronize()
        return Region(memory, tuple(buffer.data_ptr() for buffer in self._hear(memory)))

    def agree(self, what: str) -> None:
        """A barrier of threads."""
        require_equal(self._hear(what), self.rank)

    def _hear(self, what: Any) -> list[Any]:
        """What all threads say."""
        self._texts[self.rank] = what
        self._meet()
        texts = list(self._texts)
        self._meet()
        return texts

    def _meet(self) -> None:
        try:
            self._barrier.wait(WAIT_S)
        except threading.BrokenBarrierError:
            raise RankLostError("one of the threads", "does not answer", "start all ranks again.") from None


def make_worlds(ranks: int, device: Any) -> list[ThreadWorld]:
    barrier, texts = threading.Barrier(ranks), [None] * ranks
    return [ThreadWorld(rank, device, barrier, texts) for rank in range(ranks)]


def run_threads(ranks: int, work: Callable[[ThreadWorld], Any], device: Any) -> list[Any]:
    """What ``work`` gave or raised on each of ``ranks`` threads, on a GPU in a stream of its own."""
    answers: list[Any] = [None] * ranks

    def run(world: ThreadWorld) -> None:
        stream = torch.cuda.stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext()
        try:
            with stream:
                answers[world.rank] = work(world)
        except Exception as error:
            answers[world.rank] = error

    threads = [threading.Thread(target=run, args=(world,)) for world in make_worlds(ranks, device)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return answers
