"""Cores of a chip as columns, tables as blocks: the time of each core, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.work import WAYS
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.words import hover, safe
from perfmodel.schema.chip import list_chips
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_ratio,
    format_time,
)

NAME = "cores"
COLOURED = 14
"""Tables with a colour of their own."""
_OTHERS = "#9a9a9a"
_OUTLINE, _THIN = 0.5, 0.01  # width of an outline; lower than this part of the axis, about 4 pixels: none
_FEW = 12  # cores that have a number each
_BEFORE, _AFTER = "symmetric-GM", "this mapping"


def cores(answer: ChipAnswer) -> Block:
    """Time of each core, a block for each piece of a table, before (symmetric-GM) and after, on one scale.

    Limits: more than ``chip.blocks.MOST_BLOCKS`` pieces -> those of small tables are one block a core
    """
    before, after = answer.global_memory.time_s, answer.time_s
    factor, unit = _unit(max(before, after))
    rows = _after(answer)
    order = _largest(answer, rows)
    width = min(1100, max(760, 14 * answer.cost.chip.cores))
    meta = {"min_width": width, "narrow": _narrow(answer.cost.chip.cores, unit)}
    figure = style.new_figure(barmode="overlay", bargap=0.12, height=520, meta=meta)
    shown = order[:COLOURED]
    top = 1.06 * factor * max(before, after, float(answer.core_s.max()))
    for rank, table in enumerate(shown):
        name = answer.tables.names[table]
        _draw(figure, answer, (table,), rows, order, factor, _colour(rank), name, _THIN * top)
    rest = order[COLOURED:]
    if rest:
        name = counted(len(rest), "other table")
        _draw(figure, answer, rest, rows, order, factor, _OTHERS, name, _THIN * top)
    _frame(figure, answer, factor, unit)
    close = 1.15 * factor * max(after, float(answer.core_s.max()))
    whole, closer = (style.axis(f"time ({unit})", range=[0, high]) for high in (top, close))
    switches = (
        Switch("one scale", {}, {"yaxis": whole}),
        Switch("closer, before cut off", {}, {"yaxis": closer}),
    )
    figure.update_layout(yaxis=whole)
    how = (
        f"Each column is a core; each block is a table on it. With {_BEFORE}, every core gathers a slice "
        "of the batch from every table, and all cores work on the same table at a time. Dashed: the time "
        "of the batch, which is longer than every column where chance or shared memory limits it."
    )
    return Block(
        NAME, _cores_title(answer), how, figure, chip_source(answer), _cores_data(answer, rows), switches
    )


def _cores_title(answer: ChipAnswer) -> str:
    before, after = answer.global_memory.time_s, answer.time_s
    at = int(np.argmax(answer.core_s))
    ratio = f"{format_ratio(before / after)} as fast"
    if answer.symmetric:
        return (
            f"{format_time(after)} per batch instead of {format_time(before)}, {ratio}: every core still "
            "has a slice of every table, but each table is looked up in its best way."
        )
    names = list(dict.fromkeys(answer.name_of(block) for block in answer.blocks if block.core == at))
    idle = format_fraction(1 - float(answer.core_s.mean()) / after)
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"With its own tables on each core, a batch takes {format_time(after)} instead of "
        f"{format_time(before)}, {ratio}; the busiest, core {at}, has {some}, and a core is idle for "
        f"{idle} on average."
    )


def _after(answer: ChipAnswer) -> list[dict[str, Any]]:
    """A row for each block, in the order of the cores."""
    found = []
    for block in answer.blocks:
        piece = block.piece
        found.append(
            {
                "mapping": "after",
                "core": block.core,
                "table": answer.name_of(block),
                "way": "+".join(way.label for way in block.ways),
                "first_row": piece.rows[0] if piece else None,
                "end_row": piece.rows[1] if piece else None,
                "first_column": piece.columns[0] if piece else None,
                "end_column": piece.columns[1] if piece else None,
                "first_sample": piece.bags[0] if piece else None,
                "end_sample": piece.bags[1] if piece else None,
                "time_s": block.time_s,
                "held_bytes": block.held_bytes,
                "_block": block,
            }
        )
    return found


def _cores_data(answer: ChipAnswer, rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Before: one row a table, of every core; after: one a piece."""
    found: list[dict[str, Any]] = []
    for at, name in enumerate(answer.tables.names):
        found.append(
            {
                "mapping": "before",
                "core": "every",
                "table": name,
                "way": "GM",
                "first_row": 0,
                "end_row": int(answer.tables.rows[at]),
                "first_column": 0,
                "end_column": int(answer.tables.dim[at]),
                "first_sample": None,
                "end_sample": None,
                "time_s": float(answer.global_memory.table_s[at]),
                "held_bytes": 0.0,
            }
        )
    found += [{key: value for key, value in row.items() if key != "_block"} for row in rows]
    return tuple(found)


