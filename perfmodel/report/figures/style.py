"""The style of all figures: colours, dashes by evidence, and plotly's settings of a figure and its axes.

Text, grid and background take their colours from the page (light, dark, print); the colours here are of data.
Each is readable on white and on the dark page, and differs from others in lightness or hue for people with
impaired colour vision; lines also differ by dash or marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.schema.evidence import Evidence

PALETTE = ("#2b7bba", "#d55e00", "#00926a", "#b5609b", "#a87900", "#4d8fa8", "#8a6fd1", "#7d7d7d")
"""Colours of series, after the palette of Okabe and Ito, adjusted for both backgrounds."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")
"""Markers of series, in the order of ``PALETTE``."""
DASHES = {
    Evidence.MEASURED: "solid",
    Evidence.INTERPOLATED: "dash",
    Evidence.EXTRAPOLATED: "dot",
    Evidence.TRANSFERRED: "dashdot",
    Evidence.DATASHEET: "longdash",
    Evidence.ASSUMED: "longdashdot",
}
EVIDENCE_COLOURS = {
    Evidence.MEASURED: "#00926a",
    Evidence.INTERPOLATED: "#4d8fa8",
    Evidence.EXTRAPOLATED: "#2b7bba",
    Evidence.TRANSFERRED: "#8a6fd1",
    Evidence.DATASHEET: "#a87900",
    Evidence.ASSUMED: "#d55e00",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
GRID, MARK = "rgba(128,128,128,0.25)", "rgba(128,128,128,0.7)"
RULE = PALETTE[7]
"""Colour of lines that are not data: ceilings, 1×, the question's value."""
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
HEIGHT, FIRST_HEIGHT = 420, 370
"""Pixels of a figure, and of the two figures side by side."""


def colour(index: int) -> str:
    """The colour of series number ``index``; there are eight, then they repeat."""
    return PALETTE[index % len(PALETTE)]


def symbol(index: int) -> str:
    """The marker of series number ``index``; series with the same colour have different markers."""
    return SYMBOLS[(index + index // len(PALETTE)) % len(SYMBOLS)]


def faded(colour: str, opacity: float = 0.15) -> str:
    """A transparent colour for ribbons: ``#2b7bba`` -> ``rgba(43,123,186,0.15)``."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Plotly settings of an axis. title  with its unit, ``share (%)``;  more  further settings"""
    lines = dict.fromkeys(("gridcolor", "linecolor", "zerolinecolor"), GRID)
    words = {"text": title, "standoff": 10, "font": {"size": 13}}
    return {"title": words, **lines, "automargin": True, "showline": True, **more}


def new_figure(traces: Sequence[dict[str, Any]] = (), **layout: Any) -> Any:
    """A plotly figure of ``traces`` in the style of the report. layout  settings instead of the defaults

    Of traces that share a ``legendgroup``, the legend shows one.
    plotly's validation is off, because it is slow; tests validate every figure.
    """
    import plotly.graph_objects as go

    groups, drawn = set[str](), []
    for trace in traces:
        group = trace.get("legendgroup")
        repeated = group in groups and trace.get("showlegend") is not False
        groups |= {group} if group and trace.get("showlegend") is not False else set()
        drawn.append({**trace, "showlegend": False} if repeated else trace)
    style = {
        "template": {"data": {"scatter": [{"type": "scatter"}]}},  # the one that plotly names ``none``
        "height": HEIGHT,
        "autosize": True,
        "margin": {"l": 72, "r": 24, "t": 56, "b": 56},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13},
        "separators": ". ",
        "colorway": list(PALETTE),
        "hoverlabel": {"bgcolor": "#1d232b", "bordercolor": "#1d232b", "font": {"color": "#ffffff"}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#7d7d7d", "activecolor": "#2b7bba"},
        "legend": LEGEND,
        "xaxis": axis(),
        "yaxis": axis(),
    }
    return go.Figure({"data": drawn, "layout": {**style, **layout}}, _validate=False)
