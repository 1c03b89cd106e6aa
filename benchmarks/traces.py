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
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from perfmodel.schema.traces import RankTrace
from perfmodel.units import parse_bytes

_KEPT = (
    "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "host_name",
    "record_shapes", "displayTimeUnit",
)  # fmt: skip
_HEAD = b"""{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "nccl_version": "2.21.5",
"pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}]},
"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
"""
_KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false, long, 1ul, 8ul>",
)
_COLLECTIVE = (
    ', "Collective name": "all_to_allv", "In msg nelems": 65536, "Out msg nelems": 65536, "Group size": 8, '
    '"dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
    '"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
)
_STEPS_A_BLOCK = 200
_COLLECTIVES_A_STEP = 1  # of 65 events, 12 kB: ten times as many as in a real trace of DLRM
TRACED = Path(__file__).resolve().with_name("traced_ranks.py")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def case_of(given: argparse.Namespace) -> str:
    """What traced_ranks.py is told."""
    case = {
        "ranks": given.ranks, "port": free_port(), "folder": str(given.folder), "sharding": given.sharding,
        "rows": given.rows, "tables": given.tables, "batch": given.batch, "pooling": given.pooling,
        "dim": given.dim, "steps": given.steps, "slow": given.slow, "slow_s": given.slow_s,
        "host_ranks": given.host_ranks or given.ranks,
    }  # fmt: skip
    return json.dumps(case)


def make(given: argparse.Namespace) -> int:
    """Traces of all ranks in the folder; exit code 1 when a rank failed."""
    given.folder.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, str(TRACED), case_of(given)]
    done = subprocess.run(line, stderr=subprocess.DEVNULL, timeout=given.limit, check=False)
    if done.returncode:
        print(f"{done.returncode} ranks failed", file=sys.stderr)
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


def _most_memory() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read(given: argparse.Namespace) -> int:
    """What is read of the traces of each run, a run a folder or the files named; who waits for whom."""
    from calibrate.importers.traces import check_alignment, read_traces, without_other_kernels
    from perfmodel.cli.import_traces import ReadingProgress
    from perfmodel.errors import BadInputError
    from perfmodel.report.trace_text import skew_text, traces_text
    from perfmodel.schema.trace_alignment import align

    runs = [[path] for path in given.paths] if given.each else [given.paths]
    for paths in runs:
        progress, memory = ReadingProgress(), dict[int, int]()

        def note_memory(trace: RankTrace, memory: dict[int, int] = memory) -> RankTrace:
            memory[trace.rank] = _most_memory()
            return without_other_kernels(trace)

        try:
            traces = read_traces(paths, progress, note_memory)
        except BadInputError as error:
            print(f"{error}\n")
            continue
        finally:
            progress.clear()
        aligned = align(traces)
        print(traces_text(traces, [memory[trace.rank] for trace in traces]))
        for text in check_alignment(traces, aligned):
            print(f" {text}")
        parsed, held = sum(len(t.collectives) for t in traces), sum(t.communications for t in traces)
        together = f"{len(aligned.collectives)} put together"
        print(f" parsed {parsed} of {held} collectives of {len(traces)} ranks, {together}")
        print(f"{skew_text(aligned)}\n")
    return 0


def big(given: argparse.Namespace) -> int:
    """Write a trace of that size, of events as Kineto writes them; read it in another process."""
    most = int(parse_bytes(given.bytes, "--bytes"))
    with given.file.open("wb") as file:
        file.write(_HEAD)
        block, number = b"", 0
        while file.tell() < most:
            block = "".join(_step_of_events(number + i) for i in range(_STEPS_A_BLOCK)).encode()
            file.write(block)
            number += _STEPS_A_BLOCK
        file.write(b'{"ph": "M", "name": "end"}\n]}\n')
    status = subprocess.run([sys.executable, __file__, "read", str(given.file)], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    size = given.file.stat().st_size
    print(
        f"{size / 1e9:.2f} GB: {seconds:.1f} s of a core, {size / 1e6 / seconds:.0f} MB/s, "
        f"{used.ru_maxrss * 1024 / 1e6:.0f} MB at most"
    )
    given.file.unlink()
    return status


def _step_of_events(number: int) -> str:
    """A part of a step: 24 operators, 16 kernels with their launches, some of them collectives."""
    at, lines = 1000.0 * number, []
    for i in range(24):
        identity = 100 * number + i
        lines.append(
            f'{{"ph": "X", "cat": "cpu_op", "name": "aten::op_{i}", "pid": 9, "tid": 9, '
            f'"ts": {at + 10 * i:.3f}, "dur": 8.125, "args": {{"External id": {identity},'
            f'"Sequence number": {number}, "Fwd thread id": 0, '
            f'"Input Dims": [[1024, 128], [128]], "Ev Idx": {identity}}}}},\n'
        )
    for i in range(16):
        name, said = _KERNELS[i % len(_KERNELS)], ""
        identity = 100 * number + i
        if i >= 16 - _COLLECTIVES_A_STEP:
            name, said = "ncclDevKernel_SendRecv(ncclDevKernelArgs)", _COLLECTIVE
        lines.append(
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, '
            f'"ts": {at + 10 * i + 2:.3f}, "dur": 4.5, '
            f'"args": {{"cbid": 211, "correlation": {identity}}}}},\n'
            f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, '
            f'"ts": {at + 60 * i:.3f}, "dur": 51.2, "args": {{"External id": {identity}, "queued": 0, '
            f'"device": 0, "context": 1, "stream": {20 if said else 7}, "correlation": {identity}, '
            f'"registers per thread": 96, "grid": [16, 1, 1], "block": [640, 1, 1]{said}}}}},\n'
        )
    return "".join(lines)


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
    reader = commands.add_parser("read")
    reader.add_argument("paths", type=Path, nargs="+")
    reader.add_argument("--each", action="store_true", help="each path is a run of its own")
    reader.set_defaults(run=read)
    bigger = commands.add_parser("big")
    bigger.add_argument("file", type=Path)
    bigger.add_argument("--bytes", default="500MB")
    bigger.set_defaults(run=big)
    given = parser.parse_args()
    return int(given.run(given))


if __name__ == "__main__":
    sys.exit(main())
