"""Text of a calibration: curves as formulas, laws with intervals, doubts, comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.model.bands import compute_log_band
from perfmodel.model.curves import interpolate_anchors
from perfmodel.model.laws import LINK_LAWS
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.calibration import Calibration, Curve, KernelConstants, Law
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import KEYS, Machine, list_machines, load_machine
from perfmodel.schema.run_files import calibrate_line
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_quantity,
    format_rate,
    format_ratio,
    format_time,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

_COMPARED_BYTES = (8 * 2**10, 2**20, 256 * 2**20)
_MOST_SAMPLES = 200
_MOST_NAMED = 2  # collectives on a line; if there are more, the whole library is named
_LEAST_WIDTH = 5e-4  # of an interval; narrower intervals are not printed
_FEW_SIZES = 10  # the quick preset has more


def calibration_record(item: Calibration) -> dict[str, Any]:
    """The summary of a calibration for JSON; loo_*: medians of the curves' leave-one-out errors."""
    medians = [curve.loo_median for curve in item.curves if curve.loo_median is not None]
    p90s = [curve.loo_p90 for curve in item.curves if curve.loo_p90 is not None]
    return {
        "calibration_id": item.calibration_id,
        "machine": item.machine,
        "backend": str(item.backend),
        "library_version": item.library_version,
        "clock": str(item.clock),
        "curves": len(item.curves),
        "samples": item.sample_count,
        "loo_median": median(medians) if medians else None,
        "loo_p90": median(p90s) if p90s else None,
        "complete": item.complete,
    }


def calibrations_text(found: Sequence[Calibration]) -> str:
    """A table of calibrations, a line for each."""
    said = paragraph("LOO: error on sizes left out of the fit, median over curves.")
    return f"{columns_text(_LISTED, found)}\n\n{said}"


def _measured_gpus(item: Calibration) -> str:
    gpus = [curve.gpus for curve in item.curves]
    return f"{min(gpus)} – {max(gpus)}" if gpus else ""


def _errors(item: Calibration) -> str:
    record = calibration_record(item)
    return errors_text(record["loo_median"], record["loo_p90"])


_LISTED = (
    Column("calibration", lambda item: item.calibration_id, left=True),
    Column("clock", lambda item: str(item.clock), left=True),
    Column("curves", lambda item: str(len(item.curves)), goes=2),
    Column("GPUs", _measured_gpus, goes=1),
    Column("samples", lambda item: format_count(item.sample_count), goes=3),
    Column("LOO p50/p90", _errors),
    Column("", lambda item: "" if item.complete else "partial", left=True),
)


def calibration_text(
    item: Calibration,
    machine: Machine | None = None,
    run: Path | None = None,
    *,
    brief: bool = False,
    since: tuple[int, int] = (0, 0),
) -> str:
    """The text for a calibration: summary, fitted curves with formulas, laws, kernels.

    run    folder of the run that measured it, for commands that measure more; None: not known
    brief  without formulas and constants; of laws and kernels, only what they are based on
    since  what the run has measured after the fit: unfinished points, and samples
    """
    state = "".join(
        [
            "complete" if item.complete else "partial",
            "" if item.checked else ", results not checked",
            _told_words(item.curves),
        ]
    )
    head = facts(
        [
            ("Calibration", item.calibration_id),
            ("Machine", f"{item.machine}, {_domain(item, machine)}"),
            ("Stack", f"{item.backend} {item.library_version or '(version unknown)'}, clock {item.clock}"),
            ("Samples", f"{format_count(item.sample_count)} fitted, {state}"),
            ("Since then", _since_words(run, *since)),
            ("Note", item.note),
            ("Environment", ", ".join(f"{k}={v}" for k, v in sorted(item.environment.items()))),
        ]
    )
    parts = [head]
    if item.curves:
        title = "Fitted   t = (α^p + (S/β)^p)^(1/p), G ranks (/ those that share a domain)"
        parts.append(paragraph(title) + "\n" + columns_text(_CURVES, item.curves))
        if not brief:
            pairs = [(f"{curve.collective} {_ranks(curve)}", curve.formula()) for curve in item.curves]
            parts.append("Formulas   S is the payload of one rank\n" + facts(pairs, indent=1))
        parts += _unknown_text(item, run)
    parts += [_law_text(law, brief) for law in item.laws]
    parts += [kernels_text(item.kernels, brief)] if item.kernels is not None else []
    return "\n\n".join(parts)


