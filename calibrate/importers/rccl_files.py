"""Reads files of rccl-tests' options ``-x FILE -Z json`` or ``-Z csv``: a record per line, or a list of them.

    {"name":"AllReduce", "nodes":1, "ranks":16, "ranksPerNode":16, "gpusPerRank":1, "size":1048576,
     "type":"float", "redop":"sum", "inPlace":0, "time":61.3, "algBw":17.1, "busBw":32.1, "wrong":"0"}
    numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,algbw,busbw,#wrong

Built without MPI, it has ``gpus`` in place of the four. The file names no GPU or version, and its ranks per
node belong to the communicator: GPUs per node must be given. Older CSV has no head for ``nodes``.
Source: ROCm/rccl-tests src/common.cu (class Reporter, and its call with ``args->nProcs``)
"""

from __future__ import annotations

import csv
import io
from typing import Any

from calibrate.importers.logged_rows import (
    CUT,
    SINGLE_PROCESS,
    LoggedRow,
    LoggedRun,
    Reading,
    logged_row,
    operation_name,
    parse_bytes,
)
from perfmodel.schema.gate import decode_json

_HEADS = {"collective": "name", "#wrong": "wrong"}
_NAMED = ("name", "size", "type", "redop", "inplace", "time", "algbw", "busbw", "wrong")


def looks_like_rccl(text: str) -> bool:
    """Whether the first record, or the head of a CSV, has the names of rccl-tests."""
    first = next((line for line in text.splitlines() if line.strip(" \t[")), "").lower()
    return "inplace" in first and "redop" in first and "busbw" in first


def read_rccl_file(text: str, file: str) -> Reading:
    """All rows of a file of rccl-tests; never raises on any text."""
    reading = Reading(file)
    runs: dict[tuple[str, ...], LoggedRun] = {}
    heads: list[str] = []
    for line_no, line in enumerate(text.splitlines(), start=1):
        record = line.strip().rstrip(",")
        if not record.strip("[]"):
            continue
        if not heads and not record.startswith("{"):
            heads = [_HEADS.get(name.lower(), name.lower()) for name in _fields(record)]
            continue
        reading.take(_row(_cells(record, heads), runs), line_no, record)
    return reading


def _fields(line: str) -> list[str]:
    """The fields of a line. Limits: not CSV -> none"""
    try:
        return [cell.strip() for cell in next(csv.reader(io.StringIO(line), skipinitialspace=True), [])]
    except csv.Error:
        return []


def _cells(record: str, heads: list[str]) -> dict[str, str]:
    """The texts of one record (a JSON object or a line of CSV), by name in lower case.

    heads  names of the columns of a CSV;  Limits: a record that cannot be read -> empty
    """
    if record.startswith("{"):
        try:
            found: Any = decode_json(record)[0]
        except ValueError:
            return {}
        return {str(key).lower(): str(value) for key, value in found.items()}
    cells = _fields(record)
    if "ranks" in heads and "nodes" not in heads:
        heads = [*heads[: heads.index("ranks")], "nodes", *heads[heads.index("ranks") :]]
    return dict(zip(heads, cells, strict=True)) if len(cells) == len(heads) else {}


def _row(cells: dict[str, str], runs: dict[tuple[str, ...], LoggedRun]) -> LoggedRow | str:
    if missing := [name for name in _NAMED if name not in cells]:
        return f"no {', '.join(missing)}: {CUT} short?"
    ranks = [cells.get(name, "") for name in ("nodes", "ranks", "gpusperrank", "gpus")]
    run = runs.setdefault((cells["name"], *ranks), LoggedRun("rccl"))
    run.operation_text, run.operation = cells["name"], operation_name(cells["name"])
    if (parse_bytes(cells.get("gpusperrank", "")) or 0) > 1:
        run.flag = SINGLE_PROCESS
    if alone := parse_bytes(cells.get("gpus", "")):
        run.gpus = run.gpus_per_node = alone
    elif cells.get("nodes") == "1":
        run.gpus = (parse_bytes(cells.get("ranks", "")) or 0) * (
            parse_bytes(cells.get("gpusperrank", "")) or 0
        )
    return logged_row(run, cells)
