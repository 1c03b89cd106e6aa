"""Tables of pattern rows, whose sums are known without a look-up.

On a CPU, tables of each number of columns are kept. On a GPU they would not fit together, as the tables of a
plan take half of its memory: there all use one allocation, which is rewritten when the number of columns
changes. Writing 8 GiB of rows takes a GPU about 20 ms, a CPU seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrate.passes.pattern_rows import fill_rows
from perfmodel.errors import BadInputError

LARGEST_PART = 0.25
"""Share of a rank's host memory that may be page-locked."""

_PIECE_BYTES = 64 * 2**20


class PatternTables:
    """Pattern rows on one device, written when they are first needed.

    shared  whether tables with different numbers of columns use one allocation in turn
    """

    def __init__(self, device: Any, *, shared: bool) -> None:
        self._device, self._share = device, shared
        self._kept: dict[tuple[int, int, str], Any] = {}  # the largest so far, by width
        self._memory: Any = None
        self._holds: tuple[int, int, str] | None = None
        self._written = 0

    def rows(self, first: int, count: int, dim: int, dtype: str) -> Any:
        """``count`` pattern rows from row ``first`` on, as a tensor [count, dim] of ``dtype``.

        If tables share their memory, rows are valid until the next call; ``Borrowed`` holds them longer.
        """
        width = first, dim, dtype
        if self._share:
            return self._shared(width, count)
        kept = self._kept.get(width)
        if kept is None or kept.shape[0] < count:
            kept = (
                self._new(count * dim * torch_type(dtype).itemsize).view(torch_type(dtype)).view(count, dim)
            )
            self._write(kept, first)
            self._kept[width] = kept
        return kept[:count]

    def clear(self) -> None:
        """Free the memory."""
        self._kept.clear()
        self._memory = self._holds = None

    def _shared(self, width: tuple[int, int, str], count: int) -> Any:
        first, dim, dtype = width
        needed = count * dim * torch_type(dtype).itemsize
        if self._memory is None or self._memory.numel() < needed:
            self._memory = self._holds = None  # free the memory before the larger piece is allocated
            self._memory = self._new(needed)
        rows = self._memory[:needed].view(torch_type(dtype)).view(count, dim)
        if self._holds != width or self._written < count:
            self._holds = None
            self._write(rows, first)
            self._holds, self._written = width, count
        return rows

    def _new(self, count: int) -> Any:
        import torch

        return torch.empty(count, dtype=torch.uint8, device=self._device)

    def _write(self, rows: Any, first: int) -> None:
        fill_rows(rows, first)


class PinnedRows(PatternTables):
    """Pattern rows in page-locked host memory, which a GPU reads in place; one allocation serves all tables.

    It is plain page-locked memory (cudaHostAlloc): managed memory beyond the free memory of a GPU can hang
    the GPU of a shared server. FBGEMM's MANAGED tables stay in host memory and are read over the link too
    (cudaMemAdviseSetPreferredLocation: the CPU), so these reads represent theirs.
    device      GPU that writes the rows; on a CPU, nothing is page-locked
    most_bytes  limit of the allocation
    Limits: more than ``most_bytes`` -> BadInputError
    """

    def __init__(self, device: Any, most_bytes: float) -> None:
        super().__init__(device, shared=True)
        self._most = most_bytes

    def _new(self, count: int) -> Any:
        import torch

        if count > self._most:
            raise BadInputError(
                f"{count / 2**20:.0f} MiB of page-locked host memory, of {self._most / 2**20:.0f} MiB "
                "that may be taken.",
                "free memory of the host.",
            )
        return torch.empty(count, dtype=torch.uint8, pin_memory=self._device.type == "cuda")

    def _write(self, rows: Any, first: int) -> None:
        """Write the rows on the GPU and copy them, piece by piece: a CPU takes seconds for a gigabyte."""
        import torch

        step = max(1, _PIECE_BYTES // (rows.element_size() * rows.shape[1]))
        piece = torch.empty(min(step, rows.shape[0]), rows.shape[1], dtype=rows.dtype, device=self._device)
        for at in range(0, rows.shape[0], step):
            part = piece[: min(step, rows.shape[0] - at)]
            fill_rows(part, first + at)
            rows[at : at + part.shape[0]].copy_(part)


class Borrowed:
    """Rows of ``PatternTables`` held for one visit. Until ``give_back`` their memory cannot be freed."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take
        self.rows: Any = None

    def take(self) -> None:
        """Get the rows, which are then in ``rows``."""
        self.rows = self._take()

    def give_back(self) -> None:
        """Release the rows."""
        self.rows = None


def torch_type(dtype: str) -> Any:
    """torch's element type of that name. Raises BadInputError for others than fp32 and fp16."""
    import torch

    known = {"fp32": torch.float32, "fp16": torch.float16}
    if dtype not in known:
        raise BadInputError(f"rows of {dtype} cannot be measured.", f"known: {', '.join(known)}.")
    return known[dtype]
