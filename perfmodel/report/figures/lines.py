"""Line charts: the slowdown over table sizes, and time and GPU-hours over GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.answer import answer_row_wise
from perfmodel.answer.inputs import share_equally
from perfmodel.answer.ranking import rank
from perfmodel.engine.schemes import ROW_WISE, TORCHREC
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.chart import (
    Axis,
    Row,
    Trace,
    describe_dashes,
    draw_line,
    draw_marks,
    draw_rule,
    format_size,
    place_panes,
)
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.units import counted, format_number, format_ratio, format_time
from perfmodel.validate.verdicts import load_claims

_SIZE = Axis("table_bytes", "bytes of all tables", "B")
_SLOWDOWN = Axis("slowdown", "slowdown (×)", "×", ("slowdown_low", "slowdown_high"))
_GPUS = Axis("gpus", "GPUs", "count")
_TIME = Axis("time_s", "time of a batch", "s", ("low_s", "high_s"))
_HOURS = Axis("gpu_hours", "GPU-hours for 10⁹ samples", "number", ("gpu_hours_low", "gpu_hours_high"))
_LARGEST_BYTES = 100e12
_LESS, _MORE = 0.98, 1.05  # of a full GPU or node: just below, there is room for buffers
_ONE_DOMAIN = 2.0**17
"""GPUs of a scale-up domain that holds all others."""
_PAPER_BYTES, _PAPER_CLAIMS, _PAPER_MACHINES = 10e12, ("10a", "10b"), (DEFAULT_MACHINE, "h100-paper")
"""Table size, claims and machines of the smallest and the largest slowdown in the paper's Fig 9."""
_TIMES = (0.125, 0.25, 0.5, 1, 2, 4, 8)
_SAMPLES = 1e9


def describe_answer(line: str, answer: Answer) -> dict[str, Any]:
    """An answer as a point of ``line``: a row of the figure's data, in SI units."""
    hours = _SAMPLES * answer.gpus / (answer.time_s * answer.samples_per_s * 3600)
    names = ("slowdown", *_SLOWDOWN.ends, "time_s", *_TIME.ends, "baseline_time_s")
    times = zip(("gpu_hours", *_HOURS.ends), ("time_s", *_TIME.ends), strict=True)
    return {
        "line": line,
        "table_bytes": answer.gpu_count.table_bytes,
        "gpus": answer.gpus,
        "sharding": answer.sharding,
        **{name: answer.totals[name] for name in names},
        "samples_per_s": answer.samples_per_s,
        **{name: hours * answer.totals[time] for name, time in times},
        "evidence": str(answer.evidence),
        "main_evidence": str(answer.main_evidence),
    }


def _describe_point(row: Row) -> str:
    size, gpus = format_size(row["table_bytes"]), counted(row["gpus"], "GPU")
    return f"{size} on {gpus}, {row['sharding']}"


def draw_slowdown(subject: Subject) -> Block:
    """Three lines at most of the slowdown over table sizes: the answer's, another sharding's, one domain's.

    Limits: a set of tables, or no size that needs two GPUs -> BadInputError
    """
    if subject.base.question.model is not None:
        raise BadInputError("a set of tables has one size.")
    lines = [line for line in _list_lines(subject) if any(row["gpus"] > 1 for row in line)]
    if not lines:
        raise BadInputError("no size beyond one GPU is covered by the calibration.")
    rows = [row for line in lines for row in line]
    traces = [
        trace
        for number, line in enumerate(lines)
        for trace in draw_line(line, _SIZE, _SLOWDOWN, number, about=_describe_point)
    ]
    if published := _list_published(subject):
        marker = {"symbol": "star-diamond", "size": 12, "color": style.RULE}
        about = "10 TB on 128 GPUs, NVLink between all: arXiv 2512.05831, Fig 9"
        traces.append(draw_marks(published, _SIZE, _SLOWDOWN, 0, about=lambda _: about, marker=marker))
    borders = list(_list_borders(subject.answer))
    labels = [
        {
            "x": math.log10(size), "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top",
            "text": words, "textangle": -90, "font": {"size": 11}, "showarrow": False,
        }
        for size, words in borders
    ]  # fmt: skip
    figure = style.new_figure(
        traces,
        height=style.FIRST_HEIGHT,
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        shapes=[draw_rule("x", size) for size, _ in borders],
        annotations=labels,
        **place_panes(traces, [_SIZE], [_SLOWDOWN]),
    )
    how = f"Against one GPU that holds all tables. Ribbons are 95 % bands; {describe_dashes(rows)}."
    title = _describe_slowdown(rows, subject.answer)
    return Block("slowdown", title, how, figure, subject.source, rows)


def _list_lines(subject: Subject) -> Iterator[list[dict[str, Any]]]:
    machine, sizes = subject.base.question.machine, list_sizes(subject.base)

    def list_points(label: str, ask: Callable[..., Answer | None], **changes: Any) -> list[dict[str, Any]]:
        answers = []
        for size in sizes:
            with suppress(PerfmodelError):
                answers.append(ask(table_bytes=size, gpus=None, total=None, **changes))
        return [describe_answer(label, answer) for answer in answers if answer is not None and answer.fits]

    fixed = subject.fix_setting()
    yield list_points(f"{TORCHREC}'s fastest" if subject.lead else subject.answer.sharding, fixed.ask)
    if subject.lead:
        yield list_points("with unique rows (EMBark)", lambda **c: rank(fixed.change(**c)).beside.unique_rows)
    elif subject.answer.sharding != ROW_WISE:
        yield list_points(ROW_WISE, lambda **c: answer_row_wise(fixed.change(sharding=None, **c)))
    if machine.nvlink_domain_gpus > 1:
        with suppress(PerfmodelError):
            wide = subject.fix_setting(machine=machine.with_overrides({"nvlink_domain_gpus": _ONE_DOMAIN}))
            yield list_points(f"if one {machine.links.scale_up} domain held all GPUs", wide.ask)


