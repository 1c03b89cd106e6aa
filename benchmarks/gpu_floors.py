"""What a GPU can do at best: copies of random data, the L2 cache alone, and launches by each clock.

Run:    python benchmarks/gpu_floors.py [--out floors.csv] [--scale 1]
Needs:  a GPU, torch and CuPy.
How:    copies and readings of buffers of 1 MiB to 1 GiB in a CUDA graph each, the least of several replays; a
        reading kernel passes the L1 cache (ld.global.cg), so buffers that fit the L2 show its bandwidth.
        Launches of an empty kernel, of our gather and pool of one bag, and of torch's: eager (one call and a
        wait, by the host's clock), stream (back to back, between two events) and graph.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gather import graph_of, replayed_s

SIZES = tuple(2**power for power in range(20, 31))
READ_BYTES = 2**33
"""Read by one launch in all: a small buffer again and again."""

LAUNCHES, CALLS = 500, 200
HOLD_CYCLES = 4 * 10**7
"""About 20 ms: ``LAUNCHES`` take less to be queued."""

CODE = r"""
extern "C" __global__ void empty() {}

extern "C" __global__ void read_all(const uint4* from, long long words, int turns, unsigned* sink) {
  unsigned sum = 0;
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long step = gridDim.x * (long long)blockDim.x;
  for (int turn = 0; turn < turns; ++turn)
#pragma unroll 8
    for (long long at = first; at < words; at += step) {
      uint4 word;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w) : "l"(from + at));
      sum ^= word.x ^ word.y ^ word.z ^ word.w;
    }
  if (sum == 0x9e3779b9u) *sink = sum;
}
"""

Row = dict[str, Any]


def launcher(name: str) -> Callable[..., None]:
    """Launches a kernel of ``CODE`` on torch's current stream."""
    import cupy
    import torch

    kernel = cupy.RawKernel(CODE, name)

    def call(grid: int, block: int, *arguments: Any) -> None:
        with cupy.cuda.Device(0), cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
            kernel((grid, 1, 1), (block, 1, 1), arguments, shared_mem=0)

    return call


def measure_bandwidths(torch: Any, scale: int) -> Iterator[Row]:
    """Copies and readings of random data, by size of the buffer."""
    import numpy as np

    read_all = launcher("read_all")
    blocks = 8 * torch.cuda.get_device_properties(0).multi_processor_count
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    for size in sorted({max(2**10, size // scale) for size in SIZES}):
        data = torch.randint(-(2**31), 2**31 - 1, (size // 4,), device="cuda", dtype=torch.int32)
        target, turns = torch.empty_like(data), max(1, READ_BYTES // scale // size)
        graph = graph_of(torch, lambda _, to=target, of=data: to.copy_(of), 1, 8)
        copied_s = min(replayed_s(torch, graph) for _ in range(5)) / 8
        words = np.uint64(data.data_ptr()), np.int64(size // 16), np.int32(turns), np.uint64(sink.data_ptr())
        graph = graph_of(torch, lambda _, words=words: read_all(blocks, 512, *words), 1, 1)
        read_s = min(replayed_s(torch, graph) for _ in range(5))
        shown = {"clock": "graph", "buffer": size}
        yield {"what": "copy", "bytes": 2 * size, "time_s": copied_s, **shown}
        yield {"what": "read past L1", "bytes": turns * size, "time_s": read_s, **shown}


def launches(torch: Any) -> Iterator[Row]:
    """Time of one launch that does next to nothing, by each clock."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherPool

    empty, table = launcher("empty"), torch.ones(1000, 32, device="cuda")
    pool = GatherPool(make_tables([table]), 1)
    ids, out = torch.zeros(1, dtype=torch.int64, device="cuda"), pool.new_out()
    offsets, bag = torch.tensor([0, 1], device="cuda"), torch.nn.functional.embedding_bag
    calls: dict[str, Callable[[int], Any]] = {
        "empty kernel": lambda _: empty(1, 32),
        "one bag, perfmodel": lambda _: pool(ids, offsets, out),
        "one bag, torch": lambda _: bag(ids, table, offsets, mode="sum", include_last_offset=True),
    }
    for name, call in calls.items():
        call(0)
        torch.cuda.synchronize()
        for clock, measure in (("eager", time_eager_s), ("stream", time_stream_s), ("graph", time_graph_s)):
            yield {"what": name, "bytes": 0, "time_s": measure(torch, call), "clock": clock, "buffer": 0}


def time_eager_s(torch: Any, call: Callable[[int], Any]) -> float:
    """Host time of a call and its end, the median."""
    times = []
    for _ in range(CALLS):
        began_s = time.perf_counter()
        call(0)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began_s)
    return statistics.median(times)


def time_stream_s(torch: Any, call: Callable[[int], Any]) -> float:
    """Calls back to back, between two events; a GPU begins when all are queued."""
    torch.cuda._sleep(HOLD_CYCLES)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(LAUNCHES):
        call(0)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / LAUNCHES


def time_graph_s(torch: Any, call: Callable[[int], Any]) -> float:
    """Calls of a graph, the least of several replays."""
    graph = graph_of(torch, call, 1, LAUNCHES)
    return min(replayed_s(torch, graph) for _ in range(9)) / LAUNCHES


def main() -> int:
    """0 where all was measured, 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divides all sizes, for a rehearsal")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    name, rows = torch.cuda.get_device_name(), list[Row]()
    for row in (*measure_bandwidths(torch, options.scale), *launches(torch)):
        rows.append({"gpu": name, **row})
        rate = f"{row['bytes'] / row['time_s'] / 1e9:>8.0f} GB/s" if row["bytes"] else ""
        about = f"{row['what']:<20}{row['clock']:<8}{row['buffer']:>12}"
        print(f"{about}{1e6 * row['time_s']:>11.2f} us{rate}", flush=True)
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
