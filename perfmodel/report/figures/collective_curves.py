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
from perfmodel.units import counted, format_bytes, format_fraction, format_rate, format_ratio, format_time
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
    """A library in the figure: its label, its number (for the colour), its curve, and its points.

    points  as ``medians`` returns them
    """

    label: str
    index: int
    source: MeasuredLibrary
    curve: Curve
    points: pd.DataFrame

    @property
    def colour(self) -> str:
        return style.colour(self.index)


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
    machine, own = setting.machine.unchanged(), setting.backend
    both = [str(Backend.NCCL), str(Backend.NVSHMEM)]
    names = both if own == BEST else [own] if setting.calibration is not None else [own, *both]
    known = [
        measured(machine, name, setting.clock if name == own else None, setting.calibration)
        for name in dict.fromkeys(names)
    ]
    return [library for library in known if library is not None]


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
        known = [curve for each in libraries[:1] for curve in each.model.calibration.curves]
        ranks = [c.gpus for c in known if c.collective == collective and c.domain_gpus >= c.gpus]
        gpus = max(ranks, default=GPUS)
    series = list(_series(libraries, collective, gpus))
    what = f"{collective_name(collective)} on {counted(gpus, 'GPU')}"
    if not series:
        only = sorted({str(each.model.calibration.backend) for each in libraries}) or ["nccl"]
        line = f"perfmodel calibrate --only {','.join(f'{b}:{collective}' for b in only)} --ranks {gpus}"
        return named.missing(f"no {what} was measured on this machine: {line}")
    crossing = _crossing(series, collective, gpus)
    return named.block(
        _title(series, what, crossing),
        "Marks are medians of samples, with the range of their times. Lines are fitted curves: dashed inside "
        "the measured sizes, dotted outside. The lowest strip shows how far the medians are from the curve.",
        _figure(series, gpus, crossing),
        _source(series),
        [row for s in series for row in _rows(s, collective, gpus)],
    )


def _series(libraries: Sequence[MeasuredLibrary], collective: str, gpus: int) -> Iterator[_Series]:
    for index, library in enumerate(libraries):
        domain = library.model.machine.nvlink_domain_gpus
        curve = library.curve(collective, gpus, min(gpus, domain) if domain > 1 else gpus)
        if curve is not None:
            yield _Series(library.label, index, library, curve, medians(library, curve))


def medians(one: MeasuredLibrary, curve: Curve) -> pd.DataFrame:
    """A row for each size: payload_bytes, time_s (median), low_s, high_s, samples, fitted_s, residual, and
    busbw_bytes_per_s.

    residual  the median over the fitted time, less 1
    Limits: no samples available -> the times that a projection uses, with 0 samples
    """
    import pandas as pd

    rows = one.samples
    if rows is None:
        times = curve.anchor_times_s
        columns = {"payload_bytes": curve.anchor_bytes, "time_s": times, "low_s": times, "high_s": times}
        frame = pd.DataFrame({**columns, "samples": 0})
    else:
        cell = (rows["collective"] == curve.collective) & (rows["gpus"] == curve.gpus)
        cell &= rows["domain_gpus"] == min(curve.domain_gpus, curve.gpus)
        groups = rows[cell].groupby("payload_bytes")["time_s"]
        frame = groups.agg(time_s="median", low_s="min", high_s="max", samples="size").reset_index()
    sizes, middle = (frame[name].to_numpy(float) for name in ("payload_bytes", "time_s"))
    fitted, rates = _fitted(curve, sizes), _busbw(curve.collective, curve.gpus, sizes, middle)
    return frame.assign(fitted_s=fitted, residual=middle / fitted - 1, busbw_bytes_per_s=rates)


def _fitted(curve: Curve, sizes: Floats) -> Floats:
    return hockney_time(sizes, curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)


def _busbw(collective: str, gpus: int, sizes: Floats, times: Floats) -> Floats:
    return np.asarray(sizes / times * bus_factor(collective, gpus), float)


