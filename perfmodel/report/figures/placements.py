"""Figure of what each GPU holds: GPUs as columns, shards as blocks, by bytes and by time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from perfmodel.engine.schemes import DATA_PARALLEL, IN_3D, SHARDINGS
from perfmodel.model import exchanges as ex
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.chart import escape_text, format_size, join_lines
from perfmodel.report.figures.gpu_columns import GpuColumn, Shown
from perfmodel.units import counted, format_count, format_time

HOT, SAMPLES = "hot rows", "own samples"
ORDER = (DATA_PARALLEL, HOT, *(name for name in SHARDINGS if name != DATA_PARALLEL), SAMPLES)
"""Order of the blocks in a column, from below."""
COLOURS = {
    **dict(zip(SHARDINGS, (*style.PALETTE[:7], "#c2484d"), strict=True)),
    **{HOT: "#7fb3dd", SAMPLES: style.PALETTE[7]},
}
MOST_BLOCKS = 1_800
"""Most blocks that are drawn; beyond, small blocks of a column and sharding are merged."""
_SMALL = 0.004  # of the highest column, in bytes and in time: too small to see
_NAMED_COLUMNS = 32  # up to this many columns, blocks show the names of their tables
_NAMED_HEIGHT = 0.035
_NAMES = 4  # names of tables in the hover text of a merged block
_LEGEND = {
    HOT: "hot rows, on every GPU",
    SAMPLES: "exchange buffers; time for its own samples",
    DATA_PARALLEL: f"{DATA_PARALLEL}, on every GPU",
}
_WORKS = {DATA_PARALLEL: "copies of tables", HOT: "copies of hot rows", SAMPLES: "work for its own samples"}


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


Columns = Sequence[Sequence[GpuPiece]]
_VIEWS = {"work": attrgetter("time_s"), "memory": attrgetter("held_bytes")}
"""By the label of its button, the height of a piece."""


def placements(shown: Shown) -> Block:
    """Columns of blocks: the shards that every GPU holds, by time or by bytes, coloured by sharding.

    Limits: more than ``MOST_BLOCKS`` shards -> small ones are merged
    """
    kind, columns = shown.columns
    pieces = _merge_small([hold_pieces(shown, column.rank) for column in columns])
    traces, switches = _draw_pieces(shown, pieces)
    text = {"uniformtext": {"minsize": 9, "mode": "hide"}}
    figure = shown.draw(traces, height=520, **text, **switches[0].layout)
    how = (
        f"{shown.describe_columns()} Each block is a shard of a table: its height is its share of the GPU's "
        "own time, or its bytes. Blocks too small to see are merged; grey is time and memory for the GPU's "
        "own samples. The line is the time of the plan, as a step waits for its busiest GPU, or the memory "
        "that may be used."
    )
    rows = [
        {**column.record(kind), **_record_piece(shown, piece)}
        for column, held in zip(columns, pieces, strict=True)
        for piece in held
    ]
    e = shown.planned.evaluator
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations)) or "none"
    ids = ", ".join(dict.fromkeys(law.name for law in e.tables.ids))
    source = (
        f"Modelled: machine {e.setting.machine.name}, calibration {names}, ids {ids}, "
        f"{format_count(e.batch)} samples per GPU; weakest evidence: {shown.planned.result.cost.evidence}."
    )
    return Block("placements", write_title(shown), how, figure, source, tuple(rows), switches)


def write_title(shown: Shown) -> str:
    """The title: how many tables have which sharding, and how many shards a GPU holds."""
    planned, counts, hot = shown.planned, defaultdict[str, int](int), 0
    for group in planned.groups:
        counts[group.sharding] += len(group.tables)
        hot += len(group.tables) * (group.scheme.hot_rows > 0)
    total, gpus = len(planned.evaluator.tables), planned.evaluator.gpus
    name, *others = sorted(counts, key=lambda sharding: -counts[sharding])
    if others:
        words = {IN_3D: f"cut in {IN_3D}"}
        parts = [f"{counts[other]} {words.get(other, other)}" for other in others]
        listed = ", ".join([f"{counts[name]} are {words.get(name, name)}", *parts[:-1]])
        text = f"Of {total} tables {listed} and {parts[-1]}"
    else:
        text = f"All {total} tables are {name}" if total > 1 else f"The table is {name}"
    text += f" on {counted(gpus, 'GPU')}"
    if hot:
        text += f"; {hot} {'has its' if hot == 1 else 'have their'} hottest rows on every GPU"
    held = np.bincount(planned.plan.shards[1], minlength=gpus)
    if held.max() > 0:
        beside = "beside its copies " if DATA_PARALLEL in counts else ""
        low = f"{held.min()} to " if held.min() < held.max() else ""
        text += f"; {beside}a GPU holds {low}{counted(int(held.max()), 'shard')}"
    return text + "."


def hold_pieces(shown: Shown, rank: int) -> list[GpuPiece]:
    """The pieces on a GPU, from the bottom of its column to the top: shards, replicas, its own samples."""
    pieces = [*_list_copies(shown, rank), *_list_shards(shown, rank)]
    tables, memory = shown.planned.evaluator.tables, shown.planned.result.memory
    size = tables.rows * tables.dim
    pieces.sort(key=lambda p: (ORDER.index(p.sharding), -size[p.tables[0]], p.tables[0]))
    left_s = float(shown.shares.total_s[rank]) - sum(piece.time_s for piece in pieces)
    buffers = float(memory.buffer_bytes[rank])
    return [*pieces, GpuPiece(SAMPLES, (), 0, 0, buffers, 0.0, max(left_s, 0.0))]


def sum_pieces(shown: Shown, pieces: Sequence[GpuPiece]) -> list[tuple[str, float]]:
    """What takes the time of a GPU, (words, time [s]), longest first: tables, all copies, its own samples."""
    names = shown.planned.evaluator.tables.names
    times: dict[str, float] = defaultdict(float)
    for piece in pieces:
        words = _WORKS.get(piece.sharding) or f"{names[piece.tables[0]]} {piece.sharding}"
        times[words] += piece.time_s
    return sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))


def _list_shards(shown: Shown, rank: int) -> Iterator[GpuPiece]:
    plan, e = shown.planned.plan, shown.planned.evaluator
    tables = plan.shards[0][plan.shards[1] == rank]
    rows, states = e.memories.count_shard(tables, *(column[tables] for column in plan.schemes[1:]))
    times = shown.shares.shards_s(tables, rank)
    for t, row, state, time in zip(tables.tolist(), rows, states, times, strict=True):
        placement = plan.placements[t]
        place = int(np.flatnonzero(placement.ranks == rank)[0])
        i, j = divmod(place, placement.scheme.col_parts)
        yield GpuPiece(shown.groups[t].sharding, (t,), i, j, float(row), float(state), float(time))


def _list_copies(shown: Shown, rank: int) -> Iterator[GpuPiece]:
    plan, e = shown.planned.plan, shown.planned.evaluator
    times = shown.shares.copies_s(rank)
    copied = np.array([placement.ranks.size == 0 for placement in plan.placements])
    for name, tables in ((DATA_PARALLEL, np.flatnonzero(copied)), (HOT, np.flatnonzero(plan.hot_rows > 0))):
        rows = e.tables.rows if name != HOT else plan.hot_rows
        held = e.memories.count_copies(tables, rows[tables])
        for t, row, state in zip(tables.tolist(), *held, strict=True):
            yield GpuPiece(name, (t,), 0, 0, float(row), float(state), float(times[t]))


def _merge_small(columns: Columns) -> Columns:
    """The columns, with pieces too small to see merged by sharding, until few enough blocks are left."""
    tops = [max(sum(map(view, held)) for held in columns) for view in _VIEWS.values()]
    small, merged = _SMALL, columns
    while small <= 2:
        merged = [_merge_column(held, [small * top for top in tops]) for held in columns]
        if sum(map(len, merged)) <= MOST_BLOCKS:
            break
        small *= 2
    return merged


def _merge_column(held: Sequence[GpuPiece], lows: Sequence[float]) -> list[GpuPiece]:
    """A column whose small pieces are one for each sharding. lows  least time and bytes of a piece"""
    pieces: list[GpuPiece] = []
    for name in ORDER:
        small: list[GpuPiece] = []
        for piece in (piece for piece in held if piece.sharding == name):
            heights = (view(piece) for view in _VIEWS.values())
            large = name == SAMPLES or any(height >= low for height, low in zip(heights, lows, strict=True))
            (pieces if large else small).append(piece)
        if len(small) == 1:
            pieces += small
        elif small:
            sums = (sum(getattr(p, key) for p in small) for key in ("rows_bytes", "state_bytes", "time_s"))
            pieces.append(GpuPiece(name, tuple(t for p in small for t in p.tables), 0, 0, *sums))
    return pieces


def _draw_pieces(shown: Shown, columns: Columns) -> tuple[list[dict[str, Any]], tuple[Switch, ...]]:
    """Plotly traces, one for each sharding, and two buttons: work and memory."""
    result, (kind, drawn) = shown.planned.result, shown.columns
    step = "training step" if shown.planned.training else "batch"
    tops = result.cost.time_s, result.limit_bytes
    lines = f"{format_time(tops[0])}:<br>the {step}", f"{format_size(tops[1])}<br>may be used"
    units = _find_unit(tops[0], "s", {3: "ms", 6: "µs", 9: "ns"}), _find_unit(tops[1], "B", _BYTES)
    switches = []
    names = [name for name in ORDER if any(piece.sharding == name for held in columns for piece in held)]
    placed = [
        [(x, p) for x, held in enumerate(columns) for p in held if p.sharding == name] for name in names
    ]
    titles = ("own time of a GPU", "bytes that a GPU holds")
    for view, title, top, (factor, unit), line in zip(_VIEWS, titles, tops, units, lines, strict=True):
        height, bases = _VIEWS[view], [_stack(held, _VIEWS[view]) for held in columns]
        traces = {
            "y": [[factor * height(p) for _, p in blocks] for blocks in placed],
            "base": [[factor * bases[x][id(p)] for x, p in blocks] for blocks in placed],
            "text": [
                [_name_piece(shown, p, height(p) / top, len(columns)) for _, p in blocks] for blocks in placed
            ],
        }
        axis = style.axis(f"{title} ({unit})", range=[0, 1.06 * factor * top])
        switches.append(Switch(view, traces, {"yaxis": axis, **_draw_line(factor * top, line)}))
    bars = []
    for index, (name, blocks) in enumerate(zip(names, placed, strict=True)):
        look = {"line": {"color": "rgba(255,255,255,0.7)", "width": 0.5}, "color": COLOURS[name]}
        words = [_describe_piece(shown, drawn[x].name(kind), drawn[x], p) for x, p in blocks]
        bars.append(
            {
                "type": "bar", "x": [x for x, _ in blocks], "width": 0.9, "name": _LEGEND.get(name, name),
                "marker": look, "hovertext": words, "hoverinfo": "text", "textposition": "inside",
                "insidetextanchor": "middle", "textangle": 0,
                **{key: values[index] for key, values in switches[0].traces.items()},
            }
        )  # fmt: skip
    return bars, tuple(switches)


_BYTES = {-12: "TB", -9: "GB", -6: "MB", -3: "kB"}


def _find_unit(top: float, unit: str, others: Mapping[int, str]) -> tuple[float, str]:
    """(how many of it ``unit`` has, the largest unit in which ``top`` is at least 1). others  by power"""
    powers = sorted({0: unit, **others}.items())
    power, name = next(((p, name) for p, name in powers if top * 10.0**p >= 1), powers[-1])
    return 10.0**power, name


def _stack(held: Sequence[GpuPiece], height: Any) -> dict[int, float]:
    """Where each piece of a column begins, by its ``id``."""
    ends = np.cumsum([0.0, *map(height, held)]).tolist()
    return {id(piece): end for piece, end in zip(held, ends, strict=False)}


def _draw_line(level: float, text: str) -> dict[str, Any]:
    """Plotly settings of a dashed line across the figure, its label right of it, and the margin for that."""
    place = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": level, "y1": level}
    looks = {"color": "rgba(255,255,255,0.6)", "width": 3.5}, {"color": "#333", "width": 1.5, "dash": "dash"}
    words = {"text": text, "xref": "paper", "x": 1.005, "xanchor": "left", "y": level, "showarrow": False}
    return {
        "shapes": [{**place, "line": look} for look in looks],
        "annotations": [{**words, "yanchor": "middle", "align": "left"}],
        "margin": {"l": 72, "r": 130, "t": 56, "b": 56},
    }


def _name_piece(shown: Shown, piece: GpuPiece, share: float, columns: int) -> str:
    """The text in a block; "" in a small one. share  of the height of the line"""
    if columns > _NAMED_COLUMNS or share < _NAMED_HEIGHT or not piece.tables:
        return ""
    if len(piece.tables) > 1:
        return f"{len(piece.tables)} tables"
    return escape_text(shown.planned.evaluator.tables.names[piece.tables[0]])


def _describe_piece(shown: Shown, where: str, column: GpuColumn, piece: GpuPiece) -> str:
    """Hover text: the tables of a piece in the column ``where``, what it holds, its time, the next best."""
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
    names = [escape_text(shown.planned.evaluator.tables.names[t]) for t in piece.tables[:_NAMES]]
    if len(piece.tables) > 1:
        more = f" and {len(piece.tables) - _NAMES} more" if len(piece.tables) > _NAMES else ""
        sharding = "hot rows of" if piece.sharding == HOT else f"{piece.sharding}:"
        head = f"<b>{sharding} {len(piece.tables)} tables</b> on {where}"
        return join_lines([head, ", ".join(names) + more, held, time])
    best, why = shown.groups[piece.tables[0]].next_best, ""
    if best is not None and piece.sharding != HOT:
        sign = "−" if best.more_s < 0 else "+"
        why = f"next best: {sign}{format_time(abs(best.more_s))} {best.sharding}"
    return join_lines(
        [f"<b>{names[0]}, {piece.sharding}</b> on {where}", _size_words(shown, piece), held, time, why]
    )


def _size_words(shown: Shown, piece: GpuPiece) -> str:
    """Rows and columns of a piece of one table, and which part of it."""
    tables, t = shown.planned.evaluator.tables, piece.tables[0]
    scheme, dim = shown.planned.plan.placements[t].scheme, float(tables.dim[t])
    if piece.sharding == HOT:
        share = shown.planned.evaluator.hot_share(t, scheme.hot_rows)
        hottest = f"its hottest {format_count(scheme.hot_rows)} rows × {dim:.0f}"
        return f"{hottest}, {100 * share:.3g} % of its look-ups"
    rows = round((float(tables.rows[t]) - scheme.hot_rows) / scheme.row_parts)
    size = f"{format_count(rows)} rows × {float(ex.count_part_elements(dim, scheme.col_parts)):.0f}"
    if scheme.parts > 1:
        row = f"row part {piece.row_part + 1} of {scheme.row_parts}"
        size += f": {row}, column part {piece.col_part + 1} of {scheme.col_parts}"
    return size


def _record_piece(shown: Shown, piece: GpuPiece) -> dict[str, Any]:
    """A block as a row of the figure's data."""
    names = [shown.planned.evaluator.tables.names[t] for t in piece.tables]
    scheme = shown.planned.plan.placements[piece.tables[0]].scheme if len(names) == 1 else None
    cut = scheme is not None and piece.sharding != HOT and scheme.parts > 0
    return {
        "holds": names[0] if scheme else f"{len(names)} tables" if names else "",
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
