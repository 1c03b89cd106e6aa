"""Logs of nccl-tests and of NVSHMEM's perftests as they are printed, made up."""

from __future__ import annotations

from pathlib import Path

HEADER_NEW = (
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
    "     time   algbw   busbw  #wrong"
)
HEADER_OLD = "# size count type redop     time   algbw   busbw  error     time   algbw   busbw  error"


def ranks(gpus: int, hosts: int = 1, gpu: str = "NVIDIA H200") -> str:
    per = gpus // hosts
    return "\n".join(
        f"#  Rank {r:2d} Group  0 Pid {100 + r} on node-{r // per} device {r % per:2d} "
        f"[0000:{r % per:02x}:00] {gpu}"
        for r in range(gpus)
    )


def line(size: int, time_us: float, gpus: int = 8, op: str = "all_gather", *, wrong: str = "0") -> str:
    """A row whose columns agree: algbw = size/time, busbw = algbw·f(n)."""
    factor = {"all_reduce": 2 * (gpus - 1) / gpus, "broadcast": 1.0}.get(op, (gpus - 1) / gpus)
    algbw = size / time_us / 1e3
    half = f"{time_us:8.2f} {algbw:7.2f} {algbw * factor:7.2f}"
    redop = " sum" if op in ("all_reduce", "reduce_scatter") else "none"
    return f"{size:12d} {size // 4:12d}     float    {redop}      -1 {half}  {wrong:>6} {half}     N/A"


def new_log(
    rows: list[str],
    *,
    op: str = "all_gather",
    gpus: int = 8,
    hosts: int = 1,
    code: int = 22907,
    graph: int = 0,
) -> str:
    return "\n".join(
        [
            f"# nccl-tests version 2.18.3 nccl-headers={code} nccl-library={code}",
            f"# Collective test starting: {op}_perf",
            f"# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) iters: 20 graph: {graph}",
            "#",
            "# Using devices",
            ranks(gpus, hosts),
            "#",
            "#                                         out-of-place                       in-place",
            HEADER_NEW,
            "#        (B)    (elements)                        (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)",
            *rows,
            "# Out of bounds values : 0 OK",
            "# Avg bus bandwidth    : 100.0",
            f"# Collective test concluded: {op}_perf",
        ]
    )


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


PES = "\n".join(f"mype: {p} mype_node: {p} device name: NVIDIA H200 bus id: {p}" for p in range(8))
NVSHMEM = f"""NVSHMEM v3.4.5
{PES}
Runtime options after parsing command line arguments
min_size: 4, max_size: 4194304, step_factor: 2, use_graph: 0, use_mmap: 0
#alltoall_device
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
32          8         32-bit    block     4.000000          0.008         0.007
4000000     1000000   32-bit    block     40.000000         100.000       87.500
"""
