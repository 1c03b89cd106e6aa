"""What the readers of logs return, and the checks that each row must pass.

A row is one timed size of one run. It becomes a sample only if its numbers are consistent: size/time must
equal the printed algorithm bandwidth, and the printed bus bandwidth must be the algorithm bandwidth times the
collective's bus factor at the number of ranks (nccl-tests doc/PERFORMANCE.md), both within the rounding of
the printed numbers. Tables with a wrong label fail the second test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from perfmodel.schema.evidence import SAMPLE_OPERATIONS
from perfmodel.schema.fields import limits_of

US_PER_S = 1e6
OK = "ok"
WRONG = "wrong"
UNREAD_CHECK = "unread-check"
SINGLE_PROCESS = "single-process"
"""Flags: no objection; wrong results; their number is not readable; one process launched several GPUs."""
CUT = "cut short?"
"""End of the reason for a line that ends early."""

OPERATIONS = {
    **{name: name for name in SAMPLE_OPERATIONS},
    **{name.replace("_", ""): name for name in SAMPLE_OPERATIONS},
    **{"bcast": "broadcast", "reduction": "all_reduce", "fcollect": "all_gather"},
}
"""Names of collectives in logs of nccl-tests and NVSHMEM, with the names in this program."""

_LIMITED = {"time_s": "the time", "payload_bytes": "the size", "rate_bytes_per_s": "size/time"}
_HEAD = re.compile(r"^(\S[^#|\n]{0,200}?(?:\| )?)(?:#\s+size\s.*\bbusbw\b|size\(B\)|mype:)", re.MULTILINE)


class LogLine(NamedTuple):
    """A line of a log, without what a launcher printed before it.

    file, line_no, text  its place, and its text;  reason  why it is not used, if it looks like data
    """

    file: str
    line_no: int
    text: str
    reason: str = ""

    @property
    def place(self) -> str:
        """Where the line is, ``all_gather.log:12``; only the file if the reason concerns all of it."""
        return f"{self.file}:{self.line_no}" if self.line_no else self.file

    def refuse(self, reason: str) -> LogLine:
        """This line, with the reason why it is not used."""
        return self._replace(text=clip(self.text), reason=reason)


class Printed(NamedTuple):
    """A number as a log prints it: its value, and its rounding error, half a unit of the last digit."""

    value: float
    half_unit: float


@dataclass(frozen=True)
class LoggedRun:
    """What a log says of one benchmark run; its rows have it in common.

    operation_text  the collective as the log names it, or ""
    backend, library_version, gpu, clock, variant  as the columns of samples (docs/formats.md); "": unknown
    gpus, gpus_per_node  number of ranks, and of those on a node; 0 if the log does not state it
    flag            why all its rows are doubtful;  trouble  why none of them can be used
    min_size        of NVSHMEM: the smallest size that was requested [bytes]
    number          keeps runs of one file apart, such as the line where it begins
    """

    backend: str = "nccl"
    operation_text: str = ""
    library_version: str = ""
    gpu: str = ""
    clock: str = ""
    variant: str = "default"
    gpus: int = 0
    gpus_per_node: int = 0
    flag: str = OK
    trouble: str = ""
    min_size: int = 0
    number: int = 0

    @property
    def operation(self) -> str:
        """Our name of the collective; "" if the log names none that is known."""
        return operation_name(self.operation_text)


@dataclass(frozen=True)
class LoggedRow:
    """One timed size of a benchmark run, as the log prints it.

    payload_bytes  size of one rank's buffer;  redop  operation of a reduction, such as sum
    time_us, algbw, busbw  time [µs], algorithm and bus bandwidth [GB/s];  flag  OK, or why it is doubtful
    datatype, in_place, note  as in the log
    """

    line: LogLine
    run: LoggedRun
    payload_bytes: int
    datatype: str
    redop: str
    in_place: bool
    time_us: Printed
    algbw: Printed | None = None
    busbw: Printed | None = None
    flag: str = OK
    note: str = ""


class Reading(NamedTuple):
    """What was read of a file: timed sizes, lines that look like data and are not used, whether it is cut."""

    rows: tuple[LoggedRow, ...] = ()
    unread: tuple[LogLine, ...] = ()
    cut: bool = False


def collect(items: Iterable[LoggedRow | LogLine], *, cut: bool = False) -> Reading:
    """Sort what a reader found into rows and unread lines. cut  whether a run has no end"""
    items = list(items)
    rows = tuple(item for item in items if isinstance(item, LoggedRow))
    unread = tuple(item for item in items if isinstance(item, LogLine))
    return Reading(rows, unread, cut or any(CUT in line.reason for line in unread))


def split_labels(text: str, file: str) -> list[tuple[str, LogLine]]:
    """(label, line without it) of each line of a log.

    A label is what a launcher prints before each line: a rank, a host, a time. It is what stands before the
    head of a table, there; labels of other lines have its form, with other words and numbers.
    Limits: nothing stands before a head, or there is none -> no labels
    """
    head = _HEAD.search(text)
    label = re.compile(r"(?!)")  # matches nothing
    if head is not None:  # "[1,0]<out>: # size …" -> the pattern of "[x,x]<x>: ", each x any word
        shape = re.escape(re.sub(r"[\w.-]+", "x", head.group(1)))
        label = re.compile(r"\s*" + re.sub(r"(\\ )+(?!$)", " +", shape).replace("x", r"[\w.-]+"))
    lines = []
    for number, raw in enumerate(text.splitlines(), start=1):
        match = label.match(raw)
        before = match.group() if match else ""
        lines.append((before.strip(), LogLine(file, number, raw[len(before) :])))
    return lines


def is_numeric(cell: str) -> bool:
    """Whether a cell of a table is a number, or N/A."""
    return parse_printed(cell) is not None or cell.upper() == "N/A"


def looks_like_row(cells: Sequence[str]) -> bool:
    """Whether a line has a size first and numbers after it."""
    starts = len(cells) >= 4 and cells[0].lstrip("+-").isdigit()
    return starts and sum(map(is_numeric, cells)) >= len(cells) / 2


def clip(text: str) -> str:
    """One printable line of at most 160 characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:640]).split())
    return line if len(line) <= 160 else f"{line[:159]}…"


