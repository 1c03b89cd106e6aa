"""Charts: rows of data become plotly's traces, on axes that are declared once; a figure adds its sentence.

All figures share ``TEMPLATE``. Text, grid and background take their colours from the page (light, dark,
print); the colours here are of data. Each is readable on white and on the dark page, and differs from others
in lightness or hue for people with impaired colour vision; lines also differ by dash or marker.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_count, format_number, format_rate, format_ratio, format_time

Row = Mapping[str, Any]
"""A point of a figure: its values in SI units, by column."""
Trace = dict[str, Any]
"""Plotly's description of marks."""
Figure = dict[str, Any]
"""Plotly's data and layout."""

PALETTE = ("#2b7bba", "#d55e00", "#00926a", "#b5609b", "#a87900", "#4d8fa8", "#8a6fd1", "#7d7d7d")
"""Colours of series, after the palette of Okabe and Ito, adjusted for both backgrounds."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")
DASHES = dict(zip(Evidence, ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot"), strict=True))
EVIDENCE_COLOURS = dict(zip(Evidence, (PALETTE[i] for i in (2, 5, 0, 6, 4, 1)), strict=True))
_GRID = "rgba(128,128,128,0.25)"
RULE = PALETTE[7]
"""Colour of lines that are not data: ceilings, 1×, the question's value."""
_AXIS = {
    **dict.fromkeys(("gridcolor", "linecolor", "zerolinecolor"), _GRID),
    "automargin": True,
    "showline": True,
    "title": {"standoff": 10, "font": {"size": 13}},
}
TEMPLATE = {
    "layout": {
        "margin": {"l": 64, "r": 24, "t": 48, "b": 56},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
            "size": 13,
        },
        "separators": ". ",
        "hoverlabel": {"bgcolor": "#1d232b", "bordercolor": "#1d232b", "font": {"color": "#ffffff"}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": RULE, "activecolor": PALETTE[0]},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}


@dataclass(frozen=True)
class Block:
    """A figure of a page with its words and numbers.

    name, title  a slug; the finding in a sentence, computed from the data
    how_to_read  one line, and one for each claim of a paper
    figure       plotly's data and layout;  source  where the data come from, and their evidence
    data         the numbers in the figure: rows of a table, in SI units
    """

    name: str
    title: str
    how_to_read: str
    figure: Figure
    source: str
    data: Sequence[Row]


@dataclass(frozen=True)
class Missing:
    """A figure that cannot be drawn. why  what is missing, and the command that would give it"""

    name: str
    why: str


def escape_text(text: str) -> str:
    """The text with < > & escaped, because figures interpret tags, but not &quot;; for text from files."""
    return html.escape(text, quote=False)


def name_library(backend: str) -> str:
    """A library's name in text: ``nccl`` -> ``NCCL``."""
    return {"gloo": "Gloo"}.get(backend, backend.upper())


def name_collective(collective: str) -> str:
    """A collective's name in text: ``all_to_all`` -> ``all-to-all``."""
    return collective.replace("_", "-")


_OCTAVES = {
    "tickvals": [2**power for power in range(0, 51, 10)],
    "ticktext": ["1 B", *map("1 {}iB".format, "KMGTP")],
}
_UNITS: dict[str, tuple[Callable[[Any], str], dict[str, object]]] = {
    "s": (format_time, {}),
    "B": (lambda size: format_bytes(size, binary=False), {}),
    "KiB": (format_bytes, {"type": "log", **_OCTAVES}),
    "B/s": (format_rate, {}),
    "×": (format_ratio, {}),
    "count": (format_count, {}),
    "number": (format_number, {}),
    "%": (lambda value: f"{value:+.3g} %", {"zeroline": True}),
    "name": (str, {"autorange": "reversed", "showgrid": False}),
}
"""By unit, how a value is written, and plotly's settings of an axis; {}: logarithmic. KiB  of octaves"""
_NO_ZEROS = re.compile(r"\.0+(?!\d)|(\.\d*[1-9])0+(?!\d)")


def list_ticks(low: float, high: float) -> list[float]:
    """Round values for the labels of a logarithmic axis, as many as have room.

    Limits: more than three decades -> one for each;  less than one -> seven
    """
    decades = math.log10(high / low)
    steps = (1,) if decades > 3 else (1, 2, 5) if decades >= 1 else (1, 1.5, 2, 3, 4, 5, 7)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [float(f"{step}e{power}") for power in powers for step in steps]


@dataclass(frozen=True)
class Axis:
    """An axis: a column of the data, a title, and a unit of ``_UNITS``.

    ends  columns of the 95 % band; (): without a band
    """

    column: str
    title: str
    unit: str
    ends: tuple[str, ...] = ()

    def set_up(self, values: Sequence[float]) -> dict[str, object]:
        """Plotly's settings of the axis. values  of all points and ends of bands on it"""
        write, settings = _UNITS[self.unit]
        if not settings:
            ticks = list_ticks(min(values), max(values))
            marks = {"ticks": "outside", "tickcolor": RULE}
            words = [_NO_ZEROS.sub(r"\1", write(tick)) for tick in ticks]
            settings = {"type": "log", "tickvals": ticks, "ticktext": words, **marks, "ticklen": 6}
            settings["minor"] = {**marks, "ticklen": 3, "dtick": "D1"}
        return {"title": {"text": self.title}, **settings}

    def read(self, row: Row) -> tuple[Any, Any, Any]:
        """The value of a point and both ends of its band. Limits: without a band -> the value thrice"""
        value = row[self.column]
        low_name, high_name = self.ends or ("", "")
        low = row.get(low_name)
        high = row.get(high_name)
        return value, value if low is None else low, value if high is None else high

    def describe(self, row: Row) -> str:
        """The value of a point in words, with its band if it has one."""
        write = _UNITS[self.unit][0]
        value, low, high = self.read(row)
        return write(value) + (f", band {write(low)} – {write(high)}" if low != high else "")


def read_evidence(row: Row) -> Evidence:
    """The weakest evidence behind much of the time of a point."""
    return Evidence(row.get("main_evidence") or row["evidence"])


def describe_dashes(rows: Iterable[Row]) -> str:
    """What the dashes of lines mean: ``line styles show the evidence: solid = measured``."""
    kinds = sorted({read_evidence(row) for row in rows}, key=lambda kind: kind.rank)
    return "line styles show the evidence: " + ", ".join(f"{DASHES[kind]} = {kind}" for kind in kinds)


def write_hover(row: Row, *words: str) -> str:
    """The hover text of a point: words, a line each, and its evidence."""
    weakest = row.get("evidence", "")
    main = row.get("main_evidence") or weakest
    evidence = f"evidence: {main if main == weakest else f'{main}; in part {weakest}'}" if weakest else ""
    return "<br>".join(filter(None, [*map(escape_text, words), evidence]))


def name_axis(letter: str, place: int) -> str:
    """Plotly's name of the axis of the pane number ``place``, from 0: ``x``, ``x2``."""
    return f"{letter}{place + 1 if place else ''}"


def draw_series(
    rows: Sequence[Row],
    axes: tuple[Axis, Axis],
    number: int,
    pane: tuple[int, int] = (0, 0),
    about: Callable[[Row], str] | None = None,
    *,
    marks: bool = False,
) -> list[Trace]:
    """Plotly traces of a series: marks, or a line with a stretch for each kind of evidence, by its dash.

    The first trace of a line whose points have a band is the band's ribbon.

    rows    of the series, which ``rows[0]["line"]`` names;  axes  x and y
    number  of its colour and marker;  pane  its column and row
    about   returns words for the hover text of a point; None: its value on the x axis
    marks   whether its points are not joined
    """
    x, y = axes
    colour = PALETTE[number % len(PALETTE)]
    name = str(rows[0]["line"])

    def draw(mode: str, points: Sequence[Row], **more: Any) -> Trace:
        """A trace of some points. mode  plotly's: lines, markers;  more  settings in place of these"""
        words = about or x.describe
        return {
            "type": "scatter", "mode": mode, "name": escape_text(name), "legendgroup": name,
            "x": [row[x.column] for row in points], "y": [row[y.column] for row in points],
            "xaxis": name_axis("x", pane[0]), "yaxis": name_axis("y", pane[1]), "hoverinfo": "text",
            "hovertext": [write_hover(row, name, words(row), y.describe(row)) for row in points],
            "marker": {"color": colour, "symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 7},
            "line": {"color": colour, "width": 2.5}, **more,
        }  # fmt: skip

    if marks:
        return [draw("markers", rows)]
    traces: list[Trace] = []
    if y.ends:
        ends = [y.read(row) for row in rows]
        heights = [high for *_, high in ends] + [low for _, low, _ in reversed(ends)]
        outline = {"y": heights, "x": [row[x.column] for row in [*rows, *reversed(rows)]]}
        look = {"line": {"width": 0, "color": colour}, "fill": "toself", "opacity": 0.3, "showlegend": False}
        traces.append(draw("lines", (), **look, **outline, hovertext="", hoverinfo="skip"))
    start = 0
    for kind, members in groupby(rows, key=read_evidence):
        stop = start + len(list(members))
        trace = draw("lines+markers", rows[max(start - 1, 0) : stop])  # from the last point, without a gap
        trace["line"]["dash"] = DASHES[kind]
        trace["marker"]["maxdisplayed"] = 9
        traces.append(trace)
        start = stop
    return traces


def draw_whiskers(points: Iterable[tuple[float, float, float]], colour: str = RULE) -> Trace:
    """Plotly's error bars from (value, low, high) of each point."""
    ends = [(high - value, value - low) for value, low, high in points]
    settings = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 5, "color": colour}
    return {**settings, "array": [above for above, _ in ends], "arrayminus": [below for _, below in ends]}


def draw_rule(axis: str, value: float, text: str = "") -> Trace:
    """A plotly shape: a dotted line at ``value`` of an axis (x, y2) across the figure, and its label."""
    along, across = ("x", "y") if axis[0] == "x" else ("y", "x")
    place = {f"{along}ref": axis, f"{along}0": value, f"{along}1": value}
    reach = {f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1}
    label = {"text": text, "textposition": "end", "xanchor": "right", "font": {"size": 11}}
    return {
        "type": "line", **place, **reach, "line": {"color": RULE, "width": 1, "dash": "dot"},
        **({"label": label} if text else {}),
    }  # fmt: skip


def new_figure(
    traces: Sequence[Trace], xs: Sequence[Axis] = (), ys: Sequence[Axis] = (), **layout: Any
) -> Figure:
    """A plotly figure of traces. xs, ys  axes of its panes, in columns and rows;  layout  further settings

    Of traces that share a ``legendgroup``, the legend shows one.
    """
    groups = set[str]()
    for trace in traces:
        if (group := trace.get("legendgroup")) and trace.get("showlegend", True):
            trace["showlegend"] = group not in groups
            groups.add(group)
    grid = {"rows": len(ys), "columns": len(xs), "pattern": "coupled"}
    axes: dict[str, object] = {"grid": grid} if xs else {}
    for letter, row in (("x", xs), ("y", ys)):
        for place, axis in enumerate(row):
            name = name_axis(letter, place)
            drawn = [trace[letter] for trace in traces if trace[f"{letter}axis"] == name]
            axes[f"{letter}axis{name[1:]}"] = axis.set_up(
                [value for values in drawn for value in values if value]
            )
    settings = {"template": TEMPLATE, "height": 420, **axes, **layout}
    return {"data": list(traces), "layout": settings}
