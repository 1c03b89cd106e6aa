"""Charts: rows of data, marks, and axes that are declared once; a figure adds its sentence."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from perfmodel.report.figures import style
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_count, format_number, format_rate, format_ratio, format_time

Row = Mapping[str, Any]
"""A point of a figure: its values in SI units, by column."""
Trace = dict[str, Any]
"""Plotly's description of marks."""


def format_size(size: float) -> str:
    """A memory size: ``20.5 GB``."""
    return format_bytes(size, binary=False)


def escape_text(text: str) -> str:
    """The text with < > & escaped, because figures interpret tags; for text from files."""
    return html.escape(text, quote=False)


def join_lines(lines: Iterable[str]) -> str:
    """The lines joined for hover text; empty lines are left out."""
    return "<br>".join(filter(None, lines))


def name_library(backend: str) -> str:
    """A library's name in text: ``nccl`` -> ``NCCL``."""
    return {"gloo": "Gloo"}.get(backend, backend.upper())


def name_collective(collective: str) -> str:
    """A collective's name in text: ``all_to_all`` -> ``all-to-all``."""
    return collective.replace("_", "-")


_WRITE: dict[str, Callable[[float], str]] = {
    "s": format_time, "B": format_size, "KiB": format_bytes, "B/s": format_rate, "×": format_ratio,
    "count": format_count, "number": format_number, "%": lambda value: f"{value:+.3g} %", "name": str,
}  # fmt: skip
"""By unit, how a value is written. KiB  of the sizes of messages, which double"""
_LINEAR: dict[str, Mapping[str, Any]] = {
    "%": {"zeroline": True},
    "name": {"autorange": "reversed", "showgrid": False},
}
"""By unit, plotly's settings of an axis that is not logarithmic."""
_OCTAVES = [2.0**power for power in range(0, 51, 10)]
_NO_ZEROS = re.compile(r"\.0+(?!\d)|(\.\d*[1-9])0+(?!\d)")
_MARKS = {"ticks": "outside", "tickcolor": style.MARK}


def list_ticks(low: float, high: float) -> list[float]:
    """Round values for the labels of a logarithmic axis, as many as have room.

    Limits: more than three decades -> one for each;  less than one -> seven
    """
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades <= 3 else (1,)
    return _list_steps(low, high, (1, 1.5, 2, 3, 4, 5, 7) if decades < 1 else steps)


def _list_steps(low: float, high: float, steps: Iterable[float]) -> list[float]:
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [float(f"{step}e{power}") for power in powers for step in steps]


@dataclass(frozen=True)
class Axis:
    """An axis: a column of the data, a title, and a unit of ``_WRITE``.

    ends  columns of the 95 % band; (): without a band
    """

    column: str
    title: str
    unit: str
    ends: tuple[str, ...] = ()

    def set_up(self, values: Sequence[float]) -> dict[str, Any]:
        """Plotly's settings of the axis. values  of all points and ends of bands on it"""
        if self.unit in _LINEAR:
            return style.axis(self.title, **_LINEAR[self.unit])
        write, ends = _WRITE[self.unit], (min(values), max(values))
        look: dict[str, Any] = {"type": "log", **_MARKS, "ticklen": 7, "tickvals": _OCTAVES}
        if self.unit != "KiB":
            look["tickvals"] = list_ticks(*ends)
            look["minor"] = {**_MARKS, "ticklen": 4, "tickvals": _list_steps(*ends, range(1, 10))}
        look["ticktext"] = [_NO_ZEROS.sub(r"\1", write(value)) for value in look["tickvals"]]
        return style.axis(self.title, **look)

    def read(self, row: Row) -> tuple[Any, Any, Any]:
        """The value of a point and both ends of its band. Limits: without a band -> the value thrice"""
        value = row[self.column]
        low, high = (row.get(name) for name in self.ends or ("", ""))
        return value, value if low is None else low, value if high is None else high

    def describe(self, row: Row) -> str:
        """The value of a point in words, with its band if it has one."""
        write, (value, low, high) = _WRITE[self.unit], self.read(row)
        return write(value) + (f", band {write(low)} – {write(high)}" if low != high else "")


def place_panes(traces: Sequence[Trace], xs: Sequence[Axis], ys: Sequence[Axis]) -> Trace:
    """Plotly's layout of panes in columns and rows that share their axes. traces  that are drawn in them"""
    axes: Trace = {"grid": {"rows": len(ys), "columns": len(xs), "pattern": "coupled"}}
    for letter, row in (("x", xs), ("y", ys)):
        for place, axis in enumerate(row):
            name = f"{letter}{_name_axis(place)}"
            drawn = [trace for trace in traces if trace[f"{letter}axis"] == name]
            values = [value for trace in drawn for value in trace[letter] if value]
            axes[f"{letter}axis{_name_axis(place)}"] = axis.set_up(values)
    return axes