def list_sizes(base: Answer) -> list[float]:
    """Table sizes at which a line is computed: round ones, the question's, and around a full GPU and node."""
    usable, node = base.gpu_count.usable_bytes, base.gpu_count.gpus_per_node
    table_bytes = base.gpu_count.table_bytes
    low, high = min(usable, table_bytes), max(_LARGEST_BYTES, table_bytes)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    even = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    full = [factor * gpus * usable for gpus in {1, node} for factor in (_LESS, _MORE)]
    return sorted({float(f"{size:.6g}") for size in (*even, *full) if low <= size <= high} | {table_bytes})


def _list_published(subject: Subject) -> list[Row]:
    """The paper's slowdowns of 10 TB. Limits: training, or another machine than the paper's kind -> none"""
    question, line = subject.base.question, "the paper's least and most"
    if question.training or question.machine.name not in _PAPER_MACHINES:
        return []
    claims = {claim.id: claim.published for claim in load_claims()}
    return [{"line": line, "table_bytes": _PAPER_BYTES, "slowdown": claims[name]} for name in _PAPER_CLAIMS]


def _list_borders(answer: Answer) -> Iterator[tuple[float, str]]:
    """Table sizes that fill a node, and a scale-up domain if that is larger, each with its label."""
    node, usable = answer.gpu_count.gpus_per_node, answer.gpu_count.usable_bytes
    machine = answer.setting.machine
    domain = machine.nvlink_domain_gpus
    ends = {domain: f"{machine.links.scale_up} domain of {domain} ends", node: f"node of {node} ends"}
    for gpus, words in sorted(ends.items()):
        if 1 < gpus < _LARGEST_BYTES / usable:
            yield gpus * usable, words


def _describe_slowdown(rows: Sequence[Row], answer: Answer) -> str:
    size = answer.gpu_count.table_bytes
    if answer.gpus == 1:
        return f"Tables of {format_size(size)} fit on one GPU, so nothing is slower there."
    beside = [row for row in rows if row["table_bytes"] == size and row["line"] != rows[0]["line"]]
    words = [f"; {row['line']} {format_ratio(row['slowdown'])}" for row in beside]
    return f"Slowdown at {format_size(size)}: {format_ratio(answer.slowdown)}{''.join(words)}."


def draw_over_gpus(subject: Subject) -> Block:
    """Time of a batch, and GPU-hours for 10⁹ samples, on the GPUs of the answer and on more of them."""
    answer, planned = subject.answer, subject.planned
    line = answer.sharding if subject.lead is None else f"{TORCHREC}'s fastest"
    line += " for all tables" if planned else ""
    rows = [describe_answer(line, scaled) for scaled in _list_scaled(subject)]
    if len(rows) < 2:
        raise BadInputError("no other number of GPUs is covered by the calibration.")
    point = describe_answer(PLANNED_WORDS if planned else line, answer)
    traces: list[Trace] = []
    for place, y in enumerate((_TIME, _HOURS)):
        traces += draw_line(rows, _GPUS, y, 0, (0, place), _describe_point)
        traces += [draw_marks([point], _GPUS, y, 1, (0, place), _describe_point)] if planned else []
    look = {"height": 400, "showlegend": planned, "margin": {"l": 64, "r": 16, "t": 32, "b": 56}}
    shapes = [draw_rule("x", answer.gpus)]
    figure = style.new_figure(traces, shapes=shapes, **look, **place_panes(traces, [_GPUS], [_TIME, _HOURS]))
    cheapest = min(rows, key=lambda row: float(row["gpu_hours"]))
    title = (
        f"On {counted(answer.gpus, 'GPU')} a batch takes {format_time(answer.time_s)}, and 10⁹ samples take "
        f"{format_number(point['gpu_hours'])} GPU-hours; the fewest"
        f"{' with one sharding for all tables' if planned else ''} are "
        f"{format_number(cheapest['gpu_hours'])}, on {counted(cheapest['gpus'], 'GPU')}."
    )
    batch = "on all of them together" if subject.base.question.total else "on each"
    how = (
        f"The same tables on other numbers of GPUs, with as many samples {batch}; the rule is the question. "
        f"Ribbons are 95 % bands; {describe_dashes(rows)}."
    )
    data = [*rows, *([point] if planned else [])]
    return Block("over-gpus", title, how, figure, subject.source, data)


def _list_scaled(subject: Subject) -> Iterator[Answer]:
    """The answers on the GPUs of the answer, one node more, and on multiples and parts of them that fit."""
    own_gpus, node = subject.answer.gpus, subject.answer.gpu_count.gpus_per_node
    total, fixed = subject.base.question.total, subject.fix_setting()
    numbers = {round(times * own_gpus) for times in _TIMES} | {own_gpus + node}
    for gpus in sorted(numbers - {0}):
        with suppress(PerfmodelError):
            batch = {} if total is None else {"batch": share_equally(total, gpus)}
            answer = subject.uniform if gpus == own_gpus else fixed.ask(gpus=gpus, **batch)
            if answer.fits:
                yield answer
