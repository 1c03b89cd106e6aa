"""Text of a calibration run: machine, stack and plan; progress; and at its end curves, warnings, files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfmodel.model.collectives import compute_bus_factor
from perfmodel.report.calibration_text import errors_text, group_text, kernels_text, sizes_text, with_interval
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.fields import Interval
from perfmodel.schema.runs import Finish, Point, PointKind, RunHeader, Status, functional_reason
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_rate,
    format_time,
)

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.interfaces import RunOutcome
    from calibrate.running.stopping import Summary

_STACK = ("nccl", "rccl", "nvshmem", "gloo", "torch", "cuda", "torchrec", "fbgemm")
_MOST_LEFT_OUT = 8
_MOST_WARNINGS = 12
_BY_KIND = {PointKind.KERNEL: "kernels", PointKind.COMPOSED: "composed", PointKind.LOOKUP: "passes"}
"""The part of ``--only`` that measures points of a kind; of collectives it is their library."""
_PASSES = (PointKind.COMPOSED, PointKind.LOOKUP)


def head_text(host: Host, header: RunHeader, plan: MeasurementPlan, seconds: float, done: int) -> str:
    """The first lines of a calibration run: machine, libraries, and what will be measured.

    seconds  expected time to go [s];  done  points that are measured already
    """
    where = f"{counted(plan.world.nodes, 'node')}, {counted(plan.world.ranks, 'rank')}"
    check = f"functional check only, not a calibration: {functional_reason(header)}"
    libraries = [(name, header.stack[name]) for name in _STACK if header.stack.get(name)]
    versions = [text if text.lower().startswith(name) else f"{name} {text}" for name, text in libraries]
    git = f" (git {header.stack['git']})" if header.stack.get("git") else ""
    left_out = [f"{x.what}: {x.why}" + (f" ({x.install})" if x.install else "") for x in plan.left_out]
    return facts(
        [
            ("Machine", f"{header.machine}: {_describe_host(host)} · {where}"),
            ("", host.note),
            ("", check if header.functional_only else ""),
            ("Stack", " · ".join([*versions, f"perfmodel {header.stack.get('perfmodel', '')}{git}".strip()])),
            *_label("Plan", [*_list_parts(plan.points), _describe_amount(plan, seconds, done)]),
            *_label("Left out", _shorten_list(left_out, _MOST_LEFT_OUT)),
        ]
    )


def _label(name: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of label and text, of which only the first has the label."""
    return [("" if place else name, text) for place, text in enumerate(texts)]


def _shorten_list(texts: Sequence[str], most: int) -> list[str]:
    left = len(texts[most:])
    return [*texts[:most], *([f"and {left} more (--json has all)"] if left else [])]


def _describe_host(host: Host) -> str:
    """The machine on one line: GPUs or processor, cores, caches."""
    cores = f"{host.cores} cores"
    if host.cores < host.cores_online:
        cores += f" (of {host.cores_online})"
    if host.gpus:
        gpu = host.gpus[0]
        parts = [f"{len(host.gpus)}× {gpu.name}", f"driver {gpu.driver}" if gpu.driver else "", cores]
    else:
        caches = [f"{level} {format_bytes(size)}" for level, size in sorted(host.caches.items())]
        parts = [host.cpu, cores, ", ".join(caches)]
    return " · ".join(filter(None, parts))


def _describe_amount(plan: MeasurementPlan, seconds: float, done: int) -> str:
    """How many points there are and how many are left, the noise target, and the time that is left."""
    left = len(plan.points) - done
    total = counted(len(plan.points), "point")
    noise = format_fraction(plan.target.relative)
    if not left:
        return f"{total}, all of them done already; noise target {noise}. --fresh measures them again."
    if done:
        total += f", {format_count(done)} of them done already, {format_count(left)} to go"
    duration = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{total}; noise target {noise}, about {duration}. Ctrl-C is safe: what was measured is kept."


