"""A table of results, declared once: what its screen, its JSON and its CSV have of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from perfmodel.report.terminal import table

Getter = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """What a table says of a row under one head.

    head, text  on a screen, "" of a column that a screen does not have;  left  whether it is aligned left
    goes   its turn to go where a terminal is narrow, 1 first; 0: it stays
    data   values of the row by their keys in JSON and CSV, in SI units;  total  under the last row
    """

    head: str = ""
    text: Callable[[Any], str] | None = None
    left: bool = False
    goes: int = 0
    data: Mapping[str, Getter] = field(default_factory=dict)
    total: str = ""


def columns_text(columns: Iterable[Column], rows: Iterable[Any]) -> str:
    """The rows as a screen has them, with totals if a column has one."""
    shown = [each for each in columns if each.text is not None]
    heads, cells = columns_cells(shown, rows)
    if any(each.total for each in shown):
        cells.append([each.total for each in shown])
    turns = sorted((each.goes, at) for at, each in enumerate(shown) if each.goes)
    left = [at for at, each in enumerate(shown) if each.left]
    return table(heads, cells, left=left, drop=[at for _, at in turns])


def columns_cells(columns: Iterable[Column], rows: Iterable[Any]) -> tuple[list[str], list[list[str]]]:
    """Heads, and the texts of each row: of a screen and of a page."""
    shown = [(each.head, each.text) for each in columns if each.text is not None]
    return [head for head, _ in shown], [[text(row) for _, text in shown] for row in rows]


def columns_record(columns: Iterable[Column], row: Any) -> dict[str, Any]:
    """One row as plain data."""
    return {key: value(row) for each in columns for key, value in each.data.items()}


def attributes(*names: str, of: str = "") -> dict[str, Getter]:
    """``data`` of a column whose keys are attributes of the row, or of its attribute ``of``."""
    return {name: attrgetter(f"{of}.{name}" if of else name) for name in names}
