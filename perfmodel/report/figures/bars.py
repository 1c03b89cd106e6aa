"""Figures of bars with bands: what would help, and every sharding beside each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import answer_question, answer_shardings
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine.schemes import TORCHREC, WAYS
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import scatter, whiskers
from perfmodel.report.figures.registry import CHANGES, SHARDINGS
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import hover, safe
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_time

_ROW, _ROW_MORE, _LINE = 40, 18, 52
"""Pixels of a row with its label, of each further line of it, and characters of a line."""


@dataclass(frozen=True)
class Bar:
    """A row of a figure: its label, its value with the ends of its band, and its evidence.

    data  its values in the figure's data
    """

    label: str
    value: float
    low: float
    high: float
    evidence: Evidence
    data: Mapping[str, Any]


def changes(subject: Subject) -> Block | Missing:
    """Bars of the time of a batch now and after each change that helps: settings, more GPUs, machines.

    Limits: one GPU, or nothing helps -> Missing
    """
    answer = subject.answer
    if answer.gpus == 1:
        return CHANGES.missing("the tables fit on one GPU: ask for larger ones with --table-size.")
    helping = subject.lead.changes if subject.lead else list_helping(answer.pinned, answer_question)
    if not helping:
        return CHANGES.missing("none of the changes tried makes it at least 2 % faster.")
    factor, unit = style.time_unit(max(answer.time_s, *(item.after_s for item in helping)))
    ends = answer.totals["low_s"], answer.totals["high_s"]
    rows = [_describe_change("now", answer.time_s, *ends, answer.main_evidence, "", factor)]
    for item in helping:
        times = item.after_s, item.low_s, item.high_s
        label = f"{item.label} ({item.option})"
        rows.append(_describe_change(label, *times, item.evidence, item.option, factor))
    now, best = format_time(answer.time_s), min(helping, key=lambda item: item.after_s)
    title = f"What would help: {best.label}, {format_time(best.after_s)} instead of {now}: {best.option}."
    if best.after_s >= answer.time_s:
        title = f"None of the changes tried takes less than {now}."
    figure = _draw_bars(rows, style.axis(f"time of a batch ({unit})", rangemode="tozero"), factor)
    how = f"One thing is changed at a time, and each bar is an answer in full. Bars are {_LOOKS}"
    return CHANGES.block(title, how, figure, subject.source, [dict(row.data) for row in rows])


def _describe_change(
    label: str, time_s: float, low_s: float, high_s: float, evidence: Evidence, option: str, factor: float
) -> Bar:
    """The row of a change. factor  units of the axis in a second"""
    data = {
        "change": label, "option": option, "time_s": time_s, "low_s": low_s, "high_s": high_s,
        "evidence": str(evidence),
    }  # fmt: skip
    label = f"{format_time(time_s)} {label}"
    return Bar(label, factor * time_s, factor * low_s, factor * high_s, evidence, data)


def shardings(subject: Subject) -> Block | Missing:
    """Bars of the time of a batch with each sharding of all tables, on the same GPUs, the fastest on top.

    Limits: one GPU, or too many tables to compare -> Missing
    """
    base = subject.base
    if base.gpus == 1:
        return SHARDINGS.missing("nothing is sharded.")
    if base.table_count > MOST_COMPARED or base.basis.unpooled:
        return SHARDINGS.missing("perfmodel project --sharding all compares these.")
    answers = list(answer_shardings(base))
    possible = [item for item in answers if isinstance(item, Answer) and item.fits]
    possible.sort(key=lambda item: item.time_s)
    if not possible:
        return SHARDINGS.missing("no sharding of all tables fits these GPUs.")
    never = [item.sharding for item in answers if item not in possible]
    factor, unit = style.time_unit(max(item.time_s for item in possible))
    rows = [_describe_sharding(item, factor) for item in possible]
    axis = style.axis(f"time of a batch ({unit})", rangemode="tozero")
    figure = _draw_bars(rows, axis, factor)
    how = f"All tables with one sharding on the same GPUs. Bars are {_LOOKS}"
    how += f" Not possible or too large here: {', '.join(never)}." if never else ""
    title = _entitle_shardings(subject.answer, possible[0])
    return SHARDINGS.block(title, how, figure, subject.source, [dict(row.data) for row in rows])


_LOOKS = "coloured by their weakest evidence; whiskers are 95 % bands."


def _entitle_shardings(answer: Answer, first: Answer) -> str:
    """The title: the answer's time, and the fastest sharding if that is another."""
    where, time = f"On {counted(first.gpus, 'GPU')}", format_time(first.time_s)
    if first.sharding == answer.sharding:
        return f"{where} {first.sharding} is the fastest of all shardings: {time}."
    words = f"{answer.sharding} takes {format_time(answer.time_s)}"
    return f"{where} {words}; the fastest is {first.sharding}{_name_owner(first)}: {time}."


