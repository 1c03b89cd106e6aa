"""Kernel roofline: bytes per second of gather and pool against the working set, with the ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.answer import Answer
from perfmodel.engine.grid import Configs, cost_locally
from perfmodel.engine.tables import row_bytes
from perfmodel.model import kernels
from perfmodel.question.groups import LARGEST
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.lines import describe_dashes, trace_line
from perfmodel.report.figures.marks import rule, scatter
from perfmodel.report.figures.registry import ROOFLINE
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import hover, safe, sentence, size_words
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_count, format_fraction, format_rate, format_time

Row = Mapping[str, Any]
_BATCHES = (1, 8, 64)
_SIZES = 37
_SMALLEST = 2.0**18
_CEILINGS = {"hbm_bytes_per_s": "memory", "gather_bytes_per_s": "gather", "l2_bytes_per_s": "L2"}


def draw_roofline(subject: Subject) -> Block:
    """Lines of the bytes per second that a gather on one GPU requests, against the bytes of all tables.

    The tables and the batch of the answer, also 8 and 64 times the batch. Rows read from the L2 count too, so
    small tables can exceed the memory's rate.
    """
    answer = subject.answer
    lines, machine = _list_lines(answer), answer.setting.machine
    parts = [f"{key} {machine.quantity(key)} ({machine.quantity(key).evidence})" for key in _CEILINGS]
    rows = [row for line in lines for row in line]
    how = (
        "Bytes of rows, ids and bags per second against the bytes of all tables on one GPU. Lines are the "
        "kernel model with its 95 % band. Horizontal lines are rates of the machine: of its memory, of a "
        "gather of long rows, and of its L2, which holds what is left of the rule; "
        f"{describe_dashes(row['evidence'] for row in rows)}."
    )
    source = f"Machine {machine.name}: {', '.join(parts)}."
    return ROOFLINE.block(_describe_title(answer, lines[0][-1]), how, _draw(answer, lines), source, rows)


def _list_lines(answer: Answer) -> list[list[dict[str, Any]]]:
    """Rows of a line for each batch: the model's bytes per second over sizes of the tables.

    The tables of ``answer`` are used, with rows scaled. All batches are computed in one call, which works out
    skewed ids of each table size once.
    """
    basis, work = answer.basis, answer.work
    batch = float(work.batch[0])
    batches = [batch * factor for factor in _BATCHES if batch * factor <= LARGEST["batch"]]
    grid = np.geomspace(_SMALLEST, basis.setting.machine.value("hbm_bytes"), _SIZES)
    samples, sizes = np.repeat(batches, grid.size), np.tile(grid, len(batches))
    stored = row_bytes(work.tables.dtype, work.tables.dim, training=False)
    factor = sizes / float((work.tables.count * work.tables.rows * stored).sum())
    tables = replace(work.tables, rows=np.maximum(work.tables.rows[:, :1] * factor, 1.0))
    ones, ids = np.ones_like(sizes), np.full_like(sizes, float(work.id_bytes[0]))
    timing = cost_locally(basis, Configs(sizes, ones, ones, samples, ids, tables, True)).steps[0].timing
    element, offset = basis.numbers["pooled_element_bytes"], basis.numbers["offset_bytes"]
    bags, bag = samples * tables.count * tables.features, tables.dim * element + offset
    each = kernels.gather_bytes(bags * tables.pooling, stored, ids + tables.weight_bytes, bags, bag)
    moved = each.sum(axis=0)
    kinds = [str(Evidence.from_rank(int(rank))) for rank in np.broadcast_to(timing.evidence, sizes.shape)]
    columns = {
        "batch": samples, "working_set_bytes": sizes, "requested_bytes": moved, "time_s": timing.time_s,
        "low_s": timing.low_s, "high_s": timing.high_s, "bytes_per_s": moved / timing.time_s,
        "slowest": moved / timing.high_s, "fastest": moved / timing.low_s,
    }  # fmt: skip
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = [
        {"line": f"batch {format_count(row[0])}", **dict(zip(columns, row, strict=True)),
         "evidence": kind, "main_evidence": kind}
        for kind, row in zip(kinds, values, strict=True)
    ]  # fmt: skip
    return [rows[number : number + _SIZES] for number in range(0, len(rows), _SIZES)]


def _describe_title(answer: Answer, last: Row) -> str:
    """The title. last  the gather from tables that fill a GPU"""
    machine, rate = answer.setting.machine, last["bytes_per_s"]
    floor = machine.value("launch_floor_s") / last["time_s"]
    words = f"{last['line']} gathers from tables that fill a GPU at {format_rate(rate)}"
    if floor >= 0.5:
        return sentence(f"{words}; kernel launches take {format_fraction(floor)} of the time")
    share = format_fraction(rate / machine.value("gather_bytes_per_s"))
    return sentence(f"{words}, {share} of the rate for long rows")


def _draw(answer: Answer, lines: Sequence[Sequence[Row]]) -> Any:
    machine, rows = answer.setting.machine, [row for line in lines for row in line]
    rates = [machine.value(key) for key in _CEILINGS]
    low, high = min(row["slowest"] for row in rows), max(*rates, *(row["fastest"] for row in rows))
    left, right = rows[0]["working_set_bytes"], rows[-1]["working_set_bytes"]
    names = ("working_set_bytes", "bytes_per_s", "slowest", "fastest")
    traces = [
        trace for number, line in enumerate(lines) for trace in trace_line(line, names, number, _describe)
    ]
    for number, (key, label) in enumerate(_CEILINGS.items(), len(lines)):
        quantity = machine.quantity(key)
        name = f"{label} {format_rate(quantity.value)}"
        text = hover([f"{name} ({quantity.evidence})", safe(quantity.source)])
        line = {"color": style.colour(number), "width": 1.5, "dash": style.DASHES[quantity.evidence]}
        traces.append(scatter([left, right], [quantity.value] * 2, text, name, mode="lines", line=line))
    return style.new_figure(
        traces,
        height=460,
        xaxis=style.bytes_axis(left, right, "bytes of all tables on one GPU"),
        yaxis=style.rate_axis(low / 1.5, high * 1.6, "bytes per second"),
        shapes=[rule("x", machine.value("l2_bytes"), dash="dot")],
    )


def _describe(row: Row) -> list[str]:
    low, high = (format_time(row[name]) for name in ("low_s", "high_s"))
    return [
        f"tables of {size_words(row['working_set_bytes'])}",
        f"{format_rate(row['bytes_per_s'])}, {format_time(row['time_s'])}",
        f"band {low} – {high}",
    ]
