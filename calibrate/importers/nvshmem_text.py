"""Reads output of the NVSHMEM perftests (``alltoall_latency``, ``fcollect_on_stream`` …), three layouts.

    mype: 3 mype_node: 3 device name: NVIDIA H200 bus id: 78
    #alltoall_device
    size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
    32          8         32-bit    block     4.120000          0.008         0.007

    | alltoall_device        | 32-bit-block         |      (NVSHMEM 2.x)
    | size (Bytes)           | latency (us)         |
    | 4                      | 5.120000             |

    &&&& PERF alltoall_device___32-bit-block___size__32___latency 4.120000 -us

``size(B)`` is the whole buffer of a rank in current versions, and the part for one peer in 2.x and some early
3.x; the first row shows which, because the tests start at max(1, min_size/(G·w)) elements per peer.
Tests named ``*_device`` and ``device_*`` time inside a kernel, ``*_on_stream`` by events around each launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from calibrate.importers.logged_rows import (
    LoggedRow,
    LoggedRun,
    Reading,
    gpu_name,
    logged_row,
    operation_name,
    parse_printed,
    split_label,
)

_PE = re.compile(r"mype:\s*(\d{1,6})\s+mype_node:\s*(\d{1,6})\s+device name:\s*(.*?)\s+bus id:\s*(\S+)")
_VERSION = re.compile(r"NVSHMEM (?:v|version:?\s*)v?(\d{1,3}(?:\.\d{1,3}){1,3})")
_MIN_SIZE = re.compile(r"\bmin_size:\s*(\d{1,18})\b")
_GRAPH = re.compile(r"\buse_graph:\s*(\d)")
_JOB = re.compile(r"^#?\s*([a-z_]+(?:_device|_on_stream|_latency|reduction|reducescatter))\s*$")
_MACHINE_ROW = re.compile(r"^&&&& PERF (\w+?)___(.+?)___size__(\d{1,18})___(\w+) (\S+) \S(\w+)")
_BYTES = {"32-bit": 4, "64-bit": 8, "int32": 4, "int64": 8, "int": 4, "float": 4, "double": 8, "long": 8}
_SCOPES = {"t": "thread", "w": "warp", "b": "block", "thread": "thread", "warp": "warp", "block": "block"}
_PER_PEER = ("all_to_all", "all_gather", "reduce_scatter")


@dataclass
class _State:
    """The reader's state so far. job  name of the test;  graph  whether it replays a CUDA graph"""

    run: LoggedRun = field(default_factory=lambda: LoggedRun(backend="nvshmem"))
    pes: dict[int, int] = field(default_factory=dict)  # PE -> its index on the node
    job: str = ""
    box: list[str] = field(default_factory=list)  # texts of the last header row of a boxed table
    columns: list[str] = field(default_factory=list)
    min_size: int = 0
    graph: bool = False
    tables: dict[tuple[str, str], LoggedRun] = field(default_factory=dict)  # by (job, variant)


def read_nvshmem_text(text: str, file: str) -> Reading:
    """All rows of an NVSHMEM perftest log; never raises on any text."""
    reading = Reading(file)
    state = _State()
    states = [state]
    for line_no, raw in enumerate(text.splitlines(), start=1):
        line = split_label(raw)[1].strip()
        if (pe := _PE.search(line)) and state.tables:
            state = _State()
            states.append(state)
        if pe:
            _pe_line(pe, state)
        elif not _header(line, state):
            reading.take(_data(line, state), line_no, line)
    for finished in states:
        _finish(finished)
    return reading


def _pe_line(match: re.Match[str], state: _State) -> None:
    pe, local, name, _bus = match.groups()
    run = state.run
    gpu = gpu_name(name)
    if run.gpu and gpu != run.gpu:
        run.trouble = f"the PEs run on different GPUs ({run.gpu}; {gpu})"
    run.gpu = run.gpu or gpu
    state.pes[int(pe)] = int(local)