def _name_axis(place: int) -> str:
    return "" if place == 0 else str(place + 1)


def draw_marks(
    rows: Sequence[Row],
    x: Axis,
    y: Axis,
    number: int,
    pane: tuple[int, int] = (0, 0),
    about: Callable[[Row], str] | None = None,
    **more: Any,
) -> Trace:
    """A plotly trace of the rows as points of a series, which ``rows[0]["line"]`` names.

    number  of its colour and marker;  pane  its column and row
    about   returns words for the hover text of a point; None: its value on the x axis
    more    settings of the trace
    """
    label = escape_text(rows[0]["line"])
    marker = {"color": style.colour(number), "symbol": style.symbol(number), "size": 7}
    line = {"color": style.colour(number), "width": 2.5}
    words = [
        join_lines(
            [label, about(row) if about else x.describe(row), y.describe(row), _describe_evidence(row)]
        )
        for row in rows
    ]
    return {
        "type": "scatter", "mode": "markers", "name": label, "legendgroup": label,
        "x": [row[x.column] for row in rows], "y": [row[y.column] for row in rows],
        "xaxis": f"x{_name_axis(pane[0])}", "yaxis": f"y{_name_axis(pane[1])}",
        "hovertext": words, "hoverinfo": "text", "marker": marker, "line": line, **more,
    }  # fmt: skip


def draw_line(
    rows: Sequence[Row],
    x: Axis,
    y: Axis,
    number: int,
    pane: tuple[int, int] = (0, 0),
    about: Callable[[Row], str] | None = None,
) -> list[Trace]:
    """Plotly traces of a line: the ribbon of its band, and a stretch for each kind of evidence, by its dash.

    The arguments are those of ``draw_marks``.
    """
    traces, start = [], 0
    if y.ends:
        points, ends = [row[x.column] for row in rows], [y.read(row) for row in rows]
        ribbon = draw_marks(rows[:1], x, y, number, pane, about, mode="lines", line={"width": 0})
        ribbon |= {"fill": "toself", "fillcolor": style.faded(style.colour(number)), "showlegend": False}
        ribbon |= {"x": [*points, *reversed(points)], "hoverinfo": "skip"}
        traces.append({**ribbon, "y": [high for *_, high in ends] + [low for _, low, _ in reversed(ends)]})
    for kind, members in groupby(rows, key=read_evidence):
        stop = start + len(list(members))
        stretch = rows[max(start - 1, 0) : stop]  # from the last point before, so that the line has no gaps
        trace = draw_marks(stretch, x, y, number, pane, about, mode="lines+markers")
        trace["line"] |= {"dash": style.DASHES[kind]}
        trace["marker"] |= {"maxdisplayed": 9}
        traces.append(trace)
        start = stop
    return traces


def read_evidence(row: Row) -> Evidence:
    """The weakest evidence behind much of the time of a point."""
    return Evidence(row.get("main_evidence") or row["evidence"])


def _describe_evidence(row: Row) -> str:
    weakest = row.get("evidence", "")
    main = row.get("main_evidence", weakest)
    return f"evidence: {main if main == weakest else f'{main}; in part {weakest}'}" if weakest else ""


def describe_dashes(rows: Iterable[Row]) -> str:
    """What the dashes of lines mean: ``dashes show the evidence: solid = measured``."""
    kinds = sorted({read_evidence(row) for row in rows}, key=lambda kind: kind.rank)
    words = ", ".join(f"{_DASH_WORDS[style.DASHES[kind]]} = {kind}" for kind in kinds)
    return f"dashes show the evidence: {words}"


_DASH_WORDS = {
    "solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot", "longdash": "long dashes",
    "longdashdot": "long dash-dot",
}  # fmt: skip


def draw_whiskers(points: Iterable[tuple[float, float, float]], **look: Any) -> Trace:
    """Plotly's error bars from (value, low, high) of each point. look  their settings"""
    points = list(points)
    above, below = [high - value for value, _, high in points], [value - low for value, low, _ in points]
    settings = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 5}
    return {**settings, "array": above, "arrayminus": below, **look}


def draw_rule(axis: str, value: float) -> Trace:
    """A plotly shape: a dotted line at ``value`` of an axis (x, y2) across the whole figure."""
    along, across = ("x", "y") if axis[0] == "x" else ("y", "x")
    place = {f"{along}ref": axis, f"{along}0": value, f"{along}1": value}
    reach = {f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1}
    return {"type": "line", **place, **reach, "line": {"color": style.RULE, "width": 1, "dash": "dot"}}
