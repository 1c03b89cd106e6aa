"""Heat maps of the slowdown over two values of the tables: batch and pooling, tables and dim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np

from perfmodel.answer import Answer, project_row_wise
from perfmodel.answer.inputs import GRIDS
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import heat_cells
from perfmodel.report.figures.registry import BATCHES, PAPER_1, PAPER_2, SHAPES, Figure
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import hover
from perfmodel.units import format_count, format_ratio, format_time

_NAMES = {"batch": "batch of each GPU", "pooling": "ids of a bag", "table_count": "tables", "dim": "dim"}
SCALE = [[0.0, "#fdf4e3"], [0.5, "#f3bf7d"], [1.0, "#d9772b"]]
"""Colours, all light enough for dark numbers."""
_STEPS = {"batch": (4.0, 1, 4), "pooling": (2.0, 2, 4), "table_count": (4.0, 1, 4), "dim": (2.0, 1, 4)}
"""Axes: the factor between values, the number of values below the question's, and of all."""
Cells = Mapping[tuple[float, float], Answer]


def batches(subject: Subject) -> Block | Missing:
    """The slowdown over the batch and the pooling, each cell the answer on top. Limits: as ``_draw_plane``"""
    return _draw_plane(BATCHES, subject, ("batch", "pooling"))


def shapes(subject: Subject) -> Block | Missing:
    """The slowdown over the number of tables and their dim. Limits: as ``_draw_plane``"""
    return _draw_plane(SHAPES, subject, ("table_count", "dim"))


