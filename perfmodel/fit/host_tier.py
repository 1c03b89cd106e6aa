"""From gathers of rows in host memory and copies over the link to the constants of ``model.tiers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.fit.links import rounded
from perfmodel.fit.robust import half_widths, solve
from perfmodel.model import kernels, tiers
from perfmodel.schema.constants import load_kernel_constants
from perfmodel.schema.evidence import Clock
from perfmodel.schema.host_fits import HostTier
from perfmodel.schema.intervals import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.run_files import Run

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

SECTORS = (32, 64, 128)
"""Smallest reads over a link that the fit tries [bytes]: a GPU asks for 32 to 128 bytes."""

_CLEARLY_BETTER = 1.1
"""The fit takes the shortest sector whose loss is at most this multiple of the least."""
_FEWEST = 6
_FARTHEST = 1e3
_HEADERS = (1.0, 500.0)
"""Bounds of a packet's header [bytes]."""

_ROWS = (10.0, 1e4)
"""Bounds of the bytes that the link could carry while the address of a row is looked up."""


@dataclass(frozen=True)
class _Cells:
    """Timed gathers from host memory, as arrays.

    n  rows of a call;  row  bytes of a row;  time_s  measured time;  large  1 in the largest tables, else 0
    """

    n: Floats
    row: Floats
    time_s: Floats
    large: Floats

    def part(self, kept: NDArray[np.bool_]) -> _Cells:
        """The samples that ``kept`` selects."""
        return _Cells(self.n[kept], self.row[kept], self.time_s[kept], self.large[kept])


def fit_host_tier(run: Run, machine: Machine, launch_floor_s: float | None = None) -> HostTier | None:
    """Constants of host memory from a run: link rate, latency, header and sector of gathers, rates of copies.

        t = t_0 + lambda + n b / R,   R = p b / b_wire                          [s]
        b = sector ceil(row / sector),   b_wire = max(b + h ceil(b / a), m)

    n rows per call; p is f C of ``tiers.row_rate``; a, the longest read, is not fitted. m counts for the
    largest tables only: in smaller tables addresses are cached. p, m, h and t_0 + lambda are fitted for each
    of ``SECTORS`` (relative residuals, soft-l1 loss), and the shortest sector that is not clearly worse is
    taken. Where m has no effect, it is set to the shortest row's. Tables are large: no row is asked for twice
    while it is under way. If the rows do not determine the header (all are multiples of the longest read),
    the shipped header is used.
    machine         its launch floor is subtracted from t_0 + lambda where the run did not measure one
    launch_floor_s  t_0, of gathers from HBM in the same run [s]
    Limits: fewer than 6 gathers -> None;  t_0 + lambda below t_0 -> no latency
    """
    samples = run.kernel_samples()
    good = samples[(samples["clock"] == str(Clock.STREAM)) & (samples["flag"] != "throttled")]
    gathers = good[(good["operation"] == "gather_host") & (good["distribution"] == "uniform")]
    if len(gathers) < _FEWEST:
        return None
    cells = _cells(gathers)
    fits = {sector: _fitted(cells, sector) for sector in SECTORS}
    least = min(float(fit.cost) for fit in fits.values())
    sector = next(s for s, fit in fits.items() if float(fit.cost) <= _CLEARLY_BETTER * least)
    best, header = fits[sector], None
    if np.sinh(half_widths(best)[-1]) >= 1.0:
        header = load_kernel_constants().value("link_header_bytes")
        best = _fitted(cells, sector, header)
    known = {
        name: _interval(float(q), wide)
        for name, q, wide in zip(_NAMES, best.x, half_widths(best), strict=False)
    }
    floor = machine.value("launch_floor_s") if launch_floor_s is None else launch_floor_s
    values = {key: one for key, one in known.items() if key != "floor_s"}
    latency = _less(known["floor_s"], floor)
    values |= {"host_latency_s": latency} if latency else {}
    values["link_sector_bytes"] = Interval(value=sector, low=sector, high=sector)
    short = float(_wire(cells.row.min(), sector, _whole(best.x, header)[-1], 0.0))
    if not values["link_row_bytes"].known or values["link_row_bytes"].value <= short:
        values["link_row_bytes"] = Interval(value=rounded(short), low=rounded(short), high=rounded(short))
    for name in ("copy_to_device", "copy_to_host"):
        rate = _copy_rate(good[good["operation"] == name])
        values |= {f"{name}_bytes_per_s": rate} if rate else {}
    told = {key: one for key, one in values.items() if one.known}
    wanted = ("link_bytes_per_s", "host_latency_s", "link_header_bytes")
    errors = np.abs(np.expm1(_left_out(cells, sector, header)))
    return HostTier(
        values=told,
        untold=[key for key in wanted if key not in told],
        log_sd=rounded(float(np.sqrt(np.mean(np.log1p(errors) ** 2))), 3),
        sample_count=len(gathers),
        loo_median=rounded(float(np.quantile(errors, 0.5)), 3),
        loo_p90=rounded(float(np.quantile(errors, 0.9)), 3),
        low_row_bytes=int(cells.row.min()),
        high_row_bytes=int(cells.row.max()),
        ranks=int(gathers["gpus"].max()),
        clock=Clock.STREAM,
    )


