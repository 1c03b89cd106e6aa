"""What each GPU of a plan does and holds: its own time by step, and its memory by sharding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import DATA_PARALLEL, SHARDINGS
from perfmodel.plan.outcome import Planned
from perfmodel.report.figures.chart import (
    PALETTE,
    Axis,
    Block,
    Row,
    Trace,
    draw_rule,
    new_figure,
    write_hover,
)
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_time

HOT = "hot rows"
BUFFERS = "exchange buffers"
COLOURS = dict(zip((*SHARDINGS, HOT, BUFFERS), (*PALETTE[:7], "#c2484d", "#7fb3dd", PALETTE[7]), strict=True))
MOST_COLUMNS = 64
"""Most GPUs that are drawn."""
_NAMES = 4  # names of tables in the hover text of a block
_WORK = Axis("time_s", "own time of a GPU", "s")
_MEMORY = Axis("held_bytes", "memory of a GPU", "B")


def list_own_times(planned: Planned) -> dict[str, NDArray[np.float64]]:
    """{step: times [G]}: entry g is what the step would take if every GPU had as many bytes as GPU g [s].

    For the rest of a step, GPU g waits for busier GPUs.
    Source: the curves of the steps (``PassTimes.time_step``); the hand-over is the same on every GPU
    Limits: equal GPUs -> the time of the step on all
    """
    e = planned.evaluator
    loads = planned.costed.loads
    times = {}
    for row in planned.costed.cost.rows:
        times[row.label] = np.full(e.gpus, row.time_s)
        step = e.steps_by_name.get(row.name)
        if step is not None:
            moves = np.any([loads[resource] for resource in step.resources], axis=0)
            alone_s = e.times.time_step(step, loads.T).time_s
            times[row.label] = np.minimum(np.where(moves | step.always, alone_s, 0.0), row.time_s)
    return times


def list_held(planned: Planned, rank: int) -> Iterator[tuple[str, float, list[int]]]:
    """(sharding, bytes of rows and optimizer state, tables) on a GPU; copies first, exchange buffers last."""
    plan = planned.plan
    e = planned.evaluator
    copied = np.array([placement.ranks.size == 0 for placement in plan.placements])
    for name, rows in ((DATA_PARALLEL, e.tables.rows * copied), (HOT, plan.hot_rows)):
        tables = np.flatnonzero(rows)
        held = e.memories.count_copies(tables, rows[tables])
        yield name, float(np.sum(held)), tables.tolist()
    table_of, rank_of = plan.shards
    tables = table_of[rank_of == rank]
    held = e.memories.count_shard(tables, *(column[tables] for column in plan.schemes[1:]))  # all but kinds
    of_table = {t: group.sharding for group in planned.groups for t in group.tables}
    names = np.array([of_table[t] for t in tables.tolist()], dtype=str)
    for name in SHARDINGS:
        yield name, float(np.sum(held, axis=0)[names == name].sum()), tables[names == name].tolist()
    yield BUFFERS, float(planned.costed.memory.buffer_bytes[rank]), []


def draw_placements(planned: Planned) -> Block:
    """Columns of GPUs: the own time of each by step, and below it its memory by sharding.

    Limits: more GPUs than ``MOST_COLUMNS`` -> some of them, evenly from the busiest to the least busy
    """
    e = planned.evaluator
    time_s = planned.costed.time_s
    own_s = list_own_times(planned)
    busy_s = np.sum([*own_s.values()], axis=0)
    ranks = np.arange(e.gpus)
    if e.gpus > MOST_COLUMNS:
        order = np.argsort(-busy_s, kind="stable")
        ranks = order[np.unique(np.linspace(0, e.gpus - 1, MOST_COLUMNS).astype(int))]
    works: list[Row] = []
    memories: list[Row] = []
    for rank in ranks.tolist():
        works += [{"rank": rank, "of": step, "time_s": float(times[rank])} for step, times in own_s.items()]
        for name, size, tables in list_held(planned, rank):
            listed = [e.tables.names[t] for t in tables[:_NAMES]]
            listed += [f"{len(tables[_NAMES:])} more"] if tables[_NAMES:] else []
            row = {"rank": rank, "of": name, "held_bytes": size, "tables": ", ".join(listed)}
            memories += [row] if size else []
    step = f"the {'training step' if planned.training else 'batch'}: {format_time(time_s)}"
    linear = {"tickformat": "~s", "rangemode": "tozero"}
    figure = new_figure(
        [*draw_columns("y", _WORK, works), *draw_columns("y2", _MEMORY, memories)],
        height=700,
        barmode="stack",
        bargap=0.1,
        shapes=[draw_rule("y", time_s, step)],
        meta={"min_width": min(1100, max(520, 17 * len(ranks)))},
        grid={"rows": 2, "columns": 1, "pattern": "coupled", "ygap": 0.25},
        legend2={"y": 0.44, "yanchor": "bottom", "x": 0, "orientation": "h"},
        xaxis={"title": {"text": "rank"}, "type": "category", "range": [-0.5, max(len(ranks), 4) - 0.5]},
        yaxis={"title": {"text": _WORK.title}, **linear, "ticksuffix": "s", "range": [0, 1.1 * time_s]},
        yaxis2={"title": {"text": _MEMORY.title}, **linear, "ticksuffix": "B"},
    )
    how, source = write_words(planned, len(ranks))
    return Block("placements", write_title(planned, busy_s), how, figure, source, [*works, *memories])


def draw_columns(pane: str, axis: Axis, rows: Sequence[Row]) -> Iterator[Trace]:
    """Plotly's bars of a pane, ``y`` or ``y2``: a trace for each step, or for each sharding."""
    for place, name in enumerate(dict.fromkeys(row["of"] for row in rows)):
        chosen = [row for row in rows if row["of"] == name]
        texts = [(f"{name} on rank {x['rank']}", axis.describe(x), x.get("tables", "")) for x in chosen]
        colour = COLOURS[name] if axis is _MEMORY else PALETTE[place % len(PALETTE)]
        yield {
            "type": "bar", "name": name, "yaxis": pane, "legend": pane.replace("y", "legend"),
            "x": [str(x["rank"]) for x in chosen], "y": [x[axis.column] for x in chosen],
            "hovertext": [write_hover({}, *text) for text in texts], "hoverinfo": "text",
            "marker": {"color": colour},
        }  # fmt: skip