def _told_words(curves: Sequence[Curve]) -> str:
    """How many of the fitted floors α and rates β the samples determine; "" if they determine all."""
    told = [interval.known for curve in curves for interval in (curve.alpha_s, curve.beta_bytes_per_s)]
    return "" if all(told) else f"; {sum(told)} of {len(told)} floors and rates are known"


def kernels_text(constants: KernelConstants, brief: bool = False) -> str:
    """A table of the kernels' constants with 95 % intervals; brief  only the number of known constants"""
    rows = [[key, with_interval(value, _writer(key))] for key, value in constants.values.items()]
    rows += [[key, "unknown: the machine's value is used"] for key in constants.untold]
    errors = errors_text(constants.loo_median, constants.loo_p90)
    title = f"Kernels   {constants.implementation}, {constants.clock}; LOO p50/p90 {errors}"
    if brief:
        told = sum(value.known for value in constants.values.values())
        return paragraph(f"{title}; {told} of {counted(len(rows), 'constant')} known")
    return paragraph(title) + "\n" + table(["constant", "value"], rows)


def _writer(key: str) -> Callable[[float], str]:
    return lambda number: format_quantity(number, KEYS[key].unit)


def _since_words(run: Path | None, open_points: int, samples: int) -> str:
    """What the run measured after the fit, and the command that continues it; "" if that is nothing."""
    begun = f"{counted(open_points, 'point')} of the run begun and not ended" if open_points else ""
    more = f"{counted(samples, 'sample')} not in this fit" if samples else ""
    words = ", ".join(filter(None, (begun, more)))
    return f"{words}; to go on, and fit again:\n{calibrate_line(run)}" if run and words else ""


def _domain(item: Calibration, machine: Machine | None) -> str:
    """How many GPUs form a domain, and what connects them; without a known machine, only how many."""
    if machine is None and item.machine in list_machines():
        machine = load_machine(item.machine)
    if machine is None:
        return f"{counted(item.domain_gpus, 'rank')} in a domain"
    wide = machine.nvlink_domain_gpus > 1
    return (
        f"{item.domain_gpus} GPUs in an {machine.links.scale_up} domain"
        if wide
        else f"{item.domain_gpus} GPUs over PCIe in a node"
    )


def with_interval(interval: Interval, write: Callable[[float], str]) -> str:
    """The value ± half the relative width of its 95 % interval; "unknown" if the samples do not determine it.

    Limits: an interval of no width (exact numbers, or hardly more samples than parameters) -> the value alone
    """
    half = (interval.high - interval.low) / (2 * interval.value)
    width = f" ± {format_fraction(half)}" if half >= _LEAST_WIDTH else ""
    return f"{write(interval.value)}{width}" if interval.known else "unknown"


def _of_sizes(curve: Curve, text: str) -> str:
    """``text`` of a fitted parameter, but "one size" if it is unknown because a single size was measured."""
    return "one size" if text == "unknown" and len(curve.anchor_bytes) == 1 else text


def errors_text(middle: float | None, high: float | None) -> str:
    """Median and 90th percentile of a relative error: ``2.1 / 6.3 %``."""
    if middle is None or high is None:
        return "-"
    return f"{100 * middle:.1f} / {100 * high:.1f} %"


def sizes_text(curve: Curve) -> str:
    """The range of sizes that a curve was measured at."""
    return f"{format_bytes(curve.anchor_bytes[0])} – {format_bytes(curve.anchor_bytes[-1])}"


_CURVES = (
    Column("collective", lambda curve: curve.collective, left=True),
    Column("G", lambda curve: group_text(curve.gpus, curve.domain_gpus)),
    Column("α", lambda curve: _of_sizes(curve, with_interval(curve.alpha_s, format_time))),
    Column("β (algbw)", lambda curve: _of_sizes(curve, with_interval(curve.beta_bytes_per_s, format_rate))),
    Column("p", lambda curve: format_number(curve.p.value), goes=1),
    Column("LOO p50/p90", lambda curve: errors_text(curve.loo_median, curve.loo_p90), goes=2),
    Column("range", sizes_text),
    Column("", lambda curve: "at bound: " * bool(curve.at_bound) + ", ".join(curve.at_bound), left=True),
)


