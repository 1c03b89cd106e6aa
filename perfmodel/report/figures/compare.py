"""Two answers side by side: time and slowdown over table sizes, their steps, and what each step saves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfmodel.project import Projection
from perfmodel.project.comparison import DifferenceVerdict, compared
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.compare_axis import BY_SIZE, CompareAxis
from perfmodel.report.figures.line_traces import dash_words, evidence_words, parts_of
from perfmodel.report.figures.words import hover, interval_end, safe, sentence
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_count, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

TIME, SLOWDOWN = "compare-time", "compare-slowdown"
_MARKS = {
    DifferenceVerdict.A: (style.colour(0), "circle"),
    DifferenceVerdict.B: (style.colour(1), "square"),
    DifferenceVerdict.CANNOT_SAY: (style.PALETTE[7], "diamond"),
    DifferenceVerdict.SAME: (style.PALETTE[7], "x"),
}
"""Colour and symbol by verdict: those of the faster one."""

INDEPENDENT = (
    "The interval assumes that the errors of A and B are independent. Errors that both share would make it "
    "narrower."
)
"""What an interval of two rests on: ``model.differences.apart``."""

PAD = 0.02
"""Part of a logarithmic axis that is left free at each end: a mark there is whole."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Answers of A and of B to one question; names as they were typed, told apart."""

    a: Projection
    b: Projection
    a_name: str
    b_name: str
    axis: CompareAxis = BY_SIZE

    @property
    def what(self) -> str:
        """What both are asked, in a sentence: ``10 TB``."""
        return self.axis.what(self.a)

    @property
    def sides(self) -> tuple[tuple[str, str, Projection], ...]:
        """Letter, legend and answer of both."""
        return (("A", f"A {self.a_name}", self.a), ("B", f"B {self.b_name}", self.b))

    @property
    def table_bytes(self) -> float:
        """Bytes of all tables."""
        return self.a.gpu_count.table_bytes


def verdict_mark(verdict: DifferenceVerdict) -> dict[str, Any]:
    """Marker of a verdict."""
    colour, symbol = _MARKS[verdict]
    return {"color": colour, "symbol": symbol, "size": 8}


def verdict_traces(
    x: Sequence[float],
    bands: Sequence[tuple[float, float, float]],
    verdicts: Sequence[str],
    texts: Sequence[str],
) -> Iterator[Any]:
    """Marks with whiskers, a trace a verdict, in the order of ``Verdict``.

    bands  low end, middle and high end of y
    """
    import plotly.graph_objects as go

    for verdict in DifferenceVerdict:
        at = [i for i, word in enumerate(verdicts) if word == verdict]
        if not at:
            continue
        up, down = ([abs(bands[i][end] - bands[i][1]) for i in at] for end in (2, 0))
        bars = {
            "type": "data",
            "symmetric": False,
            "array": up,
            "arrayminus": down,
            "thickness": 1,
            "width": 3,
        }
        yield go.Scatter(
            x=[x[i] for i in at], y=[bands[i][1] for i in at], mode="markers", marker=verdict_mark(verdict),
            error_y=bars, hovertext=[texts[i] for i in at], hoverinfo="text", name=str(verdict),
            legendgroup=str(verdict),
        )  # fmt: skip


def letters(figure: Any, ends: Sequence[tuple[float, float]]) -> None:
    """A and B at the ends of their lines, on logarithmic axes of the first row.

    ends  x and y of the last point of A, then of B
    Limits: ends so close that letters would cover each other -> the upper one above, the lower one below
    """
    up = ends[0][1] >= ends[1][1]
    near = abs(math.log(ends[0][1] / ends[1][1])) < _NEAR
    for index, (x, y) in enumerate(ends):
        shift = (9 if up == (index == 0) else -9) if near else 0
        figure.add_annotation(
            x=math.log10(x), y=math.log10(y), xref="x", yref="y", xanchor="left", yanchor="middle", xshift=6,
            yshift=shift, showarrow=False, text=f"<b>{'AB'[index]}</b>", font={"color": style.colour(index)},
        )  # fmt: skip


_NEAR = 0.5


