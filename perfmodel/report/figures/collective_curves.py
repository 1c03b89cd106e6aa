"""Figures of collectives: times of samples with the fitted curve, bus bandwidth, residuals, crossover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model.collectives import bus_factor
from perfmodel.model.curves import hockney_time
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import in_pane, pane, panes, rule, scatter, whiskers
from perfmodel.report.figures.registry import ALL_TO_ALL, LIBRARIES, REDUCE_SCATTER, Figure
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import collective_name, hover, library_name, safe, sentence, signed
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.units import counted, format_bytes, format_fraction, format_rate, format_time
from perfmodel.validate.crossover import GPUS, MACHINE, Comparison, common_sizes
from perfmodel.validate.points import curve_samples

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_BEYOND = 4.0
"""The curve is drawn up to this factor beyond its samples."""
_PER_OCTAVE = 2
_HEIGHT = 780


@dataclass(frozen=True)
class MeasuredLibrary:
    """A calibration's library on a machine.

    model    predicts its collectives
    samples  that were measured; None: the files are not available
    """

    model: CollectiveModel
    samples: pd.DataFrame | None

    @property
    def label(self) -> str:
        """The library in words: ``NCCL 2.29.2 (stream)``."""
        c = self.model.calibration
        return f"{library_name(str(c.backend))} {c.library_version} ({c.clock})"

    def curve(self, collective: str, gpus: int, domain_gpus: int) -> Curve | None:
        """The curve for a collective on these ranks; None if it was not measured on this very machine."""
        return None if self.model.borrowed else self.model.calibration.curve(collective, gpus, domain_gpus)


def measured(
    machine: Machine, backend: str, clock: str | None = None, calibration: str | Path | None = None
) -> MeasuredLibrary | None:
    """A library (with the preferred clock if None) and its samples; None: it has no calibration here."""
    try:
        model = CollectiveModel.load(machine, backend, clock, calibration)
    except NoCalibrationError:
        return None
    try:
        return MeasuredLibrary(model, curve_samples(model.calibration, machine, calibration or ""))
    except BadInputError:
        return MeasuredLibrary(model, None)


@dataclass(frozen=True)
class _Series:
    """A library in the figure: its number (for the colour), its curve, and its points.

    points  as ``list_medians`` returns them
    """

    index: int
    source: MeasuredLibrary
    curve: Curve
    points: list[dict[str, Any]]

    @property
    def label(self) -> str:
        return self.source.label

    def read(self, name: str) -> Floats:
        """A column of the points."""
        return np.array([point[name] for point in self.points], float)


def all_to_all(subject: Subject) -> Block | Missing:
    """All-to-all on the most ranks of a node that were measured, by the answer's library and the other."""
    return collectives(list_measured(subject), "all_to_all", ALL_TO_ALL)


def reduce_scatter(subject: Subject) -> Block | Missing:
    """Reduce-scatter, otherwise as ``all_to_all``."""
    return collectives(list_measured(subject), "reduce_scatter", REDUCE_SCATTER)


def libraries(subject: Subject) -> Block | Missing:
    """All-to-all of NCCL and NVSHMEM on the shipped machine on which both were measured."""
    pair = load_machine(MACHINE)
    both = [measured(pair, Backend.NCCL, Clock.STREAM), measured(pair, Backend.NVSHMEM, Clock.DEVICE)]
    return collectives([library for library in both if library is not None], "all_to_all", LIBRARIES)


def list_measured(subject: Subject) -> list[MeasuredLibrary]:
    """The libraries measured on the answer's machine: its own first, and the other of NCCL and NVSHMEM.

    Limits: the user's own calibration -> its library alone;  not measured on this machine -> left out
    """
    setting = subject.answer.setting
    machine, backend = setting.machine.unchanged(), setting.backend
    both = [str(Backend.NCCL), str(Backend.NVSHMEM)]
    names = both if backend == BEST else [backend] if setting.calibration is not None else [backend, *both]
    candidates = [
        measured(machine, name, setting.clock if name == backend else None, setting.calibration)
        for name in dict.fromkeys(names)
    ]
    return [library for library in candidates if library is not None]


def collectives(
    libraries: Sequence[MeasuredLibrary], collective: str, named: Figure, gpus: int | None = None
) -> Block | Missing:
    """Time, bus bandwidth and residuals of a collective over payload, a line for each library.

    libraries  at most 8, whose lines a reader can distinguish
    gpus       None: the most ranks of a node that the first library was measured on
    The curves are the fit (``hockney_time``); between its samples, a projection uses the medians.
    Limits: no library has measured it -> Missing;  no samples available -> medians of the fit
    """
    if gpus is None:
        curves = [curve for library in libraries[:1] for curve in library.model.calibration.curves]
        ranks = [c.gpus for c in curves if c.collective == collective and c.domain_gpus >= c.gpus]
        gpus = max(ranks, default=GPUS)
    series = list(_list_series(libraries, collective, gpus))
    what = f"{collective_name(collective)} on {counted(gpus, 'GPU')}"
    if not series:
        only = sorted({str(library.model.calibration.backend) for library in libraries}) or ["nccl"]
        line = f"perfmodel calibrate --only {','.join(f'{b}:{collective}' for b in only)} --ranks {gpus}"
        return named.missing(f"no {what} was measured on this machine: {line}")
    crossing = _compare(series, collective, gpus)
    return named.block(
        _entitle(series, what, crossing),
        "Marks are medians of samples, with the range of their times. Lines are fitted curves: dashed inside "
        "the measured sizes, dotted outside. The lowest strip shows how far the medians are from the curve.",
        _draw(series, crossing.crossover_bytes if crossing else None),
        _describe_sources(series),
        [point for line in series for point in line.points],
    )


