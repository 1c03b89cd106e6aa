"""Figures of bars with bands: the steps of a batch, what would help, and every sharding beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import answer_question, answer_shardings
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine.schemes import WAYS
from perfmodel.errors import BadInputError
from perfmodel.report.figures.chart import (
    EVIDENCE_COLOURS,
    PALETTE,
    RULE,
    Axis,
    Block,
    Figure,
    Row,
    Trace,
    draw_whiskers,
    escape_text,
    new_figure,
    read_evidence,
    write_hover,
)
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject
from perfmodel.units import counted, format_bytes, format_fraction, format_time

_TIME = Axis("time_s", "time of a batch", "s", ("low_s", "high_s"))
_FROM_ZERO = {"title": {"text": _TIME.title}, "rangemode": "tozero", "tickformat": "~s", "ticksuffix": "s"}
_ROW = 40  # pixels of a bar with its label
_CHARACTER = 6.4  # pixels of a character of a label
_LOOKS = "coloured by the weakest evidence behind much of the time; whiskers are 95 % bands."
_STEP = ("time_s", "low_s", "high_s", "share", "payload_bytes", "library", "clock", "evidence")


def draw_breakdown(subject: Subject) -> Block:
    """The steps as one stacked bar, and below it each step where it begins and ends, with its band."""
    answer = subject.answer
    names = [f"<b>one batch</b><br>{format_time(answer.time_s)}"]
    ends = [_TIME.read(answer.totals)]
    traces: list[Trace] = []
    rows = [
        {"sharding": answer.sharding, "step": step.name, **{name: getattr(step, name) for name in _STEP}}
        for step in answer.steps
    ]
    start_s = 0.0
    for place, step in enumerate(answer.steps):
        share = format_fraction(step.share)
        names.append(f"{step.label}<br>{format_time(step.time_s)}, {share}")
        moved = f"{format_bytes(step.payload_bytes)} per GPU, {step.library}, {step.clock} clock"
        time_words = _TIME.describe(rows[place])
        words = write_hover(rows[place], step.label, time_words, f"{share} of the time", moved)
        bars = {"y": [names[0], names[-1]], "x": [step.time_s] * 2, "base": [start_s] * 2, "hovertext": words}
        traces.append(_draw_bar(step.label, PALETTE[place % len(PALETTE)], **bars))
        ends.append((start_s + step.time_s, start_s + step.low_s, start_s + step.high_s))
        start_s += step.time_s
    figure = new_figure(
        [*traces, _draw_bands(ends, names)],
        barmode="overlay",
        bargap=0.35,
        height=76 + 42 * len(names),
        showlegend=False,
        margin={"l": 24, "r": 16, "t": 16, "b": 56},
        xaxis=_FROM_ZERO,
        yaxis={"autorange": "reversed", "showgrid": False, "tickfont": {"size": 12}},
    )
    longest = answer.longest_step
    share = format_fraction(longest.share)
    title = f"Where the time goes: the {longest.label} takes {share} of {format_time(answer.time_s)}."
    how = "Steps one after another, all of them in the bar on top. Whiskers are 95 % bands."
    return Block("breakdown", title, how, figure, subject.source, rows)


def _draw_bar(name: str, colour: str, **bars: Any) -> Trace:
    """Horizontal bars of a colour. bars  plotly's settings: x, y, base, hovertext"""
    return {
        "type": "bar", "orientation": "h", "name": name, "hoverinfo": "text",
        "marker": {"color": colour}, **bars,
    }  # fmt: skip


