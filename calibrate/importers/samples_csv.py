"""Reads CSV in our own format (docs/formats.md): samples, one a line, by the columns of the first line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace

from calibrate.importers import logged_rows as logs
from perfmodel.schema.evidence import Backend, Clock

REQUIRED = ("collective", "payload_bytes", "gpus", "time_s")


def list_missing(text: str) -> tuple[list[str], str]:
    """(our columns that the first line lacks, that line): none are missing in CSV in our format."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    names = [name.strip() for name in first.split(",")]
    return [name for name in REQUIRED if name not in names], first


def read_samples_csv(text: str, file: str) -> logs.Reading:
    """All rows of a CSV file in our format; never raises on any text."""
    return logs.collect(_rows(text, file))


def _rows(text: str, file: str) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The rows below the first line, which names their columns, and the lines that cannot be one."""
    table = csv.reader(text.splitlines(keepends=True), skipinitialspace=True)
    names: list[str] = []
    try:
        for texts in table:
            cells = [logs.clip(cell) for cell in texts]
            line = logs.LogLine(file, table.line_num, ",".join(cells))
            if not line.text.strip(","):
                continue
            if not names:
                names = cells
                if twice := sorted({name for name in names if names.count(name) > 1}):
                    yield line.refuse(f"the column '{twice[0][:40]}' stands twice: its last one is read")
            elif len(cells) != len(names):
                short = f": {logs.CUT}" if names[len(cells) :] else ""
                yield line.refuse(f"{len(cells)} fields under {len(names)} columns{short}")
            else:
                yield _parse_sample(dict(zip(names, cells, strict=True)), line)
    except csv.Error as error:
        yield logs.LogLine(file, table.line_num, "", f"not CSV: {error}")


def _parse_sample(cells: Mapping[str, str], line: logs.LogLine) -> logs.LoggedRow | logs.LogLine:
    """The row with these texts by our columns, or the line with the reason why it is none."""
    gpus = logs.parse_bytes(cells["gpus"])
    if gpus is None or gpus < 2:
        return line.refuse(f"gpus '{cells['gpus'][:40]}': a whole number of at least 2")
    backend = cells.get("backend", "").lower() or "nccl"
    clock = cells.get("clock", "").lower()
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
    flag = cells.get("flag", "").lower()[:40] or logs.OK
    return replace(row, time_us=time_us, flag=flag, note=cells.get("note", "")[:200])
