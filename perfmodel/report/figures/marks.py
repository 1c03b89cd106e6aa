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
    """A plotly trace of points. words  hover text, for each or for all;  more  settings of the trace"""
    drawn = {"type": "scatter", "mode": "markers", "x": list(x), "y": list(y), "name": name}
    return {**drawn, **({"marker": marker} if marker else {}), **_said(words), **more}


def _said(words: Sequence[str] | str) -> dict[str, Any]:
    return {"hovertext": words if isinstance(words, str) else list(words), "hoverinfo": "text"}


def blocks(
    x: Iterable[int], heights: Iterable[float], words: Sequence[str] | str, name: str, **marker: Any
) -> dict[str, Any]:
    """A plotly trace of bars that the figure stacks. words  hover text;  marker  its looks"""
    look = {"line": {"color": "rgba(255,255,255,0.7)", "width": 0.5}, **marker}
    drawn = {"x": list(x), "y": list(heights), "width": 0.9, "name": name, "marker": look}
    return {"type": "bar", **drawn, **_said(words)}


def whiskers(
    middle: Iterable[float], low: Iterable[float], high: Iterable[float], **look: Any
) -> dict[str, Any]:
    """Plotly's ``error_x`` or ``error_y``: a whisker from low to high at each value. look  its looks"""
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
    """A plotly heat map of ``cells``, with a text in each.

    heat   returns the number behind the colour of a cell; None: the cell stays empty
    text, words  return the text in a cell, and its hover text;  more  settings of the trace
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
    """A plotly shape: a line at the value ``at`` of ``axis`` (x, y2), across the whole figure.

    across  the other axis, if the line shall span only its part of the figure
    """
    along, other = ("x", "y") if axis[0] == "x" else ("y", "x")
    place = {f"{along}ref": axis, f"{along}0": at, f"{along}1": at}
    whole = {f"{other}ref": across, f"{other}0": 0, f"{other}1": 1}
    return {"type": "line", **place, **whole, "line": {"color": RULE, "width": 1, **line}}


def panes(axes: Sequence[tuple[dict[str, Any], dict[str, Any], Sequence[float]]]) -> dict[str, Any]:
    """Plotly settings of panes, one below the other.

    axes  for each pane: its x axis, its y axis, and the part of the height (0 to 1) that it takes
    """
    layout: dict[str, Any] = {}
    for row, (x, y, domain) in enumerate(axes, 1):
        layout[f"xaxis{pane(row)}"] = {**x, "anchor": f"y{pane(row)}", "domain": [0, 1]}
        layout[f"yaxis{pane(row)}"] = {**y, "anchor": f"x{pane(row)}", "domain": list(domain)}
    return layout


def in_pane(trace: dict[str, Any], row: int) -> dict[str, Any]:
    """The trace, to be drawn in pane number ``row``; the upper pane is 1."""
    return {**trace, "xaxis": f"x{pane(row)}", "yaxis": f"y{pane(row)}"}


def pane(row: int) -> str:
    """What plotly appends to the names of the axes of pane number ``row``: "", "2", "3"."""
    return "" if row == 1 else str(row)


NAMED = "<b>%{fullData.name}</b><br>%{hovertext}<extra></extra>"
"""Template of hover text that begins with the name of its trace."""
NUMBERS = "#1a1a1a"
"""Colour of the text in the cells of heat maps, which are all light."""
