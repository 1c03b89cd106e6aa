"""Tables of rows in the form that kernels need, on the device that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError

INT8_TAIL_BYTES = 8
"""Bytes of scale and bias, fp32 each, after the bytes of an int8 row."""

DESCRIPTOR = np.dtype(
    [
        ("rows", np.uint64),
        ("row_count", np.int64),
        ("row_bytes", np.int64),
        ("out_at", np.int64),
        ("out_stride", np.int64),
        ("dim", np.int32),
        ("padding", np.int32),
    ]
)
"""``pm::Table`` of kernels/tables.cuh."""

ROW_TYPES = {"fp32": "float", "fp16": "pm::f16", "bf16": "pm::bf16", "int8": "pm::q8"}
"""Element types of rows, with their names in the kernels."""


@dataclass(frozen=True)
class DeviceTables:
    """Tables of one element type on one device; each has E rows of D columns.

    rows   of each table [E, D], or for int8 [E, row bytes] of uint8: D bytes, fp32 scale, fp32 bias, padding;
           elements of a row are contiguous, rows need not be
    dims   D of each table;  dtype  fp32, fp16, bf16 or int8
    """

    rows: tuple[Any, ...]
    dims: tuple[int, ...]
    dtype: str

    @property
    def device(self) -> Any:
        """torch.device that holds the rows."""
        return self.rows[0].device

    @property
    def row_bytes(self) -> tuple[int, ...]:
        """Bytes from one row to the next, of each table."""
        return tuple(rows.stride(0) * rows.element_size() for rows in self.rows)

    def descriptors(self, batch: int, layout: str = "sample") -> Any:
        """``pm::Table`` of each table, which kernels read, as a uint8 tensor on the device.

        batch   B, number of samples
        layout  order of the output: "sample" [B, sum D] or "table" [T, B, D] (equal D)
        Raises BadInputError for another layout, or for "table" with unequal dims.
        """
        import torch

        made = np.zeros(len(self.rows), DESCRIPTOR)
        made["rows"] = [rows.data_ptr() for rows in self.rows]
        made["row_count"] = [rows.shape[0] for rows in self.rows]
        made["row_bytes"] = self.row_bytes
        made["dim"] = self.dims
        made["out_at"], made["out_stride"] = self._layout(batch, layout)
        return torch.from_numpy(made.view(np.uint8).copy()).to(self.device)

    def out_shape(self, batch: int, layout: str = "sample") -> tuple[int, ...]:
        """Shape of the output for ``batch`` samples."""
        if layout == "sample":
            return batch, sum(self.dims)
        return len(self.dims), batch, self.dims[0]

    def _layout(self, batch: int, layout: str) -> tuple[list[int], list[int]]:
        tables = len(self.dims)
        if layout == "sample":
            starts = np.concatenate([[0], np.cumsum(self.dims)[:-1]])
            return starts.tolist(), [sum(self.dims)] * tables
        if layout != "table":
            raise BadInputError(f"layout {layout!r} of the bags is unknown.", "known: sample, table.")
        if len(set(self.dims)) > 1:
            raise BadInputError(
                f"tables of {sorted(set(self.dims))} columns cannot lie table by table.",
                "use layout 'sample'.",
            )
        return [table * batch * self.dims[0] for table in range(tables)], [self.dims[0]] * tables


def make_tables(rows: Sequence[Any], dims: Sequence[int] | None = None) -> DeviceTables:
    """Tables from torch tensors [E, D] of one type on one device.

    dims  number of columns D of each table, needed only for uint8 tensors, which are int8 rows
    Limits: no table, an empty table, mixed types or devices, rows that are not contiguous, fewer bytes than
            an int8 row needs, an unknown type -> BadInputError
    """
    import torch

    types = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.uint8: "int8"}
    if not rows:
        raise BadInputError("no table was given.", "give at least one.")
    found = {(table.dtype, table.device) for table in rows}
    if len(found) > 1 or rows[0].dtype not in types:
        raise BadInputError(
            f"tables of {sorted(str(kind) for kind, _ in found)} cannot be looked up together.",
            f"all must be one of {', '.join(map(str, types))}, on one device.",
        )
    dtype = types[rows[0].dtype]
    if (dtype == "int8") != (dims is not None):
        raise BadInputError("int8 rows need their number of columns, and others have it.", "see make_tables.")
    widths = tuple(dims) if dims is not None else tuple(table.shape[1] for table in rows)
    for index, (table, dim) in enumerate(zip(rows, widths, strict=True)):
        least = dim + INT8_TAIL_BYTES if dtype == "int8" else dim
        if table.ndim != 2 or 0 in table.shape or dim < 1 or table.shape[1] < least or table.stride(1) != 1:
            shape = f"shape {tuple(table.shape)} and strides {table.stride()}"
            raise BadInputError(
                f"table {index} of {shape} has no rows of {dim} columns.",
                "rows [E, D] are expected, with E and D at least 1 and the elements of a row contiguous.",
            )
    return DeviceTables(tuple(rows), widths, dtype)


def to_int8(rows: Any, multiple: int = 16) -> Any:
    """Rows [E, D] of floats as int8 rows: uint8 [E, row bytes], each row a multiple of ``multiple`` bytes.

        scale = (max - min) / 255,  bias = min,  byte = round((value - min) / scale)

    Source: FBGEMM's fused 8-bit row-wise quantisation (torch.ops.quantized.embedding_bag_byte_prepack)
    Limits: equal elements -> scale 1, bytes 0
    """
    import torch

    values = rows.float()
    low, high = values.min(1, keepdim=True).values, values.max(1, keepdim=True).values
    scale = (high - low) / 255
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    count, dim = values.shape
    row_bytes = -(-(dim + INT8_TAIL_BYTES) // multiple) * multiple
    made = torch.zeros(count, row_bytes, dtype=torch.uint8, device=rows.device)
    made[:, :dim] = ((values - low) / scale).round().clamp(0, 255).to(torch.uint8)
    made[:, dim : dim + 8] = torch.cat([scale, low], 1).contiguous().view(torch.uint8)
    return made
