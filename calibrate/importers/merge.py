"""Rows of several logs into one table of samples.

Every row is checked, different stacks are never merged, and unused lines are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from calibrate.importers.logged_rows import (
    OK,
    OPERATIONS,
    US_PER_S,
    LoggedRow,
    LoggedRun,
    Reading,
    UnreadLine,
    infer_gpus,
    operation_name,
    why_unusable,
)
from calibrate.importers.nccl_json import read_nccl_json
from calibrate.importers.nccl_text import read_nccl_text
from calibrate.importers.nvshmem_text import looks_like_nvshmem, read_nvshmem_text, to_buffer_sizes
from calibrate.importers.tables import (
    REQUIRED,
    looks_like_rccl,
    looks_like_samples,
    read_rccl_file,
    read_samples_csv,
    why_not_samples,
)
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.fields import limits_of
from perfmodel.schema.gate import MOST_LOG_BYTES, STDIN, read_bounded
from perfmodel.schema.samples import COLUMNS

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
    unread: list[UnreadLine]
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
    check_given(op, clock, gpus, gpus_per_node)
    if not paths:
        raise BadInputError("no log was given.", "perfmodel import all_gather.log reduce_scatter.log")
    given = LoggedRun(
        operation_text=op or "",
        gpus=gpus or 0,
        gpus_per_node=gpus_per_node or 0,
        library_version=library_version or "",
    )
    unread: list[UnreadLine] = []
    cut: list[str] = []
    said: list[str] = []
    against: list[str] = []
    usable: list[LoggedRow] = []
    for path in paths:
        reading, lines = _read_file(Path(path))
        said.append(lines)
        cut += [_log_name(Path(path))] if reading.cut else []
        unread += reading.unread
        rows, contradictions = _settle(reading.rows, given)
        against += contradictions
        for row in rows:
            if reason := _why_run_unusable(row.run) or why_unusable(row):
                unread.append(row.line.refuse(reason))
            elif clock is None or row.run.clock == clock:
                usable.append(row)
    if against and not overruled:
        raise BadInputError(f"{against[0]}.", f"leave {against[0].split()[0]} out, or name another log.")
    if not usable:
        raise _nothing_usable(paths, unread, clock)
    runs = {row.run for row in usable}
    stacks = sorted({Stack(run.backend, run.library_version, run.gpu, run.clock) for run in runs})
    if len(stacks) > 1:
        listed = "\n".join(f"  {stack}" for stack in stacks)
        text = f"the logs are of {len(stacks)} stacks that cannot be one calibration:\n{listed}"
        raise BadInputError(text, "import them one by one, or choose with --clock.")
    frame, warnings = _frame(usable)
    if cut:
        names = ", ".join(cut[:3]) + (f" and {len(cut) - 3} more" if len(cut) > 3 else "")
        warnings.append(f"{names}: cut before the end of the run; the calibration is partial")
    warnings += [f"{words}: the log's own word holds" for words in against]
    return ImportResult(frame, sorted(set(unread)), stacks[0], cut, warnings, "\n".join(said))


def check_given(op: str | None, clock: str | None, gpus: int | None, gpus_per_node: int | None) -> None:
    """Raise BadInputError if a value for logs that do not state it cannot be true of any log."""
    if op is not None and not operation_name(op):
        raise BadInputError(f"--op {op} is not a collective.", f"one of {', '.join(SAMPLE_OPERATIONS)}.")
    if clock is not None and clock not in list(Clock):
        raise BadInputError(f"--clock {clock} is not a clock.", f"one of {', '.join(Clock)}.")
    for name, value in (("--gpus", gpus), ("--gpus-per-node", gpus_per_node)):
        if value is not None and value < 1:
            raise BadInputError(f"{name} {value} is not a number of GPUs.", "at least 1.")


def _read_file(path: Path) -> tuple[Reading, str]:
    """(what a reader found in a file, its lines of NCCL_DEBUG=INFO and of the head)."""
    try:
        folder = path.is_dir()
    except (OSError, ValueError):
        folder = False
    if folder:
        raise BadInputError(f"{path} is a folder.", f"name the logs in it: {path}/*")
    text = read_bounded(path, "log", MOST_LOG_BYTES).decode("utf-8", errors="replace")
    reading = read_text(text, _log_name(path))
    if not reading.rows and not reading.unread:
        reason = "nothing in it is a known format" if text.strip() else "is empty"
        reading = Reading(unread=(UnreadLine(_log_name(path), 0, "", reason),))
    return reading, "\n".join(line for line in text.splitlines() if _SAYS.search(line))


def _log_name(path: Path) -> str:
    """The file's name; ``pipe-63`` for ``/dev/fd/63``, into which a shell turns ``<(cat a.log)``."""
    if path == STDIN:
        return "stdin"
    return f"pipe-{path.name}" if path.parent.name == "fd" else path.name


