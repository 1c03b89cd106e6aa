"""Figures that compare two answers: times over table sizes with their ratio, and the steps of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfmodel.projections import Projection
from perfmodel.projections.comparison import Difference, DifferenceVerdict
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.breakdown import stacked, step_rows
from perfmodel.report.figures.ends import LabelledEnd, PixelScale, end_labels
from perfmodel.report.figures.line_traces import (
    Columns,
    SlowdownLine,
    dash_words,
    drawn_of,
    traces,
)
from perfmodel.report.figures.marks import rule, scatter, whiskers
from perfmodel.report.figures.registry import COMPARED_STEPS, COMPARED_TIME
from perfmodel.report.figures.words import hover, interval_end, sentence, size_words
from perfmodel.report.projection_text import band
from perfmodel.units import counted, format_count, format_fraction, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("table_bytes", "gpus", "time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high")
_SHOWN = Columns("table_bytes", "time_s", "low_s", "high_s")
_HEIGHT, _MARGIN = 640, {"l": 72, "r": 48, "t": 40, "b": 60}
_UPPER, _LOWER = (0.4, 1.0), (0.0, 0.34)
"""Lower and upper end of the panes of times and of their ratio, as shares of the height."""
_PAD = 0.02  # part of the axis of sizes that stays free at each end, so that no mark is cut
_COLOURS = {DifferenceVerdict.A: style.colour(0), DifferenceVerdict.B: style.colour(1)}


@dataclass(frozen=True, eq=False)
class Pair:
    """Two answers to the same question, A and B, with the names that the figures show for them."""

    a: Projection
    b: Projection
    a_name: str
    b_name: str

    @property
    def size(self) -> str:
        """The size of all tables: ``10 TB``."""
        return size_words(self.a.gpu_count.table_bytes)

    @property
    def sides(self) -> tuple[tuple[str, str, Projection], ...]:
        """For A and for B: the letter, the name in the legend, and the answer."""
        return (("A", f"A {self.a_name}", self.a), ("B", f"B {self.b_name}", self.b))


def times(pair: Pair, frames: tuple[pd.DataFrame, pd.DataFrame]) -> Block:
    """Lines of the time of a batch of A and of B over table sizes, with bands; below, the ratio A over B.

    frames  results of ``perfmodel.project`` for A and for B at the same, increasing sizes
    """
    lines = [SlowdownLine(side[1], frame) for side, frame in zip(pair.sides, frames, strict=True)]
    drawn = [replace(one, first=True) for one in drawn_of(lines, _COLUMNS)]
    rows = [row for one in drawn for row in one.rows]
    points = [
        Difference("batch", size_words(a["table_bytes"]), *(_span(row) for row in (a, b)))
        for a, b in zip(drawn[0].rows, drawn[1].rows, strict=True)
    ]
    sizes = drawn[0].values("table_bytes")
    lowest, highest = min(row["low_s"] for row in rows) / 1.2, max(row["high_s"] for row in rows) * 1.2
    scale = PixelScale(lowest, highest, 0.6 * (_HEIGHT - _MARGIN["t"] - _MARGIN["b"]), log=True)
    last = [(one.rows[-1]["table_bytes"], one.rows[-1]["time_s"], one.colour) for one in drawn]
    ends = [LabelledEnd(letter, *end) for letter, end in zip("AB", last, strict=True)]
    reach = [end for one in points for end in (one.ratio[0], one.ratio[2], 1.0)]
    pad = (sizes[-1] / sizes[0]) ** _PAD
    figure = style.new_figure(
        [*(t for one in drawn for t in traces(one, _SHOWN, _hover)), _ratios(sizes, points)],
        height=_HEIGHT,
        margin=_MARGIN,
        xaxis=style.bytes_axis(sizes[0] / pad, sizes[-1] * pad, "bytes of all tables", anchor="y2"),
        yaxis=style.time_axis(lowest, highest, "time of a batch", domain=_UPPER),
        yaxis2=style.ratio_axis(min(reach) / 1.1, max(reach) * 1.1, "A over B (×)", domain=_LOWER),
        annotations=end_labels(ends, scale),
        shapes=[rule("y2", 1)],
    )
    how = (
        "Time of a batch on as many GPUs as the tables need; ribbons are 95 % bands. Below: A's time divided "
        "by B's with its 95 % interval, in the colour of the faster one where the interval excludes 1, grey "
        "where it includes 1. The interval assumes that the errors of A and B are independent; errors that "
        f"both share would make it narrower. {sentence(dash_words(row['main_evidence'] for row in rows))}"
    )
    data = (*rows, *(_ratio_row(size, one) for size, one in zip(sizes, points, strict=True)))
    return COMPARED_TIME.block(_times_title(points), how, figure, _source(pair), data)


def steps(pair: Pair) -> Block | Missing:
    """Two stacked bars: the steps of A, and the steps of B. Limits: both fit on one GPU -> Missing"""
    answers = (pair.a, pair.b)
    if max(answer.gpus for answer in answers) == 1:
        return COMPARED_STEPS.missing("both fit on one GPU: ask for larger tables with --table-size.")
    labels = [f"{label}<br>{counted(p.gpus, 'GPU')}<br>{format_time(p.time_s)}" for _, label, p in pair.sides]
    figure, switches = stacked(answers, labels, "GPUs, and time of a batch", in_shares_first=False)
    longest = [max(answer.steps, key=lambda step: step.time_s) for answer in answers]
    a, b = (f"{step.label} ({format_fraction(step.share)} of its time)" for step in longest)
    title = f"For {pair.size} the longest step of A is the {a}, that of B the {b}."
    how = "Each bar is one batch; its segments are the steps, the first at the bottom."
    rows = tuple({"side": letter, **row} for letter, _, p in pair.sides for row in step_rows(p))
    return COMPARED_STEPS.block(title, how, figure, _source(pair), rows, switches)


def _times_title(points: Sequence[Difference]) -> str:
    """The title: which of A and B is faster, and at how many sizes the band of the ratio leaves no doubt."""
    where = f"from {points[0].label} to {points[-1].label}" if len(points) > 1 else f"for {points[0].label}"
    if all(one.verdict is DifferenceVerdict.SAME for one in points):
        return f"A and B take the same time {where}."
    ratios = [one.ratio[1] for one in points]
    sure = sum(one.verdict in _COLOURS for one in points)
    certain = f"; the interval excludes 1 at {format_count(sure)} of {counted(len(points), 'size')}"
    for fast, slow, gains in (("B", "A", ratios), ("A", "B", [1 / ratio for ratio in ratios])):
        if min(gains) >= 1:
            least, most = format_ratio(min(gains)), format_ratio(max(gains))
            span = least if least == most else f"{least} to {most}"
            return f"{fast} is {span} as fast as {slow} {where}{certain}."
    span = f"{format_ratio(min(ratios))} to {format_ratio(max(ratios))}"
    return f"Which is faster depends on the size: A's time over B's is {span} {where}{certain}."


def _span(row: Mapping[str, Any]) -> tuple[float, float, float]:
    return row["low_s"], row["time_s"], row["high_s"]


def _ratios(sizes: Sequence[float], points: Sequence[Difference]) -> dict[str, Any]:
    """Points for the ratio A over B at each size with its band, in the colour of the faster."""
    low, middle, high = zip(*(one.ratio for one in points), strict=True)
    bars = whiskers(middle, low, high, color=style.RULE, thickness=1, width=3)
    marker = {"color": [_COLOURS.get(one.verdict, style.RULE) for one in points], "size": 8}
    words = [_ratio_text(one) for one in points]
    return scatter(sizes, middle, words, "A over B", marker, error_y=bars, yaxis="y2", showlegend=False)


def _ratio_text(one: Difference) -> str:
    low, middle, high = one.ratio
    return hover(
        [
            f"<b>{one.label}</b>",
            f"A over B {format_ratio(middle)}, interval {interval_end(low)} – {interval_end(high)}",
            f"{format_time(one.a[1])} and {format_time(one.b[1])}",
            str(one.verdict),
        ]
    )


def _ratio_row(size: float, one: Difference) -> dict[str, Any]:
    low, middle, high = one.ratio
    values = {"ratio": middle, "ratio_low": low, "ratio_high": high, "verdict": str(one.verdict)}
    return {"line": "A over B", "table_bytes": size, **values}


def _hover(row: Mapping[str, Any]) -> list[str]:
    where = f"{size_words(row['table_bytes'])} on {counted(int(row['gpus']), 'GPU')}"
    ends = band(row["low_s"], row["high_s"])
    slower = f"slowdown {format_ratio(row['slowdown'])}"
    return [where, f"{format_time(row['time_s'])} per batch, band {ends}", slower]


def _source(pair: Pair) -> str:
    parts = (
        f"{letter}: machine {answer.setting.machine.name}, calibration "
        f"{', '.join(dict.fromkeys(answer.calibrations))}, weakest evidence {answer.evidence}"
        for letter, _, answer in pair.sides
    )
    return f"{'; '.join(parts)}."
