"""Slowdown against the size of the tables: a line each way to exchange, with its band and its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfmodel.project import Projection
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_count, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

NAME = "slowdown"
_COLUMNS = ("table_bytes", "gpus", "slowdown", "slowdown_low", "slowdown_high", "time_s", "baseline_time_s")


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


def slowdown(lines: Sequence[Line], asked: Projection, marks: Sequence[Mark] = ()) -> Block | Missing:
    """Lines with bands over table sizes; the first is the way that was asked for.

    asked   the projection that the sentence is about, of the first line's way
    Limits: no line, or none with a size that needs two GPUs -> Missing
    """
    drawn = [line for line in lines if (line.frame["gpus"] > 1).any()]
    if not drawn:
        return Missing(NAME, "no size here needs more than one GPU: ask for larger tables with --table-size.")
    figure = style.new_figure(height=520)
    for index, line in enumerate(drawn):
        for trace in _traces(line, style.colour(index)):
            figure.add_trace(trace)
    _add_marks(figure, marks)
    _axes(figure, drawn, asked, marks)
    rows = tuple(row for line in drawn for row in _rows(line))
    ends = [v for line in drawn for v in (line.frame["slowdown_high"].max(), 1.0)]
    top = max([*map(float, ends), *(mark.slowdown for mark in marks)])
    return Block(
        NAME,
        sentence(drawn, asked),
        _how(drawn),
        figure,
        _source(asked, rows),
        rows,
        (
            Switch("log", {}, {"yaxis": style.ratio_axis(0.8, 1.3 * top, "slowdown (×)")}),
            Switch("linear", {}, {"yaxis": style.axis("slowdown (×)", rangemode="tozero", range=[0, top])}),
        ),
    )


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
    found = frame.loc[(frame["table_bytes"] / table_bytes - 1).abs() < 1e-9, "slowdown"]
    return float(found.iloc[0]) if len(found) else None


def _how(lines: Sequence[Line]) -> str:
    used = dict.fromkeys(Evidence(str(value)) for line in lines for value in line.frame["evidence"])
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


def _traces(line: Line, colour: str) -> Iterator[Any]:
    """The ribbon, then the line in parts of one evidence each."""
    import plotly.graph_objects as go

    frame = line.frame
    x, low, high = (_numbers(frame, name) for name in ("table_bytes", "slowdown_low", "slowdown_high"))
    yield go.Scatter(
        x=[*x, *reversed(x)], y=[*high, *reversed(low)], fill="toself", fillcolor=style.faded(colour, 0.1),
        line={"width": 0}, mode="lines", hoverinfo="skip", legendgroup=line.label, showlegend=False,
        name=line.label,
    )  # fmt: skip
    y, words = _numbers(frame, "slowdown"), [_hover(row) for row in _rows(line)]
    evidence = [str(value) for value in frame["evidence"]]
    first = True
    for kind, members in groupby(range(len(x)), key=lambda at: evidence[at]):
        span = list(members)
        part = slice(max(span[0] - 1, 0), span[-1] + 1)
        dash = style.DASHES[Evidence(kind)]
        yield go.Scatter(
            x=x[part], y=y[part], customdata=words[part], mode="lines", hovertemplate=_HOVER, name=line.label,
            line={"color": colour, "dash": dash, "width": 2.5}, legendgroup=line.label, showlegend=first,
        )  # fmt: skip
        first = False


def _numbers(frame: pd.DataFrame, name: str) -> list[float]:
    return [float(f"{value:.6g}") for value in frame[name]]


def _rows(line: Line) -> list[dict[str, Any]]:
    """Rows of the data: numbers in SI units."""
    names = [*_COLUMNS, "evidence"]
    found = []
    for values in line.frame[names].itertuples(index=False):
        row: dict[str, Any] = dict(zip(names, values, strict=True))
        numbers = {name: float(f"{float(row[name]):.6g}") for name in _COLUMNS}
        found.append({"line": line.label, **numbers, "evidence": str(row["evidence"])})
    return found


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


def _add_marks(figure: Any, marks: Sequence[Mark]) -> None:
    import plotly.graph_objects as go

    if not marks:
        return
    figure.add_trace(
        go.Scatter(
            x=[mark.table_bytes for mark in marks],
            y=[mark.slowdown for mark in marks],
            text=[f"{mark.slowdown:g}×" for mark in marks],
            customdata=[mark.label for mark in marks],
            hovertemplate="%{customdata}<extra></extra>",
            mode="markers+text",
            textposition="middle right",
            marker={"symbol": "star-diamond", "size": 13, "color": style.PALETTE[7]},
            textfont={"color": style.PALETTE[7]},
            name="published (arXiv 2512.05831)",
        )
    )


def _axes(figure: Any, lines: Sequence[Line], asked: Projection, marks: Sequence[Mark]) -> None:
    """Both axes, the number of GPUs along the top, and rules where a node and an NVLink domain end."""
    import plotly.graph_objects as go

    frames = [line.frame for line in lines]
    left = min(float(frame["table_bytes"].min()) for frame in frames)
    right = max(float(frame["table_bytes"].max()) for frame in frames)
    top = max([float(frame["slowdown_high"].max()) for frame in frames] + [mark.slowdown for mark in marks])
    figure.update_xaxes(style.bytes_axis(left, right, "bytes of all tables"))
    figure.update_yaxes(style.ratio_axis(0.8, 1.3 * top, "slowdown (×)"))
    below = {"y": -0.16, "yanchor": "top"}
    figure.update_layout(legend=below, margin={"t": 88})
    frame = frames[0]
    ticks = style.log_ticks(left, right)
    counts = [_gpus_at(frame, size) for size in ticks]
    upper = style.bytes_axis(left, right, "GPUs that it takes", side="top", overlaying="x", matches="x")
    upper |= {"tickvals": ticks, "ticktext": counts, "showgrid": False}
    figure.update_layout(xaxis2=upper)
    figure.add_trace(
        go.Scatter(x=[left, right], y=[1, 1], xaxis="x2", mode="lines", line={"width": 0}, hoverinfo="skip",
                   showlegend=False, name="GPUs"),
    )  # fmt: skip
    for size, words in _borders(asked):
        if left < size < right:
            figure.add_vline(x=size, line={"color": style.PALETTE[7], "width": 1, "dash": "dot"})
            at = {"x": _log10(size), "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top"}
            figure.add_annotation(text=words, showarrow=False, font={"size": 12}, **at)


def _log10(value: float) -> float:
    import math

    return math.log10(value)


def _gpus_at(frame: pd.DataFrame, size: float) -> str:
    """GPUs of the nearest size drawn that is not smaller."""
    at = frame.loc[frame["table_bytes"] >= size * (1 - 1e-9), "gpus"]
    return format_count(float(at.iloc[0] if len(at) else frame["gpus"].iloc[-1]))


def _borders(asked: Projection) -> Iterator[tuple[float, str]]:
    """Bytes that fill a node, and an NVLink domain where that is another."""
    count, domain = asked.gpu_count, asked.setting.machine.nvlink_domain_gpus
    node = count.gpus_per_node
    if node > 1:
        yield node * count.usable_bytes, f"node of {node} ends "
    if domain not in (1, node) and not asked.setting.one_domain:
        yield domain * count.usable_bytes, f"NVLink domain of {domain} ends "


def _source(asked: Projection, rows: Sequence[Mapping[str, Any]]) -> str:
    weakest = Evidence.weakest(Evidence(row["evidence"]) for row in rows)
    return (
        f"Machine {asked.setting.machine.name}; calibration {', '.join(dict.fromkeys(asked.calibrations))}; "
        f"weakest evidence: {weakest}."
    )
