"""Text of a calibration while it runs: machine, stack, plan, progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.model.collectives import compute_bus_factor
from perfmodel.report.terminal import WIDTH, facts, page_width
from perfmodel.schema.runs import Point, PointKind, RunHeader, functional_reason
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_rate,
    format_time,
)

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan, NotMeasured
    from calibrate.running.stopping import Summary

_LIBRARIES = ("nccl", "rccl", "nvshmem", "gloo")
_STACK = (*_LIBRARIES, "torch", "cuda", "torchrec", "fbgemm")
_MOST_LEFT_OUT = 8


def head_text(host: Host, header: RunHeader, plan: MeasurementPlan, seconds: float, done: int) -> str:
    """The first lines of a calibration run: machine, libraries, and what will be measured.

    seconds  expected time to go [s];  done  points that are measured already
    """
    many = f"{counted(plan.world.nodes, 'node')}, {counted(plan.world.ranks, 'rank')}"
    lines = [
        ("Machine", f"{header.machine}: {host_words(host)} · {many}"),
        ("", host.note),
        ("", functional_words(header)),
        ("Stack", stack_words(header.stack)),
        *plan_lines(plan, seconds, done),
    ]
    return facts([(name, text) for name, text in lines if text])


def host_words(host: Host) -> str:
    """The machine on one line: GPUs or processor, cores, caches."""
    if host.gpus:
        names = f"{len(host.gpus)}× {host.gpus[0].name}"
        driver = f"driver {host.gpus[0].driver}" if host.gpus[0].driver else ""
        parts = [names, driver, f"{host.cores} cores"]
    else:
        caches = ", ".join(f"{level} {format_bytes(size)}" for level, size in sorted(host.caches.items()))
        parts = [host.cpu, f"{host.cores} cores", caches]
    if host.cores < host.cores_online:
        parts[-1 if host.gpus else 1] += f" (of {host.cores_online})"
    return " · ".join(part for part in parts if part)


def functional_words(header: RunHeader) -> str:
    """A note that a run checks results only, so that its times mean nothing; "" for other runs."""
    if not header.functional_only:
        return ""
    return f"functional check only, not a calibration: {functional_reason(header)}"


def stack_words(stack: Mapping[str, str]) -> str:
    """The libraries of a run with their versions, and the version of this program."""
    known = [
        version if version.lower().startswith(name) else f"{name} {version}"
        for name in _STACK
        if (version := stack.get(name))
    ]
    git = f" (git {stack['git']})" if stack.get("git") else ""
    return " · ".join([*known, f"perfmodel {stack.get('perfmodel', '')}{git}".strip()])


def plan_lines(plan: MeasurementPlan, seconds: float, done: int = 0) -> list[tuple[str, str]]:
    """Pairs of label and text: what is measured, how many points, how long; and what is left out.

    seconds, done  as in ``head_text``
    """
    lines = [*_collective_words(plan.points), *_work_words(plan.points)]
    lines.append(_amount_words(plan, seconds, done))
    named = [("Plan" if i == 0 else "", line) for i, line in enumerate(lines)]
    return named + left_out_lines(plan.left_out)


def _amount_words(plan: MeasurementPlan, seconds: float, done: int) -> str:
    """How many points there are and how many are left, the noise target, and the time that is left."""
    left = len(plan.points) - done
    total, noise = counted(len(plan.points), "point"), format_fraction(plan.target.relative)
    if not left:
        return f"{total}, all of them done already; noise target {noise}. --fresh measures them again."
    if done:
        total += f", {format_count(done)} of them done already, {format_count(left)} to go"
    duration = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{total}; noise target {noise}, about {duration}. Ctrl-C is safe: what was measured is kept."


def left_out_lines(items: Sequence[NotMeasured]) -> list[tuple[str, str]]:
    """Pairs of label and text for operations that are not measured, and why."""
    lines = [f"{item.what}: {item.why}" + (f" ({item.install})" if item.install else "") for item in items]
    more = [f"and {len(lines) - _MOST_LEFT_OUT} more (--json has all)"] if lines[_MOST_LEFT_OUT:] else []
    shown = [*lines[:_MOST_LEFT_OUT], *more]
    return [("Left out" if i == 0 else "", line) for i, line in enumerate(shown)]


def _collective_words(points: Sequence[Point]) -> list[str]:
    """A line for each library: its operations × numbers of ranks × sizes × clocks."""
    lines = []
    for backend in dict.fromkeys(point.backend for point in points if point.kind is PointKind.COLLECTIVE):
        own = [p for p in points if p.kind is PointKind.COLLECTIVE and p.backend == backend]
        sizes, names = [point.payload_bytes for point in own], dict.fromkeys(point.operation for point in own)
        parts = [
            f"{len(names)} collectives" if len(names) > 3 else ", ".join(names),
            f"G = {_ranks(own)}",
            _sizes(sizes),
            ", ".join(dict.fromkeys(str(point.clock) for point in own)),
        ]
        others = [v.replace("_", " ") for v in dict.fromkeys(p.variant for p in own) if v != "default"]
        lines.append(f"{backend}: {' × '.join(parts)}" + (f"; also {', '.join(others)}" if others else ""))
    return lines


def _sizes(sizes: Sequence[int]) -> str:
    """The sizes in words: ``14 sizes 128 B – 1 MiB``, ``1 size 1 KiB``."""
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    return f"{counted(len(set(sizes)), 'size')} {low if low == high else f'{low} – {high}'}"


def _ranks(points: Iterable[Point]) -> str:
    groups = dict.fromkeys((point.gpus, point.nodes) for point in points)
    return ", ".join(f"{gpus} on {nodes} nodes" if nodes > 1 else str(gpus) for gpus, nodes in sorted(groups))


def _work_words(points: Sequence[Point]) -> list[str]:
    kernels = [point for point in points if point.kind is PointKind.KERNEL]
    passes = [point for point in points if point.kind is PointKind.COMPOSED]
    lines = []
    if kernels:
        names = ", ".join(dict.fromkeys(point.operation for point in kernels))
        by = ", ".join(dict.fromkeys(point.implementation for point in kernels))
        lines.append(f"{counted(len(kernels), 'kernel cell')} of {by}: {names}")
    if passes:
        by = ", ".join(dict.fromkeys(f"{point.implementation} over {point.backend}" for point in passes))
        held = sum(point.held_out for point in passes)
        many = counted(len(passes), "whole row-wise pass", "whole row-wise passes")
        lines.append(f"{many} ({by}), {held} of them held out to check with")
    look_ups = [point for point in points if point.kind is PointKind.LOOKUP]
    if look_ups:
        by = ", ".join(dict.fromkeys(point.implementation for point in look_ups))
        many = counted(len(look_ups), "point")
        lines.append(f"{many} of the paper's look-ups × G = {_ranks(look_ups)} ({by})")
    return lines


def clock_words(seconds: float) -> str:
    """A duration as ``0:07``, ``11:06`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def point_name(point: Point) -> str:
    """A point in words: ``nccl all_to_all G=8 1 MiB stream``, with its variant if that is not the default."""
    by = point.backend if point.kind is PointKind.COLLECTIVE else point.implementation
    size = format_bytes(point.payload_bytes) if point.payload_bytes else ""
    if point.kind in (PointKind.COMPOSED, PointKind.LOOKUP) and point.work is not None:
        size = f"B={point.work.batch} T={point.work.tables} L={point.work.pooling:g} D={point.work.dim}"
    variant = "" if point.variant == "default" else point.variant.replace("_", " ")
    where = f"G={point.gpus}" + (f"/{point.nodes} nodes" if point.nodes > 1 else "")
    return " ".join(part for part in (by, point.operation, where, size, str(point.clock), variant) if part)


def progress_text(
    done: float, total: int, point: Point, summary: Summary | None, left_s: float, columns: int | None = None
) -> str:
    """The progress line: share done, the point just measured, its median and noise so far, the time left.

    done     number of points done out of ``total``; a point that is measured in part counts in part
    left_s   expected time to go [s];  columns  width of the terminal; None: a page's width
    """
    parts = [f"[{int(100 * done / max(total, 1)):3d} %] {point_name(point)}"]
    if summary is not None:
        noise = format_fraction(summary.relative_halfwidth)
        parts += [
            f"{format_time(summary.median_s)} ± {noise}",
            f"n={summary.visits}",
            rate_words(point, summary),
        ]
    left = f"{clock_words(left_s)} left"
    width = min(columns or page_width(), WIDTH) - 1
    room = width - len(left) - 2  # a line as wide as the terminal would not be rewritten
    shown = ""
    for part in parts:
        longer = f"{shown}  {part}" if shown else part[:room]
        shown = longer if part and len(longer) <= room else shown
    return f"{shown:<{max(room, 0)}}  {left}"[:width]


def rate_words(point: Point, summary: Summary) -> str:
    """``66 GB/s bus`` for a collective, ``12 GB/s`` for a kernel; "" if no bytes are counted."""
    if not point.payload_bytes or point.kind in (PointKind.COMPOSED, PointKind.LOOKUP):
        return ""
    if point.kind is PointKind.COLLECTIVE:
        factor = float(compute_bus_factor(point.operation, point.gpus))
        return f"{format_rate(point.payload_bytes * factor / summary.median_s)} bus"
    return format_rate(point.payload_bytes / summary.median_s)