def describe_gpus(names: Iterable[str], backend: str = "nccl") -> LoggedRun:
    """A run of which only the GPUs of its ranks are known: their name, the library, trouble with several.

    Names are shortened: ``NVIDIA H200`` -> ``H200``; ``AMD Instinct MI355X`` -> ``MI355X``.
    Limits: a GPU of AMD, which NCCL cannot use -> rccl;  no names -> the library alone
    """
    full = {clip(name) for name in names}
    short = sorted({re.sub(r"^(NVIDIA |AMD )?(Instinct )?", "", name)[:80] for name in full})
    backend = "rccl" if any(name.startswith("AMD ") for name in full) else backend
    trouble = f"the ranks run on different GPUs ({'; '.join(short[:3])})" if len(short) > 1 else ""
    return LoggedRun(backend=backend, gpu=short[0] if short else "", trouble=trouble)


@lru_cache(maxsize=1024)
def operation_name(text: str) -> str:
    """Our name for ``alltoall_perf``, ``fcollect_device``, ``all_gather`` …; "" for an unknown name."""
    name = re.sub(r"^.*/|(_latency)?(_on_stream)?(_device)?(_perf)?(_mpi)?$", "", text.strip().lower())
    return OPERATIONS.get(name.replace("-", "_").removeprefix("device_"), "")


