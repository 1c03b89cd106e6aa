"""Common output of all log readers, and the checks that each row must pass.

A row is one timed size of one run. It becomes a sample only if its numbers are consistent: size/time must
equal the printed algorithm bandwidth, and the printed bus bandwidth must be the algorithm bandwidth times the
collective's bus factor at the number of ranks (nccl-tests doc/PERFORMANCE.md), both within the rounding of
the printed numbers. Tables with a wrong label fail the second test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from perfmodel.schema.evidence import SAMPLE_OPERATIONS
from perfmodel.schema.fields import limits_of

US_PER_S = 1e6
GB = 1e9
MAX_TEXT = 160
OK, WRONG, UNREAD_CHECK, SINGLE_PROCESS = "ok", "wrong", "unread-check", "single-process"
"""Flags: no objection; wrong results; their number is not readable; one process launched several GPUs."""
CUT = "cut"
"""Part of the reason for a line that ends early."""

OPERATIONS = {
    **{name: name for name in SAMPLE_OPERATIONS},
    **{name.replace("_", ""): name for name in SAMPLE_OPERATIONS},
    **{"bcast": "broadcast", "reduction": "all_reduce", "fcollect": "all_gather"},
}
"""Names of collectives in logs of nccl-tests and NVSHMEM, with the names in this program."""


_SUMS = {
    **dict.fromkeys(("all_reduce", "reduce_scatter"), True),
    **dict.fromkeys(("all_gather", "all_to_all", "broadcast"), False),
}
"""Whether a collective reduces, from the operation in a log. Bus factors alone do not distinguish an
all-to-all from a reduce-scatter; nccl-tests prints an operation for ``sendrecv`` too, which does not reduce.
"""


class UnreadLine(NamedTuple):
    """A line of a log that looks like data but is not used.

    file, line_no, text  its place, and its text;  reason  why it is not used
    """

    file: str
    line_no: int
    text: str
    reason: str

    @property
    def place(self) -> str:
        """Where the line is, ``all_gather.log:12``; only the file if the reason concerns all of it."""
        return f"{self.file}:{self.line_no}" if self.line_no else self.file


class Printed(NamedTuple):
    """A number as a log prints it: its value, and its rounding error, half a unit of the last digit."""

    value: float
    half_unit: float


@dataclass
class LoggedRun:
    """The facts in the headers of one benchmark run in a log; the rows follow the headers."""

    backend: str = "nccl"
    operation: str = ""  # one of OPERATIONS' values; "" if the log does not state it
    operation_text: str = ""  # as in the log
    library_version: str = ""
    gpu: str = ""
    clock: str = ""
    variant: str = "default"
    hosts: dict[int, str] = field(default_factory=dict)  # rank -> host
    devices: list[tuple[str, str]] = field(default_factory=list)  # (host, bus id)
    gpus: int = 0  # number of ranks; 0 if the log does not state it
    gpus_per_node: int = 0  # 0 if the log does not state it, or nodes differ
    min_size: int = 0  # NVSHMEM perftests: the smallest size that was requested
    boxed: bool = False  # NVSHMEM 2.x tables, where the size is for one peer
    trouble: str = ""  # why no row of this run can be used
    cut: bool = False  # the log ends before this run does
    flag: str = OK  # why all its rows are doubtful
    note: str = ""

    def refuse(self, trouble: str) -> None:
        """Note why no row can be used; the first reason counts."""
        self.trouble = self.trouble or trouble

    def spread(self, ranks_by_host: Mapping[str, int]) -> None:
        """Set the ranks per node, from the number of ranks on each host."""
        counts = sorted(ranks_by_host.values())
        if counts and counts[0] == counts[-1]:
            self.gpus_per_node = counts[0]
        else:
            self.refuse(f"ranks are spread unevenly over the nodes ({', '.join(map(str, counts))})")


@dataclass
class LoggedRow:
    """One timed size of a benchmark run, as the log prints it.

    payload_bytes  size of one rank's buffer;  redop  operation of a reduction, such as sum
    time_us, algbw, busbw  time [µs], algorithm and bus bandwidth [GB/s];  flag  OK, or why it is doubtful
    datatype, in_place, note  as in the log
    """

    file: str
    line_no: int
    text: str
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

    def refuse(self, reason: str) -> UnreadLine:
        """An UnreadLine for this row, with the reason why it is not used."""
        return UnreadLine(self.file, self.line_no, clip(self.text), reason)


@dataclass
class Reading:
    """What was read of one file (``file``: its name).

    rows    the timed sizes;  unread  lines that look like data but are not used
    said    the head of the file and the output of NCCL_DEBUG=INFO, unchanged
    """

    file: str
    rows: list[LoggedRow] = field(default_factory=list)
    unread: list[UnreadLine] = field(default_factory=list)
    said: str = ""

    def take(self, found: LoggedRow | str, line_no: int, text: str) -> None:
        """Keep the row of line ``line_no``, or the line with the reason why it is none; "": it is no data."""
        if isinstance(found, LoggedRow):
            found.file, found.line_no, found.text = self.file, line_no, text
            self.rows.append(found)
        elif found:
            self.unread.append(UnreadLine(self.file, line_no, clip(text), found))

    @property
    def cut(self) -> bool:
        """Whether the file, or a line in it, was cut short."""
        return any(row.run.cut for row in self.rows) or any(CUT in line.reason for line in self.unread)


_LABEL = re.compile(
    r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\[?\d+\]?:|"
    r"(?:\[[\w.,:-]{1,80}\]|[A-Za-z][\w.-]{0,80}:)"
    r"(?=\s*(?:#|\d+\s+\d+\s|mype:|size\(B\)|\||&&&&|NVSHMEM v|NCCL version)))\s?"
)
"""Labels that launchers print before each line: ``[1,0]<stdout>:``, ``0:``, ``[0] ``, ``node-1: ``."""


def split_label(line: str) -> tuple[str, str]:
    """(the label that a launcher put before a line of a log, such as the rank or the host; the line)."""
    match = _LABEL.match(line)
    return (match.group().strip(), line[match.end() :]) if match else ("", line)


def clip(text: str) -> str:
    """One printable line of at most MAX_TEXT characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * MAX_TEXT]).split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"


