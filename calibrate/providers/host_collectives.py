"""Collectives on CPU buffers: patterns, several send buffers in turn, and clearing the caches."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate import patterns
from calibrate.operations import Operation
from calibrate.patterns import BufferLayout

ROTATING_L2_SHARE = 4
LEAST_ROTATING = 8
MOST_ROTATING_BYTES = 64 * 2**20
"""Most bytes of rotating send buffers. They have at least 4 times the L2 and at least 8 buffers while they
fit, and never fewer than 2."""

ROWS_A_ROW_SENT = 10
"""Rows that a look-up reads for each row that it sends: a typical pooling factor."""

LINE_BYTES = 64
_GATHERED_ROW_BYTES = 256
_DEFAULT_L2_BYTES = 2**20
_L2_FILE = "/sys/devices/system/cpu/cpu0/cache/index2/size"

Call = Callable[[Any, Any], None]
"""One call of the library: (send buffer, receive buffer)."""


def l2_bytes(path: str = _L2_FILE) -> int:
    """Bytes of one core's L2 cache; 1 MiB if the system does not state it."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
        return int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        return _DEFAULT_L2_BYTES


def rotating_count(send_bytes: int, l2: int) -> int:
    """Number of send buffers of ``send_bytes`` that, used in turn, are not in an L2 of ``l2`` bytes."""
    wanted = max(LEAST_ROTATING, -(-ROTATING_L2_SHARE * l2 // send_bytes))
    return max(2, min(wanted, MOST_ROTATING_BYTES // send_bytes))


def small_pages(size_bytes: int) -> NDArray[np.uint8]:
    """Zeroed memory of ``size_bytes`` bytes that the system does not put into huge pages.

    numpy requests huge pages if possible, torch does not. A library that copies between processes is up to
    twice as fast on huge pages, which the buffers of a real pass do not have.
    """
    memory = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    array[:] = 0
    return array


class Pool:
    """Memory that all operations of a provider share; a buffer is valid until the next ``prepare``."""

    def __init__(self) -> None:
        self._memory: dict[str, NDArray[np.uint8]] = {}

    def rows(self, name: str, count: int, elements: int) -> NDArray[np.float32]:
        """``count`` aligned buffers as rows of a matrix; a later call with the same name reuses them."""
        stride = -(-elements * patterns.ELEMENT_BYTES // LINE_BYTES) * LINE_BYTES
        needed = count * stride + LINE_BYTES
        memory = self._memory.get(name)
        if memory is None or memory.size < needed:
            memory = self._memory[name] = small_pages(needed)
        skip = -memory.ctypes.data % LINE_BYTES
        lines = memory[skip : skip + count * stride].reshape(count, stride)
        return lines.view(np.float32)[:, :elements]


class CacheClearer:
    """Does to the caches what a look-up does before its result is sent: gathers rows of a table.

    The table is eight times the L2 cache. A small look-up leaves the caches mostly unchanged, a large one
    replaces their contents: ``gather`` reads ROWS_A_ROW_SENT times the sent bytes, at most twice the L2.
    """

    def __init__(self, l2: int) -> None:
        words = _GATHERED_ROW_BYTES // 4
        rows = max(8 * l2 // _GATHERED_ROW_BYTES, 8)
        self._table = np.ones((rows, words), np.float32)
        self._ids = np.random.default_rng(0).permutation(rows)[: rows // 4]
        self._out = np.zeros((rows // 4, words), np.float32)

    def gather(self, send_bytes: int) -> Callable[[], None]:
        """A function that gathers the rows to read before ``send_bytes`` are sent; always the same rows."""
        rows = min(len(self._ids), -(-ROWS_A_ROW_SENT * send_bytes // _GATHERED_ROW_BYTES))
        ids, out = self._ids[:rows], self._out[:rows]

        def clear() -> None:
            np.take(self._table, ids, axis=0, out=out, mode="clip")

        return clear


class HostOperation(Operation):
    """A collective on CPU buffers. ``before`` moves to the next send buffer, and may clear the caches.

    rotating  number of send buffers;  clear  called before each call, or None
    wrap      converts a numpy buffer to the form that the library takes
    """

    def __init__(
        self,
        layout: BufferLayout,
        call: Call,
        pool: Pool,
        *,
        rotating: int,
        clear: Callable[[], None] | None,
        wrap: Callable[[NDArray[Any]], Any],
    ) -> None:
        self._layout, self._call, self._pool = layout, call, pool
        self._rotating, self._clear, self._wrap = rotating, clear, wrap
        self._row = 0
        self._salt = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to others in one call."""
        return self._layout.bytes_sent

    @property
    def payload_bytes(self) -> int:
        """Bytes of the buffer in use: whole elements per peer."""
        return self._layout.payload_bytes

    def prepare(self, salt: int) -> None:
        """Fill every send buffer, poison the output."""
        one, self._salt = self._layout, salt
        self._rows = self._pool.rows("send", self._rotating, one.send_elements)
        patterns.fill_rows(self._rows, patterns.send_pieces(one, salt))
        self._recv = self._pool.rows("recv", 1, one.recv_elements)[0]
        self._recv[...] = patterns.POISON
        self._wrapped_recv = self._wrap(self._recv)
        self._use(0)

    def before(self) -> None:
        """Move to the next send buffer; for the variant after_kernel, clear the caches as a look-up does."""
        if self._rotating > 1:
            self._use((self._row + 1) % self._rotating)
        if self._clear is not None:
            self._clear()

    def run(self) -> None:
        """Run the call."""
        self._call(self._send, self._wrapped_recv)

    def check(self) -> tuple[int, int]:
        """(wrong, compared) elements of the output, and of the send buffer, which must be unchanged."""
        received = patterns.expected_pieces(self._layout, self._salt)
        sent = patterns.send_pieces(self._layout, self._salt)
        wrong = patterns.count_wrong(self._recv, received, self._row)
        wrong += patterns.count_wrong(self._rows[self._row], sent, self._row)
        return wrong, self._layout.recv_elements + self._layout.send_elements

    def _use(self, row: int) -> None:
        self._row = row
        self._send = self._wrap(self._rows[row])


class InPlaceHostOperation(HostOperation):
    """A sum that a library computes only in place: before each call the receive buffer gets the summand.

    Back-to-back calls would sum earlier sums; ``check`` then makes one more call with fresh inputs.
    """

    def prepare(self, salt: int) -> None:
        """As in the base class; then the receive buffer gets this rank's summand."""
        super().prepare(salt)
        self._refill()

    def before(self) -> None:
        """Move to the next send buffer, copy it into the receive buffer, and clear the caches if so asked."""
        if self._rotating > 1:
            self._use((self._row + 1) % self._rotating)
        self._refill()
        if self._clear is not None:
            self._clear()

    def run(self) -> None:
        """Run the call, in place."""
        self._calls += 1
        super().run()

    def check(self) -> tuple[int, int]:
        """(wrong, compared) elements of a call with fresh inputs: the last, or one more by all ranks."""
        if self._calls != 1:
            self._refill()
            self.run()
        return super().check()

    def _refill(self) -> None:
        self._recv[...] = self._rows[self._row]
        self._calls = 0
