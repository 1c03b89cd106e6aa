"""Symmetric memory for one-sided kernels: memory that all ranks allocate equally, and write into.

A world is a set of ranks (NVSHMEM: PEs). ``SharedWorld``: processes of one node on CPUs, over shared memory.
``NvshmemWorld`` (``calibrate.cuda.nvshmem_world``): GPUs of one or several nodes. Every rank allocates equal
regions in equal order.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from calibrate.cuda.symmetric_heap import ATTACH_S, ZONE_BYTES, SymmetricHeap, remove_stale
from perfmodel.errors import BadInputError, RankLostError

ALIGN_BYTES = 256
"""Alignment of regions, and of their contents."""

WAIT_S = 60.0


@dataclass(frozen=True)
class Region:
    """One piece of symmetric memory, as one rank sees it.

    memory      this rank's own piece: uint8 [bytes], initially zero
    bases       address, in this process, of each rank's piece; 0: not mapped, only reachable by puts
    """

    memory: Any
    bases: tuple[int, ...]

    def peers(self, rank: int) -> Any:
        """This rank's number, the number of ranks, and the addresses: ``pm::Peers`` as an int64 tensor."""
        import torch

        return torch.tensor([rank, len(self.bases), *self.bases], dtype=torch.int64).to(self.memory.device)


class SymmetricWorld(Protocol):
    """Ranks that write into each other's memory.

    nvshmem     whether kernels use NVSHMEM;  all_mapped  whether each rank can address all others' memory
    """

    rank: int
    ranks: int
    device: Any
    nvshmem: bool
    all_mapped: bool  # whether every PE maps the memory of every other

    def allocate(self, count: int) -> Region:
        """Allocate ``count`` bytes on every rank; all ranks call it, in the same order."""

    def agree(self, what: str) -> None:
        """Wait until all ranks have called it with the same text.

        Raises BadInputError if a rank gives another text than ``what``, RankLostError if a rank is missing.
        """

    def lost(self) -> list[int]:
        """Ranks that are known to have died or left."""

    def give_up(self) -> None:
        """Note that a rank is lost: ``close`` then does not wait for the others."""

    def close(self) -> None:
        """Free the memory. It waits for all ranks, but not after ``give_up``."""


def require_equal(digests: Sequence[int], rank: int) -> None:
    """Raise BadInputError if a rank's digest differs from the digest of ``rank``; ``digests`` are by rank."""
    others = [peer for peer, digest in enumerate(digests) if digest != digests[rank]]
    if others:
        raise BadInputError(
            f"ranks {others} make another exchange than rank {rank}.",
            "tables, batch, ids and method must be the same on all ranks.",
        )


def digest_of(what: str) -> int:
    """A number computed from a text, to compare texts. Limits: never 0"""
    return zlib.crc32(what.encode()) + 1


class SharedWorld:
    """Processes of one node that map each other's memory (calibrate.cuda.symmetric_heap).

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
        """As in SymmetricWorld.

        Each rank writes two numbers to all others: how many times it was called, and the digest of the text.
        Calls alternate between two places, as a rank is at most one call ahead of another.
        """
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
        """Ranks whose processes have ended or closed their memory."""
        return [peer for peer in self._heap.others if self._heap.left(peer)]

    def give_up(self) -> None:
        """Do nothing: this world never waits."""

    def close(self) -> None:
        """Free the memory without waiting; regions that others still map stay valid for them."""
        self._heap.close()


_ADVICE = "start all ranks again."
