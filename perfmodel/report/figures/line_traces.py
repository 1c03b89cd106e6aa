"""Lines over sizes or GPUs: ribbons, dashes by evidence, names at their ends, rules where a node is full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfmodel.projections import Projection
from perfmodel.report.figures import style
from perfmodel.report.figures.ends import LabelledEnd, PixelScale, end_labels
from perfmodel.report.figures.marks import NAMED
from perfmodel.report.figures.words import hover, safe
from perfmodel.schema.evidence import MAIN_SHARE, Evidence
from perfmodel.units import format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class SlowdownLine:
    """One way to exchange over many sizes or numbers of GPUs.

    frame   what ``perfmodel.project`` gives, a row a size or number, increasing
    """

    label: str
    frame: pd.DataFrame
    supposed: bool = False  # of other hardware than the machine has
    style: int | None = None  # number of its colour and marker; None: its place among the lines


@dataclass(frozen=True, eq=False)
class Drawn:
    """A line with its numbers as lists."""

    label: str
    colour: str
    symbol: str
    rows: tuple[dict[str, Any], ...]
    first: bool
    marked: bool = True  # whether its points have markers

    def values(self, name: str) -> list[Any]:
        """A column."""
        return [row[name] for row in self.rows]


@dataclass(frozen=True)
class Columns:
    """What is drawn of the rows of a line."""

    x: str
    y: str
    low: str
    high: str


def drawn_of(lines: Sequence[SlowdownLine], columns: Sequence[str]) -> list[Drawn]:
    """Every line with these columns of its frame, its colour and its marker; the first is drawn stronger."""
    kinds = [at if line.style is None else line.style for at, line in enumerate(lines)]
    return [
        Drawn(line.label, style.colour(kind), style.symbol(kind), tuple(_rows(line, columns)), at == 0)
        for at, (kind, line) in enumerate(zip(kinds, lines, strict=True))
    ]


def _rows(line: SlowdownLine, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of the data: numbers in SI units."""
    columns = [line.frame[name].tolist() for name in (*names, "evidence", "main_evidence")]
    for *numbers, weakest, main in zip(*columns, strict=True):
        values = {name: float(value) for name, value in zip(names, numbers, strict=True)}
        yield {"line": line.label, **values, "evidence": str(weakest), "main_evidence": str(main)}


