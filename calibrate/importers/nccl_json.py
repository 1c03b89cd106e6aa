"""Reads the file that nccl-tests writes with ``-J out.json`` (versions 1 to 3).

    {"version": 1, "args": ["./all_gather_perf", …], "nccl_version": 22907,
     "config": {"nthreads": 1, "ngpus": 1, "graph": 0, "devices": [{"rank": 0, "hostname": …, …}]},
     "results": [{"size": 1024, "count": 256, "type": "float", "redop": "none",
                  "out_of_place": {"time": 12.3, "alg_bw": …, "bus_bw": …, "nwrong": 0}, "in_place": {…}}]}

``devices`` has one entry per *process*; a process drives nthreads × ngpus ranks. Times are microseconds.
The file also contains the whole environment of the run, of which nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calibrate.importers import logged_rows as logs
from calibrate.importers.nccl_text import describe_ranks, version_from_code
from perfmodel.schema.gate import decode_json


def read_nccl_json(text: str, file: str) -> logs.Reading:
    """All rows of a nccl-tests JSON file; never raises on any text."""
    try:
        document = decode_json(text)
    except ValueError as error:
        damaged = logs.LogLine(file, getattr(error, "lineno", 1), text[:200])
        return logs.collect([damaged.refuse("JSON ends early or is damaged: the run was cut short?")])
    return logs.collect(_rows(document, file))


def _rows(document: Any, file: str) -> Iterator[logs.LoggedRow | logs.LogLine]:
    results = _object(document).get("results")
    if not isinstance(results, list):
        reason = "JSON without a 'results' list: not written by nccl-tests -J"
        yield logs.LogLine(file, 1, str(document)[:200]).refuse(reason)
        return
    run = _describe_run(document)
    for index, result in enumerate(map(_object, results)):
        for key, in_place in (("out_of_place", "0"), ("in_place", "1")):
            line, part = logs.LogLine(file, 1, f"results[{index}].{key}"), result.get(key)
            if part is None and key in result:
                continue  # null: this half was not run
            if not isinstance(part, dict):
                yield line.refuse("not an object with a time and bandwidths")
            elif "cpu_time" in part:
                yield line.refuse("CPU time (-C): the time to enqueue, not to run")
            else:
                cells = {name: str(result.get(name, "")) for name in ("size", "type", "redop")}
                cells |= {"wrong": "N/A" if part.get("nwrong") is None else str(part["nwrong"])}
                for name, of_part in (("time", "time"), ("algbw", "alg_bw"), ("busbw", "bus_bw")):
                    cells[name] = _print_number(part.get(of_part))
                yield logs.parse_row(run, cells | {"inplace": in_place}, line)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _print_number(value: Any) -> str:
    """A number as nccl-tests prints it (%lf); "" for anything else."""
    try:
        return "" if isinstance(value, bool) else f"{float(value):.6f}"
    except (TypeError, ValueError, OverflowError):
        return ""


def _count(value: Any) -> int:
    """A small non-negative integer, possibly written as a string; 0 for anything else."""
    return min(logs.parse_bytes(str(value).strip()) or 0, 2**16)


def _describe_run(document: Mapping[str, Any]) -> logs.LoggedRun:
    config, args = _object(document.get("config")), document.get("args")
    version, gpus = _count(document.get("nccl_version")), max(_count(config.get("ngpus")), 1)
    blocking = str(config.get("blocking_collectives")).lower() == "true"
    listed = config.get("devices")
    devices = [_object(item) for item in listed] if isinstance(listed, list) else []
    per_process = gpus * max(_count(config.get("nthreads")), 1) if len(devices) < 2**10 else 1
    if len(devices) > 1 and _count(devices[1].get("rank")) - _count(devices[0].get("rank")) == 1:
        per_process = 1  # an entry a rank
    ranks = []
    for device in devices:
        rank, group, host = _count(device.get("rank")), _count(device.get("group")), device.get("hostname")
        for more in range(per_process):
            name = str(device.get("device_info", ""))
            ranks.append((str(rank + more), str(group), str(host)[:200], str(rank + more), name))
    return replace(
        describe_ranks(ranks, rccl=False),
        operation_text=logs.clip(str(args[0])) if isinstance(args, list) and args else "",
        library_version=version_from_code(version) if version else "",
        clock="eager" if blocking else "graph" if _count(config.get("graph")) > 0 else "stream",
        flag=logs.SINGLE_PROCESS if gpus > 1 else logs.OK,
    )
