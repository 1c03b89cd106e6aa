"""Traces made by hand, in the words that torch.profiler writes: one kernel of NCCL a collective."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "traces"
BASE_NS = 1_700_000_000_000_000_000


def kernel(name: str, at_us: float, time_us: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    """A kernel of the GPU."""
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at_us, "dur": time_us,
            "args": {"stream": stream, "device": 0, **args}}  # fmt: skip


def nccl(
    at_us: float, time_us: float, name: str = "_allgather_base", sent: int = 1024, received: int = 2048,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A kernel of NCCL as newer traces have it, of two ranks unless ``more`` says otherwise."""
    said = {"Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "Group size": 2,
            "dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]"}  # fmt: skip
    return kernel(
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", at_us, time_us, 20, **{**said, **more}
    )


def host(name: str, at_us: float, time_us: float, category: str = "cpu_op", tid: int = 1, **args: Any) -> Any:
    """A range of the host."""
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": at_us, "dur": time_us,
            "args": args}  # fmt: skip


def trace(
    events: Sequence[dict[str, Any]], rank: int = 0, ranks: int = 2, groups: Sequence[Any] | None = None,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """The document of one rank."""
    listed = groups if groups is not None else [("0", list(range(ranks)))]
    config = [{"pg_name": name, "ranks": own, "pg_size": len(own)} for name, own in listed]
    said = {
        "backend": "nccl",
        "rank": rank,
        "world_size": ranks,
        "nccl_version": "2.21.5",
        "pg_config": config,
    }
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    before = {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": said}
    return {**before, "baseTimeNanoseconds": BASE_NS, **more, "traceEvents": list(events)}


def write(folder: Path, document: Any, name: str = "trace_rank0.json") -> Path:
    """The document as a file; compressed where its name says so."""
    path = folder / name
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path
