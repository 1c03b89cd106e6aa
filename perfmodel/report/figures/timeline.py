"""Who runs when in a step of a plan: streams, the critical path, exposed communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.model.pipeline import in_line
from perfmodel.model.schedule import NETWORK, Schedule, Steady, alone, steady
from perfmodel.plan.pricing.training import WholeStep, is_communication
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import Shown, source, time_unit
from perfmodel.report.figures.words import hover
from perfmodel.report.step_words import step_label
from perfmodel.units import format_fraction, format_time

TIMELINE = "timeline"
KERNEL, HIDDEN, EXPOSED = "kernels", "communication beside kernels", "exposed communication"
EXCHANGE, CRITICAL = "exchanges", "critical path"
_COLOURS = {
    KERNEL: style.PALETTE[0],
    HIDDEN: style.PALETTE[7],
    EXPOSED: style.PALETTE[1],
    EXCHANGE: style.PALETTE[1],
}
_CRITICAL_COLOUR = "#e0312f"
_BATCHES = 3  # of a training step that are drawn
_THICK = 0.5  # of a row: its bars
_NAMED = 0.012  # of the axis: bars that may have their name above
_NARROWEST = 900  # pixels of a figure
_LETTER = 0.0091  # of the axis, of a figure that narrow
_STREAMS = {
    "keys": "ids to holders",
    "mp": "cut tables",
    "dp": "copied tables",
    "default": "dense layers",
    "dense": "dense gradients",
}
_IN_LINE = "one after the other"


@dataclass(frozen=True)
class Bar:
    """A task, or its exposed part, on one row of the timeline [s]."""

    row: str
    kind: str
    name: str
    start_s: float
    end_s: float
    batch: int = 0
    critical: bool = False
    whole_s: float = 0.0  # of the task that it is a part of


def timeline(shown: Shown) -> Block:
    """Tasks with start and end on their streams, the critical path, exposed communication.

    Limits: no dense layers -> steps one after the other, as the plan's time counts them
    """
    bars = _of_steps(shown) if shown.whole is None else _of_streams(shown.whole)
    figure = _drawn(bars, shown.whole is not None)
    if shown.whole is None:
        how = (
            "Each bar is a step from its start to its end. The time of a plan counts them one after the "
            "other. --dense adds the dense layers and shows what overlaps."
        )
    else:
        several = shown.whole.training
        many = f"{_BATCHES} batches, with the first and the last paler" if several else "One batch"
        how = (
            f"{many}: one task after the other (top), and overlapped on streams. Exposed communication "
            "(orange, hatched) overlaps with no kernel. The red line is the critical path."
        )
    data = tuple(_bar_row(bar) for bar in bars)
    return Block(TIMELINE, timeline_title(shown), how, figure, source(shown), data)


def timeline_title(shown: Shown) -> str:
    """What overlap gains and leaves exposed; without dense layers, exchanges against kernels."""
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
    """One after the other, kernels and exchanges on a row each."""
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
    """Consecutive batches in line, then overlapped; of an inference batch, the one."""
    tasks = whole.found.tasks
    line = (steady if whole.training else alone)(in_line(tasks))
    return [*_bars(line, True), *_bars(whole.found, False)]


def _bars(found: Steady, in_one_row: bool) -> list[Bar]:
    """Bars of some batches in the middle of a schedule; the first begins at 0."""
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
    """Hidden and exposed parts of one task in order."""
    found, at = [], start_s
    for first, last in exposed:
        if first > at:
            found.append((HIDDEN, at, first))
        found.append((EXPOSED, first, last))
        at = last
    if at < end_s:
        found.append((HIDDEN, at, end_s))
    return found


def _drawn(bars: Sequence[Bar], dense: bool) -> Any:
    import plotly.graph_objects as go

    rows = list(dict.fromkeys(bar.row for bar in bars))
    rows.sort(key=[_IN_LINE, *_STREAMS.values(), KERNEL, EXCHANGE].index)
    end_s = max(bar.end_s for bar in bars)
    factor, unit = time_unit(end_s)
    last = max(bar.batch for bar in bars)
    figure = style.new_figure(barmode="overlay", height=130 + 66 * len(rows), meta={"min_width": _NARROWEST})
    for kind in (KERNEL, EXCHANGE, HIDDEN, EXPOSED):
        mine = [bar for bar in bars if bar.kind == kind]
        if not mine:
            continue
        opacity = [1.0 if last == 0 or 0 < bar.batch < last else 0.5 for bar in mine]
        marker: dict[str, Any] = {
            "color": _COLOURS[kind],
            "opacity": opacity,
            "line": {"color": "rgba(255,255,255,0.7)", "width": 0.8},
        }
        if kind == EXPOSED:
            marker["pattern"] = {
                "shape": "/",
                "fillmode": "overlay",
                "fgcolor": "rgba(255,255,255,0.55)",
                "size": 8,
            }
        figure.add_trace(
            go.Bar(
                orientation="h",
                x=[factor * (bar.end_s - bar.start_s) for bar in mine],
                base=[factor * bar.start_s for bar in mine],
                y=[rows.index(bar.row) for bar in mine],
                width=_THICK,
                hovertext=[_bar_hover(bar, last > 0) for bar in mine],
                hoverinfo="text",
                name=kind,
                marker=marker,
            )
        )
    name_bars(figure, bars, rows, factor, end_s)
    if dense:
        figure.add_trace(_critical(go, [bar for bar in bars if bar.row != _IN_LINE], rows, factor))
    figure.update_layout(
        xaxis=style.axis(f"time ({unit})", range=[0, 1.01 * factor * end_s]),
        yaxis=style.axis(
            "", tickmode="array", tickvals=list(range(len(rows))), ticktext=rows,
            range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False,
        ),
    )  # fmt: skip
    return figure


def name_bars(figure: Any, bars: Sequence[Bar], rows: Sequence[str], factor: float, end_s: float) -> None:
    """Names above the bars, of the longest first, as far as there is room for them."""
    spans: dict[tuple[str, str, int], tuple[float, float]] = {}
    for bar in bars:
        key = (bar.row, bar.name, bar.batch)
        start_s, last_s = spans.get(key, (bar.start_s, bar.end_s))
        spans[key] = min(start_s, bar.start_s), max(last_s, bar.end_s)
    taken: dict[str, list[tuple[float, float]]] = {row: [] for row in rows}
    shown = []
    for (row, name, _), (start_s, last_s) in sorted(spans.items(), key=lambda item: item[1][0] - item[1][1]):
        half = _LETTER * end_s * len(name) / 2
        middle = min(max((start_s + last_s) / 2, half), end_s - half)
        clear = all(middle + half < low or middle - half > high for low, high in taken[row])
        if last_s - start_s >= _NAMED * end_s and clear:
            taken[row].append((middle - half, middle + half))
            shown.append((factor * middle, rows.index(row) - _THICK / 2 - 0.02, name))
    for x, y, name in shown:
        figure.add_annotation(
            text=name, x=x, y=y, yanchor="bottom", showarrow=False, font={"size": 11}, borderpad=0
        )


def _critical(go: Any, bars: Sequence[Bar], rows: Sequence[str], factor: float) -> Any:
    """A line under the bars that the end waits for."""
    x: list[float | None] = []
    y: list[float | None] = []
    for bar in bars:
        if bar.critical:
            level = rows.index(bar.row) + 0.33
            x += [factor * bar.start_s, factor * bar.end_s, None]
            y += [level, level, None]
    line = {"color": _CRITICAL_COLOUR, "width": 4}
    return go.Scatter(x=x, y=y, mode="lines", line=line, name=CRITICAL, hoverinfo="skip")


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


def _bar_row(bar: Bar) -> Mapping[str, Any]:
    return {
        "row": bar.row,
        "task": bar.name,
        "kind": bar.kind,
        "batch": bar.batch,
        "start_s": bar.start_s,
        "end_s": bar.end_s,
        "critical": bar.critical,
    }
