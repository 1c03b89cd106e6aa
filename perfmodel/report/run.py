"""Text of a calibration while it runs: machine, stack, plan, progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from perfmodel.model.collectives import compute_bus_factor
from perfmodel.report.terminal import WIDTH, facts, page_width
from perfmodel.schema.runs import Point, PointKind, RunHeader, functional_reason
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_rate, format_time

if TYPE_CHECKING:
    from calibrate.machine.identity import Host
    from calibrate.planning.measurement_plan import MeasurementPlan
    from calibrate.running.stopping import Summary

_STACK = ("nccl", "rccl", "nvshmem", "gloo", "torch", "cuda", "torchrec", "fbgemm")
_MOST_LEFT_OUT = 8
_WITHOUT_RATE = (PointKind.COMPOSED, PointKind.LOOKUP)


def head_text(host: Host, header: RunHeader, plan: MeasurementPlan, seconds: float, done: int) -> str:
    """The first lines of a calibration run: machine, libraries, and what will be measured.

    seconds  expected time to go [s];  done  points that are measured already
    """
    counts_text = f"{counted(plan.world.nodes, 'node')}, {counted(plan.world.ranks, 'rank')}"
    lines = [
        ("Machine", f"{header.machine}: {describe_host(host)} · {counts_text}"),
        ("", host.note),
        ("", describe_functional(header)),
        ("Stack", describe_stack(header.stack)),
        *label("Plan", [*_list_parts(plan.points), _describe_amount(plan, seconds, done)]),
    ]
    texts = [f"{x.what}: {x.why}" + (f" ({x.install})" if x.install else "") for x in plan.left_out]
    if left := len(texts) - _MOST_LEFT_OUT:
        texts[_MOST_LEFT_OUT:] = [f"and {left} more (--json has all)"] if left > 0 else []
    return facts([*lines, *label("Left out", texts)])


def label(name: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of label and text, of which only the first has the label."""
    return [("" if place else name, text) for place, text in enumerate(texts)]


def describe_host(host: Host) -> str:
    """The machine on one line: GPUs or processor, cores, caches."""
    cores = f"{host.cores} cores"
    if host.cores < host.cores_online:
        cores += f" (of {host.cores_online})"
    if host.gpus:
        gpu = host.gpus[0]
        parts = [f"{len(host.gpus)}× {gpu.name}", f"driver {gpu.driver}" if gpu.driver else "", cores]
    else:
        caches = ", ".join(f"{level} {format_bytes(size)}" for level, size in sorted(host.caches.items()))
        parts = [host.cpu, cores, caches]
    return " · ".join(piece for piece in parts if piece)


def describe_functional(header: RunHeader) -> str:
    """A note that a run checks results only, so that its times mean nothing; "" for other runs."""
    if not header.functional_only:
        return ""
    return f"functional check only, not a calibration: {functional_reason(header)}"


def describe_stack(stack: Mapping[str, str]) -> str:
    """The libraries of a run with their versions, and the version of this program."""
    versions = [
        version if version.lower().startswith(name) else f"{name} {version}"
        for name in _STACK
        if (version := stack.get(name))
    ]
    git = f" (git {stack['git']})" if stack.get("git") else ""
    return " · ".join([*versions, f"perfmodel {stack.get('perfmodel', '')}{git}".strip()])


def _describe_amount(plan: MeasurementPlan, seconds: float, done: int) -> str:
    """How many points there are and how many are left, the noise target, and the time that is left."""
    left = len(plan.points) - done
    total, noise = counted(len(plan.points), "point"), format_fraction(plan.target.relative)
    if not left:
        return f"{total}, all of them done already; noise target {noise}. --fresh measures them again."
    if done:
        total += f", {format_count(done)} of them done already, {format_count(left)} to go"
    duration = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{total}; noise target {noise}, about {duration}. Ctrl-C is safe: what was measured is kept."