def times(pair: Pair, frames: tuple[pd.DataFrame, pd.DataFrame]) -> Block | Missing:
    """Time of a batch of both over table sizes with bands, and their ratio below.

    frames  of ``perfmodel.project`` for A and for B, sizes increasing
    Limits: no size that both know -> Missing
    """
    both, axis = compared(*frames, pair.axis.key), pair.axis
    if both.empty:
        why = "A and B have no table size in common: ask for smaller tables with --table-size."
        return Missing(TIME, why if axis is BY_SIZE else "A and B have no number of GPUs in common.")
    figure = style.new_figure(height=640)
    figure.set_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.64, 0.36])
    rows = _lines(figure, pair, frames, "time_s", ("low_s", "high_s"))
    figure.update_layout(xaxis={"title": {"text": ""}, "showticklabels": False})
    sizes = both[axis.key].tolist()
    bands = list(zip(both["ratio_low"], both["ratio"], both["ratio_high"], strict=True))
    texts = [_ratio_text(row, axis) for row in both.to_dict(orient="records")]
    for trace in verdict_traces(sizes, bands, both["verdict"].tolist(), texts):
        figure.add_trace(trace, row=2, col=1)
    low, high = float(min(f["low_s"].min() for f in frames)), float(max(f["high_s"].max() for f in frames))
    figure.update_yaxes(style.time_axis(low / 1.2, high * 1.2, "time of a batch"), row=1, col=1)
    ends = min(1.0, both["ratio_low"].min()) / 1.1, max(1.0, both["ratio_high"].max()) * 1.1
    figure.update_yaxes(style.ratio_axis(*ends, "A over B (×)"), row=2, col=1)
    figure.add_hline(y=1, line={"color": style.RULE, "width": 1}, row=2, col=1)
    return Block(
        TIME,
        _time_title(both, axis),
        f"Time of a batch {axis.each}; ribbons are 95 % bands. Below: A's time divided by B's with its 95 % "
        "interval, in the colour of the faster one where the interval excludes 1, grey where it includes 1. "
        f"{INDEPENDENT} {_dashes(frames)}",
        figure,
        _source(pair, frames),
        rows,
    )


def slowdowns(pair: Pair, frames: tuple[pd.DataFrame, pd.DataFrame]) -> Block | Missing:
    """Slowdown of both over table sizes with bands.

    frames  as for ``times``
    Limits: no size that needs two GPUs -> Missing
    """
    if not any((frame["gpus"] > 1).any() for frame in frames):
        return Missing(SLOWDOWN, pair.axis.small)
    figure = style.new_figure(height=460)
    rows = _lines(figure, pair, frames, "slowdown", ("slowdown_low", "slowdown_high"))
    top = max(float(frame["slowdown_high"].max()) for frame in frames)
    figure.update_yaxes(style.ratio_axis(0.8, 1.3 * top, "slowdown (×)"))
    return Block(
        SLOWDOWN,
        slowdown_title(pair),
        "Time of a batch, divided by its time on one GPU of the same machine whose memory holds all tables: "
        f"a faster memory has a larger slowdown. Ribbons are 95 % bands. {_dashes(frames)}",
        figure,
        _source(pair, frames),
        rows,
    )


def _time_title(both: pd.DataFrame, axis: CompareAxis) -> str:
    """Who is the faster where, and at how many sizes that can be said."""
    sizes, ratios = both[axis.key].tolist(), both["ratio"].tolist()
    verdicts = both["verdict"].tolist()
    where, last, points = axis.spread(sizes[0], sizes[-1]), axis.words(sizes[-1]), axis.points
    if all(word == DifferenceVerdict.SAME for word in verdicts):
        return f"A and B take the same time {where}."
    said = [word in (DifferenceVerdict.A, DifferenceVerdict.B) for word in verdicts]
    if not any(said):
        sure = f"; but the interval of their ratio includes 1 {axis.everywhere}, so this is not certain"
    elif all(said):
        sure = f", significantly so {axis.everywhere}"
    else:
        sure = f"; significantly so at {sum(said)} of {len(said)} {points}"
    winners = [
        ("B" if ratio > 1 else "A", size) for ratio, size in zip(ratios, sizes, strict=True) if ratio != 1
    ]
    runs = [(winner, next(members)[1]) for winner, members in groupby(winners, key=lambda pair: pair[0])]
    if len(runs) == 1:
        winner = runs[0][0]
        gains = [ratio if winner == "B" else 1 / ratio for ratio in ratios]
        least, most = format_ratio(min(gains)), format_ratio(max(gains))
        span = least if least == most else f"{least} to {most}"
        return sentence(f"{winner} is {span} as fast as {'A' if winner == 'B' else 'B'} {where}{sure}")
    if len(runs) == 2:
        size = axis.words(runs[1][1])
        return sentence(f"{runs[0][0]} is faster below {size}, {runs[1][0]} above that{sure}")
    sides = {word[0] for word, sure_of in zip(verdicts, said, strict=True) if sure_of}
    if len(sides) == 1:
        winner = sides.pop()
        sures = [ratio for ratio, sure_of in zip(ratios, said, strict=True) if sure_of]
        gains = [ratio if winner == "B" else 1 / ratio for ratio in sures]
        return sentence(
            f"{winner} is significantly faster at {sum(said)} of {len(said)} {points} {where}, up "
            f"to {format_ratio(max(gains))} as fast; at the others the interval includes 1"
        )
    ratio = ratios[-1]
    winner, gain = ("B", ratio) if ratio > 1 else ("A", 1 / ratio)
    return sentence(
        f"the faster one changes {len(runs) - 1} times {where}; at {last} {winner} is {format_ratio(gain)} "
        f"as fast{sure}"
    )


def slowdown_title(pair: Pair) -> str:
    """The sentence of ``slowdowns``, at the table size of a pair."""
    size = pair.what
    if max(pair.a.gpus, pair.b.gpus) == 1:
        return f"Tables of {size} fit on one GPU of A and of B, so neither is slowed down."
    parts = []
    for letter, _, answer in pair.sides:
        if answer.gpus == 1:
            parts.append(f"not at all on {letter}, where they fit on one GPU")
            continue
        low, high = (format_ratio(value) for value in answer.band)
        many = f"{format_count(answer.gpus)} GPUs"
        parts.append(f"{format_ratio(answer.slowdown)} on {letter} ({low} to {high}, {many})")
    return sentence(f"spreading {size} slows a batch down {parts[0]} and {parts[1]}")


