"""Tables of rows in the form that kernels need, on the device that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError

_SIZES = ("row_count", "row_bytes", "out_at", "out_stride")
DESCRIPTOR = np.dtype(
    [("rows", np.uint64), *((name, np.int64) for name in _SIZES), ("dim", np.int32), ("padding", np.int32)]
)
"""``pm::Table`` of kernels/tables.cuh."""

Records = NDArray[np.void]
"""Structures that kernels read, as numpy holds them."""

ROW_TYPES = {"fp32": "float", "fp16": "pm::f16"}
"""Element types of rows, with their names in the kernels."""


@dataclass(frozen=True)
class DeviceTables:
    """Tables of one element type on one device; each has E rows of D columns.

    rows   of each table [E, D]; elements of a row are contiguous, rows need not be
    dtype  fp32 or fp16
    """

    rows: tuple[Any, ...]
    dtype: str

    @property
    def dims(self) -> tuple[int, ...]:
        """D of each table."""
        return tuple(rows.shape[1] for rows in self.rows)

    @property
    def device(self) -> Any:
        """torch.device that holds the rows."""
        return self.rows[0].device

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """Bytes from one row to the next, of each table."""
        return tuple(rows.stride(0) * rows.element_size() for rows in self.rows)

    def descriptors(self) -> Records:
        """``pm::Table`` of each table, as DESCRIPTOR; ``out_at``  its first column in bags [B, sum D]"""
        described = np.zeros(len(self.rows), DESCRIPTOR)
        described["rows"] = [rows.data_ptr() for rows in self.rows]
        described["row_count"] = [rows.shape[0] for rows in self.rows]
        described["row_bytes"] = self.row_bytes
        described["dim"] = self.dims
        described["out_at"] = np.concatenate([[0], np.cumsum(self.dims)[:-1]])
        described["out_stride"] = sum(self.dims)
        return described

    def to_device(self, records: Records) -> Any:
        """An array of records, which kernels read, as a uint8 tensor on the device."""
        import torch

        return torch.from_numpy(records.view(np.uint8).copy()).to(self.device)


def make_tables(rows: Sequence[Any]) -> DeviceTables:
    """Tables from torch tensors [E, D] of one type on one device.

    Limits: no table, an empty table, mixed types or devices, rows that are not contiguous, an unknown type
            -> BadInputError
    """
    import torch

    types = {torch.float32: "fp32", torch.float16: "fp16"}
    if not rows:
        raise BadInputError("no table was given.", "give at least one.")
    kinds = {(table.dtype, table.device) for table in rows}
    if len(kinds) > 1 or rows[0].dtype not in types:
        raise BadInputError(
            f"tables of {sorted(str(kind) for kind, _ in kinds)} cannot be looked up together.",
            f"all must be one of {', '.join(map(str, types))}, on one device.",
        )
    for index, table in enumerate(rows):
        if table.ndim != 2 or 0 in table.shape or table.stride(1) != 1:
            raise BadInputError(
                f"table {index} of shape {tuple(table.shape)} and strides {table.stride()} has no rows.",
                "rows [E, D] are expected, with E and D at least 1 and the elements of a row contiguous.",
            )
    return DeviceTables(tuple(rows), types[rows[0].dtype])
