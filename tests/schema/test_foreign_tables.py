"""Tables as TorchRec and FBGEMM write them: what is recognised changes the answer, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called, is_an_error

TABLES = Path(__file__).parent / "foreign_tables"


def project(name: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(called("project", "--model", str(TABLES / name), *words, "--json").out)
    return found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.yaml", ("'PoolingType.NONE': its rows are not pooled", "--pooling none:50")),
        ("sequence.yaml", ("'EmbeddingConfig': its rows are not pooled",)),
        ("nosuch.yaml", ("'PoolingType.MAX' is not known", "SUM, MEAN")),
        ("int4.yaml", ("'INT4' is not modelled: FBGEMM packs several elements",)),
        ("twofeat.yaml", ("2 features (clicked, bought), which share its rows", "the ids of all of them")),
        ("zch.yaml", ("total_num_buckets 10 is not modelled",)),
        ("virt.yaml", ("use_virtual_table True is not modelled",)),
        ("virt2.yaml", ("use_virtual_table True is not modelled",)),
    ],
)
def test_what_would_change_the_answer_and_is_not_modelled_is_refused(
    name: str, words: tuple[str, ...]
) -> None:
    outcome = called("project", "--model", str(TABLES / name), "--gpus", "8")
    is_an_error(outcome, 2, *words)
    assert "a table of its own" not in outcome.err


def test_names_of_types_are_torchrecs() -> None:
    """Rows of 128 elements: two tables of 2 bytes an element, and NFP8 of 1."""
    found = project("dt.yaml", "--gpus", "8")
    assert found["table_bytes"] == 2_000_000 * 128 * (2 + 2 + 1)


def test_sums_means_and_underscores_are_read() -> None:
    assert project("mean.yaml", "--gpus", "8")["table_bytes"] == 2 * 2_000_000 * 128 * 4
    assert project("underscores.yaml", "--gpus", "8")["table_bytes"] == 100_000 * 512 * 2 + 1e6 * 2048 * 4


@pytest.mark.parametrize(("name", "row_bytes", "rows"), [("int8.csv", 32, 4e9), ("fp16.csv", 16, 8e9)])
def test_rows_are_as_long_as_fbgemm_stores_them(name: str, row_bytes: int, rows: float) -> None:
    """int8: 16 elements and scale and bias, padded to 16 bytes; fp16: 4 elements, padded."""
    assert project(name)["table_bytes"] == row_bytes * rows
