"""The style of all figures: colours, dashes by evidence, axes with units.

Text, grid and background take their colours from the page (light, dark, print); the colours here are of data.
Each is readable on white and on the dark page, and differs from others in lightness or hue for people with
impaired colour vision; lines also differ by dash or marker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_rate, format_time

PALETTE = ("#2b7bba", "#d55e00", "#00926a", "#b5609b", "#a87900", "#4d8fa8", "#8a6fd1", "#7d7d7d")
"""Colours of series, after the palette of Okabe and Ito, adjusted for both backgrounds."""

DASHES = {
    Evidence.MEASURED: "solid",
    Evidence.INTERPOLATED: "dash",
    Evidence.EXTRAPOLATED: "dot",
    Evidence.TRANSFERRED: "dashdot",
    Evidence.DATASHEET: "longdash",
    Evidence.ASSUMED: "longdashdot",
}
"""Dash of a line by its evidence."""

EVIDENCE_COLOURS = {
    Evidence.MEASURED: "#00926a",
    Evidence.INTERPOLATED: "#4d8fa8",
    Evidence.EXTRAPOLATED: "#2b7bba",
    Evidence.TRANSFERRED: "#8a6fd1",
    Evidence.DATASHEET: "#a87900",
    Evidence.ASSUMED: "#d55e00",
}
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")
"""Markers of series, in the order of ``PALETTE``."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
GRID, MARK = "rgba(128,128,128,0.25)", "rgba(128,128,128,0.7)"
RULE = PALETTE[7]
"""Colour of lines that are not data: ceilings, 1×, the question's value."""

HATCHED = {"shape": "/", "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.6)", "size": 7}
"""Hatching of bars that wait or are exposed."""

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


def new_figure(traces: Sequence[dict[str, Any]] = (), **layout: Any) -> Any:
    """A plotly figure of ``traces`` in the style of the report. layout  settings instead of the defaults

    plotly's validation is off, because it is slow; tests validate every figure.
    """
    import plotly.graph_objects as go

    style = {
        "template": {"data": {"scatter": [{"type": "scatter"}]}},  # the one that plotly names ``none``
        "height": HEIGHT,
        "autosize": True,
        "margin": {"l": 72, "r": 24, "t": 56, "b": 56},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13},
        "colorway": list(PALETTE),
        "hoverlabel": {"bgcolor": "#1d232b", "bordercolor": "#1d232b", "font": {"color": "#ffffff"}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#7d7d7d", "activecolor": "#2b7bba"},
        "legend": LEGEND,
        "xaxis": axis(),
        "yaxis": axis(),
    }
    return go.Figure({"data": list(traces), "layout": {**style, **layout}}, _validate=False)


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Plotly settings of a linear axis. title  with its unit, ``slowdown (×)``;  more  further settings"""
    base = {
        "title": {"text": title, "standoff": 10, "font": {"size": 13}},
        "gridcolor": GRID,
        "linecolor": GRID,
        "zerolinecolor": GRID,
        "automargin": True,
        "showline": True,
    }
    return {**base, **more}


def log_axis(
    low: float,
    high: float,
    form: Callable[[float], str],
    title: str,
    base: int = 10,
    **more: Any,
) -> dict[str, Any]:
    """Plotly settings of a logarithmic axis from ``low`` to ``high``, with marks between its ticks.

    form  writes a tick as text;  base  10: ticks at 1, 2 and 5, or at decades; 2: at powers of two
    more  further settings
    Limits: low = high -> extended on both sides
    """
    low, high = min(low, high), max(low, high)
    if high < 1.02 * low:
        low, high = low / 1.5, high * 1.5
    ticks, between = (log_ticks, log_minor) if base == 10 else (_list_binary_ticks, _list_octaves)
    marks = {"ticks": "outside", "tickcolor": MARK}
    values = ticks(low, high)
    settings = {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickmode": "array",
        "tickvals": values,
        "ticktext": [form(value) for value in values],
        "minor": {"tickmode": "array", "tickvals": between(low, high), **marks, "ticklen": 4},
        **marks,
        "ticklen": 7,
    }
    return axis(title, **{**settings, **more})


_NARROW, _WIDE = 0.9, 6.0
"""Decades of an axis: if fewer, minor marks at tenths of a step; if more, at decades alone."""


def log_minor(low: float, high: float) -> list[float]:
    """Values between the ends for marks without labels: 1 to 9 of each decade.

    Limits: a short axis -> tenths;  a long axis -> decades
    """
    decades = math.log10(high / low)
    steps = [k / 10 for k in range(10, 100)] if decades < _NARROW else [1.0 * k for k in range(1, 10)]
    return _list_steps(low, high, steps if decades <= _WIDE else [1.0])


_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)


def log_ticks(low: float, high: float, most: float = 3) -> list[float]:
    """Round values between the ends for ticks: 1, 2 and 5 of each decade; beyond ``most`` decades only 1.

    Limits: less than a decade -> more values in it
    """
    decades = math.log10(high / low)
    steps = _STEPS if decades < _NARROW else (1.0, 2.0, 5.0) if decades <= most else (1.0,)
    return _list_steps(low, high, steps, 1 if decades <= 10 else 3)


def _list_steps(low: float, high: float, steps: Sequence[float], stride: int = 1) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1, stride)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def _list_octaves(low: float, high: float, step: int = 1) -> list[float]:
    low_power, high_power = math.floor(math.log2(low) / step), math.ceil(math.log2(high) / step)
    return [
        2.0 ** (step * power)
        for power in range(low_power, high_power + 1)
        if low <= 2.0 ** (step * power) <= high
    ]


def _list_binary_ticks(low: float, high: float) -> list[float]:
    """Powers of two that are 32 or 1024 times apart."""
    return _list_octaves(low, high, 5 if high <= 2.0**25 * low else 10)


def bytes_axis(low: float, high: float, title: str = "bytes", **more: Any) -> dict[str, Any]:
    """A logarithmic axis of memory sizes with ticks like ``10 TB``."""
    return log_axis(low, high, lambda value: _short(format_bytes(value, binary=False)), title, **more)


def binary_bytes_axis(low: float, high: float, title: str = "bytes", **more: Any) -> dict[str, Any]:
    """A logarithmic axis of message sizes with ticks like ``32 KiB``, 32 or 1024 times apart."""
    return log_axis(low, high, format_bytes, title, 2, **more)


def time_axis(low: float, high: float, title: str = "time", **more: Any) -> dict[str, Any]:
    """A logarithmic axis of seconds with ticks like ``10 µs``."""
    return log_axis(low, high, lambda value: _short(format_time(value)), title, **more)


def rate_axis(low: float, high: float, title: str = "bytes per second", **more: Any) -> dict[str, Any]:
    """A logarithmic axis of bytes per second with ticks like ``100 GB/s``."""
    return log_axis(low, high, lambda value: _short(format_rate(value)), title, **more)


def ratio_axis(low: float, high: float, title: str = "slowdown", **more: Any) -> dict[str, Any]:
    """A logarithmic axis of ratios with ticks like ``10×``."""
    return log_axis(low, high, lambda value: f"{value:g}×", title, **more)


def time_unit(longest_s: float) -> tuple[float, str]:
    """How many of it a second has, and the largest unit in which ``longest_s`` is at least 1: 1e3, "ms"."""
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"))
    return next((unit for unit in units if longest_s * unit[0] >= 1), (1e9, "ns"))


def _short(text: str) -> str:
    """The text without zeros after the point: ``10.0 µs`` -> ``10 µs``."""
    number, space, unit = text.partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + unit