def read_text(text: str, file: str) -> Reading:
    """Rows of one log of any known format, recognised by its content; never raises on any text."""
    text = text.lstrip("\ufeff")
    if looks_like_rccl(text):
        return read_rccl_file(text, file)
    if text.lstrip(" \t\r\n").startswith("{"):
        return read_nccl_json(text, file)
    if looks_like_samples(text):
        return read_samples_csv(text, file)
    reading = read_nvshmem_text(text, file) if looks_like_nvshmem(text) else read_nccl_text(text, file)
    if not reading.rows and (reason := why_not_samples(text, Path(file).suffix)):
        return Reading(unread=(UnreadLine(file, 0, "", reason),))
    name = file.lower().replace("-", "_")  # the last resort: all_gather_8x_h100.log
    named = {operation for spelling, operation in OPERATIONS.items() if spelling in name}
    if len(named) != 1:
        return reading
    rows = [
        row if row.run.operation_text else replace(row, run=replace(row.run, operation_text=min(named)))
        for row in reading.rows
    ]
    return replace(reading, rows=tuple(rows))


def _settle(rows: Iterable[LoggedRow], given: LoggedRun) -> tuple[list[LoggedRow], list[str]]:
    """(the rows of a file, with what their headers lack taken from ``given``; options against a header)."""
    by_run: dict[LoggedRun, list[LoggedRow]] = {}
    for row in rows:
        by_run.setdefault(row.run, []).append(row)
    settled: list[LoggedRow] = []
    against: list[str] = []
    for run, own in by_run.items():
        where = f"{own[0].line.file}, line {own[0].line.line_no}"
        known, contradictions = _settle_run(run, given, own, where)
        against += contradictions
        changed = [replace(row, run=known) for row in own]
        settled += to_buffer_sizes(changed) if known.backend == "nvshmem" else changed
    return sorted(settled, key=lambda row: row.line.line_no), against


def _settle_run(
    run: LoggedRun, given: LoggedRun, rows: Sequence[LoggedRow], where: str
) -> tuple[LoggedRun, list[str]]:
    """(the run with what it lacks, the options of ``given`` that contradict it). where  its first row"""
    against = []
    wanted = operation_name(given.operation_text)
    if run.operation_text and wanted and run.operation != wanted:
        against.append(f"--op {given.operation_text}, but {where} is of {run.operation_text}")
    run = replace(
        run,
        operation_text=run.operation_text or given.operation_text,
        clock=run.clock or "stream",
        library_version=run.library_version or given.library_version,
    )
    if run.gpus and given.gpus and run.gpus != given.gpus:
        against.append(f"--gpus {given.gpus}, but the log says {run.gpus} ({where})")
    counted = 0 if run.gpus or given.gpus else infer_gpus(run.operation, rows)
    note = run.note or ("GPUs counted from busbw/algbw" if counted else "")
    gpus = run.gpus or given.gpus or counted
    per_node = min(given.gpus_per_node, gpus) if gpus else given.gpus_per_node
    if run.gpus_per_node and per_node and run.gpus_per_node != per_node:
        against.append(f"--gpus-per-node {per_node}, but the log says {run.gpus_per_node} ({where})")
    run = replace(run, gpus=gpus, gpus_per_node=run.gpus_per_node or per_node, note=note)
    if not run.operation_text and not run.trouble:
        run = replace(run, trouble=_UNNAMED + " or ".join(_possible(run, rows)))
    return run, against


_UNNAMED = "the log does not say which collective it is: give --op "


def _possible(run: LoggedRun, rows: Sequence[LoggedRow]) -> list[str]:
    """The operations that may have run: all rows' bandwidths fit them. Limits: none fits -> all"""
    fitting = []
    for name in SAMPLE_OPERATIONS:
        renamed = replace(run, operation_text=name)
        if not any(why_unusable(replace(row, run=renamed)) for row in rows):
            fitting.append(name)
    return fitting or list(SAMPLE_OPERATIONS)


