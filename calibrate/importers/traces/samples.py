"""Collectives of traces as samples: one row each; its time begins when the last rank has arrived."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.importers.logged_rows import UnreadLine
from calibrate.importers.merge import OK, ImportResult, Stack
from calibrate.importers.traces.kernel_samples import HostTimes, host_times, kernel_samples
from calibrate.importers.traces.names import all_ranks
from calibrate.importers.traces.reading import check_alignment
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.samples import COLUMNS
from perfmodel.schema.trace_alignment import AlignedCollective, Alignment, align
from perfmodel.schema.traces import RankTrace, TracedCollective
from perfmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

DEFAULT, UNEVEN, OVERLAPPED = "default", "uneven", "overlapped"
WAITED = "waited"
"""Flag of a sample that may include a wait for a rank without a trace: kept, not fitted."""

UNEVEN_RATIO = 1.25
"""Largest ratio of the data for one rank to the mean: above it, an all-to-all counts as uneven."""

LOW_SHARE = 0.2
"""Share of collectives of one kind and size, the shortest, that are used if they may include a wait."""

_LEAST_WIDENING = 0.1
_CELL = ("collective", "gpus", "nodes", "datatype", "variant", "payload_bytes")


@dataclass
class TraceSamples(ImportResult):
    """Samples of traces, with other results of the traces.

    alignment  the collectives, each joined over its ranks
    widened    by (collective, ranks): standard deviation of ln t to add, as the samples may include waits
    kernels    look-ups and bucketizations of an embedding pass, in the columns of a run's kernel samples
    kernels_left_out  number of calls that are no sample, by reason
    host       how the host launched the kernels; None if unknown
    """

    traces: Sequence[RankTrace] = ()
    alignment: Alignment = field(default_factory=lambda: Alignment(()))
    widened: Mapping[tuple[str, int], float] = field(default_factory=dict)
    kernels: pd.DataFrame | None = None
    kernels_left_out: Mapping[str, int] = field(default_factory=dict)
    host: HostTimes | None = None


def traced_samples(
    traces: Sequence[RankTrace],
    machine: str,
    per_node_of: Callable[[], int],
    version: str = "",
    dim: int | None = None,
) -> TraceSamples:
    """One row per collective: bytes, ranks, nodes, and the time after its last rank arrived.

    machine      name of the machine
    per_node_of  function that returns GPUs per node, called if the traces do not name the host of every rank
    version      version of the library, if the traces do not state it
    dim          columns of every table, for traces that do not have it
    Limits: no usable collective -> BadInputError with the reasons
    """
    aligned = align(traces)
    warnings = check_alignment(traces, aligned)
    unread = [
        UnreadLine(trace.file, 0, "", f"{count} of {trace.communications}: {why}")
        for trace in traces
        for why, count in sorted(trace.unread.items())
    ]
    first = traces[0]
    library = version or first.versions.get("nccl", "")
    rows, uneven_nodes = _rows(aligned, _Placement(traces, per_node_of), traces, machine, library)
    for count, why in uneven_nodes:
        warnings.append(f"{count} collectives left out: {why}")
    frame = _frame(rows)
    if frame.empty:
        raise BadInputError(
            "\n".join(
                ["no collective in these traces can be used:", *_why_nothing(traces, unread, warnings)]
            ),
            _instead(traces),
        )
    frame, widened = _without_waits(frame)
    frame["note"] = [note.removeprefix("waits inside; ") for note in frame["note"]]
    stack = Stack(_backend(first.backend), library, first.device, str(Clock.TRACE))
    cut = [trace.file for trace in traces if trace.cut]
    warnings += _apart(frame) + [f"{name}: cut; what stands before is read" for name in cut]
    kernels, left_out = kernel_samples(traces, dim)
    return TraceSamples(
        frame, unread, [stack], cut, warnings, traces, aligned, widened, kernels, left_out,
        host_times(traces),
    )  # fmt: skip


def fittable(found: TraceSamples) -> pd.DataFrame:
    """The samples that a fit may use: equal parts for all ranks, no other kernel beside them, no waits."""
    return found.samples[(found.samples["variant"] == DEFAULT) & (found.samples["flag"] == OK)]


class _Placement:
    """On which nodes the ranks are: by the hosts in the traces, else equally many ranks on each node."""

    def __init__(self, traces: Sequence[RankTrace], per_node_of: Callable[[], int]) -> None:
        self._hosts = {trace.rank: trace.host for trace in traces if trace.host}
        self._per_node_of = per_node_of

    def shape(self, one: TracedCollective) -> tuple[int, int]:
        """(nodes, ranks per node) of a collective's ranks; (0, 0) if nodes hold different numbers of them."""
        ranks = one.group_ranks or all_ranks(one.group_size)
        if all(rank in self._hosts for rank in ranks):
            counts = Counter(self._hosts[rank] for rank in ranks)
        else:
            counts = Counter(str(rank // self._per_node_of()) for rank in ranks)
        sizes = set(counts.values())
        return (len(counts), sizes.pop()) if len(sizes) == 1 else (0, 0)


def _rows(
    aligned: Alignment, placement: _Placement, traces: Sequence[RankTrace], machine: str, library: str
) -> tuple[list[dict[str, object]], list[tuple[int, str]]]:
    """(rows of the table of samples, [(number of collectives that are left out, reason)])."""
    rows: list[dict[str, object]] = []
    left_out = 0
    source = _source(traces)
    backend, gpu = _backend(traces[0].backend), traces[0].device
    for one in aligned.collectives:
        first = one.first
        nodes, per_node = placement.shape(first)
        if not nodes or one.time_s <= 0:
            left_out += 1
            continue
        where = f"group {first.group or 'of all'} number {first.instance}"
        rows.append(
            {
                "source_id": source, "backend": backend, "library_version": library, "gpu": gpu,
                "machine": machine, "collective": first.collective, "clock": str(Clock.TRACE),
                "variant": _variant(one), "payload_bytes": one.payload_bytes, "gpus": first.group_size,
                "nodes": nodes, "gpus_per_node": per_node, "datatype": first.dtype, "in_place": False,
                "time_s": one.time_s, "flag": OK,
                "note": ("" if one.complete else "waits inside; ") + where,
            }
        )  # fmt: skip
    reason = "their ranks do not fill nodes evenly, or they took no time"
    return rows, [(left_out, reason)] if left_out else []


def _variant(one: AlignedCollective) -> str:
    """Variant of a sample: overlapped if compute ran beside it, uneven if one rank got far more data."""
    if one.overlapped:
        return OVERLAPPED
    splits = [part.in_split for part in one.parts.values() if part.in_split]
    worst = max((max(split) * len(split) / max(sum(split), 1) for split in splits), default=1.0)
    return UNEVEN if worst > UNEVEN_RATIO else DEFAULT


def _without_waits(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple[str, int], float]]:
    """(samples, flagged where they probably contain waits, how much the band grows).

    If collectives may include waits, only the shortest of each kind and size are used. The band is given by
    (collective, ranks): half of ln(median / shortest), because even the shortest may include a wait.
    """
    frame = frame.copy()
    waits = frame["note"].str.startswith("waits inside; ")
    widened: dict[tuple[str, int], float] = defaultdict(float)
    for _, cell in frame[waits].groupby(list(_CELL), sort=True):
        low = float(cell["time_s"].quantile(LOW_SHARE))
        frame.loc[cell.index[cell["time_s"] > low], "flag"] = WAITED
        wide = math.log(float(cell["time_s"].median()) / float(cell["time_s"].min())) / 2
        key = (str(cell["collective"].iloc[0]), int(cell["gpus"].iloc[0]))
        widened[key] = max(widened[key], wide, _LEAST_WIDENING)
    return frame, dict(widened)


def _apart(frame: pd.DataFrame) -> list[str]:
    """Remarks on samples that are kept but not fitted, one for each reason."""
    said = []
    for variant, why in (
        (OVERLAPPED, "compute ran beside them, which slows both"),
        (UNEVEN, f"one rank gets over {UNEVEN_RATIO:g} times the mean"),
    ):
        count = int((frame["variant"] == variant).sum())
        if count:
            said.append(f"{count} of {len(frame)} samples kept apart, not fitted: {why}")
    waited = int((frame["flag"] == WAITED).sum())
    if waited:
        said.append(
            f"{waited} of {len(frame)} samples not fitted: longer than the shortest of their kind and size"
        )
    return said


def _frame(rows: list[dict[str, object]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame.from_records(rows, columns=list(COLUMNS))


def _backend(name: str) -> str:
    """The library's name in samples; a trace may name one per device."""
    lowered = name.lower()
    return next((str(one) for one in (Backend.NCCL, Backend.GLOO, Backend.MPI) if one in lowered), "")


def _source(traces: Sequence[RankTrace]) -> str:
    """The name of the lowest rank's file, without suffixes."""
    return stem_of(traces[0].file)


def stem_of(file: str) -> str:
    """The name of a trace's file without suffixes."""
    name = Path(file).name
    for ending in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name


def _why_nothing(
    traces: Sequence[RankTrace], unread: Sequence[UnreadLine], warnings: Sequence[str]
) -> list[str]:
    lines = [f"{line.file}: {line.reason}" for line in unread[:6]] + list(warnings)
    lines += [
        f"{trace.file} is cut: it ends, or is damaged, after {counted(trace.events, 'event')}"
        for trace in traces
        if trace.cut
    ][:3]
    silent = [trace.file for trace in traces if not trace.communications]
    if silent:
        lines.append(f"no communication in {', '.join(silent[:3])}{' …' if len(silent) > 3 else ''}")
    return lines


def _instead(traces: Sequence[RankTrace]) -> str:
    """Advice if nothing is usable."""
    if any(trace.cut and not trace.communications for trace in traces):
        return "copy it again from where it was written, with the traces of the other ranks."
    return "trace at least two ranks with torch.distributed, and ProfilerActivity.CUDA on GPUs."
