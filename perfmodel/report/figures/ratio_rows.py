"""A drawing that figures share: an item a row, its words above it, what it is on an axis of ratios below.

It is readable on a phone, where labels beside the rows are not.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from perfmodel.report.figures import style
from perfmodel.report.figures.marks import scatter
from perfmodel.report.figures.words import safe
from perfmodel.units import format_ratio

ROW = 66
"""Pixels of a row with its words."""
LINE = 42
"""Letters of a line of these words, on a phone too."""
_BAR = 14
"""Pixels of a bar."""
_MANY = 30.0
"""High over low from which on only decades have a tick."""


def bar(low: float, high: float, words: str, colour: str, name: str, **more: Any) -> dict[str, Any]:
    """A bar from one ratio to another, for a row. words  of its hover"""
    line = {"color": style.faded(colour, 0.45), "width": _BAR}
    return scatter([low, high], [], words, name, **{"mode": "lines", "line": line, **more})


def ratio_rows(
    rows: Sequence[tuple[str, Sequence[dict[str, Any]]]],
    legend: Iterable[tuple[str, dict[str, Any]]],
    reach: tuple[float, float],
    title: str,
    row: int = ROW,
    asked: float | None = None,
) -> Any:
    """The figure, the first row on top.

    rows    the words above each and its traces, which have no y;  row  pixels of each
    legend  words and marker of what the traces show;  reach, title  of the axis
    asked   the ratio as asked: a rule in each row
    """
    traces = [
        {**trace, "y": [at] * len(trace["x"]), "showlegend": False}
        for at, (_, drawn) in enumerate(rows)
        for trace in drawn
    ]
    traces += [scatter([None], [None], "", *pair, hoverinfo="skip") for pair in legend]
    words = [_words(at, text) for at, (text, _) in enumerate(rows)]
    return style.new_figure(
        traces,
        height=130 + row * len(rows),
        margin={"l": 24, "r": 24, "t": 48, "b": 56},
        xaxis=ratio_axis(*reach, title),
        yaxis=style.axis(range=[len(rows) - 0.4, -0.75], showticklabels=False, showgrid=False, showline=False,
                         zeroline=False),
        shapes=[] if asked is None else [_rule(at, asked) for at in range(len(rows))],
        annotations=words if asked is None else [*words, _as_asked(asked, math.sqrt(reach[0] * reach[1]))],
    )  # fmt: skip


def ratio_axis(low: float, high: float, title: str) -> dict[str, Any]:
    """A logarithmic axis of ratios below rows, its ticks so few that they stand level on a phone."""
    axis = style.ratio_axis(low, high, title, tickangle=0)
    if high > _MANY * low:
        kept = [tick for tick in axis["tickvals"] if f"{tick:e}".startswith("1.")]
        axis |= {"tickvals": kept, "ticktext": [f"{tick:g}×" for tick in kept]}
    return axis


def _words(at: int, text: str) -> dict[str, Any]:
    """Words above a row, from the left edge, a line each; text from files stays text."""
    parts = [line for part in text.splitlines() for line in textwrap.wrap(part, LINE)]
    return {
        "x": 0, "xref": "paper", "xanchor": "left", "y": at - 0.17, "yanchor": "bottom", "align": "left",
        "text": "<br>".join(safe(line) for line in parts), "showarrow": False,
    }  # fmt: skip


def _rule(at: int, x: float) -> dict[str, Any]:
    """A short vertical line in a row, which does not cross the words above it."""
    line = {"color": style.RULE, "width": 1}
    return {"type": "line", "x0": x, "x1": x, "y0": at - 0.14, "y1": at + 0.34, "line": line}


def _as_asked(ratio: float, middle: float) -> dict[str, Any]:
    return {
        "x": math.log10(ratio), "y": 1, "yref": "y domain", "yanchor": "bottom", "showarrow": False,
        "text": f"as asked {format_ratio(ratio)}", "font": {"size": 12},
        "xanchor": "right" if ratio > middle else "left",
    }  # fmt: skip
