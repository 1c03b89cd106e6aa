"""Figures of a traced run: a rank's timeline above the predicted steps, and each step with its band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.report.columns import Column, attributes, columns_record
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.marks import scatter, whiskers
from perfmodel.report.figures.registry import TRACED_STEPS, TRACED_TIMELINE
from perfmodel.report.figures.time_bars import Bar, row_ticks, time_bars
from perfmodel.report.figures.words import hover, safe
from perfmodel.report.projection_text import band
from perfmodel.units import counted, format_bytes, format_ratio, format_time
from perfmodel.validate.traced.results import ComparedRun, ComparedStep
from perfmodel.validate.traced.seen import TracedBar

EXCHANGE, KERNEL, WAIT, OTHER = (
    "exchanges",
    "kernels of the tables",
    "waiting for other ranks",
    "not of the plan",
)
_LOOKS: dict[str, dict[str, Any]] = {
    KERNEL: {"color": style.PALETTE[0]},
    EXCHANGE: {"color": style.PALETTE[1]},
    WAIT: {"color": style.PALETTE[4], "pattern": style.HATCHED},
    OTHER: {"color": style.PALETTE[7]},
}
_ROWS = (
    "measured: kernels",
    "measured: exchanges",
    "measured: other",
    "predicted: kernels",
    "predicted: exchanges",
)
_PREDICTED = _ROWS[3:]
_BAR = Column(data=attributes("row", "kind", "name", "start_s", "end_s"))
_FAR = 3  # if the measurement ends this many times later, there is a closer view of the prediction
_WORST = 3
_FINEST = 1000  # bars that can be distinguished along the axis


def traced_timeline(run: ComparedRun) -> Block:
    """Bars of the iteration of median length on the lowest rank; below them, the predicted steps in order."""
    labels = {line.name: line.label for line in run.lines}
    bars = [*_measured(run, labels), *_predicted(run)]
    rank = run.run.trace.ranks[0]
    how = (
        f"Above: rank {rank} in the iteration of median length; where it waits for other ranks in an "
        "exchange, it is hatched. Below: the predicted steps, one after the other."
    )
    data = [columns_record([_BAR], bar) for bar in bars]
    figure = time_bars(bars, _ROWS, _LOOKS, _bar_hover, unnamed=OTHER)
    return TRACED_TIMELINE.block(timeline_title(run), how, figure, _source(run), data, _closer(bars, figure))


def timeline_title(run: ComparedRun) -> str:
    """The time of the pass, its waiting and gaps, and the prediction."""
    parts = [f"{format_time(run.wait_s)} of it waiting for other ranks", f"{format_time(run.idle_s)} in gaps"]
    return (
        f"The pass took {format_time(run.whole_s)}; the prediction is {format_time(run.of_steps.time_s)}: "
        f"{' and '.join(parts)}."
    )


def _measured(run: ComparedRun, labels: Mapping[str, str]) -> list[Bar]:
    found = []
    links = {line.name for line in run.lines if line.collective}
    for bar in run.run.timeline:
        if bar.step in links:
            name, row = labels[bar.step], _ROWS[1]
            waited = max(bar.end_s - bar.start_s - bar.own_s, 0.0)
            if waited > 0:
                found.append(Bar(row, WAIT, name, bar.start_s, bar.start_s + waited))
            found.append(Bar(row, EXCHANGE, name, bar.start_s + waited, bar.end_s))
        elif bar.step in labels:
            found.append(Bar(_ROWS[0], KERNEL, labels[bar.step], bar.start_s, bar.end_s))
    others = [bar for bar in run.run.timeline if bar.step not in labels]
    return [*found, *_merged(others, max((bar.end_s for bar in run.run.timeline), default=0.0))]


def _merged(others: Sequence[TracedBar], end_s: float) -> list[Bar]:
    """Bars for kernels of no step; neighbours are merged if too close to be distinguished up to ``end_s``."""
    found: list[Bar] = []
    for bar in others:
        if found and bar.start_s - found[-1].end_s < end_s / _FINEST:
            last = found[-1]
            found[-1] = Bar(last.row, OTHER, "several", last.start_s, max(last.end_s, bar.end_s))
        else:
            found.append(Bar(_ROWS[2], OTHER, bar.name, bar.start_s, bar.end_s))
    return found


def _predicted(run: ComparedRun) -> list[Bar]:
    found, at = [], 0.0
    for line in run.lines:
        end = at + line.predicted.time_s
        kind, row = (EXCHANGE, _ROWS[4]) if line.collective else (KERNEL, _ROWS[3])
        found.append(Bar(row, kind, line.label, at, end))
        at = end
    return found


def _closer(bars: Sequence[Bar], figure: Any) -> tuple[Switch, ...]:
    """Two buttons, for the whole time and for the predicted time only; none if these differ little."""
    whole = figure.layout.xaxis.to_plotly_json()
    ends = [max(bar.end_s for bar in bars if bar.row in rows) for rows in (_ROWS, _PREDICTED)]
    near = {**whole, "range": [0, whole["range"][1] * ends[1] / ends[0]]}
    switches = (Switch("all", {}, {"xaxis": whole}), Switch("as far as predicted", {}, {"xaxis": near}))
    return switches if ends[0] > _FAR * ends[1] else ()


def _bar_hover(bar: Bar) -> str:
    long = format_time(bar.end_s - bar.start_s)
    return hover(
        [f"<b>{safe(bar.name)}</b>", f"{bar.row}, {bar.kind}", f"{long}, from {format_time(bar.start_s)}"]
    )


def traced_steps(run: ComparedRun) -> Block:
    """A row for each step: its predicted time with the band, and its measured median with percentiles."""
    how = (
        "Each line is the predicted 95 % band with its centre. Each mark is the measured median of the "
        "iterations, with the 10th and the 90th percentile: filled inside the band, open outside."
    )
    data = tuple(
        line.to_dict() | {"reasons": "; ".join(each.words for each in line.reasons)} for line in run.lines
    )
    return TRACED_STEPS.block(steps_title(run), how, _steps(run.lines), _source(run), data)


def steps_title(run: ComparedRun) -> str:
    """How many steps are inside their bands, and which are farthest outside."""
    outside = sorted(run.outside, key=lambda line: -abs(line.own_s - line.predicted.time_s))
    if not outside:
        return f"All {counted(len(run.lines), 'step')} are inside their bands."
    worst = ", ".join(
        f"{line.label} ({format_ratio(line.own_s / line.predicted.time_s)})" for line in outside[:_WORST]
    )
    inside = len(run.lines) - len(outside)
    verb = "is" if inside == 1 else "are"
    return (
        f"{inside} of {counted(len(run.lines), 'step')} {verb} inside the band; the furthest outside: "
        f"{worst}."
    )


def _steps(lines: Sequence[ComparedStep]) -> Any:
    marks = {
        "predicted, 95 % band": (
            {"color": style.PALETTE[0], "symbol": "line-ns-open", "size": 12},
            {"thickness": 7, "width": 0, "color": style.faded(style.PALETTE[0], 0.4)},
            [(at, each, each.predicted.time_s, *_band(each)) for at, each in enumerate(lines)],
        )
    }
    for inside, symbol in ((True, "circle"), (False, "circle-open")):
        marks[f"measured, {'inside' if inside else 'outside'}"] = (
            {"color": style.PALETTE[1], "symbol": symbol, "size": 10},
            {"thickness": 1.5, "width": 4, "color": style.PALETTE[1]},
            [
                (at, each, each.own_s, *each.spread_s)
                for at, each in enumerate(lines)
                if each.inside is inside
            ],
        )
    traces = []
    for name, (marker, look, found) in marks.items():
        if found:
            y, steps, middle, low, high = zip(*found, strict=True)
            words, ends = [_step_hover(line) for line in steps], whiskers(middle, low, high, **look)
            traces.append(scatter(middle, y, words, name, {**marker, "line": {"width": 2}}, error_x=ends))
    reach = [x for line in lines for x in (*_band(line), line.predicted.time_s, *line.spread_s) if x > 0]
    return style.new_figure(
        traces,
        height=150 + 34 * len(lines),
        meta={"min_width": 760},
        xaxis=style.log_axis(min(reach) / 1.2, max(reach) * 1.2, format_time, "time of one iteration"),
        yaxis=style.axis(**row_ticks([line.label for line in lines]), zeroline=False),
    )


def _band(line: ComparedStep) -> tuple[float, float]:
    return line.predicted.low_s, line.predicted.high_s


def _step_hover(line: ComparedStep) -> str:
    sizes, known = "", line.predicted
    if line.collective:
        sizes = f"{format_bytes(line.seen_bytes)} sent, {format_bytes(line.planned_bytes)} planned"
    return hover(
        [
            f"<b>{safe(line.label)}</b>",
            f"predicted {format_time(known.time_s)}, band {band(known.low_s, known.high_s)}",
            f"measured {format_time(line.own_s)}, {band(*line.spread_s)} over {line.iterations} iterations",
            f"waits {format_time(line.wait_s)}" if line.collective else "",
            sizes,
            safe(line.reasons[0].words) if line.reasons else "",
        ]
    )


def _source(run: ComparedRun) -> str:
    trace = run.run.trace
    names = ", ".join(run.run.plan.evaluator.setting.links.calibrations)
    return (
        f"Traces of {len(trace.ranks)} of {counted(trace.world_size, 'rank')}, "
        f"{counted(len(trace.steps), 'iteration')}; predicted by {names}."
    )
