"""Kernel roofline: bytes per second of gather and pool against the working set, with the ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.answer import Answer
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.row_wise import Configs, cost_locally
from perfmodel.engine.tables import row_bytes
from perfmodel.model import kernels
from perfmodel.question.groups import LARGEST
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.lines import dash_words, line_traces
from perfmodel.report.figures.marks import scatter
from perfmodel.report.figures.registry import ROOFLINE
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import hover, safe, sentence, size_words
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.run_files import read_run
from perfmodel.schema.workload import element_bytes
from perfmodel.units import counted, format_count, format_fraction, format_rate, format_time
from perfmodel.validate.points import run_of

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

_BATCHES = (1, 8, 64)
_SIZES = 37
_SMALLEST = 2.0**18
_CEILINGS = (
    ("hbm_bytes_per_s", "memory"),
    ("gather_bytes_per_s", "gather"),
    ("l2_bytes_per_s", "L2"),
)
_DATA = (
    "kind", "batch", "working_set_bytes", "requested_bytes", "time_s", "low_s", "high_s", "bytes_per_s",
    "evidence",
)  # fmt: skip

_TIMED = ("batch", "tables", "pooling", "dim", "distribution", "implementation", "dtype")


def roofline(subject: Subject) -> Block:
    """Lines of the bytes per second that a gather on one GPU requests, against the bytes of all tables.

    The tables and the batch of the answer, also 8 and 64 times the batch; points are gathers that the run of
    the answer's calibration has timed. Rows read from the L2 count too, so small tables can exceed the
    memory's rate.
    """
    answer = subject.answer
    calibration = answer.setting.calibration
    folder = run_of(calibration) if calibration is not None else None
    lines = _list_lines(answer)
    points = list_timed(answer.basis, read_run(folder).kernel_samples()) if folder is not None else []
    machine = answer.setting.machine
    parts = [f"{key} {machine.quantity(key)} ({machine.quantity(key).evidence})" for key, _ in _CEILINGS]
    timed = f" {counted(len(points), 'gather')} timed on it." if points else ""
    rows = [{name: row[name] for name in _DATA} for line in (*lines, points) for row in line]
    marks = "marks are gathers timed on this machine" if points else "no gather was timed on this machine"
    how = (
        "Bytes of rows, ids and bags per second against the bytes of all tables on one GPU. Lines are the "
        f"kernel model with its 95 % band; {marks}. Horizontal lines are rates of the machine: of "
        f"its memory, of a gather of long rows, and of its L2; {dash_words(row['evidence'] for row in rows)}."
    )
    source = f"Machine {machine.name}: {', '.join(parts)}.{timed}"
    return ROOFLINE.block(_title(answer, lines[0]), how, _draw(answer, lines, points), source, rows)


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
    stored = partial(row_bytes, training=False)
    whole = sum(g.count * g.rows * stored(g.dtype, g.dim) for g in work.groups)
    factor = sizes / float(np.asarray(whole).flat[0])
    groups = tuple(replace(g, rows=np.maximum(np.asarray(g.rows).flat[0] * factor, 1.0)) for g in work.groups)
    ones, ids = np.ones_like(sizes), np.full_like(sizes, float(work.id_bytes[0]))
    local = Configs(sizes, ones, ones, samples, ids, groups, True)
    timing = cost_locally(basis, local).steps[0].timing
    kinds = [str(Evidence.from_rank(int(rank))) for rank in np.broadcast_to(timing.evidence, sizes.shape)]
    moved = sum(
        _count_bytes(basis, samples * g.count, g.pooling, g.dim, stored(g.dtype, g.dim), ids + g.weight_bytes)
        for g in local.groups
    )
    moved = np.broadcast_to(moved, sizes.shape)
    numbers = {
        "batch": samples, "working_set_bytes": sizes, "requested_bytes": moved, "time_s": timing.time_s,
        "low_s": timing.low_s, "high_s": timing.high_s, "bytes_per_s": moved / timing.time_s,
        "slowest": moved / timing.high_s, "fastest": moved / timing.low_s,
    }  # fmt: skip
    columns = (column.tolist() for column in numbers.values())
    rows = [
        {
            "line": f"batch {format_count(values[0])}", "kind": "model", "evidence": kind,
            "main_evidence": kind, **dict(zip(numbers, values, strict=True)),
        }
        for kind, *values in zip(kinds, *columns, strict=True)
    ]  # fmt: skip
    return [rows[number : number + _SIZES] for number in range(0, len(rows), _SIZES)]


def _count_bytes(
    basis: PassBasis,
    bags: npt.ArrayLike,
    pooling: npt.ArrayLike,
    dim: npt.ArrayLike,
    row: npt.ArrayLike,
    id_bytes: npt.ArrayLike,
    written: npt.ArrayLike | None = None,
) -> Floats:
    """Bytes that a gather requests (``kernels.gather_bytes``): rows, ids, pooled bags and offsets; no caches.

    row      bytes of a row;  id_bytes  bytes of an id with its weight
    written  bags that are written; None: ``bags``
    """
    bag = np.asarray(dim, float) * basis.constant("pooled_element_bytes") + basis.constant("offset_bytes")
    lookups = np.asarray(bags, float) * np.asarray(pooling, float)
    ids, into = np.asarray(id_bytes, float), np.asarray(bags if written is None else written, float)
    return np.asarray(kernels.gather_bytes(lookups, np.asarray(row, float), ids, into, bag))


def list_timed(basis: PassBasis, samples: pd.DataFrame) -> list[dict[str, Any]]:
    """The gathers that were timed (``Run.kernel_samples``), as rows of the figure's data with a label."""
    rows = samples[(samples["operation"] == "gather_pool") & (samples["flag"] != "throttled")]
    if rows.empty:
        return []
    width = np.array([float(element_bytes(name)) for name in rows["dtype"]])
    columns = ("batch", "tables", "pooling", "dim", "rows", "shards", "id_bytes")
    batch, tables, pooling, dim, count, shards, ids = (rows[name].to_numpy(float) for name in columns)
    bags = batch * tables
    moved = _count_bytes(basis, bags, pooling, dim, dim * width, ids, bags * shards)
    times = rows.assign(working_set_bytes=tables * count / shards * dim * width, requested_bytes=moved)
    return [
        {
            "kind": "timed",
            **{
                name: float(row[name]) for name in ("batch", "working_set_bytes", "requested_bytes", "time_s")
            },
            "low_s": float(row["low_s"] or row["time_s"]),
            "high_s": float(row["high_s"] or row["time_s"]),
            "bytes_per_s": float(row["requested_bytes"] / row["time_s"]),
            "evidence": str(Evidence.MEASURED),
            "label": ", ".join(f"{name} {row[name]}" for name in _TIMED),
        }
        for row in times.to_dict(orient="records")
    ]


