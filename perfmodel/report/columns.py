"""Columns of a table, each declared once for the screen, JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from perfmodel.report.terminal import table

Getter = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column of a table, on the screen and in files.

    head   its heading on the screen
    text   returns the text of a row for the screen; None: the column is only in files
    left   whether its texts are aligned left
    goes   order in which columns are left out on a narrow terminal, 1 first; 0: it is always shown
    data   by key in JSON and CSV, a function that returns the value of a row in SI units
    total  the text below the last row
    """

    head: str = ""
    text: Callable[[Any], str] | None = None
    left: bool = False
    goes: int = 0
    data: Mapping[str, Getter] = field(default_factory=dict)
    total: str = ""


def columns_text(columns: Iterable[Column], rows: Iterable[Any]) -> str:
    """The rows as a table, as wide as the page allows; with a last line of totals if a column has a total."""
    shown = [(column, column.text) for column in columns if column.text is not None]
    cells = [[text(row) for _, text in shown] for row in rows]
    if any(column.total for column, _ in shown):
        cells.append([column.total for column, _ in shown])
    turns = sorted((column.goes, place) for place, (column, _) in enumerate(shown) if column.goes)
    left = [place for place, (column, _) in enumerate(shown) if column.left]
    return table([column.head for column, _ in shown], cells, left=left, drop=[place for _, place in turns])


def columns_record(columns: Iterable[Column], row: object) -> dict[str, object]:
    """The values of a row by their keys in JSON and CSV, over all columns."""
    return {key: value(row) for column in columns for key, value in column.data.items()}


def attributes(*names: str, of: str = "") -> dict[str, Getter]:
    """Functions for ``Column.data`` that read attributes of a row; each attribute's name is its key.

    of  the row's attribute to read them from (``of="totals"``: ``row.totals.NAME``); "": the row itself
    """
    return {name: attrgetter(f"{of}.{name}" if of else name) for name in names}
