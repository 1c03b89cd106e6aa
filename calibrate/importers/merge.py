"""Rows of several logs into one table of samples.

Every row is checked, different stacks are never merged, and unused lines are reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
from calibrate.importers.nvshmem_text import buffer_sizes, looks_like_nvshmem, read_nvshmem_text
from calibrate.importers.rccl_files import looks_like_rccl, read_rccl_file
from calibrate.importers.samples_csv import REQUIRED, looks_like_csv, read_samples_csv, why_not_ours
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.fields import limits_of
from perfmodel.schema.gate import MOST_LOG_BYTES, STDIN, read_bounded
from perfmodel.schema.samples import COLUMNS
from perfmodel.units import format_bytes, format_fraction

if TYPE_CHECKING:
    import pandas as pd

_FALL_WORTH_A_WARNING = 0.75
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


@dataclass
class ImportResult:
    """The result of an import.

    samples  table in the columns of docs/formats.md;  unread  lines that look like data but are not used
    stack    the stack of the samples (a list of one);  said  heads of the logs, output of NCCL_DEBUG=INFO
    """

    samples: pd.DataFrame
    unread: list[UnreadLine]
    stack: list[Stack]
    cut: list[str] = field(default_factory=list)  # files that end prematurely
    warnings: list[str] = field(default_factory=list)
    said: str = field(default="", kw_only=True)


def import_logs(
    paths: Sequence[str | Path],
    *,
    gpus_per_node: int | None = None,
    op: str | None = None,
    clock: str | None = None,
    gpus: int | None = None,
    library_version: str | None = None,
    stack: str | None = None,
    overruled: bool = False,
) -> ImportResult:
    """Samples from nccl-tests text and JSON, NVSHMEM perftest text and CSV files in our format.

    gpus, gpus_per_node, op, library_version   values that a log does not state
    clock, stack                               keep only samples with this clock, or this stack
    overruled  what a log states holds against these values, with a warning; else a contradiction is an error
    Raises BadInputError if nothing is usable, or the logs contain several stacks and none is chosen.
    """
    check_given(op, clock, gpus, gpus_per_node)
    if not paths:
        raise BadInputError("no log was given.", "perfmodel import all_gather.log reduce_scatter.log")
    given = LoggedRun(operation_text=op or "", gpus=gpus or 0, gpus_per_node=gpus_per_node or 0)
    given.library_version = library_version or ""
    rows: list[LoggedRow] = []
    unread: list[UnreadLine] = []
    cut: list[str] = []
    said: list[str] = []
    against: list[str] = []
    for path in paths:
        reading = _read_file(Path(path))
        said.append(reading.said)
        cut += [_log_name(Path(path))] if reading.cut else []
        unread.extend(reading.unread)
        against += _settle(reading.rows, given)
        rows.extend(reading.rows)
    if against and not overruled:
        raise BadInputError(f"{against[0]}.", f"leave {against[0].split()[0]} out, or name another log.")
    usable = []
    for row in rows:
        reason = _why_run_unusable(row.run) or why_unusable(row)
        if reason:
            unread.append(row.refuse(reason))
        elif clock is None or row.run.clock == clock:
            usable.append(row)
    if not usable:
        raise _nothing_usable(paths, unread, clock)
    stacks = sorted({_stack(row.run) for row in usable})
    chosen = _choose(stacks, stack)
    kept = [row for row in usable if _stack(row.run) == chosen]
    frame, warnings = _frame(kept)
    if cut:
        names = ", ".join(cut[:3]) + (f" and {len(cut) - 3} more" if len(cut) > 3 else "")
        warnings.append(f"{names}: cut before the end of the run; the calibration is partial")
    warnings += [f"{words}: the log's own word holds" for words in against]
    return ImportResult(frame, sorted(set(unread)), [chosen], cut, warnings, said="\n".join(said))


def check_given(op: str | None, clock: str | None, gpus: int | None, gpus_per_node: int | None) -> None:
    """Raise BadInputError if a value for logs that do not state it cannot be true of any log."""
    if op is not None and not operation_name(op):
        raise BadInputError(f"--op {op} is not a collective.", f"one of {', '.join(SAMPLE_OPERATIONS)}.")
    if clock is not None and clock not in list(Clock):
        raise BadInputError(f"--clock {clock} is not a clock.", f"one of {', '.join(Clock)}.")
    for name, value in (("--gpus", gpus), ("--gpus-per-node", gpus_per_node)):
        if value is not None and value < 1:
            raise BadInputError(f"{name} {value} is not a number of GPUs.", "at least 1.")


def _read_file(path: Path) -> Reading:
    try:
        folder = path.is_dir()
    except (OSError, ValueError):
        folder = False
    if folder:
        raise BadInputError(f"{path} is a folder.", f"name the logs in it: {path}/*")
    content = read_bounded(path, "log", MOST_LOG_BYTES)
    text = content.decode("utf-8", errors="replace")
    reading = read_text(text, _log_name(path))
    reading.said = "\n".join(line for line in text.splitlines() if _SAYS.search(line))
    if not reading.rows and not reading.unread:
        reason = "is empty" if not content.strip() else "nothing in it is a known format"
        reading.unread.append(UnreadLine(_log_name(path), 0, "", reason))
    return reading


def _log_name(path: Path) -> str:
    """The file's name; ``pipe-63`` for ``/dev/fd/63``, into which a shell turns ``<(cat a.log)``."""
    if path == STDIN:
        return "stdin"
    return f"pipe-{path.name}" if path.parent.name == "fd" else path.name