def _draw_bands(ends: Sequence[tuple[float, float, float]], places: Iterable[Any]) -> Trace:
    """Whiskers at the ends of bars. ends  (time, low, high) of each [s];  places  its place on the y axis"""
    return {
        "type": "scatter", "mode": "markers", "name": "95 % band", "x": [time for time, *_ in ends],
        "y": list(places), "error_x": draw_whiskers(ends), "marker": {"color": RULE, "size": 4},
        "hoverinfo": "skip", "showlegend": False,
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


def _read_times(answer: Answer) -> Row:
    """The time of an answer with its band and evidence, as columns of the figure's data."""
    times = {name: answer.totals[name] for name in ("time_s", *_TIME.ends)}
    return {**times, "evidence": str(answer.main_evidence)}


def draw_shardings(subject: Subject) -> Block:
    """Bars of the time of a batch with each sharding of all tables, on the same GPUs, the fastest on top.

    Limits: one GPU, or too many tables to compare -> BadInputError
    """
    base = subject.base
    if base.gpus == 1:
        raise BadInputError("nothing is sharded.")
    mine = PLANNED_WORDS if subject.planned else subject.answer.sharding
    answers = {entry.sharding: entry for entry in answer_shardings(base)}
    fitting = {name: entry for name, entry in answers.items() if isinstance(entry, Answer) if entry.fits}
    never = [name for name in answers if name not in fitting]
    if subject.planned:
        fitting[mine] = subject.answer
    if not fitting:
        raise BadInputError("no sharding of all tables fits these GPUs.")
    rows: list[Row] = []
    for name, entry in sorted(fitting.items(), key=lambda item: item[1].time_s):
        about = {"sharding": name, "gpus": entry.gpus, "slowdown": entry.slowdown}
        rows.append({**about, "memory_bytes": entry.gpu_count.memory_bytes, **_read_times(entry)})
    how = f"All tables with one sharding on the same GPUs. Bars are {_LOOKS}"
    how += f" Not possible or too large here: {', '.join(never)}." if never else ""
    where = f"On {counted(base.gpus, 'GPU')}"
    fastest = _name_owner(rows[0]["sharding"])
    time = format_time(rows[0]["time_s"])
    title = f"{where} {fastest} is the fastest of all shardings: {time}."
    if rows[0]["sharding"] != mine:
        now = format_time(subject.answer.time_s)
        title = f"{where} {mine} takes {now}; the fastest is {fastest}: {time}."
    return Block("shardings", title, how, _draw_bars(rows, "sharding"), subject.source, rows)


def _name_owner(sharding: str) -> str:
    """The sharding; with who runs it if TorchRec does not. Other labels stay as they are."""
    way = WAYS.get(sharding)
    return sharding if way is None or way.torchrec else f"{sharding}, which {way.runs or 'nobody'} runs"


def _draw_bars(rows: Sequence[Row], name: str) -> Figure:
    """A plotly figure of horizontal bars of times, the first on top, each below its label of one line.

    name  of the column with the labels
    """
    labels = [f"{format_time(row['time_s'])} {_name_owner(row[name])}" for row in rows]
    traces = []
    for kind in sorted(set(map(read_evidence, rows)), key=lambda kind: kind.rank):
        places = [place for place, row in enumerate(rows) if row["evidence"] == kind]
        words = [write_hover(rows[place], labels[place], _TIME.describe(rows[place])) for place in places]
        bars = {"y": places, "x": [rows[place]["time_s"] for place in places], "hovertext": words}
        traces.append(_draw_bar(str(kind), EVIDENCE_COLOURS[kind], **bars, width=0.36, showlegend=True))
    traces.append(_draw_bands([_TIME.read(row) for row in rows], range(len(rows))))
    above = {
        "type": "scatter", "mode": "text", "name": "labels", "x": [0] * len(rows),
        "y": [place - 0.2 for place in range(len(rows))], "text": [*map(escape_text, labels)],
        "textposition": "top right", "textfont": {"size": 12}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    hidden = dict.fromkeys(("showticklabels", "showgrid", "showline", "zeroline"), False)
    return new_figure(
        [*traces, above],
        height=100 + _ROW * len(rows),
        margin={"l": 16, "r": 16, "t": 32, "b": 52},
        meta={"min_width": round(_CHARACTER * max(map(len, labels)) + 40)},
        xaxis=_FROM_ZERO,
        yaxis={"range": [len(rows) - 0.6, -0.8], **hidden},
    )
