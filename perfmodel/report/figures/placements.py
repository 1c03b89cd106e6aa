"""Figure of what each GPU holds: GPUs as columns, shards as blocks, by bytes and by time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.schemes import DATA_PARALLEL, IN_3D
from perfmodel.model import exchanges as ex
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.chart import escape_text, format_size, join_lines
from perfmodel.report.figures.gpu_columns import (
    HOT,
    ORDER,
    OWN,
    GpuColumn,
    Shown,
    bytes_unit,
    colour_of,
    levels,
    source,
    time_unit,
)
from perfmodel.units import counted, format_count, format_time

Array = NDArray[np.int64]
MOST_BLOCKS = 1_800
"""Most blocks that are drawn; beyond, small blocks of a column and sharding are merged."""
_SMALL = 0.004  # of the highest column, in bytes and in time: too small to see
_NAMED_COLUMNS = 32  # up to this many columns, blocks show the names of their tables
_NAMED_HEIGHT = 0.035
_NAMES = 4  # names of tables in the hover text of a merged block


@dataclass(frozen=True)
class GpuPiece:
    """A block in a column: shards of tables, replicas, or work for the GPU's own samples.

    tables    their numbers; several if small shards are merged; none for own samples
    row_part, col_part  which part of its table the shard is
    rows_bytes, state_bytes  of its rows and of their optimizer state;  time_s  that it takes this GPU
    """

    sharding: str
    tables: tuple[int, ...]
    row_part: int
    col_part: int
    rows_bytes: float
    state_bytes: float
    time_s: float

    @property
    def held_bytes(self) -> float:
        """Bytes that it takes on the GPU: rows and optimizer state."""
        return self.rows_bytes + self.state_bytes


def placements(shown: Shown) -> Block:
    """Columns of blocks: the shards that every GPU holds, by time or by bytes, coloured by sharding.

    Limits: more than ``MOST_BLOCKS`` shards -> small ones are merged
    """
    kind, columns = shown.columns
    pieces = _merge_columns([hold_pieces(shown, column.rank) for column in columns])
    traces, switches = _draw(shown, pieces)
    text = {"uniformtext": {"minsize": 9, "mode": "hide"}}
    figure = shown.figure(traces, height=520, **text, **switches[0].layout)
    how = (
        f"{shown.column_words()} Each block is a shard of a table: its height is its share of the GPU's own "
        "time, or its bytes. Blocks too small to see are merged; grey is time and memory for the GPU's own "
        "samples. The line is the time of the plan, as a step waits for its busiest GPU, or the memory that "
        "may be used."
    )
    rows = [
        _build_row(shown, column, piece, kind)
        for column, drawn in zip(columns, pieces, strict=True)
        for piece in drawn
    ]
    return Block("placements", title(shown), how, figure, source(shown), tuple(rows), switches)


def title(shown: Shown) -> str:
    """The title: how many tables have which sharding, and how many shards a GPU holds."""
    answer = shown.answer
    counts: dict[str, int] = defaultdict(int)
    hot = 0
    for group in answer.groups:
        counts[group.sharding] += len(group.tables)
        hot += len(group.tables) * (group.scheme.hot_rows > 0)
    total, gpus = len(answer.evaluator.tables), answer.evaluator.gpus
    if len(counts) == 1:
        name = next(iter(counts))
        text = f"All {total} tables are {name}" if total > 1 else f"The table is {name}"
    else:
        parts = [
            f"{count} {_IN_WORDS.get(name, name)}"
            for name, count in sorted(counts.items(), key=lambda item: -item[1])
        ]
        text = f"Of {total} tables {', '.join(parts[:-1])} and {parts[-1]}"
        text = text.replace(parts[0], parts[0].replace(" ", " are ", 1), 1)
    text += f" on {counted(gpus, 'GPU')}"
    if hot:
        text += f"; {hot} {'has its' if hot == 1 else 'have their'} hottest rows on every GPU"
    ranks = answer.plan.shards[1]
    held = np.bincount(ranks, minlength=gpus)
    beside = "beside its copies " if DATA_PARALLEL in counts else ""
    if held.max() > 0:
        text += f"; {beside}a GPU holds {_range(held)}"
    return text + "."


def _range(counts: Array) -> str:
    """The least and the largest count in words: ``2 shards``, ``1 to 3 shards``."""
    words = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else str(counts.max())
    return f"{words} {'shard' if words == '1' else 'shards'}"


_IN_WORDS = {IN_3D: f"cut in {IN_3D}"}


def hold_pieces(shown: Shown, rank: int) -> list[GpuPiece]:
    """The pieces on a GPU, from the bottom of its column to the top: shards, replicas, its own samples."""
    pieces = [*_list_copies(shown, rank), *_list_shards(shown, rank)]
    size = shown.answer.evaluator.tables.rows * shown.answer.evaluator.tables.dim
    pieces.sort(key=lambda p: (ORDER.index(p.sharding), -size[p.tables[0]], p.tables[0]))
    memory: GpuMemory = shown.answer.result.memory
    left_s = float(shown.shares.total_s[rank]) - sum(piece.time_s for piece in pieces)
    return [*pieces, GpuPiece(OWN, (), 0, 0, float(memory.buffer_bytes[rank]), 0.0, max(left_s, 0.0))]


def sum_pieces(shown: Shown, pieces: Sequence[GpuPiece]) -> list[tuple[str, float]]:
    """What takes the time of a GPU, (words, time [s]), longest first: tables, all copies, its own samples."""
    names = shown.answer.evaluator.tables.names
    times: dict[str, float] = defaultdict(float)
    for piece in pieces:
        words = _LEGEND_WORDS.get(piece.sharding) or f"{names[piece.tables[0]]} {piece.sharding}"
        times[words] += piece.time_s
    return sorted(times.items(), key=lambda item: (-item[1], item[0]))


_LEGEND_WORDS = {
    DATA_PARALLEL: "copies of tables",
    HOT: "copies of hot rows",
    OWN: "work for its own samples",
}


def _list_shards(shown: Shown, rank: int) -> Iterator[GpuPiece]:
    plan, e = shown.answer.plan, shown.answer.evaluator
    tables = plan.shards[0][plan.shards[1] == rank]
    rows, state = e.memories.count_shard(tables, *(column[tables] for column in plan.schemes[1:]))
    times = shown.shares.shards_s(tables, rank)
    for t, row, extra, time in zip(tables.tolist(), rows, state, times, strict=True):
        placement = plan.placements[t]
        number = int(np.flatnonzero(placement.ranks == rank)[0])
        i, j = divmod(number, placement.scheme.col_parts)
        yield GpuPiece(shown.groups[t].sharding, (t,), i, j, float(row), float(extra), float(time))


def _list_copies(shown: Shown, rank: int) -> Iterator[GpuPiece]:
    plan, e = shown.answer.plan, shown.answer.evaluator
    times = shown.shares.copies_s(rank)
    replicated = np.array([placement.ranks.size == 0 for placement in plan.placements])
    for name, tables in (
        (DATA_PARALLEL, np.flatnonzero(replicated)),
        (HOT, np.flatnonzero(plan.hot_rows > 0)),
    ):
        rows = e.tables.rows if name != HOT else plan.hot_rows
        held = e.memories.count_copies(tables, rows[tables])
        for t, row, extra in zip(tables.tolist(), *held, strict=True):
            yield GpuPiece(name, (t,), 0, 0, float(row), float(extra), float(times[t]))


def _merge_columns(columns: Sequence[Sequence[GpuPiece]]) -> list[list[GpuPiece]]:
    """The columns, with pieces too small to see merged by sharding, until few enough blocks are left."""
    top = [max((sum(f(p) for p in held) for held in columns), default=0.0) for f in (_read_bytes, _read_time)]
    small, merged = _SMALL, [list(held) for held in columns]
    while True:
        merged = [_merge(held, small * top[0], small * top[1]) for held in columns]
        if sum(map(len, merged)) <= MOST_BLOCKS or small > 1:
            return merged
        small *= 2


def _read_bytes(piece: GpuPiece) -> float:
    return piece.held_bytes


def _read_time(piece: GpuPiece) -> float:
    return piece.time_s


def _merge(held: Sequence[GpuPiece], low_bytes: float, low_s: float) -> list[GpuPiece]:
    merged: list[GpuPiece] = []
    for name in ORDER:
        few: list[GpuPiece] = []
        for piece in held:
            if piece.sharding == name:
                large = piece.held_bytes >= low_bytes or piece.time_s >= low_s or name == OWN
                (merged if large else few).append(piece)
        if len(few) == 1:
            merged += few
        elif few:
            sums = (sum(getattr(p, key) for p in few) for key in ("rows_bytes", "state_bytes", "time_s"))
            merged.append(GpuPiece(name, tuple(t for p in few for t in p.tables), 0, 0, *sums))
    return merged


Traces = list[dict[str, Any]]


def _draw(shown: Shown, columns: Sequence[Sequence[GpuPiece]]) -> tuple[Traces, tuple[Switch, ...]]:
    """Plotly traces, one for each sharding, and two buttons: work and memory."""
    result = shown.answer.result
    lines = [
        (result.cost.time_s, f"{format_time(result.cost.time_s)}:<br>the {shown.step_words}"),
        (result.limit_bytes, f"{format_size(result.limit_bytes)}<br>may be used"),
    ]
    tops = [level for level, _ in lines]
    units = [time_unit(tops[0]), bytes_unit(tops[1])]
    kind, drawn = shown.columns
    names = [name for name in ORDER if any(piece.sharding == name for held in columns for piece in held)]
    traces: Traces = []
    seen: list[dict[str, list[Any]]] = [{"y": [], "base": [], "text": []} for _ in units]
    for name in names:
        places = [(x, p) for x, held in enumerate(columns) for p in held if p.sharding == name]
        for view, f, (factor, _), top in zip(seen, (_read_time, _read_bytes), units, tops, strict=True):
            below = [_sum_below(columns[x], piece, f) for x, piece in places]
            view["y"].append([factor * f(piece) for _, piece in places])
            view["base"].append([factor * low for low in below])
            view["text"].append([_label(shown, p, f(p), top, len(columns)) for _, p in places])
        words = [_describe_piece(shown, drawn[x].name(kind), drawn[x], p) for x, p in places]
        heights, base, texts = (seen[0][key][-1] for key in ("y", "base", "text"))
        x, legend = [x for x, _ in places], _LEGEND.get(name, name)
        look = {"line": {"color": "rgba(255,255,255,0.7)", "width": 0.5}, "color": colour_of(name)}
        traces.append(
            {
                "type": "bar", "x": x, "y": heights, "base": base, "width": 0.9, "name": legend,
                "marker": look, "hovertext": words, "hoverinfo": "text", "text": texts,
                "textposition": "inside", "insidetextanchor": "middle", "textangle": 0,
            }
        )  # fmt: skip
    titles = ("own time of a GPU", "bytes that a GPU holds")
    axes = [
        style.axis(f"{words} ({unit})", range=[0, 1.06 * factor * top])
        for words, (factor, unit), top in zip(titles, units, tops, strict=True)
    ]
    looks = [
        {"yaxis": axis, **levels([(factor * level, words)])}
        for axis, (factor, _), (level, words) in zip(axes, units, lines, strict=True)
    ]
    views = zip(("work", "memory"), seen, looks, strict=True)
    return traces, tuple(Switch(label, view, look) for label, view, look in views)


_LEGEND = {
    HOT: "hot rows, on every GPU",
    OWN: "exchange buffers; time for its own samples",
    DATA_PARALLEL: f"{DATA_PARALLEL}, on every GPU",
}


def _sum_below(held: Iterable[GpuPiece], piece: GpuPiece, f: Any) -> float:
    total = 0.0
    for lower in held:
        if lower is piece:
            break
        total += f(lower)
    return total


def _label(shown: Shown, piece: GpuPiece, value: float, top: float, columns: int) -> str:
    if columns > _NAMED_COLUMNS or value < _NAMED_HEIGHT * top or not piece.tables:
        return ""
    names = shown.answer.evaluator.tables.names
    return escape_text(names[piece.tables[0]]) if len(piece.tables) == 1 else f"{len(piece.tables)} tables"


def _describe_piece(shown: Shown, where: str, column: GpuColumn, piece: GpuPiece) -> str:
    total = float(shown.shares.total_s[column.rank])
    time = f"{format_time(piece.time_s)} of the {format_time(total)} that this GPU is busy"
    if not piece.tables:
        memory = f"{format_size(piece.rows_bytes)} of exchange buffers"
        return join_lines(
            [f"<b>{where}, for its own samples</b>", "ids out, bags in, sums of their parts", memory, time]
        )
    held = format_size(piece.held_bytes)
    if piece.state_bytes > 0:
        held += f", {format_size(piece.state_bytes)} of it optimizer state"
    return join_lines([*_describe_tables(shown, where, piece), held, time, _describe_next(shown, piece)])


def _describe_tables(shown: Shown, where: str, piece: GpuPiece) -> list[str]:
    """Hover text: the tables of a piece in the column ``where``, their sharding, rows and columns."""
    tables = shown.answer.evaluator.tables
    names = [escape_text(tables.names[t]) for t in piece.tables[:_NAMES]]
    if len(piece.tables) > 1:
        ending = f" and {len(piece.tables) - _NAMES} more" if len(piece.tables) > _NAMES else ""
        subject = "hot rows of" if piece.sharding == HOT else f"{piece.sharding}:"
        return [f"<b>{subject} {len(piece.tables)} tables</b> on {where}", ", ".join(names) + ending]
    t = piece.tables[0]
    scheme, dim = shown.answer.plan.placements[t].scheme, f"{tables.dim[t]:.0f}"
    if piece.sharding == HOT:
        share = shown.answer.evaluator.hot_share(t, scheme.hot_rows)
        words = (
            f"its hottest {format_count(scheme.hot_rows)} rows × {dim}, {100 * share:.3g} % of its look-ups"
        )
        return [f"<b>{names[0]}, hot rows</b> on {where}", words]
    left = float(tables.rows[t]) - scheme.hot_rows
    size = f"{format_count(round(left / scheme.row_parts))} rows × {_count_elements(shown, t)}"
    if scheme.parts > 1:
        size += (
            f": row part {piece.row_part + 1} of {scheme.row_parts}, "
            f"column part {piece.col_part + 1} of {scheme.col_parts}"
        )
    return [f"<b>{names[0]}, {piece.sharding}</b> on {where}", size]


def _count_elements(shown: Shown, t: int) -> str:
    scheme = shown.answer.plan.placements[t].scheme
    return f"{float(ex.count_part_elements(shown.answer.evaluator.tables.dim[t], scheme.col_parts)):.0f}"


def _describe_next(shown: Shown, piece: GpuPiece) -> str:
    """Hover text: the next best scheme of the piece's table, and how much longer the plan takes with it."""
    if len(piece.tables) > 1 or piece.sharding == HOT:
        return ""
    runner_up = shown.groups[piece.tables[0]].next_best
    if runner_up is None:
        return ""
    sign = "−" if runner_up.more_s < 0 else "+"
    return f"next best: {sign}{format_time(abs(runner_up.more_s))} {runner_up.sharding}"


def _build_row(shown: Shown, column: GpuColumn, piece: GpuPiece, kind: str) -> Mapping[str, Any]:
    tables = shown.answer.evaluator.tables
    table = piece.tables[0] if len(piece.tables) == 1 else None
    scheme = shown.answer.plan.placements[table].scheme if table is not None else None
    cut = scheme is not None and piece.sharding != HOT and scheme.parts > 0
    return {
        **column.record(kind),
        "holds": tables.names[table]
        if table is not None
        else f"{len(piece.tables)} tables"
        if piece.tables
        else "",
        "sharding": piece.sharding,
        "exchange": scheme.kind.name.lower() if scheme else "",
        "row_part": piece.row_part if cut else None,
        "row_parts": scheme.row_parts if cut and scheme else None,
        "column_part": piece.col_part if cut else None,
        "column_parts": scheme.col_parts if cut and scheme else None,
        "rows_bytes": piece.rows_bytes,
        "optimizer_bytes": piece.state_bytes,
        "time_s": piece.time_s,
    }
