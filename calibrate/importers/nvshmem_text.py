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
from collections.abc import Iterator, Sequence
from dataclasses import replace

from calibrate.importers.logged_rows import (
    CUT,
    Line,
    LoggedRow,
    LoggedRun,
    Reading,
    UnreadLine,
    collect,
    describe_gpus,
    parse_printed,
    parse_row,
    split_labels,
)

_PE = re.compile(
    r"mype:\s*(\d{1,6})\s+mype_node:\s*(\d{1,6})\s+device name:\s*(\S+(?:[ \t]+\S+)*?)\s+bus id:\s*\S"
)
_VERSION = re.compile(r"NVSHMEM (?:v|version:?\s*)v?(\d{1,3}(?:\.\d{1,3}){1,3})")
_MIN_SIZE = re.compile(r"\bmin_size:\s*(\d{1,18})\b(?:.*\buse_graph:\s*(\d))?")
_JOB = re.compile(r"^#?\s*([a-z_]+(?:_device|_on_stream|_latency|reduction|reducescatter))\s*$")
_MACHINE_ROW = re.compile(r"^&&&& PERF (\w+?)___(.+?)___size__(\d{1,18})___(\w+) (\S+) \S(\w+)")
_BYTES = {"32-bit": 4, "64-bit": 8, "int32": 4, "int64": 8, "int": 4, "float": 4, "double": 8, "long": 8}
_SCOPES = {"t": "thread", "w": "warp", "b": "block", "thread": "thread", "warp": "warp", "block": "block"}
_PER_PEER = ("all_to_all", "all_gather", "reduce_scatter")


def looks_like_nvshmem(text: str) -> bool:
    """Whether a log is from an NVSHMEM perftest."""
    box = re.search(r"^[^\w\n]*\|\s*size \(bytes\)", text, re.IGNORECASE | re.MULTILINE)
    return "latency(us)" in text or "&&&& PERF" in text or bool(_PE.search(text) or box)


def read_nvshmem_text(text: str, file: str) -> Reading:
    """All rows of an NVSHMEM perftest log; never raises on any text."""
    sections: list[list[Line]] = [[]]
    tabled = False  # whether a table follows the PEs of the section
    for _, line in split_labels(text, file):
        if tabled and _PE.search(line.text):
            sections.append([])
            tabled = False
        tabled = tabled or ("size" in line.text and not _MIN_SIZE.search(line.text))
        sections[-1].append(line)
    return collect(item for section in sections for item in _rows(section, _describe_run(section)))


def _describe_run(section: Sequence[Line]) -> tuple[LoggedRun, bool]:
    """(what the headers of a section say of all its tables, whether it replays a CUDA graph)."""
    text = "\n".join(line.text for line in section)
    pes = {int(pe): (int(local), name) for pe, local, name in _PE.findall(text)}
    run = describe_gpus((name for _, name in pes.values()), "nvshmem")
    count, per_node = len(pes), max((local for local, _ in pes.values()), default=-1) + 1
    if pes and count != max(pes) + 1:
        count = per_node = 0  # the log of some PEs only
    elif pes and count % per_node:
        run = replace(run, trouble=run.trouble or "PEs are spread unevenly over the nodes")
    version, smallest = _VERSION.search(text), _MIN_SIZE.search(text)
    run = replace(
        run,
        library_version=version.group(1) if version else "",
        gpus=count,
        gpus_per_node=per_node,
        min_size=int(smallest.group(1)) if smallest else 0,
        number=section[0].line_no if section else 0,
    )
    return run, smallest is not None and (smallest.group(2) or "0") != "0"