def _lines(
    figure: Any,
    pair: Pair,
    frames: tuple[pd.DataFrame, pd.DataFrame],
    value: str,
    ends: tuple[str, str],
) -> tuple[dict[str, Any], ...]:
    """Ribbons and lines of both in the first row of the figure, and its axis of sizes; the rows of data."""
    rows: list[dict[str, Any]] = []
    for index, ((letter, label, _), frame) in enumerate(zip(pair.sides, frames, strict=True)):
        for trace in _line(frame, label, index, value, ends, pair.axis.key):
            figure.add_trace(trace)
        rows += [_row(letter, values) for values in frame.to_dict(orient="records")]
    key = pair.axis.key
    letters(figure, [(float(f[key].iloc[-1]), float(f[value].iloc[-1])) for f in frames])
    sizes = [size for frame in frames for size in (frame[key].min(), frame[key].max())]
    low, high = float(min(sizes)), float(max(sizes))
    pad = (high / low) ** PAD
    figure.update_xaxes(pair.axis.axis(low / pad, high * pad))
    return tuple(rows)


def _line(
    frame: pd.DataFrame, label: str, index: int, value: str, ends: tuple[str, str], key: str
) -> Iterator[Any]:
    """The ribbon, then the line in parts of one evidence each."""
    import plotly.graph_objects as go

    colour = style.colour(index)
    x, y, low, high = ([float(v) for v in frame[name]] for name in (key, value, *ends))
    same = {"name": label, "legendgroup": label}  # the page takes names for plain text
    yield go.Scatter(
        x=[*x, *reversed(x)], y=[*high, *reversed(low)], fill="toself", fillcolor=style.faded(colour, 0.12),
        line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False, **same,
    )  # fmt: skip
    texts = [_line_text(label, row) for row in frame.to_dict(orient="records")]
    first = True
    for part, kind in parts_of([str(word) for word in frame["main_evidence"]]):
        line = {"color": colour, "width": 2.5, "dash": style.DASHES[Evidence(kind)]}
        yield go.Scatter(
            x=x[part], y=y[part], hovertext=texts[part], hoverinfo="text", mode="lines", line=line,
            showlegend=first, **same,
        )  # fmt: skip
        first = False


def _line_text(label: str, row: Mapping[Any, Any]) -> str:
    low, high = (format_time(float(row[name])) for name in ("low_s", "high_s"))
    slow = [format_ratio(float(row[name])) for name in ("slowdown", "slowdown_low", "slowdown_high")]
    size = format_bytes(float(row["table_bytes"]), binary=False)
    return hover(
        [
            f"<b>{safe(label)}</b>",
            f"{size} on {format_count(float(row['gpus']))} GPUs",
            f"{format_time(float(row['time_s']))} per batch, band {low} – {high}",
            f"slowdown {slow[0]}, band {slow[1]} – {slow[2]}",
            f"evidence: {evidence_words(row)}",
        ]
    )


def _ratio_text(row: Mapping[Any, Any], axis: CompareAxis) -> str:
    low, high = (interval_end(float(row[name])) for name in ("ratio_low", "ratio_high"))
    a, b = (format_time(float(row[f"{side}_time_s"])) for side in "ab")
    gpus = " and ".join(format_count(float(row[f"{side}_gpus"])) for side in "ab")
    return hover(
        [
            f"<b>{axis.words(float(row[axis.key]))}</b>{f' on {gpus} GPUs' if axis is BY_SIZE else ''}",
            f"A over B {format_ratio(float(row['ratio']))}, interval {low} – {high}",
            f"{a} and {b}",
            str(row["verdict"]),
        ]
    )


def _row(letter: str, row: Mapping[Any, Any]) -> dict[str, Any]:
    names = (
        *("table_bytes", "gpus", "time_s", "low_s", "high_s"),
        *("slowdown", "slowdown_low", "slowdown_high", "baseline_time_s"),
    )
    return {
        "side": letter,
        **{name: float(f"{float(row[name]):.6g}") for name in names},
        **{name: str(row[name]) for name in ("evidence", "main_evidence")},
    }


def _dashes(frames: Sequence[pd.DataFrame]) -> str:
    """What the dashes of the lines mean."""
    return sentence(dash_words(str(word) for frame in frames for word in frame["main_evidence"]))


def _source(pair: Pair, frames: Sequence[pd.DataFrame]) -> str:
    parts = []
    for (letter, _, answer), frame in zip(pair.sides, frames, strict=True):
        weakest = Evidence.weakest(Evidence(str(word)) for word in frame["evidence"])
        names = ", ".join(dict.fromkeys(answer.calibrations))
        parts.append(f"{letter}: {answer.setting.machine.name}, {names}, weakest evidence {weakest}")
    return "; ".join(parts) + "."
