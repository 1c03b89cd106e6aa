"""Text of a finished calibration run: curves, constants, warnings, files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfmodel.model.collectives import compute_bus_factor
from perfmodel.report.calibration_text import errors_text, group_text, kernels_text, sizes_text, with_interval
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.run import label, name_point
from perfmodel.report.terminal import facts
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.fields import Interval
from perfmodel.schema.runs import Finish, Point, PointKind, Status
from perfmodel.units import counted, format_count, format_fraction, format_number, format_rate, format_time

if TYPE_CHECKING:
    from calibrate.running.interfaces import RunOutcome

_LEAST_SHOWN = 0.01  # of a relative half-width
_MOST_WARNINGS = 12
_BY_KIND = {PointKind.KERNEL: "kernels", PointKind.COMPOSED: "composed", PointKind.LOOKUP: "passes"}
"""The part of ``--only`` that measures points of a kind; of collectives it is their library."""


def outcome_text(
    outcome: RunOutcome, calibrations: Sequence[Calibration], written: Sequence[str], resume: str
) -> str:
    """The text at the end of a calibration run: curves, constants, warnings, files.

    written  files that the run wrote;  resume  the command that resumes it; "": it ended by itself
    """
    measured = select_measured(calibrations, outcome.folder.name)
    borrowed = [a.note for a, b in zip(calibrations, measured, strict=True) if a.curves and not b.curves]
    warnings = list_warnings(outcome)
    if left := max(len(warnings) - _MOST_WARNINGS, 0):
        warnings[_MOST_WARNINGS:] = [f"and {left} more (--json has all)"]
    pairs = [("Checked", _describe_checks(outcome))]
    pairs += label("Wrote", [*written, f"{outcome.samples} ({state_words(outcome)})"])
    pairs += [("Resume", resume)] if resume else []
    numbered = facts([(str(number), text) for number, text in enumerate(warnings, start=1)], indent=1)
    parts = [
        fitted_text(measured),
        _list_constants(measured),
        facts(label("Collectives", [f"not measured here: {note}" for note in borrowed])),
        f"Warnings\n{numbered}" if numbered else "",
        "\n".join(f"{name:<7}  {text}" for name, text in pairs),  # not wrapped: file names stay whole
    ]
    return "\n" + "\n\n".join(piece for piece in parts if piece)


def select_measured(calibrations: Sequence[Calibration], run_id: str) -> list[Calibration]:
    """Copies of the calibrations without the curves that other runs measured."""
    return [
        calibration.model_copy(
            update={"curves": [curve for curve in calibration.curves if run_id in curve.sources]}
        )
        for calibration in calibrations
    ]


def state_words(outcome: RunOutcome) -> str:
    """``876 points, complete``, or how many of the points are measured."""
    if outcome.complete:
        return f"{counted(outcome.total, 'point')}, complete"
    begun = len(outcome.states) - outcome.done
    also = f", {format_count(begun)} more measured in part" if begun else ""
    return f"{format_count(outcome.done)} of {counted(outcome.total, 'point')} done{also}"


def _describe_checks(outcome: RunOutcome) -> str:
    """How many elements of results were compared with expected values, and how many were wrong."""
    calls, checked = counted(outcome.calls, "timed call"), counted(outcome.checked, "element")
    if not outcome.checked:
        return "nothing was measured"
    if outcome.wrong:
        return f"{format_count(outcome.wrong)} of {checked} wrong: those points are not used"
    return f"every point's result verified (0 wrong of {checked}; {calls})"


def fitted_text(calibrations: Sequence[Calibration]) -> str:
    """A table of the fitted curves of all calibrations; β is a bus bandwidth: payload times f over time."""
    rows = [(str(calibration.backend), curve) for calibration in calibrations for curve in calibration.curves]
    libraries = list(dict.fromkeys(library for library, _ in rows))
    clocks = list(dict.fromkeys(str(curve.clock) for _, curve in rows))
    if not rows:
        return ""
    columns = (
        *([Column("library", lambda row: row[0], left=True)] if libraries[1:] else []),
        Column("collective", lambda row: row[1].collective, left=True),
        Column("G", lambda row: group_text(row[1].gpus, row[1].domain_gpus)),
        *([Column("clock", lambda row: str(row[1].clock), left=True)] if clocks[1:] else []),
        Column("α", lambda row: _shorten(row[1].alpha_s, format_time)),
        Column("β (bus)", lambda row: _shorten(_compute_bus(row[1]), format_rate)),
        Column("p", lambda row: format_number(row[1].p.value), goes=1),
        Column("LOO p50/p90", lambda row: errors_text(row[1].loo_median, row[1].loo_p90), goes=3),
        Column("range", lambda row: sizes_text(row[1]), goes=2),
    )
    title = f"t = (α^p + (S·f/β)^p)^(1/p)   {', '.join(libraries)}, clock {', '.join(clocks)}"
    head = facts([("Fitted", title), ("", "LOO: error on sizes left out of the fit")])
    return f"{head}\n{columns_text(columns, rows)}"


def _shorten(interval: Interval, write: Callable[[float], str]) -> str:
    """A value and half its 95 % interval in percent: ``9.00 µs ± 3 %``; "unknown" if samples do not tell."""
    half = (interval.high - interval.low) / (2 * interval.value)
    if not interval.known:
        return "unknown"
    return f"{write(interval.value)} ± {f'{100 * half:.0f}' if half >= _LEAST_SHOWN else '<1'} %"


def _compute_bus(curve: Curve) -> Interval:
    """The curve's rate β times the bus factor f of its collective [byte/s]."""
    factor, rate = float(compute_bus_factor(curve.collective, curve.gpus)), curve.beta_bytes_per_s
    return Interval(value=rate.value * factor, low=rate.low * factor, high=rate.high * factor)


