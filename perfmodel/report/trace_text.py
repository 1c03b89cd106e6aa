"""Text of imported traces: the events of each rank, and which rank waits for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.report.terminal import paragraph, table
from perfmodel.schema.trace_alignment import Alignment, RankSkew, rank_skews
from perfmodel.schema.traces import RankTrace
from perfmodel.units import format_fraction, format_number, format_time

if TYPE_CHECKING:
    import pandas as pd

_MOST_RANKS = 8
_MOST_REASONS = 4


def traces_text(traces: Sequence[RankTrace]) -> str:
    """A table of the imported traces, a row for each rank: events, collectives, what was not read and why."""
    rows = []
    for trace in traces:
        rows.append(
            (
                str(trace.rank), f"{trace.events:,}".replace(",", " "),
                f"{len(trace.collectives)} of {trace.communications}", _reasons(trace),
                format_time(trace.seconds), trace.file,
            )
        )  # fmt: skip
    headers = ("rank", "events", "collectives", "not read", "read in", "file")
    return table(headers, rows, left=(3, 5), drop=(5,))


def skew_text(aligned: Alignment) -> str:
    """Each rank's waits, how often it came last, and how long the others waited for it.

    Limits: no collective seen on two ranks -> ""
    """
    skews = rank_skews(aligned.collectives)
    if not skews:
        return ""
    rows = [
        (
            str(skew.rank), format_time(skew.wait_p50_s), format_time(skew.wait_p99_s),
            f"{skew.last} of {skew.seen}", format_time(skew.caused_s),
        )
        for skew in skews[:_MOST_RANKS]
    ]  # fmt: skip
    more = f"\n … and {len(skews) - _MOST_RANKS} more ranks" if len(skews) > _MOST_RANKS else ""
    total = sum(max(one.wait_s.values()) for one in aligned.collectives if len(one.parts) > 1)
    slowest = skews[0]
    share = format_fraction(slowest.caused_s / total) if total > 0 else "none"
    head = paragraph(
        f"Who waits for whom: rank {slowest.rank} causes {share} of the longest wait of each collective, "
        "summed over the trace"
    )
    headers = ("rank", "waits p50", "p99", "comes last", "others waited for it")
    return f"{head}\n{table(headers, rows, left=())}{more}"


def kernels_text(kernels: pd.DataFrame, left_out: Mapping[str, int]) -> str:
    """Look-ups and bucketizations with shapes and median times, the longest first.

    Limits: no kernel, and none left out -> ""
    """
    if kernels.empty and not left_out:
        return ""
    slowest: Any = kernels.sort_values("time_s", ascending=False).head(_MOST_RANKS)
    rows = [
        (
            str(one.operation), str(one.implementation), str(one.tables), str(one.batch),
            format_number(float(one.pooling)), str(one.dim), str(one.calls), format_time(float(one.time_s)),
        )
        for one in slowest.itertuples()
    ]  # fmt: skip
    headers = ("kernel", "of", "tables", "samples", "pooling", "columns", "calls", "median")
    parts = (
        [f"Kernels of an embedding pass\n{table(headers, rows, left=(0, 1), drop=(6, 2))}"] if rows else []
    )
    if len(kernels) > _MOST_RANKS:
        parts.append(f" … and {len(kernels) - _MOST_RANKS} more")
    if rows:
        parts.append(" ids are assumed uniform: a trace does not contain them")
    parts += [f" {count} calls left out: {why}" for why, count in sorted(left_out.items())]
    return "\n".join(parts)


def host_text(kernels: int, launch_s: float, queue_s: float, dry: int) -> str:
    """How long the host takes to launch a kernel, and how often the GPU had to wait for the next kernel.

    launch_s  median of a launch [s];  queue_s  median time from the launch to the kernel's start [s]
    dry       of ``kernels``, how many started at once, because the queue was empty
    """
    return (
        f"The host takes {format_time(launch_s)} to launch one (median); it begins {format_time(queue_s)} "
        f"later. {format_fraction(dry / kernels)} begin\nat once: the GPU had waited for the host"
    )


def skew_record(skew: RankSkew) -> dict[str, Any]:
    """How long a rank waits and how often it comes last, for JSON."""
    return {
        "rank": skew.rank, "collectives": skew.seen, "last": skew.last, "caused_s": skew.caused_s,
        "wait_p50_s": skew.wait_p50_s, "wait_p99_s": skew.wait_p99_s, "wait_s": skew.wait_s,
    }  # fmt: skip


def trace_record(trace: RankTrace) -> dict[str, Any]:
    """For JSON: the events of a rank's trace, and the reasons for unread events."""
    return {
        "file": trace.file, "rank": trace.rank, "ranks": trace.world_size, "backend": trace.backend,
        "device": trace.device, "events": trace.events, "collectives": len(trace.collectives),
        "unread": dict(sorted(trace.unread.items())), "kernels": len(trace.kernels), "cut": trace.cut,
        "versions": dict(trace.versions),
    }  # fmt: skip


def _reasons(trace: RankTrace) -> str:
    several = sorted(trace.unread.items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{count} {why}" for why, count in several[:_MOST_REASONS]]
    if len(several) > _MOST_REASONS:
        texts.append("…")
    return "; ".join([*(["cut"] if trace.cut else []), *texts])
