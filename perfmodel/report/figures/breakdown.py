"""Where the time of a batch goes: a bar a size of the tables, its steps stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perfmodel.passes.steps import StepRow
from perfmodel.project import Projection
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.gpu_columns import time_unit
from perfmodel.report.projection_text import band, short_label
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_time

NAME = "breakdown"
_PATTERNS = ("", "/", "", "\\", "", "x", "", "-", "", "+")


def breakdown(answers: Sequence[Projection]) -> Block | Missing:
    """Steps of several answers, stacked, in time or in shares.

    answers   of one question at increasing table sizes
    Limits: all fit one GPU -> Missing
    """
    shown = [answer for answer in answers if answer.gpus > 1 or answer.forward.tier is not None]
    if not shown:
        return Missing(NAME, "every size here fits on one GPU: ask for larger tables with --table-size.")
    labels = [_lines(answer) for answer in shown]
    axis = "bytes of all tables, GPUs, and time of a batch"
    figure, switches = stacked(shown, labels, axis, in_time=False)
    how = (
        "Each bar is one batch at one size of the tables; its segments are the steps, the first at the "
        "bottom."
    )
    return Block(NAME, _title(shown), how, figure, _source(shown), tuple(step_rows(shown)), switches)


def stacked(
    shown: Sequence[Projection], labels: Sequence[str], title: str, *, in_time: bool
) -> tuple[Any, tuple[Switch, ...]]:
    """The figure of the steps of answers, a bar each, and its switches: shares, and time.

    labels  of the bars;  title  of their axis;  in_time  whether time is first
    """
    names = list(dict.fromkeys(step.name for answer in shown for step in answer.steps))
    factor, unit = time_unit(max(answer.time_s for answer in shown))
    times = [_heights(shown, name, lambda step: factor * step.time_s) for name in names]
    shares = [_heights(shown, name, lambda step: 100 * step.share) for name in names]
    time_axis = style.axis(f"time of a batch ({unit})", rangemode="tozero")
    share_axis = style.axis("share of the time (%)", range=[0, 100])
    switches = (
        Switch("%", {"y": shares}, {"yaxis": share_axis}),
        Switch(unit, {"y": times}, {"yaxis": time_axis}),
    )
    first, *_ = switches = switches[::-1] if in_time else switches
    figure = style.plain_figure(
        [_bars(shown, labels, name, index, first.traces["y"][index]) for index, name in enumerate(names)],
        barmode="stack",
        bargap=0.25,
        height=460,
        meta={"min_width": 680},
        xaxis=style.axis(title, type="category", tickangle=0),
        legend={"traceorder": "normal"},
        **first.layout,
    )
    return figure, switches


def _title(shown: Sequence[Projection]) -> str:
    """Which step is the longest, from which size on, and how much of the time it takes at the end."""
    last = shown[-1]
    longest = _longest(last)
    first = last
    for answer in reversed(shown):
        if _longest(answer).name != longest.name:
            break
        first = answer
    step, share = short_label(longest), format_fraction(longest.share)
    if first is not shown[0]:
        where = f"From {format_count(first.gpus)} GPUs on,"
    elif len(shown) > 1:
        where = "At every size here"
    else:
        where = f"At {_size(last)}"
    of = f"on {counted(last.gpus, 'GPU')} ({_size(last)})"
    return f"{where} the longest step is the {step}: {share} of the time {of}."


def _size(answer: Projection) -> str:
    return format_bytes(answer.gpu_count.table_bytes, binary=False)


def _longest(answer: Projection) -> StepRow:
    return max(answer.steps, key=lambda step: step.time_s)


def _lines(answer: Projection) -> str:
    """Words below a bar: where it stands, and its time."""
    return "<br>".join([_size(answer), counted(answer.gpus, "GPU"), format_time(answer.time_s)])


def step_rows(shown: Sequence[Projection]) -> Iterator[dict[str, Any]]:
    """Every step of answers as a row of data."""
    for answer in shown:
        for step in answer.steps:
            yield {
                "table_bytes": answer.gpu_count.table_bytes,
                "gpus": answer.gpus,
                "step": step.name,
                "time_s": float(step.time_s),
                "low_s": float(step.low_s),
                "high_s": float(step.high_s),
                "share": float(step.share),
                "payload_bytes": float(step.payload_bytes),
                "library": step.library,
                "clock": str(step.clock),
                "evidence": str(step.evidence),
            }


def _heights(shown: Sequence[Projection], name: str, of: Callable[[StepRow], float]) -> list[float]:
    """A number of one step over all sizes; 0 where the step is not taken."""
    steps = (_step(answer, name) for answer in shown)
    return [0.0 if step is None else float(of(step)) for step in steps]


def _step(answer: Projection, name: str) -> StepRow | None:
    return next((step for step in answer.steps if step.name == name), None)


def _bars(
    shown: Sequence[Projection],
    labels: Sequence[str],
    name: str,
    index: int,
    heights: list[float],
) -> dict[str, Any]:
    """One step over all sizes."""
    pairs = [(answer, _step(answer, name)) for answer in shown]
    label = next(short_label(step) for _, step in pairs if step)
    pattern = {
        "shape": _PATTERNS[index % len(_PATTERNS)],
        "fillmode": "overlay",
        "fgcolor": "rgba(255,255,255,0.6)",
        "size": 7,
        "solidity": 0.2,
    }
    return {
        "type": "bar",
        "x": list(labels),
        "y": heights,
        "name": label,
        "customdata": [_hover(answer, step) if step else None for answer, step in pairs],
        "hovertemplate": _HOVER,
        "marker": {"color": style.colour(index), "pattern": pattern},
    }


_HOVER = (
    "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}<br>"
    "evidence: %{customdata[3]}<extra></extra>"
)


def _hover(answer: Projection, step: StepRow) -> list[str]:
    """Size and GPUs, time with share and band, bytes with library and clock, evidence."""
    time = f"{format_time(step.time_s)} ({format_fraction(step.share)}), band {band(step.low_s, step.high_s)}"
    size = format_bytes(step.payload_bytes)
    return [
        f"{_size(answer)} on {counted(answer.gpus, 'GPU')}",
        time,
        f"{size} per GPU, {step.library}, {step.clock} clock",
        str(step.evidence),
    ]


def _source(shown: Sequence[Projection]) -> str:
    shares: Mapping[Evidence, float] = shown[-1].evidence_shares()
    words = ", ".join(f"{format_fraction(share)} {kind}" for kind, share in shares.items())
    names = ", ".join(dict.fromkeys(name for answer in shown for name in answer.calibrations))
    return f"Calibration {names}; of the last bar's time: {words}."
