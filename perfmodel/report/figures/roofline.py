"""Kernel roofline: bytes per second of gather and pool against the working set, with the ceilings."""

from __future__ import annotations

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
from perfmodel.report.figures.chart import Axis, Row, describe_dashes, draw_line, draw_rule, place_panes
from perfmodel.report.figures.subject import Subject
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_count, format_fraction, format_rate

_SIZE = Axis("working_set_bytes", "bytes of all tables on one GPU", "B")
_RATE = Axis("bytes_per_s", "bytes per second", "B/s", ("slowest", "fastest"))
_BATCHES = (1, 8, 64)
_SMALLEST, _SIZES = 2.0**18, 37
_CEILINGS = {"hbm_bytes_per_s": "memory", "gather_bytes_per_s": "gather", "l2_bytes_per_s": "L2"}


def draw_roofline(subject: Subject) -> Block:
    """Lines of the bytes per second that a gather on one GPU requests, against the bytes of all tables.

    The tables and the batch of the answer, also 8 and 64 times the batch. Rows read from the L2 count too, so
    small tables can exceed the memory's rate.
    """
    answer, machine = subject.answer, subject.answer.setting.machine
    lines = _list_lines(answer)
    rows = [row for line in lines for row in line]
    traces = [trace for n, line in enumerate(lines) for trace in draw_line(line, _SIZE, _RATE, n)]
    parts = []
    for number, (key, label) in enumerate(_CEILINGS.items(), len(lines)):
        quantity = machine.quantity(key)
        about = {"line": f"{label} {format_rate(quantity.value)}", "evidence": quantity.evidence}
        ends = [
            {**about, _SIZE.column: rows[end][_SIZE.column], "bytes_per_s": quantity.value} for end in (0, -1)
        ]
        _, line = draw_line(ends, _SIZE, _RATE, number)
        traces.append({**line, "mode": "lines"})
        parts.append(f"{key} {quantity} ({quantity.evidence})")
    figure = style.new_figure(
        traces,
        height=460,
        shapes=[draw_rule("x", machine.value("l2_bytes"))],
        **place_panes(traces, [_SIZE], [_RATE]),
    )
    how = (
        "Bytes of rows, ids and bags per second against the bytes of all tables on one GPU. Lines are the "
        "kernel model with its 95 % band. Horizontal lines are rates of the machine: of its memory, of a "
        f"gather of long rows, and of its L2, which holds what is left of the rule; {describe_dashes(rows)}."
    )
    source = f"Machine {machine.name}: {', '.join(parts)}."
    return Block("roofline", _describe(answer, lines[0][-1]), how, figure, source, rows)


def _list_lines(answer: Answer) -> list[list[dict[str, Any]]]:
    """Rows of a line for each batch: the model's bytes per second over sizes of the tables.

    The tables of ``answer`` are used, with rows scaled. All batches are computed in one call, which works out
    skewed ids of each table size once.
    """
    basis, work = answer.basis, answer.work
    batches = [batch for factor in _BATCHES if (batch := factor * float(work.batch[0])) <= LARGEST["batch"]]
    grid = np.geomspace(_SMALLEST, basis.setting.machine.value("hbm_bytes"), _SIZES)
    samples, sizes = np.repeat(batches, grid.size), np.tile(grid, len(batches))
    stored = row_bytes(work.tables.dtype, work.tables.dim, training=False)
    factor = sizes / float((work.tables.count * work.tables.rows * stored).sum())
    tables = replace(work.tables, rows=np.maximum(work.tables.rows[:, :1] * factor, 1.0))
    ones, ids = np.ones_like(sizes), np.full_like(sizes, float(work.id_bytes[0]))
    timing = cost_locally(basis, Configs(sizes, ones, ones, samples, ids, tables, True)).steps[0].timing
    element, offset = basis.numbers["pooled_element_bytes"], basis.numbers["offset_bytes"]
    bags, bag = samples * tables.count * tables.features, tables.dim * element + offset
    moved = kernels.gather_bytes(bags * tables.pooling, stored, ids + tables.weight_bytes, bags, bag).sum(
        axis=0
    )
    columns = {
        "batch": samples, "working_set_bytes": sizes, "requested_bytes": moved, "time_s": timing.time_s,
        "low_s": timing.low_s, "high_s": timing.high_s, "bytes_per_s": moved / timing.time_s,
        "slowest": moved / timing.high_s, "fastest": moved / timing.low_s,
    }  # fmt: skip
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    kinds = [str(Evidence.from_rank(int(rank))) for rank in np.broadcast_to(timing.evidence, sizes.shape)]
    rows = [
        {"line": f"batch {format_count(row[0])}", **dict(zip(columns, row, strict=True)), "evidence": kind}
        for kind, row in zip(kinds, values, strict=True)
    ]
    return [rows[start : start + _SIZES] for start in range(0, len(rows), _SIZES)]


def _describe(answer: Answer, full: Row) -> str:
    """The title. full  the gather from tables that fill a GPU"""
    machine, rate = answer.setting.machine, full["bytes_per_s"]
    floor = machine.value("launch_floor_s") / full["time_s"]
    words = f"{full['line'].capitalize()} gathers from tables that fill a GPU at {format_rate(rate)}"
    if floor >= 0.5:
        return f"{words}; kernel launches take {format_fraction(floor)} of the time."
    return (
        f"{words}, {format_fraction(rate / machine.value('gather_bytes_per_s'))} of the rate for long rows."
    )
