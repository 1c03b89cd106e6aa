"""Rows of several logs into one table of samples: stacks are never merged, unused lines are reported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from calibrate.importers import logged_rows as logs
from calibrate.importers.json_files import read_json
from calibrate.importers.logged_rows import OK, LoggedRow, LoggedRun, LogLine, Reading, why_unusable
from calibrate.importers.nccl_text import read_nccl_text
from calibrate.importers.nvshmem_text import read_nvshmem_text, to_buffer_sizes
from calibrate.importers.samples_csv import REQUIRED, list_missing, read_samples_csv
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.fields import limits_of
from perfmodel.schema.gate import MOST_LOG_BYTES, STDIN, read_bounded
from perfmodel.schema.samples import COLUMNS
from perfmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

_SAYS = re.compile(r"\bNCCL INFO\b|\bnThread \d")


class Stack(NamedTuple):
    """Properties that must be equal for two runs to form one calibration."""

    backend: str
    library_version: str
    gpu: str
    clock: str

    def __str__(self) -> str:
        version = self.library_version or "(version unknown)"
        return f"{self.backend} {version} · {self.gpu or '(GPU unknown)'} · {self.clock}"


@dataclass(frozen=True)
class ImportResult:
    """The result of an import.

    samples  table in the columns of docs/formats.md;  unread  lines that look like data but are not used
    stack    the stack of the samples;  said  output of NCCL_DEBUG=INFO, and heads of the logs
    cut      files that end prematurely
    """

    samples: pd.DataFrame
    unread: list[LogLine]
    stack: Stack
    cut: list[str]
    warnings: list[str]
    said: str


def import_logs(
    paths: Sequence[str | Path],
    *,
    gpus_per_node: int | None = None,
    op: str | None = None,
    clock: str | None = None,
    gpus: int | None = None,
    library_version: str | None = None,
    overruled: bool = False,
) -> ImportResult:
    """Samples from nccl-tests text and JSON, NVSHMEM perftest text and CSV files in our format.

    gpus, gpus_per_node, op, library_version  values that a log does not state
    clock      keep only samples with this clock
    overruled  what a log states holds against these values, with a warning; else a contradiction is an error
    Raises BadInputError if nothing is usable, or the logs are of several stacks.
    """
    check_given(op, clock)
    if not paths:
        raise BadInputError("no log was given.", "perfmodel import all_gather.log reduce_scatter.log")
    given = LoggedRun("", op or "", library_version or "", gpus=gpus or 0, gpus_per_node=gpus_per_node or 0)
    unread: list[LogLine] = []
    usable: list[LoggedRow] = []
    cut: list[str] = []
    said: list[str] = []
    against: list[str] = []
    for path in map(Path, paths):
        if os.path.isdir(path):  # unlike Path.is_dir it fails for no name
            raise BadInputError(f"{path} is a folder.", f"name the logs in it: {path}/*")
        text = read_bounded(path, "log", MOST_LOG_BYTES).decode("utf-8", errors="replace")
        reading = read_text(text, name_log(path))
        said += [line for line in text.splitlines() if _SAYS.search(line)]
        cut += [name_log(path)] if reading.cut else []
        unread += reading.unread
        for row in _settle(reading.rows, given, against):
            if reason := _why_run_unusable(row.run) or why_unusable(row):
                unread.append(row.line.refuse(reason))
            elif clock is None or row.run.clock == clock:
                usable.append(row)
    if against and not overruled:
        raise BadInputError(f"{against[0]}.", "leave that option out, or name another log.")
    if not usable:
        names = ", ".join(name_log(Path(path)) for path in paths[:3]) + (" …" if paths[3:] else "")
        with_clock = f" taken with the clock {clock}" if clock else ""
        text = f"no sample{with_clock} in {names}" + (":" if unread else ".")
        raise BadInputError("\n".join([text, *reasons_of(unread)]), _FORMATS)
    stacks = sorted({Stack(*(getattr(row.run, name) for name in Stack._fields)) for row in usable})
    if len(stacks) > 1:
        listed = "\n".join(f"  {stack}" for stack in stacks)
        text = f"the logs are of {len(stacks)} stacks, which cannot be merged:\n{listed}"
        raise BadInputError(text, "name them one by one, or choose with --set clock.")
    frame, warnings = _build_frame(usable)
    if cut:
        warnings.append(f"{', '.join(cut)}: cut before the end of the run; what follows is missing")
    warnings += [f"{words}: the log's own word holds" for words in against]
    return ImportResult(frame, sorted(set(unread)), stacks[0], cut, warnings, "\n".join(said))


def check_given(op: str | None, clock: str | None) -> None:
    """Raise BadInputError if a value for logs that do not state it cannot be true of any log."""
    if op is not None and not logs.operation_name(op):
        raise BadInputError(f"--op {op} is not a collective.", f"one of {', '.join(SAMPLE_OPERATIONS)}.")
    if clock is not None and clock not in list(Clock):
        raise BadInputError(f"--set clock={clock} is not a clock.", f"one of {', '.join(Clock)}.")


def name_log(path: Path) -> str:
    """Name of a log in messages and samples."""
    return "stdin" if path == STDIN else path.name


def read_text(text: str, file: str) -> Reading:
    """Rows of one log of any known format, recognised by its content; never raises on any text."""
    text = text.lstrip("\ufeff")
    missing, first = list_missing(text)
    if not missing:
        return read_samples_csv(text, file)
    reading = read_json(text, file) or read_nvshmem_text(text, file) or read_nccl_text(text, file)
    reason = "" if reading.unread else "nothing in it is a known format" if first else "is empty"
    if first and (file.lower().endswith(".csv") or len(missing) < len(REQUIRED)):
        reason = f"no column {', '.join(missing)}; it has {logs.clip(first.replace(',', ', '))}"
    if reason and not reading.rows:
        return Reading(unread=(LogLine(file, 0, "", reason),))
    return reading


def _settle(rows: Iterable[LoggedRow], given: LoggedRun, against: list[str]) -> list[LoggedRow]:
    """The rows of a file, with what their headers lack taken from ``given``, the user's options.

    against  gets the options that contradict a header
    """
    by_run: dict[LoggedRun, list[LoggedRow]] = {}
    for row in rows:
        by_run.setdefault(row.run, []).append(row)
    settled: list[LoggedRow] = []
    for run, of_run in by_run.items():
        run = _settle_run(run, given, of_run[0].line, against)
        if not run.operation_text and not run.trouble:  # which ones would all bandwidths fit?
            renamed = {name: replace(run, operation_text=name) for name in SAMPLE_OPERATIONS}
            bad = {n for n in renamed for row in of_run if why_unusable(replace(row, run=renamed[n]))}
            possible = " or ".join([name for name in renamed if name not in bad] or renamed)
            trouble = f"the log does not say which collective it is: give --op {possible}"
            run = replace(run, trouble=trouble)
        whole = [replace(row, run=run) for row in of_run]
        settled += to_buffer_sizes(whole) if run.backend == "nvshmem" else whole
    return sorted(settled, key=lambda row: row.line.line_no)


def _settle_run(run: LoggedRun, given: LoggedRun, line: LogLine, against: list[str]) -> LoggedRun:
    """The run, with what its log lacks taken from the file's name and from ``given``, the user's options.

    line  its first row;  against  gets the options that contradict the log
    """
    file = line.file.lower().replace("-", "_")
    where = f"{line.file}, line {line.line_no}"
    in_name = {operation for spelling, operation in logs.OPERATIONS.items() if spelling in file}
    stated = run.operation_text or (in_name.pop() if len(in_name) == 1 else "")  # all_gather_8x_h100.log
    wanted = logs.operation_name(given.operation_text)
    if stated and wanted and logs.operation_name(stated) != wanted:
        against.append(f"--op {given.operation_text}, but {where} is of {stated}")
    gpus = run.gpus or given.gpus
    per_node = min(given.gpus_per_node, gpus) if gpus else given.gpus_per_node
    pairs = {"--gpus ": (given.gpus, run.gpus), "--set gpus_per_node=": (per_node, run.gpus_per_node)}
    for option, (value, of_log) in pairs.items():
        if value and of_log and value != of_log:
            against.append(f"{option}{value}, but the log says {of_log} ({where})")
    return replace(
        run,
        operation_text=stated or given.operation_text,
        clock=run.clock or "stream",
        library_version=run.library_version or given.library_version,
        gpus=gpus,
        gpus_per_node=run.gpus_per_node or per_node,
    )


def _why_run_unusable(run: LoggedRun) -> str:
    """The reason why no row of a run can be a sample, or ""."""
    if run.trouble:
        return run.trouble
    if not run.operation:
        return f"'{run.operation_text[:40]}' is none of {', '.join(SAMPLE_OPERATIONS)}"
    if run.gpus == 1:
        return "one rank: nothing was sent (were there more, the tests were built without MPI=1)"
    if not run.gpus:
        return "the log does not say how many GPUs (no 'Rank' lines, or some): give --gpus"
    if not run.gpus_per_node:
        return "the log does not say how many nodes: give --set gpus_per_node"
    if outside := limits_of("sample")["gpus"].refusal(run.gpus):
        return f"the number of GPUs {outside}"
    whole = run.gpus % run.gpus_per_node == 0
    return "" if whole else f"{run.gpus} GPUs do not fill whole nodes of {run.gpus_per_node}"


def reasons_of(unread: Iterable[LogLine]) -> list[str]:
    """Why lines were not used, one line per reason, with the number of such lines; at most five reasons."""
    places: dict[str, list[str]] = {}
    for line in sorted(set(unread)):
        places.setdefault(line.reason, []).append(line.place)
    texts = [
        f"  {where[0] if len(where) == 1 else f'{len(where)} lines, {where[0]} the first'}: {reason}"
        for reason, where in places.items()
    ]
    return texts[:5] + ([f"  and {len(texts) - 5} other reasons"] if texts[5:] else [])


_FORMATS = (
    "known formats: nccl-tests text and -J JSON, rccl-tests text and -Z JSON, NVSHMEM perftest text, "
    f"CSV with the columns {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}."
)
_OF_RUN = ("backend", "library_version", "gpu", "clock", "variant", "gpus", "gpus_per_node")
_OF_ROW = ("payload_bytes", "datatype", "in_place", "note")


def _build_frame(rows: list[LoggedRow]) -> tuple[pd.DataFrame, list[str]]:
    """(table of samples, warnings about them); doubtful rows are flagged in the table."""
    import pandas as pd

    columns = {name: [getattr(row.run, name) for row in rows] for name in _OF_RUN}
    columns |= {name: [getattr(row, name) for row in rows] for name in _OF_ROW}
    columns["source_id"] = [Path(row.line.file).stem for row in rows]
    columns["collective"] = [row.run.operation for row in rows]
    columns["nodes"] = [row.run.gpus // row.run.gpus_per_node for row in rows]
    columns["time_s"] = [row.time_us.value / logs.US_PER_S for row in rows]
    columns["flag"] = [row.run.flag if row.flag == OK else row.flag for row in rows]
    frame = pd.DataFrame(columns | {"machine": ""})[list(COLUMNS)]
    repeated = frame[frame["flag"] == OK].duplicated(list(set(COLUMNS) - {"source_id", "flag", "note"}))
    frame.loc[repeated[repeated].index, "flag"] = "duplicate"
    counts = frame.loc[frame["flag"] != OK, "flag"].value_counts()
    return frame, [f"{counted(n, 'row')} marked '{flag}'" for flag, n in counts.items()]
