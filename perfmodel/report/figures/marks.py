"""Drawing functions that figures share: points, whiskers, bars, heat maps, rules, panes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perfmodel.report.figures.style import RULE


def scatter(
    x: Iterable[float | None],
    y: Iterable[Any],
    words: Sequence[str] | str,
    name: str,
    marker: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Points; ``more`` replaces plotly settings of them. words  hover text, for each point or for all"""
    drawn = {"type": "scatter", "mode": "markers", "x": list(x), "y": list(y), "name": name}
    return {**drawn, **({"marker": marker} if marker else {}), **_said(words), **more}


def _said(words: Sequence[str] | str) -> dict[str, Any]:
    return {"hovertext": words if isinstance(words, str) else list(words), "hoverinfo": "text"}


def blocks(
    x: Iterable[int], heights: Iterable[float], words: Sequence[str] | str, name: str, **marker: Any
) -> dict[str, Any]:
    """Bars on columns, stacked by the figure or from ``base`` of the trace. words  hover text"""
    look = {"line": {"color": "rgba(255,255,255,0.7)", "width": 0.5}, **marker}
    drawn = {"x": list(x), "y": list(heights), "width": 0.9, "name": name, "marker": look}
    return {"type": "bar", **drawn, **_said(words)}


def whiskers(
    middle: Iterable[float], low: Iterable[float], high: Iterable[float], **look: Any
) -> dict[str, Any]:
    """Whiskers from the low to the high end of each value, for ``error_x`` or ``error_y``."""
    sides = [(end - at, at - start) for at, start, end in zip(middle, low, high, strict=True)]
    up, down = ([side[which] for side in sides] for which in (0, 1))
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, **look}


def heat_cells(
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[Any]],
    heat: Callable[[Any], float | None],
    text: Callable[[Any], str],
    words: Callable[[Any], str],
    **more: Any,
) -> dict[str, Any]:
    """A heat map with a cell for each of ``columns`` in each of ``rows``, and its text in it.

    heat  the value behind the colour, None: empty;  words  hover text;  more  the colour scale
    """
    drawn = {
        name: [[of(cell) for cell in row] for row in cells]
        for name, of in (("z", heat), ("text", text), ("hovertext", words))
    }
    look = {"textfont": {"color": NUMBERS}, "hoverinfo": "text", "showscale": False, "xgap": 2, "ygap": 2}
    return {
        "type": "heatmap", "x": list(columns), "y": list(rows), "texttemplate": "%{text}",
        **drawn, **look, **more,
    }  # fmt: skip


def rule(axis: str, at: float, across: str = "paper", **line: Any) -> dict[str, Any]:
    """A line across a figure at a value of an axis (x, y2). across  the axis that it spans"""
    along, other = ("x", "y") if axis[0] == "x" else ("y", "x")
    place = {f"{along}ref": axis, f"{along}0": at, f"{along}1": at}
    whole = {f"{other}ref": across, f"{other}0": 0, f"{other}1": 1}
    return {"type": "line", **place, **whole, "line": {"color": RULE, "width": 1, **line}}


def panes(axes: Sequence[tuple[dict[str, Any], dict[str, Any], Sequence[float]]]) -> dict[str, Any]:
    """A layout of panes, the first on top: the x axis, the y axis and the part of the height of each."""
    layout: dict[str, Any] = {}
    for row, (x, y, domain) in enumerate(axes, 1):
        layout[f"xaxis{pane(row)}"] = {**x, "anchor": f"y{pane(row)}", "domain": [0, 1]}
        layout[f"yaxis{pane(row)}"] = {**y, "anchor": f"x{pane(row)}", "domain": list(domain)}
    return layout


def in_pane(trace: dict[str, Any], row: int) -> dict[str, Any]:
    """The trace in a pane; 1 is the first."""
    return {**trace, "xaxis": f"x{pane(row)}", "yaxis": f"y{pane(row)}"}


def pane(row: int) -> str:
    """The suffix of the names of a pane's axes."""
    return "" if row == 1 else str(row)


NAMED = "<b>%{fullData.name}</b><br>%{hovertext}<extra></extra>"
"""Template of hover text that begins with the name of its trace."""
NUMBERS = "#1a1a1a"
"""Colour of the text in cells, which are all light."""
