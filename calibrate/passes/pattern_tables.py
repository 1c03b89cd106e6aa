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
