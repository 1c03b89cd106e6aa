"""The figure of predicted against measured times."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from perfmodel.report.figures.chart import (
    RULE,
    Axis,
    Block,
    Row,
    draw_rule,
    draw_series,
    name_collective,
    new_figure,
)
from perfmodel.report.figures.subject import Subject
from perfmodel.resources import data_path
from perfmodel.units import counted, format_bytes, format_fraction, format_time

_MEASURED = Axis("time_s", "measured time", "s")
_PREDICTED = Axis("predicted_s", "predicted time", "s")
_RATIO = Axis("ratio", "predicted over measured (×)", "×")
_STORED = {
    "a cluster left out of the fit": "clusters_left_out.csv",
    "more nodes than in the fit": "nodes_left_out.csv",
}
"""Files of data/validation by the kind of their points."""
_NUMBERS = ("gpus", "payload_bytes", "time_s", "predicted_s", "low_s", "high_s")


def draw_validation(_: Subject) -> Block:
    """Predicted against measured, of clusters and numbers of nodes that no fit used."""
    return compare_points(list(read_held_out()))


def read_held_out() -> Iterator[dict[str, Any]]:
    """Predictions of points that no fit used, as ``benchmarks/accuracy.py --write`` has stored them."""
    for kind, name in _STORED.items():
        with data_path("validation", name).open(encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                words = {"line": kind, "machine": row["machine"], "collective": row["collective"]}
                yield {**words, **{name: float(row[name]) for name in _NUMBERS}}


def compare_points(points: Sequence[Row]) -> Block:
    """Predicted against measured times, and their ratio below. points  rows of ``read_held_out``"""
    rows: list[Row] = []
    for point in points:
        inside = point["low_s"] <= point["time_s"] <= point["high_s"]
        rows.append({**point, "ratio": point["predicted_s"] / point["time_s"], "inside": inside})
    half, nine_tenths = (_find_error(rows, share) for share in (0.5, 0.9))
    inside = format_fraction(float(np.mean([row["inside"] for row in rows])))
    most = counted(int(max(row["gpus"] for row in rows)), "GPU")
    title = (
        f"Of {counted(len(rows), 'point')} left out of the fits, on up to {most}, half are predicted within "
        f"{half} and 90 % within {nine_tenths}; {inside} are inside their 95 % band."
    )
    parts, traces = [], []
    for number, kind in enumerate(dict.fromkeys(row["line"] for row in rows)):
        members = [row for row in rows if row["line"] == kind]
        parts.append(f"{kind}, {counted(len(members), 'point')}, median error {_find_error(members, 0.5)}")
        for place, y in enumerate((_PREDICTED, _RATIO)):
            traces += draw_series(members, (_MEASURED, y), number, (0, place), _describe, marks=True)
    low, high = (end(row["time_s"] for row in rows) for end in (min, max))
    ends = {"x0": low, "y0": low, "x1": high, "y1": high, "xref": "x", "yref": "y"}
    diagonal = {"type": "line", **ends, "line": {"color": RULE, "width": 1}}
    look = {"height": 680, "shapes": [diagonal, draw_rule("y2", 1.0)]}
    figure = new_figure(traces, [_MEASURED], [_PREDICTED, _RATIO], **look)
    how = "On the line, a prediction is exact. Below: predicted divided by measured."
    source = f"Predicted and measured: {'; '.join(parts)}."
    return Block("validation", title, how, figure, source, rows)


def _find_error(rows: Sequence[Row], share: float) -> str:
    """The error that this share of the points does not exceed, in words."""
    return format_fraction(float(np.quantile([abs(row["ratio"] - 1) for row in rows], share)))


def _describe(row: Row) -> str:
    names = [row["machine"], name_collective(row["collective"]), format_bytes(row["payload_bytes"])]
    band = f"95 % band {format_time(row['low_s'])} – {format_time(row['high_s'])}"
    return ", ".join(
        [*names, counted(int(row["gpus"]), "GPU"), f"{format_time(row['time_s'])} measured", band]
    )
