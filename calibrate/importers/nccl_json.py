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
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from calibrate.importers.logged_rows import (
    OK,
    SINGLE_PROCESS,
    Line,
    LoggedRow,
    LoggedRun,
    Reading,
    UnreadLine,
    clip,
    collect,
    describe_gpus,
    parse_bytes,
    parse_row,
    spread_ranks,
)
from calibrate.importers.nccl_text import version_from_code
from perfmodel.schema.gate import decode_json
from perfmodel.units import format_count

_MOST_DOCUMENTS = 10_000
_SPACE = re.compile(r"[ \t\r\n,]*")


def read_nccl_json(text: str, file: str) -> Reading:
    """All rows of a nccl-tests JSON file; never raises on any text."""
    items: list[LoggedRow | UnreadLine] = []
    position, line_no, documents = 0, 1, 0
    while (begin := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        documents += 1
        line_no += text.count("\n", position, begin)
        if documents > _MOST_DOCUMENTS:
            reason = f"more than {format_count(_MOST_DOCUMENTS)} documents that nccl-tests did not write"
            return Reading(unread=(UnreadLine(file, line_no, "", reason),))
        position = begin
        try:
            document, position = decode_json(text, start=begin)
        except ValueError as error:
            damaged = Line(file, getattr(error, "lineno", line_no), text[begin : begin + 200])
            items.append(damaged.refuse("JSON ends early or is damaged: the run was cut short?"))
            break
        items += _rows(document, file, line_no)
        line_no += text.count("\n", begin, position)
    return collect(items)


def _rows(document: Any, file: str, line_no: int) -> Iterator[LoggedRow | UnreadLine]:
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        reason = "JSON without a 'results' list: not written by nccl-tests -J"
        yield Line(file, line_no, str(document)[:200]).refuse(reason)
        return
    run = _describe_run(document, line_no)
    for index, result in enumerate(results):
        for key, in_place in (("out_of_place", "0"), ("in_place", "1")):
            part = result.get(key) if isinstance(result, dict) else None
            line = Line(file, line_no, f"results[{index}].{key}")
            if part is None and isinstance(result, dict) and key in result:
                continue  # null: this half was not run
            if not isinstance(result, dict) or not isinstance(part, dict):
                yield line.refuse("not an object with a time and bandwidths")
            elif "cpu_time" in part:
                yield line.refuse("CPU time (-C): the time to enqueue, not to run")
            else:
                cells = {name: str(result.get(name, "")) for name in ("size", "type", "redop")}
                cells |= {"wrong": "N/A" if part.get("nwrong") is None else str(part["nwrong"])}
                for name, of_part in (("time", "time"), ("algbw", "alg_bw"), ("busbw", "bus_bw")):
                    cells[name] = _print_number(part.get(of_part))
                yield parse_row(run, cells | {"inplace": in_place}, line)


def _print_number(value: Any) -> str:
    """A number as nccl-tests prints it (%lf); "" for anything else."""
    try:
        return "" if isinstance(value, bool) else f"{float(value):.6f}"
    except (TypeError, ValueError, OverflowError):
        return ""


def _count(value: Any) -> int:
    """A small non-negative integer, possibly written as a string; 0 for anything else."""
    return parse_bytes(str(value).strip()) or 0


def _describe_run(document: dict[str, Any], line_no: int) -> LoggedRun:
    config, args = document.get("config"), document.get("args")
    config = config if isinstance(config, dict) else {}
    version = _count(document.get("nccl_version"))
    blocking = str(config.get("blocking_collectives")).lower() == "true"
    return replace(
        _describe_devices(config),
        operation_text=clip(str(args[0])) if isinstance(args, list) and args else "",
        library_version=version_from_code(version) if version else "",
        clock="eager" if blocking else "graph" if _count(config.get("graph")) > 0 else "stream",
        number=line_no,
    )


def _describe_devices(config: dict[str, Any]) -> LoggedRun:
    """A run of which only the list of devices is known: GPUs, nodes, whether one process drives several."""
    listed = config.get("devices")
    devices = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    if not devices:
        return LoggedRun()
    per_process = max(_count(config.get("nthreads")), 1) * max(_count(config.get("ngpus")), 1)
    ranks = sorted(_count(device.get("rank")) for device in devices)
    one_each = ranks == list(range(len(ranks))) and len(ranks) > 1
    gpus = len(ranks) if one_each else ranks[-1] + per_process
    hosts: Counter[str] = Counter()
    for device in devices:
        hosts[str(device.get("hostname", ""))[:200]] += 1 if one_each else per_process
    per_node, trouble = spread_ranks(hosts)
    if hosts.total() != gpus:
        trouble = f"{hosts.total()} of {gpus} ranks are in the list of devices"
    if len({_count(device.get("group")) for device in devices}) > 1:
        trouble = "several communicators ran at once (more than one group): not the time of one"
    run = describe_gpus(str(device.get("device_info", "")) for device in devices)
    flag = SINGLE_PROCESS if _count(config.get("ngpus")) > 1 else OK
    return replace(run, gpus=gpus, gpus_per_node=per_node, flag=flag, trouble=run.trouble or trouble)
