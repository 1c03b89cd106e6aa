"""Reads output of the NVSHMEM perftests of 3.x (``alltoall_latency``, ``fcollect_on_stream`` …).

    mype: 3 mype_node: 3 device name: NVIDIA H200 bus id: 78
    #alltoall_device
    size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
    32          8         32-bit    block     4.120000          0.008         0.007

``size(B)`` is the whole buffer of a rank in current versions, and the part for one peer in some early 3.x:
the first row shows which, because the tests start at max(1, min_size/(G·w)) elements per peer.
Tests named ``*_device`` and ``device_*`` time inside a kernel, ``*_on_stream`` by events around each launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from calibrate.importers import logged_rows as logs
from perfmodel.schema.evidence import PER_PEER

_PE = re.compile(
    r"mype:\s*(\d{1,6})\s+mype_node:\s*(\d{1,6})\s+device name:\s*(\S+(?:[ \t]+\S+)*?)\s+bus id:\s*\S"
)
_VERSION = re.compile(r"NVSHMEM (?:v|version:?\s*)v?(\d{1,3}(?:\.\d{1,3}){1,3})")
_MIN_SIZE = re.compile(r"\bmin_size:\s*(\d{1,18})\b(?:.*\buse_graph:\s*(\d))?")
_JOB = re.compile(r"^#?\s*([a-z_]+(?:_device|_on_stream|_latency|reduction|reducescatter))\s*$")
_BYTES = {"32-bit": 4, "64-bit": 8, "int32": 4, "int64": 8, "int": 4, "float": 4, "double": 8, "long": 8}
_SCOPES = {"t": "thread", "w": "warp", "b": "block"}


def read_nvshmem_text(text: str, file: str) -> logs.Reading | None:
    """All rows of an NVSHMEM perftest log; None of another log. Never raises on any text."""
    if "latency(us)" not in text:
        return None
    sections: list[list[logs.LogLine]] = [[]]
    tabled = False  # whether a table follows the PEs of the section
    for _, line in logs.split_labels(text, file):
        if tabled and _PE.search(line.text):
            sections.append([])
            tabled = False
        tabled = tabled or "size(B)" in line.text
        sections[-1].append(line)
    return logs.collect(item for section in sections for item in _rows(section))


def _rows(section: Sequence[logs.LogLine]) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The rows of a section (a run's headers and tables), and lines that look like a row and are none."""
    on_stream = _describe_run(section)
    run = in_kernel = replace(on_stream, clock="device", variant="")
    columns: list[str] = []
    for line in section:
        cells = line.text.split()
        if match := _JOB.match(line.text.strip()):
            columns = []
            job = match.group(1)
            run = replace(on_stream if job.endswith("_on_stream") else in_kernel, operation_text=job)
        elif cells[:1] == ["size(B)"]:
            columns = cells
        elif not logs.looks_like_row(cells):
            continue
        elif "latency(us)" not in columns:
            yield line.refuse("no table header with latency(us) before it")
        elif len(cells) != len(columns):
            yield line.refuse(f"{len(cells)} columns where the header has {len(columns)}: {logs.CUT}")
        else:
            named = {name.partition("(")[0]: cell for name, cell in zip(columns, cells, strict=True)}
            scope = named.get("scope", "block")
            timed = replace(run, variant=run.variant or f"device_{_SCOPES.get(scope, scope)}")
            yield logs.parse_row(timed, named | {"time": named["latency"]}, line)


def _describe_run(section: Sequence[logs.LogLine]) -> logs.LoggedRun:
    """What a section's headers say of its run: PEs (NVSHMEM's ranks), version …; as of tests on a stream."""
    text = "\n".join(line.text for line in section)
    pes = {int(pe): (int(local), name) for pe, local, name in _PE.findall(text)}
    run = logs.describe_gpus((name for _, name in pes.values()), "nvshmem")
    count = len(pes)
    per_node = len({local for local, _ in pes.values()})
    if pes and count != max(pes) + 1:
        count = per_node = 0  # the log of some PEs only
    elif pes and count % per_node:
        run = replace(run, trouble="PEs are spread unevenly over the nodes")
    version = _VERSION.search(text)
    smallest = _MIN_SIZE.search(text)
    graph = smallest is not None and smallest.group(2) not in (None, "0")
    return replace(
        run,
        library_version=version.group(1) if version else "",
        clock="graph" if graph else "stream",
        variant="on_stream_graph" if graph else "on_stream",
        gpus=count,
        gpus_per_node=per_node,
        min_size=int(smallest.group(1)) if smallest else 0,
        number=section[0].line_no,
    )


def to_buffer_sizes(rows: Sequence[logs.LoggedRow]) -> list[logs.LoggedRow]:
    """The rows of a run with sizes of whole buffers, where its table has sizes for one peer."""
    run = rows[0].run
    if run.operation not in PER_PEER or not run.gpus:
        return list(rows)
    sized = []
    for row in rows:
        width = _BYTES.get(row.datatype, 4)
        smallest = min(other.payload_bytes for other in rows if other.datatype == row.datatype)
        # a whole buffer has equal parts for all ranks; the first part of a peer is known from min_size
        first_for_a_peer = run.min_size // (run.gpus * width) * width
        if smallest % (run.gpus * width) != 0 or (run.min_size and smallest == first_for_a_peer):
            size = row.payload_bytes * run.gpus
            note = "size column is for one peer"
            row = replace(row, payload_bytes=size, note=note, algbw=None, busbw=None)  # of the printed size
        sized.append(row)
    return sized