def _list_parts(points: Sequence[Point]) -> Iterator[str]:
    """A line for each library of collectives, and for kernels, passes and look-ups by each implementation."""
    groups: dict[tuple[PointKind, str], list[Point]] = {}
    for point in points:
        by = point.backend if point.kind is PointKind.COLLECTIVE else point.implementation
        groups.setdefault((point.kind, by), []).append(point)
    for (kind, by), cells in groups.items():
        names = list(dict.fromkeys(point.operation for point in cells))
        sizes = {point.payload_bytes for point in cells}
        ranks = sorted({(point.gpus, point.nodes) for point in cells})
        words = [
            f"{len(names)} {kind}s" if names[3:] else ", ".join(names),
            "G = "
            + ", ".join(f"{gpus} on {nodes} nodes" if nodes > 1 else str(gpus) for gpus, nodes in ranks),
            ", ".join(dict.fromkeys(str(point.clock) for point in cells)),
        ]
        if kind is PointKind.COLLECTIVE:
            low = format_bytes(min(sizes))
            high = format_bytes(max(sizes))
            words.insert(2, f"{counted(len(sizes), 'size')} {low if low == high else f'{low} – {high}'}")
        held = sum(point.held_out for point in cells)
        yield f"{by}: {' × '.join(words)}" + (f", {held} of them held out to check with" if held else "")