def _list_series(libraries: Sequence[MeasuredLibrary], collective: str, gpus: int) -> Iterator[_Series]:
    for index, library in enumerate(libraries):
        domain = library.model.machine.nvlink_domain_gpus
        curve = library.curve(collective, gpus, min(gpus, domain) if domain > 1 else gpus)
        if curve is not None:
            yield _Series(index, library, curve, list_medians(library, curve))


def list_medians(library: MeasuredLibrary, curve: Curve) -> list[dict[str, Any]]:
    """A dictionary for each size: payload_bytes, time_s (median), low_s, high_s, samples, fitted_s, residual,
    busbw_bytes_per_s, and whose it is.

    residual  the median over the fitted time, less 1
    Limits: no samples available -> the times that a projection uses, with 0 samples
    """
    times_of_sizes: list[tuple[Any, ...]]
    if library.samples is None:
        anchors = zip(curve.anchor_bytes, curve.anchor_times_s, strict=True)
        times_of_sizes = [(size, time, time, time, 0) for size, time in anchors]
    else:
        rows = library.samples
        cell = (rows["collective"] == curve.collective) & (rows["gpus"] == curve.gpus)
        cell &= rows["domain_gpus"] == min(curve.domain_gpus, curve.gpus)
        groups = rows[cell].groupby("payload_bytes")["time_s"]
        times_of_sizes = [(size, g.median(), g.min(), g.max(), len(g)) for size, g in groups]
    calibration = library.model.calibration
    whose = {"backend": str(calibration.backend), "clock": str(calibration.clock)}
    points = []
    for size, time, low, high, samples in times_of_sizes:
        fitted = float(_fit_times(curve, np.array(size, float)))
        points.append(
            {
                "calibration": calibration.calibration_id, **whose, "collective": curve.collective,
                "gpus": curve.gpus, "payload_bytes": size, "time_s": float(time), "low_s": float(low),
                "high_s": float(high), "samples": samples, "fitted_s": fitted, "residual": time / fitted - 1,
                "busbw_bytes_per_s": size / time * bus_factor(curve.collective, curve.gpus),
            }
        )  # fmt: skip
    return points


def _fit_times(curve: Curve, sizes: Floats) -> Floats:
    return hockney_time(sizes, curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)


def _compare(series: Sequence[_Series], collective: str, gpus: int) -> Comparison | None:
    """Two libraries' times at the sizes that both measured; first the faster at the smallest size.

    Limits: not two libraries, or no size in common -> None
    """
    low = max(line.curve.anchor_bytes[0] for line in series)
    if len(series) != 2 or low >= min(line.curve.anchor_bytes[-1] for line in series):
        return None
    sizes = common_sizes([line.curve for line in series])
    times = [line.source.model.estimate(collective, sizes, gpus).time_s for line in series]
    return Comparison(sizes, *sorted(times, key=lambda values: float(values[0])))


def _entitle(series: Sequence[_Series], what: str, crossing: Comparison | None) -> str:
    if crossing is not None:
        size = max(line.curve.anchor_bytes[0] for line in series)
        first, second = sorted(series, key=lambda line: float(_estimate_time(line, size)))
        switch = crossing.crossover_bytes
        if switch is not None:
            where = f"below {format_bytes(switch)}, {second.label} at larger sizes"
        else:
            where = f"than {second.label} at every size that both measured"
        return sentence(f"{what}: {first.label} is faster {where}")
    floor = min(float(line.read("time_s").min()) for line in series)
    rate = max(float(line.read("busbw_bytes_per_s").max()) for line in series)
    missed = float(np.median(np.abs(np.concatenate([line.read("residual") for line in series]))))
    return sentence(
        f"{what} takes at least {format_time(floor)} and reaches {format_rate(rate)} of bus bandwidth; "
        f"half of the medians are within {format_fraction(missed)} of the curve"
    )


def _estimate_time(series: _Series, size: float) -> Floats:
    return series.source.model.estimate(series.curve.collective, size, series.curve.gpus).time_s


