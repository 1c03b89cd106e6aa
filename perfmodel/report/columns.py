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
    """A column of a table.

    head, text  on the screen; text None: not on the screen;  left  whether it is aligned left
    goes   order in which columns are dropped on a narrow terminal, 1 first; 0: it stays
    data   values of a row by their keys in JSON and CSV, in SI units;  total  text below the last row
    """

    head: str = ""
    text: Callable[[Any], str] | None = None
    left: bool = False
    goes: int = 0
    data: Mapping[str, Getter] = field(default_factory=dict)
    total: str = ""


def columns_text(columns: Iterable[Column], rows: Iterable[Any]) -> str:
    """The rows as a table for the terminal, with totals if a column has one."""
    shown = [each for each in columns if each.text is not None]
    heads, cells = columns_cells(shown, rows)
    if any(each.total for each in shown):
        cells.append([each.total for each in shown])
    turns = sorted((each.goes, at) for at, each in enumerate(shown) if each.goes)
    left = [at for at, each in enumerate(shown) if each.left]
    return table(heads, cells, left=left, drop=[at for _, at in turns])


def columns_cells(columns: Iterable[Column], rows: Iterable[Any]) -> tuple[list[str], list[list[str]]]:
    """The heads, and the texts of each row, for a terminal or a page."""
    shown = [(each.head, each.text) for each in columns if each.text is not None]
    return [head for head, _ in shown], [[text(row) for _, text in shown] for row in rows]


def columns_record(columns: Iterable[Column], row: Any) -> dict[str, Any]:
    """A row as plain data."""
    return {key: value(row) for each in columns for key, value in each.data.items()}


def attributes(*names: str, of: str = "") -> dict[str, Getter]:
    """``data`` for keys that are attributes of the row, or of its attribute ``of``."""
    return {name: attrgetter(f"{of}.{name}" if of else name) for name in names}