def _list_constants(calibrations: Sequence[Calibration]) -> str:
    """The kernels' constants, once per clock, and how much longer a collective takes in a whole pass."""
    kernels = {
        calibration.kernels.clock: calibration.kernels
        for calibration in calibrations
        if calibration.kernels is not None
    }
    lines = []
    for calibration in calibrations:
        for name, value in calibration.handover_s.items():
            waits = name == "between_steps"
            meaning = "of waits between the steps of a pass" if waits else "more in a whole pass than alone"
            if value.known:
                time = with_interval(value, format_time)
                lines.append(f"{calibration.backend} {name}, {calibration.clock}: {time} {meaning}")
    parts = [*map(kernels_text, kernels.values()), facts(label("In a pass", lines))]
    return "\n\n".join(piece for piece in parts if piece)


def list_warnings(outcome: RunOutcome) -> list[str]:
    """Warnings of the run; for each library, its points that were noisy, throttled or failed."""
    texts = [text for text in outcome.warnings if " failed: " not in text]
    calm = outcome.header.functional_only  # its times mean nothing anyway
    for status in (Status.FAILED, Status.THROTTLED, *(() if calm else (Status.NOISY,))):
        groups: dict[str, list[tuple[Point, Finish]]] = {}
        for point, finish in outcome.with_status(status):
            groups.setdefault(_BY_KIND.get(point.kind, point.backend), []).append((point, finish))
        texts += [_describe_group(status, name, ends) for name, ends in groups.items()]
    return texts


def _describe_group(status: Status, group: str, ends: Sequence[tuple[Point, Finish]]) -> str:
    """The warning about points that ended alike. group  as ``--only`` names it"""
    of_passes = (PointKind.COMPOSED, PointKind.LOOKUP)
    counts = Counter(p.implementation if p.kind in of_passes else p.operation for p, _ in ends)
    names = [f"{name} {count}" if counts.keys() - {name} else name for name, count in counts.items()]
    points = f"{len(ends)} points ({', '.join(names)})" if ends[1:] else name_point(ends[0][0])
    reasons = "; ".join(list(dict.fromkeys(finish.reason for _, finish in ends if finish.reason))[:2])
    if status is Status.FAILED:
        return f"{group}: {points} failed: {reasons}. Not used. Rerun the command to try again."
    if status is Status.THROTTLED:
        return f"{group}: {points} while the frequency was throttled ({reasons}). Kept, marked."
    widths = [end.high_s / end.median_s - 1 if end.high_s and end.median_s else 0.0 for _, end in ends]
    worst, only = format_fraction(max(widths)), group if len(counts) > 1 else f"{group}:{next(iter(counts))}"
    return (
        f"{group}: {points} stayed noisy, up to ± {worst}. Kept, marked noisy. Try --only {only} --noise 1%."
    )
