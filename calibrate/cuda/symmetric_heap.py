"""A symmetric heap: memory into which all ranks of a group on one node write directly.

Each rank owns one segment of shared memory, which all others map. It has a word per rank that has mapped it,
and two zones, where the others write. A segment is a sparse file whose name is removed as soon as every rank
has mapped it; its owner holds a lock on it, so that files left by a killed run are recognised and removed
later. Plain stores are ordered on x86-64; other processors would need fences.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError, NoHardwareError

FOLDER = Path("/dev/shm")
PREFIX = "perfmodel-"
ZONE_BYTES = 2**30
"""Bytes of one zone: address space only, memory is allocated on first write."""

ATTACH_S = 60.0
_STALE_S = 10.0
_WORD_BYTES = 8
_PAGE_BYTES = 4096

_opened: Counter[str] = Counter()  # heaps by group: a second heap of a group gets another name


class SymmetricHeap:
    """The segments of all ranks of one group, mapped by its rank number ``index``.

    run  a word that all ranks of this run know;  attach_s  how long to wait for the other ranks
    """

    def __init__(self, run: str, ranks: Sequence[int], index: int, attach_s: float = ATTACH_S) -> None:
        self.index, self.size = index, len(ranks)
        self._others = [(index + step) % self.size for step in range(1, self.size)]
        self._control_bytes = -(-(self.size * _WORD_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
        self._bytes = self._control_bytes + 2 * ZONE_BYTES
        group = f"{PREFIX}{_plain(run)}-{zlib.crc32(repr(list(ranks)).encode()):08x}"
        _opened[group] += 1
        self._stem = f"{group}-{_opened[group]}"
        self._reserved: dict[tuple[int, int], int] = {}
        self._files = [-1] * self.size
        self._maps: list[mmap.mmap] = []
        try:
            self._attach(time.monotonic() + attach_s)
        except BaseException:
            self.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                self._path(index).unlink()

    def zone(self, half: int, peer: int, begin: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A view of ``count`` elements in a zone of ``peer``; their memory is allocated now.

        half  which of the two zones;  begin  byte of the zone where the elements begin
        Limits: beyond ZONE_BYTES, or no shared memory left -> BadInputError
        """
        end = begin + count * dtype.itemsize
        if end > ZONE_BYTES:
            raise BadInputError(
                f"{end} bytes do not fit the symmetric heap.", f"a rank can receive up to {ZONE_BYTES} bytes."
            )
        at = self._control_bytes + half * ZONE_BYTES + begin
        self._reserve(peer, at, count * dtype.itemsize)
        return np.frombuffer(self._maps[peer], dtype, count, at)

    def left(self, peer: int) -> bool:
        """Whether ``peer`` has closed its heap or died: no process holds the lock on its segment."""
        try:
            fcntl.flock(self._files[peer], fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self._files[peer], fcntl.LOCK_UN)
        return True

    @property
    def others(self) -> list[int]:
        """The other ranks of the group, by their numbers in it, beginning after this rank."""
        return self._others

    def close(self) -> None:
        """Free the memory; views that are still held stay valid."""
        for one in self._maps:
            with contextlib.suppress(BufferError):
                one.close()
        self._maps = []
        for file in self._files:
            if file >= 0:
                os.close(file)
        self._files = []

    def _attach(self, deadline_s: float) -> None:
        self._files[self.index] = self._create()
        for peer in self._others:
            self._files[peer] = self._find(peer, deadline_s)
        self._maps = [mmap.mmap(file, self._bytes) for file in self._files]
        attached = [memoryview(one)[: self._control_bytes].cast("q") for one in self._maps]
        for peer in self._others:
            attached[peer][self.index] = 1
        for peer in self._others:
            while not attached[self.index][peer]:
                self._pause(peer, deadline_s)

    def _create(self) -> int:
        file = os.open(self._path(self.index), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(file, self._bytes)
        os.posix_fallocate(file, 0, self._control_bytes)
        return file

    def _find(self, peer: int, deadline_s: float) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):
                file = os.open(self._path(peer), os.O_RDWR)
                if os.fstat(file).st_size == self._bytes:
                    return file
                os.close(file)
            self._pause(peer, deadline_s)

    def _pause(self, peer: int, deadline_s: float) -> None:
        if time.monotonic() > deadline_s:
            raise NoHardwareError(
                f"rank {peer} of the group did not map the symmetric heap.",
                "check whether that rank still runs.",
            )
        time.sleep(1e-3)

    def _path(self, index: int) -> Path:
        return FOLDER / f"{self._stem}-{index}"

    def _reserve(self, peer: int, begin: int, count: int) -> None:
        """Allocate memory for a part of a segment now: a store into a full file system would crash."""
        if count <= self._reserved.get((peer, begin), 0):
            return
        try:
            os.posix_fallocate(self._files[peer], begin, count)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.ENOMEM):
                raise
            raise BadInputError(
                f"{FOLDER} has no room for {count} bytes more of symmetric heap.",
                f"use smaller sizes, or give {FOLDER} more room (containers: --shm-size).",
            ) from None
        self._reserved[peer, begin] = count


def remove_stale() -> None:
    """Remove segments of runs that were killed while attaching: no process holds a lock on them."""
    for path in FOLDER.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < _STALE_S:
                continue
            file = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(file)


def _plain(word: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", word)[:64]
