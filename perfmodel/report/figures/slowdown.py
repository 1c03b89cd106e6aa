"""Figure of the slowdown against table size: a line for each exchange, with its band and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.answer import Answer
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.ends import GAP, PixelScale
from perfmodel.report.figures.line_traces import (
    Columns,
    Drawn,
    SlowdownLine,
    dash_words,
    drawn_of,
    fastest_other,
    full,
    labels,
    ratio_words,
    rule_words,
    source,
    traces,
)
from perfmodel.report.figures.marks import rule, scatter
from perfmodel.report.figures.registry import SLOWDOWN
from perfmodel.report.figures.words import size_words
from perfmodel.units import counted, format_count, format_ratio

_SHOWN = Columns("table_bytes", "slowdown", "slowdown_low", "slowdown_high")
_COLUMNS = ("table_bytes", "gpus", "slowdown", "slowdown_low", "slowdown_high", "time_s", "baseline_time_s")
_MARGIN = {"l": 72, "r": 190, "t": 84, "b": 60}
_HEIGHT, _WIDTH = 560, 820
_LOWEST, _ABOVE = 0.8, 1.3
"""The lower end of the axis, and its upper end as a factor of the highest value."""


@dataclass(frozen=True)
class Mark:
    """A published slowdown at a table size, drawn to compare with."""

    table_bytes: float
    slowdown: float
    label: str


def slowdown(lines: Sequence[SlowdownLine], asked: Answer, marks: Sequence[Mark] = ()) -> Block | Missing:
    """Lines of the slowdown over table sizes, with bands, for each exchange; first the asked exchange.

    asked   the projection that the title is about, by the first line's exchange
    Limits: no line, or no line with a size that needs two GPUs -> Missing
    """
    known = [line for line in lines if (line.frame["gpus"].to_numpy() > 1).any()]
    if not known:
        return SLOWDOWN.missing("every size here fits on one GPU: ask for larger tables with --table-size.")
    drawn = drawn_of(known, _COLUMNS)
    rows = tuple(row for one in drawn for row in one.rows)
    top = max([row["slowdown_high"] for row in rows] + [mark.slowdown for mark in marks])
    lines_drawn = [trace for one in drawn for trace in traces(one, _SHOWN, _hover)]
    log = style.ratio_axis(_LOWEST, _ABOVE * top, "slowdown (×)")
    linear = style.axis("slowdown (×)", rangemode="tozero", range=[0, top])
    borders = _borders(asked, rows)
    on_log, on_linear = (
        [
            *rule_words(borders, *_ends(rows)),
            *_mark_words(marks, rows, scale),
            *labels(drawn, _SHOWN.x, _SHOWN.y, scale),
        ]
        for scale in (_scale(_LOWEST, _ABOVE * top, log=True), _scale(0.0, top, log=False))
    )
    figure = style.new_figure(
        [*lines_drawn, *_mark_traces(marks), _upper_trace(rows)],
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        yaxis=log,
        annotations=on_log,
        shapes=[rule("x", at, dash="dot") for at, _ in borders],
        **_size_axes(rows, drawn[0]),
    )
    switches = (
        Switch("log", {}, {"yaxis": log, "annotations": on_log}),
        Switch("linear", {}, {"yaxis": linear, "annotations": on_linear}),
    )
    title, how = sentence(known, asked), _how(rows, asked)
    return SLOWDOWN.block(title, how, figure, source(asked, rows), rows, switches)


def _scale(lowest: float, highest: float, *, log: bool) -> PixelScale:
    return PixelScale(lowest, highest, _HEIGHT - _MARGIN["t"] - _MARGIN["b"], log)


def sentence(lines: Sequence[SlowdownLine], asked: Answer) -> str:
    """The title: the slowdown at the size of ``asked``, and the fastest other line there."""
    low, high = asked.band
    size = size_words(asked.gpu_count.table_bytes)
    if asked.gpus == 1:
        return f"Tables of {size} fit on one GPU, so nothing is slower there."
    are, held = "are", ""
    if not asked.gpu_count.fits:
        are, held = "would be", f"; they do not fit: {asked.gpu_count.describe_memory().partition(':')[0]}"
    first = (
        f"Tables of {size} sharded {asked.sharding} on {counted(asked.gpus, 'GPU')} {are} "
        f"{format_ratio(asked.slowdown)} slower than on one GPU that holds all of them "
        f"({format_ratio(low)} to {format_ratio(high)}){held}"
    )
    other = fastest_other(lines, "table_bytes", asked.gpu_count.table_bytes)
    if other is None:
        return f"{first}."
    if other[0] >= asked.slowdown:
        return f"{first}, and no other way drawn here is faster."
    return f"{first}; {other[1]} would make it {format_ratio(other[0])}."


def _how(rows: Sequence[Mapping[str, Any]], asked: Answer) -> str:
    dashes = dash_words(row["main_evidence"] for row in rows)
    return (
        "Time of a batch on as many GPUs as the tables need, divided by its time on one GPU whose memory "
        f"holds all tables (evidence: {asked.baseline_evidence}). Ribbons are 95 % bands; {dashes}."
    )


def _hover(row: Mapping[str, Any]) -> list[str]:
    size, gpus = size_words(row["table_bytes"]), format_count(row["gpus"])
    return [f"{size} on {gpus} GPUs", *ratio_words(row)]


def _mark_traces(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    if not marks:
        return []
    marker = {"symbol": "star-diamond", "size": 14, "color": _PUBLISHED, "line": {"width": 1}}
    x, y = [mark.table_bytes for mark in marks], [mark.slowdown for mark in marks]
    return [scatter(x, y, [mark.label for mark in marks], "published (arXiv 2512.05831)", marker)]


_PUBLISHED = style.PALETTE[7]


def _mark_words(
    marks: Sequence[Mark], rows: Sequence[Mapping[str, Any]], scale: PixelScale
) -> list[dict[str, Any]]:
    """The label of each published value: beside its mark if that is below all lines, else above the bands."""
    words, above = [], 0
    for mark in sorted(marks, key=lambda each: each.slowdown):
        near = [
            row for row in rows if mark.table_bytes / _NEAR <= row["table_bytes"] <= mark.table_bytes * 1.01
        ]
        free = all(
            mark.slowdown < row["slowdown"] for row in near if row["table_bytes"] > mark.table_bytes / 2
        )
        word = {
            "x": math.log10(mark.table_bytes), "y": scale.of(mark.slowdown), "arrowhead": 0, "arrowwidth": 1,
            "text": f"published {mark.slowdown:g}×", "arrowcolor": _PUBLISHED, "standoff": 8,
            "name": "published (arXiv 2512.05831)", "showarrow": True,
        }  # fmt: skip
        if free:
            words.append({**word, "ax": 14, "ay": 0, "xanchor": "left"})
            continue
        highest = max([row["slowdown_high"] for row in near], default=mark.slowdown)
        up = scale.pixel(max(highest, mark.slowdown)) - scale.pixel(mark.slowdown) - _OVER - above * GAP
        words.append({**word, "ax": -30, "ay": round(up, 1), "xanchor": "right"})
        above += 1
    return words


_NEAR, _OVER = 6.0, 16.0  # of sizes whose bands a word may cover;  pixels between them and the word


def _ends(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    sizes = [row["table_bytes"] for row in rows]
    return min(sizes), max(sizes)


def _size_axes(rows: Sequence[Mapping[str, Any]], first: Drawn) -> dict[str, Any]:
    """The lower axis of bytes, and the upper axis with the number of GPUs."""
    left, right = _ends(rows)
    ticks = style.log_ticks(left, right, _DECADES)
    lower = {"tickvals": ticks, "ticktext": [style.bytes_tick(size) for size in ticks]}
    upper = style.bytes_axis(left, right, "GPUs needed", side="top", overlaying="x", matches="x")
    upper |= {
        "tickvals": ticks,
        "ticktext": [_gpus_at(first, size) for size in ticks],
        "showgrid": False,
        "minor": {},
    }
    return {"xaxis": style.bytes_axis(left, right, "bytes of all tables", **lower), "xaxis2": upper}


_DECADES = 3.5  # of sizes that have ticks at 1, 2 and 5


def _upper_trace(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An invisible trace: plotly draws the upper axis only if a trace uses it."""
    return {
        "type": "scatter", "x": list(_ends(rows)), "y": [1, 1], "xaxis": "x2", "mode": "lines",
        "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "name": "GPUs",
    }  # fmt: skip


def _gpus_at(line: Drawn, size: float) -> str:
    """The number of GPUs at a table size, if the line has a point there; else ""."""
    found = (row["gpus"] for row in line.rows if abs(row["table_bytes"] / size - 1) < 1e-6)
    known = next(found, None)
    return "" if known is None else format_count(known)


def _borders(asked: Answer, rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Table sizes that fill a node, and a scale-up domain if that is different, with their labels."""
    left, right = _ends(rows)
    each = asked.gpu_count.usable_bytes
    sizes = [(gpus * each, words) for gpus, words in full(asked)]
    return [(size, words) for size, words in sizes if left < size < right]
