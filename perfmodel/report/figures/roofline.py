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
from perfmodel.engine.row_wise import Configs, Forward
from perfmodel.engine.tables import row_bytes
from perfmodel.model import kernels
from perfmodel.question.groups import LARGEST
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.line_traces import Columns, Drawn, named_dashes, traces
from perfmodel.report.figures.marks import scatter
from perfmodel.report.figures.registry import ROOFLINE
from perfmodel.report.figures.words import hover, safe, sentence, size_words
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.fields import Quantity
from perfmodel.schema.workload import dtype_bytes
from perfmodel.units import counted, format_count, format_fraction, format_rate, format_time

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_BATCHES = (1, 8, 64)
_SIZES = 37
_SMALLEST = 2.0**18
_CEILINGS = (
    ("hbm_bytes_per_s", "memory"),
    ("gather_bytes_per_s", "gather"),
    ("l2_bytes_per_s", "L2"),
)


_SHOWN = Columns("working_set_bytes", "bytes_per_s", "slowest", "fastest")
_DATA = (
    "kind", "batch", "working_set_bytes", "asked_bytes", "time_s", "low_s", "high_s", "bytes_per_s",
    "evidence",
)  # fmt: skip


def roofline(asked: Answer, samples: pd.DataFrame | None = None) -> Block | Missing:
    """Lines of the bytes per second that a gather on one GPU requests, against the bytes of all tables.

    asked    the projection whose tables and batch are drawn, also with 8 and 64 times the batch
    samples  kernels timed on this machine (``Run.kernel_samples``), drawn as points; None: there are none
    Rows read from the L2 count too, so small tables can exceed the memory's rate.
    """
    lines = _lines(asked, _batches(asked))
    points = _points(asked.forward, samples)
    figure = _figure(asked, lines, points)
    rows = [{name: row[name] for name in _DATA} for line in lines for row in line.rows] + _point_rows(points)
    ceilings = [asked.setting.machine.quantity(key).evidence for key, _ in _CEILINGS]
    how = _how(points, [*ceilings, *(Evidence(row["evidence"]) for line in lines for row in line.rows)])
    return ROOFLINE.block(_title(asked, lines[0]), how, figure, _source(asked, points), rows)


def _batches(asked: Answer) -> list[float]:
    batch = float(asked.work.batch[0])
    return [batch * factor for factor in _BATCHES if batch * factor <= LARGEST["batch"]]


def _lines(asked: Answer, batches: list[float]) -> list[Drawn]:
    """A line for each batch: the model's bytes per second over sizes of the tables up to a GPU's memory.

    The tables of ``asked`` are used, with rows scaled. All batches are computed in one call, which works out
    skewed ids of each table size once.
    """
    forward, work = asked.forward, asked.work
    sizes = np.geomspace(_SMALLEST, forward.setting.machine.value("hbm_bytes"), _SIZES)
    each, sizes = np.repeat(batches, sizes.size), np.tile(sizes, len(batches))
    stored = partial(row_bytes, training=False)
    whole = sum(g.count * g.rows * stored(g.dtype, g.dim) for g in work.groups)
    factor = sizes / float(np.asarray(whole).flat[0])
    groups = tuple(replace(g, rows=np.maximum(np.asarray(g.rows).flat[0] * factor, 1.0)) for g in work.groups)
    one, ids = np.ones_like(sizes), np.full_like(sizes, float(work.id_bytes[0]))
    local = Configs(sizes, one, one, each, ids, groups, True)
    timing = forward.cost_locally(local).steps[0].timing
    kinds = [str(Evidence.from_rank(int(rank))) for rank in np.broadcast_to(timing.evidence, sizes.shape)]
    moved = sum(
        _asked_bytes(forward, each * g.count, g.pooling, g.dim, stored(g.dtype, g.dim), ids + g.weight_bytes)
        for g in local.groups
    )
    moved = np.broadcast_to(moved, sizes.shape)
    numbers = {
        "batch": each, "working_set_bytes": sizes, "asked_bytes": moved, "time_s": timing.time_s,
        "low_s": timing.low_s, "high_s": timing.high_s, "bytes_per_s": moved / timing.time_s,
        "slowest": moved / timing.high_s, "fastest": moved / timing.low_s,
    }  # fmt: skip
    rows = [
        {"kind": "model", **dict(zip(numbers, row, strict=True)), "evidence": kind, "main_evidence": kind}
        for kind, *row in zip(kinds, *(column.tolist() for column in numbers.values()), strict=True)
    ]
    return [
        Drawn(
            f"batch {format_count(batch)}", style.colour(at), style.symbol(at),
            tuple(rows[at * _SIZES : (at + 1) * _SIZES]), True, False,
        )
        for at, batch in enumerate(batches)
    ]  # fmt: skip


