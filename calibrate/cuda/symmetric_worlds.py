"""Symmetric memory for one-sided kernels: memory that all ranks allocate equally, and write into.

A world is a set of ranks (NVSHMEM: PEs). ``SharedWorld``: processes of one node on CPUs, over shared memory.
``NvshmemWorld`` (``calibrate.cuda.nvshmem_world``): GPUs of one or several nodes. Every rank allocates equal
regions in equal order. Ranks agree through torch's store.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from perfmodel.errors import BadInputError, RankLostError

ALIGN_BYTES = 256
"""Alignment of regions, and of their contents."""

POLLS = 120
POLL_S = 0.5
WAIT_S = POLLS * POLL_S
"""Seconds that ranks have to agree. After each poll a wait looks whether the other one has died."""

LEAST_REGION_BYTES = 2**22
"""Least bytes of a region that is used again and again."""

SHARED_BYTES = 2**30
"""Bytes that a process may allocate in all: address space only, memory comes with the first write."""


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


def require_equal(texts: Sequence[str], rank: int) -> None:
    """Raise BadInputError if a rank's text differs from the text of ``rank``; ``texts`` are by rank."""
    peers = [peer for peer, text in enumerate(texts) if text != texts[rank]]
    if peers:
        raise BadInputError(
            f"ranks {peers} make another exchange than rank {rank}.",
            "tables, batch, ids and method must be the same on all ranks.",
        )


class SymmetricWorld:
    """Ranks that write into each other's memory, and agree through a store.

    store       of torch.distributed, shared by all ranks, without other keys (a PrefixStore of its own)
    nvshmem     whether kernels use NVSHMEM
    all_mapped  whether each rank can address all others' memory
    reuses      whether only one region is in use at a time
    """

    nvshmem = False
    all_mapped = True
    reuses = False
    device: Any

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._store = store
        self._rounds = itertools.count()
        self._region: Region | None = None

    def allocate(self, count: int) -> Region:
        """``count`` zeroed bytes on every rank; all ranks call it, in the same order.

        With ``reuses`` in the memory of the call before; ranks agree before they write into it.
        """
        if not self.reuses:
            return self._allocate(count)
        if self._region is None or self._region.memory.numel() < count:
            self._region = self._allocate(max(count, LEAST_REGION_BYTES))
        memory = self._region.memory[:count].zero_()
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)
        return Region(memory, self._region.bases)

    def _allocate(self, count: int) -> Region:
        """``count`` new bytes on every rank, as the library of the world has them: each subclass says how."""
        raise NotImplementedError

    def agree(self, what: str) -> None:
        """Wait until all ranks have called it with the same text.

        Raises BadInputError if a rank gives another text than ``what``, RankLostError if a rank is missing.
        """
        number = next(self._rounds)
        self._store.set(f"{number}/{self.rank}", what)
        texts = [self._heard(f"{number}/{peer}", peer) for peer in range(self.ranks)]
        self._store.delete_key(f"{number - 1}/{self.rank}")  # all have heard it
        require_equal(texts, self.rank)

    def lost(self) -> list[int]:
        """Ranks known to have died or left: none, where a world cannot tell."""
        return []

    def give_up(self) -> None:
        """Note that a rank is lost: ``close`` then does not wait for the others."""

    def close(self) -> None:
        """Free the memory. It waits for all ranks, but not after ``give_up``."""

    def _heard(self, key: str, peer: int) -> str:
        """What rank ``peer`` set. Limits: nothing in WAIT_S, or it is gone -> RankLostError"""
        for _ in range(POLLS):
            try:
                self._store.wait([key], timedelta(seconds=POLL_S))
            except RuntimeError:
                if peer not in self.lost():
                    continue
                break
            text: str = self._store.get(key).decode()
            return text
        left = peer in self.lost()
        self.give_up()
        reason = "died or left" if left else f"has not answered for {WAIT_S:g} s"
        raise RankLostError(f"rank {peer}", reason, "start all ranks again.")


class SharedWorld(SymmetricWorld):
    """Processes of one node that map each other's memory: a file without a name, in memory, of each.

    store   as in SymmetricWorld
    Plain stores are ordered on x86-64; other processors would need fences.
    Limits: regions of SHARED_BYTES in all; Linux alone; a process that does not join -> RankLostError
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        """Make this rank's memory, tell the others where it is, and map theirs, once all are there."""
        import torch

        super().__init__(store, rank, ranks)
        self.device = torch.device("cpu")
        self._used = 0
        self._pids: list[int] = []
        file = os.memfd_create("perfmodel")
        os.ftruncate(file, SHARED_BYTES)
        store.set(f"memory/{rank}", f"{os.getpid()} {file}")
        places = [self._heard(f"memory/{peer}", peer).split() for peer in range(ranks)]
        self._pids = [int(pid) for pid, _ in places]
        self._maps = [self._map(f"/proc/{pid}/fd/{number}") for pid, number in places]
        self.agree("mapped")
        os.close(file)

    def _allocate(self, count: int) -> Region:
        """A region on every process. Limits: more than the rest of SHARED_BYTES -> BadInputError"""
        import torch

        begin = self._used
        self._used += -(-count // ALIGN_BYTES) * ALIGN_BYTES
        if self._used > SHARED_BYTES:
            raise BadInputError(
                f"{count} bytes do not fit the shared memory, of which {SHARED_BYTES - begin} are left.",
                "use a smaller batch, fewer tables or fewer ids.",
            )
        bases = [ctypes.addressof(ctypes.c_char.from_buffer(memory, begin)) for memory in self._maps]
        memory = torch.frombuffer(self._maps[self.rank], dtype=torch.uint8, count=count, offset=begin)
        return Region(memory, tuple(bases))

    def lost(self) -> list[int]:
        """Ranks whose processes have ended."""
        return [peer for peer, pid in enumerate(self._pids) if _has_ended(pid)]

    @staticmethod
    def _map(path: str) -> mmap.mmap:
        """A process's shared memory, given as a path to its open file, mapped into this process."""
        file = os.open(path, os.O_RDWR)
        try:
            return mmap.mmap(file, SHARED_BYTES)
        finally:
            os.close(file)


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
