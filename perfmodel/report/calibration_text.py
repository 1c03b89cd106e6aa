"""Text of a calibration: curves, laws and kernels with intervals, errors and doubts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.calibration import Calibration, Curve, KernelConstants, Law
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import KEYS
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_quantity,
    format_rate,
    format_time,
)

_LEAST_WIDTH = 5e-4  # of an interval; narrower intervals are not printed


def calibration_record(item: Calibration) -> dict[str, object]:
    """The summary of a calibration for JSON; loo_*: medians of the curves' leave-one-out errors."""
    loo_median, loo_p90 = _find_medians(item)
    return {
        "calibration_id": item.calibration_id,
        "machine": item.machine,
        "backend": str(item.backend),
        "library_version": item.library_version,
        "clock": str(item.clock),
        "curves": len(item.curves),
        "samples": item.sample_count,
        "loo_median": loo_median,
        "loo_p90": loo_p90,
        "complete": item.complete,
    }


def _find_medians(item: Calibration) -> tuple[float | None, float | None]:
    """The medians over its curves of the median and of the 90th percentile of the leave-one-out errors."""
    medians = [curve.loo_median for curve in item.curves if curve.loo_median is not None]
    p90s = [curve.loo_p90 for curve in item.curves if curve.loo_p90 is not None]
    return median(medians) if medians else None, median(p90s) if p90s else None


def calibrations_text(calibrations: Sequence[Calibration]) -> str:
    """A table of calibrations, a line for each."""
    notes = paragraph("LOO: error on sizes left out of the fit, median over curves.")
    return f"{columns_text(_LISTED, calibrations)}\n\n{notes}"


_LISTED = (
    Column("calibration", lambda item: item.calibration_id, left=True),
    Column("clock", lambda item: str(item.clock), left=True),
    Column("curves", lambda item: str(len(item.curves)), goes=2),
    Column("most GPUs", lambda item: str(max((x.gpus for x in item.curves), default="")), goes=1),
    Column("samples", lambda item: format_count(item.sample_count), goes=3),
    Column("LOO p50/p90", lambda item: errors_text(*_find_medians(item))),
    Column("", lambda item: "" if item.complete else "partial", left=True),
)


def calibration_text(item: Calibration) -> str:
    """The screen of ``perfmodel show`` for a calibration: summary, fitted curves, laws, kernels."""
    intervals = [x for curve in item.curves for x in (curve.alpha_s, curve.beta_bytes_per_s)]
    known_count = sum(interval.known for interval in intervals)
    state = ("complete" if item.complete else "partial") + ("" if item.checked else ", results not checked")
    if known_count < len(intervals):
        state += f"; {known_count} of {len(intervals)} floors and rates are known"
    version = item.library_version or "(version unknown)"
    summary = {
        "Calibration": item.calibration_id,
        "Machine": f"{item.machine}, {counted(item.domain_gpus, 'GPU')} in a domain",
        "Stack": f"{item.backend} {version}, clock {item.clock}",
        "Samples": f"{format_count(item.sample_count)} fitted, {state}",
        "Note": item.note,
        "Environment": ", ".join(f"{k}={v}" for k, v in sorted(item.environment.items())),
    }
    parts = [facts(list(summary.items()))]
    if item.curves:
        title = "Fitted   t = (α^p + (S/β)^p)^(1/p), G ranks (/ those that share a domain)"
        parts.append(paragraph(title) + "\n" + columns_text(_CURVES, item.curves))
    if known_count < len(intervals):
        words = "Unknown: the samples do not determine it (half its 95 % interval is more than the value)."
        parts.append(paragraph(f"{words} Measure smaller sizes for a floor, larger ones for a rate."))
    parts += map(_describe_law, item.laws)
    parts += [kernels_text(item.kernels)] if item.kernels is not None else []
    return "\n\n".join(parts)


def kernels_text(constants: KernelConstants) -> str:
    """A table of the kernels' constants with 95 % intervals."""
    rows = [
        [key, with_interval(value, partial(format_quantity, unit=KEYS[key].unit))]
        for key, value in constants.values.items()
    ]
    rows += [[key, "unknown: the machine's value is used"] for key in constants.untold]
    errors = ", ".join(f"{x} {errors_text(fit.loo_median, fit.loo_p90)}" for x, fit in constants.fits.items())
    title = f"Kernels   {constants.implementation}, {constants.clock}; LOO p50/p90 {errors}"
    return f"{paragraph(title)}\n{table(['constant', 'value'], rows)}"


def with_interval(interval: Interval, write: Callable[[float], str]) -> str:
    """The value ± half the relative width of its 95 % interval; "unknown" if the samples do not determine it.

    Limits: an interval of no width (exact numbers, or hardly more samples than parameters) -> the value alone
    """
    half = (interval.high - interval.low) / (2 * interval.value)
    width = f" ± {format_fraction(half)}" if half >= _LEAST_WIDTH else ""
    return f"{write(interval.value)}{width}" if interval.known else "unknown"


def errors_text(*errors: float | None) -> str:
    """Median and 90th percentile of a relative error: ``2.1 / 6.3 %``; "-" if they are not known."""
    percents = " / ".join(f"{100 * error:.1f}" for error in errors if error is not None)
    return f"{percents} %" if percents else "-"


def sizes_text(curve: Curve) -> str:
    """The range of sizes that a curve was measured at."""
    low = format_bytes(curve.anchor_bytes[0])
    high = format_bytes(curve.anchor_bytes[-1])
    return low if low == high else f"{low} – {high}"


_CURVES = (
    Column("collective", lambda curve: curve.collective, left=True),
    Column("G", lambda curve: group_text(curve.gpus, curve.domain_gpus)),
    Column("α", lambda curve: with_interval(curve.alpha_s, format_time)),
    Column("β (algbw)", lambda curve: with_interval(curve.beta_bytes_per_s, format_rate)),
    Column("p", lambda curve: format_number(curve.p.value), goes=1),
    Column("LOO p50/p90", lambda curve: errors_text(curve.loo_median, curve.loo_p90), goes=2),
    Column("range", sizes_text),
    Column("", lambda curve: "at bound: " * bool(curve.at_bound) + ", ".join(curve.at_bound), left=True),
)


def _describe_law(law: Law) -> str:
    """A law in words: its collectives, the ranks that it was fitted on, and the scatter around it."""
    title = f"Beyond the measured cells   {law.law.replace('_', '-')} law for {', '.join(law.collectives)}"
    domains = counted(law.fitted_domains, "domain")
    scatter = format_fraction(math.expm1(law.residual_log_sd))
    basis = f"fitted on up to {law.fitted_gpus} GPUs in {domains}; scatter {scatter}"
    if not law.sources:
        basis = "not fitted here: values of machines of this kind"
    elif law.fitted_domains == 1:
        basis += "; across domains: what the clusters on networks of this kind have in common"
    return f"{paragraph(title)}\n{paragraph(basis, indent=1)}"


def group_text(gpus: int, domain_gpus: int) -> str:
    """The number of ranks, then ranks per domain if they span several domains: ``16 / 8``."""
    return f"{gpus} / {domain_gpus}" if domain_gpus < gpus else str(gpus)
