"""Reads the file that nccl-tests writes with ``-J out.json`` (versions 1 to 3), or several in a row.

    {"version": 1, "args": ["./all_gather_perf", …], "nccl_version": 22907,
     "config": {"nthreads": 1, "ngpus": 1, "graph": 0, "devices": [{"rank": 0, "hostname": …, …}]},
     "results": [{"size": 1024, "count": 256, "type": "float", "redop": "none",
                  "out_of_place": {"time": 12.3, "alg_bw": …, "bus_bw": …, "nwrong": 0}, "in_place": {…}}]}

``devices`` has one entry per *process*; a process drives nthreads × ngpus ranks. Times are microseconds.
The file also contains the whole environment of the run, of which nothing is kept.
"""

from __future__ import annotations

import re
from typing import Any

from calibrate.importers.logged_rows import (
    LoggedRow,
    LoggedRun,
    Printed,
    Reading,
    UnreadLine,
    clip,
    gpu_name,
    library_of,
    operation_name,
)
from calibrate.importers.nccl_text import version_from_code
from perfmodel.schema.gate import decode_json
from perfmodel.units import format_count

_MOST_UNREAD = 10_000
_SPACE = re.compile(r"[ \t\r\n,]*")
_PRINTED_HALF_UNIT = 0.5e-6  # %lf prints six decimals


def read_nccl_json(text: str, file: str) -> Reading:
    """All rows of a nccl-tests JSON file; never raises on any text."""
    reading = Reading()
    position, line_no = 0, 1
    while (begin := _skip_space(text, position)) < len(text):
        if len(reading.unread) >= _MOST_UNREAD:
            reason = f"more than {format_count(_MOST_UNREAD)} documents that nccl-tests did not write"
            return Reading(unread=[UnreadLine(file, line_no, "", reason)])
        line_no += text.count("\n", position, begin)
        position = begin
        try:
            document, position = decode_json(text, start=begin)
        except ValueError as error:
            line_no = getattr(error, "lineno", line_no)
            reason = "JSON ends early or is damaged: the run was cut?"
            reading.unread.append(UnreadLine(file, line_no, clip(text[position : position + 200]), reason))
            break
        _document(document, line_no, file, reading)
        line_no += text.count("\n", begin, position)
    return reading


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # matches nothing as well


def _document(document: Any, line_no: int, file: str, reading: Reading) -> None:
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        reason = "JSON without a 'results' list: not written by nccl-tests -J"
        reading.unread.append(UnreadLine(file, line_no, clip(str(document)[:200]), reason))
        return
    run = _run(document)
    for index, result in enumerate(results):
        label = f"results[{index}]"
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            part = result.get(key) if isinstance(result, dict) else None
            if part is None and isinstance(result, dict) and key in result:
                continue  # null: this half was not run
            row = _row(result, part, run)
            if isinstance(row, str):
                reading.unread.append(UnreadLine(file, line_no, f"{label}.{key}", row))
                continue
            row.file, row.line_no, row.text, row.in_place = file, line_no, f"{label}.{key}", in_place
            reading.rows.append(row)


def _int(value: Any, default: int = 0) -> int:
    """A small non-negative integer, possibly written as a string."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return default
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else default


def _run(document: dict[str, Any]) -> LoggedRun:
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    args = document.get("args")
    program = clip(str(args[0])) if isinstance(args, list) and args else ""
    run = LoggedRun(operation_text=program, operation=operation_name(program))
    if version := _int(document.get("nccl_version")):
        run.library_version = version_from_code(version)
    run.clock = "graph" if _int(config.get("graph")) > 0 else "stream"
    if str(config.get("blocking_collectives")).lower() == "true":
        run.clock = "eager"
    _devices(config, run)
    return run


def _devices(config: dict[str, Any], run: LoggedRun) -> None:
    devices = config.get("devices")
    devices = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    if not devices:
        return
    per_process = max(_int(config.get("nthreads"), 1), 1) * max(_int(config.get("ngpus"), 1), 1)
    ranks = sorted(_int(device.get("rank")) for device in devices)
    one_each = ranks == list(range(len(ranks))) and len(ranks) > 1
    run.gpus = len(ranks) if one_each else ranks[-1] + per_process
    described = sorted(str(device.get("device_info", "")) for device in devices)
    names = {gpu_name(one) for one in described}
    run.gpu, run.backend = sorted(names)[0], library_of(described[0], run.backend)
    if len(names) > 1:
        run.trouble = f"the ranks run on different GPUs ({'; '.join(sorted(names)[:3])})"
    if len({_int(device.get("group")) for device in devices}) > 1:
        run.trouble = "several communicators ran at once (more than one group): not the time of one"
    hosts: dict[str, int] = {}
    for device in devices:
        host = str(device.get("hostname", ""))[:200]
        hosts[host] = hosts.get(host, 0) + (1 if one_each else per_process)
    if len(set(hosts.values())) == 1 and sum(hosts.values()) == run.gpus:
        run.gpus_per_node = next(iter(hosts.values()))
    elif not run.trouble:
        run.trouble = "ranks are spread unevenly over the nodes, or the list of devices is incomplete"


def _number(value: Any) -> Printed | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return Printed(float(value), _PRINTED_HALF_UNIT)
    except (ValueError, OverflowError):
        return None


def _row(result: Any, part: Any, run: LoggedRun) -> LoggedRow | str:
    if not isinstance(result, dict) or not isinstance(part, dict):
        return "not an object with a time and bandwidths"
    if "cpu_time" in part:
        return "CPU time (-C): the time to enqueue, not to run"
    size, time_us = result.get("size"), _number(part.get("time"))
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 10**18:
        return "the size is not a whole number of bytes"
    if time_us is None:
        return "no time"
    datatype, redop = clip(str(result.get("type", "")))[:40], clip(str(result.get("redop", "")))[:40]
    row = LoggedRow("", 0, "", run, size, datatype, redop, False, time_us)
    row.algbw, row.busbw = _number(part.get("alg_bw")), _number(part.get("bus_bw"))
    wrong = _number(part.get("nwrong"))
    row.wrong = wrong.value if wrong is not None else 0.0
    row.note = "" if wrong is not None else "result not checked"
    return row
