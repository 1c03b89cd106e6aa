"""Reads CSV files in our own format (docs/formats.md), one timed size per row, in bytes and seconds.

The header row has at least ``collective, payload_bytes, gpus, time_s``; the other columns have defaults.
"""

from __future__ import annotations

import csv
import io

from calibrate.importers.logged_rows import (
    CUT,
    OK,
    US_PER_S,
    LoggedRow,
    LoggedRun,
    Printed,
    Reading,
    UnreadLine,
    clip,
    logged_row,
    operation_name,
    parse_bytes,
    parse_printed,
)
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import SEPARATORS

REQUIRED = ("collective", "payload_bytes", "gpus", "time_s")
_FEW = 50  # names that are compared
_SUFFIXES = (".csv", ".tsv")


def looks_like_csv(text: str) -> bool:
    """Whether the first line that is not blank is our header."""
    for line in text.splitlines():
        if line.strip():
            names = [name.strip() for name in line.split(",")]
            return all(name in names for name in REQUIRED)
    return False


def why_not_ours(text: str, suffix: str) -> str:
    """Why a CSV file is not in our format, from its first line: ``no column time_s; it has size, gpus``.

    suffix   of the file's name: ``.csv`` always counts as CSV, other suffixes only if the line names one of
             our columns
    Limits: text that is no CSV -> ""
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    sign = max((",", *SEPARATORS), key=first.count)
    found = [part.strip().strip('"') for part in first.split(sign)]
    missing = [name for name in REQUIRED if name not in found]
    if not first or not (suffix.lower() in _SUFFIXES or len(missing) < len(REQUIRED)):
        return ""
    shown = clip(", ".join(found))
    separated = f"{SEPARATORS[sign]} between its fields" if sign in SEPARATORS else ""
    if any(parse_printed(name) is not None for name in found[:_FEW]):
        return " and ".join(filter(None, [separated, f"its first line does not name columns: {shown}"]))
    if not missing:
        return f"{separated}: write commas"
    lacking = f"no column {', '.join(missing)}; it has {shown}"
    return f"{separated}, and {lacking}" if separated else lacking


def read_samples_csv(text: str, file: str) -> Reading:
    """All rows of a CSV file in our format; never raises on any text."""
    reading = Reading(file)
    runs: dict[tuple[str | int, ...], LoggedRun] = {}
    table = csv.DictReader(io.StringIO(text.lstrip("\ufeff \r\n")), skipinitialspace=True)
    names = [name.strip() for name in table.fieldnames or ()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return Reading(
            file, unread=[UnreadLine(file, 1, "", f"column {clip(', '.join(twice))} stands twice")]
        )
    while True:
        try:
            record = next(table, None)
        except csv.Error as error:
            reading.take(f"not CSV: {error}", table.line_num, "")
            break
        if record is None:
            break
        cells = {str(key).strip(): clip(value) for key, value in record.items() if isinstance(value, str)}
        line = ",".join(cells.values())
        if not line.strip(","):
            continue
        missing = [name for name in REQUIRED if name not in cells]
        row = _row(cells, runs) if not missing else f"no {', '.join(missing)}: {CUT} short?"
        reading.take(row, table.line_num, line)
    return reading


def _row(cells: dict[str, str], runs: dict[tuple[str | int, ...], LoggedRun]) -> LoggedRow | str:
    """The row with these texts by column, or the reason why there is none; rows of one cell share a run."""
    gpus = parse_bytes(cells.get("gpus", ""))
    if gpus is None or gpus < 2:
        return f"gpus '{clip(cells.get('gpus', ''))[:40]}': a whole number of at least 2"
    nodes = parse_bytes(cells.get("nodes", "")) or 0
    gpus_per_node = parse_bytes(cells.get("gpus_per_node", "")) or 0
    if nodes and not gpus_per_node and gpus % nodes == 0:
        gpus_per_node = gpus // nodes
    backend, clock = cells.get("backend", "").lower() or "nccl", cells.get("clock", "").lower()
    if backend not in list(Backend):
        return f"backend '{clip(backend)[:40]}': one of {', '.join(Backend)}"
    if clock and clock not in list(Clock):
        return f"clock '{clip(clock)[:40]}': one of {', '.join(Clock)}"
    name, variant = cells["collective"], cells.get("variant", "") or "default"
    version, gpu = cells.get("library_version", ""), cells.get("gpu", "")
    facts = (backend, operation_name(name), name, version, gpu, clock, variant)
    run = runs.setdefault(
        (*facts, gpus, gpus_per_node), LoggedRun(*facts, gpus=gpus, gpus_per_node=gpus_per_node)
    )
    texts = {"size": cells["payload_bytes"].removesuffix(".0"), "time": cells["time_s"]}
    texts |= {"type": cells.get("datatype", "")}
    texts["inplace"] = "1" if cells.get("in_place", "").lower() in ("true", "1", "yes") else "0"
    row = logged_row(run, texts)
    if isinstance(row, LoggedRow):
        row.time_us = Printed(*(seconds * US_PER_S for seconds in row.time_us))
        row.flag = cells.get("flag", "").lower()[:40] or OK
        row.note = cells.get("note", "")[:200]
    return row