def format_clock(seconds: float) -> str:
    """A duration as ``0:07``, ``11:06`` or ``1:02:03``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def name_point(point: Point) -> str:
    """A point in words: ``nccl all_to_all G=8 1 MiB stream``."""
    by = point.backend if point.kind is PointKind.COLLECTIVE else point.implementation
    size = format_bytes(point.payload_bytes) if point.payload_bytes else ""
    if point.kind in _PASSES and point.work is not None:
        size = f"B={point.work.batch} T={point.work.tables} L={point.work.pooling:g} D={point.work.dim}"
    where = f"G={point.gpus}" + (f"/{point.nodes} nodes" if point.nodes > 1 else "")
    return " ".join(filter(None, (by, point.operation, where, size, str(point.clock))))


def progress_text(done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> str:
    """The progress line: share done, the time left, the point just measured, its median and noise so far.

    done     number of points done out of ``total`` (1 or more); a point measured in part counts in part
    left_s   expected time to go [s]
    """
    parts = [f"[{int(100 * done / total):3d} %] {format_clock(left_s)} left", name_point(point)]
    if summary is not None:
        noise = f"{format_time(summary.median_s)} ± {format_fraction(summary.relative_halfwidth)}"
        parts += [noise, f"n={summary.visits}", describe_rate(point, summary)]
    return "  ".join(filter(None, parts))


def describe_rate(point: Point, summary: Summary) -> str:
    """``66 GB/s bus`` for a collective, ``12 GB/s`` for a kernel; "" if no bytes are counted."""
    if not point.payload_bytes or point.kind in _PASSES:
        return ""
    if point.kind is PointKind.KERNEL:
        return format_rate(point.payload_bytes / summary.median_s)
    factor = float(compute_bus_factor(point.operation, point.gpus))
    return f"{format_rate(point.payload_bytes * factor / summary.median_s)} bus"


def outcome_text(
    outcome: RunOutcome, calibrations: Sequence[Calibration], written: Sequence[str], resume: str
) -> str:
    """The text at the end of a run: curves (else whose are borrowed), constants, warnings, files.

    written  files that the run wrote;  resume  the command that resumes it; "": it ended by itself
    """
    measured = select_measured(calibrations, outcome.folder.name)
    borrowed = [a.note for a, b in zip(calibrations, measured, strict=True) if a.curves and not b.curves]
    warnings = _shorten_list(list_warnings(outcome), _MOST_WARNINGS)
    states = outcome.states.values()
    elements = sum(state.checked for state in states)
    checked = counted(elements, "element")
    calls = counted(sum(state.calls for state in states), "timed call")
    checks = f"every point's result verified (0 wrong of {checked}; {calls})"
    if wrong := sum(state.wrong for state in states):
        checks = f"{format_count(wrong)} of {checked} wrong: those points are not used"
    files = [*written, f"{outcome.samples} ({state_words(outcome)})"]
    pairs = [("Checked", checks if elements else "nothing was measured"), *_label("Wrote", files)]
    ended = "at the time limit" if calibrations else "at the time limit, before anything could be fitted"
    pairs += [("Ended", ended), ("Resume", resume)] if resume else []
    numbered = facts([(str(number), text) for number, text in enumerate(warnings, start=1)], indent=1)
    parts = [
        fitted_text(measured),
        constants_text(measured),
        facts(_label("Collectives", [f"not measured here: {note}" for note in borrowed])),
        f"Warnings\n{numbered}" if numbered else "",
        "\n".join(f"{name:<7}  {text}" for name, text in pairs),  # not wrapped: file names stay whole
    ]
    return "\n" + "\n\n".join(filter(None, parts))


def select_measured(calibrations: Sequence[Calibration], run_id: str) -> list[Calibration]:
    """Copies of the calibrations, without curves that were borrowed from other runs than ``run_id``."""
    updates = [{"curves": [curve for curve in x.curves if run_id in curve.sources]} for x in calibrations]
    return [x.model_copy(update=update) for x, update in zip(calibrations, updates, strict=True)]


def state_words(outcome: RunOutcome) -> str:
    """``876 points, complete``, or how many of the points are measured."""
    if outcome.complete:
        return f"{counted(outcome.total, 'point')}, complete"
    begun = len(outcome.states) - outcome.done
    also = f", {format_count(begun)} more measured in part" if begun else ""
    return f"{format_count(outcome.done)} of {counted(outcome.total, 'point')} done{also}"


def fitted_text(calibrations: Sequence[Calibration]) -> str:
    """A table of the fitted curves of all calibrations; β is a bus bandwidth: payload times f over time."""
    rows = [(calibration, curve) for calibration in calibrations for curve in calibration.curves]
    if not rows:
        return ""
    head = [("Fitted", "t = (α^p + (S·f/β)^p)^(1/p)"), ("", "LOO: error on sizes left out of the fit")]
    return f"{facts(head)}\n{columns_text(_FITTED, rows)}"


def _shorten(interval: Interval, write: Callable[[float], str], factor: float = 1.0) -> str:
    """A value and half its 95 % interval in percent: ``9.00 µs ± 3 %``; "unknown" if samples do not tell."""
    if not interval.known:
        return "unknown"
    half = f"{50 * (interval.high - interval.low) / interval.value:.0f}"
    return f"{write(factor * interval.value)} ± {'<1' if half == '0' else half} %"


_FITTED = (
    Column("collective", lambda row: row[1].collective, left=True),
    Column("library", lambda row: str(row[0].backend), left=True),
    Column("G", lambda row: group_text(row[1].gpus, row[1].domain_gpus)),
    Column("clock", lambda row: str(row[1].clock), left=True),
    Column("α", lambda row: _shorten(row[1].alpha_s, format_time)),
    Column(
        "β (bus)",
        lambda row: _shorten(
            row[1].beta_bytes_per_s, format_rate, float(compute_bus_factor(row[1].collective, row[1].gpus))
        ),
    ),
    Column("p", lambda row: format_number(row[1].p.value), goes=1),
    Column("LOO p50/p90", lambda row: errors_text(row[1].loo_median, row[1].loo_p90), goes=3),
    Column("range", lambda row: sizes_text(row[1]), goes=2),
)


def constants_text(calibrations: Sequence[Calibration]) -> str:
    """The kernels' constants, once per clock, and how much longer a collective takes in a whole pass."""
    kernels = {x.kernels.clock: x.kernels for x in calibrations if x.kernels is not None}
    lines = [
        f"{x.backend} {'waits between steps' if name == 'between_steps' else name}, {x.clock}: "
        f"{with_interval(value, format_time)}"
        for x in calibrations
        for name, value in x.handover_s.items()
        if value.known
    ]
    parts = [*map(kernels_text, kernels.values()), facts(_label("In a pass, more", lines))]
    return "\n\n".join(filter(None, parts))


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


def _describe_group(status: Status, group: str, ends: Iterable[tuple[Point, Finish]]) -> str:
    """The warning about points that ended alike. group  as ``--only`` names it"""
    points, finishes = zip(*ends, strict=True)
    counts = Counter(p.implementation if p.kind in _PASSES else p.operation for p in points)
    names = ", ".join(f"{name} {count}" for name, count in counts.items())
    words = f"{len(points)} points ({names})" if points[1:] else name_point(points[0])
    reasons = "; ".join(list(dict.fromkeys(finish.reason for finish in finishes if finish.reason))[:2])
    if status is Status.FAILED:
        return f"{group}: {words} failed: {reasons}. Not used. Rerun the command to try again."
    if status is Status.THROTTLED:
        return f"{group}: {words} while the frequency was throttled ({reasons}). Kept, marked."
    widths = [end.high_s / end.median_s - 1 for end in finishes if end.high_s if end.median_s]
    widest = format_fraction(max(widths, default=0.0))
    only = group if len(counts) > 1 else f"{group}:{next(iter(counts))}"
    return (
        f"{group}: {words} stayed noisy, up to ± {widest}. Kept, marked noisy. Try --only {only} --noise 1%."
    )
