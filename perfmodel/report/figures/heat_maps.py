"""Heat maps of the slowdown: over values of the tables, and over the paper's grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np

from perfmodel.answer import Answer
from perfmodel.answer.sweep import GRIDS
from perfmodel.errors import PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import split_panes
from perfmodel.report.figures.registry import PAPER_GRIDS, SHAPES
from perfmodel.report.figures.subject import Subject, project_rows
from perfmodel.report.figures.words import hover
from perfmodel.units import format_count, format_ratio, format_time

Row = Mapping[str, Any]
_NAMES = {"batch": "batch", "pooling": "ids of a bag", "table_count": "tables", "dim": "dim", "gpus": "GPUs"}
SCALE = [[0.0, "#fdf4e3"], [0.5, "#f3bf7d"], [1.0, "#d9772b"]]
"""Colours, all light enough for dark numbers."""
NUMBERS = "#1a1a1a"
"""Colour of the text in the cells, which are all light."""
_STEPS = {"batch": (4.0, 1), "pooling": (2.0, 2), "table_count": (4.0, 1), "dim": (2.0, 1)}
"""Axes: the factor between values, and the number of values below the question's."""
_VALUES = 4


def draw_shapes(subject: Subject) -> Block | Missing:
    """The slowdown over batch and pooling, and over the number of tables and their dim: the answer on top.

    Each cell has the bytes of the tables and the GPUs of the answer.
    Limits: one GPU, or tables of a set -> Missing;  points that are impossible -> empty cells
    """
    answer = subject.answer
    if answer.gpus == 1:
        return SHAPES.missing("the tables fit on one GPU: ask for larger ones with --table-size.")
    if subject.base.question.model is not None:
        return SHAPES.missing("the tables of a set have their own pooling and dim.")
    values = {name: read_value(answer, name) for name in _STEPS}
    maps, frames, data = [], [], []
    for place, names in enumerate((("batch", "pooling"), ("table_count", "dim"))):
        axes = [list_around(values[name], *_STEPS[name], whole=name != "pooling") for name in names]
        rows = _ask_rows(subject, names, axes)
        data += rows
        columns, lines = (
            [_write(name, value) for value in axis] for name, axis in zip(names, axes, strict=True)
        )
        cells = {(_write(names[0], row[names[0]]), _write(names[1], row[names[1]])): row for row in rows}
        maps.append(_draw_map(cells, columns, lines, names))
        x, y = (axis.index(values[name]) for name, axis in zip(names, axes, strict=True))
        number = "" if place == 0 else str(place + 1)
        frames.append(
            {
                "type": "rect", "xref": f"x{number}", "yref": f"y{number}", "x0": x - 0.5, "x1": x + 0.5,
                "y0": y - 0.5, "y1": y + 0.5, "line": {"color": style.PALETTE[0], "width": 4},
            }
        )  # fmt: skip
    figure = _draw_maps(
        maps,
        [("batch of each GPU", "ids of a bag"), ("tables", "dim")],
        320,
        shapes=frames,
        meta={"min_width": 560},
    )
    how = "Each cell is an answer in full; darker is slower. The framed cells are the question."
    title = f"With other batches and tables the slowdown goes from {_name_ends(data, tuple(_STEPS))}."
    return SHAPES.block(title, how, figure, subject.source, data)


def draw_grids(subject: Subject) -> Block | Missing:
    """The slowdown of row-wise shards over the two grids of arXiv 2512.05831, on the answer's machine.

    Limits: ranks that the calibration does not cover -> Missing
    """
    setting = subject.answer.setting
    layouts = {
        "paper-1": (("batch", "pooling"), ("gpus", "dim")),
        "paper-2": (("table_count",), ("gpus", "batch", "dim")),
    }
    maps, titles, data, height = [], list[tuple[str, ...]](), [], 0
    for name, (across, up) in layouts.items():
        try:
            rows = project_rows(GRIDS[name](), setting.machine, setting=setting, backend=setting.backend)
        except PerfmodelError as error:
            return PAPER_GRIDS.missing(error.message)
        columns, lines = (
            list(dict.fromkeys(_label(row, names) for row in sorted(rows, key=itemgetter(*names))))
            for names in (across, up)
        )
        cells = {(_label(row, across), _label(row, up)): row for row in rows}
        maps.append(_draw_map(cells, columns, lines, (*across, *up)))
        titles.append(tuple(", ".join(_NAMES[name] for name in names) for names in (across, up)))
        data += [{"grid": name, **_record(row)} for row in rows]
        height = max(height, 90 + 24 * len(lines))
    figure = _draw_maps(maps, titles, height, 10, meta={"min_width": 1000})
    names = ("gpus", "table_count", "batch", "pooling", "dim")
    return PAPER_GRIDS.block(
        f"Over the paper's two grids, sharded row-wise, the slowdown goes from {_name_ends(data, names)}.",
        "The 192 and 168 points that arXiv 2512.05831 measured on up to 8 GPUs, on this machine; darker is "
        "slower. The paper prints no slowdown of a point.",
        figure,
        subject.source,
        data,
    )


