"""A drawing that figures share: stacked bars, in time and in shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.report.columns import Column, columns_record
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Switch
from perfmodel.report.figures.chart import join_lines

PATTERNS = ("", "/", "", "\\", "", "x", "", "-", "/", "\\", "x", "+", "-", "/", "|", "x")
Bars = Sequence[tuple[str, Mapping[str, Any]]]
"""The label of each bar, and its parts by their keys."""


@dataclass(frozen=True)
class Heights:
    """A view of stacked bars, which a button shows.

    label  on the button: µs, %;  of  returns the height of a part;  axis  its plotly settings
    layout  further plotly settings; None: none
    """

    label: str
    of: Callable[[Any], float]
    axis: Mapping[str, Any]
    layout: Mapping[str, Any] | None = None


def in_shares(share: Callable[[Any], float], layout: Mapping[str, Any] | None = None) -> Heights:
    """The view in which heights are shares in percent.

    share   returns the share of a part [-];  layout  further plotly settings
    """
    axis = style.axis("share of the time (%)", range=[0, 100])
    return Heights("%", lambda row: 100 * share(row), axis, layout)


def stacked_bars(
    bars: Bars,
    columns: Sequence[Column],
    name: Callable[[str, Any], str],
    views: Sequence[Heights],
    order: Sequence[str] = (),
    **layout: Any,
) -> tuple[Any, tuple[Switch, ...]]:
    """A plotly figure of stacked bars as the first of ``views`` shows them, and a button for each view.

    bars     the label of each bar, and its parts by key;  order  of the keys from below; (): as they come
    columns  their texts are the hover text of a part, below its name
    name     returns the name of a part, from its key and its first row
    layout   further plotly settings
    """
    keys = list(order or dict.fromkeys(key for _, parts in bars for key in parts))
    rows = {key: [parts.get(key) for _, parts in bars] for key in keys}
    names = {key: name(key, next(filter(None, rows[key]))) for key in keys}
    heights = [
        [[0.0 if row is None else float(view.of(row)) for row in rows[key]] for key in keys] for view in views
    ]
    traces = [
        {
            "type": "bar", "x": [words for words, _ in bars], "y": heights[0][at], "name": names[key],
            "hovertext": [_describe(columns, row) if row else "" for row in rows[key]],
            "hovertemplate": "<b>%{fullData.name}</b><br>%{hovertext}<extra></extra>",
            "marker": {"color": part_colour(at), "pattern": pattern(at)},
        }
        for at, key in enumerate(keys)
    ]  # fmt: skip
    switches = tuple(
        Switch(view.label, {"y": y}, {"yaxis": view.axis, **(view.layout or {})})
        for view, y in zip(views, heights, strict=True)
    )
    base = {"barmode": "stack", "height": 460, "legend": {**style.LEGEND, "traceorder": "normal"}, **layout}
    return style.new_figure(traces, **base, **switches[0].layout), switches if len(views) > 1 else ()


def _describe(columns: Sequence[Column], row: Any) -> str:
    return join_lines(column.text(row) for column in columns if column.text is not None)


def part_rows(bars: Bars, columns: Sequence[Column]) -> tuple[dict[str, Any], ...]:
    """The figure's data: for every part of every bar, the values of ``columns``."""
    return tuple(columns_record(columns, row) for _, parts in bars for row in parts.values())


def part_colour(index: int) -> str:
    """The colour of part number ``index``: eight colours, then paler shades of them."""
    again = index // len(style.PALETTE)
    return style.colour(index) if again == 0 else style.faded(style.colour(index), 0.6 if again == 1 else 0.3)


def pattern(index: int) -> dict[str, Any]:
    """Plotly's hatching of part number ``index``; it tells parts of the same colour apart."""
    shape = PATTERNS[index % len(PATTERNS)]
    return {**style.HATCHED, "shape": shape, "solidity": 0.2}