def _unknown_text(item: Calibration, run: Path | None) -> list[str]:
    """Why floors or rates of some curves are unknown, and the command that determines them; [] if none is."""
    vague = [c for c in item.curves if not (c.alpha_s.known and c.beta_bytes_per_s.known)]
    if not vague:
        return []
    names = ["floor"] if any(not c.alpha_s.known for c in vague) else []
    names += ["rate"] if any(not c.beta_bytes_per_s.known for c in vague) else []
    fewest = min(vague, key=lambda c: len(c.anchor_bytes))
    few = len(fewest.anchor_bytes) < _FEW_SIZES
    low, high = (format_bytes(fewest.anchor_bytes[at]) for at in (0, -1))
    sizes = f"{counted(len(fewest.anchor_bytes), 'size')} {low if low == high else f'{low} – {high}'}"
    why = "too few" if few else "they do not reach it, or are too noisy"
    text = (
        f"Unknown {' or '.join(names)}: the samples do not determine it (half its 95 % interval is more than "
        f"the value): {sizes}, {why}. Inside the measured range the measured times are used; outside, the "
        "curve is rough. To determine it, measure smaller sizes for the floor, larger ones for the rate"
    )
    line = "" if run is None else "\n  " + _more_line(item, vague, run, few)
    return [paragraph(text + (":" if line else ".")) + line]


def _more_line(item: Calibration, vague: Sequence[Curve], run: Path, few: bool) -> str:
    """The command that measures more sizes of the curves ``vague``. few  use the quick preset"""
    library, names = str(item.backend), sorted({curve.collective for curve in vague})
    only = library if len(names) > _MOST_NAMED else ",".join(f"{library}:{name}" for name in names)
    ranks = ",".join(str(gpus) for gpus in sorted({curve.gpus for curve in vague}))
    words = ("--only", only, "--clock", str(item.clock), "--ranks", ranks)
    return calibrate_line(run, *words, preset="--quick" if few else "")


def _ranks(curve: Curve) -> str:
    """The numbers of ranks as ``G=16 g=8``; g only if the ranks span several domains."""
    return f"G={curve.gpus}" + (f" g={curve.domain_gpus}" if curve.domain_gpus < curve.gpus else "")


def _law_text(law: Law, brief: bool = False) -> str:
    title = f"Beyond the measured cells   {law.law.replace('_', '-')} law for {', '.join(law.collectives)}"
    rows = []
    across = {each.name for each in LINK_LAWS[law.law].unknowns if each.network}
    for i, (name, value) in enumerate(zip(law.names, law.values, strict=True)):
        low, _, high = compute_log_band(value, law.log_sd[i])
        unseen = bool(law.sources) and law.fitted_domains == 1 and name in across
        span = f"{_si(name, float(low))} – {_si(name, float(high))}"
        rows.append([name, _si(name, value), span, "of its network" if unseen else ""])
    scatter = format_fraction(math.expm1(law.residual_log_sd))
    domains = counted(law.fitted_domains, "domain")
    basis = f"fitted on up to {law.fitted_gpus} GPUs in {domains}; scatter {scatter}"
    if not law.sources:
        basis = "not fitted here: values of machines of this kind"
    elif law.fitted_domains == 1:
        basis += "; of its network: what the clusters on networks of this kind have in common"
    if brief:
        return paragraph(title) + "\n" + paragraph(basis, indent=1)
    return (
        paragraph(title)
        + "\n"
        + table(["constant", "value", "95 % interval", ""], rows, left=(0, 3))
        + "\n"
        + paragraph(basis, indent=1)
    )


