"""Heat maps of the slowdown: over values of the tables, and over the paper's grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from operator import itemgetter
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.sweep import GRIDS, prepare
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.figures.chart import (
    PALETTE,
    Axis,
    Block,
    Figure,
    Row,
    Trace,
    name_axis,
    new_figure,
    write_hover,
)
from perfmodel.report.figures.subject import Subject, project_rows
from perfmodel.units import format_count, format_ratio

_NAMES = {"batch": "batch", "pooling": "pooling", "table_count": "tables", "dim": "dim", "gpus": "GPUs"}
_COLUMNS = (*_NAMES, "sharding", "time_s", "slowdown", "slowdown_low", "slowdown_high", "evidence")
_SLOWDOWN = Axis("slowdown", "", "×", ("slowdown_low", "slowdown_high"))
SCALE = [[0.0, "#fdf4e3"], [0.5, "#f3bf7d"], [1.0, "#d9772b"]]
"""Colours, all light enough for dark numbers."""
NUMBERS = "#1a1a1a"
"""Colour of the numbers in the cells."""
_AROUND = {"batch": (4, 1), "pooling": (2, 2), "table_count": (4, 1), "dim": (2, 1)}
"""Of each value: the factor between cells, and the number of cells below the question's."""
_PAPER = {
    "paper-1": (("batch", "pooling"), ("gpus", "dim")),
    "paper-2": (("table_count",), ("gpus", "batch", "dim")),
}


def draw_shapes(subject: Subject) -> Block:
    """The slowdown over batch and pooling, and over the number of tables and their dim: the answer on top.

    Each cell has the bytes of the tables and the GPUs of the answer.
    Limits: one GPU, or tables of a set -> BadInputError;  points that are impossible -> no cell
    """
    answer = subject.answer
    if answer.gpus == 1:
        raise BadInputError("the tables fit on one GPU: ask for larger ones with --table-size.")
    if subject.base.question.model is not None:
        raise BadInputError("the tables of a set have their own pooling and dim.")
    fixed = subject.fix_setting(gpus=answer.gpus, total=None, table_bytes=answer.gpu_count.table_bytes)
    point = _describe_answer(answer)
    maps: list[Trace] = []
    frames = []
    data: list[Row] = []
    for place, names in enumerate((("batch", "pooling"), ("table_count", "dim"))):
        rows = []
        for values in product(*(list_around(point[name], name) for name in names)):
            with suppress(PerfmodelError):
                cell = fixed.ask(**dict(zip(names, values, strict=True)))
                rows += [_describe_answer(cell)] if cell.fits else []
        maps.append(_draw_map(rows, names[:1], names[1:], place))
        column = maps[-1]["x"].index(_label(point, names[:1]))
        line = maps[-1]["y"].index(_label(point, names[1:]))
        frames.append(
            {
                "type": "rect", "xref": name_axis("x", place), "yref": name_axis("y", place),
                "x0": column - 0.5, "x1": column + 0.5, "y0": line - 0.5, "y1": line + 0.5,
                "line": {"color": PALETTE[0], "width": 4},
            }
        )  # fmt: skip
        data += rows
    figure = _draw_maps(maps, 320, shapes=frames, meta={"min_width": 560})
    how = "Each cell is an answer in full; darker is slower. The framed cells are the question."
    title = f"With other batches and tables the slowdown goes from {_name_ends(data, tuple(_AROUND))}."
    return Block("shapes", title, how, figure, subject.source, data)


def draw_grids(subject: Subject) -> Block:
    """The slowdown of row-wise shards over the two grids of arXiv 2512.05831, on the answer's machine.

    Limits: ranks that the calibration does not cover -> NoCalibrationError
    """
    setting = subject.answer.setting
    maps: list[Trace] = []
    data: list[Row] = []
    for place, (name, (across, up)) in enumerate(_PAPER.items()):
        values = GRIDS[name]()
        rows = project_rows(values, *prepare(values, setting.machine, setting=setting))
        maps.append(_draw_map(rows, across, up, place))
        data += [{"grid": name, **{key: row[key] for key in _COLUMNS if key in row}} for row in rows]
    figure = _draw_maps(maps, 90 + 24 * len(maps[1]["y"]), meta={"min_width": 1000})
    names = ("gpus", "table_count", "batch", "pooling", "dim")
    title = f"Over the paper's two grids, sharded row-wise, the slowdown goes from {_name_ends(data, names)}."
    how = (
        "The 192 and 168 points that arXiv 2512.05831 measured on up to 8 GPUs, on this machine; darker is "
        "slower. The paper prints no slowdown of a point."
    )
    return Block("paper-grids", title, how, figure, subject.source, data)