def _rows(section: Sequence[Line], described: tuple[LoggedRun, bool]) -> Iterator[LoggedRow | UnreadLine]:
    """The rows of a section, and the lines that look like a row and are none."""
    run, graph = described
    job, title, columns = "", [""], [""]  # the test, its words for type and scope, columns of its table
    for line in section:
        text = line.text.strip()
        cells = [cell.strip() for cell in text.strip("|").split("|")] if text[:1] == "|" else text.split()
        if _VERSION.search(text) or _MIN_SIZE.search(text) or _PE.search(text):
            continue
        if match := _JOB.match(text):
            job, title, columns = match.group(1), [], []
        elif text.startswith("size(B)"):
            columns = cells
        elif text.startswith("|") and len(cells) == 2 and not cells[0][:1].isdigit():
            if cells[0].lower().startswith("size"):
                columns = ["boxed", cells[1]]
            else:
                job, title, columns = cells[0], cells[1].split("-"), []
        elif match := _MACHINE_ROW.match(text):
            named, words, size, what, value, unit = match.groups()
            if (what, unit) == ("latency", "us"):
                timed = _name_test(run, named, words.split("-"), graph)
                yield parse_row(timed[0], {"size": size, "time": value} | timed[1], line)
            else:
                yield line.refuse(f"'{what}' in {unit}: only latency in us is read")
        elif text.startswith("&&&&"):
            yield line.refuse(f"a machine-readable row that could not be read: {CUT}")
        elif text.startswith("|") and columns[:1] == ["boxed"]:
            if "us" not in columns[1] or len(cells) != 2:
                yield line.refuse("a table row that is not a size and a latency in us")
            else:
                timed = _name_test(replace(run, boxed=True), job, title, graph)
                yield parse_row(timed[0], {"size": cells[0], "time": cells[1]} | timed[1], line)
        elif _looks_like_data(cells):
            yield _plain_row(line, run, job, columns, graph)


def _looks_like_data(tokens: Sequence[str]) -> bool:
    """Whether a line has a size first, and a number last or in the place of the latency."""
    if len(tokens) < 3 or not tokens[0].lstrip("+-").isdigit():
        return False
    return any(parse_printed(tokens[place]) is not None for place in (-1, min(4, len(tokens) - 1)))


def _plain_row(
    line: Line, run: LoggedRun, job: str, columns: Sequence[str], graph: bool
) -> LoggedRow | UnreadLine:
    tokens = line.text.split()
    if "latency(us)" not in columns:
        return line.refuse("no table header with latency(us) before it")
    if len(tokens) != len(columns):
        return line.refuse(f"{len(tokens)} columns where the header has {len(columns)}: {CUT}")
    named = {name.partition("(")[0]: token for name, token in zip(columns, tokens, strict=True)}
    words = [named[name] for name in ("type", "redop", "scope") if named.get(name)]
    timed, kinds = _name_test(run, job, words, graph)
    return parse_row(timed, named | {"size": tokens[0], "time": named["latency"]} | kinds, line)


def _name_test(
    run: LoggedRun, job: str, words: Sequence[str], graph: bool
) -> tuple[LoggedRun, dict[str, str]]:
    """(the run of test ``job``, type and reduction of its rows), from words for type, reduction and scope."""
    if words[:1] in (["32"], ["64"]) and len(words) > 1:
        words = [f"{words[0]}-{words[1]}", *words[2:]]
    scope = next((_SCOPES[word] for word in words if word in _SCOPES), "block")
    redop = next((word for word in words[1:] if word not in _SCOPES and word != "None"), "")
    clock, variant = "device", f"device_{scope}"
    if job.endswith("_on_stream"):
        clock, variant = ("graph", "on_stream_graph") if graph else ("stream", "on_stream")
    kinds = {"type": words[0] if words else "", "redop": redop}
    return replace(run, operation_text=job, clock=clock, variant=variant), kinds


def to_buffer_sizes(rows: Sequence[LoggedRow]) -> list[LoggedRow]:
    """The rows of a run with sizes of whole buffers, where its table has sizes for one peer."""
    run = rows[0].run
    if run.operation not in _PER_PEER or run.gpus < 2:
        return list(rows)
    smallest: dict[str, int] = {}
    for row in rows:
        smallest[row.datatype] = min(row.payload_bytes, smallest.get(row.datatype, row.payload_bytes))
    return [_whole_buffer(row, smallest[row.datatype]) for row in rows]


def _whole_buffer(row: LoggedRow, smallest: int) -> LoggedRow:
    """The row with its buffer's size. smallest  size in the first row of the table [bytes]"""
    run, width = row.run, _BYTES.get(row.datatype, 4)
    first_for_a_peer = max(1, run.min_size // (run.gpus * width)) * width
    per_peer = run.boxed or smallest % (run.gpus * width) != 0
    if not per_peer and not (run.min_size and smallest == first_for_a_peer):
        return row
    size, note = row.payload_bytes * run.gpus, "size column is for one peer"
    return replace(row, payload_bytes=size, note=note, algbw=None, busbw=None)  # both of the printed size