def traces(line: Drawn, shown: Columns, lines: Callable[[Row], list[str]]) -> Iterator[Any]:
    """The ribbon, then the line in parts of one main evidence each.

    lines  what a hover says of a row, under the name of the line and above its evidence
    """
    name = safe(line.label)
    same = {"type": "scatter", "legendgroup": name, "name": name}
    ribbon, *parts = heights(line, shown)
    x = line.values(shown.x)
    yield {
        **same, "x": [*x, *reversed(x)], "y": ribbon, "fill": "toself", "line": {"width": 0},
        "fillcolor": style.faded(line.colour, 0.14 if line.first else 0.04), "mode": "lines",
        "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    words = [hover([*lines(row), _evidence_words(row)]) for row in line.rows]
    first = True
    for (part, kind), y in zip(_parts(line), parts, strict=True):
        dash = style.DASHES[Evidence(kind)]
        yield {
            **same, "x": x[part], "y": y, "hovertext": words[part], "hovertemplate": NAMED,
            "line": {"color": line.colour, "width": 3 if line.first else 2, "dash": dash},
            "mode": "lines+markers" if line.marked else "lines",
            "marker": {"symbol": line.symbol, "size": 8, "color": line.colour, "maxdisplayed": 7},
            "showlegend": first,
        }  # fmt: skip
        first = False


def heights(line: Drawn, shown: Columns) -> list[list[float]]:
    """The y of each of ``traces``: of the ribbon, then of the parts."""
    low, high, y = (line.values(name) for name in (shown.low, shown.high, shown.y))
    return [[*high, *reversed(low)], *(y[part] for part, _ in _parts(line))]


def _parts(line: Drawn) -> Iterator[tuple[slice, str]]:
    """Neighbours of one evidence, each with the point before it: a dash each."""
    evidence = line.values("main_evidence")
    for kind, members in groupby(range(len(evidence)), key=lambda at: evidence[at]):
        span = list(members)
        yield slice(max(span[0] - 1, 0), span[-1] + 1), kind


def labels(drawn: Sequence[Drawn], x: str, y: str, scale: PixelScale) -> list[dict[str, Any]]:
    """The name of each line at its end, moved up or down where two would overlap."""
    ends = [LabelledEnd(safe(d.label), d.rows[-1][x], d.rows[-1][y], d.colour) for d in drawn]
    return end_labels(ends, scale)


def fastest_other(lines: Sequence[SlowdownLine], axis: str, at: float) -> tuple[float, str] | None:
    """The least slowdown of the lines after the first at one value of ``axis``, and of which it is.

    Limits: no other line of this machine has that value -> None
    """
    found = []
    for line in lines[1:]:
        here = abs(line.frame[axis].to_numpy() / at - 1) < 1e-9
        if here.any() and not line.supposed:
            found.append((float(line.frame["slowdown"].to_numpy()[here][0]), line.label))
    return min(found, default=None)


def dash_words(main: Iterable[str]) -> str:
    """What the dashes of lines mean.

    main  evidence that much of the time of a point rests on, of all points
    """
    share = f"{100 * MAIN_SHARE:g} %"
    words = named_dashes(map(Evidence, main))
    return f"line styles show the weakest evidence behind more than {share} of the time: {words}"


def named_dashes(used: Iterable[Evidence]) -> str:
    """``dotted = extrapolated, long dash-dot = assumed``: the strongest first."""
    kinds = sorted(set(used), key=lambda e: e.rank)
    return ", ".join(f"{_DASH_WORDS[style.DASHES[kind]]} = {kind}" for kind in kinds)


def _evidence_words(row: Row) -> str:
    """``evidence: transferred; in part assumed``."""
    main, weakest = row["main_evidence"], row["evidence"]
    return f"evidence: {main if main == weakest else f'{main}; in part {weakest}'}"


def ratio_words(row: Row) -> list[str]:
    """The slowdown with its band, and both times that it is of."""
    middle, low, high = (format_ratio(row[name]) for name in ("slowdown", "slowdown_low", "slowdown_high"))
    time, base = (format_time(row[name]) for name in ("time_s", "baseline_time_s"))
    return [f"{middle}, band {low} – {high}", f"{time} instead of {base}"]


_DASH_WORDS = {
    "solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot", "longdash": "long dashes",
    "longdashdot": "long dash-dot",
}  # fmt: skip


def rule_words(places: Sequence[tuple[float, str]], left: float, right: float) -> list[dict[str, Any]]:
    """What each rule is, left of its upper end; the x axis is logarithmic from ``left`` to ``right``.

    Limits: a rule near the left end, where words would cover the ticks -> right of it
    """
    near = left * (right / left) ** _NEAR_LEFT
    return [
        {
            "x": math.log10(x), "y": 1, "yref": "paper", "yanchor": "top",
            "xanchor": "left" if x < near else "right",
            "text": f" {words}" if x < near else words, "showarrow": False, "font": {"size": 12},
        }
        for x, words in places
    ]  # fmt: skip


_NEAR_LEFT = 0.25
"""Share of an axis that the words of a rule may take."""


def full(asked: Projection) -> Iterator[tuple[int, str]]:
    """GPUs that fill a node, and a scale-up domain where that is another."""
    count, domain = asked.gpu_count, asked.setting.machine.nvlink_domain_gpus
    node = count.gpus_per_node
    if node > 1:
        yield node, f"node of {node} ends "
    if domain not in (1, node) and not asked.setting.one_domain:
        yield domain, f"{asked.setting.machine.links.scale_up} domain of {domain} ends "


def source(asked: Projection, rows: Sequence[Row]) -> str:
    """Machine, calibration, and the weakest evidence of what is drawn."""
    weakest = Evidence.weakest(Evidence(row["evidence"]) for row in rows)
    return (
        f"Machine {asked.setting.machine.name}; calibration {', '.join(dict.fromkeys(asked.calibrations))}; "
        f"weakest evidence: {weakest}."
    )
