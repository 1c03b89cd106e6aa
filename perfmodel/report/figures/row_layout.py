"""Figures of one row an item, its words above it: readable on a phone, where labels beside it are not."""

from __future__ import annotations

import textwrap
from typing import Any

from perfmodel.report.figures import style
from perfmodel.report.figures.words import safe

ROW = 66
"""Pixels of a row with its words."""
LINE = 42
"""Letters of a line of these words, on a phone too."""
BAR = 14
"""Pixels of a bar."""


def rows_figure(count: int, row: int = ROW) -> Any:
    """An empty figure of ``count`` rows, 0 on top; ``row`` pixels each."""
    figure = style.new_figure(height=130 + row * count)
    figure.update_layout(
        margin={"l": 24, "r": 24, "t": 48, "b": 56},
        yaxis=style.axis(range=[count - 0.4, -0.75], showticklabels=False, showgrid=False, showline=False,
                         zeroline=False),
    )  # fmt: skip
    return figure


def ratio_row_axis(figure: Any, low: float, high: float, title: str) -> None:
    """A logarithmic axis of ratios below the rows, its ticks so few that they stand level on a phone."""
    axis = style.ratio_axis(low, high, title, tickangle=0)
    if high > _MANY * low:
        kept = [tick for tick in axis["tickvals"] if f"{tick:e}".startswith("1.")]
        axis |= {"tickvals": kept, "ticktext": [f"{tick:g}×" for tick in kept]}
    figure.update_xaxes(axis)


_MANY = 30.0
"""High over low from which on only decades have a tick."""


def row_words(figure: Any, index: int, text: str) -> None:
    """Words above a row, from the left edge, a line each; text from files stays text."""
    parts = [line for part in text.splitlines() for line in textwrap.wrap(part, LINE)]
    lines = "<br>".join(safe(line) for line in parts)
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", y=index - 0.17, yanchor="bottom", text=lines, showarrow=False,
        align="left",
    )  # fmt: skip


def row_rules(figure: Any, count: int, x: float) -> None:
    """A short vertical line in every row, which does not cross the words above it."""
    line = {"color": style.RULE, "width": 1}
    for index in range(count):
        figure.add_shape(type="line", x0=x, x1=x, y0=index - 0.14, y1=index + 0.34, line=line)


def legend_mark(words: str, colour: str, symbol: str) -> Any:
    """An entry of the legend without data."""
    import plotly.graph_objects as go

    marker = {"color": colour, "symbol": symbol, "size": 10}
    return go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=words, hoverinfo="skip")
