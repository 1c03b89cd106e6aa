"""Traces of production runs: make real ones here, and say what is read of any.

Run:    python benchmarks/traces.py make FOLDER [--ranks 4] [--sharding row_wise] [--slow 1]
        python benchmarks/traces.py read FILE_OR_FOLDER ...
        python benchmarks/traces.py cut FILE SMALLER.json.gz [--steps 2]
        python benchmarks/traces.py big FILE --bytes 2GB
`make` runs TorchRec's training step over gloo under torch.profiler, a process a rank, one slow on purpose.
`read` prints what is read of each trace, and which rank the others wait for. `cut` keeps the events that
count, for tests. `big` writes a synthetic trace of that size, reads it, and prints speed and memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_KEPT = (
    "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "host_name",
    "record_shapes", "displayTimeUnit",
)  # fmt: skip
HERE = Path(__file__).resolve().parent


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def make(given: argparse.Namespace) -> int:
    """Traces of all ranks in the folder; exit code 1 when a rank failed."""
    given.folder.mkdir(parents=True, exist_ok=True)
    case = {
        "ranks": given.ranks, "port": free_port(), "folder": str(given.folder), "sharding": given.sharding,
        "rows": given.rows, "tables": given.tables, "batch": given.batch, "pooling": given.pooling,
        "dim": given.dim, "steps": given.steps, "slow": given.slow, "slow_s": given.slow_s,
        "host_ranks": given.host_ranks or given.ranks,
    }  # fmt: skip
    lines = [
        [sys.executable, str(HERE / "traced_ranks.py"), json.dumps({**case, "rank": rank})]
        for rank in range(given.ranks)
    ]
    running = [subprocess.Popen(line, stderr=subprocess.DEVNULL) for line in lines]
    try:
        codes = [one.wait(timeout=given.limit) for one in running]
    finally:
        for one in running:
            one.kill()
    if any(codes):
        print(f"ranks ended with {codes}", file=sys.stderr)
        return 1
    for file in sorted(given.folder.glob("trace_rank*.json.gz")):
        print(file)
    return 0


def _tells(event: dict[str, Any], launches: set[Any]) -> bool:
    """Whether an event of the host says something of a collective, of an embedding, or of a step."""
    from calibrate.importers.traces.columns import EMBEDDING
    from calibrate.importers.traces.names import kernel_family

    name, category = event["name"], event.get("cat")
    if category == "cpu_op":
        return name.startswith(("record_param_comms", "c10d::")) or kernel_family(name) in EMBEDDING
    if category == "user_annotation":
        return bool(name.startswith(("gloo:", "nccl:", "ProfilerStep#")))
    return category == "cuda_runtime" and event["args"].get("correlation") in launches


def cut(given: argparse.Namespace) -> int:
    """The trace with the events that count for communication and embedding, of its first steps."""
    from calibrate.importers.traces.columns import EMBEDDING
    from calibrate.importers.traces.names import is_nccl_kernel, kernel_family
    from calibrate.importers.traces.stream import TraceStream

    stream = TraceStream(given.file)
    events = [event for event in stream if event.get("ph") == "X" and "args" in event]
    kernels = [
        event
        for event in events
        if event.get("cat") == "kernel"
        and (is_nccl_kernel(event["name"]) or kernel_family(event["name"]) in EMBEDDING)
    ]
    launches = {event["args"].get("correlation") for event in kernels}
    kept = kernels + [event for event in events if _tells(event, launches)]
    kept.sort(key=lambda event: event["ts"])
    ends = [e["ts"] + e["dur"] for e in kept if e["name"].startswith("ProfilerStep#")][: given.steps]
    last = max(ends, default=float("inf"))
    for event in kept:
        for key in ("Input Strides", "Ev Idx", "Record function id", "Fwd thread id", "Sequence number"):
            event["args"].pop(key, None)
    said = {key: value for key, value in stream.metadata.items() if key in _KEPT}
    said["deviceProperties"] = [
        {key: one[key] for key in ("id", "name") if key in one}
        for one in said.get("deviceProperties", [])[:1]
    ]
    said["traceEvents"] = [event for event in kept if event["ts"] < last]
    with gzip.GzipFile(given.out, "wb", mtime=0) as file:
        file.write(json.dumps(said, separators=(",", ":")).encode())
    print(f"{given.out}: {len(said['traceEvents'])} of {stream.events} events, {given.out.stat().st_size} B")
    return 0


def main() -> int:
    """The command of the line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("folder", type=Path)
    for name, default in (
        ("ranks", 2), ("rows", 20_000), ("tables", 2), ("batch", 256), ("pooling", 8), ("dim", 32),
        ("steps", 4), ("slow", -1), ("host-ranks", 0), ("limit", 240),
    ):  # fmt: skip
        maker.add_argument(f"--{name}", type=int, default=default)
    maker.add_argument("--slow-s", type=float, default=0.02)
    maker.add_argument("--sharding", default="row_wise")
    maker.set_defaults(run=make)
    cutter = commands.add_parser("cut")
    cutter.add_argument("file", type=Path)
    cutter.add_argument("out", type=Path)
    cutter.add_argument("--steps", type=int, default=2)
    cutter.set_defaults(run=cut)
    given = parser.parse_args()
    return int(given.run(given))


if __name__ == "__main__":
    sys.exit(main())
