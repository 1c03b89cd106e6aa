"""A drawing that figures share: tasks as horizontal bars from start to end, on rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.report.figures import style
from perfmodel.report.figures.gpu_columns import time_unit

_THICK = 0.5  # of a row: the height of its bars
_NAMED = 0.012  # of the axis: the shortest bar that may have its name above
_NARROWEST = 900  # pixels of the narrowest figure
_LETTER = 0.0091  # width of a letter, as a part of the axis of that figure


@dataclass(frozen=True)
class Bar:
    """A bar: a task, or a part of it, on a row.

    kind      its legend: kernel, exposed, hidden …;  name  of the task
    batch     number of the batch that it works for;  critical  whether it is on the critical path
    whole_s   how long the whole task takes [s]
    """

    row: str
    kind: str
    name: str
    start_s: float
    end_s: float
    batch: int = 0
    critical: bool = False
    whole_s: float = 0.0


def time_bars(
    bars: Sequence[Bar],
    rows: Sequence[str],
    looks: Mapping[str, Mapping[str, Any]],
    words: Callable[[Bar], str],
) -> Any:
    """A plotly figure of bars over time; with several batches, the first and the last are paler.

    rows     from the top; rows without bars are left out
    looks    by kind of bar, in the order of the legend, its plotly settings
    words    returns the hover text of a bar
    """
    rows = seen_rows(bars, rows)
    end_s, last = (max((getattr(bar, name) for bar in bars), default=0) for name in ("end_s", "batch"))
    factor, unit = time_unit(end_s)
    traces = []
    for kind, look in looks.items():
        mine = [bar for bar in bars if bar.kind == kind]
        pale = [1.0 if last == 0 or 0 < bar.batch < last else 0.5 for bar in mine]
        trace = {
            "type": "bar", "orientation": "h", "width": _THICK, "name": kind, "hoverinfo": "text",
            "x": [factor * (bar.end_s - bar.start_s) for bar in mine],
            "base": [factor * bar.start_s for bar in mine],
            "y": [rows.index(bar.row) for bar in mine],
            "hovertext": [words(bar) for bar in mine],
            "marker": {"opacity": pale, "line": {"color": "rgba(255,255,255,0.7)", "width": 0.8}, **look},
        }  # fmt: skip
        traces += [trace] if mine else []
    return style.new_figure(
        traces,
        barmode="overlay",
        height=130 + 66 * len(rows),
        meta={"min_width": _NARROWEST},
        annotations=_names(bars, rows, factor, end_s),
        xaxis=style.axis(f"time ({unit})", range=[0, 1.01 * factor * end_s]),
        yaxis=style.axis(**row_ticks(rows), showgrid=False, zeroline=False),
    )


def seen_rows(bars: Sequence[Bar], rows: Sequence[str]) -> list[str]:
    """The rows among ``rows`` that have a bar."""
    return [row for row in rows if any(bar.row == row for bar in bars)]


def row_ticks(labels: Sequence[str]) -> dict[str, Any]:
    """Plotly settings of a y axis with a label for each row, the first on top."""
    ticks = {"tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": list(labels)}
    return {**ticks, "range": [len(labels) - 0.4, -0.6]}


def _names(bars: Sequence[Bar], rows: Sequence[str], factor: float, end_s: float) -> list[dict[str, Any]]:
    """Plotly annotations: the names of tasks above their bars, longest bars first, where there is room.

    factor  units of the axis per second;  end_s  the end of the axis [s]
    """
    spans: dict[tuple[str, str, int], tuple[float, float]] = {}
    for bar in bars:
        key = (bar.row, bar.name, bar.batch)
        start_s, last_s = spans.get(key, (bar.start_s, bar.end_s))
        spans[key] = min(start_s, bar.start_s), max(last_s, bar.end_s)
    taken: dict[str, list[tuple[float, float]]] = {row: [] for row in rows}
    shown = []
    for (row, name, _), (start_s, last_s) in sorted(spans.items(), key=lambda item: item[1][0] - item[1][1]):
        half = _LETTER * end_s * len(name) / 2
        middle = min(max((start_s + last_s) / 2, half), end_s - half)
        clear = all(middle + half < low or middle - half > high for low, high in taken[row])
        if last_s - start_s >= _NAMED * end_s and clear:
            taken[row].append((middle - half, middle + half))
            shown.append(
                {"text": name, "x": factor * middle, "y": rows.index(row) - _THICK / 2 - 0.02}
                | {"yanchor": "bottom", "showarrow": False, "font": {"size": 11}, "borderpad": 0}
            )
    return shown
