"""Reads files and folders of traces. Traces that cannot belong to one run are refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from calibrate.importers.traces.columns import KernelColumns
from calibrate.importers.traces.inspector import is_inspector, read_inspector
from calibrate.importers.traces.kineto import read_kineto
from calibrate.importers.traces.names import consecutive
from calibrate.importers.traces.stream import Progress, TraceStream
from perfmodel.errors import BadInputError
from perfmodel.schema.trace_alignment import Alignment
from perfmodel.schema.traces import RankTrace, TraceKind

ENDINGS = (".json", ".json.gz")
MOST_CLOCK_S = 60.0
"""Difference of the clocks of two hosts above which a warning is printed [s]."""

_NS_PER_S = 1e9
_SQLITE = b"SQLite format 3\0"
_SURE_S = 2e-4
_SLICE_S = 4e-3
"""gloo's workers are threads of the host: on a busy host, ends differ by a time slice of the scheduler."""
_STRAY = 0.2
"""Largest share of the time between two collectives by which their ends on two ranks may differ. Measured:
0.5 us (NCCL on eight V100) to 80 us (gloo, four processes on two cores), 3 % of that time."""

_TRACES = "traces of torch.profiler (.json, .json.gz) or of NCCL's inspector (.log), one file per rank"


def trace_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files, with each folder replaced by the traces in it.

    Limits: nothing there, or a folder without a trace -> BadInputError
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files = sorted(one for one in path.iterdir() if one.is_file())
            inside = [one for one in files if one.name.endswith(ENDINGS) or is_inspector(one)]
            if not inside:
                raise BadInputError(f"folder {path} holds no trace.", f"wanted: {_TRACES}.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise BadInputError(f"trace {path} does not exist.", "check the path.")
    return list(dict.fromkeys(found))


def read_traces(
    paths: Sequence[str | Path],
    progress: Progress | None = None,
    keep: Callable[[RankTrace], RankTrace] = lambda trace: trace,
) -> list[RankTrace]:
    """Traces of the ranks of one run, by rank.

    progress  called while a file is read
    keep      returns the part of each trace to keep after reading
    Limits: no trace, a trace damaged in its first event, two of one rank, ranks of different runs
            -> BadInputError;  a file that is cut -> the part before
    """
    files = trace_files(paths)
    if not files:
        raise BadInputError("no trace was given.", "perfmodel import trace_rank*.json.gz --machine NAME")
    traces = []
    for file in files:
        traces.append(keep(_read(file, progress)))
    traces.sort(key=lambda trace: trace.rank)
    _require_one_run(traces)
    return traces


def without_other_kernels(trace: RankTrace) -> RankTrace:
    """The trace without kernels that belong to no embedding pass: these can take hundreds of megabytes."""
    kernels = trace.kernels
    return replace(trace, kernels=kernels.of_embedding()) if isinstance(kernels, KernelColumns) else trace


def is_trace(path: Path) -> bool:
    """Whether a file is a trace by its first bytes, even of a kind that this module refuses with a reason."""
    if is_inspector(path):
        return True
    try:
        stream = TraceStream(path)
    except (OSError, ValueError):
        return False
    stream.close()
    return stream.is_trace or stream.starts_with(_SQLITE)


def _read(file: Path, progress: Progress | None) -> RankTrace:
    if is_inspector(file):
        return read_inspector(file, progress)
    try:
        stream = TraceStream(file, progress)
    except OSError as error:
        raise BadInputError(f"trace {file} cannot be read: {error.strerror or error}.") from None
    try:
        if stream.starts_with(_SQLITE):
            raise BadInputError(
                f"{file.name} is a database (nsys export?): its tables do not name collectives.",
                "trace with torch.profiler, or with NCCL's inspector.",
            )
        if not stream.is_trace:
            empty = "is cut before its first event" if stream.cut else "is not a trace: it has no traceEvents"
            raise BadInputError(f"{file.name} {empty}.", f"wanted: {_TRACES}.")
        return read_kineto(stream)
    finally:
        stream.close()


def _require_one_run(traces: Sequence[RankTrace]) -> None:
    """Refuse traces that cannot be of one run: same rank twice, other sizes, backends or libraries."""
    first = traces[0]
    for one, other in pairwise(traces):
        if one.rank == other.rank:
            raise BadInputError(
                f"{one.file} and {other.file} are both of rank {one.rank}.",
                "give one trace per rank, of one run.",
            )
    for one in traces[1:]:
        for what, own, theirs in (
            ("ranks in all", first.world_size, one.world_size),
            ("library of the collectives", first.backend, one.backend),
            ("GPU", first.device, one.device),
            *(("version of " + name, first.versions.get(name, ""), one.versions.get(name, ""))
              for name in sorted({*first.versions, *one.versions})),
        ):  # fmt: skip
            if own != theirs:
                raise BadInputError(
                    f"{first.file} and {one.file} are of different runs: {what} {own or 'not recorded'} "
                    f"and {theirs or 'not recorded'}.",
                    "give the traces of one run.",
                )


def check_alignment(traces: Sequence[RankTrace], aligned: Alignment) -> list[str]:
    """Remarks on the alignment of the ranks; raises BadInputError if they do not align.

    A collective ends at the same moment on all its ranks. So the difference between its ends on two ranks is
    the difference of their clocks, which is nearly equal for all collectives. If it is not, they are not
    the same collectives: the traces are of different runs, or of different parts of one run.
    """
    said = []
    by_rank = {trace.rank: trace for trace in traces}
    lowest = min(by_rank)
    timed = all(trace.kind is TraceKind.KINETO for trace in traces)  # the inspector has no end times
    for rank in sorted(set(by_rank) - {lowest}) if timed else ():
        ends = _common_ends(aligned, lowest, rank)
        if len(ends) < 2:
            continue
        behind = ends[:, 1] - ends[:, 0] + (by_rank[rank].origin_ns - by_rank[lowest].origin_ns) / _NS_PER_S
        clock_s = float(np.median(behind))
        stray = float(np.median(np.abs(behind - clock_s)))
        between = float(np.median(np.diff(np.sort(ends[:, 0]))))
        one_host = bool(by_rank[rank].host) and by_rank[rank].host == by_rank[lowest].host
        sure_s = _SLICE_S if by_rank[rank].backend == "gloo" else _SURE_S
        if stray > max(_STRAY * between, sure_s) or (one_host and abs(clock_s) > MOST_CLOCK_S):
            raise BadInputError(
                f"{by_rank[lowest].file} and {by_rank[rank].file} are not of the same steps: "
                f"their collectives end {abs(clock_s):.3g} s apart, give or take {stray:.2g} s.",
                "give traces of one run, taken at the same steps of it.",
            )
        if abs(clock_s) > MOST_CLOCK_S:
            said.append(
                f"the clock of rank {rank} is {abs(clock_s):.4g} s {'ahead of' if clock_s > 0 else 'behind'} "
                f"that of rank {lowest}: only durations are compared"
            )
    return said + _missing(traces) + [f"{count} left out: {why}" for why, count in aligned.left_out.items()]


def _common_ends(aligned: Alignment, one: int, other: int) -> np.ndarray:
    """Ends of the collectives in which both ranks took part [s]: a row for each, a column for each rank."""
    rows = [
        (both.parts[one].end_s, both.parts[other].end_s)
        for both in aligned.collectives
        if one in both.parts and other in both.parts
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _missing(traces: Sequence[RankTrace]) -> list[str]:
    """Lines about ranks without a trace, and about names that several process groups share."""
    said = []
    world, have = traces[0].world_size, {trace.rank for trace in traces}
    absent = [rank for rank in range(max(world, 0)) if rank not in have]
    if absent and len(have) == 1:
        said.append(
            f"one rank's trace of {world}: its waits for the others are inside its times; the shortest of "
            "each kind are taken, and the band is wider"
        )
    elif absent:
        said.append(
            f"no trace of {_ranges(absent)} of {world} ranks: waits for them are inside the others' times"
        )
    sets: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for trace in traces:
        for name, ranks in trace.groups.items():
            sets[name.partition("#")[0]].add(ranks)
    twice = sorted(name for name, several in sets.items() if _overlapping(several))
    if twice:
        said.append(f"process groups of one name, told apart by their ranks: {', '.join(twice)}")
    return said


def _overlapping(several: Iterable[tuple[int, ...]]) -> bool:
    """Whether a rank is in two of the groups. Groups that have no rank in common may share a name."""
    members = [rank for ranks in several for rank in ranks]
    return len(members) != len(set(members))


def _ranges(ranks: Sequence[int]) -> str:
    """Words such as ``rank 3``, ``ranks 2-7, 9``."""
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in consecutive(ranks)]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(texts)}"
