"""Reads tables of rows: CSV in our own format (docs/formats.md), and records of rccl-tests in JSON.

    collective,payload_bytes,gpus,time_s and other columns of a sample, which have defaults
    {"name":"AllReduce", "nodes":1, "ranks":16, "ranksPerNode":16, "gpusPerRank":1, "size":1048576,
     "type":"float", "redop":"sum", "inPlace":0, "time":61.3, "algBw":17.1, "busBw":32.1, "wrong":"0"}

The records are of ``-x FILE -Z json``: one per line, or a list of them. Built without MPI, they have ``gpus``
in place of the four. They name no GPU or version, and their ranks per node belong to the communicator: GPUs
per node must be given. Source: ROCm/rccl-tests src/common.cu (class Reporter)
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace

from calibrate.importers import logged_rows as logs
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import SEPARATORS
from perfmodel.schema.gate import decode_json

REQUIRED = ("collective", "payload_bytes", "gpus", "time_s")
_OF_RCCL = ("name", "size", "type", "redop", "inplace", "time", "algbw", "busbw", "wrong")


def looks_like_rccl(text: str) -> bool:
    """Whether the first record has the names of rccl-tests."""
    first = next((line for line in text.splitlines() if line.strip(" \t[")), "")
    return first.lstrip(" \t[").startswith("{") and "inPlace" in first and "busBw" in first


def looks_like_samples(text: str) -> bool:
    """Whether the first line that is not blank is the header of our format."""
    return set(REQUIRED) <= {name.strip() for name in _first_line(text).split(",")}


def why_not_samples(text: str, file: str) -> str:
    """Why a file is not CSV in our format, from its first line.

    Limits: another ending than .csv, and none of our columns -> ""
    """
    first = _first_line(text)
    sign = max((",", *SEPARATORS), key=first.count)
    names = [name.strip() for name in first.split(sign)]
    missing = [name for name in REQUIRED if name not in names]
    if not first or (not file.lower().endswith(".csv") and len(missing) == len(REQUIRED)):
        return ""
    if sign in SEPARATORS:
        return f"{SEPARATORS[sign]} between its fields: write commas"
    return f"no column {', '.join(missing)}; it has {logs.clip(', '.join(names))}"


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def read_samples_csv(text: str, file: str) -> logs.Reading:
    """All rows of a CSV file in our format; never raises on any text."""
    return logs.collect(_rows_of_samples(text, file))


def _rows_of_samples(text: str, file: str) -> Iterator[logs.LoggedRow | logs.LogLine]:
    table = csv.reader(text.splitlines(keepends=True), skipinitialspace=True)
    names: list[str] = []
    while True:
        try:
            cells = [logs.clip(cell) for cell in next(table)]
        except StopIteration:
            return
        except csv.Error as error:
            yield logs.LogLine(file, table.line_num, "", f"not CSV: {error}")
            return
        line = logs.LogLine(file, table.line_num, ",".join(cells))
        if not line.text.strip(","):
            continue
        if not names:
            names = cells
            if twice := sorted({name for name in names if names.count(name) > 1}):
                yield line.refuse(f"column {logs.clip(', '.join(twice))} stands twice")
                return
        elif len(cells) != len(names):
            short = f": {logs.CUT}" if len(cells) < len(names) else ""
            yield line.refuse(f"{len(cells)} fields under {len(names)} columns{short}")
        else:
            yield _parse_sample(dict(zip(names, cells, strict=True)), line)


def _parse_sample(cells: Mapping[str, str], line: logs.LogLine) -> logs.LoggedRow | logs.LogLine:
    """The row with these texts, by our columns."""
    gpus = logs.parse_bytes(cells["gpus"])
    if gpus is None or gpus < 2:
        return line.refuse(f"gpus '{cells['gpus'][:40]}': a whole number of at least 2")
    backend, clock = cells.get("backend", "").lower() or "nccl", cells.get("clock", "").lower()
    for name, value, names in (("backend", backend, Backend), ("clock", clock, ["", *Clock])):
        if value not in list(names):
            return line.refuse(f"{name} '{value[:40]}': one of {', '.join(filter(None, names))}")
    nodes = logs.parse_bytes(cells.get("nodes", "")) or 0
    derived = gpus // nodes if nodes and gpus % nodes == 0 else 0
    run = logs.LoggedRun(
        backend=backend,
        operation_text=cells["collective"],
        library_version=cells.get("library_version", ""),
        gpu=cells.get("gpu", ""),
        clock=clock,
        variant=cells.get("variant", "") or "default",
        gpus=gpus,
        gpus_per_node=logs.parse_bytes(cells.get("gpus_per_node", "")) or derived,
    )
    in_place = "1" if cells.get("in_place", "").lower() in ("true", "1", "yes") else "0"
    texts = {"size": cells["payload_bytes"].removesuffix(".0"), "time": cells["time_s"]}
    row = logs.parse_row(run, texts | {"type": cells.get("datatype", ""), "inplace": in_place}, line)
    if isinstance(row, logs.LogLine):
        return row
    time_us = logs.Printed(*(seconds * logs.US_PER_S for seconds in row.time_us))
    flag, note = cells.get("flag", "").lower()[:40] or logs.OK, cells.get("note", "")[:200]
    return replace(row, time_us=time_us, flag=flag, note=note)


def read_rccl_file(text: str, file: str) -> logs.Reading:
    """All rows of a file of rccl-tests; never raises on any text."""
    items: list[logs.LoggedRow | logs.LogLine] = []
    for line_no, raw in enumerate(text.splitlines(), start=1):
        record = raw.strip(" \t[],")
        if not record:
            continue
        try:
            cells = {str(key).lower(): str(value) for key, value in decode_json(record).items()}
        except (ValueError, AttributeError):
            cells = {}
        items.append(_parse_rccl(cells, logs.LogLine(file, line_no, record)))
    return logs.collect(items)


def _parse_rccl(cells: Mapping[str, str], line: logs.LogLine) -> logs.LoggedRow | logs.LogLine:
    if missing := [name for name in _OF_RCCL if name not in cells]:
        return line.refuse(f"no {', '.join(missing)}: {logs.CUT}")
    count = {name: logs.parse_bytes(cells.get(name, "")) or 0 for name in ("gpus", "ranks", "gpusperrank")}
    run = logs.LoggedRun(
        backend="rccl",
        operation_text=cells["name"],
        gpus=count["gpus"] or (count["ranks"] * count["gpusperrank"] if cells.get("nodes") == "1" else 0),
        gpus_per_node=count["gpus"],
        flag=logs.SINGLE_PROCESS if count["gpusperrank"] > 1 else logs.OK,
        number=count["ranks"],
    )
    return logs.parse_row(run, cells, line)