def _describe_sharding(answer: Answer, factor: float) -> Bar:
    """The row of a sharding. factor  units of the axis in a second"""
    totals = answer.totals
    data = {
        "sharding": answer.sharding, "gpus": answer.gpus, "slowdown": answer.slowdown,
        "memory_bytes": answer.gpu_count.memory_bytes, "evidence": str(answer.main_evidence),
        **{name: totals[name] for name in ("time_s", "low_s", "high_s")},
    }  # fmt: skip
    label = f"{format_time(answer.time_s)} {answer.sharding}{_name_owner(answer)}"
    time, low, high = (factor * totals[name] for name in ("time_s", "low_s", "high_s"))
    return Bar(label, time, low, high, answer.main_evidence, data)


def _name_owner(answer: Answer) -> str:
    """A note on a sharding that TorchRec does not run. Limits: it runs -> empty"""
    return "" if WAYS[answer.sharding].torchrec else f", which {TORCHREC} does not run"


def _draw_bars(rows: Sequence[Bar], axis: Mapping[str, Any], factor: float) -> Any:
    """A plotly figure of horizontal bars, the first on top, each below its label.

    factor  units of the axis in a second
    """
    traces = []
    for kind in sorted({row.evidence for row in rows}, key=lambda kind: kind.rank):
        mine = [(place, row) for place, row in enumerate(rows) if row.evidence is kind]
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": str(kind), "width": 0.36,
                "y": [place for place, _ in mine], "x": [row.value for _, row in mine],
                "hoverinfo": "text", "showlegend": True,
                "hovertext": [_hover(row, factor) for _, row in mine],
                "marker": {"color": style.EVIDENCE_COLOURS[kind]},
            }
        )  # fmt: skip
    middle, low, high = ([getattr(row, name) for row in rows] for name in ("value", "low", "high"))
    ends = whiskers(middle, low, high, thickness=1.5, width=5, color=style.RULE)
    look = {"error_x": ends, "hoverinfo": "skip", "showlegend": False}
    marker = {"color": style.RULE, "size": 4}
    traces.append(scatter(middle, range(len(rows)), "", "95 % band", marker, **look))
    texts = [textwrap.wrap(row.label, _LINE) for row in rows]
    labels = [
        {
            "x": 0, "xref": "paper", "xanchor": "left", "y": place - 0.2, "yanchor": "bottom",
            "align": "left", "showarrow": False, "text": "<br>".join(map(safe, text)), "font": {"size": 12},
        }
        for place, text in enumerate(texts)
    ]  # fmt: skip
    hidden: dict[str, Any] = {
        "showticklabels": False,
        "showgrid": False,
        "showline": False,
        "zeroline": False,
    }
    return style.new_figure(
        traces,
        height=100 + (_ROW + _ROW_MORE * (max(map(len, texts)) - 1)) * len(rows),
        margin={"l": 16, "r": 16, "t": 32, "b": 52},
        xaxis=axis,
        yaxis=style.axis(range=[len(rows) - 0.6, -0.8], **hidden),
        annotations=labels,
    )


def _hover(row: Bar, factor: float) -> str:
    time, low, high = (format_time(value / factor) for value in (row.value, row.low, row.high))
    band = f"{time}, band {low} – {high}"
    return hover([safe(row.label), band, f"evidence: {row.evidence}"])