def _si(name: str, value: float) -> str:
    if name.endswith("_bytes_per_s"):
        return format_rate(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return format_time(value) if name.endswith("_s") else format_number(value)


def samples_text(points: pd.DataFrame) -> str:
    """A table of the measured points: for each size the median time, number of samples, spread and source."""
    keys = ["collective", "gpus", "nodes", "variant", "payload_bytes"]
    rows = []
    for key, group in points.groupby(keys, sort=True):
        times = group["time_s"]
        flags = sorted({flag for flag in group["flag"] if flag != "ok"})
        collective, gpus, nodes, variant, payload = key
        spread = float(times.max() / times.min() - 1)
        rows.append(
            [
                str(collective),
                str(gpus),
                str(nodes),
                str(variant),
                format_bytes(float(str(payload))),
                format_time(float(times.median())),
                str(len(times)),
                format_fraction(spread),
                ", ".join(sorted(set(group["source_id"]))),
                ", ".join(flags),
            ]
        )
    left = len(rows) - _MOST_SAMPLES
    more = f"\n … and {left} more sizes (--json has all)" if left > 0 else ""
    headers = ["collective", "G", "nodes", "variant", "size", "median", "n", "spread", "source", ""]
    return f"Samples   {counted(len(points), 'point')}\n" + table(
        headers, rows[:_MOST_SAMPLES], left=(0, 3, 8, 9), drop=(2, 7, 6)
    ) + more  # fmt: skip


def comparison(first: Calibration, second: Calibration) -> list[dict[str, Any]]:
    """Compare the curves that both calibrations have at three sizes N [byte]: a dictionary for each curve.

    Keys: collective, gpus, domain_gpus, time_N_bytes_s (of both), ratio_N_bytes; None where not measured
    """
    rows = []
    for curve in first.curves:
        other = second.curve(curve.collective, curve.gpus, curve.domain_gpus)
        if other is None:
            continue
        row: dict[str, Any] = {"collective": curve.collective, "gpus": curve.gpus}
        row["domain_gpus"] = curve.domain_gpus
        for size in _COMPARED_BYTES:
            a, b = _time(curve, size), _time(other, size)
            row[f"time_{size}_bytes_s"] = [a, b]
            row[f"ratio_{size}_bytes"] = None if a is None or b is None else b / a
        rows.append(row)
    return rows


def _time(curve: Curve, payload_bytes: float) -> float | None:
    """The curve's time for a payload [s]; None outside the sizes that were measured."""
    if not curve.anchor_bytes[0] <= payload_bytes <= curve.anchor_bytes[-1]:
        return None
    anchors = np.asarray(curve.anchor_bytes), np.asarray(curve.anchor_times_s)
    parameters = curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value
    return float(interpolate_anchors(payload_bytes, *parameters, *anchors))


def comparison_text(first: Calibration, second: Calibration, rows: Sequence[dict[str, Any]]) -> str:
    """A table of both calibrations' times at three sizes and their ratio. rows  from ``comparison``"""
    head = facts([("A", first.calibration_id), ("B", second.calibration_id)])
    left = "".join(f"\n{line}" for line in _not_compared(first, second))
    if not rows:
        return head + "\n\nThey have no curve in common." + left
    lines = []
    for row in rows:
        cells = [str(row["collective"]), group_text(row["gpus"], row["domain_gpus"]).replace(" ", "")]
        for size in _COMPARED_BYTES:
            a, b = row[f"time_{size}_bytes_s"]
            cells += ["-" if time is None else format_time(time) for time in (a, b)]
            cells.append("-" if a is None or b is None else format_ratio(b / a))
        lines.append(cells)
    headers = ["collective", "G"]
    for size in _COMPARED_BYTES:
        headers += [f"A {format_bytes(size)}", "B", "B/A"]
    shown = table(headers, lines, drop=((8, 9, 10), (5, 6, 7)))
    holes = any("-" in cells for cells in lines)
    return f"{head}\n\n{shown}" + ("\n - outside the sizes that were measured" if holes else "") + left


def only_in(first: Calibration, second: Calibration) -> list[Curve]:
    """Curves of the first calibration that the second lacks."""
    return [c for c in first.curves if second.curve(c.collective, c.gpus, c.domain_gpus) is None]


def _not_compared(first: Calibration, second: Calibration) -> list[str]:
    """Lines that list, by collective, the curves that only the first or only the second calibration has."""
    lines = []
    for letter, one, other in (("A", first, second), ("B", second, first)):
        groups: dict[str, list[str]] = {}
        for curve in only_in(one, other):
            groups.setdefault(curve.collective, []).append(group_text(curve.gpus, curve.domain_gpus))
        if groups:
            count = counted(sum(map(len, groups.values())), "cell")
            names = "; ".join(f"{name} {', '.join(sizes)}" for name, sizes in groups.items())
            lines.append(paragraph(f"Only {letter} has {count}: {names}.", indent=1))
    return lines


def group_text(gpus: int, domain_gpus: int) -> str:
    """The number of ranks, then ranks per domain if they span several domains: ``16 / 8``."""
    return f"{gpus} / {domain_gpus}" if domain_gpus < gpus else str(gpus)
