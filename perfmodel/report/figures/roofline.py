"""Kernel roofline: bytes per second of gather and pool against the working set, with the ceilings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.model import kernels
from perfmodel.project import Projection
from perfmodel.project.costs import Forward
from perfmodel.project.inputs import Configs
from perfmodel.question.groups import LARGEST
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.line_traces import named_dashes
from perfmodel.report.figures.words import hover, safe, sentence
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Quantity
from perfmodel.schema.workload import dtype_bytes
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_rate, format_time

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

NAME = "roofline"
_BATCHES = (1, 8, 64)
_SIZES = 37
_SMALLEST = 2.0**18
_CEILINGS = (
    ("hbm_bytes_per_s", "memory"),
    ("gather_bytes_per_s", "gather"),
    ("l2_bytes_per_s", "L2"),
)


@dataclass(frozen=True)
class _Line:
    """One batch over many working sets; equal shapes."""

    batch: float
    index: int
    working_set: Floats  # bytes of all tables on the GPU
    asked: Floats  # bytes of rows, ids, bags and offsets
    time_s: Floats
    low_s: Floats
    high_s: Floats
    evidence: list[Evidence]

    @property
    def label(self) -> str:
        """``batch 1 024``."""
        return f"batch {format_count(self.batch)}"

    @property
    def rate(self) -> Floats:
        """Bytes asked for per second."""
        return self.asked / self.time_s


def roofline(asked: Projection, samples: pd.DataFrame | None = None) -> Block | Missing:
    """Bytes that a gather asks for, per second, on one GPU: by the kernel model, and where it was timed.

    asked    the projection whose tables and batch are drawn, with 8 and 64 times the batch beside it
    samples  kernels timed on this machine (``Run.kernel_samples``)
    The working set is the bytes of all tables; a row that is found in the L2 counts like any other, so small
    working sets can pass the memory's rate.
    Limits: a memory of its own (--local-memory) -> Missing, its rate is only stated
    """
    if asked.forward.memory is not None:
        return Missing(
            NAME, "with --local-memory the rate does not depend on the size of the tables: leave it out."
        )
    lines = _lines(asked, _batches(asked))
    points = _points(asked.forward, samples)
    figure = _figure(asked, lines, points)
    rows = [row for line in lines for row in _rows(line)] + _point_rows(points)
    ceilings = [asked.setting.machine.quantity(key).evidence for key, _ in _CEILINGS]
    how = _how(points, [*ceilings, *(kind for line in lines for kind in line.evidence)])
    return Block(NAME, _title(asked, lines[0]), how, figure, _source(asked, points), tuple(rows))


def _batches(asked: Projection) -> list[float]:
    batch = float(asked.work.batch[0])
    return [batch * factor for factor in _BATCHES if batch * factor <= LARGEST["batch"]]


def _lines(asked: Projection, batches: list[float]) -> list[_Line]:
    """The asked tables with their rows scaled so that the working set runs over all sizes of one GPU.

    All batches at once: what skewed ids ask of a table of so many rows is worked out for them together.
    """
    forward, work = asked.forward, asked.work
    sizes = np.geomspace(_SMALLEST, forward.setting.machine.value("hbm_bytes"), _SIZES)
    each, sizes = np.repeat(batches, sizes.size), np.tile(sizes, len(batches))
    whole = sum(g.count * g.rows * g.dim * g.element_bytes for g in work.groups)
    factor = sizes / float(np.asarray(whole).flat[0])
    groups = tuple(replace(g, rows=np.maximum(np.asarray(g.rows).flat[0] * factor, 1.0)) for g in work.groups)
    one, ids = np.ones_like(sizes), np.full_like(sizes, float(work.id_bytes[0]))
    local = Configs(sizes, one, one, each, ids, groups, True)
    timing = forward.baseline(forward.traffic(local))
    evidence = [Evidence.from_rank(int(rank)) for rank in np.broadcast_to(timing.evidence, sizes.shape)]
    moved = sum(
        _asked_bytes(forward, each * g.count, g.pooling, g.dim, g.element_bytes, ids) for g in local.groups
    )
    moved, places = np.broadcast_to(moved, sizes.shape), np.arange(sizes.size).reshape(len(batches), -1)
    return [
        _Line(
            batch, index, sizes[at], moved[at], timing.time_s[at], timing.low_s[at], timing.high_s[at],
            [evidence[place] for place in at],
        )
        for index, (batch, at) in enumerate(zip(batches, places, strict=True))
    ]  # fmt: skip


def _asked_bytes(
    forward: Forward,
    bags: npt.ArrayLike,
    pooling: npt.ArrayLike,
    dim: npt.ArrayLike,
    width: npt.ArrayLike,
    id_bytes: npt.ArrayLike,
    written: npt.ArrayLike | None = None,
) -> Floats:
    """Bytes of the rows, ids, bags and offsets themselves: no penalty, no cache: ``kernels.gather_bytes``."""
    bag = np.asarray(dim, float) * forward.constant("pooled_element_bytes") + forward.constant("offset_bytes")
    row = np.asarray(dim, float) * np.asarray(width, float)
    lookups = np.asarray(bags, float) * np.asarray(pooling, float)
    ids, into = np.asarray(id_bytes, float), np.asarray(bags if written is None else written, float)
    return np.asarray(kernels.gather_bytes(lookups, row, ids, into, bag))


def _points(forward: Forward, samples: pd.DataFrame | None) -> pd.DataFrame | None:
    """Gathers that were timed: working_set, asked bytes and rate beside the columns of the samples."""
    if samples is None:
        return None
    rows = samples[(samples["operation"] == "gather_pool") & (samples["flag"] != "throttled")]
    if rows.empty:
        return None
    width = np.array([float(dtype_bytes(name)) for name in rows["dtype"]])
    columns = ("batch", "tables", "pooling", "dim", "rows", "shards", "id_bytes")
    batch, tables, pooling, dim, count, shards, ids = (rows[name].to_numpy(float) for name in columns)
    bags = batch * tables
    moved = _asked_bytes(forward, bags, pooling, dim, width, ids, bags * shards)
    working_set = tables * count / shards * dim * width
    return rows.assign(working_set=working_set, asked=moved, rate=moved / rows["time_s"].to_numpy(float))


def _title(asked: Projection, line: _Line) -> str:
    machine = asked.setting.machine
    rate, ceiling = float(line.rate[-1]), machine.value("gather_bytes_per_s")
    floor = machine.value("launch_floor_s") / float(line.time_s[-1])
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


def _source(asked: Projection, points: pd.DataFrame | None) -> str:
    machine = asked.setting.machine
    parts = [f"{key} {machine.quantity(key)} ({machine.quantity(key).evidence})" for key, _ in _CEILINGS]
    timed = "" if points is None else f" {counted(len(points), 'gather')} timed on it."
    return f"Machine {machine.name}: {', '.join(parts)}.{timed}"


def _figure(asked: Projection, lines: Sequence[_Line], points: pd.DataFrame | None) -> Any:
    figure = style.new_figure(height=480)
    for line in lines:
        for trace in _traces(line):
            figure.add_trace(trace)
    if points is not None:
        figure.add_trace(_marks(points, len(lines)))
    machine = asked.setting.machine
    ceilings = [(label, machine.quantity(key)) for key, label in _CEILINGS]
    low = min(float((line.asked / line.high_s).min()) for line in lines)
    high = max([q.value for _, q in ceilings] + [float((line.asked / line.low_s).max()) for line in lines])
    left, right = float(lines[0].working_set[0]), float(lines[0].working_set[-1])
    if points is not None:
        low, high = min(low, float(points["rate"].min())), max(high, float(points["rate"].max()))
        left = min(left, float(points["working_set"].min()) / 1.5)
    figure.update_xaxes(style.bytes_axis(left, right, "bytes of all tables on one GPU"))
    figure.update_yaxes(style.rate_axis(low / 1.5, high * 1.6, "bytes per second"))
    _ceilings(figure, ceilings, lines, left, right)
    _cache(figure, machine.value("l2_bytes"), left)
    return figure


def _ceilings(
    figure: Any, ceilings: Sequence[tuple[str, Quantity]], lines: Sequence[_Line], left: float, right: float
) -> None:
    """Horizontal lines, dashed by evidence, each with its name; that of the lowest is below its line.

    A name stands on the right, or on the left where the lines of the model come close on the right.
    """
    import plotly.graph_objects as go

    ordered = sorted(ceilings, key=lambda pair: pair[1].value)
    for index, (label, quantity) in enumerate(ordered):
        text = f"{label} {format_rate(quantity.value)} ({quantity.evidence})"
        figure.add_trace(
            go.Scatter(
                x=[left, right], y=[quantity.value] * 2, mode="lines", name=label, showlegend=False,
                line={"color": style.RULE, "width": 1, "dash": style.DASHES[quantity.evidence]},
                hovertext=hover([text, f"source: {safe(quantity.source)}"]), hoverinfo="text",
            )
        )  # fmt: skip
        below = index == 0
        gaps = [min(_gap(line, quantity.value, part) for line in lines) for part in _ENDS]
        crowded = gaps[1] < _CLOSE and gaps[0] > gaps[1]
        figure.add_annotation(
            x=np.log10(left if crowded else right), y=np.log10(quantity.value), showarrow=False, text=text,
            xanchor="left" if crowded else "right", yanchor="top" if below else "bottom", font={"size": 11},
        )  # fmt: skip


_ENDS = (slice(None, _SIZES // 4), slice(-_SIZES // 4, None))  # sizes of tables under a name
_CLOSE = 0.2  # natural logarithm of a ratio: less than the height of a name


def _gap(line: _Line, value: float, part: slice) -> float:
    """How far a line is from a value there, as a logarithm."""
    return float(np.abs(np.log(line.rate[part] / value)).min())


def _cache(figure: Any, l2_bytes: float, left: float) -> None:
    if l2_bytes <= left:
        return
    shade = style.faded(style.PALETTE[4], 0.10)
    figure.add_vrect(x0=left, x1=l2_bytes, fillcolor=shade, line_width=0, layer="below")
    figure.add_annotation(
        x=np.log10(l2_bytes), y=0, yref="y domain", xanchor="left", yanchor="bottom", showarrow=False,
        text=f"← fit in L2, {format_bytes(l2_bytes, binary=False)}", font={"size": 11},
    )  # fmt: skip


def _traces(line: _Line) -> Iterator[Any]:
    """Ribbon, then the line in parts of one evidence each."""
    import plotly.graph_objects as go

    colour, x, y = style.colour(line.index), line.working_set, line.rate
    same = {"name": line.label, "legendgroup": line.label}
    high, low = line.asked / line.low_s, line.asked / line.high_s
    yield go.Scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="lines", line={"width": 0},
        fill="toself", fillcolor=style.faded(colour, 0.12), hoverinfo="skip", showlegend=False, **same,
    )  # fmt: skip
    words = [_line_text(line, at) for at in range(x.size)]
    first = True
    for kind, members in groupby(range(x.size), key=lambda at: line.evidence[at]):
        span = list(members)
        part = slice(max(span[0] - 1, 0), span[-1] + 1)
        yield go.Scatter(
            x=x[part], y=y[part], mode="lines", hovertext=words[part], hoverinfo="text",
            line={"color": colour, "width": 2.5, "dash": style.DASHES[kind]}, showlegend=first, **same,
        )  # fmt: skip
        first = False


def _line_text(line: _Line, at: int) -> str:
    low, high = line.low_s[at], line.high_s[at]
    return hover(
        [
            f"{line.label}, tables of {format_bytes(float(line.working_set[at]), binary=False)}",
            f"{format_rate(float(line.rate[at]))}, {format_time(float(line.time_s[at]))}",
            f"band {format_time(float(low))} – {format_time(float(high))}",
            f"evidence: {line.evidence[at]}",
        ]
    )


def _marks(points: pd.DataFrame, index: int) -> Any:
    import plotly.graph_objects as go

    words = []
    for row in points.to_dict(orient="records"):
        shape = f"batch {row['batch']}, {row['tables']} tables, pooling {row['pooling']}, dim {row['dim']}"
        ids = f"ids {safe(str(row['distribution']))}, {safe(str(row['implementation']))}, {row['dtype']}"
        speed = f"{format_rate(float(row['rate']))}, {format_time(float(row['time_s']))}"
        words.append(hover([speed, shape, ids, f"measured, {row['flag']}"]))
    marker = {"color": style.colour(index), "symbol": style.symbol(index), "size": 7}
    return go.Scatter(
        x=points["working_set"].tolist(), y=points["rate"].tolist(), mode="markers", marker=marker,
        name="timed here", hovertext=words, hoverinfo="text",
    )  # fmt: skip


def _rows(line: _Line) -> Iterator[dict[str, Any]]:
    for at in range(line.working_set.size):
        yield {
            "kind": "model",
            "batch": line.batch,
            "working_set_bytes": float(line.working_set[at]),
            "asked_bytes": float(line.asked[at]),
            "time_s": float(line.time_s[at]),
            "low_s": float(line.low_s[at]),
            "high_s": float(line.high_s[at]),
            "bytes_per_s": float(line.rate[at]),
            "evidence": str(line.evidence[at]),
        }


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
