"""Figure of the cores of a chip as columns and tables as blocks: the time of each core, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.work import WAYS, Way
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.gpu_columns import time_unit
from perfmodel.report.figures.marks import blocks, in_pane
from perfmodel.report.figures.registry import CORES
from perfmodel.report.figures.words import hover, safe
from perfmodel.schema.chip import list_chips
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_ratio, format_time

Array = NDArray[np.float64]

COLOURED = 14
"""Number of tables with a colour of their own."""
_OTHERS = "#9a9a9a"
_FEW = 12  # up to this many cores, each has its number as a tick
_BEFORE, _AFTER = "symmetric-GM", "this mapping"


def cores(answer: ChipAnswer) -> Block:
    """Columns of the time of each core, with a block for each table: symmetric-GM beside the answer."""
    before, after = answer.global_memory.time_s, answer.time_s
    factor, unit = time_unit(max(before, after))
    count = answer.cost.chip.cores
    order, names = _largest(answer), answer.tables.names
    drawn = [([table], names[table], _colour(rank)) for rank, table in enumerate(order[:COLOURED])]
    if rest := order[COLOURED:]:
        drawn.append((rest, counted(len(rest), "other table"), _OTHERS))
    most = float(answer.core_s.max())
    highs = 1.06 * factor * max(before, after, most), 1.15 * factor * max(after, most)
    whole, closer = (style.axis(f"time ({unit})", range=[0, high]) for high in highs)
    figure = style.new_figure(
        [trace for each in drawn for trace in _drawn(answer, *each, factor)],
        barmode="stack",
        bargap=0.12,
        height=520,
        meta={"min_width": min(1100, max(760, 14 * count)), "narrow": _narrow(count, unit)},
        yaxis=whole,
        **_frame(answer, factor),
    )
    switches = (
        Switch("one scale", {}, {"yaxis": whole}),
        Switch("closer, before cut off", {}, {"yaxis": closer}),
    )
    how = (
        f"Each column is a core; each block is a table on it. With {_BEFORE}, every core gathers a slice "
        "of the batch from every table, and all cores work on the same table at a time. Dashed: the time "
        "of the batch, which is longer than every column where chance or shared memory limits it."
    )
    return CORES.block(_title(answer), how, figure, _source(answer), _data(answer), switches)


def _title(answer: ChipAnswer) -> str:
    before, after = answer.global_memory.time_s, answer.time_s
    ratio = f"{format_ratio(before / after)} as fast"
    if answer.symmetric:
        return (
            f"{format_time(after)} per batch instead of {format_time(before)}, {ratio}: every core still "
            "has a slice of every table, but each table is looked up in its best way."
        )
    idle = format_fraction(1 - float(answer.core_s.mean()) / after)
    return (
        f"With its own tables on each core, a batch takes {format_time(after)} instead of "
        f"{format_time(before)}, {ratio}; a core is idle for {idle} on average."
    )


def _data(answer: ChipAnswer) -> tuple[dict[str, Any], ...]:
    """The figure's data: for symmetric-GM a row for each table, for the searched mapping one per piece."""
    found: list[dict[str, Any]] = [
        {
            "mapping": "before",
            "core": "every",
            "table": name,
            "way": "GM",
            "time_s": time_s,
            "held_bytes": 0.0,
        }
        for name, time_s in zip(answer.tables.names, answer.global_memory.table_s.tolist(), strict=True)
    ]
    times, held = answer.work.core_s.tolist(), answer.work.local_bytes.tolist()
    for at, (core, piece) in enumerate(zip(answer.mapping.core.tolist(), answer.mapping.pieces, strict=True)):
        spans = {"row": piece.rows, "column": piece.columns, "sample": piece.bags}
        found.append(
            {
                "mapping": "after",
                "core": core,
                "table": answer.tables.names[piece.table],
                "way": Way(piece.way).label,
                **{f"first_{what}": span[0] for what, span in spans.items()},
                **{f"end_{what}": span[1] for what, span in spans.items()},
                "time_s": times[at],
                "held_bytes": held[at],
            }
        )
    return tuple(found)


def _largest(answer: ChipAnswer) -> list[int]:
    """Numbers of tables, largest share of the time first (the larger of their shares in both mappings)."""
    before, table = answer.global_memory.table_s, [piece.table for piece in answer.mapping.pieces]
    after = np.bincount(table, answer.work.core_s, len(answer.tables))
    share = np.maximum(before / before.sum(), after / max(float(after.sum()), 1e-300))
    return [int(at) for at in np.argsort(-share, kind="stable")]