def _draw(series: Sequence[_Series], crossover_bytes: float | None) -> Any:
    traces = [in_pane(trace, row) for line in series for trace, row in _list_traces(line)]
    sizes = np.concatenate([_grid(line.curve) for line in series])
    times = np.concatenate([line.read(end) for line in series for end in ("low_s", "high_s")])
    rates = np.concatenate([line.read("busbw_bytes_per_s") for line in series])
    below = style.binary_bytes_axis(float(sizes.min()), float(sizes.max()), "payload of one GPU")
    above = {**below, "title": {"text": ""}, "showticklabels": False, "matches": "x3"}
    layout = panes(
        [
            (above, style.time_axis(times.min() / 1.5, times.max() * 1.5), _PANES[0]),
            (above, style.rate_axis(rates.min() / 1.5, rates.max() * 2, "bus bandwidth"), _PANES[1]),
            (below, style.axis("off the curve (%)", zeroline=True, zerolinecolor=style.RULE), _PANES[2]),
        ]
    )
    if crossover_bytes is not None:
        layout["shapes"] = [
            rule(f"x{pane(row)}", crossover_bytes, f"y{pane(row)} domain", dash="dot") for row in (1, 2, 3)
        ]
        layout["annotations"] = [
            {"x": float(np.log10(crossover_bytes)), "xref": "x", "y": 0, "yref": "y2 domain",
             "yanchor": "bottom", "xanchor": "left", "xshift": 4, "showarrow": False,
             "text": f"crossover {format_bytes(crossover_bytes)}"}
        ]  # fmt: skip
    return style.new_figure(traces, height=_HEIGHT, **layout)


_PANES = ((0.604, 1.0), (0.248, 0.554), (0.0, 0.198))
"""Panes of times, bandwidths and residuals: lower and upper end of each, as shares of the height."""


def _grid(curve: Curve) -> Floats:
    low, high = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    steps = round(float(np.log2(high / low)) * _PER_OCTAVE)
    inside = np.geomspace(low, high, max(steps, 1) + 1)
    more = np.geomspace(1, _BEYOND, 2 * _PER_OCTAVE + 1)[1:]
    return np.concatenate([low / more[::-1], inside, high * more])


def _list_traces(series: _Series) -> Iterator[tuple[dict[str, Any], int]]:
    """Plotly traces of a library, each with the number of its pane (1 time, 2 bandwidth, 3 residual).

    The fitted line has other dashes beyond the measured sizes.
    """
    curve, colour, label = series.curve, style.colour(series.index), safe(series.label)
    grid, low, high = _grid(curve), curve.anchor_bytes[0], curve.anchor_bytes[-1]
    factor = bus_factor(curve.collective, curve.gpus)
    hidden: dict[str, Any] = {"legendgroup": label, "showlegend": False}
    for sizes, evidence in (
        (grid[(grid >= low) & (grid <= high)], Evidence.INTERPOLATED),
        (grid[grid <= low], Evidence.EXTRAPOLATED),
        (grid[grid >= high], Evidence.EXTRAPOLATED),
    ):
        times = _fit_times(curve, sizes)
        line = {"color": colour, "width": 2, "dash": style.DASHES[evidence]}
        for row, values in ((1, times), (2, sizes / times * factor)):
            yield scatter(sizes, values, label, label, mode="lines", line=line, **hidden), row
    sizes, times, slow, fast = map(series.read, ("payload_bytes", "time_s", "high_s", "low_s"))
    marker = {"color": colour, "symbol": style.symbol(series.index), "size": 7}
    words = [_point_text(series, point) for point in series.points]
    ends = whiskers(times, fast, slow, thickness=1, width=3)
    yield scatter(sizes, times, words, label, marker, legendgroup=label, error_y=ends), 1
    rates = sizes / times * factor
    ends = whiskers(rates, sizes / slow * factor, sizes / fast * factor, thickness=1, width=3)
    yield scatter(sizes, rates, words, label, marker, error_y=ends, **hidden), 2
    yield scatter(sizes, 100 * series.read("residual"), words, label, marker, **hidden), 3


def _point_text(series: _Series, point: Mapping[str, Any]) -> str:
    time, low, high = (format_time(point[name]) for name in ("time_s", "low_s", "high_s"))
    missing = "median from the fit; its samples are not available"
    return hover(
        [
            safe(series.label),
            f"{format_bytes(point['payload_bytes'])}: {time}, {format_rate(point['busbw_bytes_per_s'])} bus",
            f"{low} – {high}, n = {point['samples']}" if point["samples"] else missing,
            f"{signed(point['residual'])} from the fit",
            f"measured: {safe(', '.join(series.curve.sources))}",
        ]
    )


def _describe_sources(series: Sequence[_Series]) -> str:
    parts = []
    for line in series:
        count = int(line.read("samples").sum())
        seen = f": {counted(count, 'sample')} of {', '.join(line.curve.sources)}" if count else ""
        parts.append(f"{line.source.model.calibration.calibration_id}{seen}, fitted {line.curve.formula()}")
    return "Measured. " + "; ".join(parts) + "."
