"""Rows of tables whose sums are known without a look-up: small integers, exact in fp16.

    value(row, column) = u(row) + m(row) v(column)          u in -8 … 8,  m in -1, 0, 1,  v in 0 … 3

so the sum of a bag is U + M v with U and M the sums of u and m over its rows. A wrong row is detected with
probability 50/51, a wrong bag or column in most of its elements. Sums of up to 186 rows are exact in fp16
(below 2048), of up to a million in fp32. The functions take torch tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    import torch

LARGEST = 11
"""Largest magnitude of a value."""


def compute_row_terms(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """u and m of each row; ``rows``  numbers of rows, int64, below 2^46."""
    return (rows * 7919 + rows // 61) % 17 - 8, (rows * 104729 + rows // 17) % 3 - 1


def compute_column_term(columns: torch.Tensor) -> torch.Tensor:
    """v of the pattern, 0 to 3, for each column; ``columns``  numbers of columns, int64."""
    return (columns * 5 + columns // 4) % 4


def fill_rows(out: torch.Tensor, first_row: int) -> None:
    """Write rows ``first_row`` … of the pattern u + m v (above) into ``out`` [rows, D], of any float type."""
    import torch

    v = compute_column_term(torch.arange(out.shape[1], device=out.device))
    step = max(1, 2**24 // out.shape[1])  # rows at a time, so that intermediate tensors stay small
    for start in range(0, out.shape[0], step):
        piece = out[start : start + step]
        rows = torch.arange(first_row + start, first_row + start + piece.shape[0], device=out.device)
        u, m = compute_row_terms(rows)
        torch.addcmul(u.to(out.dtype)[:, None], m.to(out.dtype)[:, None], v.to(out.dtype)[None, :], out=piece)


def sum_bags(rows: torch.Tensor, lengths: torch.Tensor, dim: int) -> torch.Tensor:
    """Sums of bags of pattern rows, fp32 [bags, dim], without a table.

    rows     numbers of the rows looked up, bag by bag [n], an int64 torch tensor
    lengths  rows of each bag [bags]
    """
    import torch

    ends = torch.cumsum(lengths, 0)
    v = compute_column_term(torch.arange(dim, device=rows.device)).to(torch.float32)

    def summed(term: torch.Tensor) -> torch.Tensor:
        """Sum of ``term`` over the rows of each bag [bags, 1], as a difference of running sums."""
        total = torch.zeros(term.numel() + 1, dtype=torch.int64, device=rows.device)
        torch.cumsum(term, 0, out=total[1:])
        return (total[ends] - total[ends - lengths]).to(torch.float32)[:, None]

    u, m = compute_row_terms(rows)
    return summed(u) + summed(m) * v[None, :]


def require_exact(dtype: str, longest: int) -> None:
    """Refuse bags whose sums may be rounded. ``longest``  rows of the longest bag.

    Limits: fp16 up to 186 rows, fp32 up to 1 525 201; more -> BadInputError
    """
    exact = {"fp16": 2**11, "fp32": 2**24}[dtype]
    if longest * LARGEST > exact:
        raise BadInputError(
            f"sums of {longest} {dtype} rows cannot be checked exactly.",
            f"{dtype} bags may have at most {exact // LARGEST} rows: take a smaller pooling factor.",
        )


def count_wrong(got: torch.Tensor, want: torch.Tensor) -> int:
    """Number of elements of bags that differ from those that are right; all, if the shapes differ."""
    if got.shape != want.shape:
        return int(max(got.numel(), want.numel()))
    return int((got != want).count_nonzero())


class PatternTables:
    """Pattern rows on one device, written when they are first needed."""

    def __init__(self, device: torch.device, *, alone: bool) -> None:
        """alone  whether only the rows that were needed last are kept: on a GPU, where the tables of a plan
        would not fit together, and 8 GiB of rows are written in about 20 ms; a CPU takes seconds
        """
        self._device = device
        self._alone = alone
        self._kept: dict[tuple[int, int, str], torch.Tensor] = {}  # the largest, by first row, width, type

    def rows(self, first: int, count: int, dim: int, dtype: str) -> torch.Tensor:
        """``count`` pattern rows from row ``first`` on, as a tensor [count, dim] of ``dtype``, fp32 or fp16.

        ``Borrowed`` holds them for a visit. Raises BadInputError for another type.
        """
        import torch

        types = {"fp32": torch.float32, "fp16": torch.float16}
        if dtype not in types:
            raise BadInputError(f"rows of {dtype} cannot be measured.", f"known: {', '.join(types)}.")
        width = (first, dim, dtype)
        held = self._kept.get(width)
        if held is None or held.shape[0] < count:
            self._kept.pop(width, None)
            if self._alone:
                self.clear()  # before the new ones are allocated
            del held
            filled = torch.empty(count, dim, dtype=types[dtype], device=self._device)
            fill_rows(filled, first)
            self._kept[width] = filled
        return self._kept[width][:count]

    def clear(self) -> None:
        """Free the memory."""
        self._kept.clear()


class Borrowed:
    """Rows of ``PatternTables`` held for one visit. Until ``give_back`` their memory cannot be freed."""

    def __init__(self, take: Callable[[], torch.Tensor]) -> None:
        """take  function that gets the rows from ``PatternTables``, when a visit begins."""
        self._take = take
        self.rows: Any = None

    def take(self) -> None:
        """Get the rows, which are then in ``rows``."""
        self.rows = self._take()

    def give_back(self) -> None:
        """Release the rows."""
        self.rows = None