def _why_run_unusable(run: LoggedRun) -> str:
    if run.trouble:
        return run.trouble
    if not run.operation:
        return f"'{run.operation_text[:40]}' is none of {', '.join(SAMPLE_OPERATIONS)}"
    if run.gpus == 1:
        return "one rank: nothing was sent (were there more, the tests were built without MPI=1)"
    if not run.gpus:
        return "the log does not say how many GPUs (no 'Rank' lines or some, too few digits): give --gpus"
    if not run.gpus_per_node:
        return "the log does not say how many nodes: give --gpus-per-node"
    if outside := limits_of("sample")["gpus"].refusal(run.gpus):
        return f"the number of GPUs {outside}"
    if run.gpus % run.gpus_per_node:
        return f"{run.gpus} GPUs do not fill whole nodes of {run.gpus_per_node}"
    return ""


def reasons_of(unread: Iterable[UnreadLine], most: int = 5) -> list[str]:
    """Why lines were not used, one line per reason, with the number of such lines."""
    places: dict[str, list[str]] = {}
    for line in sorted(set(unread)):
        places.setdefault(line.reason, []).append(line.place)
    found = []
    for reason, where in places.items():
        first = where[0] if len(where) == 1 else f"{len(where)} lines, {where[0]} the first"
        found.append(f"  {first}: {reason}")
    return found if len(found) <= most else [*found[:most], f"  and {len(found) - most} other reasons"]


def _nothing_usable(
    paths: Sequence[str | Path], unread: list[UnreadLine], clock: str | None
) -> BadInputError:
    names = ", ".join(Path(path).name for path in paths[:3]) + (" …" if len(paths) > 3 else "")
    lines = reasons_of(unread)
    with_clock = f" taken with the clock {clock}" if clock else ""
    message = f"no sample{with_clock} in {names}" + (":" if lines else ".")
    if unread and all(line.reason.startswith(_UNNAMED) for line in unread):
        only = {line.reason.removeprefix(_UNNAMED) for line in unread} & set(SAMPLE_OPERATIONS)
        why = "no other collective has such sums and bandwidths" if only else "it is the test that was run"
        return BadInputError("\n".join([message, *lines]), f"give --op {', '.join(only) or '…'}: {why}.")
    return BadInputError(
        "\n".join([message, *lines]),
        "known formats: nccl-tests text and -J JSON, rccl-tests text and -Z JSON or CSV, "
        "NVSHMEM perftest text, "
        f"CSV with the columns {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}.",
    )


def _frame(rows: list[LoggedRow]) -> tuple[pd.DataFrame, list[str]]:
    """(table of samples, warnings about them); doubtful rows are flagged in the table."""
    import pandas as pd

    warnings: list[str] = []
    seen: dict[tuple[object, ...], set[float]] = {}
    records: list[dict[str, object]] = []
    for row in rows:
        record = _record(row)
        key = tuple(record[name] for name in COLUMNS if name not in ("source_id", "time_s", "flag", "note"))
        times = seen.setdefault(key, set())
        if record["flag"] == OK:
            record["flag"] = "duplicate" if record["time_s"] in times else OK
            times.add(row.time_us.value / US_PER_S)
        records.append(record)
    frame = pd.DataFrame.from_records(records, columns=list(COLUMNS))
    for flag, count in frame.loc[frame["flag"] != OK, "flag"].value_counts(sort=False).items():
        warnings.append(f"{count} row{'s' if count > 1 else ''} marked '{flag}': in no calibration")
    return frame, warnings


def _record(row: LoggedRow) -> dict[str, object]:
    run = row.run
    return {
        "source_id": Path(row.line.file).stem,
        "backend": run.backend,
        "library_version": run.library_version,
        "gpu": run.gpu,
        "machine": "",
        "collective": run.operation,
        "clock": run.clock,
        "variant": run.variant,
        "payload_bytes": row.payload_bytes,
        "gpus": run.gpus,
        "nodes": run.gpus // run.gpus_per_node,
        "gpus_per_node": run.gpus_per_node,
        "datatype": row.datatype,
        "in_place": row.in_place,
        "time_s": row.time_us.value / US_PER_S,
        "flag": run.flag if row.flag == OK else row.flag,
        "note": "; ".join(filter(None, (row.note, run.note))),
    }
