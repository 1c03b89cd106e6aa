"""Cells of the benchmark of gather and pool: shapes, their order, their tables and ids."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

ALPHAS, ROWS, DIMS, BATCHES, POOLINGS = (
    (0.0, 1.05, 1.15), (1_000_000, 10_000_000), (32, 128), (1024, 32768, 131072), (1, 16, 64),
)  # fmt: skip
"""NVIDIA cuEmbed's grid, fp32 rows."""

MORE_DIMS, MORE_ALPHAS, MORE_POOLINGS = (64, 256), (0.0, 1.05), (1, 4, 16, 64)
"""Beside it: these rows as fp32, and rows of 32 to 256 columns as fp16, of a large batch."""

LARGE_BYTES = (13 * 2**30, 51_200_000_000)
"""Tables as a GPU of 80 GB holds them: more than its translation of addresses reaches at once."""

SET_BYTES = 512 * 2**20
"""Rows and ids of all sets together: several times the L2."""
MOST_SETS, SECTOR = 16, 32
DTYPE_BYTES = {"fp32": 4, "fp16": 2}
CHUNK_ROWS = 2**22
LEFT_FREE_BYTES = 3 * 2**30
"""Of the GPU's memory, beside a table: ids, bags, sets, graphs."""


@dataclass(frozen=True)
class Cell:
    """One shape: E rows of D columns, B bags of L ids with popularity rank^-alpha."""

    rows: int
    dim: int
    alpha: float
    batch: int
    pooling: int
    dtype: str = "fp32"

    @property
    def ids(self) -> int:
        """Look-ups of a call."""
        return self.batch * self.pooling

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * DTYPE_BYTES[self.dtype]

    @property
    def table_bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

    @property
    def bytes(self) -> int:
        """Bytes that a call must move when no row is in a cache; bags have the type of the rows."""
        row = -(-self.row_bytes // SECTOR) * SECTOR
        return self.ids * (row + 8) + (self.batch + 1) * 8 + self.batch * self.row_bytes

    @property
    def sets(self) -> int:
        """Sets of ids that are looked up in turn."""
        return max(2, min(MOST_SETS, math.ceil(SET_BYTES / (self.ids * (self.row_bytes + 8)))))

    @property
    def table(self) -> tuple[int, int, str]:
        """What cells of one table have in common."""
        return self.rows, self.dim, self.dtype


def cells(rows: Sequence[int], *, more: bool = False, scale: int = 1) -> list[list[Cell]]:
    """All cells, a list a table; those of a list in random order (always the same): a part of it is a sample.

    more   other rows than cuEmbed's, and tables of 13 and 51 GB
    scale  divides rows and batches: for a rehearsal
    """
    found: dict[tuple[int, int, str], list[Cell]] = {}
    for cell in (*_grid(rows), *(_more(rows) if more else ())):
        small = replace(cell, rows=max(64, cell.rows // scale), batch=max(4, cell.batch // scale))
        found.setdefault(small.table, []).append(small)
    for of_table in found.values():
        random.Random(1).shuffle(of_table)
    return list(found.values())


def _grid(rows: Sequence[int]) -> Iterator[Cell]:
    for E, D in itertools.product(rows, DIMS):
        for alpha, B, L in itertools.product(ALPHAS, BATCHES, POOLINGS):
            yield Cell(E, D, alpha, B, L)


def _more(rows: Sequence[int]) -> Iterator[Cell]:
    shapes = [(D, "fp32") for D in MORE_DIMS] + [(D, "fp16") for D in (*DIMS, *MORE_DIMS)]
    for (D, dtype), alpha, L in itertools.product(shapes, MORE_ALPHAS, MORE_POOLINGS):
        yield Cell(max(rows), D, alpha, max(BATCHES), L, dtype)
    for size, D, alpha, L in itertools.product(LARGE_BYTES, DIMS, MORE_ALPHAS, (1, 16)):
        yield Cell(size // (4 * D), D, alpha, max(BATCHES), L)


def draw(torch: Any, cell: Cell, seed: int, device: str) -> Any:
    """Ids of a call, int64 on the GPU: rank^-alpha by its continuous inverse, ranks scattered."""
    source = torch.Generator(device).manual_seed(seed)
    if cell.alpha == 0:
        return torch.randint(0, cell.rows, (cell.ids,), device=device, generator=source)
    u = torch.rand(cell.ids, device=device, generator=source, dtype=torch.float64)
    power = 1 - cell.alpha
    rank = ((1 + u * ((cell.rows + 1.0) ** power - 1)) ** (1 / power)).long().clamp(1, cell.rows) - 1
    step = int(cell.rows * 0.6180339887)
    while math.gcd(step, cell.rows) != 1:
        step += 1
    return (rank * step + cell.rows // 3) % cell.rows


def make_table(torch: Any, cell: Cell, device: str) -> Any:
    """Rows of small whole numbers, whose sums are exact in any order; None where the GPU is too small."""
    room = LEFT_FREE_BYTES if cell.table_bytes > LEFT_FREE_BYTES else 0
    if device == "cuda" and torch.cuda.mem_get_info()[0] < cell.table_bytes + room:
        return None
    kind = {"fp32": torch.float32, "fp16": torch.float16}[cell.dtype]
    made = torch.empty(cell.rows, cell.dim, dtype=kind, device=device)
    for first in range(0, cell.rows, CHUNK_ROWS):
        part = made[first : first + CHUNK_ROWS]
        part.copy_(torch.randint(-8, 9, part.shape, device=device, dtype=torch.int8))
    return made
