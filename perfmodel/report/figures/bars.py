"""Figures of bars with bands: what would help, and every sharding beside each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
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
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject
from perfmodel.report.figures.words import hover, safe
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_time

Row = Mapping[str, Any]
_ROW, _ROW_MORE, _LINE = 40, 18, 52
"""Pixels of a row with its label, of each further line of it, and characters of a line."""
_LOOKS = "coloured by their weakest evidence; whiskers are 95 % bands."


def draw_changes(subject: Subject) -> Block | Missing:
    """Bars of the time of a batch now and after each change that helps: settings, more GPUs, machines.

    Limits: one GPU, or nothing helps -> Missing
    """
    answer = subject.answer
    if answer.gpus == 1:
        return CHANGES.missing("the tables fit on one GPU: ask for larger ones with --table-size.")
    helping = subject.lead.changes if subject.lead else list_helping(answer.pinned, answer_question)
    if subject.planned:
        helping = tuple(entry for entry in helping if entry.after_s < answer.time_s)
    if not helping:
        return CHANGES.missing("none of the changes tried makes it at least 2 % faster.")
    rows = [{"change": "now", "option": "", **_read_times(answer)}]
    if subject.planned:
        named = f"now, {subject.uniform.sharding} for all tables, with which the changes are asked"
        rows.append({"change": named, "option": "", **_read_times(subject.uniform)})
    rows += [
        {
            "change": f"{entry.label} ({entry.option})", "option": entry.option, "time_s": entry.after_s,
            "low_s": entry.low_s, "high_s": entry.high_s, "evidence": str(entry.evidence),
        }
        for entry in helping
    ]  # fmt: skip
    now = format_time(answer.time_s)
    best = min(helping, key=lambda entry: (entry.loses_samples, entry.after_s))
    title = f"What would help: {best.label}, {format_time(best.after_s)} instead of {now}: {best.option}."
    if best.after_s >= answer.time_s:
        title = f"None of the changes tried takes less than {now}."
    how = f"One thing is changed at a time, and each bar is an answer in full. Bars are {_LOOKS}"
    return CHANGES.block(title, how, _draw_bars(rows, "change"), subject.source, rows)


def _read_times(answer: Answer) -> dict[str, Any]:
    times = {name: answer.totals[name] for name in ("time_s", "low_s", "high_s")}
    return {**times, "evidence": str(answer.main_evidence)}


def draw_shardings(subject: Subject) -> Block | Missing:
    """Bars of the time of a batch with each sharding of all tables, on the same GPUs, the fastest on top.

    Limits: one GPU, or too many tables to compare -> Missing
    """
    base = subject.base
    if base.gpus == 1:
        return SHARDINGS.missing("nothing is sharded.")
    if base.table_count > MOST_COMPARED or base.basis.unpooled:
        return SHARDINGS.missing("perfmodel project --sharding all compares these.")
    answers = list(answer_shardings(base))
    possible = [entry for entry in answers if isinstance(entry, Answer) and entry.fits]
    possible += [subject.answer] if subject.planned else []
    possible.sort(key=lambda entry: entry.time_s)
    if not possible:
        return SHARDINGS.missing("no sharding of all tables fits these GPUs.")
    never = [entry.sharding for entry in answers if entry not in possible]
    where = f"On {counted(base.gpus, 'GPU')}"
    rows = []
    for entry in possible:
        name = PLANNED_WORDS if subject.planned and entry is subject.answer else entry.sharding
        about = {"sharding": name, "gpus": entry.gpus, "slowdown": entry.slowdown}
        rows.append({**about, "memory_bytes": entry.gpu_count.memory_bytes, **_read_times(entry)})
    how = f"All tables with one sharding on the same GPUs. Bars are {_LOOKS}"
    how += f" Not possible or too large here: {', '.join(never)}." if never else ""
    fastest, time = _name_owner(rows[0]["sharding"]), format_time(rows[0]["time_s"])
    title = f"{where} {fastest} is the fastest of all shardings: {time}."
    if possible[0] is not subject.answer and possible[0].sharding != subject.answer.sharding:
        mine = PLANNED_WORDS if subject.planned else subject.answer.sharding
        title = (
            f"{where} {mine} takes {format_time(subject.answer.time_s)}; the fastest is {fastest}: {time}."
        )
    return SHARDINGS.block(title, how, _draw_bars(rows, "sharding"), subject.source, rows)


def _name_owner(sharding: str) -> str:
    """The sharding; with a note if TorchRec does not run it. Other labels stay as they are."""
    way = WAYS.get(sharding)
    return sharding if way is None or way.torchrec else f"{sharding}, which {TORCHREC} does not run"


def _draw_bars(rows: Sequence[Row], name: str) -> Any:
    """A plotly figure of horizontal bars of times, the first on top, each below its label.

    name  of the column with the labels
    """
    factor, unit = style.time_unit(max(row["time_s"] for row in rows))
    texts = [textwrap.wrap(f"{format_time(row['time_s'])} {_name_owner(row[name])}", _LINE) for row in rows]
    traces = []
    for kind in sorted({Evidence(row["evidence"]) for row in rows}, key=lambda kind: kind.rank):
        places = [place for place, row in enumerate(rows) if row["evidence"] == kind]
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": str(kind), "width": 0.36, "y": places,
                "x": [factor * rows[place]["time_s"] for place in places], "showlegend": True,
                "hoverinfo": "text", "marker": {"color": style.EVIDENCE_COLOURS[kind]},
                "hovertext": [_describe(rows[place], " ".join(texts[place])) for place in places],
            }
        )  # fmt: skip
    middle, low, high = ([factor * row[name] for row in rows] for name in ("time_s", "low_s", "high_s"))
    ends = whiskers(middle, low, high, thickness=1.5, width=5, color=style.RULE)
    look = {"error_x": ends, "hoverinfo": "skip", "showlegend": False}
    marker = {"color": style.RULE, "size": 4}
    traces.append(scatter(middle, range(len(rows)), "", "95 % band", marker, **look))
    labels = [
        {
            "x": 0, "xref": "paper", "xanchor": "left", "y": place - 0.2, "yanchor": "bottom",
            "align": "left", "showarrow": False, "text": "<br>".join(map(safe, text)), "font": {"size": 12},
        }
        for place, text in enumerate(texts)
    ]  # fmt: skip
    hidden: dict[str, Any] = dict.fromkeys(("showticklabels", "showgrid", "showline", "zeroline"), False)
    return style.new_figure(
        traces,
        height=100 + (_ROW + _ROW_MORE * (max(map(len, texts)) - 1)) * len(rows),
        margin={"l": 16, "r": 16, "t": 32, "b": 52},
        xaxis=style.axis(f"time of a batch ({unit})", rangemode="tozero"),
        yaxis=style.axis(range=[len(rows) - 0.6, -0.8], **hidden),
        annotations=labels,
    )


def _describe(row: Row, label: str) -> str:
    time, low, high = (format_time(row[name]) for name in ("time_s", "low_s", "high_s"))
    return hover([safe(label), f"{time}, band {low} – {high}", f"evidence: {row['evidence']}"])
