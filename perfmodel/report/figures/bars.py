"""Figures of bars with bands: the steps of a batch, what would help, and every sharding beside each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import answer_question, answer_shardings
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine.schemes import TORCHREC, WAYS
from perfmodel.errors import BadInputError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.chart import (
    Axis,
    Row,
    Trace,
    draw_whiskers,
    escape_text,
    join_lines,
    read_evidence,
)
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject
from perfmodel.units import counted, format_bytes, format_fraction, format_time

_TIME = Axis("time_s", "", "s", ("low_s", "high_s"))
_ROW, _ROW_MORE, _LINE = 40, 18, 52
"""Pixels of a row with its label, of each further line of it, and characters of a line."""
_LOOKS = "coloured by the weakest evidence behind much of the time; whiskers are 95 % bands."
_STEP = ("time_s", "low_s", "high_s", "share", "payload_bytes", "library", "clock", "evidence")


def draw_breakdown(subject: Subject) -> Block:
    """The steps as one stacked bar, and below it each step where it begins and ends, with its band."""
    answer = subject.answer
    factor, unit = _choose_unit(answer.time_s)
    names = [f"<b>one batch</b><br>{format_time(answer.time_s)}"]
    traces, start_s = list[Trace](), 0.0
    ends = [(answer.time_s, answer.totals["low_s"], answer.totals["high_s"])]
    rows = [
        {"sharding": answer.sharding, "step": step.name, **{name: getattr(step, name) for name in _STEP}}
        for step in answer.steps
    ]
    for place, (step, row) in enumerate(zip(answer.steps, rows, strict=True)):
        share = format_fraction(step.share)
        names.append(f"{step.label}<br>{format_time(step.time_s)}, {share}")
        moved = f"{format_bytes(step.payload_bytes)} per GPU, {step.library}, {step.clock} clock"
        words = [step.label, _TIME.describe(row), f"{share} of the time", moved, f"evidence: {step.evidence}"]
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": step.label, "y": [names[0], names[-1]],
                "x": [factor * step.time_s] * 2, "base": [factor * start_s] * 2, "hoverinfo": "text",
                "hovertext": join_lines(words), "marker": {"color": style.colour(place)},
            }
        )  # fmt: skip
        ends.append((start_s + step.time_s, start_s + step.low_s, start_s + step.high_s))
        start_s += step.time_s
    figure = style.new_figure(
        [*traces, _draw_bands(ends, names, factor)],
        barmode="overlay",
        bargap=0.35,
        height=style.FIRST_HEIGHT,
        showlegend=False,
        margin={"l": 24, "r": 16, "t": 16, "b": 56},
        xaxis=style.axis(f"time ({unit})", rangemode="tozero"),
        yaxis=style.axis(autorange="reversed", showgrid=False, tickfont={"size": 12}),
    )
    longest = answer.longest_step
    share, time_words = format_fraction(longest.share), format_time(answer.time_s)
    title = f"Where the time goes: the {longest.label} takes {share} of {time_words}."
    how = "Steps one after another, all of them in the bar on top. Whiskers are 95 % bands."
    shares = answer.evidence_shares().items()
    evidence = ", ".join(f"{format_fraction(portion)} {kind}" for kind, portion in shares)
    return Block("breakdown", title, how, figure, f"{subject.source} Evidence: {evidence}.", rows)


def _choose_unit(longest_s: float) -> tuple[float, str]:
    """How many of it a second has, and the largest unit in which ``longest_s`` is at least 1: 1e3, "ms"."""
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"))
    return next((unit for unit in units if longest_s * unit[0] >= 1), (1e9, "ns"))


def _draw_bands(ends: Sequence[tuple[float, ...]], places: Sequence[Any], factor: float) -> Trace:
    """Whiskers at the ends of bars. ends  (time, low, high) of each [s];  factor  units of the axis in 1 s"""
    scaled = [(factor * time, factor * low, factor * high) for time, low, high in ends]
    return {
        "type": "scatter", "mode": "markers", "name": "95 % band", "x": [time for time, *_ in scaled],
        "y": list(places), "error_x": draw_whiskers(scaled, color=style.RULE),
        "marker": {"color": style.RULE, "size": 4}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def draw_changes(subject: Subject) -> Block:
    """Bars of the time of a batch now and after each change that helps: settings, more GPUs, machines.

    Limits: one GPU, or nothing helps -> BadInputError
    """
    answer = subject.answer
    if answer.gpus == 1:
        raise BadInputError("the tables fit on one GPU: ask for larger ones with --table-size.")
    helping = subject.lead.changes if subject.lead else list_helping(answer.pinned, answer_question)
    if not helping:
        raise BadInputError("none of the changes tried makes it at least 2 % faster.")
    rows = [{"change": "now", "option": "", **_read_times(answer)}]
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
    return Block("changes", title, how, _draw_bars(rows, "change"), subject.source, rows)


def _read_times(answer: Answer) -> dict[str, Any]:
    times = {name: answer.totals[name] for name in ("time_s", "low_s", "high_s")}
    return {**times, "evidence": str(answer.main_evidence)}


def draw_shardings(subject: Subject) -> Block:
    """Bars of the time of a batch with each sharding of all tables, on the same GPUs, the fastest on top.

    Limits: one GPU, or too many tables to compare -> BadInputError
    """
    base = subject.base
    if base.gpus == 1:
        raise BadInputError("nothing is sharded.")
    if base.table_count > MOST_COMPARED or base.basis.unpooled:
        raise BadInputError("perfmodel project --sharding all compares these.")
    mine = PLANNED_WORDS if subject.planned else subject.answer.sharding
    answers = {entry.sharding: entry for entry in answer_shardings(base)}
    fitting = {name: entry for name, entry in answers.items() if isinstance(entry, Answer) and entry.fits}
    never = [name for name in answers if name not in fitting]
    if subject.planned:
        fitting[mine] = subject.answer
    if not fitting:
        raise BadInputError("no sharding of all tables fits these GPUs.")
    rows: list[Mapping[str, Any]] = []
    for name, entry in sorted(fitting.items(), key=lambda item: item[1].time_s):
        about = {"sharding": name, "gpus": entry.gpus, "slowdown": entry.slowdown}
        rows.append({**about, "memory_bytes": entry.gpu_count.memory_bytes, **_read_times(entry)})
    how = f"All tables with one sharding on the same GPUs. Bars are {_LOOKS}"
    how += f" Not possible or too large here: {', '.join(never)}." if never else ""
    where = f"On {counted(base.gpus, 'GPU')}"
    fastest, time = _name_owner(rows[0]["sharding"]), format_time(rows[0]["time_s"])
    title = f"{where} {fastest} is the fastest of all shardings: {time}."
    if rows[0]["sharding"] != mine:
        now = format_time(subject.answer.time_s)
        title = f"{where} {mine} takes {now}; the fastest is {fastest}: {time}."
    return Block("shardings", title, how, _draw_bars(rows, "sharding"), subject.source, rows)


def _name_owner(sharding: str) -> str:
    """The sharding; with a note if TorchRec does not run it. Other labels stay as they are."""
    way = WAYS.get(sharding)
    return sharding if way is None or way.torchrec else f"{sharding}, which {TORCHREC} does not run"


def _draw_bars(rows: Sequence[Row], name: str) -> Any:
    """A plotly figure of horizontal bars of times, the first on top, each below its label.

    name  of the column with the labels
    """
    factor, unit = _choose_unit(max(row["time_s"] for row in rows))
    texts = [textwrap.wrap(f"{format_time(row['time_s'])} {_name_owner(row[name])}", _LINE) for row in rows]
    traces = []
    for kind in sorted(set(map(read_evidence, rows)), key=lambda kind: kind.rank):
        places = [place for place, row in enumerate(rows) if row["evidence"] == kind]
        words = [[escape_text(" ".join(texts[place])), _TIME.describe(rows[place])] for place in places]
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": str(kind), "width": 0.36, "y": places,
                "x": [factor * rows[place]["time_s"] for place in places], "showlegend": True,
                "hoverinfo": "text", "marker": {"color": style.EVIDENCE_COLOURS[kind]},
                "hovertext": [join_lines([*lines, f"evidence: {kind}"]) for lines in words],
            }
        )  # fmt: skip
    traces.append(_draw_bands([_TIME.read(row) for row in rows], range(len(rows)), factor))
    labels = [
        {
            "x": 0, "xref": "paper", "xanchor": "left", "y": place - 0.2, "yanchor": "bottom",
            "align": "left", "showarrow": False, "font": {"size": 12},
            "text": "<br>".join(map(escape_text, text)),
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
