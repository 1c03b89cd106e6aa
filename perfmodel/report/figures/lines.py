"""Line charts: the slowdown over table sizes, time and GPU-hours over GPUs, the roofline of the gather."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

import numpy as np

from perfmodel.answer import Answer
from perfmodel.answer.answer import answer_row_wise
from perfmodel.answer.inputs import share_equally
from perfmodel.answer.ranking import rank
from perfmodel.engine.schemes import ROW_WISE, TORCHREC
from perfmodel.engine.tables import row_bytes
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.model import kernels
from perfmodel.question.groups import LARGEST
from perfmodel.report.figures.chart import (
    RULE,
    Axis,
    Block,
    Row,
    describe_dashes,
    draw_rule,
    draw_series,
    new_figure,
)
from perfmodel.report.figures.subject import PLANNED_WORDS, Subject, project_rows
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_rate,
    format_ratio,
    format_time,
)
from perfmodel.validate.verdicts import load_claims

_SIZE = Axis("table_bytes", "bytes of all tables", "B")
_SLOWDOWN = Axis("slowdown", "slowdown (×)", "×", ("slowdown_low", "slowdown_high"))
_GPUS = Axis("gpus", "GPUs", "count")
_TIME = Axis("time_s", "time of a batch", "s", ("low_s", "high_s"))
_HOURS = Axis("gpu_hours", "GPU-hours for 10⁹ samples", "number", ("gpu_hours_low", "gpu_hours_high"))
_LARGEST_BYTES = 100e12
_AROUND_FULL = 0.98, 1.05  # of a full GPU or node: just below, there is room for buffers
_EVEN = [step * 10.0**power for power in range(19) for step in (1, 2, 5)]
_ONE_DOMAIN = 2.0**17
"""GPUs of a scale-up domain that holds all others."""
_PAPER_BYTES = 10e12  # of the tables in the paper's Fig 9
_PAPER_CLAIMS = ("10a", "10b")  # its smallest and its largest slowdown
_PAPER_MACHINES = (DEFAULT_MACHINE, "h100-paper")
_TIMES = (0.125, 0.25, 0.5, 1, 2, 4, 8)
_SAMPLES = 1e9


def describe_answer(line: str, answer: Answer) -> Row:
    """An answer as a point of ``line``: a row of the figure's data, in SI units."""
    # GPU-hours of _SAMPLES samples, for each second that a batch takes
    hours = _SAMPLES * answer.gpus / (answer.time_s * answer.samples_per_s * 3600)
    names = ("slowdown", *_SLOWDOWN.ends, "time_s", *_TIME.ends, "baseline_time_s")
    return {
        "line": line,
        "table_bytes": answer.gpu_count.table_bytes,
        "gpus": answer.gpus,
        "sharding": answer.sharding,
        **{name: answer.totals[name] for name in names},
        "samples_per_s": answer.samples_per_s,
        "gpu_hours": hours * answer.time_s,
        "gpu_hours_low": hours * answer.totals["low_s"],
        "gpu_hours_high": hours * answer.totals["high_s"],
        "evidence": str(answer.evidence),
        "main_evidence": str(answer.main_evidence),
    }


def _describe_point(row: Row) -> str:
    return f"{_SIZE.describe(row)} on {counted(row['gpus'], 'GPU')}, {row['sharding']}"


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
    axes = _SIZE, _SLOWDOWN
    traces = [
        trace
        for number, line in enumerate(lines)
        for trace in draw_series(line, axes, number, about=_describe_point)
    ]
    question = subject.base.question
    if not question.training and question.machine.name in _PAPER_MACHINES:
        about = "10 TB on 128 GPUs, NVLink between all: arXiv 2512.05831, Fig 9"
        shared = {"line": "the paper's least and most", _SIZE.column: _PAPER_BYTES}
        claims = {claim.id: claim.published for claim in load_claims()}
        published = [{**shared, _SLOWDOWN.column: claims[name]} for name in _PAPER_CLAIMS]
        (stars,) = draw_series(published, axes, 0, about=lambda _: about, marks=True)
        traces.append({**stars, "marker": {"symbol": "star-diamond", "size": 12, "color": RULE}})
    node = subject.answer.gpu_count.gpus_per_node
    usable = subject.answer.gpu_count.usable_bytes
    machine = subject.answer.setting.machine
    domain = machine.nvlink_domain_gpus
    borders = {domain: f"{machine.links.scale_up} domain of {domain} ends", node: f"node of {node} ends"}
    rules = [draw_rule("x", gpus * usable, words) for gpus, words in sorted(borders.items()) if gpus > 1]
    look = {"height": 370, "margin": {"l": 64, "r": 16, "t": 16, "b": 56}}
    figure = new_figure(traces, [_SIZE], [_SLOWDOWN], shapes=rules, **look)
    how = f"Against one GPU that holds all tables. Ribbons are 95 % bands; {describe_dashes(rows)}."
    title = _describe_slowdown(rows, subject.answer)
    return Block("slowdown", title, how, figure, subject.source, rows)


