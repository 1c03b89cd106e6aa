"""The look-ups: tables with rows, dim and pooling, sets of tables, and the uniform workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.schema.distributions import Distribution
from perfmodel.schema.files import shown, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Number = float | NDArray[np.float64]

DTYPE_BYTES: dict[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element of an embedding row. Rows may have more: ``engine.tables``."""

DTYPES = tuple(DTYPE_BYTES)
"""Types of the elements of a row; arrays hold a type as its place here."""

ID_DTYPE_BYTES: dict[str, int] = {"int64": 8, "int32": 4}
"""Bytes of one id."""

WEIGHT_BYTES = 4
"""Bytes of the weight of an id: fp32 in TorchRec."""

PAYLOADS = ("fp32", "fp16", "bf16", "fp8")
"""Precisions of bags on the wire: plain numbers, without scales per bag."""


_BYTES = {
    "dtype": DTYPE_BYTES,
    "payload": {name: DTYPE_BYTES[name] for name in PAYLOADS},
    "id dtype": ID_DTYPE_BYTES,
}


def element_bytes(name: str, kind: Literal["dtype", "payload", "id dtype"] = "dtype") -> int:
    """Bytes of an element of a row, of a bag on the wire, or of an id; an unknown name is BadInputError."""
    if name not in _BYTES[kind]:
        raise unknown_name(kind, name, _BYTES[kind])
    return _BYTES[kind][name]


@dataclass(frozen=True)
class Table:
    """One embedding table.

    pooling       rows summed for one sample;  weighted  whether each id comes with a weight for its row
    distribution  popularity of its rows; None: the default of all tables
    """

    name: str
    rows: int
    dim: int
    pooling: float
    dtype: str = "fp32"
    weighted: bool = False
    distribution: Distribution | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight of an id; 0 if bags are not weighted."""
        return WEIGHT_BYTES if self.weighted else 0


@dataclass(frozen=True)
class TableSet:
    """Named tables that are looked up together, with the source of the list.

    Limits: two tables of one name -> BadInputError
    """

    name: str
    tables: tuple[Table, ...]
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Check that table names are unique."""
        seen: set[str] = set()
        for table in self.tables:
            if table.name in seen:
                raise BadInputError(
                    f"{self.name} has two tables of the name {table.name!r}.",
                    "answers name tables: give each its own name.",
                )
            seen.add(table.name)


@dataclass(frozen=True, eq=False)
class Workload:
    """Equal tables looked up by every GPU; each number may be an array, and they broadcast.

    batch        samples per GPU                 tables   number of tables
    pooling      rows summed for one sample      dim      elements of one row
    dtype        of a row                        id_bytes bytes of one id
    table_bytes  bytes of all tables together
    Limits: anything that is not a finite number above 0 -> BadInputError
    """

    batch: Number
    tables: Number
    pooling: Number
    dim: Number
    table_bytes: Number
    dtype: str = "fp32"
    id_bytes: int = 8

    def __post_init__(self) -> None:
        element_bytes(self.dtype)
        for name in ("batch", "tables", "pooling", "dim", "table_bytes", "id_bytes"):
            _check_positive(name, getattr(self, name))


def _check_positive(name: str, value: object) -> None:
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInputError(f"{name} {shown(value)} is not a number.", "give a number above 0.") from None
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any() or not numbers.size:
        found = numbers[bad].flat[0] if bad.any() else "nothing"
        raise BadInputError(f"{name} must be a number above 0; found {found}.", f"check {name}.")
