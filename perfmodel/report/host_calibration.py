"""Text of the host in a calibration: its times to issue a pass, and its memory as a GPU reads it."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.model.tiers import rows_in_flight
from perfmodel.report.terminal import paragraph, table
from perfmodel.schema.calibration import Calibration
from perfmodel.schema.host_fits import HostTier, IssueTimes
from perfmodel.schema.intervals import Interval
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_rate, format_time

_TIMES = {
    "host_call_s": "a Python call",
    "host_operator_s": "an operator",
    "host_launch_s": "a launch",
    "host_collective_s": "a collective",
    "graph_launch_s": "a CUDA graph",
}
_TIER: dict[str, tuple[str, Callable[[float], str]]] = {
    "link_bytes_per_s": ("link, as rows fill it", format_rate),
    "host_latency_s": ("from a read to its data", format_time),
    "link_header_bytes": ("header of a packet", format_bytes),
    "link_sector_bytes": ("smallest read", format_bytes),
    "link_row_bytes": ("a short row of a large table, as", format_bytes),
    "copy_to_device_bytes_per_s": ("copies to the GPU", format_rate),
    "copy_to_host_bytes_per_s": ("copies to the host", format_rate),
}


def host_parts(item: Calibration) -> list[str]:
    """Up to two texts: times to issue work from the host, and rates of host memory as a GPU reads it.

    Limits: the calibration has neither -> none
    """
    parts = [] if item.host is None else [_times_text(item.host)]
    return parts if item.host_tier is None else [*parts, _tier_text(item.host_tier)]


def _span(one: Interval, write: Callable[[float], str]) -> str:
    return write(one.value) if one.low == one.high else f"{write(one.low)} – {write(one.high)}"


def _times_text(times: IssueTimes) -> str:
    rows = [
        [name, format_time(times.values[key].value), _span(times.values[key], format_time)]
        for key, name in _TIMES.items()
        if key in times.values
    ]
    title = f"Host   {times.processor or 'processor unknown'}, {counted(times.sample_count, 'point')}"
    return paragraph(f"{title}; project --host takes these") + "\n" + table(
        ["to issue", "time", "95 % interval"], rows
    )  # fmt: skip


def _tier_text(tier: HostTier) -> str:
    rows = [
        [name, write(tier.values[key].value), _span(tier.values[key], write)]
        for key, (name, write) in _TIER.items()
        if key in tier.values
    ]
    rows += [[_TIER[key][0], "unknown: the sourced value is used", ""] for key in tier.untold]
    errors = ["-" if error is None else format_fraction(error) for error in (tier.loo_median, tier.loo_p90)]
    spans = f"rows of {format_bytes(tier.low_row_bytes)} to {format_bytes(tier.high_row_bytes)}"
    title = (
        f"Host memory   {counted(tier.sample_count, 'gather')} of {spans} by {counted(tier.ranks, 'GPU')} at "
        f"once; LOO p50/p90 {' / '.join(errors)}; project --tier takes these"
    )
    return paragraph(title) + "\n" + table(["host memory", "value", "95 % interval"], rows) + _in_flight(tier)


def _in_flight(tier: HostTier) -> str:
    """How many reads are on the way at full rate, by Little's law; "" if latency or rate is unknown."""
    known = [tier.values.get(key) for key in ("host_latency_s", "link_bytes_per_s", "link_sector_bytes")]
    latency, rate, sector = (None if one is None else one.value for one in known)
    if latency is None or rate is None or sector is None:
        return ""
    many = float(rows_in_flight(latency, rate, sector))
    return "\n" + paragraph(
        f"{format_count(round(many))} smallest reads are under way at full rate.", indent=1
    )