def _ask_rows(
    subject: Subject, names: Sequence[str], axes: Sequence[Sequence[float]]
) -> list[dict[str, Any]]:
    """The answers that are possible, for all pairs of values of two axes, as rows of data."""
    gpus, table_bytes = subject.answer.gpus, subject.answer.gpu_count.table_bytes
    fixed = subject.fix_setting(gpus=gpus, total=None, table_bytes=table_bytes)
    rows = []
    for x in axes[0]:
        for y in axes[1]:
            values = dict(zip(names, (x, y), strict=True))
            with suppress(PerfmodelError):
                answer = fixed.ask(**{k: v if k == "pooling" else int(v) for k, v in values.items()})
                shape = {name: read_value(answer, name) for name in _STEPS}
                rows += [_record({**answer.totals, **shape, "sharding": answer.sharding,
                                  "evidence": str(answer.evidence)})] if answer.fits else []  # fmt: skip
    return rows


def _record(row: Row) -> dict[str, Any]:
    names = (*_NAMES, "sharding", "time_s", "slowdown", "slowdown_low", "slowdown_high", "evidence")
    return {name: row[name] for name in names if name in row}


def _draw_map(
    cells: Mapping[tuple[str, str], dict[str, Any]],
    columns: Sequence[str],
    lines: Sequence[str],
    names: Sequence[str],
) -> dict[str, Any]:
    """A plotly heat map of the slowdown. cells  by the labels of their column and line"""
    rows = [[cells.get((column, line)) for column in columns] for line in lines]
    logs = [math.log10(row["slowdown"]) for row in cells.values()] or [0.0]
    return {
        "type": "heatmap", "x": [column.replace(", ", "<br>") for column in columns], "y": list(lines),
        "z": [[math.log10(row["slowdown"]) if row else None for row in line] for line in rows],
        "text": [[format_ratio(row["slowdown"]) if row else "" for row in line] for line in rows],
        "hovertext": [[_describe_cell(row, names) if row else _IMPOSSIBLE for row in line] for line in rows],
        "zmin": min(logs), "zmax": max(*logs, min(logs) + 0.01), "colorscale": SCALE, "showscale": False,
        "hoverinfo": "text", "texttemplate": "%{text}", "textfont": {"color": NUMBERS}, "xgap": 2, "ygap": 2,
    }  # fmt: skip


_IMPOSSIBLE = "not possible: fewer rows than GPUs, or no memory"


def _draw_maps(
    maps: Sequence[dict[str, Any]], titles: Sequence[Sequence[str]], height: float, font: int = 12,
    **layout: Any,
) -> Any:  # fmt: skip
    """A plotly figure of heat maps side by side. titles  of the axes of each;  font  of their ticks"""
    shared = {"type": "category", "showgrid": False, "tickangle": 0, "tickfont": {"size": font}}
    columns = [style.axis(x, **shared) for x, _ in titles]
    rows = [[style.axis(y, **shared) for _, y in titles]]
    traces = [{**heat, **_place(number)} for number, heat in enumerate(maps)]
    margin = {"l": 24, "r": 16, "t": 36, "b": 56}
    return style.new_figure(
        traces, height=height, **{"margin": margin, **split_panes(columns, rows, gaps=(0.12, 0)), **layout}
    )


def _place(number: int) -> dict[str, str]:
    return {"xaxis": "x", "yaxis": "y"} if number == 0 else {"xaxis": "x2", "yaxis": "y2"}


def _describe_cell(row: Row, names: Sequence[str]) -> str:
    middle, low, high = map(format_ratio, (row["slowdown"], row["slowdown_low"], row["slowdown_high"]))
    return hover(
        [
            ": ".join(filter(None, (_join(row, names), row.get("sharding", "")))),
            f"{middle}, band {low} – {high}; {format_time(row['time_s'])}",
            f"evidence: {row['evidence']}",
        ]
    )


def _name_ends(rows: Iterable[Row], names: Sequence[str]) -> str:
    """The least and the most slowdown: ``2.00× (batch 128) to 40.0× (batch 4 096)``."""
    ends = [end(rows, key=itemgetter("slowdown")) for end in (min, max)]
    low_words, high_words = (f"{format_ratio(row['slowdown'])} ({_join(row, names)})" for row in ends)
    return f"{low_words} to {high_words}"


def _join(row: Row, names: Sequence[str]) -> str:
    short = {**_NAMES, "pooling": "pooling"}
    return ", ".join(f"{short[name]} {_write(name, float(row[name]))}" for name in names)


def _label(row: Row, names: Sequence[str]) -> str:
    return ", ".join(_write(name, float(row[name])) for name in names)


def _write(name: str, value: float) -> str:
    return f"{value:g}" if name == "pooling" else format_count(value)


def read_value(answer: Answer, name: str) -> float:
    """The value of ``name`` in the question: batch, pooling, table_count or dim."""
    tables = answer.work.tables
    columns = {"pooling": tables.pooling, "table_count": tables.count, "dim": tables.dim}
    column = answer.work.batch if name == "batch" else columns[name]
    return float(np.asarray(column).flat[0])


def list_around(value: float, factor: float, below: int, *, whole: bool) -> list[float]:
    """Four values around ``value``, each ``factor`` times the value before.

    below   how many of them are smaller than ``value``;  whole  whether these must be whole numbers
    Limits: a smaller value would be below 1, or not whole -> another larger value instead
    """
    smaller = [value / factor**k for k in range(below, 0, -1)]
    possible = [v for v in smaller if v >= 1 and (not whole or v.is_integer())]
    return [*possible, *(value * factor**k for k in range(_VALUES - len(possible)))]
