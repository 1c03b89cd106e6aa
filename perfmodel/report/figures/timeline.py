"""Figure of a step of a plan over time: streams, the critical path, exposed communication."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from perfmodel.model.pipeline import in_line
from perfmodel.model.schedule import NETWORK, Schedule, Steady, alone, steady
from perfmodel.passes.steps import step_label
from perfmodel.passes.training import WholeStep, is_communication
from perfmodel.report.columns import Column, attributes, columns_record
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import Shown, source, time_unit
from perfmodel.report.figures.registry import TIMELINE
from perfmodel.report.figures.time_bars import Bar, seen_rows, time_bars
from perfmodel.report.figures.words import hover
from perfmodel.units import format_fraction, format_time

KERNEL, HIDDEN, EXPOSED = "kernels", "communication beside kernels", "exposed communication"
EXCHANGE, CRITICAL = "exchanges", "critical path"
_LOOKS: dict[str, dict[str, Any]] = {
    KERNEL: {"color": style.PALETTE[0]},
    EXCHANGE: {"color": style.PALETTE[1]},
    HIDDEN: {"color": style.PALETTE[7]},
    EXPOSED: {"color": style.PALETTE[1], "pattern": style.HATCHED},
}
_CRITICAL_COLOUR = "#e0312f"
_BATCHES = 3  # of a training step that are drawn
_STREAMS = {
    "keys": "ids to holders",
    "mp": "cut tables",
    "dp": "copied tables",
    "default": "dense layers",
    "dense": "dense gradients",
}
_IN_LINE = "one after the other"
_ROWS = (_IN_LINE, *_STREAMS.values(), KERNEL, EXCHANGE)


def timeline(shown: Shown) -> Block:
    """Bars of a step's tasks on their streams, with the critical path and exposed communication.

    Limits: no dense layers -> steps one after the other, as the plan's time counts them
    """
    bars = _of_steps(shown) if shown.whole is None else _of_streams(shown.whole)
    several = any(bar.batch for bar in bars)
    figure = time_bars(bars, _ROWS, _LOOKS, lambda bar: _bar_hover(bar, several))
    if shown.whole is None:
        how = (
            "Each bar is a step from its start to its end. The time of a plan counts them one after the "
            "other. --dense adds the dense layers and shows what overlaps."
        )
    else:
        streams = [bar for bar in bars if bar.row != _IN_LINE]
        factor, _ = time_unit(max(bar.end_s for bar in bars))
        figure.add_trace(_critical(streams, seen_rows(bars, _ROWS), factor))
        several = shown.whole.training
        many = f"{_BATCHES} batches, with the first and the last paler" if several else "One batch"
        how = (
            f"{many}: one task after the other (top), and overlapped on streams. Exposed communication "
            "(orange, hatched) overlaps with no kernel. The red line is the critical path."
        )
    data = [columns_record([_BAR], bar) for bar in bars]
    return TIMELINE.block(timeline_title(shown), how, figure, source(shown), data)


def timeline_title(shown: Shown) -> str:
    """The title: how much overlap saves, and how much communication stays exposed.

    Limits: no dense layers -> the times of exchanges and kernels
    """
    whole = shown.whole
    if whole is None:
        cost = shown.answer.found.cost
        links = [row for row in cost.rows if is_communication(row)]
        if not links:
            return f"There is no exchange: kernels take all of the {format_time(cost.time_s)}."
        time = sum(row.time_s for row in links)
        longest = max(links, key=lambda row: row.time_s)
        return (
            f"Exchanges take {format_time(time)} of the {format_time(cost.time_s)}, kernels "
            f"{format_time(cost.time_s - time)}; the longest exchange is {step_label(longest.name)}, "
            f"{format_time(longest.time_s)}."
        )
    found, path = whole.found, whole.found.on_path()
    longest_task = max(path, key=lambda name: path[name])
    return (
        f"Overlapped, a {shown.step_words} with dense layers takes {format_time(found.step_s)} instead of "
        f"{format_time(found.serial_s)}; {format_time(whole.exposed_s)} of "
        f"{format_time(whole.communication_s)} of embedding communication stay exposed. The "
        f"longest part of the critical path is {longest_task}, {format_time(path[longest_task])}, "
        f"{format_fraction(path[longest_task] / sum(path.values()))} of it."
    )


def _of_steps(shown: Shown) -> list[Bar]:
    """Bars of the steps one after the other, with a row for kernels and a row for exchanges."""
    found, start = [], 0.0
    for row in shown.answer.found.cost.rows:
        links = is_communication(row)
        end = start + row.time_s
        name = step_label(row.name)
        found.append(
            Bar(
                EXCHANGE if links else KERNEL,
                EXCHANGE if links else KERNEL,
                name,
                start,
                end,
                0,
                True,
                row.time_s,
            )
        )
        start = end
    return found


def _of_streams(whole: WholeStep) -> list[Bar]:
    """Bars of consecutive batches in sequence, then overlapped; for inference, of a single batch."""
    tasks = whole.found.tasks
    line = (steady if whole.training else alone)(in_line(tasks))
    return [*_bars(line, True), *_bars(whole.found, False)]


def _bars(found: Steady, in_one_row: bool) -> list[Bar]:
    """Bars of consecutive batches in the middle of a schedule; the first starts at 0.

    in_one_row  whether all tasks share a row, as they do one after the other
    """
    whole: Schedule = found.schedule
    count = whole.tasks
    total = len(whole.spans) // count
    batches = min(_BATCHES, total)
    first = (total - batches) // 2 * count
    picked = range(first, first + batches * count)
    zero_s = min(whole.spans[at].start_s for at in picked)
    critical, bars = set(whole.critical), []
    exposed: dict[int, list[tuple[float, float]]] = {}
    for at, start, end in whole.exposed_parts():
        exposed.setdefault(at, []).append((start, end))
    for at in picked:
        span = whole.spans[at]
        if span.end_s <= span.start_s:
            continue
        row = _IN_LINE if in_one_row else _STREAMS.get(span.task.stream, span.task.stream)
        links = span.task.device == NETWORK
        numbers = (span.batch - first // count, at in critical, span.task.duration_s)
        parts = [(HIDDEN if links else KERNEL, span.start_s, span.end_s)]
        if links:
            parts = _cut(span.start_s, span.end_s, exposed.get(at, []))
        bars += [
            Bar(row, kind, span.task.name, start - zero_s, end - zero_s, *numbers)
            for kind, start, end in parts
        ]
    return bars


def _cut(
    start_s: float, end_s: float, exposed: Sequence[tuple[float, float]]
) -> list[tuple[str, float, float]]:
    """The hidden and the exposed parts of a task in order: kind, start and end [s].

    exposed  start and end of its exposed parts [s]
    """
    found, at = [], start_s
    for first, last in exposed:
        if first > at:
            found.append((HIDDEN, at, first))
        found.append((EXPOSED, first, last))
        at = last
    if at < end_s:
        found.append((HIDDEN, at, end_s))
    return found


def _critical(bars: Sequence[Bar], rows: Sequence[str], factor: float) -> dict[str, Any]:
    """A plotly trace: a line below bars on the critical path. factor  units of the axis per second"""
    x: list[float | None] = []
    y: list[float | None] = []
    for bar in bars:
        if bar.critical:
            level = rows.index(bar.row) + 0.33
            x += [factor * bar.start_s, factor * bar.end_s, None]
            y += [level, level, None]
    line = {"color": _CRITICAL_COLOUR, "width": 4}
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": line,
        "name": CRITICAL,
        "hoverinfo": "skip",
    }


def _bar_hover(bar: Bar, several: bool) -> str:
    part = bar.end_s - bar.start_s
    whole = f" of its {format_time(bar.whole_s)}" if part < 0.999 * bar.whole_s else ""
    return hover(
        [
            f"<b>{bar.name}</b>" + (f", batch {bar.batch}" if several else ""),
            f"{format_time(part)}{whole}: {bar.kind}",
            f"from {format_time(bar.start_s)} to {format_time(bar.end_s)}",
            "on the critical path" if bar.critical else "",
        ]
    )


_BAR = Column(
    data=attributes("row")
    | {"task": attrgetter("name")}
    | attributes("kind", "batch", "start_s", "end_s", "critical")
)
