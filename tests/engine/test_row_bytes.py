"""Bytes of rows as FBGEMM stores them: int8 with scale and bias in each row, inference rows padded."""

from __future__ import annotations

import pytest

from perfmodel.answer import project_one
from perfmodel.engine.tables import row_bytes
from perfmodel.schema.workload import DTYPES, Table, TableSet

BOX = "h100-sxm-ib"


@pytest.mark.parametrize(
    ("dtype", "dim", "inferred", "trained"),
    [
        ("int8", 16, 32, 24),  # 16 + 4 padded to 16; 16 + 8
        ("int8", 32, 48, 40),
        ("int8", 64, 80, 72),
        ("int8", 128, 144, 136),
        ("int8", 12, 16, 20),  # 12 + 4 need no padding
        ("fp8", 32, 32, 32),  # FBGEMM's floats of 8 bits have no scale in their rows
        ("fp8", 4, 16, 4),
        ("fp16", 4, 16, 8),
        ("fp16", 64, 128, 128),
        ("bf16", 4, 8, 8),  # which its inference kernels do not know
        ("fp32", 4, 16, 16),
        ("fp64", 4, 32, 32),
    ],
)
def test_rows_of_fbgemm(dtype: str, dim: int, inferred: int, trained: int) -> None:
    code = DTYPES.index(dtype)
    assert row_bytes(code, dim, training=False) == inferred
    assert row_bytes(code, dim, training=True) == trained


def tables(dtype: str, dim: int, rows: int) -> TableSet:
    return TableSet("ads", (Table("ads", rows, dim, 20.0, dtype),))


def test_int8_rows_take_the_gpus_that_they_take_in_memory() -> None:
    """4 10^9 rows of 16: 64 GB of elements, 128 GB of rows, 96 GB if they are trained without state."""
    narrow = tables("int8", 16, 4_000_000_000)
    answer = project_one(tables=narrow)
    assert (answer.gpus, answer.gpu_count.table_bytes) == (2, 128e9)
    trained = project_one(tables=narrow, objective="throughput", optimizer="sgd")
    assert (trained.gpus, trained.gpu_count.table_bytes) == (2, 96e9)


def test_a_table_size_is_filled_with_whole_rows() -> None:
    """480 GB are 10^10 rows of 32 int8, not 1.5 10^10."""
    answer = project_one(table_bytes=480e9, dtype="int8", dim=32)
    assert answer.work.tables.rows[0, 0] == 1e10
    trained = project_one(table_bytes=400e9, dtype="int8", dim=32, objective="throughput")
    assert trained.work.tables.rows[0, 0] == 1e10