def _crossing(series: Sequence[_Series], collective: str, gpus: int) -> Comparison | None:
    """Two libraries' times at the sizes that both measured; first the faster at the smallest size.

    Limits: not two libraries, or no size in common -> None
    """
    if len(series) != 2:
        return None
    low = max(s.curve.anchor_bytes[0] for s in series)
    if low >= min(s.curve.anchor_bytes[-1] for s in series):
        return None
    sizes = common_sizes([s.curve for s in series])
    times = [s.source.model.estimate(collective, sizes, gpus).time_s for s in _by_first(series)]
    return Comparison(sizes, *times)


def _by_first(series: Sequence[_Series]) -> list[_Series]:
    """The libraries ordered by their times at the smallest size that all have measured."""
    size = max(s.curve.anchor_bytes[0] for s in series)

    def time(s: _Series) -> float:
        return float(s.source.model.estimate(s.curve.collective, size, s.curve.gpus).time_s)

    return sorted(series, key=time)


def _title(series: Sequence[_Series], what: str, crossing: Comparison | None) -> str:
    missed = float(np.median(np.abs(np.concatenate([s.points["residual"].to_numpy(float) for s in series]))))
    if crossing is not None:
        first, second = (s.label for s in _by_first(series))
        size = crossing.crossover_bytes
        if size is not None:
            return sentence(f"{what}: {first} is faster below {format_bytes(size)}, {second} at larger sizes")
        last = crossing.nccl_s[-1] / crossing.nvshmem_s[-1]
        small = crossing.nccl_s[0] / crossing.nvshmem_s[0]
        if last >= 1:
            return sentence(
                f"{what}: {first} is faster than {second} at every size, {format_ratio(small)} at "
                f"the smallest and {format_ratio(last)} at the largest"
            )
    best = min(series, key=lambda s: float(s.points["time_s"].min()))
    floor = format_time(float(best.points["time_s"].min()))
    rates = [(float(s.points["busbw_bytes_per_s"].max()), s) for s in series]
    rate, fastest = max(rates, key=lambda pair: pair[0])
    more = f" of {fastest.label}" if len(series) > 1 else ""
    return sentence(
        f"{what} takes at least {floor} and reaches {format_rate(rate)} of bus bandwidth{more}; "
        f"half of the medians are within {format_fraction(missed)} of the curve"
    )


def _sizes(s: _Series) -> Floats:
    return s.points["payload_bytes"].to_numpy(float)


def _times(s: _Series) -> Floats:
    return s.points["time_s"].to_numpy(float)


