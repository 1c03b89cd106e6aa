"""Symmetric memory for one-sided kernels: the ranks that take part, and regions with equal layout on all.

A world is a set of PEs. ``SharedWorld``: processes of one node on CPUs, over shared memory. ``NvshmemWorld``
(``calibrate.cuda.nvshmem_world``): GPUs of one or several nodes. Every PE allocates equal regions in equal
order.
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
"""Alignment of regions, and of their contents."""

WAIT_S = 60.0


@dataclass(frozen=True)
class Region:
    """One piece of symmetric memory.

    memory      of this PE: uint8 [bytes], initially zero
    bases       address of each PE's region in this process; 0: only reachable by puts
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
    all_mapped: bool  # whether every PE maps the memory of every other

    def allocate(self, count: int) -> Region:
        """Allocate ``count`` bytes on every PE; all PEs call it, in the same order."""

    def agree(self, what: str) -> None:
        """Wait for all PEs.

        Raises BadInputError if a PE agrees on something else than ``what``, RankLostError if one is missing.
        """

    def lost(self) -> list[int]:
        """PEs that are known to have died or left."""

    def give_up(self) -> None:
        """Mark a PE as lost: ``close`` then waits for none."""

    def close(self) -> None:
        """Free the memory; after a PE was lost, without waiting for it."""


def require_equal(digests: Sequence[int], rank: int) -> None:
    """Raise BadInputError if some rank's digest differs from this rank's."""
    others = [peer for peer, digest in enumerate(digests) if digest != digests[rank]]
    if others:
        raise BadInputError(
            f"ranks {others} make another exchange than rank {rank}.",
            "tables, batch, ids and method must be the same on all ranks.",
        )


def digest_of(what: str) -> int:
    """A number for a text. Limits: never 0."""
    return zlib.crc32(what.encode()) + 1


class SharedWorld:
    """Processes of one node with calibrate.providers.heap: each maps the memory of all others.

    run    a word shared by all processes of this world and no other
    Limits: regions of 1 GiB in all; x86-64 and Linux, as for the heap; a process that does not join within
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
        """A region on every process. Limits: more than the rest of 1 GiB -> BadInputError"""
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
        """Exchanges two numbers between all ranks: the index of the agreement, and its digest. Agreements
        alternate between two slots: a rank is at most one agreement ahead of another."""
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
        """Ranks whose memory no process holds."""
        return [peer for peer in self._heap.others if self._heap.left(peer)]

    def give_up(self) -> None:
        """Do nothing: this world never waits."""

    def close(self) -> None:
        """Free the memory without waiting; what others still map stays valid for them."""
        self._heap.close()


_ADVICE = "start all ranks again."