def _draw_plane(named: Figure, subject: Subject, names: tuple[str, str]) -> Block | Missing:
    """A heat map of the slowdown, with the bytes of the tables and the GPUs of the answer.

    Limits: one GPU, or tables of a set -> Missing;  points that are impossible -> empty cells
    """
    answer = subject.answer
    if answer.gpus == 1:
        return named.missing("the tables fit on one GPU: ask for larger ones with --table-size.")
    if subject.base.question.model is not None:
        return named.missing("the tables of a set have their own pooling and dim.")
    question_values = {name: read_value(answer, name) for name in names}
    axes = [around(question_values[name], *_STEPS[name], whole=name != "pooling") for name in names]
    cells = _ask_cells(subject, names, axes)
    if not cells:
        return named.missing("no other value is covered by the calibration.")
    logs = [math.log10(cell.slowdown) for cell in cells.values()]
    columns, lines = ([_write(name, value) for value in axis] for name, axis in zip(names, axes, strict=True))
    heat = heat_cells(
        columns,
        lines,
        [[cells.get((x, y)) for x in axes[0]] for y in axes[1]],
        lambda cell: math.log10(cell.slowdown) if cell else None,
        lambda cell: format_ratio(cell.slowdown) if cell else "",
        lambda cell: _hover(cell, names) if cell else "not possible: fewer rows than GPUs, or no memory",
        colorscale=SCALE,
        zmin=min(logs),
        zmax=max(*logs, min(logs) + 0.01),
    )
    x, y = (axis.index(question_values[name]) for name, axis in zip(names, axes, strict=True))
    line = {"color": style.PALETTE[0], "width": 4}
    frame = {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": line}
    same = {"type": "category", "showgrid": False, "tickangle": 0}
    figure = style.new_figure(
        [heat],
        height=380,
        margin={"l": 72, "r": 24, "t": 36, "b": 56},
        xaxis=style.axis(_NAMES[names[0]], **same),
        yaxis=style.axis(_NAMES[names[1]], **same),
        shapes=[frame],
    )
    how = "Each cell is an answer in full; darker is slower. The framed cell is the question."
    return named.block(
        _entitle(cells, names), how, figure, subject.source, [_record(cell) for cell in cells.values()]
    )


def _ask_cells(subject: Subject, names: Sequence[str], axes: Sequence[Sequence[float]]) -> dict[Any, Answer]:
    fixed = subject.fix_setting(
        gpus=subject.answer.gpus, total=None, table_bytes=subject.answer.gpu_count.table_bytes
    )
    cells = {}
    for x in axes[0]:
        for y in axes[1]:
            values = {
                name: value if name == "pooling" else int(value)
                for name, value in zip(names, (x, y), strict=True)
            }
            with suppress(PerfmodelError):
                cell = fixed.ask(**values)
                if cell.fits:
                    cells[x, y] = cell
    return cells


def paper_1(subject: Subject) -> Block | Missing:
    """The paper's grid of one table, 192 points. Limits: as ``_draw_grid``"""
    return _draw_grid(PAPER_1, subject, ("batch", "pooling"), ("gpus", "dim"))


def paper_2(subject: Subject) -> Block | Missing:
    """The paper's grid of many tables, 168 points. Limits: as ``_draw_grid``"""
    return _draw_grid(PAPER_2, subject, ("table_count",), ("gpus", "batch", "dim"))


def _draw_grid(
    named: Figure, subject: Subject, across: tuple[str, ...], up: tuple[str, ...]
) -> Block | Missing:
    """A heat map of the slowdown of row-wise shards over a grid of arXiv 2512.05831, on the answer's machine.

    across, up  what differs between columns, and between rows
    Limits: ranks that the calibration does not cover -> Missing
    """
    keywords = {"setting": subject.answer.setting, "backend": subject.answer.setting.backend}
    try:
        frame = project_row_wise(GRIDS[named.name](), subject.answer.setting.machine, **keywords)
    except PerfmodelError as error:
        return named.missing(error.message)
    rows = frame.to_dict(orient="records")
    columns, lines = (
        list(dict.fromkeys(_join(row, names) for row in sorted(rows, key=itemgetter(*names))))
        for names in (across, up)
    )
    cells = {(_join(row, across), _join(row, up)): row for row in rows}
    heat = heat_cells(
        [column.replace(", ", "<br>") for column in columns],
        lines,
        [[cells.get((x, y)) for x in columns] for y in lines],
        lambda row: math.log10(row["slowdown"]) if row else None,
        lambda row: f"{row['slowdown']:.3g}×" if row else "",
        lambda row: _hover_grid(row, (*across, *up)) if row else "not possible",
        colorscale=SCALE,
    )
    same = {"type": "category", "showgrid": False, "tickangle": 0, "tickfont": {"size": 11}}
    ends = [end(rows, key=itemgetter("slowdown")) for end in (min, max)]
    least, most = (f"{format_ratio(row['slowdown'])} ({_join(row, (*across, *up))})" for row in ends)
    figure = style.new_figure(
        [heat],
        height=90 + 24 * len(lines),
        margin={"l": 24, "r": 16, "t": 36, "b": 56},
        meta={"min_width": 640},
        xaxis=style.axis("", **same),
        yaxis=style.axis("", **same),
    )
    return named.block(
        f"On the paper's grid {named.name[-1]}, sharded row-wise, the slowdown goes from {least} to {most}.",
        "The points that arXiv 2512.05831 measured on up to 8 GPUs, on this machine; darker is slower.",
        figure,
        subject.source,
        [_record_point(row) for row in rows],
    )


def _join(row: Mapping[Any, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{_SHORT[name]} {_write(name, float(row[name]))}" for name in names)


def _hover_grid(row: Mapping[Any, Any], names: Sequence[str]) -> str:
    low, high = (format_ratio(row[end]) for end in ("slowdown_low", "slowdown_high"))
    times = f"{format_ratio(row['slowdown'])}, band {low} – {high}; {format_time(row['time_s'])}"
    return hover([_join(row, names), times, f"evidence: {row['evidence']}"])


def _record_point(row: Mapping[Any, Any]) -> dict[str, Any]:
    names = ("gpus", *_NAMES, "time_s", "slowdown", "slowdown_low", "slowdown_high")
    return {**{name: float(row[name]) for name in names}, "evidence": str(row["evidence"])}


def read_value(answer: Answer, name: str) -> float:
    """The value of ``name`` in the question: batch, pooling, table_count or dim."""
    group = answer.work.groups[0]
    columns = {"pooling": group.pooling, "table_count": group.count, "dim": group.dim}
    column = answer.work.batch if name == "batch" else columns[name]
    return float(np.asarray(column).flat[0])


def around(value: float, factor: float, below: int, count: int, *, whole: bool) -> list[float]:
    """``count`` values around ``value``, each ``factor`` times the value before.

    below   how many of them are smaller than ``value``;  whole  whether these must be whole numbers
    Limits: a smaller value would be below 1, or not whole -> another larger value instead
    """
    smaller = [value / factor**k for k in range(below, 0, -1)]
    possible = [v for v in smaller if v >= 1 and (not whole or v.is_integer())]
    return [*possible, *(value * factor**k for k in range(count - len(possible)))]


def _write(name: str, value: float) -> str:
    return f"{value:g}" if name == "pooling" else format_count(value)


def _describe(cell: Answer, names: Sequence[str]) -> str:
    return ", ".join(f"{_SHORT[name]} {_write(name, read_value(cell, name))}" for name in names)


_SHORT = {"gpus": "GPUs", "batch": "batch", "pooling": "pooling", "table_count": "tables", "dim": "dim"}


def _hover(cell: Answer, names: Sequence[str]) -> str:
    low, high = map(format_ratio, cell.band)
    return hover(
        [
            f"{_describe(cell, names)}: {cell.sharding}",
            f"{format_ratio(cell.slowdown)}, band {low} – {high}; {format_time(cell.time_s)}",
            f"evidence: {cell.main_evidence}",
        ]
    )


def _entitle(cells: Cells, names: Sequence[str]) -> str:
    ends = [end(cells.values(), key=lambda cell: cell.slowdown) for end in (min, max)]
    least, most = (f"{format_ratio(cell.slowdown)} ({_describe(cell, names)})" for cell in ends)
    return f"The slowdown goes from {least} to {most}."


def _record(cell: Answer) -> dict[str, Any]:
    low, high = cell.band
    return {
        "table_bytes": cell.gpu_count.table_bytes,
        "gpus": cell.gpus,
        **{name: read_value(cell, name) for name in _NAMES},
        "sharding": cell.sharding,
        "time_s": cell.time_s,
        "slowdown": cell.slowdown,
        "slowdown_low": low,
        "slowdown_high": high,
        "evidence": str(cell.evidence),
    }