def gpu_name(text: str) -> str:
    """Short name of a GPU: ``NVIDIA H200`` -> ``H200``; ``AMD Instinct MI355X`` -> ``MI355X``."""
    return clip(text).removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Instinct ")[:80]


def library_of(gpu: str, backend: str) -> str:
    """The library that ran: ``rccl`` for a GPU of AMD, which NCCL cannot use; else ``backend``."""
    return "rccl" if clip(gpu).startswith("AMD ") else backend


def operation_name(text: str) -> str:
    """Our name for ``alltoall_perf``, ``fcollect_device``, ``all_gather`` …; "" for an unknown name."""
    name = text.strip().lower().rsplit("/", 1)[-1].replace("-", "_")
    for ending in ("_mpi", "_perf", "_device", "_on_stream", "_latency"):
        name = name.removesuffix(ending)
    return OPERATIONS.get(name.removeprefix("device_"), "")


def parse_printed(text: str) -> Printed | None:
    """A decimal number with the rounding that its digits imply; None if it is not a number."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        return Printed(math.nan, 0.0)
    return Printed(float(number), 0.5 * float(Decimal(1).scaleb(max(min(exponent, 400), -400))))


def parse_bytes(text: str) -> int | None:
    """A non-negative integer small enough for a size; None otherwise."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def logged_row(run: LoggedRun, cells: Mapping[str, str]) -> LoggedRow | str:
    """The row with these texts, or the reason why there is none; ``Reading.take`` says where it is.

    cells  size [bytes] and time [µs]; where the log has them, algbw and busbw [GB/s], type, redop, inplace
           (1: in place), and wrong, ``N/A`` if the result was not checked
    """
    size, time_us = parse_bytes(cells["size"]), parse_printed(cells["time"])
    if size is None:
        return f"the size '{clip(cells['size'])[:40]}' is not a whole number of bytes"
    if time_us is None:
        return f"the time '{clip(cells['time'])[:40]}' is not a number"
    datatype, redop = (clip(cells.get(name, ""))[:40] for name in ("type", "redop"))
    row = LoggedRow("", 0, "", run, size, datatype, redop, cells.get("inplace") == "1", time_us)
    row.algbw, row.busbw = (parse_printed(cells.get(name, "")) for name in ("algbw", "busbw"))
    check = cells.get("wrong", "0")
    if check.upper() == "N/A":
        row.note = "result not checked"
    elif (wrong := parse_printed(check)) is None:
        row.flag = UNREAD_CHECK
    else:
        row.flag = WRONG if wrong.value != 0 else OK  # NaN is wrong
    return row