def write_words(planned: Planned, columns: int) -> tuple[str, str]:
    """(what so many columns are, and the memory of the fullest GPU; the source of the times)."""
    e = planned.evaluator
    drawn = f" {columns} of {format_count(e.gpus)}, the busiest on the left." if columns < e.gpus else ""
    fullest = format_bytes(planned.costed.fullest_bytes, binary=False)
    room = format_bytes(planned.result.limit_bytes, binary=False)
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations)) or "none"
    ids = ", ".join(dict.fromkeys(law.name for law in e.tables.ids))
    return (
        f"Each column is a GPU.{drawn} Above, its own time in each step, which waits for the busiest GPU. "
        f"Below, what it holds: {fullest} on the fullest, of the {room} that may be used.",
        f"Modelled: machine {e.setting.machine.name}, calibration {names}, ids {ids}, "
        f"{format_count(e.batch)} samples per GPU; weakest evidence: {planned.costed.cost.evidence}.",
    )


def write_title(planned: Planned, busy_s: Sequence[float] | NDArray[np.float64]) -> str:
    """The title: how many tables have which sharding, and how busy GPUs are. busy_s  own times of GPUs [s]"""
    counts = Counter[str]()
    hot = 0
    for group in planned.groups:
        counts[group.sharding] += len(group.tables)
        hot += len(group.tables) * bool(group.scheme.hot_rows)
    parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    parts += f", {hot} of them with hottest rows on every GPU" if hot else ""
    mean = format_fraction(float(np.mean(busy_s)) / planned.costed.time_s)
    where = f"{counted(len(planned.evaluator.tables), 'table')} on {counted(planned.evaluator.gpus, 'GPU')}"
    return f"{where}: {parts}; the mean GPU is busy for {mean} of the time."
