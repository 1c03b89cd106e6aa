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
    OK,
    SINGLE_PROCESS,
    LoggedRow,
    LoggedRun,
    Reading,
    UnreadLine,
    clip,
    gpu_name,
    library_of,
    logged_row,
    operation_name,
    parse_bytes,
)
from calibrate.importers.nccl_text import version_from_code
from perfmodel.schema.gate import decode_json
from perfmodel.units import format_count

_MOST_UNREAD = 10_000
_SPACE = re.compile(r"[ \t\r\n,]*")


def read_nccl_json(text: str, file: str) -> Reading:
    """All rows of a nccl-tests JSON file; never raises on any text."""
    reading = Reading(file)
    position, line_no = 0, 1
    while (begin := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        if len(reading.unread) >= _MOST_UNREAD:
            reason = f"more than {format_count(_MOST_UNREAD)} documents that nccl-tests did not write"
            return Reading(file, unread=[UnreadLine(file, line_no, "", reason)])
        line_no += text.count("\n", position, begin)
        position = begin
        try:
            document, position = decode_json(text, start=begin)
        except ValueError as error:
            line_no = getattr(error, "lineno", line_no)
            reason = "JSON ends early or is damaged: the run was cut?"
            reading.take(reason, line_no, text[position : position + 200])
            break
        _document(document, line_no, reading)
        line_no += text.count("\n", begin, position)
    return reading


def _document(document: Any, line_no: int, reading: Reading) -> None:
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        reason = "JSON without a 'results' list: not written by nccl-tests -J"
        reading.take(reason, line_no, str(document)[:200])
        return
    run = _run(document)
    for index, result in enumerate(results):
        label = f"results[{index}]"
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            part = result.get(key) if isinstance(result, dict) else None
            if part is None and isinstance(result, dict) and key in result:
                continue  # null: this half was not run
            reading.take(_row(result, part, run, in_place), line_no, f"{label}.{key}")


def _int(value: Any, default: int = 0) -> int:
    """A small non-negative integer, possibly written as a string."""
    return parse_bytes(str(value).strip()) or default


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
    run.flag = SINGLE_PROCESS if _int(config.get("ngpus")) > 1 else OK
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
    if sum(hosts.values()) == run.gpus:
        run.spread(hosts)
    else:
        run.refuse(f"{sum(hosts.values())} of {run.gpus} ranks are in the list of devices")


def _number(value: Any) -> str:
    """A number as nccl-tests prints it (%lf); "" for anything else."""
    try:
        return "" if isinstance(value, bool) else f"{float(value):.6f}"
    except (TypeError, ValueError, OverflowError):
        return ""


def _row(result: Any, part: Any, run: LoggedRun, in_place: bool) -> LoggedRow | str:
    if not isinstance(result, dict) or not isinstance(part, dict):
        return "not an object with a time and bandwidths"
    if "cpu_time" in part:
        return "CPU time (-C): the time to enqueue, not to run"
    cells = {name: str(result.get(name, "")) for name in ("size", "type", "redop")}
    keys = {"time": "time", "algbw": "alg_bw", "busbw": "bus_bw"}
    cells |= {name: _number(part.get(key)) for name, key in keys.items()}
    cells["wrong"] = "N/A" if part.get("nwrong") is None else str(part["nwrong"])
    return logged_row(run, {**cells, "inplace": str(int(in_place))})
