"""Figures of measured collectives: with the fitted curve and the crossover, and beside what was predicted."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from pathlib import Path

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures.chart import (
    RULE,
    Axis,
    Block,
    Row,
    Trace,
    draw_rule,
    draw_series,
    name_axis,
    name_collective,
    name_library,
    new_figure,
)
from perfmodel.report.figures.subject import Subject
from perfmodel.resources import data_path
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Backend, Evidence
from perfmodel.schema.machine import Machine
from perfmodel.units import counted, format_bytes, format_fraction, format_rate, format_time
from perfmodel.validate.crossover import GPUS, Comparison, list_common_sizes

TIME = Axis("time_s", "time", "s")
_FITTED = Axis("fitted_s", "fitted", "s")
_OFF = Axis("off_percent", "off the curve (%)", "%")
_OF_ANSWER = ("all_to_all", "reduce_scatter")
HOW = "Marks are medians, lines fitted curves."


@dataclass(frozen=True, eq=False)
class MeasuredCurve:
    """The curve of a collective with a library."""

    model: CollectiveModel
    curve: Curve

    @property
    def label(self) -> str:
        """The library in words: ``NCCL 2.29.2 (stream)``."""
        c = self.model.calibration
        return f"{name_library(str(c.backend))} {c.library_version} ({c.clock})"

    @cached_property
    def rows(self) -> list[Row]:
        """A row of data for each measured size: its median, and how far that is from the fitted time."""
        c = self.curve
        calibration = self.model.calibration
        sizes = np.array(c.anchor_bytes)
        times = np.array(c.anchor_times_s)
        fitted = hockney_time(sizes, c.alpha_s.value, c.beta_bytes_per_s.value, c.p.value)
        shared = {
            "line": self.label, "calibration": calibration.calibration_id, "clock": str(calibration.clock),
            "backend": str(calibration.backend), "collective": c.collective, "gpus": c.gpus,
            "evidence": str(Evidence.MEASURED),
        }  # fmt: skip
        numbers = {
            "payload_bytes": sizes, "time_s": times, "fitted_s": fitted,
            "off_percent": 100 * (times / fitted - 1),
            "busbw_bytes_per_s": sizes / times * compute_bus_factor(c.collective, c.gpus),
        }  # fmt: skip
        rows = zip(*numbers.values(), strict=True)
        return [shared | dict(zip(numbers, map(float, row), strict=True)) for row in rows]


Series = Mapping[str, Sequence[MeasuredCurve]]
"""By collective, its curve with each library."""


def draw_collectives(subject: Subject) -> Block:
    """All-to-all and reduce-scatter on the most ranks of a node that were measured, by each library.

    The libraries are the answer's own, and the other of NCCL and NVSHMEM if it was measured on this machine.
    Limits: the user's own calibration -> its library alone;  no library was measured here -> BadInputError
    """
    setting = subject.answer.setting
    machine = setting.machine.unchanged()
    clocks = {} if setting.backend == BEST else {setting.backend: setting.clock}
    if setting.calibration is None:
        clocks |= {name: None for name in map(str, (Backend.NCCL, Backend.NVSHMEM)) if name not in clocks}
    loaded = [load_measured(machine, name, clock, setting.calibration) for name, clock in clocks.items()]
    models = [model for model in loaded if model is not None]
    curves = [curve for model in models[:1] for curve in model.calibration.curves]
    inside = [curve for curve in curves if curve.domain_gpus >= curve.gpus]
    gpus = max((curve.gpus for curve in inside if curve.collective in _OF_ANSWER), default=GPUS)
    series = list_series(models, _OF_ANSWER, gpus)
    if not series:
        raise BadInputError(
            f"no collective on {counted(gpus, 'GPU')} was measured on this machine: "
            "perfmodel calibrate --only all_to_all,reduce_scatter"
        )
    words = [describe_curve(line) for lines in series.values() for line in lines]
    title = f"On {counted(gpus, 'GPU')}, {'; '.join(words)}."
    return draw_curves("collectives", title, HOW, series, [TIME, _OFF])


def load_measured(
    machine: Machine, backend: str, clock: str | None = None, calibration: str | Path | None = None
) -> CollectiveModel | None:
    """A library with the preferred clock if None. Limits: not measured on this very machine -> None"""
    try:
        model = CollectiveModel.load(machine, backend, clock, calibration)
    except NoCalibrationError:
        return None
    return None if model.borrowed else model


def list_series(models: Sequence[CollectiveModel], collectives: Sequence[str], gpus: int) -> Series:
    """The curves of these collectives on so many GPUs of a node; a collective without a curve is left out."""
    series: dict[str, list[MeasuredCurve]] = {}
    for name, model in product(collectives, models):
        curve = model.calibration.curve(name, gpus, gpus)
        if curve is not None:
            series.setdefault(name, []).append(MeasuredCurve(model, curve))
    return series


def find_switch(curves: Sequence[MeasuredCurve]) -> tuple[float | None, str]:
    """(size from which another library is faster than at small sizes, the name of that library).

    Limits: not two libraries, no size in common, or one is faster at all sizes -> None
    """
    low = max(line.curve.anchor_bytes[0] for line in curves)
    if len(curves) != 2 or low >= min(line.curve.anchor_bytes[-1] for line in curves):
        return None, ""
    sizes = list_common_sizes([line.curve for line in curves])
    times = {x: x.model.estimate(x.curve.collective, sizes, x.curve.gpus).time_s for x in curves}
    pair = sorted(times, key=lambda line: times[line].tolist())
    size = Comparison(sizes, *(times[x] for x in pair)).crossover_bytes  # first: faster at small sizes
    return None if size == inf else size, pair[1].label.partition(" ")[0]


def describe_curve(line: MeasuredCurve) -> str:
    """What a curve says: its floor, its rate, and how far the medians are from it."""
    half = format_fraction(float(np.median([abs(row["off_percent"]) for row in line.rows])) / 100)
    return (
        f"{name_collective(line.curve.collective)} by {line.label} takes at least "
        f"{format_time(min(row['time_s'] for row in line.rows))} and reaches "
        f"{format_rate(max(row['busbw_bytes_per_s'] for row in line.rows))} on the bus, half of the medians "
        f"within {half} of the curve"
    )


def draw_curves(name: str, title: str, how: str, series: Series, ys: Sequence[Axis]) -> Block:
    """A figure: a column of panes for each collective of ``series``. ys  the axis of each row of panes"""
    lines = [line for curves in series.values() for line in curves]
    labels = list(dict.fromkeys(line.label for line in lines))
    xs = [Axis("payload_bytes", f"{name_collective(key)}: payload of one GPU", "KiB") for key in series]
    traces: list[Trace] = []
    rules: list[Trace] = []
    for column, (x, curves) in enumerate(zip(xs, series.values(), strict=True)):
        for line in curves:
            number = labels.index(line.label)
            fitted = [{**row, "evidence": Evidence.INTERPOLATED} for row in line.rows]
            law = draw_series(fitted, (x, _FITTED), number, (column, 0))
            traces += [{**trace, "mode": "lines", "showlegend": False, "hoverinfo": "skip"} for trace in law]
            for place, y in enumerate(ys):
                traces += draw_series(line.rows, (x, y), number, (column, place), marks=True)
        switch, faster = find_switch(curves)
        words = f"{faster} is faster →"
        rules += [] if switch is None else [draw_rule(name_axis("x", column), switch, words)]
    samples: Counter[str] = Counter()
    for line in lines:
        samples[line.model.calibration_id] += line.curve.sample_count
    source = "; ".join(f"{calibration}, {counted(n, 'sample')}" for calibration, n in samples.items())
    look = {"height": 140 + 230 * len(ys), "shapes": rules, "meta": {"min_width": 260 * len(xs)}}
    rows = [row for line in lines for row in line.rows]
    return Block(name, title, how, new_figure(traces, xs, ys, **look), f"Measured: {source}.", rows)


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


def read_held_out() -> Iterator[Row]:
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
        inside = point["time_s"] == np.clip(point["time_s"], point["low_s"], point["high_s"])
        rows.append({**point, "ratio": point["predicted_s"] / point["time_s"], "inside": bool(inside)})
    inside = format_fraction(float(np.mean([row["inside"] for row in rows])))
    most = counted(int(max(row["gpus"] for row in rows)), "GPU")
    title = (
        f"Of {counted(len(rows), 'point')} left out of the fits, on up to {most}, half are predicted within "
        f"{_find_error(rows, 0.5)} and 90 % within {_find_error(rows, 0.9)}; {inside} are inside their "
        "95 % band."
    )
    parts = []
    traces = []
    for number, kind in enumerate(dict.fromkeys(row["line"] for row in rows)):
        members = [row for row in rows if row["line"] == kind]
        parts.append(f"{kind}, {counted(len(members), 'point')}, median error {_find_error(members, 0.5)}")
        for place, y in enumerate((_PREDICTED, _RATIO)):
            traces += draw_series(members, (_MEASURED, y), number, (0, place), _describe_point, marks=True)
    low = min(row["time_s"] for row in rows)
    high = max(row["time_s"] for row in rows)
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


def _describe_point(row: Row) -> str:
    names = [row["machine"], name_collective(row["collective"]), format_bytes(row["payload_bytes"])]
    band = f"95 % band {format_time(row['low_s'])} – {format_time(row['high_s'])}"
    return ", ".join(
        [*names, counted(int(row["gpus"]), "GPU"), f"{format_time(row['time_s'])} measured", band]
    )
