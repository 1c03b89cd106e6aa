"""Reads the JSON of nccl-tests (``-J out.json``, versions 1 to 3) and of rccl-tests (``-x FILE -Z json``).

    {"version": 1, "args": ["./all_gather_perf", …], "nccl_version": 22907,
     "config": {"nthreads": 1, "ngpus": 1, "graph": 0, "devices": [{"rank": 0, "hostname": …, …}]},
     "results": [{"size": 1024, "count": 256, "type": "float", "redop": "none",
                  "out_of_place": {"time": 12.3, "alg_bw": …, "bus_bw": …, "nwrong": 0}, "in_place": {…}}]}

``devices`` has one entry per *process*, which drives nthreads × ngpus ranks. Times are microseconds. The file
also contains the whole environment of the run, of which nothing is kept.

    {"name":"AllReduce", "nodes":1, "ranks":16, "ranksPerNode":16, "gpusPerRank":1, "size":1048576,
     "type":"float", "redop":"sum", "inPlace":0, "time":61.3, "algBw":17.1, "busBw":32.1, "wrong":"0"}

One record a line, or a list of them; built without MPI, ``gpus`` in place of the four. They name no GPU and
no ranks per node but the communicator's: GPUs per node must be given. Source: ROCm/rccl-tests, class Reporter
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from calibrate.importers import logged_rows as logs
from calibrate.importers.nccl_text import describe_ranks, version_from_code
from perfmodel.schema.gate import decode_json

_OF_ROW = ("size", "type", "redop", "inplace", "time", "algbw", "busbw", "wrong")


def read_json(text: str, file: str) -> logs.Reading | None:
    """All rows of a JSON file of either kind; None if it is no JSON. Never raises on any text."""
    first = next((line.lstrip(" \t[") for line in text.splitlines() if line.strip(" \t[")), "")
    if first.startswith("{") and "inPlace" in first:
        lines = [logs.LogLine(file, n, raw.strip(" \t[],")) for n, raw in enumerate(text.splitlines(), 1)]
        return logs.collect(_parse_record(line) for line in lines if line.text)
    if not text.lstrip().startswith("{"):
        return None
    try:
        return logs.collect(_rows(decode_json(text), file))
    except ValueError as error:
        damaged = logs.LogLine(file, getattr(error, "lineno", 1), text[:200])
        return logs.collect([damaged.refuse("JSON ends early or is damaged: the run was cut short?")])


def _parse_record(line: logs.LogLine) -> logs.LoggedRow | logs.LogLine:
    """The row in a line of rccl-tests (a JSON record), or the line with the reason why it is none."""
    try:
        cells = {str(key).lower(): str(value) for key, value in decode_json(line.text).items()}
        gpus = _count(cells.get("gpus"))
        ranks = _count(cells.get("ranks"))
        per_rank = _count(cells.get("gpusperrank"))
        run = logs.LoggedRun(
            backend="rccl",
            operation_text=cells["name"],
            gpus=gpus or (ranks * per_rank if cells.get("nodes") == "1" else 0),
            gpus_per_node=gpus,
            flag=logs.SINGLE_PROCESS if per_rank > 1 else logs.OK,
            number=ranks,  # a record names no run: those with equal facts are one
        )
        return logs.parse_row(run, {name: cells[name] for name in _OF_ROW}, line)
    except (ValueError, AttributeError, KeyError):
        return line.refuse(f"no record of a timed size: {logs.CUT}")


def _rows(document: Mapping[str, object], file: str) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The rows of a document of nccl-tests: two for each size, out of place and in place."""
    results = document.get("results")
    run = _describe_run(document)
    for index, result in enumerate(map(_object, results if isinstance(results, list) else [])):
        for key, in_place in (("out_of_place", "0"), ("in_place", "1")):
            line = logs.LogLine(file, 1, f"results[{index}].{key}")
            if key in result and result[key] is None:
                continue  # null: this half was not run
            part = _object(result.get(key))
            cells = {name: str(result.get(name, "")) for name in ("size", "type", "redop")}
            cells |= {"wrong": "N/A" if part.get("nwrong") is None else str(part["nwrong"])}
            for name, of_part in (("time", "time"), ("algbw", "alg_bw"), ("busbw", "bus_bw")):
                cells[name] = str(part.get(of_part, ""))
            yield logs.parse_row(run, cells | {"inplace": in_place}, line)


def _object(value: object) -> Mapping[str, object]:
    """A value of JSON if it is an object, else an empty one: no damage raises an error."""
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    """A small non-negative integer, possibly written as a string; 0 for anything else."""
    return min(logs.parse_bytes(str(value).strip()) or 0, 2**16)


def _describe_run(document: Mapping[str, object]) -> logs.LoggedRun:
    """What a document of nccl-tests says of its run: collective, version, clock, ranks and their GPUs."""
    config = _object(document.get("config"))
    args = document.get("args")
    version = _count(document.get("nccl_version"))
    gpus = _count(config.get("ngpus")) or 1
    blocking = str(config.get("blocking_collectives")).lower() == "true"
    listed = config.get("devices")
    devices = [_object(item) for item in listed] if isinstance(listed, list) else []
    per_process = gpus * (_count(config.get("nthreads")) or 1)
    entry_a_rank = [_count(device.get("rank")) for device in devices[1:2]] == [1]
    if entry_a_rank or per_process * len(devices) > 2**16:  # no cluster has so many ranks
        per_process = 1
    ranks = []
    for device in devices:
        first = _count(device.get("rank"))
        group = str(_count(device.get("group")))
        host = str(device.get("hostname"))[:200]
        name = str(device.get("device_info", ""))
        ranks += [(str(rank), group, host, str(rank), name) for rank in range(first, first + per_process)]
    return replace(
        describe_ranks(ranks, rccl=False),
        operation_text=logs.clip(str(args[0])) if isinstance(args, list) and args else "",
        library_version=version_from_code(version) if version else "",
        clock="eager" if blocking else "graph" if _count(config.get("graph")) else "stream",
        flag=logs.SINGLE_PROCESS if gpus > 1 else logs.OK,
    )
