"""Figures of the answer's sensitivity: helpful changes, and heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.answer import Answer, grids, project_row_wise
from perfmodel.answer.ranking import answer_question
from perfmodel.answer.what_would_help import Sensitivity, list_helping
from perfmodel.question.groups import OBJECTIVES
from perfmodel.report.columns import Column, attributes, columns_record
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.marks import heat_cells, scatter, whiskers
from perfmodel.report.figures.ratio_rows import bar, ratio_rows
from perfmodel.report.figures.registry import CHANGES, HEAT_MAP
from perfmodel.report.figures.words import hover, safe, sentence, told
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.workload import DTYPES
from perfmodel.units import format_count, format_ratio

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.answer.ranking import Ranking

_AXIS = "slowdown (×)"
_ONE_GPU = "the tables fit on one GPU: ask for larger ones with --table-size."
_PLANES = (("batch", "pooling"), ("table_count", "dim"))
_NAMES = {"batch": "batch", "pooling": "pooling", "table_count": "tables", "dim": "dim"}
_SCALE = [[0.0, "#fdf4e3"], [0.5, "#f3bf7d"], [1.0, "#d9772b"]]
"""Colours of a heat map, all light enough for dark numbers."""
_STEPS = {"batch": (4.0, 2, 5), "pooling": (2.0, 3, 6), "table_count": (4.0, 1, 4), "dim": (2.0, 1, 4)}
"""Axes of heat maps: the factor between values, the number of values below the asked value, and of all."""


def changes(asked: Answer, lead: Ranking | None = None) -> Block | Missing:
    """Rows of the slowdown after each change that helps, the most helpful first, with its 95 % band.

    lead  the fastest sharding, whose changes are shown; None: row-wise
    """
    if asked.gpus == 1:
        return CHANGES.missing(_ONE_GPU)
    tried = lead.changes if lead else list_helping(asked.pinned, answer_question)
    asked, found = lead.answer if lead else asked, sorted(tried, key=lambda s: s.after)
    if not found:
        return CHANGES.missing("none of the changes tried here makes it at least 2 % faster.")
    kinds = [change.evidence for change in found]
    figure = ratio_rows(
        [(f"{format_ratio(change.after)}: {change.label}", _change(change)) for change in found],
        [
            (str(kind), {"color": style.EVIDENCE_COLOURS[kind], "symbol": "diamond", "size": 10})
            for kind in sorted(set(kinds), key=lambda kind: kind.rank)
        ],
        _reach([asked.slowdown, *(value for s in found for value in (s.low, s.high, s.before))]),
        _AXIS,
        asked=asked.slowdown,
    )
    return CHANGES.block(
        _changes_title(asked.slowdown, found),
        f"One thing is changed at a time, for {asked.sharding} sharding: "
        f"{'' if lead else 'its exchange, '}the library, the machine, or the batch. Each bar goes from the "
        "slowdown now to the slowdown after the change; whiskers are its 95 % band. "
        f"{_evidence_words(kinds)}",
        figure,
        _source(asked, "each bar is a full projection"),
        [columns_record(_CHANGE, change) for change in found],
    )


def _changes_title(before: float, found: Sequence[Sensitivity]) -> str:
    """The title: the most helpful change from the slowdown ``before``."""
    first = found[0]
    words = f"{first.label} would help most: {format_ratio(before)} becomes {format_ratio(first.after)}"
    return sentence(words)


def _reach(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.1, max(values) * 1.1


_CHANGE = (
    Column(text=lambda s: safe(s.label), data={"change": attrgetter("label")} | attributes("option")),
    Column(
        text=lambda s: f"{format_ratio(s.before)} → {format_ratio(s.after)}",
        data=attributes("before", "after"),
    ),
    Column(
        text=lambda s: f"band {format_ratio(s.low)} – {format_ratio(s.high)}", data=attributes("low", "high")
    ),
    Column(text=lambda s: f"evidence: {s.evidence}", data=attributes("evidence")),
    Column(text=lambda s: safe(s.option)),
)


def _change(s: Sensitivity) -> list[dict[str, Any]]:
    """Plotly traces of a row: a bar from the present slowdown to the changed slowdown, a mark and a band."""
    colour, words, name = style.EVIDENCE_COLOURS[s.evidence], told(_CHANGE, s), safe(s.label)
    marker = {"color": colour, "size": 10, "symbol": "diamond"}
    ends = whiskers([s.after], [s.low], [s.high], thickness=1.5, width=5)
    after = scatter([s.after], [], words, name, marker, error_x=ends)
    return [bar(s.before, s.after, words, colour, name), after]


def _evidence_words(found: Sequence[Evidence]) -> str:
    one = len(set(found)) == 1
    return f"The weakest evidence of each is {found[0]}." if one else "Colours show its weakest evidence."


def _source(asked: Answer, how: str) -> str:
    names = ", ".join(dict.fromkeys(asked.calibrations))
    return f"Machine {asked.setting.machine.name}; calibration {names}; {how}."


# Heat maps


def plane(asked: Answer, across: str, up: str) -> pd.DataFrame:
    """Projections in which two parameters vary around the question's values, as a frame.

    across, up  the parameters: two of batch, pooling, table_count and dim
    Bytes of the tables and GPUs stay; impossible points (fewer rows than GPUs, no memory) are left out.
    Limits: for equal tables only
    """
    work, forward = asked.work, asked.forward
    group = work.groups[0]
    own = {"batch": work.batch, "pooling": group.pooling, "table_count": group.count, "dim": group.dim}
    values = {name: [float(np.asarray(v).flat[0])] for name, v in own.items()}
    for name in (across, up):
        values[name] = around(values[name][0], *_STEPS[name], whole=name != "pooling")
    dtype = DTYPES[int(np.asarray(group.dtype).flat[0])]
    columns = grids.combine_axes(
        table_bytes=(float(work.table_bytes[0]),), gpus=(asked.gpus,), id_bytes=(float(work.id_bytes[0]),),
        **values,
    )  # fmt: skip
    machine, reserve = asked.setting.machine, asked.gpu_count.reserve
    known: dict[str, Any] = {"dtype": dtype, "reserve": reserve, "gpus_per_node": forward.gpus_per_node}
    options = {
        **known, "setting": asked.setting, "reduction": forward.reduction, "payload": forward.payload,
        "distribution": forward.ids, "optimizer": forward.optimizer,
        "objective": OBJECTIVES[forward.training],
    }  # fmt: skip
    kept = grids.find_feasible(columns, machine, training=forward.training, **known)
    frame = project_row_wise({name: column[kept] for name, column in columns.items()}, machine, **options)
    return frame[frame["fits"]] if asked.gpu_count.fits else frame


def around(value: float, factor: float, below: int, count: int, *, whole: bool) -> list[float]:
    """``count`` values around ``value``, each ``factor`` times the value before.

    below   how many of them are smaller than ``value``;  whole  whether these must be whole numbers
    Limits: a smaller value would be below 1, or not whole -> another larger value instead
    """
    smaller = [value / factor**k for k in range(below, 0, -1)]
    kept = [v for v in smaller if v >= 1 and (not whole or v.is_integer())]
    return [*kept, *(value * factor**k for k in range(count - len(kept)))]


def heat_map(asked: Answer, frames: Sequence[pd.DataFrame] = ()) -> Block | Missing:
    """Heat maps of the slowdown over batch and pooling, and over tables and dim, in two views.

    frames  from ``plane`` for each of ``_PLANES``, or from a sweep with the same columns; (): computed
    """
    if asked.gpus == 1:
        return HEAT_MAP.missing(_ONE_GPU)
    if len(asked.work.groups) > 1 or not asked.work.groups[0].plain:
        return HEAT_MAP.missing("the tables of a set have their own pooling and dim: ask about equal tables.")
    frames = frames or [plane(asked, *names) for names in _PLANES]
    everything = np.concatenate([f["slowdown"].to_numpy(float) for f in frames])
    low, high = float(everything.min()), float(everything.max())
    figure = style.new_figure(
        [
            _heat(frame, names) | {"visible": names == _PLANES[0]}
            for frame, names in zip(frames, _PLANES, strict=True)
        ],
        height=440,
        coloraxis={
            "colorscale": _SCALE, "cmin": float(np.log10(low)),
            "cmax": float(np.log10(max(high, 1.02 * low))), "showscale": False,
        },
        **_axes(_PLANES[0], frames[0], asked),
    )  # fmt: skip
    switches = [
        Switch(
            " × ".join(_NAMES[name] for name in names),
            {"visible": [other == names for other in _PLANES]},
            _axes(names, frame, asked),
            _heat_title(asked, frame, names),
        )
        for names, frame in zip(_PLANES, frames, strict=True)
    ]
    return HEAT_MAP.block(
        switches[0].title,
        "Each cell is the slowdown with two values of the tables changed; darker is slower. The framed cell "
        "has the values that were asked for.",
        figure,
        _source(asked, "each cell is a full projection"),
        tuple(_cell_row(row) for frame in frames for row in frame.to_dict(orient="records")),
        tuple(switches),
    )


def _axes(names: tuple[str, str], frame: pd.DataFrame, asked: Answer) -> dict[str, Any]:
    """Plotly settings of both axes, and the frame around the question's cell. names  of the axes' columns"""
    across, up = (_NAMES[name] for name in names)
    same = {"type": "category", "showgrid": False, "tickangle": 0}
    return {"xaxis": style.axis(f"{across} (per GPU)" if across == "batch" else across, **same),
            "yaxis": style.axis(up, **same), "shapes": _frame(names, frame, asked)}  # fmt: skip


def _frame(names: tuple[str, str], frame: pd.DataFrame, asked: Answer) -> list[dict[str, Any]]:
    """A plotly shape around the question's cell. Limits: the frame lacks its values -> none"""
    work, group = asked.work, asked.work.groups[0]
    own = {"batch": work.batch, "pooling": group.pooling, "table_count": group.count, "dim": group.dim}
    places = []
    for name in names:
        values = sorted(set(frame[name].astype(float)))
        value = float(np.asarray(own[name]).flat[0])
        if value not in values:
            return []
        places.append(values.index(value))
    x, y = places
    line = {"color": style.PALETTE[0], "width": 4}
    return [{"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": line}]