def _drawn(
    answer: ChipAnswer, tables: Sequence[int], name: str, colour: str, factor: float
) -> Iterator[dict[str, Any]]:
    """Plotly traces: the blocks of ``tables`` in both halves of the figure, under a name in the legend.

    factor  units of the axis per second
    """
    count = answer.cost.chip.cores
    look = {
        "color": colour,
        "line": {"color": "rgba(255,255,255,0.8)", "width": 0.5 if len(tables) == 1 else 0},
    }
    same = {"legendgroup": safe(name), "width": 0.88}
    each = float(answer.global_memory.table_s[list(tables)].sum())
    words = [f"<b>{safe(name)}</b>, way GM", "a slice of the batch, as on every core", format_time(each)]
    before = blocks(range(count), [factor * each] * count, hover(words), safe(name), **look)
    yield {**before, **same, "showlegend": False}
    mine = np.flatnonzero(np.isin([piece.table for piece in answer.mapping.pieces], tables))
    of_core = answer.mapping.core[mine]
    time_s = np.bincount(of_core, answer.work.core_s[mine], count)
    texts = [_hover(answer, mine[of_core == core], name, core) for core in range(count)]
    yield in_pane(blocks(range(count), (factor * time_s).tolist(), texts, safe(name), **look) | same, 2)


def _hover(answer: ChipAnswer, pieces: NDArray[np.intp], name: str, core: int) -> str:
    """The hover text of a block: the pieces on a core, with their ways, ranges and time.

    pieces  positions in ``answer.mapping.pieces``;  name  of the table or tables
    """
    if not pieces.size:
        return ""
    some = [answer.mapping.pieces[at] for at in pieces.tolist()]
    ways = "+".join(dict.fromkeys(Way(piece.way).label for piece in some))
    lines = [f"<b>{safe(name)}</b> on core {core}, way {ways}"]
    if len(some) > 1:
        lines.append(counted(len(some), "piece"))
    else:
        spans = (("row", some[0].rows), ("column", some[0].columns), ("sample", some[0].bags))
        lines += [f"{what}s {format_count(a)} … {format_count(b - 1)}" for what, (a, b) in spans]
    kept = format_bytes(float(answer.work.local_bytes[pieces].sum()))
    return hover([*lines, format_time(float(answer.work.core_s[pieces].sum())), f"{kept} kept"])


def _frame(answer: ChipAnswer, factor: float) -> dict[str, Any]:
    """Plotly settings of two halves with the same time axis; in each, a line at the time of a batch.

    factor  units of the axis per second
    """
    last = answer.cost.chip.cores - 0.5
    whole = {"dtick": 1} if last < _FEW else {}
    layout: dict[str, Any] = {"shapes": [], "annotations": []}
    layout["yaxis2"] = style.axis("", matches="y", anchor="x2", showticklabels=False)
    for at, domain, name, time_s in (
        ("", [0, 0.485], _BEFORE, answer.global_memory.time_s),
        ("2", [0.515, 1], _AFTER, answer.time_s),
    ):
        own = {"domain": domain, "range": [-0.5, last], "anchor": f"y{at}"}
        layout[f"xaxis{at}"] = style.axis("core", **own, showgrid=False, zeroline=False, **whole)
        line = {"color": "#7d7d7d", "width": 1.5, "dash": "dash"}
        span = {"x0": -0.5, "x1": last, "y0": factor * time_s, "y1": factor * time_s}
        layout["shapes"] += [{"type": "line", "xref": f"x{at}", "yref": f"y{at}", "line": line, **span}]
        layout["annotations"] += [
            {"text": f"{name}: {format_time(time_s)} per batch", "showarrow": False, "xref": f"x{at} domain",
             "x": 0, "xanchor": "left", "yref": f"y{at} domain", "y": 1.01, "yanchor": "bottom"}
        ]  # fmt: skip
    return layout


def _narrow(cores: int, unit: str) -> dict[str, Any]:
    """Plotly settings for phones: one half above the other, the searched mapping first."""
    low, high, across = [0, 0.42], [0.58, 1], {"domain": [0, 1]}
    return {
        "height": 900,
        "meta": {"min_width": min(500, 8 * cores)},
        "xaxis": across,
        "xaxis2": across,
        "yaxis": {"domain": low},
        "yaxis2": {"domain": high, "showticklabels": True, "title": {"text": f"time ({unit})"}},
    }


def _colour(rank: int) -> str:
    """The colour of table number ``rank`` by size: seven colours, then the same in paler shades."""
    one = style.PALETTE[rank % 7]
    return one if rank < 7 else style.faded(one, 0.5)


def _source(answer: ChipAnswer) -> str:
    """The line below the figure that says where its numbers come from."""
    chip, batch = answer.cost.chip, counted(int(answer.cost.batch), "sample")
    typed = chip.name if chip.name in list_chips() else "FILE"
    return (
        f"Modelled, not measured: values of chip {chip.name}, ids {answer.ids.name}, {batch}; equations: "
        f"perfmodel chip explain WAY --chip {typed} --rows N, WAY one of "
        f"{', '.join(way.label for way in WAYS)}."
    )
