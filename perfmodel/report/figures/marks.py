"""Drawing functions that figures share: points, whiskers, bars, rules, panes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    return {**drawn, **({"marker": marker} if marker else {}), **_describe(words), **more}


def _describe(words: Sequence[str] | str) -> dict[str, Any]:
    return {"hovertext": words if isinstance(words, str) else list(words), "hoverinfo": "text"}


def blocks(
    x: Iterable[int], heights: Iterable[float], words: Sequence[str] | str, name: str, **marker: Any
) -> dict[str, Any]:
    """A plotly trace of bars that the figure stacks. words  hover text;  marker  its looks"""
    look = {"line": {"color": "rgba(255,255,255,0.7)", "width": 0.5}, **marker}
    drawn = {"x": list(x), "y": list(heights), "width": 0.9, "name": name, "marker": look}
    return {"type": "bar", **drawn, **_describe(words)}


def whiskers(
    middle: Iterable[float], low: Iterable[float], high: Iterable[float], **look: Any
) -> dict[str, Any]:
    """Plotly's ``error_x`` or ``error_y``: a whisker from low to high at each value. look  its looks"""
    spans = [(end - value, value - start) for value, start, end in zip(middle, low, high, strict=True)]
    above, below = ([span[side] for span in spans] for side in (0, 1))
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def rule(axis: str, value: float, across: str = "paper", **line: Any) -> dict[str, Any]:
    """A plotly shape: a line at ``value`` of ``axis`` (x, y2), across the whole figure.

    across  the other axis, if the line shall span only its part of the figure
    """
    along, across_axis = ("x", "y") if axis[0] == "x" else ("y", "x")
    place = {f"{along}ref": axis, f"{along}0": value, f"{along}1": value}
    whole = {f"{across_axis}ref": across, f"{across_axis}0": 0, f"{across_axis}1": 1}
    return {"type": "line", **place, **whole, "line": {"color": RULE, "width": 1, **line}}


def split_panes(
    columns: Sequence[dict[str, Any]],
    rows: Sequence[Sequence[dict[str, Any]]],
    heights: Sequence[float] = (),
    titles: Sequence[str] = (),
    gaps: tuple[float, float] = (0.08, 0.05),
) -> dict[str, Any]:
    """Plotly settings of panes in rows and columns; panes of a column share their x axis.

    columns  the x axis of each column, which the lowest pane shows;  rows  the y axes of each row
    heights  of the rows, relative to each other; (): equal;  titles  above the columns
    gaps     between columns and between rows, as shares of the figure
    """
    layout: dict[str, Any] = {"annotations": []}
    count, parts = len(columns), heights or [1.0] * len(rows)
    width = (1 - gaps[0] * (count - 1)) / count
    unit = (1 - gaps[1] * (len(rows) - 1)) / sum(parts)
    above = {"title": {"text": ""}, "showticklabels": False}
    for row, axes in enumerate(rows):
        top = 1 - sum(parts[:row]) * unit - gaps[1] * row
        height = [max(top - parts[row] * unit, 0.0), top]
        for column, (x, y) in enumerate(zip(columns, axes, strict=True)):
            name, lowest = name_pane(row, column, count), name_pane(len(rows) - 1, column, count)
            left = column * (width + gaps[0])
            hidden = {} if name == lowest else {**above, "matches": f"x{lowest}"}
            layout[f"xaxis{name}"] = {
                **x,
                **hidden,
                "anchor": f"y{name}",
                "domain": [left, min(left + width, 1.0)],
            }
            layout[f"yaxis{name}"] = {**y, "anchor": f"x{name}", "domain": height}
            if row == 0 and titles:
                layout["annotations"].append(
                    {
                        "text": f"<b>{titles[column]}</b>", "showarrow": False, "xref": "paper",
                        "yref": "paper", "x": left, "xanchor": "left", "y": 1, "yanchor": "bottom",
                    }
                )  # fmt: skip
    return layout


def place_trace(trace: dict[str, Any], row: int, column: int = 0, columns: int = 1) -> dict[str, Any]:
    """The trace, to be drawn in a pane of ``panes``, counted from 0."""
    name = name_pane(row, column, columns)
    return {**trace, "xaxis": f"x{name}", "yaxis": f"y{name}"}


def name_pane(row: int, column: int = 0, columns: int = 1) -> str:
    """What plotly appends to the names of the axes of a pane: "", "2", "3"."""
    number = row * columns + column + 1
    return "" if number == 1 else str(number)


NAMED = "<b>%{fullData.name}</b><br>%{hovertext}<extra></extra>"
"""Template of hover text that begins with the name of its trace."""