def _heat(frame: pd.DataFrame, names: tuple[str, str]) -> dict[str, Any]:
    """A plotly heat map of the slowdown over two columns (``names``); impossible points are empty cells."""
    across, up = names
    columns, rows = (sorted(set(frame[name].astype(float))) for name in names)
    known = {(float(r[across]), float(r[up])): r for r in frame.to_dict(orient="records")}
    return heat_cells(
        [_value(across, x) for x in columns],
        [_value(up, y) for y in rows],
        [[known.get((x, y)) for x in columns] for y in rows],
        lambda cell: float(np.log10(cell["slowdown"])) if cell else None,
        lambda cell: format_ratio(float(cell["slowdown"])) if cell else "",
        lambda cell: _cell_text(cell, names),
        coloraxis="coloraxis",
        name=f"{_NAMES[across]} × {_NAMES[up]}",
    )


def _value(name: str, value: float) -> str:
    return f"{value:g}" if name == "pooling" else format_count(value)


def _cell_text(cell: dict[Any, Any] | None, names: tuple[str, str]) -> str:
    if cell is None:
        return "not possible: fewer rows than GPUs"
    low, high = (format_ratio(float(cell[key])) for key in ("slowdown_low", "slowdown_high"))
    return hover(
        [
            ", ".join(f"{_NAMES[name]} {_value(name, float(cell[name]))}" for name in names),
            f"{format_ratio(float(cell['slowdown']))}, band {low} – {high}",
            f"evidence: {cell['evidence']}",
        ]
    )


def _heat_title(asked: Answer, frame: pd.DataFrame, names: tuple[str, str]) -> str:
    """The title of a heat map: its lowest and its highest slowdown. names  of the columns of its axes"""
    cells = frame.sort_values("slowdown", kind="stable").to_dict("records")

    def words(cell: dict[Any, Any]) -> str:
        where = ", ".join(f"{_NAMES[name]} {_value(name, float(cell[name]))}" for name in names)
        return f"{format_ratio(float(cell['slowdown']))} ({where})"

    return sentence(
        f"of row-wise shards, for tables of the same size, the slowdown goes from {words(cells[0])} "
        f"to {words(cells[-1])}"
    )


def _cell_row(row: dict[Any, Any]) -> dict[str, Any]:
    what = ("table_bytes", "gpus", "batch", "table_count", "pooling", "dim")
    numbers = (*what, "slowdown", "slowdown_low", "slowdown_high", "time_s")
    return {**{name: float(row[name]) for name in numbers}, "evidence": str(row["evidence"])}