def _largest(answer: ChipAnswer, rows: Iterable[dict[str, Any]]) -> list[int]:
    """Tables, first those that have the largest share of either mapping, last those shown together."""
    before = answer.global_memory.table_s
    after = np.zeros(len(answer.tables))
    together = np.zeros(len(answer.tables), dtype=bool)
    for row in rows:
        block = row["_block"]
        if block.piece is None:
            together[list(block.tables)] = True
        else:
            after[block.tables[0]] += block.time_s
    share = np.maximum(before / before.sum(), after / max(float(after.sum()), 1e-300))
    return [int(at) for at in np.lexsort((-share, together))]


def _draw(
    figure: Any,
    answer: ChipAnswer,
    tables: Sequence[int],
    rows: Sequence[dict[str, Any]],
    order: Sequence[int],
    factor: float,
    colour: str,
    name: str,
    thin: float,
) -> None:
    """The blocks of some tables in both halves; ``order`` is that of the blocks from below.

    thin  lower blocks have no outline, which would hide them
    """
    import plotly.graph_objects as go

    group = {"name": safe(name), "legendgroup": safe(name), "hoverinfo": "text", "width": 0.88}
    count, times = answer.cost.chip.cores, answer.global_memory.table_s
    at = order.index(tables[0])
    base, height = float(times[list(order[:at])].sum()), float(times[list(tables)].sum())
    figure.add_trace(
        go.Bar(
            x=list(range(count)),
            y=[factor * height] * count,
            base=[factor * base] * count,
            hovertext=_before_hover(answer, tables, name, height),
            showlegend=False,
            marker=_filled(colour, [factor * height] * count, thin),
            **group,
        )
    )
    drawn = _stacked(rows, tables, order, answer.cost.chip.cores)
    figure.add_trace(
        go.Bar(
            x=[core for core, *_ in drawn],
            y=[factor * time for _, _, time, _ in drawn],
            base=[factor * low for _, low, _, _ in drawn],
            hovertext=[text for *_, text in drawn],
            xaxis="x2",
            yaxis="y2",
            marker=_filled(colour, [factor * time for _, _, time, _ in drawn], thin),
            **group,
        )
    )


def _filled(colour: str, heights: Sequence[float], thin: float) -> dict[str, Any]:
    """A colour, and a light outline around what is not thin."""
    widths = [_OUTLINE if height >= thin else 0.0 for height in heights]
    same = len(set(widths)) == 1
    return {
        "color": colour,
        "line": {"color": "rgba(255,255,255,0.8)", "width": widths[0] if same else widths},
    }


def _stacked(
    rows: Sequence[dict[str, Any]], tables: Sequence[int], order: Sequence[int], cores: int
) -> list[tuple[int, float, float, str]]:
    """(core, from, time [s], words) of the pieces of some tables, above those of the tables before them."""
    rank = {table: at for at, table in enumerate(order)}
    first, last = rank[tables[0]], rank[tables[-1]]
    height = np.zeros(cores)
    mine = []
    for row in rows:
        at = rank[row["_block"].tables[0]] if row["_block"].piece else len(order) - 1
        if at < first:
            height[row["core"]] += row["time_s"]
        elif at <= last:
            mine.append((at, row))
    found = []
    for _, row in sorted(mine, key=lambda pair: pair[0]):
        found.append((row["core"], float(height[row["core"]]), row["time_s"], _after_hover(row)))
        height[row["core"]] += row["time_s"]
    return found