def _list_lines(subject: Subject) -> Iterator[list[Row]]:
    """Each line as rows of data: of the answer, of another sharding, and in one scale-up domain."""
    machine = subject.base.question.machine
    sizes = list_sizes(subject.base)

    def list_points(label: str, ask: Callable[..., Answer | None], **changes: Any) -> list[Row]:
        """Rows of the answers at all sizes, where there is one. ask  answers a changed question"""
        answers = []
        for size in sizes:
            with suppress(PerfmodelError):
                answers.append(ask(table_bytes=size, gpus=None, total=None, **changes))
        return [describe_answer(label, answer) for answer in answers if answer is not None and answer.fits]

    fixed = subject.fix_setting()
    yield list_points(f"{TORCHREC}'s fastest" if subject.lead else subject.answer.sharding, fixed.ask)
    if subject.lead:
        yield list_points(
            "with unique rows (EMBark)",
            lambda **c: rank(answer_row_wise(fixed.change(**c))).beside.unique_rows,
        )
    elif subject.answer.sharding != ROW_WISE:
        yield list_points(ROW_WISE, lambda **c: answer_row_wise(fixed.change(sharding=None, **c)))
    if machine.nvlink_domain_gpus > 1:
        with suppress(PerfmodelError):
            wide = subject.fix_setting(machine=machine.with_overrides({"nvlink_domain_gpus": _ONE_DOMAIN}))
            yield list_points(f"if one {machine.links.scale_up} domain held all GPUs", wide.ask)


def list_sizes(base: Answer) -> list[float]:
    """Table sizes at which a line is computed: round ones, the question's, and around a full GPU and node."""
    usable = base.gpu_count.usable_bytes
    node = base.gpu_count.gpus_per_node
    table_bytes = base.gpu_count.table_bytes
    low = min(usable, table_bytes)
    high = max(_LARGEST_BYTES, table_bytes)
    full = [factor * gpus * usable for gpus in {1, node} for factor in _AROUND_FULL]
    near = {float(f"{size:.6g}") for size in (*_EVEN, *full) if size == np.clip(size, low, high)}
    return sorted(near | {table_bytes})


def _describe_slowdown(rows: Sequence[Row], answer: Answer) -> str:
    """The title: the slowdown at the question's size, and that of the other lines there."""
    size = answer.gpu_count.table_bytes
    size_text = format_bytes(size, binary=False)
    if answer.gpus == 1:
        return f"Tables of {size_text} fit on one GPU, so nothing is slower there."
    lead, *_ = rows
    beside = [row for row in rows if row["table_bytes"] == size and row["line"] != lead["line"]]
    words = [f"; {row['line']} {format_ratio(row['slowdown'])}" for row in beside]
    return f"Slowdown at {size_text}: {format_ratio(answer.slowdown)}{''.join(words)}."