def _asked_bytes(
    forward: Forward,
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
    bag = np.asarray(dim, float) * forward.constant("pooled_element_bytes") + forward.constant("offset_bytes")
    lookups = np.asarray(bags, float) * np.asarray(pooling, float)
    ids, into = np.asarray(id_bytes, float), np.asarray(bags if written is None else written, float)
    return np.asarray(kernels.gather_bytes(lookups, np.asarray(row, float), ids, into, bag))


def _points(forward: Forward, samples: pd.DataFrame | None) -> pd.DataFrame | None:
    """The measured gathers of ``samples``, with columns working_set, asked (bytes) and rate.

    Limits: no samples, or none of gathers -> None
    """
    if samples is None:
        return None
    rows = samples[(samples["operation"] == "gather_pool") & (samples["flag"] != "throttled")]
    if rows.empty:
        return None
    width = np.array([float(dtype_bytes(name)) for name in rows["dtype"]])
    columns = ("batch", "tables", "pooling", "dim", "rows", "shards", "id_bytes")
    batch, tables, pooling, dim, count, shards, ids = (rows[name].to_numpy(float) for name in columns)
    bags = batch * tables
    moved = _asked_bytes(forward, bags, pooling, dim, dim * width, ids, bags * shards)
    working_set = tables * count / shards * dim * width
    return rows.assign(working_set=working_set, asked=moved, rate=moved / rows["time_s"].to_numpy(float))


def _title(asked: Answer, line: Drawn) -> str:
    machine = asked.setting.machine
    last, ceiling = line.rows[-1], machine.value("gather_bytes_per_s")
    rate, floor = last["bytes_per_s"], machine.value("launch_floor_s") / last["time_s"]
    said = f"{line.label} gathers from tables that fill a GPU at {format_rate(rate)}"
    if floor >= 0.5:
        return sentence(f"{said}; kernel launches take {format_fraction(floor)} of the time")
    return sentence(f"{said}, {format_fraction(rate / ceiling)} of the rate for long rows")


def _how(points: pd.DataFrame | None, kinds: Sequence[Evidence]) -> str:
    marks = (
        "marks are gathers timed on this machine"
        if points is not None
        else "no gather was timed on this machine"
    )
    return (
        "Bytes of rows, ids and bags per second against the bytes of all tables on one GPU. Lines are the "
        f"kernel model with its 95 % band; {marks}. Ceilings: the datasheet's memory rate, the rate of a "
        "gather of long rows, and the rate of the L2 cache. In the shaded part, the tables fit in L2. "
        f"Line style by evidence: {named_dashes(kinds)}."
    )


def _source(asked: Answer, points: pd.DataFrame | None) -> str:
    machine = asked.setting.machine
    parts = [f"{key} {machine.quantity(key)} ({machine.quantity(key).evidence})" for key, _ in _CEILINGS]
    timed = "" if points is None else f" {counted(len(points), 'gather')} timed on it."
    return f"Machine {machine.name}: {', '.join(parts)}.{timed}"


def _figure(asked: Answer, lines: Sequence[Drawn], points: pd.DataFrame | None) -> Any:
    machine = asked.setting.machine
    ceilings = [(label, machine.quantity(key)) for key, label in _CEILINGS]
    low = min(min(line.values("slowest")) for line in lines)
    high = max([q.value for _, q in ceilings] + [max(line.values("fastest")) for line in lines])
    sizes = lines[0].values("working_set_bytes")
    left, right = sizes[0], sizes[-1]
    marks = []
    if points is not None:
        marks = [_marks(points, len(lines))]
        low, high = min(low, float(points["rate"].min())), max(high, float(points["rate"].max()))
        left = min(left, float(points["working_set"].min()) / 1.5)
    levels = [_ceiling(*each, left, right) for each in sorted(ceilings, key=lambda pair: pair[1].value)]
    words = [_ceiling_words(at, level, lines) for at, level in enumerate(levels)]
    l2_bytes = machine.value("l2_bytes")
    shade = {
        "x0": left,
        "x1": l2_bytes,
        "y0": 0,
        "y1": 1,
        "yref": "y domain",
        "type": "rect",
        "layer": "below",
    }
    shade |= {"fillcolor": style.faded(style.PALETTE[4], 0.10), "line": {"width": 0}}
    return style.new_figure(
        [trace for line in lines for trace in traces(line, _SHOWN, _hover)] + marks + levels,
        height=480,
        xaxis=style.bytes_axis(left, right, "bytes of all tables on one GPU"),
        yaxis=style.rate_axis(low / 1.5, high * 1.6, "bytes per second"),
        shapes=[shade] if l2_bytes > left else [],
        annotations=words + ([_cache_words(l2_bytes)] if l2_bytes > left else []),
    )


def _ceiling(label: str, quantity: Quantity, left: float, right: float) -> dict[str, Any]:
    """A plotly trace: a horizontal line at a machine's rate, from ``left`` to ``right``."""
    text = f"{label} {format_rate(quantity.value)} ({quantity.evidence})"
    line = {"color": style.RULE, "width": 1, "dash": style.DASHES[quantity.evidence]}
    words = hover([text, f"source: {safe(quantity.source)}"])
    return scatter(
        [left, right], [quantity.value] * 2, words, label, mode="lines", line=line, showlegend=False
    )


def _ceiling_words(at: int, level: Mapping[str, Any], lines: Sequence[Drawn]) -> dict[str, Any]:
    """A plotly annotation: the label of ceiling number ``at``, below the lowest and above the others.

    It stands on the right, or on the left if the model's lines come close on the right.
    """
    value = level["y"][0]
    gaps = [min(_gap(line, value, part) for line in lines) for part in _ENDS]
    crowded = gaps[1] < _CLOSE and gaps[0] > gaps[1]
    return {
        "x": math.log10(level["x"][0 if crowded else 1]), "y": math.log10(value), "showarrow": False,
        "text": level["hovertext"].partition("<br>")[0], "xanchor": "left" if crowded else "right",
        "yanchor": "bottom" if at else "top", "font": {"size": 11},
    }  # fmt: skip


_ENDS = (slice(None, _SIZES // 4), slice(-_SIZES // 4, None))  # sizes of tables at which a label stands
_CLOSE = 0.2  # natural logarithm of a ratio: less than the height of a label


def _gap(line: Drawn, value: float, part: slice) -> float:
    """The least difference of logarithms between ``value`` and the line's rates at its points ``part``."""
    return min(abs(math.log(rate / value)) for rate in line.values("bytes_per_s")[part])


def _cache_words(l2_bytes: float) -> dict[str, Any]:
    return {
        "x": math.log10(l2_bytes), "y": 0, "yref": "y domain", "xanchor": "left", "yanchor": "bottom",
        "text": f"← fit in L2, {size_words(l2_bytes)}", "showarrow": False,
        "font": {"size": 11},
    }  # fmt: skip


def _hover(row: Mapping[str, Any]) -> list[str]:
    low, high = (format_time(row[name]) for name in ("low_s", "high_s"))
    return [
        f"tables of {size_words(row['working_set_bytes'])}",
        f"{format_rate(row['bytes_per_s'])}, {format_time(row['time_s'])}",
        f"band {low} – {high}",
    ]


def _marks(points: pd.DataFrame, index: int) -> dict[str, Any]:
    words = []
    for row in points.to_dict(orient="records"):
        shape = f"batch {row['batch']}, {row['tables']} tables, pooling {row['pooling']}, dim {row['dim']}"
        ids = f"ids {safe(str(row['distribution']))}, {safe(str(row['implementation']))}, {row['dtype']}"
        speed = f"{format_rate(float(row['rate']))}, {format_time(float(row['time_s']))}"
        words.append(hover([speed, shape, ids, f"measured, {row['flag']}"]))
    marker = {"color": style.colour(index), "symbol": style.symbol(index), "size": 7}
    return scatter(points["working_set"].tolist(), points["rate"].tolist(), words, "timed here", marker)


def _point_rows(points: pd.DataFrame | None) -> list[dict[str, Any]]:
    if points is None:
        return []
    return [
        {
            "kind": "timed",
            "batch": float(row["batch"]),
            "working_set_bytes": float(row["working_set"]),
            "asked_bytes": float(row["asked"]),
            "time_s": float(row["time_s"]),
            "low_s": float(row["low_s"] or row["time_s"]),
            "high_s": float(row["high_s"] or row["time_s"]),
            "bytes_per_s": float(row["rate"]),
            "evidence": str(Evidence.MEASURED),
        }
        for row in points.to_dict(orient="records")
    ]
