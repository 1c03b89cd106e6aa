"""Figures of collectives: medians with the fitted curve, what is off the curve, and the crossover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.chart import (
    Axis,
    Row,
    Trace,
    draw_line,
    draw_marks,
    draw_rule,
    name_collective,
    name_library,
    place_panes,
)
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.verdicts import count_verdicts, describe_verdicts, judge
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.units import counted, format_bytes, format_fraction, format_rate, format_time
from perfmodel.validate.crossover import COLLECTIVES as PAPERS
from perfmodel.validate.crossover import GPUS, MACHINE, Comparison, list_common_sizes

_TIME = Axis("time_s", "time", "s")
_FITTED = Axis("fitted_s", "fitted", "s")
_OFF = Axis("off_percent", "off the curve (%)", "%")
_OF_ANSWER = ("all_to_all", "reduce_scatter")
_PAPER_CLOCKS = ((Backend.NCCL, Clock.STREAM), (Backend.NVSHMEM, Clock.DEVICE))
_CLAIMS = ("2a", "2b", "3a", "3b", "3c", "4a", "4b", "4c")
_HOW = "Marks are medians, lines fitted curves. A vertical rule is where the faster library changes."


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
        c, calibration = self.curve, self.model.calibration
        sizes, times = np.array(c.anchor_bytes), np.array(c.anchor_times_s)
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

    Limits: no library has measured them here -> BadInputError
    """
    models = list_measured(subject)
    curves = [curve for model in models[:1] for curve in model.calibration.curves]
    inside = [curve for curve in curves if curve.domain_gpus >= curve.gpus]
    gpus = max((curve.gpus for curve in inside if curve.collective in _OF_ANSWER), default=GPUS)
    series = list_series(models, _OF_ANSWER, gpus)
    if not series:
        raise BadInputError(
            f"no collective on {counted(gpus, 'GPU')} was measured on this machine: "
            "perfmodel calibrate --only all_to_all,reduce_scatter"
        )
    title = f"On {counted(gpus, 'GPU')}, {'; '.join(map(describe_series, series.values()))}."
    return _make_block("collectives", title, _HOW, series, [_TIME, _OFF])


def draw_paper_collectives(subject: Subject) -> Block:
    """Figure 1 of the paper: four collectives by NCCL and NVSHMEM, with the paper's clocks.

    On the answer's machine if both were measured there, else on the shipped machine where both were.
    """
    models: list[CollectiveModel] = []
    for machine in (subject.answer.setting.machine.unchanged(), load_machine(MACHINE)):
        pair = [load_measured(machine, str(backend), str(clock)) for backend, clock in _PAPER_CLOCKS]
        models = models or [model for model in pair if model is not None and None not in pair]
    verdicts = judge(_CLAIMS)
    title = f"Figure 1 of the paper, on {models[0].machine.name}: {count_verdicts(verdicts)}."
    how = f"{_HOW}{describe_verdicts(verdicts)}"
    return _make_block("paper-collectives", title, how, list_series(models, PAPERS, GPUS), [_TIME])


def list_measured(subject: Subject) -> list[CollectiveModel]:
    """The libraries measured on the answer's machine: its own first, and the other of NCCL and NVSHMEM.

    Limits: the user's own calibration -> its library alone;  not measured on this machine -> left out
    """
    setting, machine = subject.answer.setting, subject.answer.setting.machine.unchanged()
    if setting.calibration is not None:
        models = [load_measured(machine, setting.backend, setting.clock, setting.calibration)]
    else:
        clocks = {} if setting.backend == BEST else {setting.backend: setting.clock}
        clocks |= {name: None for name in map(str, (Backend.NCCL, Backend.NVSHMEM)) if name not in clocks}
        models = [load_measured(machine, name, clock) for name, clock in clocks.items()]
    return [model for model in models if model is not None]


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
        domain = model.machine.nvlink_domain_gpus
        curve = model.calibration.curve(name, gpus, min(gpus, domain) if domain > 1 else gpus)
        if curve is not None:
            series.setdefault(name, []).append(MeasuredCurve(model, curve))
    return series


def compare_curves(curves: Sequence[MeasuredCurve]) -> tuple[list[MeasuredCurve], float | None]:
    """(both libraries, the faster one at small sizes first; the size from which the other is faster).

    Limits: not two libraries, or no size in common -> none
    """
    low = max(line.curve.anchor_bytes[0] for line in curves)
    if len(curves) != 2 or low >= min(line.curve.anchor_bytes[-1] for line in curves):
        return [], None
    sizes = list_common_sizes([line.curve for line in curves])
    times = {x: x.model.estimate(x.curve.collective, sizes, x.curve.gpus).time_s for x in curves}
    pair = sorted(times, key=lambda line: float(times[line][0]))
    return pair, Comparison(sizes, *(times[line] for line in pair)).crossover_bytes


def describe_series(curves: Sequence[MeasuredCurve]) -> str:
    """What the curves of a collective say: which library is faster where; of one, its floor and its rate."""
    name = name_collective(curves[0].curve.collective)
    pair, switch = compare_curves(curves)
    if pair:
        faster, slower = (line.label for line in pair)
        if switch is not None:
            return f"{name}: {faster} is faster below {format_bytes(switch)}, {slower} above"
        return f"{name}: {faster} is faster than {slower} at every size that both measured"
    rows = [row for line in curves for row in line.rows]
    half = format_fraction(float(np.median([abs(row["off_percent"]) for row in rows])) / 100)
    return (
        f"{name} takes at least {format_time(min(row['time_s'] for row in rows))} and reaches "
        f"{format_rate(max(row['busbw_bytes_per_s'] for row in rows))} of bus bandwidth, half of the medians "
        f"within {half} of the curve"
    )


def _make_block(name: str, title: str, how: str, series: Series, ys: Sequence[Axis]) -> Block:
    """A figure with a column of panes for each collective. ys  the axis of each row of panes"""
    lines = [line for curves in series.values() for line in curves]
    labels = list(dict.fromkeys(line.label for line in lines))
    xs = [Axis("payload_bytes", f"{name_collective(key)}: payload of one GPU", "KiB") for key in series]
    traces, rules = list[Trace](), list[Trace]()
    for column, (x, curves) in enumerate(zip(xs, series.values(), strict=True)):
        for line in curves:
            number = labels.index(line.label)
            fitted = [{**row, "evidence": Evidence.INTERPOLATED} for row in line.rows]
            law = draw_line(fitted, x, _FITTED, number, (column, 0))
            traces += [{**trace, "mode": "lines", "showlegend": False, "hoverinfo": "skip"} for trace in law]
            traces += [draw_marks(line.rows, x, y, number, (column, row)) for row, y in enumerate(ys)]
        _, switch = compare_curves(curves)
        rules += [] if switch is None else [draw_rule(f"x{column + 1 if column else ''}", switch)]
    samples: Counter[str] = Counter()
    for line in lines:
        samples[line.model.calibration_id] += line.curve.sample_count
    source = "; ".join(f"{calibration}, {counted(n, 'sample')}" for calibration, n in samples.items())
    look = {"height": 140 + 230 * len(ys), "shapes": rules, "meta": {"min_width": 260 * len(xs)}}
    figure = style.new_figure(traces, **look, **place_panes(traces, xs, ys))
    return Block(name, title, how, figure, f"Measured: {source}.", [row for x in lines for row in x.rows])
