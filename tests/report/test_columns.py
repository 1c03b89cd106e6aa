"""A table that is declared once: its screen and its data have the same rows and the same values."""

from __future__ import annotations

import pytest

from perfmodel.report.columns import Column, columns_record, columns_text

ROWS = [("a", 1.0, "first"), ("b", 2.0, "second")]
COLUMNS = (
    Column("name", lambda row: row[0], left=True, data={"name": lambda row: row[0]}),
    Column(
        "size", lambda row: f"{row[1]:.1f} GB", goes=2, total="3.0 GB", data={"bytes": lambda row: row[1]}
    ),
    Column("remark", lambda row: row[2] * 5, left=True, goes=1),
    Column(data={"twice": lambda row: 2 * row[1]}),
)


def test_a_screen_has_heads_rows_and_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    head, first, second, total = columns_text(COLUMNS, ROWS).splitlines()
    assert head.split() == ["name", "size", "remark"] and first.split()[:2] == ["a", "1.0"]
    assert second.startswith(" b") and total.split() == ["3.0", "GB"]
    assert first.index("1.0 GB") == second.index("2.0 GB") == total.index("3.0 GB")


def test_what_goes_first_is_named_below(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(name, size, "word" + "x" * 50) for name, size, _ in ROWS]
    columns = [*COLUMNS[:2], Column("remark", lambda row: row[2], left=True, goes=1)]
    monkeypatch.setenv("COLUMNS", "50")
    text = columns_text(columns, rows)
    assert "wordx" not in text and "1.0 GB" in text and "remark" in text.splitlines()[-1]


def test_data_has_every_key_in_the_order_of_the_columns() -> None:
    assert columns_record(COLUMNS, ROWS[1]) == {"name": "b", "bytes": 2.0, "twice": 4.0}
    assert list(columns_record(COLUMNS, ROWS[0])) == ["name", "bytes", "twice"]