_NAMES = ("floor_s", "link_bytes_per_s", "link_row_bytes", "link_header_bytes")


def _cells(gathers: pd.DataFrame) -> _Cells:
    column = {name: gathers[name].to_numpy(float) for name in ("batch", "tables", "pooling", "dim", "time_s")}
    row, rows = 4 * column["dim"], gathers["rows"].to_numpy(float)
    large = (rows * row > 0.9 * np.max(rows * row)).astype(float)
    return _Cells(column["batch"] * column["tables"] * column["pooling"], row, column["time_s"], large)


def _wire(row: Any, sector: float, header: float, least: Any) -> Floats:
    """``tiers.wire_bytes`` of rows rounded up to whole sectors."""
    moved, request = kernels.sector_rounded(row, sector), load_kernel_constants().value("link_request_bytes")
    return np.asarray(np.maximum(tiers.wire_bytes(moved, request, header, 0.0), least))


def _time(cells: _Cells, sector: float, q: Floats) -> Floats:
    """The equation of ``fit_host_tier`` [s]. q  parameters t_0 + lambda, p, m and h"""
    moved = kernels.sector_rounded(cells.row, sector)
    wire = _wire(cells.row, sector, float(q[3]), float(q[2]) * cells.large)
    rate = tiers.row_rate(q[1], 1.0, moved, wire, np.inf, 1.0)
    return np.asarray(tiers.link_time(cells.n * moved, q[0], rate))


def _fitted(cells: _Cells, sector: float, header: float | None = None) -> Any:
    """The fit of the parameters ``_NAMES`` for one sector. header  fixes the last parameter, the header"""
    logs, moved = np.log(cells.time_s), cells.n * kernels.sector_rounded(cells.row, sector)
    start = [
        float(cells.time_s.min()),
        float((moved / cells.time_s).max()),
        float(np.sqrt(_ROWS[0] * _ROWS[1])),
        load_kernel_constants().value("link_header_bytes"),
    ]
    bounds = [(value / _FARTHEST, value * _FARTHEST) for value in start[:2]] + [_ROWS, _HEADERS]
    free = len(_NAMES) - (header is not None)

    def residual(q: Floats) -> Floats:
        return np.asarray(np.log(_time(cells, sector, _whole(q, header))) - logs)

    limits = [(float(np.log(low)), float(np.log(high))) for low, high in bounds]
    return solve(residual, [float(np.log(value)) for value in start[:free]], limits[:free])


def _whole(q: Floats, header: float | None) -> Floats:
    """Parameters of ``_time`` from their logarithms."""
    return np.exp(q) if header is None else np.append(np.exp(q), header)


def _left_out(cells: _Cells, sector: float, header: float | None) -> Floats:
    """ln(t_fit / t) of each gather, fitted to all others."""
    errors = np.empty(cells.time_s.size)
    for at in range(errors.size):
        rest = np.arange(errors.size) != at
        others, one = cells.part(rest), cells.part(~rest)
        q = _whole(_fitted(others, sector, header).x, header)
        errors[at] = float(np.log(_time(one, sector, q)[0] / one.time_s[0]))
    return errors


def _interval(q: float, wide: float) -> Interval:
    value = rounded(float(np.exp(q)))
    low, high = (rounded(float(np.exp(q + sign * wide)), 3) for sign in (-1, 1))
    return Interval(value=value, low=min(low, value), high=max(high, value))


def _less(whole: Interval, part_s: float) -> Interval | None:
    """An interval minus a known floor.

    Limits: nothing is left -> None;  a low end below 0 -> 1/1000 of the value
    """
    value = whole.value - part_s
    if value <= 0:
        return None
    low, high = max(whole.low - part_s, value / _FARTHEST), whole.high - part_s
    centre = rounded(value)
    return Interval(value=centre, low=min(rounded(low, 3), centre), high=max(rounded(high, 3), centre))


def _copy_rate(copies: pd.DataFrame) -> Interval | None:
    """Rate of copies by t = t_0 + x / R. Limits: fewer than 3 sizes -> None"""
    size, time_s = (np.asarray(copies[name], dtype=float) for name in ("payload_bytes", "time_s"))
    if np.unique(size).size < len(("t_0", "R")) + 1:
        return None
    logs = np.log(time_s)
    start = (float(time_s.min()), float((size / time_s).max()))

    def residual(q: Floats) -> Floats:
        floor, rate = np.exp(q)
        return np.asarray(np.log(tiers.link_time(size, floor, rate)) - logs)

    limits = [(float(np.log(v / _FARTHEST)), float(np.log(v * _FARTHEST))) for v in start]
    best = solve(residual, [float(np.log(v)) for v in start], limits)
    return _interval(float(best.x[1]), half_widths(best)[1])