def bus_factor(operation: str, gpus: int) -> float:
    """Bus bandwidth divided by algorithm bandwidth: 2(G-1)/G, (G-1)/G or 1 for G = ``gpus`` ranks [-]."""
    if operation in ("broadcast", "sendrecv"):
        return 1.0
    return (2.0 if operation == "all_reduce" else 1.0) * (gpus - 1) / gpus


def why_unusable(row: LoggedRow) -> str:
    """The reason why a row cannot be a sample, or ""."""
    time_s = row.time_us.value / US_PER_S
    if not math.isfinite(time_s):
        return "the time is not a finite number"
    if time_s <= 0:
        return f"the time is {row.time_us.value:g} µs: it must be positive"
    if row.payload_bytes <= 0:
        return "0 bytes: nothing was sent"
    limits = limits_of("sample")
    if outside := limits["time_s"].refusal(time_s):
        return f"the time {outside}"
    if outside := limits["payload_bytes"].refusal(row.payload_bytes):
        return f"the size {outside}"
    if outside := limits["rate_bytes_per_s"].refusal(row.payload_bytes / time_s):
        return f"size/time {outside}"
    if row.redop not in ("", "none", "sum", "-1"):
        return f"reduction '{row.redop}': only sum is modelled"
    if row.redop in ("none", "sum") and row.run.operation in _SUMS:
        sums = _SUMS[row.run.operation]
        if sums != (row.redop == "sum"):
            does = "sums" if sums else "sums nothing"
            return f"reduction '{row.redop}', but {row.run.operation} {does}: wrong collective"
    return _why_bandwidths_disagree(row, time_s)


def _why_bandwidths_disagree(row: LoggedRow, time_s: float) -> str:
    if row.algbw is None:
        return ""
    expected = row.payload_bytes / time_s / GB
    # the time is known to half a unit only: size/time lies between size/(t+h) and size/(t-h)
    slack = row.time_us.half_unit / row.time_us.value
    low, high = expected / (1.0 + slack), expected / max(1.0 - slack, 0.5)
    margin = 1.01 * row.algbw.half_unit + 1e-3 * expected
    if not low - margin <= row.algbw.value <= high + margin:
        return (
            f"size/time is {expected:.3g} GB/s but algbw says {row.algbw.value:.3g}: the columns do not agree"
        )
    if row.busbw is None or row.run.gpus < 2:
        return ""
    factor = bus_factor(row.run.operation, row.run.gpus)
    margin = 1.01 * (row.busbw.half_unit + factor * row.algbw.half_unit) + 1e-3 * row.busbw.value
    if abs(row.busbw.value - factor * row.algbw.value) > margin:
        return (
            f"busbw/algbw is {row.busbw.value / max(row.algbw.value, 1e-300):.3g}, but {row.run.operation} "
            f"on {row.run.gpus} GPUs gives {factor:.3g}: wrong collective or wrong number of GPUs"
        )
    return ""


_MOST_RANKS = 4096


def infer_gpus(operation: str, rows: Iterable[LoggedRow]) -> int:
    """The number of ranks G that explains every printed busbw/algbw; 0 if several numbers do, or none.

    The ratios 2(G-1)/G of all_reduce, and (G-1)/G, determine G if bandwidths have enough digits; the ratio of
    broadcast is always 1.
    """
    lowest, highest = 0.0, math.inf
    for row in rows:
        if row.algbw is None or row.busbw is None or not row.algbw.value > row.algbw.half_unit:
            continue
        scale = 2.0 if operation == "all_reduce" else 1.0
        low = (row.busbw.value - row.busbw.half_unit) / (row.algbw.value + row.algbw.half_unit) / scale
        high = (row.busbw.value + row.busbw.half_unit) / (row.algbw.value - row.algbw.half_unit) / scale
        if not low < 1.0:
            continue  # no number of ranks gives such a ratio: the row is refused later
        lowest = max(lowest, 1.0 / (1.0 - low))
        highest = min(highest, 1.0 / (1.0 - high) if high < 1.0 else math.inf)
    if operation in ("broadcast", "sendrecv") or not highest < _MOST_RANKS:
        return 0
    first, last = math.ceil(lowest - 1e-9), math.floor(highest + 1e-9)
    return first if first == last and first >= 2 else 0
