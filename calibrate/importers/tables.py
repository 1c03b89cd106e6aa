"""Reads tables of rows: CSV in our own format (docs/formats.md), and what rccl-tests write to a file.

    collective,payload_bytes,gpus,time_s and other columns of a sample, which have defaults
    numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,algbw,busbw,#wrong
    {"name":"AllReduce", "nodes":1, "ranks":16, "ranksPerNode":16, "gpusPerRank":1, "size":1048576,
     "type":"float", "redop":"sum", "inPlace":0, "time":61.3, "algBw":17.1, "busBw":32.1, "wrong":"0"}

The last two are of ``-x FILE -Z csv`` and ``-Z json`` (a record per line, or a list of them). Built without
MPI, they have ``gpus`` in place of the four. They name no GPU or version, and their ranks per node belong to
the communicator: GPUs per node must be given. Older CSV has no head for ``nodes``.
Source: ROCm/rccl-tests src/common.cu (class Reporter, and its call with ``args->nProcs``)
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibrate.importers.logged_rows import (
    CUT,
    OK,
    SINGLE_PROCESS,
    US_PER_S,
    Line,
    LoggedRow,
    LoggedRun,
    Printed,
    Reading,
    UnreadLine,
    clip,
    collect,
    parse_bytes,
    parse_printed,
    parse_row,
)
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import SEPARATORS
from perfmodel.schema.gate import decode_json

REQUIRED = ("collective", "payload_bytes", "gpus", "time_s")
_OF_RCCL = ("name", "size", "type", "redop", "inplace", "time", "algbw", "busbw", "wrong")
_RENAMED = {"collective": "name", "#wrong": "wrong"}
_SUFFIXES = (".csv", ".tsv")
_FEW = 50  # names that are compared


def looks_like_rccl(text: str) -> bool:
    """Whether the first record, or the head of a CSV, has the names of rccl-tests."""
    first = next((line for line in text.splitlines() if line.strip(" \t[")), "").lower()
    return "inplace" in first and "redop" in first and "busbw" in first


def looks_like_samples(text: str) -> bool:
    """Whether the first line that is not blank is the header of our format."""
    names = [name.strip() for name in _first_line(text).split(",")]
    return all(name in names for name in REQUIRED)


def why_not_samples(text: str, suffix: str) -> str:
    """Why a CSV file is not in our format, from its first line: ``no column time_s; it has size, gpus``.

    suffix   of the file's name: ``.csv`` always counts as CSV, other suffixes only if the line names one of
             our columns
    Limits: text that is no CSV -> ""
    """
    first = _first_line(text)
    sign = max((",", *SEPARATORS), key=first.count)
    names = [part.strip().strip('"') for part in first.split(sign)]
    missing = [name for name in REQUIRED if name not in names]
    if not first or not (suffix.lower() in _SUFFIXES or len(missing) < len(REQUIRED)):
        return ""
    shown = clip(", ".join(names))
    reasons = [f"{SEPARATORS[sign]} between its fields"] if sign in SEPARATORS else []
    if any(parse_printed(name) is not None for name in names[:_FEW]):
        return " and ".join([*reasons, f"its first line does not name columns: {shown}"])
    if not missing:
        return f"{reasons[0]}: write commas"
    return ", and ".join([*reasons, f"no column {', '.join(missing)}; it has {shown}"])


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def read_samples_csv(text: str, file: str) -> Reading:
    """All rows of a CSV file in our format; never raises on any text."""
    return collect(_rows_of_samples(text, file))


def _rows_of_samples(text: str, file: str) -> Iterator[LoggedRow | UnreadLine]:
    table = csv.reader(io.StringIO(text), skipinitialspace=True)
    names: list[str] = []
    while True:
        try:
            cells = [clip(cell) for cell in next(table)]
        except StopIteration:
            return
        except csv.Error as error:
            yield UnreadLine(file, table.line_num, "", f"not CSV: {error}")
            return
        line = Line(file, table.line_num, ",".join(cells))
        if not line.text.strip(","):
            continue
        if not names:
            names = cells
            if twice := sorted({name for name in names if names.count(name) > 1}):
                yield line.refuse(f"column {clip(', '.join(twice))} stands twice")
                return
        elif len(cells) < len(names):
            yield line.refuse(f"{len(cells)} fields under {len(names)} columns: {CUT}")
        elif len(cells) > len(names):
            yield line.refuse(f"{len(cells)} fields under {len(names)} columns")
        else:
            yield _sample(dict(zip(names, cells, strict=True)), line)


def _sample(cells: Mapping[str, str], line: Line) -> LoggedRow | UnreadLine:
    """The row with these texts, by our columns."""
    gpus = parse_bytes(cells["gpus"])
    if gpus is None or gpus < 2:
        return line.refuse(f"gpus '{cells['gpus'][:40]}': a whole number of at least 2")
    backend, clock = cells.get("backend", "").lower() or "nccl", cells.get("clock", "").lower()
    for name, value, known in (("backend", backend, Backend), ("clock", clock, ["", *Clock])):
        if value not in list(known):
            return line.refuse(f"{name} '{value[:40]}': one of {', '.join(filter(None, known))}")
    nodes = parse_bytes(cells.get("nodes", "")) or 0
    derived = gpus // nodes if nodes and gpus % nodes == 0 else 0
    run = LoggedRun(
        backend=backend,
        operation_text=cells["collective"],
        library_version=cells.get("library_version", ""),
        gpu=cells.get("gpu", ""),
        clock=clock,
        variant=cells.get("variant", "") or "default",
        gpus=gpus,
        gpus_per_node=parse_bytes(cells.get("gpus_per_node", "")) or derived,
    )
    in_place = cells.get("in_place", "").lower() in ("true", "1", "yes")
    texts = {"size": cells["payload_bytes"].removesuffix(".0"), "time": cells["time_s"]}
    row = parse_row(run, texts | {"type": cells.get("datatype", ""), "inplace": str(int(in_place))}, line)
    if isinstance(row, UnreadLine):
        return row
    time_us = Printed(*(seconds * US_PER_S for seconds in row.time_us))
    flag, note = cells.get("flag", "").lower()[:40] or OK, cells.get("note", "")[:200]
    return replace(row, time_us=time_us, flag=flag, note=note)


def read_rccl_file(text: str, file: str) -> Reading:
    """All rows of a file of rccl-tests; never raises on any text."""
    items: list[LoggedRow | UnreadLine] = []
    names: list[str] = []
    for line_no, text_line in enumerate(text.splitlines(), start=1):
        record = text_line.strip().rstrip(",")
        if not record.strip("[]"):
            continue
        if not names and not record.startswith("{"):
            names = [_RENAMED.get(name.lower(), name.lower()) for name in _split_fields(record)]
        else:
            items.append(_rccl_row(_name_cells(record, names), Line(file, line_no, record)))
    return collect(items)


def _split_fields(line: str) -> list[str]:
    """The fields of a line. Limits: not CSV -> none"""
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _name_cells(record: str, names: Sequence[str]) -> dict[str, str]:
    """The texts of a record of rccl-tests, by name in lower case. Limits: it cannot be read -> empty"""
    if record.startswith("{"):
        try:
            document: Any = decode_json(record)[0]
        except ValueError:
            return {}
        return {str(key).lower(): str(value) for key, value in document.items()}
    cells = _split_fields(record)
    if "ranks" in names and "nodes" not in names:
        names = [*names[: names.index("ranks")], "nodes", *names[names.index("ranks") :]]
    return dict(zip(names, cells, strict=True)) if len(cells) == len(names) else {}


def _rccl_row(cells: Mapping[str, str], line: Line) -> LoggedRow | UnreadLine:
    if missing := [name for name in _OF_RCCL if name not in cells]:
        return line.refuse(f"no {', '.join(missing)}: {CUT}")
    alone, ranks, per_rank = (
        parse_bytes(cells.get(name, "")) or 0 for name in ("gpus", "ranks", "gpusperrank")
    )
    run = LoggedRun(
        backend="rccl",
        operation_text=cells["name"],
        gpus=alone or (ranks * per_rank if cells.get("nodes") == "1" else 0),
        gpus_per_node=alone,
        flag=SINGLE_PROCESS if per_rank > 1 else OK,
        number=ranks,
    )
    return parse_row(run, cells, line)