def _before_hover(answer: ChipAnswer, tables: Sequence[int], name: str, time_s: float) -> str:
    share = f"{format_time(time_s)}, as on every core"
    slice_ = f"a slice of {format_count(answer.cost.batch / answer.cost.chip.cores)} of {_samples(answer)}"
    if len(tables) > 1:
        return hover([f"<b>{safe(name)}</b>", "way GM, all rows and columns", slice_, share, "nothing kept"])
    rows, dim = int(answer.tables.rows[tables[0]]), int(answer.tables.dim[tables[0]])
    return hover(
        [
            f"<b>{safe(name)}</b>, way GM",
            f"rows 0 … {format_count(rows - 1)}, columns 0 … {dim - 1}",
            slice_,
            share,
            "nothing kept",
        ]
    )


def _samples(answer: ChipAnswer) -> str:
    return counted(int(answer.cost.batch), "sample")


def _after_hover(row: dict[str, Any]) -> str:
    kept, block = f"{format_bytes(row['held_bytes'])} kept", row["_block"]
    if block.piece is None:
        return hover(
            [
                f"<b>{counted(block.pieces, 'piece')} of {safe(row['table'])}</b> on core {row['core']}",
                f"ways {row['way']}",
                format_time(row["time_s"]),
                kept,
            ]
        )
    rows, columns, samples = (
        f"{what}s {format_count(row[f'first_{what}'])} … {format_count(row[f'end_{what}'] - 1)}"
        for what in ("row", "column", "sample")
    )
    return hover(
        [
            f"<b>{safe(row['table'])}</b> on core {row['core']}, way {row['way']}",
            f"{rows}, {columns}",
            samples,
            format_time(row["time_s"]),
            kept,
        ]
    )


def _frame(figure: Any, answer: ChipAnswer, factor: float, unit: str) -> None:
    """Two halves with one scale of time, and a line at the time of a batch in each."""
    last = answer.cost.chip.cores - 0.5
    whole = {"dtick": 1} if last < _FEW else {}
    for at, domain in (("", [0, 0.485]), ("2", [0.515, 1])):
        figure.update_layout(
            {
                f"xaxis{at}": style.axis(
                    "core",
                    domain=domain,
                    range=[-0.5, last],
                    anchor=f"y{at}",
                    showgrid=False,
                    zeroline=False,
                    **whole,
                )
            }
        )
    figure.update_layout(yaxis2=style.axis("", matches="y", anchor="x2", showticklabels=False))
    for at, name, time_s in (("", _BEFORE, answer.global_memory.time_s), ("2", _AFTER, answer.time_s)):
        axis = f"x{at}"
        line = {"color": "#7d7d7d", "width": 1.5, "dash": "dash"}
        level = factor * time_s
        figure.add_shape(
            type="line", xref=axis, yref=f"y{at}", x0=-0.5, x1=last, y0=level, y1=level, line=line
        )
        figure.add_annotation(
            text=f"{name}: {format_time(time_s)} per batch", showarrow=False, xref=f"{axis} domain", x=0,
            xanchor="left", yref=f"y{at} domain", y=1.01, yanchor="bottom",
        )  # fmt: skip


def _narrow(cores: int, unit: str) -> dict[str, Any]:
    """The layout on a phone: one half above the other, the answer first."""
    low, high, across = [0, 0.42], [0.58, 1], {"domain": [0, 1]}
    return {
        "height": 900,
        "meta": {"min_width": min(500, 8 * cores)},
        "xaxis": across,
        "xaxis2": across,
        "yaxis": {"domain": low},
        "yaxis2": {"domain": high, "showticklabels": True, "title": {"text": f"time ({unit})"}},
    }


def _unit(top_s: float) -> tuple[float, str]:
    """Times are drawn in one unit: that of the highest column."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if top_s * factor >= 1:
            return factor, unit
    return 1e9, "ns"


def _colour(rank: int) -> str:
    """Seven colours, then the same ones lighter; grey is that of the rest."""
    one = style.PALETTE[rank % 7]
    return one if rank < 7 else style.faded(one, 0.5)


def chip_source(answer: ChipAnswer, ids: Sequence[str] = ()) -> str:
    """Where the numbers come from, under every figure;  ids  of the figure, (): those of the answer."""
    chip, which = answer.cost.chip, ", ".join(ids or [answer.ids.name])
    typed = chip.name if chip.name in list_chips() else "FILE"
    return (
        f"Modelled, not measured: values of chip {chip.name}, ids {which}, "
        f"{_samples(answer)}; equations: perfmodel chip explain WAY --chip {typed} --rows N, WAY one of "
        f"{', '.join(way.label for way in WAYS)}."
    )