def draw_over_gpus(subject: Subject) -> Block:
    """Time of a batch, and GPU-hours for 10⁹ samples, on the GPUs of the answer and on more of them."""
    answer = subject.answer
    planned = subject.planned
    line = answer.sharding if subject.lead is None else f"{TORCHREC}'s fastest"
    line += " for all tables" if planned else ""
    rows = [describe_answer(line, scaled) for scaled in _list_scaled(subject)]
    if not rows[1:]:
        raise BadInputError("no other number of GPUs is covered by the calibration.")
    point = describe_answer(PLANNED_WORDS if planned else line, answer)
    traces = []
    for place, y in enumerate((_TIME, _HOURS)):
        traces += draw_series(rows, (_GPUS, y), 0, (0, place), _describe_point)
        if planned:
            traces += draw_series([point], (_GPUS, y), 1, (0, place), _describe_point, marks=True)
    look = {"height": 440, "showlegend": planned, "shapes": [draw_rule("x", answer.gpus)]}
    figure = new_figure(traces, [_GPUS], [_TIME, _HOURS], **look)
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
    own_gpus = subject.answer.gpus
    node = subject.answer.gpu_count.gpus_per_node
    total = subject.base.question.total
    fixed = subject.fix_setting()
    numbers = {round(times * own_gpus) for times in _TIMES} | {node * (own_gpus // node + 1)}
    for gpus in sorted(numbers - {0}):
        with suppress(PerfmodelError):
            batch = {} if total is None else {"batch": share_equally(total, gpus)}
            answer = subject.uniform if gpus == own_gpus else fixed.ask(gpus=gpus, **batch)
            if answer is not None and answer.fits:
                yield answer


_HELD = Axis("table_bytes", "bytes of all tables on one GPU", "B")
_RATE = Axis("bytes_per_s", "bytes per second", "B/s", ("slowest", "fastest"))
_BATCHES = (1, 8, 64)
_SMALLEST = 2.0**18
_SIZES = 37
_CEILINGS = {"hbm_bytes_per_s": "memory", "gather_bytes_per_s": "gather", "l2_bytes_per_s": "L2"}


def draw_roofline(subject: Subject) -> Block:
    """Lines of the bytes per second that a gather on one GPU requests, against the bytes of all tables.

    The tables and the batch of the answer, also 8 and 64 times the batch. Rows read from the L2 count too, so
    small tables can exceed the memory's rate.
    Limits: tables of a set -> BadInputError
    """
    answer = subject.answer
    machine = answer.setting.machine
    if subject.base.question.model is not None:
        raise BadInputError("the tables of a set have their own pooling and dim.")
    sizes = np.geomspace(_SMALLEST, machine.value("hbm_bytes"), _SIZES)
    rows = []
    traces = []
    for number, factor in enumerate(_BATCHES):
        if (batch := factor * int(answer.work.batch[0])) > LARGEST["batch"]:
            continue
        moved = _count_gathered(answer, batch)
        fixed = subject.change(gpus=1, total=None, batch=batch, table_bytes=None, rows=None)
        prepared = fixed.prepare({"table_bytes": sizes})
        line = [
            {
                "line": f"batch {format_count(batch)}", "batch": batch, _HELD.column: row[_HELD.column],
                "requested_bytes": moved, **{name: row[name] for name in ("time_s", *_TIME.ends)},
                _RATE.column: moved / row["time_s"], "slowest": moved / row["high_s"],
                "fastest": moved / row["low_s"], "evidence": row["evidence"],
            }
            for row in project_rows({"table_bytes": sizes, "batch": batch}, *prepared)
        ]  # fmt: skip
        traces += draw_series(line, (_HELD, _RATE), number)
        rows += line
    rates = {key: machine.quantity(key) for key in _CEILINGS}
    rules = [
        draw_rule("y", quantity.value, f"{_CEILINGS[key]} {format_rate(quantity.value)}")
        for key, quantity in rates.items()
    ]
    rules.append(draw_rule("x", machine.value("l2_bytes"), "L2"))
    how = (
        "Bytes of rows, ids and bags per second against the bytes of all tables on one GPU. Lines are the "
        "kernel model with its 95 % band. Rules are rates of the machine: of its memory, of a gather of long "
        f"rows, and of its L2, which holds what is left of the upright one; {describe_dashes(rows)}."
    )
    ceilings = ", ".join(f"{key} {quantity} ({quantity.evidence})" for key, quantity in rates.items())
    figure = new_figure(traces, [_HELD], [_RATE], height=460, shapes=rules)
    title = _describe_full(answer, max(rows[:_SIZES], key=itemgetter(_HELD.column)))
    source = f"Machine {machine.name}: {ceilings}."
    return Block("roofline", title, how, figure, source, rows)


def _count_gathered(answer: Answer, batch: int) -> float:
    """Bytes of rows, ids and bags that the gather of a batch requests on one GPU."""
    tables = answer.work.tables
    numbers = answer.basis.numbers
    bags = batch * tables.count
    stored = row_bytes(tables.dtype, tables.dim, training=False)
    bag = tables.dim * numbers["pooled_element_bytes"] + numbers["offset_bytes"]
    return float(kernels.gather_bytes(bags * tables.pooling, stored, answer.work.id_bytes, bags, bag).sum())


def _describe_full(answer: Answer, full: Row) -> str:
    """The title of the roofline. full  the gather from tables that fill a GPU"""
    machine = answer.setting.machine
    rate = full["bytes_per_s"]
    share = format_fraction(rate / machine.value("gather_bytes_per_s"))
    floor = format_fraction(machine.value("launch_floor_s") / full["time_s"])
    return (
        f"{full['line'].capitalize()} gathers from tables that fill a GPU at {format_rate(rate)}, {share} of "
        f"the rate for long rows; kernel launches take {floor} of the time."
    )
