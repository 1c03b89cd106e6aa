"""Lines over table sizes or GPUs, with bands, dashes by evidence, labels, and rules where a node is full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from perfmodel.answer import Answer
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
    """The results of an exchange over table sizes or numbers of GPUs.

    label     the library and exchange in words
    frame     as ``perfmodel.project`` returns it, with a row for each size or number, increasing
    supposed  whether it is for hardware that the machine does not have
    style     number of its colour and marker; None: its position among the lines
    """

    label: str
    frame: pd.DataFrame
    supposed: bool = False
    style: int | None = None


@dataclass(frozen=True, eq=False)
class Drawn:
    """A line with its looks and its points.

    rows    a dictionary for each point: the columns that are drawn, evidence, main_evidence
    first   whether it is the line in question, which is drawn stronger;  marked  with markers
    """

    label: str
    colour: str
    symbol: str
    rows: tuple[dict[str, Any], ...]
    first: bool
    marked: bool = True

    def values(self, name: str) -> list[Any]:
        """The value of ``name`` at each point."""
        return [row[name] for row in self.rows]


@dataclass(frozen=True)
class Columns:
    """Names of the columns that a figure draws: x, y, and the ends of the band."""

    x: str
    y: str
    low: str
    high: str


def drawn_of(lines: Sequence[SlowdownLine], columns: Sequence[str]) -> list[Drawn]:
    """The lines, each with a colour, a marker, and the values of ``columns``; the first is drawn stronger."""
    kinds = [at if line.style is None else line.style for at, line in enumerate(lines)]
    return [
        Drawn(line.label, style.colour(kind), style.symbol(kind), tuple(_rows(line, columns)), at == 0)
        for at, (kind, line) in enumerate(zip(kinds, lines, strict=True))
    ]


def _rows(line: SlowdownLine, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A dictionary for each point of a line: the values of ``names`` in SI units, and the evidence."""
    columns = [line.frame[name].tolist() for name in (*names, "evidence", "main_evidence")]
    for *numbers, weakest, main in zip(*columns, strict=True):
        values = {name: float(value) for name, value in zip(names, numbers, strict=True)}
        yield {"line": line.label, **values, "evidence": str(weakest), "main_evidence": str(main)}


def traces(line: Drawn, shown: Columns, lines: Callable[[Row], list[str]]) -> Iterator[Any]:
    """Plotly traces of a line: the ribbon of its band, then each stretch with the same main evidence.

    lines  returns the lines of hover text of a point, without the name and the evidence
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
    """The y values of each trace that ``traces`` yields: the ribbon's, then each stretch's."""
    low, high, y = (line.values(name) for name in (shown.low, shown.high, shown.y))
    return [[*high, *reversed(low)], *(y[part] for part, _ in _parts(line))]


def _parts(line: Drawn) -> Iterator[tuple[slice, str]]:
    """Stretches of a line with the same evidence: the slice of their points, and the evidence.

    A slice begins with the last point of the stretch before, so that the drawn line has no gaps.
    """
    evidence = line.values("main_evidence")
    for kind, members in groupby(range(len(evidence)), key=lambda at: evidence[at]):
        span = list(members)
        yield slice(max(span[0] - 1, 0), span[-1] + 1), kind


def labels(drawn: Sequence[Drawn], x: str, y: str, scale: PixelScale) -> list[dict[str, Any]]:
    """Plotly annotations: the name of each line at its end, moved where names would overlap."""
    ends = [LabelledEnd(safe(d.label), d.rows[-1][x], d.rows[-1][y], d.colour) for d in drawn]
    return end_labels(ends, scale)


def fastest_other(lines: Sequence[SlowdownLine], axis: str, at: float) -> tuple[float, str] | None:
    """The least slowdown of all lines but the first, at a value of the column ``axis``; and its label.

    Limits: no other line of this machine has that value -> None
    """
    found = []
    for line in lines[1:]:
        here = abs(line.frame[axis].to_numpy() / at - 1) < 1e-9
        if here.any() and not line.supposed:
            found.append((float(line.frame["slowdown"].to_numpy()[here][0]), line.label))
    return min(found, default=None)


def dash_words(main: Iterable[str]) -> str:
    """What the dashes mean. main  for each point, the weakest evidence behind much of its time"""
    share = f"{100 * MAIN_SHARE:g} %"
    words = named_dashes(map(Evidence, main))
    return f"line styles show the weakest evidence behind more than {share} of the time: {words}"


def named_dashes(used: Iterable[Evidence]) -> str:
    """Dashes with their evidence, the strongest first: ``dotted = extrapolated, long dash-dot = assumed``."""
    kinds = sorted(set(used), key=lambda e: e.rank)
    return ", ".join(f"{_DASH_WORDS[style.DASHES[kind]]} = {kind}" for kind in kinds)


def _evidence_words(row: Row) -> str:
    """The evidence of a row: ``evidence: transferred; in part assumed``."""
    main, weakest = row["main_evidence"], row["evidence"]
    return f"evidence: {main if main == weakest else f'{main}; in part {weakest}'}"


def ratio_words(row: Row) -> list[str]:
    """The slowdown with its band, and the two times of which it is the ratio."""
    middle, low, high = (format_ratio(row[name]) for name in ("slowdown", "slowdown_low", "slowdown_high"))
    time, base = (format_time(row[name]) for name in ("time_s", "baseline_time_s"))
    return [f"{middle}, band {low} – {high}", f"{time} instead of {base}"]


_DASH_WORDS = {
    "solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "dash-dot", "longdash": "long dashes",
    "longdashdot": "long dash-dot",
}  # fmt: skip


def rule_words(places: Sequence[tuple[float, str]], left: float, right: float) -> list[dict[str, Any]]:
    """A label left of each rule's upper end; the x axis is logarithmic from ``left`` to ``right``.

    Limits: a rule near the left end, where the label would cover the ticks -> right of the rule
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
"""Share of an axis that a rule's label may take."""


def full(asked: Answer) -> Iterator[tuple[int, str]]:
    """Numbers of GPUs that fill a node, or a scale-up domain if that is larger, with a label for each."""
    count, domain = asked.gpu_count, asked.setting.machine.nvlink_domain_gpus
    node = count.gpus_per_node
    if node > 1:
        yield node, f"node of {node} ends "
    if domain not in (1, node):
        yield domain, f"{asked.setting.machine.links.scale_up} domain of {domain} ends "


def source(asked: Answer, rows: Sequence[Row]) -> str:
    """The line below the figure: machine, calibration, and the weakest evidence of its points."""
    weakest = Evidence.weakest(Evidence(row["evidence"]) for row in rows)
    return (
        f"Machine {asked.setting.machine.name}; calibration {', '.join(dict.fromkeys(asked.calibrations))}; "
        f"weakest evidence: {weakest}."
    )
