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

ROWS_AT_A_TIME = 2**19
"""Rows that are written together, so that intermediate tensors stay small."""


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
    for piece in out.split(ROWS_AT_A_TIME):
        u, m = compute_row_terms(torch.arange(first_row, first_row + len(piece), device=out.device))
        first_row += len(piece)
        torch.addcmul(u.to(out.dtype)[:, None], m.to(out.dtype)[:, None], v.to(out.dtype)[None, :], out=piece)


def sum_bags(rows: torch.Tensor, lengths: torch.Tensor, dim: int) -> torch.Tensor:
    """Sums of bags of pattern rows, fp32 [bags, dim], without a table.

    rows     numbers of the rows looked up, bag by bag [n], an int64 torch tensor
    lengths  rows of each bag [bags]
    """
    import torch

    bag = torch.repeat_interleave(lengths)  # of each row
    v = compute_column_term(torch.arange(dim, device=rows.device)).to(torch.float32)

    def summed(term: torch.Tensor) -> torch.Tensor:
        """Sum of ``term`` over the rows of each bag [bags, 1]."""
        return torch.zeros_like(lengths).index_add_(0, bag, term).to(torch.float32)[:, None]

    u, m = compute_row_terms(rows)
    return summed(u) + summed(m) * v[None, :]


def require_exact(dtype: str, longest: int) -> None:
    """Refuse bags whose sums may be rounded. ``longest``  rows of the longest bag.

    Limits: fp16 up to 186 rows, fp32 up to 1 525 201; more -> BadInputError
    """
    limit = {"fp16": 2**11, "fp32": 2**24}[dtype] // LARGEST
    if longest > limit:
        raise BadInputError(
            f"sums of {longest} {dtype} rows cannot be checked exactly.",
            f"{dtype} bags may have at most {limit} rows: take a smaller pooling factor.",
        )


def count_wrong(got: torch.Tensor, want: torch.Tensor) -> int:
    """Number of elements of bags that differ from those that are right; all, if the shapes differ."""
    if got.shape != want.shape:
        return int(want.numel())
    return int((got != want).count_nonzero())


class PatternTables:
    """Pattern rows on one device, written when they are first needed.

    A GPU keeps those alone that were needed last: the tables of a plan would not fit together, and 8 GiB of
    rows are written in about 20 ms. A CPU takes seconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.alone = device.type == "cuda"
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
            if self.alone:
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