def parse_printed(text: str) -> Printed | None:
    """A decimal number with the rounding that its digits imply; None if it is not a number."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return Printed(math.nan, 0.0)
    exponent = int(number.as_tuple().exponent)
    return Printed(float(number), 0.5 * float(Decimal(1).scaleb(max(min(exponent, 400), -400))))


def parse_bytes(text: str) -> int | None:
    """A non-negative integer small enough for a size; None otherwise."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def parse_row(run: LoggedRun, cells: Mapping[str, str], line: LogLine) -> LoggedRow | LogLine:
    """The row with these texts, or the line with the reason why it is none.

    cells  size [bytes] and time [µs]; where the log has them, algbw and busbw [GB/s], type, redop, inplace
           (1: in place), and wrong, ``N/A`` if the result was not checked
    """
    size = parse_bytes(cells["size"])
    if size is None:
        return line.refuse(f"the size '{clip(cells['size'])[:40]}' is not a whole number of bytes")
    numbers: dict[str, Printed] = {}
    for name in sorted({"time", "algbw", "busbw"} & set(cells), reverse=True):
        if (number := parse_printed(cells[name])) is None:
            return line.refuse(f"the {name} '{clip(cells[name])[:40]}' is not a number")
        numbers[name] = number
    unchecked = cells.get("wrong", "0").upper() == "N/A"
    wrong = parse_printed("0" if unchecked else cells.get("wrong", "0"))
    flag = UNREAD_CHECK if wrong is None else WRONG if wrong.value != 0 else OK  # NaN is wrong
    return LoggedRow(
        line=line,
        run=run,
        payload_bytes=size,
        datatype=clip(cells.get("type", ""))[:40],
        redop=clip(cells.get("redop", ""))[:40].lower(),
        in_place=cells.get("inplace") == "1",
        time_us=numbers["time"],
        algbw=numbers.get("algbw"),
        busbw=numbers.get("busbw"),
        flag=flag,
        note="result not checked" if unchecked else "",
    )


def why_unusable(row: LoggedRow) -> str:
    """The reason why a row cannot be a sample, or "": impossible numbers, or columns that disagree."""
    time_s = row.time_us.value / US_PER_S
    if not math.isfinite(time_s):
        return "the time is not a finite number"
    if time_s <= 0:
        return f"the time is {row.time_us.value:g} µs: it must be positive"
    if not row.payload_bytes:
        return "0 bytes: nothing was sent"
    values = (time_s, row.payload_bytes, row.payload_bytes / time_s)
    for (name, words), value in zip(_LIMITED.items(), values, strict=True):
        if outside := limits_of("sample")[name].refusal(value):
            return f"{words} {outside}"
    operation = row.run.operation
    if row.redop not in ("", "none", "sum", "-1"):
        return f"reduction '{row.redop}': only sum is modelled"
    sums = operation in ("all_reduce", "reduce_scatter")  # bus factors do not tell it from an all-to-all
    if row.redop == ("none" if sums else "sum") and operation != "sendrecv":  # which prints one all the same
        does = "sums" if sums else "sums nothing"
        return f"reduction '{row.redop}', but {operation} {does}: wrong collective"
    return _why_bandwidths_disagree(row, time_s)


def _why_bandwidths_disagree(row: LoggedRow, time_s: float) -> str:
    """Why size/time, algorithm and bus bandwidth of a row contradict each other, or "".

    Bus over algorithm bandwidth must be 2(G-1)/G, (G-1)/G or 1 for G ranks, by the collective. Each number
    is known to half a unit of its last digit; a thousandth comes on top.
    """
    operation, gpus = row.run.operation, row.run.gpus
    if row.algbw is None:
        return ""
    expected = row.payload_bytes / time_s / 1e9
    # the time is known to half a unit only: size/time lies between size/(t+h) and size/(t-h)
    slack = row.time_us.half_unit / row.time_us.value
    low = expected / (1.0 + slack)
    high = expected / max(1.0 - slack, 0.5)
    margin = 1.01 * row.algbw.half_unit + 1e-3 * expected
    if median((low - margin, row.algbw.value, high + margin)) != row.algbw.value:
        algbw = f"algbw says {row.algbw.value:.3g}: the columns do not agree"
        return f"size/time is {expected:.3g} GB/s but {algbw}"
    if row.busbw is None or not gpus:
        return ""
    part = 1.0 if operation in ("broadcast", "sendrecv") else (gpus - 1) / gpus
    factor = 2.0 * part if operation == "all_reduce" else part
    margin = 1.01 * (row.busbw.half_unit + factor * row.algbw.half_unit) + 1e-3 * row.busbw.value
    if abs(row.busbw.value - factor * row.algbw.value) > margin:
        ratio = f"busbw/algbw is {row.busbw.value / max(row.algbw.value, 1e-300):.3g}"
        rule = f"{operation} on {gpus} GPUs gives {factor:.3g}"
        return f"{ratio}, but {rule}: wrong collective or wrong number of GPUs"
    return ""