def _figure(series: Sequence[_Series], gpus: int, crossing: Comparison | None) -> Any:
    traces = [in_pane(trace, row) for s in series for trace, row in _traces(s, gpus)]
    sizes = np.concatenate([_grid(s.curve) for s in series])
    times = np.concatenate([s.points[["low_s", "high_s"]].to_numpy(float).ravel() for s in series])
    rates = np.concatenate([s.points["busbw_bytes_per_s"].to_numpy(float) for s in series])
    ends = float(sizes.min()), float(sizes.max())
    below = style.binary_bytes_axis(*ends, "payload of one GPU")
    above = {
        **style.binary_bytes_axis(*ends),
        "title": {"text": ""},
        "showticklabels": False,
        "matches": "x3",
    }
    layout = panes(
        [
            (above, style.time_axis(times.min() / 1.5, times.max() * 1.5), _PANES[0]),
            (above, style.rate_axis(rates.min() / 1.5, rates.max() * 2, "bus bandwidth"), _PANES[1]),
            (below, style.axis("off the curve (%)", zeroline=True, zerolinecolor=style.RULE), _PANES[2]),
        ]
    )
    size = crossing.crossover_bytes if crossing is not None else None
    if size is not None:
        layout["shapes"] = [
            rule(f"x{pane(row)}", size, f"y{pane(row)} domain", dash="dot") for row in (1, 2, 3)
        ]
        layout["annotations"] = [
            {"x": float(np.log10(size)), "xref": "x", "y": 0, "yref": "y2 domain", "yanchor": "bottom",
             "xanchor": "left", "xshift": 4, "showarrow": False, "text": f"crossover {format_bytes(size)}"}
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


def _traces(s: _Series, gpus: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Plotly traces of a library, each with the number of its pane (1 time, 2 bandwidth, 3 residual).

    The fitted line has other dashes beyond the measured sizes.
    """
    curve, group = s.curve, f"series{s.index}"
    grid = _grid(curve)
    low, high = curve.anchor_bytes[0], curve.anchor_bytes[-1]
    parts = [
        (grid[(grid >= low) & (grid <= high)], Evidence.INTERPOLATED),
        (grid[grid <= low], Evidence.EXTRAPOLATED),
        (grid[grid >= high], Evidence.EXTRAPOLATED),
    ]
    for sizes, evidence in parts:
        times = _fitted(curve, sizes)
        text = [_line_text(s, x, t, evidence) for x, t in zip(sizes, times, strict=True)]
        line = {"color": s.colour, "width": 2, "dash": style.DASHES[evidence]}
        more: dict[str, Any] = {"mode": "lines", "line": line, "legendgroup": group, "showlegend": False}
        for row, values in ((1, times), (2, _busbw(curve.collective, gpus, sizes, times))):
            yield scatter(sizes, values, text, safe(s.label), **more), row
    yield from _marks(s, gpus, group)


def _marks(s: _Series, gpus: int, group: str) -> Iterator[tuple[dict[str, Any], int]]:
    sizes, times = _sizes(s), _times(s)
    low, high = (s.points[name].to_numpy(float) for name in ("low_s", "high_s"))
    marker = {"color": s.colour, "symbol": style.symbol(s.index), "size": 7}
    words = [_point_text(s, row) for row in s.points.to_dict(orient="records")]
    rates, slow, fast = (_busbw(s.curve.collective, gpus, sizes, values) for values in (times, high, low))
    residuals = 100 * s.points["residual"].to_numpy(float)
    for row, (y, ends) in enumerate(((times, (low, high)), (rates, (slow, fast)), (residuals, ())), 1):
        bars = {"error_y": whiskers(y, *ends, thickness=1, width=3)} if ends else {}
        more = {"legendgroup": group, **({"showlegend": False} if row > 1 else {}), **bars}
        yield scatter(sizes, y, words, safe(s.label), marker, **more), row


def _line_text(s: _Series, size: float, time_s: float, evidence: Evidence) -> str:
    where = "fitted" if evidence is Evidence.INTERPOLATED else "fitted, outside the measured sizes"
    return hover([safe(s.label), f"{format_bytes(size)}: {format_time(time_s)}", where])


def _point_text(s: _Series, row: Mapping[Any, Any]) -> str:
    time, low, high = (format_time(row[name]) for name in ("time_s", "low_s", "high_s"))
    missing = "median from the fit; its samples are not available"
    return hover(
        [
            safe(s.label),
            f"{format_bytes(row['payload_bytes'])}: {time}, {format_rate(row['busbw_bytes_per_s'])} bus",
            f"{low} – {high}, n = {row['samples']}" if row["samples"] else missing,
            f"{signed(row['residual'])} from the fit",
            f"measured: {safe(', '.join(s.curve.sources))}",
        ]
    )


def _source(series: Sequence[_Series]) -> str:
    parts = []
    for s in series:
        c, count = s.source.model.calibration, int(s.points["samples"].sum())
        ids = ", ".join(s.curve.sources)
        seen = f": {counted(count, 'sample')} of {ids}" if count else ""
        parts.append(f"{c.calibration_id}{seen}, fitted {s.curve.formula()}")
    return "Measured. " + "; ".join(parts) + "."


def _rows(s: _Series, collective: str, gpus: int) -> Iterator[dict[str, Any]]:
    c = s.source.model.calibration
    names = {"calibration": c.calibration_id, "backend": str(c.backend), "clock": str(c.clock)}
    for row in s.points.to_dict(orient="records"):
        yield {**names, "collective": collective, "gpus": gpus, **{str(k): v for k, v in row.items()}}