def _title(answer: Answer, line: Sequence[Row]) -> str:
    machine, last = answer.setting.machine, line[-1]
    rate, floor = last["bytes_per_s"], machine.value("launch_floor_s") / last["time_s"]
    words = f"{last['line']} gathers from tables that fill a GPU at {format_rate(rate)}"
    if floor >= 0.5:
        return sentence(f"{words}; kernel launches take {format_fraction(floor)} of the time")
    share = format_fraction(rate / machine.value("gather_bytes_per_s"))
    return sentence(f"{words}, {share} of the rate for long rows")


def _draw(answer: Answer, lines: Sequence[Sequence[Row]], points: Sequence[Row]) -> Any:
    machine = answer.setting.machine
    every = [row for line in lines for row in line]
    rates = [machine.value(key) for key, _ in _CEILINGS]
    low = min([row["slowest"] for row in every] + [row["bytes_per_s"] for row in points])
    high = max([row["fastest"] for row in every] + [row["bytes_per_s"] for row in points] + rates)
    sizes = [row["working_set_bytes"] for row in (*every, *points)]
    left, right, l2_bytes = min(sizes), max(sizes), machine.value("l2_bytes")
    traces = [
        trace
        for number, line in enumerate(lines)
        for trace in line_traces(
            line, ("working_set_bytes", "bytes_per_s", "slowest", "fastest"), number, _hover
        )
    ]
    if points:
        words = [hover([*_hover(row), safe(row["label"])]) for row in points]
        marker = {"color": style.colour(len(lines)), "symbol": style.symbol(len(lines)), "size": 7}
        x, y = ([row[name] for row in points] for name in ("working_set_bytes", "bytes_per_s"))
        traces.append(scatter(x, y, words, "timed here", marker))
    for number, (key, named) in enumerate(_CEILINGS, len(lines) + 1):
        quantity = machine.quantity(key)
        text = hover([f"{named} {format_rate(quantity.value)} ({quantity.evidence})", safe(quantity.source)])
        line = {"color": style.colour(number), "width": 1.5, "dash": style.DASHES[quantity.evidence]}
        name = f"{named} {format_rate(quantity.value)}"
        traces.append(scatter([left, right], [quantity.value] * 2, text, name, mode="lines", line=line))
    shade = {
        "type": "rect", "x0": left, "x1": l2_bytes, "y0": 0, "y1": 1, "yref": "y domain", "layer": "below",
        "fillcolor": style.faded(style.PALETTE[4], 0.10), "line": {"width": 0},
    }  # fmt: skip
    label: dict[str, Any] = {
        "x": math.log10(l2_bytes), "y": 0, "yref": "y domain", "xanchor": "left", "yanchor": "bottom",
        "text": f"← fit in L2, {size_words(l2_bytes)}", "showarrow": False, "font": {"size": 11},
    }  # fmt: skip
    return style.new_figure(
        traces,
        height=460,
        xaxis=style.bytes_axis(left, right, "bytes of all tables on one GPU"),
        yaxis=style.rate_axis(low / 1.5, high * 1.6, "bytes per second"),
        shapes=[shade] if l2_bytes > left else [],
        annotations=[label] if l2_bytes > left else [],
    )


def _hover(row: Row) -> list[str]:
    low, high = (format_time(row[name]) for name in ("low_s", "high_s"))
    return [
        f"tables of {size_words(row['working_set_bytes'])}",
        f"{format_rate(row['bytes_per_s'])}, {format_time(row['time_s'])}",
        f"band {low} – {high}",
    ]
