"""Figure of the same tables on growing numbers of GPUs: slowdown, time, samples per second, by exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.answer import Answer
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.ends import PixelScale
from perfmodel.report.figures.line_traces import (
    Columns,
    Drawn,
    Row,
    SlowdownLine,
    dash_words,
    drawn_of,
    fastest_other,
    full,
    heights,
    labels,
    ratio_words,
    rule_words,
    source,
    traces,
)
from perfmodel.report.figures.marks import rule
from perfmodel.report.figures.registry import OVER_GPUS
from perfmodel.report.figures.words import size_words
from perfmodel.units import counted, format_count, format_number, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "gpus", "table_bytes", "batch", "slowdown", "slowdown_low", "slowdown_high", "time_s", "low_s", "high_s",
    "baseline_time_s", "memory_bytes", "fits",
)  # fmt: skip
_MARGIN = {"l": 72, "r": 190, "t": 40, "b": 60}
_HEIGHT, _WIDTH = 540, 820
_BELOW, _ABOVE = 0.8, 1.3
"""Ends of an axis, as factors of the lowest and of the highest value."""
_IDEAL = "no slowdown"
_SAME = 1e-9


@dataclass(frozen=True)
class _Quantity:
    """A quantity that a button shows: slowdown, time or rate.

    columns  of the lines that are drawn;  axis  returns the y axis for the ends of the values
    """

    label: str
    columns: Columns
    axis: Callable[[float, float], dict[str, Any]]


def samples_words(value: float) -> str:
    """A number with at most three figures and a letter for thousands: ``12 M``."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{format_number(value / factor)}{unit}"
    return format_number(value)


def samples_tick(value: float) -> str:
    """A number for an axis, without zeros at its end: ``12 M``."""
    number, _, unit = samples_words(value).partition(" ")
    return f"{float(number):g} {unit}".strip()


_QUANTITIES = (
    _Quantity(
        "slowdown",
        Columns("gpus", "slowdown", "slowdown_low", "slowdown_high"),
        lambda low, high: style.ratio_axis(low, high, "slowdown (×)"),
    ),
    _Quantity(
        "time",
        Columns("gpus", "time_s", "low_s", "high_s"),
        lambda low, high: style.time_axis(low, high, "time of a batch"),
    ),
    _Quantity(
        "samples/s",
        Columns("gpus", "samples_per_s", "samples_per_s_low", "samples_per_s_high"),
        lambda low, high: style.log_axis(low, high, samples_tick, "samples per second"),
    ),
)


def over_gpus(lines: Sequence[SlowdownLine], asked: Answer, first: str = "slowdown") -> Block | Missing:
    """Lines with bands over numbers of GPUs; the first line is the requested exchange.

    asked   the projection that the title is about, by the first line's exchange
    first   label of the quantity with which the figure opens
    Limits: no line with two GPUs or more -> Missing
    """
    known = [line for line in lines if (line.frame["gpus"].to_numpy() > 1).any()]
    if not known:
        return OVER_GPUS.missing("on one GPU nothing is sharded: ask for more with --gpus.")
    drawn = drawn_of([*known, _ideal(known[0].frame, asked)], _COLUMNS)
    for one in drawn:
        for row in one.rows:
            row |= _rates(row)
    rows = tuple(row for one in drawn for row in one.rows)
    left, right = min(row["gpus"] for row in rows), max(row["gpus"] for row in rows)
    borders = [(gpus, words) for gpus, words in full(asked) if left < gpus < right]
    words = rule_words(borders, left, right)
    shown = sorted(_QUANTITIES, key=lambda quantity: quantity.label != first)
    switches = tuple(_switch(quantity, drawn, words) for quantity in shown)
    figure = style.new_figure(
        [trace for one in drawn for trace in traces(one, shown[0].columns, _hover)],
        height=_HEIGHT,
        margin=_MARGIN,
        meta={"min_width": _WIDTH, "right": _MARGIN["r"]},
        xaxis=_gpus_axis(left, right),
        shapes=[rule("x", at, dash="dot") for at, _ in borders],
        **switches[0].layout,
    )
    same = len({row["batch"] for row in rows}) == 1
    how = (
        "The same tables on more and more GPUs, with the same samples "
        f"{'per GPU' if same else 'on all of them together'}. The grey line is one GPU whose memory holds "
        f"all tables (evidence: {asked.baseline_evidence}). Ribbons are 95 % bands; "
        f"{dash_words(row['main_evidence'] for row in rows)}."
    )
    return OVER_GPUS.block(sentence(known, asked), how, figure, source(asked, rows), rows, switches)