def _header(line: str, state: _State) -> bool:
    """Process a line that is no data; True if it was a header."""
    if version := _VERSION.search(line):
        state.run.library_version = version.group(1)
        return True
    if smallest := _MIN_SIZE.search(line):
        state.min_size = int(smallest.group(1))
        graph = _GRAPH.search(line)
        state.graph = graph is not None and graph.group(1) != "0"
        return True
    if job := _JOB.match(line):
        state.job, state.columns, state.box = job.group(1), [], []
        return True
    if line.startswith("size(B)"):
        state.columns, state.box = line.split(), []
        return True
    if line.startswith("|"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 and not cells[0][:1].isdigit():
            if cells[0].lower().startswith("size"):
                state.columns = ["boxed", cells[1]]
            else:
                state.job, state.box, state.columns = cells[0], cells, []
            return True
    return False


def _data(line: str, state: _State) -> LoggedRow | str:
    """The row of a data line; if it cannot be read, the reason; "" for a line that is no data."""
    if machine := _MACHINE_ROW.match(line):
        job, sub, size, what, value, unit = machine.groups()
        if what != "latency" or unit != "us":
            return f"'{what}' in {unit}: only latency in us is read"
        return _row(state, job, sub.split("-"), {"size": size, "time": value})
    if line.startswith("&&&&"):
        return "a machine-readable row that could not be read: cut short?"
    if line.startswith("|") and state.columns[:1] == ["boxed"]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "us" not in state.columns[1] or len(cells) != 2:
            return "a table row that is not a size and a latency in us"
        title = state.box[1].split("-") if state.box else []  # a log cut before it has no title
        return _row(state, state.job, title, {"size": cells[0], "time": cells[1]}, boxed=True)
    tokens = line.split()
    if len(tokens) < 3 or not tokens[0].lstrip("+-").isdigit():
        return ""
    if parse_printed(tokens[-1]) is None and parse_printed(tokens[min(4, len(tokens) - 1)]) is None:
        return ""
    if not state.columns or "latency(us)" not in state.columns:
        return "no table header with latency(us) before it"
    if len(tokens) != len(state.columns):
        return f"{len(tokens)} columns where the header has {len(state.columns)}: cut short?"
    named = {name.partition("(")[0]: token for name, token in zip(state.columns, tokens, strict=True)}
    sub = [named[name] for name in ("type", "redop", "scope") if named.get(name)]
    return _row(state, state.job, sub, named | {"size": tokens[0], "time": named["latency"]})


def _row(
    state: _State, job: str, sub: list[str], cells: Mapping[str, str], *, boxed: bool = False
) -> LoggedRow | str:
    """The row of test ``job``. sub  words for its datatype, reduction and scope;  cells  as in logged_row"""
    sub = [sub[0] + "-" + sub[1], *sub[2:]] if sub[:1] in (["32"], ["64"]) and len(sub) > 1 else sub
    scope = next((_SCOPES[part] for part in sub if part in _SCOPES), "")
    redop = next((part for part in sub[1:] if part not in _SCOPES), "")
    on_stream = job.endswith("_on_stream")
    variant = (
        ("on_stream_graph" if state.graph else "on_stream") if on_stream else f"device_{scope or 'block'}"
    )
    run = state.tables.setdefault((job, variant), LoggedRun(backend="nvshmem"))
    run.operation_text, run.operation, run.variant = job, operation_name(job), variant
    run.clock = ("graph" if state.graph else "stream") if on_stream else "device"
    run.boxed = boxed
    kinds = {"type": sub[0] if sub else "", "redop": "" if redop == "None" else redop}
    return logged_row(run, {**cells, **kinds})


def looks_like_nvshmem(text: str) -> bool:
    """Whether a log is from an NVSHMEM perftest."""
    return (
        "latency(us)" in text
        or "&&&& PERF" in text
        or bool(_PE.search(text))
        or bool(re.search(r"^\W*\|\s*size \(bytes\)", text, re.IGNORECASE | re.MULTILINE))
    )


def _finish(state: _State) -> None:
    """Set the number of PEs and PEs per node in every run, once the whole log is read."""
    gpus = len(state.pes)
    per_node = max(state.pes.values()) + 1 if state.pes else 0
    trouble = state.run.trouble
    if state.pes and gpus != max(state.pes) + 1:
        gpus = per_node = 0  # the log of some PEs only
    elif state.pes and gpus % per_node:
        trouble = trouble or "PEs are spread unevenly over the nodes"
    for run in state.tables.values():
        run.gpu, run.library_version = state.run.gpu, state.run.library_version
        run.gpus, run.gpus_per_node, run.trouble = gpus, per_node, trouble
        run.min_size = state.min_size


def buffer_sizes(rows: list[LoggedRow]) -> None:
    """Convert sizes for one peer into sizes of the whole buffer, in tables with sizes for one peer."""
    for datatype in sorted({row.datatype for row in rows}):
        _buffer_sizes([row for row in rows if row.datatype == datatype])


def _buffer_sizes(rows: list[LoggedRow]) -> None:
    run = rows[0].run
    if run.operation not in _PER_PEER or run.gpus < 2:
        return
    width = _BYTES.get(rows[0].datatype, 4)
    smallest = min(row.payload_bytes for row in rows)
    first_for_a_peer = max(1, run.min_size // (run.gpus * width)) * width
    per_peer = run.boxed or smallest % (run.gpus * width) != 0
    if per_peer or (run.min_size and smallest == first_for_a_peer):
        for row in rows:
            row.payload_bytes *= run.gpus
            row.note = "size column is for one peer"
            row.algbw = row.busbw = None  # computed from the size for one peer