def read_text(text: str, file: str) -> Reading:
    """Rows of one log of any known format, recognised by its content; never raises on any text."""
    if looks_like_rccl(text.lstrip("\ufeff")):
        return read_rccl_file(text.lstrip("\ufeff"), file)
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return read_nccl_json(text.lstrip("\ufeff"), file)
    if looks_like_csv(text.lstrip("\ufeff")):
        return read_samples_csv(text, file)
    reading = read_nvshmem_text(text, file) if looks_like_nvshmem(text) else read_nccl_text(text, file)
    if not reading.rows and (reason := why_not_ours(text.lstrip("\ufeff"), Path(file).suffix)):
        return Reading(file, unread=[UnreadLine(file, 0, "", reason)])
    for row in reading.rows:
        if not row.run.operation_text:  # the file name is the last resort: all_gather_8x_h100.log
            row.run.operation_text = row.run.operation = _operation_in(file)
    return reading


def _operation_in(file: str) -> str:
    name = file.lower().replace("-", "_")
    found = {operation for spelling, operation in OPERATIONS.items() if spelling in name}
    return found.pop() if len(found) == 1 else ""


def _settle(rows: Iterable[LoggedRow], given: LoggedRun) -> list[str]:
    """Fill in from ``given`` what headers lack. Returns the options that contradict a header, with where."""
    against: list[str] = []
    by_run: dict[int, list[LoggedRow]] = {}
    for row in rows:
        by_run.setdefault(id(row.run), []).append(row)
    for mine in by_run.values():
        run, where = mine[0].run, f"{mine[0].file}, line {mine[0].line_no}"
        if not run.operation_text:
            run.operation = operation_name(given.operation_text)
        elif given.operation_text and run.operation != operation_name(given.operation_text):
            against.append(f"--op {given.operation_text}, but {where} is of {run.operation_text}")
        run.clock = run.clock or "stream"
        run.library_version = run.library_version or given.library_version
        against += _settle_count(run, given, "gpus", "--gpus", where)
        if not run.gpus:
            run.gpus = infer_gpus(run.operation, mine)
            run.note = run.note or ("GPUs counted from busbw/algbw" if run.gpus else "")
        against += _settle_count(run, given, "gpus_per_node", "--gpus-per-node", where)
        if run.backend == "nvshmem":
            buffer_sizes(mine)
        if not (run.operation or run.operation_text or run.trouble):
            run.trouble = f"{_UNNAMED}{' or '.join(_possible(run, mine))}"
    return against


_UNNAMED = "the log does not say which collective it is: give --op "


def _possible(run: LoggedRun, rows: Sequence[LoggedRow]) -> list[str]:
    """The operations that may have run: all rows' bandwidths fit them. Limits: none fits -> all"""
    found = []
    for run.operation in SAMPLE_OPERATIONS:
        if not any(map(why_unusable, rows)):
            found.append(run.operation)
    run.operation = ""
    return found or list(SAMPLE_OPERATIONS)


def _settle_count(run: LoggedRun, given: LoggedRun, name: str, option: str, where: str) -> list[str]:
    said, wanted = getattr(run, name), getattr(given, name)
    if wanted and name == "gpus_per_node" and run.gpus:
        wanted = min(wanted, run.gpus)
    setattr(run, name, said or wanted)
    against = said and wanted and said != wanted
    return [f"{option} {wanted}, but the log says {said} ({where})"] if against else []


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


def _stack(run: LoggedRun) -> Stack:
    return Stack(run.backend, run.library_version, run.gpu, run.clock)


def _choose(stacks: list[Stack], wanted: str | None) -> Stack:
    """The stack to import: the only stack of the samples, or the stack that the words ``wanted`` select."""
    words = (wanted or "").lower().replace(":", " ").replace("·", " ").split()
    matching = _selected(stacks, words)
    listed = "\n".join(f"  {stack}" for stack in stacks)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise BadInputError(f"--stack {wanted} is not in the logs:\n{listed}")
    raise BadInputError(
        f"the logs are of {len(matching)} stacks that cannot be one calibration:\n{listed}", _how_to(stacks)
    )


def _selected(stacks: list[Stack], words: Sequence[str]) -> list[Stack]:
    """Stacks whose texts contain all the words: as whole words if any stack does, else as parts of words."""
    whole = [s for s in stacks if set(words) <= set(" ".join(s).lower().split())]
    return whole or [s for s in stacks if all(any(w in part.lower() for part in s) for w in words)]


def _how_to(stacks: list[Stack]) -> str:
    """Advice for the user: a --stack option that selects one of the stacks."""
    for stack in stacks:
        text = " ".join(part for part in stack if part)
        if _selected(stacks, text.lower().split()) == [stack]:
            return f'choose one, for example with --stack "{text}", or import them one by one.'
    return "import them one by one."


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
    return frame, warnings + _falling_times(frame)


def _record(row: LoggedRow) -> dict[str, object]:
    run = row.run
    return {
        "source_id": Path(row.file).stem,
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


def _falling_times(frame: pd.DataFrame) -> list[str]:
    """Warnings, one for each collective and number of ranks whose median time falls while the size grows."""
    warnings = []
    good = frame[(frame["flag"] == OK) & ~frame["in_place"]]  # in-place rows are not fitted
    keys = ["collective", "variant", "gpus", "gpus_per_node", "datatype", "in_place"]
    for key, group in good.groupby(keys, sort=True):
        medians = group.groupby("payload_bytes")["time_s"].median().sort_index()
        ratio = medians / medians.shift(1)
        worst = float(ratio.min())  # NaN for a single size
        if worst < _FALL_WORTH_A_WARNING:
            size = format_bytes(float(medians.index[int(ratio.argmin())]))
            warnings.append(
                f"{key[0]} on {key[2]} GPUs: the time falls by {format_fraction(1 - worst)} when the message "
                f"grows to {size} (noise, or a protocol switch); the fit is monotone"
            )
    return warnings