def _ideal(frame: pd.DataFrame, asked: Answer) -> SlowdownLine:
    """The line for a GPU whose memory holds all tables: its slowdown is 1 everywhere."""
    kind, time = str(asked.baseline_evidence), frame["baseline_time_s"]
    same: dict[str, Any] = {
        "time_s": time,
        "low_s": time,
        "high_s": time,
        "evidence": kind,
        "main_evidence": kind,
    }
    ones = dict.fromkeys(("slowdown", "slowdown_low", "slowdown_high"), 1.0)
    return SlowdownLine(_IDEAL, frame.assign(**same, **ones), supposed=True, style=len(style.PALETTE) - 1)


def sentence(lines: Sequence[SlowdownLine], asked: Answer) -> str:
    """The title: the slowdown at the number of GPUs of ``asked``, and where the rate is highest."""
    low, high = asked.band
    if asked.gpus == 1:
        return f"The tables fit on one GPU, so nothing is slower there. {_most(lines[0].frame)}"
    first = f"On {counted(asked.gpus, 'GPU')} a batch takes {format_time(asked.time_s)}, "
    if format_ratio(asked.slowdown) == format_ratio(1.0):
        return f"{first}as on one GPU that holds all tables. {_most(lines[0].frame)}"
    first += (
        f"{format_ratio(asked.slowdown)} slower than on one GPU that holds all tables ({format_ratio(low)} "
        f"to {format_ratio(high)})"
    )
    other = fastest_other(lines, "gpus", asked.gpus)
    if other is not None and other[0] < asked.slowdown * (1 - _SAME):
        first += f"; {other[1]} would make it {format_ratio(other[0])}"
    elif other is not None:
        first += ", and no other way drawn here is faster"
    return f"{first}. {_most(lines[0].frame)}"


def _most(frame: pd.DataFrame) -> str:
    """A sentence: on how many GPUs the line has the most samples per second, if the tables fit."""
    frame = frame[frame["fits"].to_numpy() > 0]
    if frame.empty:
        return "The tables fit on none of these numbers of GPUs."
    rates = frame["batch"].to_numpy() * frame["gpus"].to_numpy() / frame["time_s"].to_numpy()
    at = int(rates.argmax())
    gpus = int(frame["gpus"].to_numpy()[at])
    return f"Most samples per second: {samples_words(float(rates[at]))}, on {counted(gpus, 'GPU')}."


def _rates(row: Row) -> dict[str, float]:
    """By column, samples per second on all GPUs: for the time of a batch, and for both ends of its band."""
    times = {"samples_per_s": "time_s", "samples_per_s_low": "high_s", "samples_per_s_high": "low_s"}
    return {name: float(row["batch"] * row["gpus"] / row[time]) for name, time in times.items()}


def _switch(quantity: _Quantity, drawn: Sequence[Drawn], words: list[dict[str, Any]]) -> Switch:
    shown = quantity.columns
    values = [value for one in drawn for name in (shown.low, shown.high) for value in one.values(name)]
    low, high = _BELOW * min(values), _ABOVE * max(values)
    scale = PixelScale(low, high, _HEIGHT - _MARGIN["t"] - _MARGIN["b"], log=True)
    ends = labels(drawn, shown.x, shown.y, scale)
    layout = {"yaxis": quantity.axis(low, high), "annotations": [*words, *ends]}
    return Switch(quantity.label, {"y": [y for one in drawn for y in heights(one, shown)]}, layout)


def _gpus_axis(left: float, right: float) -> dict[str, Any]:
    """An axis of GPUs with ticks at powers of two."""
    ticks = [2.0**k for k in range(25) if left <= 2**k <= right] or [left, right]
    words = {"tickvals": ticks, "ticktext": [format_count(value) for value in ticks]}
    return style.log_axis(left, right, format_count, "GPUs", **words)


def _hover(row: Row) -> list[str]:
    gpus, size = counted(int(row["gpus"]), "GPU"), size_words(row["table_bytes"])
    rate = f"{samples_words(row['samples_per_s'])} samples per second"
    return [f"{gpus}, tables of {size}", *ratio_words(row), rate]
