"""Symmetric memory for the one-sided kernels: who takes part, and regions laid out alike on all of them.

A world is a set of PEs. ``SharedWorld``: processes of one node on CPUs, over shared memory. ``NvshmemWorld``
(``calibrate.cuda.nvshmem_world``): GPUs of one or several nodes. Every PE allocates the same regions in the
same order.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from calibrate.providers.heap import ATTACH_S, ZONE_BYTES, SymmetricHeap, remove_stale
from perfmodel.errors import BadInputError, RankLostError

ALIGN_BYTES = 256
"""Regions, and what lies in them, begin at multiples of this."""

WAIT_S = 60.0


@dataclass(frozen=True)
class Region:
    """One piece of symmetric memory.

    memory      of this PE: uint8 [bytes], zero at first
    bases       address of each PE's region as this process sees it; 0: only a put reaches it
    """

    memory: Any
    bases: tuple[int, ...]

    def peers(self, rank: int) -> Any:
        """``pm::Peers`` of kernels/symmetric.cuh, an int64 tensor on the device."""
        import torch

        return torch.tensor([rank, len(self.bases), *self.bases], dtype=torch.int64).to(self.memory.device)


class SymmetricWorld(Protocol):
    """PEs that write into each other's memory."""

    rank: int
    ranks: int
    device: Any
    nvshmem: bool
    all_mapped: bool  # every PE sees the memory of every other

    def allocate(self, count: int) -> Region:
        """``count`` bytes on every PE; all PEs call it, in the same order."""

    def agree(self, what: str) -> None:
        """Wait for all PEs.

        Raises BadInputError where one means something else than ``what``, RankLostError where one is missing.
        """

    def lost(self) -> list[int]:
        """PEs that are known to have died or left."""

    def give_up(self) -> None:
        """A PE is lost: ``close`` waits for nobody."""

    def close(self) -> None:
        """Give the memory back. After a PE was lost, without waiting for it."""


def require_equal(digests: Sequence[int], rank: int) -> None:
    """BadInputError where some rank means something else than this one."""
    others = [peer for peer, digest in enumerate(digests) if digest != digests[rank]]
    if others:
        raise BadInputError(
            f"ranks {others} make another exchange than rank {rank}.",
            "tables, batch, ids and method must be the same on all ranks.",
        )


def digest_of(what: str) -> int:
    """A number that stands for a text. Limits: never 0."""
    return zlib.crc32(what.encode()) + 1


class SharedWorld:
    """Processes of one node over calibrate.providers.heap: each maps the memory of all others.

    run    a word that all processes of the world share and no other world has
    Limits: regions of 1 GiB in all; x86-64 and Linux, as the heap; a process that does not come within
            ``attach_s`` -> NoHardwareError
    """

    nvshmem = False
    all_mapped = True

    def __init__(self, run: str, rank: int, ranks: int, attach_s: float = ATTACH_S) -> None:
        import torch

        remove_stale()
        self.rank, self.ranks, self.device = rank, ranks, torch.device("cpu")
        self._heap = SymmetricHeap(run, range(ranks), rank, attach_s)
        self._used = 0
        self._agreed = 0

    def allocate(self, count: int) -> Region:
        """Limits: more than is left of 1 GiB -> BadInputError"""
        import torch

        begin, self._used = self._used, self._used + -(-count // ALIGN_BYTES) * ALIGN_BYTES
        if self._used > ZONE_BYTES:
            raise BadInputError(
                f"{count} bytes do not fit the symmetric heap, of which {ZONE_BYTES - begin} are left.",
                "use a smaller batch, fewer tables or fewer ids.",
            )
        zones = [self._heap.zone(0, peer, begin, count, np.dtype(np.uint8)) for peer in range(self.ranks)]
        return Region(torch.from_numpy(zones[self.rank]), tuple(zone.ctypes.data for zone in zones))

    def agree(self, what: str) -> None:
        """Two numbers from each rank to each: which agreement it is, and what it says. They take turns in two
        places: a rank is at most one agreement ahead of another."""
        self._agreed += 1
        word, digest = np.dtype(np.int64), digest_of(what)
        place = (self._agreed % 2) * self.ranks
        for peer in range(self.ranks):
            said = self._heap.zone(1, peer, 0, 4 * self.ranks, word).reshape(-1, 2)
            said[place + self.rank, 1] = digest
            said[place + self.rank, 0] = self._agreed
        heard = self._heap.zone(1, self.rank, 0, 4 * self.ranks, word).reshape(-1, 2)[place:][: self.ranks]
        deadline = time.monotonic() + WAIT_S
        for peer in range(self.ranks):
            while heard[peer, 0] != self._agreed:
                if time.monotonic() > deadline or self._heap.left(peer):
                    what = "died or left" if self._heap.left(peer) else f"has not answered for {WAIT_S:g} s"
                    raise RankLostError(f"rank {peer}", what, _ADVICE)
                time.sleep(1e-4)
        require_equal(heard[:, 1].tolist(), self.rank)

    def lost(self) -> list[int]:
        """Those whose memory nobody holds."""
        return [peer for peer in self._heap.others if self._heap.left(peer)]

    def give_up(self) -> None:
        """Nobody waits here anyway."""

    def close(self) -> None:
        """Nobody waits for anybody: what others still map stays theirs."""
        self._heap.close()


_ADVICE = "start all ranks again."