def _list_parts(points: Sequence[Point]) -> Iterator[str]:
    """A line for each library (operations × ranks × sizes × clocks), for kernels, passes and look-ups."""
    kinds: dict[PointKind, list[Point]] = {kind: [] for kind in PointKind}
    for point in points:
        kinds[point.kind].append(point)
    for backend in dict.fromkeys(point.backend for point in kinds[PointKind.COLLECTIVE]):
        cells = [point for point in kinds[PointKind.COLLECTIVE] if point.backend == backend]
        names = list(dict.fromkeys(point.operation for point in cells))
        sizes = {point.payload_bytes for point in cells}
        low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
        words = [
            f"{len(names)} collectives" if len(names) > 3 else ", ".join(names),
            f"G = {_list_ranks(cells)}",
            f"{counted(len(sizes), 'size')} {low if low == high else f'{low} – {high}'}",
            ", ".join(dict.fromkeys(str(point.clock) for point in cells)),
        ]
        yield f"{backend}: {' × '.join(words)}"
    if kernels := kinds[PointKind.KERNEL]:
        names = list(dict.fromkeys(point.operation for point in kernels))
        yield f"{counted(len(kernels), 'kernel cell')} of {_list_makers(kernels)}: {', '.join(names)}"
    if passes := kinds[PointKind.COMPOSED]:
        by = ", ".join(dict.fromkeys(f"{point.implementation} over {point.backend}" for point in passes))
        held = sum(point.held_out for point in passes)
        counts_text = counted(len(passes), "whole row-wise pass", "whole row-wise passes")
        yield f"{counts_text} ({by}), {held} of them held out to check with"
    if look_ups := kinds[PointKind.LOOKUP]:
        counts_text = f"{counted(len(look_ups), 'point')} of the paper's look-ups"
        yield f"{counts_text} × G = {_list_ranks(look_ups)} ({_list_makers(look_ups)})"


def _list_makers(points: Iterable[Point]) -> str:
    return ", ".join(dict.fromkeys(point.implementation for point in points))


def _list_ranks(points: Iterable[Point]) -> str:
    groups = sorted({(point.gpus, point.nodes) for point in points})
    return ", ".join(f"{gpus} on {nodes} nodes" if nodes > 1 else str(gpus) for gpus, nodes in groups)


def format_clock(seconds: float) -> str:
    """A duration as ``0:07``, ``11:06`` or ``1:02:03``."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def name_point(point: Point) -> str:
    """A point in words: ``nccl all_to_all G=8 1 MiB stream``."""
    by = point.backend if point.kind is PointKind.COLLECTIVE else point.implementation
    size = format_bytes(point.payload_bytes) if point.payload_bytes else ""
    if point.kind in _WITHOUT_RATE and point.work is not None:
        size = f"B={point.work.batch} T={point.work.tables} L={point.work.pooling:g} D={point.work.dim}"
    where = f"G={point.gpus}" + (f"/{point.nodes} nodes" if point.nodes > 1 else "")
    return " ".join(piece for piece in (by, point.operation, where, size, str(point.clock)) if piece)


def progress_text(
    done: float, total: int, point: Point, summary: Summary | None, left_s: float, columns: int | None = None
) -> str:
    """The progress line: share done, the point just measured, its median and noise so far, the time left.

    done     number of points done out of ``total``; a point that is measured in part counts in part
    left_s   expected time to go [s];  columns  width of the terminal; None: a page's width
    """
    parts = [f"[{int(100 * done / max(total, 1)):3d} %] {name_point(point)}"]
    if summary is not None:
        noise = f"{format_time(summary.median_s)} ± {format_fraction(summary.relative_halfwidth)}"
        parts += [noise, f"n={summary.visits}", describe_rate(point, summary)]
    left = f"{format_clock(left_s)} left"
    width = min(columns or page_width(), WIDTH) - 1
    room = width - len(left) - 2  # a line as wide as the terminal would not be rewritten
    shown = ""
    for piece in parts:
        longer = f"{shown}  {piece}" if shown else piece[:room]
        shown = longer if piece and len(longer) <= room else shown
    return f"{shown:<{max(room, 0)}}  {left}"[:width]


def describe_rate(point: Point, summary: Summary) -> str:
    """``66 GB/s bus`` for a collective, ``12 GB/s`` for a kernel; "" if no bytes are counted."""
    if not point.payload_bytes or point.kind in _WITHOUT_RATE:
        return ""
    if point.kind is PointKind.KERNEL:
        return format_rate(point.payload_bytes / summary.median_s)
    factor = float(compute_bus_factor(point.operation, point.gpus))
    return f"{format_rate(point.payload_bytes * factor / summary.median_s)} bus"