def list_around(value: float, name: str) -> list[float]:
    """Up to four values around ``value`` of an axis, each a factor times the one before.

    Limits: a value below 1 -> 1;  fractions -> whole numbers, except for ``value`` itself
    """
    factor, below = _AROUND[name]
    powers = range(-below, 4 - below)
    return sorted({value if power == 0 else max(round(value * factor**power), 1) for power in powers})


def _describe_answer(answer: Answer) -> Row:
    """A row of the figure's data, in SI units."""
    tables = answer.work.tables
    columns = {
        "batch": answer.work.batch, "pooling": tables.pooling, "table_count": tables.count, "dim": tables.dim,
    }  # fmt: skip
    values: dict[str, object] = {name: float(column.flat[0]) for name, column in columns.items()}
    values |= answer.totals | {"sharding": answer.sharding, "evidence": str(answer.evidence)}
    return {name: values[name] for name in _COLUMNS if name in values}


def _draw_map(rows: Sequence[Row], across: Sequence[str], up: Sequence[str], place: int) -> Trace:
    """A plotly heat map of the slowdown. across, up  names of the values along its axes;  place  its pane"""
    columns = list(dict.fromkeys(_label(row, across) for row in sorted(rows, key=itemgetter(*across))))
    lines = list(dict.fromkeys(_label(row, up) for row in sorted(rows, key=itemgetter(*up))))
    cells = {(_label(row, up), _label(row, across)): row for row in rows}
    table = [[cells.get((line, column)) for column in columns] for line in lines]
    logs = [math.log10(row["slowdown"]) for row in rows]

    def describe(row: Row) -> str:
        words = ": ".join(filter(None, (_join(row, (*across, *up)), row.get("sharding", ""))))
        return write_hover({"evidence": row["evidence"]}, words, _SLOWDOWN.describe(row))

    return {
        "type": "heatmap", "x": [column.replace(", ", "<br>") for column in columns], "y": lines,
        "colorscale": SCALE, "showscale": False,
        "xaxis": name_axis("x", place), "yaxis": name_axis("y", place),
        "z": [[math.log10(row["slowdown"]) if row else None for row in line] for line in table],
        "text": [[format_ratio(row["slowdown"]) if row else "" for row in line] for line in table],
        "hovertext": [[describe(row) if row else "" for row in line] for line in table],
        "zmin": min(logs), "zmax": max(*logs, min(logs) + 0.01), "hoverinfo": "text",
        "texttemplate": "%{text}", "textfont": {"color": NUMBERS}, "xgap": 2, "ygap": 2,
        "meta": {side: ", ".join(_NAMES[name] for name in few) for side, few in (("x", across), ("y", up))},
    }  # fmt: skip


def _draw_maps(maps: Sequence[Trace], height: int, **layout: Any) -> Figure:
    """A plotly figure of heat maps side by side; ``meta`` of a map has the titles of its axes."""
    shared = {"type": "category", "showgrid": False, "tickangle": 0, "tickfont": {"size": 11}}
    axes: Figure = {
        f"{letter}axis{heat[letter + 'axis'][1:]}": {"title": {"text": heat["meta"][letter]}, **shared}
        for heat in maps
        for letter in "xy"
    }
    grid = {"rows": 1, "columns": len(maps), "pattern": "independent", "xgap": 0.25}
    margin = {"l": 24, "r": 16, "t": 36, "b": 56}
    return new_figure(maps, height=height, margin=margin, grid=grid, **axes, **layout)


def _name_ends(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The least and the most slowdown: ``2.00× (batch 128) to 40.0× (batch 4 096)``."""
    ends = [end(rows, key=itemgetter("slowdown")) for end in (min, max)]
    return " to ".join(f"{format_ratio(row['slowdown'])} ({_join(row, names)})" for row in ends)


def _join(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{_NAMES[name]} {_label(row, [name])}" for name in names)


def _label(row: Row, names: Sequence[str]) -> str:
    return ", ".join(f"{row[n]:g}" if n == "pooling" else format_count(row[n]) for n in names)
