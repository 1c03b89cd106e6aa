"""Figures of collectives: medians with the fitted curve, bus bandwidth, what is off the curve, crossover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import NoCalibrationError
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import name_pane, place_trace, rule, scatter, split_panes
from perfmodel.report.figures.registry import COLLECTIVES, PAPER_COLLECTIVES
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.verdicts import count_verdicts, describe_verdicts, judge
from perfmodel.report.figures.words import collective_name, hover, library_name, safe, sentence
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.units import counted, format_bytes, format_fraction, format_rate, format_time
from perfmodel.validate.crossover import COLLECTIVES as PAPERS
from perfmodel.validate.crossover import GPUS, MACHINE, Comparison, common_sizes

Floats = npt.NDArray[np.float64]

_BEYOND = 4.0
"""The curve is drawn up to this factor beyond its samples."""
_PER_OCTAVE = 2
_PAPER_CLOCKS = ((Backend.NCCL, Clock.STREAM), (Backend.NVSHMEM, Clock.DEVICE))
_CLAIMS = ("2a", "2b", "3a", "3b", "3c", "4a", "4b", "4c")
_HOW = (
    "Marks are medians. Lines are fitted curves: dashed inside the measured sizes, dotted outside. "
    "A vertical rule is where the faster library changes."
)


@dataclass(frozen=True)
class MeasuredCurve:
    """The curve of a collective with a library, and its colour's number."""

    number: int
    model: CollectiveModel
    curve: Curve

    @property
    def label(self) -> str:
        """The library in words: ``NCCL 2.29.2 (stream)``."""
        c = self.model.calibration
        return safe(f"{library_name(str(c.backend))} {c.library_version} ({c.clock})")

    def estimate(self, sizes: npt.ArrayLike) -> Floats:
        """Times as a projection has them, by measured medians where there are any [s]."""
        return self.model.estimate(self.curve.collective, sizes, self.curve.gpus).time_s

    def fit(self, sizes: Floats) -> Floats:
        """Times by the fitted curve [s]."""
        c = self.curve
        return hockney_time(sizes, c.alpha_s.value, c.beta_bytes_per_s.value, c.p.value)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each measured size: its median, and how far that is from the fitted time [-]."""
        c, calibration = self.curve, self.model.calibration
        sizes, times = np.array(c.anchor_bytes), np.array(c.anchor_times_s)
        fitted, rates = self.fit(sizes), sizes / times * compute_bus_factor(c.collective, c.gpus)
        shared = {
            "calibration": calibration.calibration_id, "backend": str(calibration.backend),
            "clock": str(calibration.clock), "collective": c.collective, "gpus": c.gpus,
        }  # fmt: skip
        names = ("payload_bytes", "time_s", "fitted_s", "off_percent", "busbw_bytes_per_s")
        numbers = zip(sizes, times, fitted, 100 * (times / fitted - 1), rates, strict=True)
        return [shared | dict(zip(names, map(float, row), strict=True)) for row in numbers]


def draw_collectives(subject: Subject) -> Block | Missing:
    """All-to-all and reduce-scatter on the most ranks of a node that were measured, by each library.

    Limits: no library has measured them here -> Missing
    """
    models = list_measured(subject)
    names = ("all_to_all", "reduce_scatter")
    curves = [
        curve for model in models[:1] for curve in model.calibration.curves if curve.collective in names
    ]
    gpus = max((curve.gpus for curve in curves if curve.domain_gpus >= curve.gpus), default=GPUS)
    columns = {name: list_series(models, name, gpus) for name in names}
    columns = {name: series for name, series in columns.items() if series}
    if not columns:
        only = sorted({str(model.calibration.backend) for model in models}) or ["nccl"]
        line = ",".join(f"{backend}:all_to_all" for backend in only)
        return COLLECTIVES.missing(
            f"no collective on {counted(gpus, 'GPU')} was measured on this machine: "
            f"perfmodel calibrate --only {line} --ranks {gpus}"
        )
    title = sentence(
        f"on {counted(gpus, 'GPU')}, " + "; ".join(describe_series(series) for series in columns.values())
    )
    return COLLECTIVES.block(title, _HOW, _draw(columns, residuals=True), *_list_data(columns))


def draw_paper_collectives(subject: Subject) -> Block | Missing:
    """Figure 1 of the paper: four collectives by NCCL and NVSHMEM, with the paper's clocks.

    On the answer's machine if both were measured there, else on the shipped machine where both were.
    """
    models: list[CollectiveModel] = []
    for machine in (subject.answer.setting.machine.unchanged(), load_machine(MACHINE)):
        pair = [load_measured(machine, str(backend), str(clock)) for backend, clock in _PAPER_CLOCKS]
        models = models or [model for model in pair if model is not None and None not in pair]
    columns = {name: list_series(models, name, GPUS) for name in PAPERS}
    columns = {name: series for name, series in columns.items() if series}
    verdicts = judge(_CLAIMS)
    machine_name = models[0].machine.name
    title = f"Figure 1 of the paper, on {machine_name}: {count_verdicts(verdicts)}."
    how = f"{_HOW}{describe_verdicts(verdicts)}"
    return PAPER_COLLECTIVES.block(title, how, _draw(columns), *_list_data(columns))


def list_measured(subject: Subject) -> list[CollectiveModel]:
    """The libraries measured on the answer's machine: its own first, and the other of NCCL and NVSHMEM.

    Limits: the user's own calibration -> its library alone;  not measured on this machine -> left out
    """
    setting = subject.answer.setting
    machine, backend = setting.machine.unchanged(), setting.backend
    libraries = [str(Backend.NCCL), str(Backend.NVSHMEM)]
    names = (
        libraries
        if backend == BEST
        else [backend]
        if setting.calibration is not None
        else [backend, *libraries]
    )
    models = [
        load_measured(machine, name, setting.clock if name == backend else None, setting.calibration)
        for name in dict.fromkeys(names)
    ]
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


def list_series(models: Sequence[CollectiveModel], collective: str, gpus: int) -> list[MeasuredCurve]:
    """The curves of a collective on so many GPUs of a node. models  at most 8, as there are colours"""
    series = []
    for number, model in enumerate(models):
        domain = model.machine.nvlink_domain_gpus
        curve = model.calibration.curve(collective, gpus, min(gpus, domain) if domain > 1 else gpus)
        series += [MeasuredCurve(number, model, curve)] if curve is not None else []
    return series


def compare_series(series: Sequence[MeasuredCurve]) -> Comparison | None:
    """Two libraries' times at the sizes that both measured; first the faster at the smallest size.

    Limits: not two libraries, or no size in common -> None
    """
    low = max(line.curve.anchor_bytes[0] for line in series)
    if len(series) != 2 or low >= min(line.curve.anchor_bytes[-1] for line in series):
        return None
    sizes = common_sizes([line.curve for line in series])
    times = sorted((line.estimate(sizes) for line in series), key=lambda values: float(values[0]))
    return Comparison(sizes, *times)


def describe_series(series: Sequence[MeasuredCurve]) -> str:
    """What the curves of a collective say: which library is faster where; of one, its floor and its rate."""
    name, comparison = collective_name(series[0].curve.collective), compare_series(series)
    if comparison is not None:
        start = float(comparison.payload_bytes[0])
        faster, second = sorted(series, key=lambda line: float(line.estimate(start)))
        switch = comparison.crossover_bytes
        if switch is not None:
            return f"{name}: {faster.label} is faster below {format_bytes(switch)}, {second.label} above"
        return f"{name}: {faster.label} is faster than {second.label} at every size that both measured"
    rows = [row for line in series for row in line.rows]
    half = format_fraction(float(np.median([abs(row["off_percent"]) for row in rows])) / 100)
    return (
        f"{name} takes at least {format_time(min(row['time_s'] for row in rows))} and reaches "
        f"{format_rate(max(row['busbw_bytes_per_s'] for row in rows))} of bus bandwidth, half of the medians "
        f"within {half} of the curve"
    )


def _draw(columns: Mapping[str, Sequence[MeasuredCurve]], *, residuals: bool = False) -> Any:
    """A plotly figure with a column for each collective. residuals  whether what is off is drawn below"""
    count, height = len(columns), 2 if residuals else 1
    traces, rules, labels = [], [], set[str]()
    for place, series in enumerate(columns.values()):
        for line in series:
            for trace in _list_lines(line):
                traces.append(place_trace(trace, 0, place, count))
            marker = {"color": style.colour(line.number), "symbol": style.symbol(line.number), "size": 7}
            sizes, words = [row["payload_bytes"] for row in line.rows], list(map(_describe, line.rows))
            for row, name in enumerate(("time_s", "off_percent")[:height]):
                values = [point[name] for point in line.rows]
                trace = scatter(sizes, values, words, line.label, marker, legendgroup=line.label)
                shown = row == 0 and line.label not in labels
                traces.append(place_trace({**trace, "showlegend": shown}, row, place, count))
            labels.add(line.label)
        comparison = compare_series(series)
        switch = comparison.crossover_bytes if comparison else None
        for row in range(height if switch is not None else 0):
            name = name_pane(row, place, count)
            rules.append(rule(f"x{name}", switch or 0.0, f"y{name} domain", dash="dot"))
    rows = [row for series in columns.values() for line in series for row in line.rows]
    sizes, times = ([row[name] for row in rows] for name in ("payload_bytes", "time_s"))
    x = style.binary_bytes_axis(min(sizes) / _BEYOND, max(sizes) * _BEYOND, "payload of one GPU")
    axes = [style.time_axis(min(times) / 1.5, max(times) * 1.5)]
    axes += [style.axis("off the curve (%)", zeroline=True, zerolinecolor=style.RULE)] * (height - 1)
    bare = [{**y, "title": {"text": ""}} for y in axes]
    lines = [[axes[row], *[bare[row]] * (count - 1)] for row in range(height)]
    layout = split_panes([x] * count, lines, (2, 1)[:height], list(map(collective_name, columns)))
    return style.new_figure(
        traces, height=140 + 230 * height, shapes=rules, meta={"min_width": 260 * count},
        legend={**style.LEGEND, "y": 1.0 + 0.12 / height}, margin={"l": 72, "r": 24, "t": 76, "b": 56},
        **layout,
    )  # fmt: skip


def _list_lines(line: MeasuredCurve) -> Iterator[dict[str, Any]]:
    """Plotly traces of the fitted curve, inside the measured sizes and outside."""
    low, high = line.curve.anchor_bytes[0], line.curve.anchor_bytes[-1]
    steps = max(round(float(np.log2(high / low)) * _PER_OCTAVE), 1)
    for start, end, count, evidence in (
        (low, high, steps, Evidence.INTERPOLATED),
        (low / _BEYOND, low, 2 * _PER_OCTAVE, Evidence.EXTRAPOLATED),
        (high, high * _BEYOND, 2 * _PER_OCTAVE, Evidence.EXTRAPOLATED),
    ):
        sizes = np.geomspace(start, end, count + 1)
        look = {"color": style.colour(line.number), "width": 2, "dash": style.DASHES[evidence]}
        shared: dict[str, Any] = {
            "legendgroup": line.label, "hoverinfo": "skip", "mode": "lines", "showlegend": False,
        }  # fmt: skip
        yield scatter(sizes, line.fit(sizes), "", line.label, line=look, **shared)


def _describe(row: Mapping[str, Any]) -> str:
    time, fitted = format_time(row["time_s"]), format_time(row["fitted_s"])
    return hover(
        [
            f"{safe(row['calibration'])}, {collective_name(row['collective'])}",
            f"{format_bytes(row['payload_bytes'])}: {time}, {format_rate(row['busbw_bytes_per_s'])} bus",
            f"fitted {fitted}",
        ]
    )


def _list_data(columns: Mapping[str, Sequence[MeasuredCurve]]) -> tuple[str, list[dict[str, Any]]]:
    """(The line below the figure, the figure's data)."""
    every = [line for series in columns.values() for line in series]
    samples: Counter[str] = Counter()
    for line in every:
        samples[line.model.calibration_id] += line.curve.sample_count
    parts = [f"{name}, {counted(count, 'sample')}" for name, count in samples.items()]
    return f"Measured: {'; '.join(parts)}.", [row for line in every for row in line.rows]
