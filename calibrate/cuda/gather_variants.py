"""Variants of gather+pool with equal results: the fastest for a shape is determined by measurement.

A run that times them writes a table (``write_table``); the launcher takes the fastest from it
(``best_variant``), and ``ASSUMED`` where no GPU of this name was timed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from calibrate.cuda.gather_layout import RowAccess
from perfmodel.errors import BadInputError
from perfmodel.resources import data_path
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.gate import read_csv_lines
from perfmodel.schema.home import home_folder

TABLE_NAME = "gather_variants.csv"
"""Name of the table of timed variants, in the user's home folder of perfmodel, else in data/kernels."""

RESERVED_BYTES = 1024
"""Shared memory that the system reserves per block [bytes]. Source: CUDA C++ programming guide, for compute
capability 8.0 and higher."""

_WHAT = "table of gather variants"


@dataclass(frozen=True, order=True)
class GatherVariant:
    """A variant of the kernel: how rows are loaded, and how much of an SM's 256 KB (H100) is L1 cache.

    near      whether rows pass through the L1 cache (``cp.async.ca``) or bypass it (``cp.async.cg``)
    accesses  number of accesses of a lane in flight: 4 or 8
    half      whether a multiprocessor runs half as many blocks, which leaves more L1 cache
    """

    near: bool
    accesses: int
    half: bool

    @property
    def name(self) -> str:
        """Name of the variant: ``l1-4-full``, ``bypass-8-half``, ..."""
        return f"{'l1' if self.near else 'bypass'}-{self.accesses}-{'half' if self.half else 'full'}"

    def access(self, shape: RowAccess) -> RowAccess:
        """How a group reads a row in this variant, if other variants read it as ``shape`` says."""
        return replace(shape, accesses=self.accesses)

    def blocks(self, shape: RowAccess, element_bytes: int) -> int:
        """Most blocks of 256 threads on one multiprocessor.

        Limits: 4 with at most 64 registers per thread, 3 with 80 if a lane has more than 8 columns of a row
        or several accesses; half: 2
        """
        if self.half:
            return 2
        return 3 if shape.chunks > 1 or shape.width // element_bytes > 8 else 4

    def shared_bytes(self, block_bytes: int, shape: RowAccess, element_bytes: int) -> int:
        """Shared memory of all blocks of a multiprocessor together [bytes]; what is left is L1 cache.

        block_bytes  dynamic shared memory of a block of 256 threads
        """
        return self.blocks(shape, element_bytes) * (block_bytes + RESERVED_BYTES)


VARIANTS = tuple(
    GatherVariant(near, accesses, half)
    for near, accesses, half in product((True, False), (4, 8), (False, True))
)
"""All variants, which a run times."""

ASSUMED = GatherVariant(near=True, accesses=4, half=False)
"""The variant if nothing was timed. Assumption: ids are skewed, so hits in the L1 cache save more than the
look-ups in it cost. 4 accesses of 16 bytes by 1024 threads are 64 KiB in flight, twice
``BYTES_IN_FLIGHT``, and leave the L1 cache more than half of the multiprocessor's memory."""

BY_NAME = {variant.name: variant for variant in VARIANTS}


class TimedVariant(BaseModel):
    """One line of the table of timings: one variant, for one look-up, on one GPU.

    row_bytes    bytes of a row;  table_bytes  bytes of all rows
    bags         number of bags of a call;  pooling  ids per bag
    alpha        the row of popularity rank k is looked up in proportion to k^-alpha
    time_s       time of a call: median over replays of a CUDA graph
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str = Field(min_length=1)
    row_type: str
    id_bytes: int = Field(ge=4, le=8)
    row_bytes: int = Field(ge=1)
    table_bytes: int = Field(ge=1)
    bags: int = Field(ge=1)
    pooling: float = Field(gt=0)
    alpha: float = Field(ge=0)
    variant: str
    time_s: float = Field(gt=0)

    @field_validator("variant")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in BY_NAME:
            raise ValueError(f"{name!r} is unknown; known: {', '.join(BY_NAME)}")
        return name


@dataclass(frozen=True)
class GatherShape:
    """The shape of a look-up, known when it is launched; it has the fields of ``TimedVariant``."""

    row_type: str
    id_bytes: int
    row_bytes: int
    table_bytes: int
    bags: int
    pooling: float

    def distance(self, other: GatherShape) -> float:
        """Sum of |log2 ratio| over the numbers of both. Limits: different row or id types -> infinite"""
        if (self.row_type, self.id_bytes) != (other.row_type, other.id_bytes):
            return math.inf
        names = ("row_bytes", "table_bytes", "bags", "pooling")
        return sum(abs(math.log2(getattr(self, name) / getattr(other, name))) for name in names)


def best_variant(gpu: str, shape: GatherShape, timed: Sequence[TimedVariant]) -> GatherVariant:
    """The fastest variant for the timed look-up that resembles ``shape`` most, on a GPU of this name.

    It has the least geometric mean, over all timed alphas, of its time relative to the best at that alpha.
    Limits: no shape of these types timed on this GPU -> ``ASSUMED``;  a variant that was not timed at every
            alpha of the shape -> not used;  equal times -> the first of ``VARIANTS``
    """
    cells: dict[GatherShape, dict[float, dict[str, float]]] = {}
    for one in timed:
        if one.gpu == gpu:
            key = GatherShape(*(getattr(one, name) for name in GatherShape.__dataclass_fields__))
            cells.setdefault(key, {}).setdefault(one.alpha, {})[one.variant] = one.time_s
    if not cells:
        return ASSUMED
    nearest = min(cells, key=shape.distance)
    if math.isinf(shape.distance(nearest)):
        return ASSUMED
    by_alpha = cells[nearest]

    def loss(variant: GatherVariant) -> float:
        times = [(seen.get(variant.name, math.inf), min(seen.values())) for seen in by_alpha.values()]
        return math.prod(time / best for time, best in times) ** (1 / len(times))

    best = min(VARIANTS, key=loss)
    return best if math.isfinite(loss(best)) else ASSUMED


def write_table(path: Path, timed: Iterable[TimedVariant]) -> None:
    """Write the table as CSV, one line per variant and shape."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(TimedVariant.model_fields))
        table.writeheader()
        table.writerows(one.model_dump() for one in timed)


def read_table(path: Path) -> tuple[TimedVariant, ...]:
    """Read the file of ``write_table``. Limits: a bad line -> BadInputError with the line and its field"""
    (_, header), *lines = read_csv_lines(path, _WHAT)
    made = []
    for number, fields in lines:
        if len(fields) != len(header):
            raise BadInputError(
                f"{_WHAT} {path}, line {number}: {len(fields)} fields under {len(header)} columns.",
                "the file may have been cut short; write it again.",
            )
        try:
            made.append(TimedVariant.model_validate(dict(zip(header, fields, strict=True))))
        except ValidationError as error:
            raise invalid_fields(error, _WHAT, f"{path}, line {number}") from None
    return tuple(made)


def known_table() -> tuple[TimedVariant, ...]:
    """The user's own table, else the shipped table, else empty."""
    for path in (home_folder() / TABLE_NAME, data_path("kernels", TABLE_NAME)):
        if path.is_file():
            return _read_once(path, path.stat().st_mtime_ns)
    return ()


@lru_cache(maxsize=8)
def _read_once(path: Path, _changed_ns: int) -> tuple[TimedVariant, ...]:
    return read_table(path)
