"""Slowdown against the size of the tables: a line each way to exchange, with its band and its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfmodel.project import Projection
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.ends import GAP, LabelledEnd, Scale, end_labels
from perfmodel.report.figures.words import safe
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_count, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

NAME = "slowdown"
_COLUMNS = ("table_bytes", "gpus", "slowdown", "slowdown_low", "slowdown_high", "time_s", "baseline_time_s")
_MARGIN = {"l": 72, "r": 190, "t": 84, "b": 60}
_HEIGHT, _WIDTH = 560, 820
_LOWEST, _ABOVE = 0.8, 1.3
"""Of the axis: its lower end, and its upper end over the highest value."""


@dataclass(frozen=True, eq=False)
class Line:
    """One way to exchange over many sizes.

    frame   what ``perfmodel.project`` gives, a row a size, sizes increasing
    """

    label: str
    frame: pd.DataFrame
    supposed: bool = False  # of other hardware than the machine has


@dataclass(frozen=True)
class Mark:
    """A published slowdown to compare with."""

    table_bytes: float
    slowdown: float
    label: str


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A line with its numbers as lists."""

    label: str
    colour: str
    symbol: str
    rows: tuple[dict[str, Any], ...]
    first: bool

    def values(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def slowdown(lines: Sequence[Line], asked: Projection, marks: Sequence[Mark] = ()) -> Block | Missing:
    """Lines with bands over table sizes; the first is the way that was asked for.

    asked   the projection that the sentence is about, of the first line's way
    Limits: no line, or none with a size that needs two GPUs -> Missing
    """
    known = [line for line in lines if (line.frame["gpus"].to_numpy() > 1).any()]
    if not known:
        return Missing(NAME, "no size here needs more than one GPU: ask for larger tables with --table-size.")
    drawn = [
        _Drawn(line.label, style.colour(at), style.symbol(at), tuple(_rows(line)), at == 0)
        for at, line in enumerate(known)
    ]
    rows = tuple(row for one in drawn for row in one.rows)
    top = max([row["slowdown_high"] for row in rows] + [mark.slowdown for mark in marks])
    traces = [trace for one in drawn for trace in _traces(one)]
    log = style.ratio_axis(_LOWEST, _ABOVE * top, "slowdown (×)")
    linear = style.axis("slowdown (×)", rangemode="tozero", range=[0, top])
    on_log, on_linear = (
        [*_border_words(asked, rows), *_mark_words(marks, rows, scale), *_labels(drawn, scale)]
        for scale in (_scale(_LOWEST, _ABOVE * top, log=True), _scale(0.0, top, log=False))
    )
    figure = style.plain_figure(
        [*traces, *_mark_traces(marks), _upper_trace(rows)],
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        yaxis=log,
        annotations=on_log,
        shapes=_borders_drawn(asked, rows),
        **_size_axes(rows, drawn[0]),
    )
    switches = (
        Switch("log", {}, {"yaxis": log, "annotations": on_log}),
        Switch("linear", {}, {"yaxis": linear, "annotations": on_linear}),
    )
    title, how = sentence(known, asked), _how(rows)
    return Block(NAME, title, how, figure, _source(asked, rows), rows, switches)


def _scale(lowest: float, highest: float, *, log: bool) -> Scale:
    return Scale(lowest, highest, _HEIGHT - _MARGIN["t"] - _MARGIN["b"], log)


def sentence(lines: Sequence[Line], asked: Projection) -> str:
    """What the lines say at the size of ``asked``, which every line has."""
    low, high = asked.band
    size = format_bytes(asked.gpu_count.table_bytes, binary=False)
    if asked.gpus == 1:
        return f"Tables of {size} fit one GPU, so nothing is slower there."
    first = (
        f"Tables of {size} on {format_count(asked.gpus)} GPUs are {format_ratio(asked.slowdown)} slower than "
        f"in one memory ({format_ratio(low)} to {format_ratio(high)})"
    )
    others = [
        (_at(line.frame, asked.gpu_count.table_bytes), line.label) for line in lines[1:] if not line.supposed
    ]
    known = [(value, label) for value, label in others if value is not None]
    if not known:
        return f"{first}."
    least, label = min(known)
    if least >= asked.slowdown:
        return f"{first}, and no other way drawn here is faster."
    return f"{first}; {label} would make it {format_ratio(least)}."


def _at(frame: pd.DataFrame, table_bytes: float) -> float | None:
    """Slowdown of a line at a size that it has; None where it has not."""
    found = abs(frame["table_bytes"].to_numpy() / table_bytes - 1) < 1e-9
    return float(frame["slowdown"].to_numpy()[found][0]) if found.any() else None


def _how(rows: Sequence[Mapping[str, Any]]) -> str:
    used = dict.fromkeys(Evidence(row["evidence"]) for row in rows)
    if len(used) == 1:
        dashes = f"every line rests on something {next(iter(used))}"
    else:
        words = (f"{_DASH_WORDS[style.DASHES[item]]} = {item}" for item in sorted(used, key=lambda e: e.rank))
        dashes = "lines by their weakest evidence: " + ", ".join(words)
    return (
        "Time of a batch on as many GPUs as each size needs, over that of the same batch in one memory; "
        f"ribbons are 95 % bands; {dashes}."
    )


_DASH_WORDS = {
    "solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot", "longdash": "long dashes",
    "longdashdot": "long dash-dot",
}  # fmt: skip


def _rows(line: Line) -> Iterator[dict[str, Any]]:
    """Rows of the data: numbers in SI units."""
    columns = [line.frame[name].tolist() for name in (*_COLUMNS, "evidence")]
    for *numbers, evidence in zip(*columns, strict=True):
        rounded = {name: float(f"{float(value):.6g}") for name, value in zip(_COLUMNS, numbers, strict=True)}
        yield {"line": line.label, **rounded, "evidence": str(evidence)}


def _traces(line: _Drawn) -> Iterator[dict[str, Any]]:
    """The ribbon, then the line in parts of one evidence each."""
    x, low, high = (line.values(name) for name in ("table_bytes", "slowdown_low", "slowdown_high"))
    name = safe(line.label)
    same = {"type": "scatter", "legendgroup": name, "name": name}
    yield {
        **same, "x": [*x, *reversed(x)], "y": [*high, *reversed(low)], "fill": "toself", "line": {"width": 0},
        "fillcolor": style.faded(line.colour, 0.14 if line.first else 0.04), "mode": "lines",
        "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    y, words = line.values("slowdown"), [_hover(row) for row in line.rows]
    evidence = line.values("evidence")
    first = True
    for kind, members in groupby(range(len(x)), key=lambda at: evidence[at]):
        span = list(members)
        part = slice(max(span[0] - 1, 0), span[-1] + 1)
        dash = style.DASHES[Evidence(kind)]
        yield {
            **same, "x": x[part], "y": y[part], "customdata": words[part], "hovertemplate": _HOVER,
            "line": {"color": line.colour, "width": 3 if line.first else 2, "dash": dash},
            "mode": "lines+markers",
            "marker": {"symbol": line.symbol, "size": 8, "color": line.colour, "maxdisplayed": 7},
            "showlegend": first,
        }  # fmt: skip
        first = False


_HOVER = (
    "<b>%{fullData.name}</b><br>%{customdata[0]} on %{customdata[1]} GPUs<br>%{customdata[2]}, band "
    "%{customdata[3]} – %{customdata[4]}<br>%{customdata[5]} instead of %{customdata[6]}<br>"
    "evidence: %{customdata[7]}<extra></extra>"
)


def _hover(row: Mapping[str, Any]) -> list[str]:
    ratios = (format_ratio(row[name]) for name in ("slowdown", "slowdown_low", "slowdown_high"))
    size, gpus = format_bytes(row["table_bytes"], binary=False), format_count(row["gpus"])
    times = (format_time(row["time_s"]), format_time(row["baseline_time_s"]))
    return [size, gpus, *ratios, *times, row["evidence"]]


def _labels(drawn: Sequence[_Drawn], scale: Scale) -> list[dict[str, Any]]:
    """The name of each line at its end, moved up or down where two would overlap."""
    ends = [
        LabelledEnd(safe(d.label), d.rows[-1]["table_bytes"], d.rows[-1]["slowdown"], d.colour) for d in drawn
    ]
    return end_labels(ends, scale)


def _mark_traces(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    if not marks:
        return []
    return [
        {
            "type": "scatter",
            "x": [mark.table_bytes for mark in marks],
            "y": [mark.slowdown for mark in marks],
            "customdata": [mark.label for mark in marks],
            "hovertemplate": "%{customdata}<extra></extra>",
            "mode": "markers",
            "marker": {"symbol": "star-diamond", "size": 14, "color": _PUBLISHED, "line": {"width": 1}},
            "name": "published (arXiv 2512.05831)",
        }
    ]


_PUBLISHED = style.PALETTE[7]


def _mark_words(
    marks: Sequence[Mark], rows: Sequence[Mapping[str, Any]], scale: Scale
) -> list[dict[str, Any]]:
    """The value of each mark: beside it where it lies below all lines, else over their bands."""
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


def _size_axes(rows: Sequence[Mapping[str, Any]], first: _Drawn) -> dict[str, Any]:
    """Bytes below, the number of GPUs along the top."""
    left, right = _ends(rows)
    ticks = style.log_ticks(left, right, _DECADES)
    lower = {"tickvals": ticks, "ticktext": [style.bytes_tick(size) for size in ticks]}
    upper = style.bytes_axis(left, right, "GPUs that it takes", side="top", overlaying="x", matches="x")
    upper |= {"tickvals": ticks, "ticktext": [_gpus_at(first, size) for size in ticks], "showgrid": False}
    return {"xaxis": style.bytes_axis(left, right, "bytes of all tables", **lower), "xaxis2": upper}


_DECADES = 3.5  # of sizes that have ticks at 1, 2 and 5


def _upper_trace(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nothing to see: without a trace of its own the upper axis is not drawn."""
    return {
        "type": "scatter", "x": list(_ends(rows)), "y": [1, 1], "xaxis": "x2", "mode": "lines",
        "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "name": "GPUs",
    }  # fmt: skip


def _gpus_at(line: _Drawn, size: float) -> str:
    """GPUs of a size that is drawn; nothing of another."""
    found = (row["gpus"] for row in line.rows if abs(row["table_bytes"] / size - 1) < 1e-6)
    known = next(found, None)
    return "" if known is None else format_count(known)


def _borders(asked: Projection) -> Iterator[tuple[float, str]]:
    """Bytes that fill a node, and an NVLink domain where that is another."""
    count, domain = asked.gpu_count, asked.setting.machine.nvlink_domain_gpus
    node = count.gpus_per_node
    if node > 1:
        yield node * count.usable_bytes, f"node of {node} ends "
    if domain not in (1, node) and not asked.setting.one_domain:
        yield domain * count.usable_bytes, f"NVLink domain of {domain} ends "


def _inside(asked: Projection, rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    left, right = _ends(rows)
    return [(size, words) for size, words in _borders(asked) if left < size < right]


def _borders_drawn(asked: Projection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "line", "x0": size, "x1": size, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": style.PALETTE[7], "width": 1, "dash": "dot"},
        }
        for size, _ in _inside(asked, rows)
    ]  # fmt: skip


def _border_words(asked: Projection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "x": math.log10(size), "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top",
            "text": words, "showarrow": False, "font": {"size": 12},
        }
        for size, words in _inside(asked, rows)
    ]  # fmt: skip


def _source(asked: Projection, rows: Sequence[Mapping[str, Any]]) -> str:
    weakest = Evidence.weakest(Evidence(row["evidence"]) for row in rows)
    return (
        f"Machine {asked.setting.machine.name}; calibration {', '.join(dict.fromkeys(asked.calibrations))}; "
        f"weakest evidence: {weakest}."
    )
