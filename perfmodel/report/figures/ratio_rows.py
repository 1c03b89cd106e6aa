"""A drawing for several figures: rows with a label above each, and bars and marks on an axis of ratios.

The labels are above the rows because labels beside them cannot be read on a phone.
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
"""Pixels of a row with its label."""
LINE = 42
"""Characters of a line of a label that fit a phone."""
_BAR = 14
"""Pixels of a bar."""
_MANY = 30.0
"""Ratio of the ends of an axis from which only decades have a tick."""


def bar(low: float, high: float, words: str, colour: str, name: str, **more: Any) -> dict[str, Any]:
    """A plotly trace for ``ratio_rows``: a bar from ``low`` to ``high``. words  hover text"""
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
    """A plotly figure of rows, the first on top, on an axis of ratios.

    rows    for each row, its label and its traces, which get their y here;  row  pixels of each row
    legend  label and marker of each kind of trace;  reach  the ends of the axis;  title  its title
    asked   a ratio at which every row has a vertical line; None: no such line
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
    """A logarithmic axis of ratios with few ticks, so that they stay horizontal on a phone."""
    axis = style.ratio_axis(low, high, title, tickangle=0)
    if high > _MANY * low:
        kept = [tick for tick in axis["tickvals"] if f"{tick:e}".startswith("1.")]
        axis |= {"tickvals": kept, "ticktext": [f"{tick:g}×" for tick in kept]}
    return axis


def _words(at: int, text: str) -> dict[str, Any]:
    """A plotly annotation: the wrapped label above row number ``at``. Text from files is escaped."""
    parts = [line for part in text.splitlines() for line in textwrap.wrap(part, LINE)]
    return {
        "x": 0, "xref": "paper", "xanchor": "left", "y": at - 0.17, "yanchor": "bottom", "align": "left",
        "text": "<br>".join(safe(line) for line in parts), "showarrow": False,
    }  # fmt: skip


def _rule(at: int, x: float) -> dict[str, Any]:
    """A plotly shape: a vertical line at ``x`` in row number ``at``, too short to cross the label above."""
    line = {"color": style.RULE, "width": 1}
    return {"type": "line", "x0": x, "x1": x, "y0": at - 0.14, "y1": at + 0.34, "line": line}


def _as_asked(ratio: float, middle: float) -> dict[str, Any]:
    return {
        "x": math.log10(ratio), "y": 1, "yref": "y domain", "yanchor": "bottom", "showarrow": False,
        "text": f"as asked {format_ratio(ratio)}", "font": {"size": 12},
        "xanchor": "right" if ratio > middle else "left",
    }  # fmt: skip
