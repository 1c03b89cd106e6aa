"""Figure of the fastest sharding: every sharding at every table size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import Size
from perfmodel.answer.uniform_plans import Impossible
from perfmodel.engine.schemes import ROWS_ONCE
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import heat_cells
from perfmodel.report.figures.registry import SHARDINGS
from perfmodel.report.figures.words import hover, library_name, size_words
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_count, format_fraction, format_ratio, format_time

SCALE = ((0.0, "#63a9d2"), (0.35, "#9cc8e0"), (0.7, "#d3e2ea"), (1.0, "#f2f2f2"))
"""Colours, all light enough for dark numbers."""
_SAME = 1e-6  # of a time: equally fast
_LARGEST_RATIO = 4.0  # of a time to the fastest: slower cells have the last colour


def shardings(sizes: Sequence[Size]) -> Block | Missing:
    """A heat map of shardings by table size: numbers are slowdowns, colours times over the fastest.

    Limits: every size fits on one GPU -> Missing
    """
    spread = [size for size in sizes if size.base.gpus > 1]
    if not spread:
        return SHARDINGS.missing("every size here fits on one GPU: ask for larger tables with --table-size.")
    names = [answer.sharding for answer in spread[0].answers]
    ways = [name for name in names if any(isinstance(_of(size, name), Answer) for size in spread)]
    never = [name for name in names if name not in ways]
    cells = heat_cells(
        [f"{size_words(size.table_bytes)}<br>{format_count(size.base.gpus)}" for size in spread],
        ways,
        [[(size, _of(size, way)) for size in spread] for way in ways],
        lambda cell: _heat(*cell),
        lambda cell: format_ratio(cell[1].slowdown) if isinstance(cell[1], Answer) else "",
        lambda cell: _hover(*cell),
        colorscale=[list(pair) for pair in SCALE],
        zmin=0,
        zmax=1,
    )
    figure = style.new_figure(
        [cells],
        height=114 + 34 * len(ways),
        margin={"l": 150, "r": 24, "t": 40, "b": 72},
        showlegend=False,
        shapes=_frames(spread, ways),
        meta={"min_width": 680},
        xaxis=style.axis("bytes of all tables, and GPUs", type="category", showgrid=False, tickangle=0),
        yaxis=style.axis(autorange="reversed", type="category", showgrid=False),
    )
    rows = [row for size in spread for row in _rows(size)]
    library = library_name(str(spread[0].base.setting.backend))
    how = (
        f"All use {library}; the first figure has other libraries. Each column is a size of the tables. "
        "Numbers are slowdowns against one GPU that holds all tables; darker is faster within a column. "
        "Frames mark the fastest and those as fast. Empty cells are not possible."
    )
    if ROWS_ONCE in ways:
        how += f" {ROWS_ONCE} sends unique rows, which are pooled at the receiver."
    if never:
        how += f" Not possible at any size here: {', '.join(never)}."
    return SHARDINGS.block(_title(spread, library), how, figure, _source(spread), rows)


def _title(spread: Sequence[Size], library: str) -> str:
    """The title: which sharding is the fastest, from which table size to which."""
    runs = [(way, list(members)) for way, members in groupby(spread, key=lambda size: size.best.sharding)]
    if len(runs) == 1:
        alike = [
            answer.sharding
            for answer in spread[0].answers
            if answer.sharding != runs[0][0]
            and all(_as_fast(size, _of(size, answer.sharding)) for size in spread)
        ]
        equal = f"; {', '.join(alike)} {'is' if len(alike) == 1 else 'are'} as fast" if alike else ""
        return f"With {library} the {runs[0][0]} sharding is the fastest at every size here{equal}."
    words = []
    for way, members in runs:
        low, high = (size_words(size.table_bytes) for size in (members[0], members[-1]))
        words.append(f"{way} at {low}" if low == high else f"{way} from {low} to {high}")
    return f"With {library} the fastest sharding is {', '.join(words[:-1])}, and {words[-1]}."


def _of(size: Size, way: str) -> Answer | Impossible:
    return next(answer for answer in size.answers if answer.sharding == way)


def _as_fast(size: Size, answer: Answer | Impossible) -> bool:
    """Whether a sharding takes no longer than the fastest sharding at this table size."""
    return isinstance(answer, Answer) and answer.time_s <= size.best.time_s * (1 + _SAME)


def _heat(size: Size, answer: Answer | Impossible) -> float | None:
    """The colour of a cell: 0 for the fastest, 1 for ``_LARGEST_RATIO`` times its time; None: impossible."""
    if isinstance(answer, Impossible):
        return None
    ratio = answer.time_s / size.best.time_s
    return round(min(math.log(ratio) / math.log(_LARGEST_RATIO), 1.0), 4)


def _frames(spread: Sequence[Size], ways: Sequence[str]) -> list[dict[str, Any]]:
    """A frame around the fastest of every column, and around equally fast cells."""
    line = {"color": "#d55e00", "width": 3}
    return [
        {"type": "rect", "x0": at - 0.49, "x1": at + 0.49, "y0": row - 0.46, "y1": row + 0.46, "line": line}
        for at, size in enumerate(spread)
        for row, way in enumerate(ways)
        if _as_fast(size, _of(size, way))
    ]


def _hover(size: Size, answer: Answer | Impossible) -> str:
    head = [
        f"<b>{answer.sharding}</b>",
        f"{size_words(size.table_bytes)} on {counted(size.base.gpus, 'GPU')}",
    ]
    if isinstance(answer, Impossible):
        return hover([*head, f"not possible: {answer.why}"])
    (low, high), longest = answer.band, answer.longest_step
    held = f"{size_words(answer.gpu_count.memory_bytes)} per GPU"
    return hover(
        [
            *head,
            f"{format_ratio(answer.slowdown)}, band {format_ratio(low)} – {format_ratio(high)}",
            f"{format_time(answer.time_s)} per batch; {held}",
            f"longest: {longest.label}, {format_fraction(longest.share)}",
            f"evidence: {answer.evidence}",
        ]
    )


def _rows(size: Size) -> Iterator[dict[str, Any]]:
    for answer in size.answers:
        possible = answer if isinstance(answer, Answer) else None
        low, high = possible.band if possible else (None, None)
        yield {
            "table_bytes": size.table_bytes,
            "gpus": size.base.gpus,
            "sharding": answer.sharding,
            "fastest": _as_fast(size, answer),
            "time_s": possible.time_s if possible else None,
            "slowdown": possible.slowdown if possible else None,
            "slowdown_low": low,
            "slowdown_high": high,
            "memory_bytes": possible.gpu_count.memory_bytes if possible else None,
            "evidence": str(possible.evidence) if possible else None,
            "why_not": getattr(answer, "why", None),
        }


def _source(spread: Sequence[Size]) -> str:
    answers = [answer for size in spread for answer in size.answers if isinstance(answer, Answer)]
    names = ", ".join(dict.fromkeys(name for answer in answers for name in answer.calibrations))
    weakest = Evidence.weakest(answer.evidence for answer in answers)
    return f"Calibration {names}; the best cut of each way; weakest evidence: {weakest}."
