"""Tables of pattern rows: on a CPU one for each width, on a GPU one memory that all widths take turns to use.

Tables of every width at once would not fit a GPU: those of a plan take half of it. Writing 8 GiB of rows
again takes a GPU some 20 ms, a CPU seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrate.passes.pattern_rows import fill_rows
from perfmodel.errors import BadInputError


class PatternTables:
    """Rows on one device, which are written when they are asked for.

    shared  all widths take turns in one memory
    """

    def __init__(self, device: Any, *, shared: bool) -> None:
        self._device, self._share = device, shared
        self._kept: dict[tuple[int, int, str], Any] = {}  # by width: the largest so far
        self._memory: Any = None
        self._holds: tuple[int, int, str] | None = None
        self._written = 0

    def rows(self, first: int, count: int, dim: int, dtype: str) -> Any:
        """Pattern rows ``first`` … as a tensor [count, dim] of ``dtype``.

        Where widths share their memory, rows hold until the next call: a visit borrows them (``Borrowed``).
        """
        width = first, dim, dtype
        if self._share:
            return self._shared(width, count)
        kept = self._kept.get(width)
        if kept is None or kept.shape[0] < count:
            kept = self._empty(count, dim, dtype)
            fill_rows(kept, first)
            self._kept[width] = kept
        return kept[:count]

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()
        self._memory = self._holds = None

    def _shared(self, width: tuple[int, int, str], count: int) -> Any:
        import torch

        first, dim, dtype = width
        needed = count * dim * torch_type(dtype).itemsize
        if self._memory is None or self._memory.numel() < needed:
            self._memory = self._holds = None  # before the larger one is taken
            self._memory = torch.empty(needed, dtype=torch.uint8, device=self._device)
        rows = self._memory[:needed].view(torch_type(dtype)).view(count, dim)
        if self._holds != width or self._written < count:
            self._holds = None
            fill_rows(rows, first)
            self._holds, self._written = width, count
        return rows

    def _empty(self, count: int, dim: int, dtype: str) -> Any:
        import torch

        return torch.empty(count, dim, dtype=torch_type(dtype), device=self._device)


class Borrowed:
    """Rows of ``PatternTables`` for as long as a visit takes: what is not given back keeps memory alive."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take
        self.rows: Any = None

    def take(self) -> None:
        """The rows are there from now on."""
        self.rows = self._take()

    def give_back(self) -> None:
        """And gone."""
        self.rows = None


def torch_type(dtype: str) -> Any:
    """torch's name of an element type. Raises BadInputError for others than fp32 and fp16."""
    import torch

    known = {"fp32": torch.float32, "fp16": torch.float16}
    if dtype not in known:
        raise BadInputError(f"rows of {dtype} cannot be measured.", f"known: {', '.join(known)}.")
    return known[dtype]
