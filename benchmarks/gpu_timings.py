"""What the calibration does not time on one GPU: floors, stages of a pass, dense layers.

Run:    python benchmarks/gpu_timings.py floors|stages|dense [--out times.csv] [--scale 1]
Needs:  a GPU, torch and CuPy. Exit code 1 where bags are wrong, 4 without a GPU.
floors  copies and readings of buffers of 1 MiB to 1 GiB in a CUDA graph each, the least of several replays; a
        reading kernel passes the L1 cache (ld.global.cg), so buffers that fit the L2 show its bandwidth.
        Launches of an empty kernel, of our gather and pool of one bag, and of torch's: eager (one call and a
        wait, by the host's clock), stream (back to back, between two events) and graph.
stages  torch's sort and unique of ids, and converting bags to fp16 and bf16 in a CUDA graph;
        the row-wise exchange of one PE with itself, fused and in its three stages: each launch between two
        events, and a whole call. One PE has no fabric: the times are those of the kernels alone.
dense   each different product of DLRM-DCNv2's layers in half precision, and the layers with all that torch
        runs between the products, forward and backward, for 64 to 16384 samples, in a CUDA graph. What they
        reach of the datasheet's rate is what data/dlrm/rates.toml calls share.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from gather import graph_of, replayed_s

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

SIZES = tuple(2**power for power in range(20, 31))
READ_BYTES = 2**33
"""Read by one launch in all: a small buffer again and again."""

LAUNCHES, CALLS, REPLAYS = 500, 200, 9
HOLD_CYCLES = 4 * 10**7
"""About 20 ms: ``LAUNCHES`` take less to be queued."""

BAGS, DIM = 65536, 128
TABLES, ROWS, BATCH, POOLING = 8, 1_000_000, 4096, 16
BOTTOM, TOP, RANK, LAYERS, EMBEDDINGS = (13, 512, 256, 128), (1024, 1024, 512, 256, 1), 512, 3, 26 * 128
"""Layers of MLPerf's DLRM-DCNv2."""

BATCHES = (64, 256, 512, 1024, 2048, 4096, 6912, 8192, 16384)
COLUMNS = ("gpu", "what", "clock", "count", "buffer", "batch", "m", "k", "n", "time_s")
"""count  bytes of a floor, ids or elements of a stage"""

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


def time_call_s(torch: Any, call: Callable[[], Any]) -> float:
    """Median device time of a call in a graph [s]."""
    graph = graph_of(torch, lambda _: call(), 1, 4)
    return statistics.median(replayed_s(torch, graph) for _ in range(REPLAYS)) / 4


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
        yield {"what": "copy", "count": 2 * size, "time_s": copied_s, **shown}
        yield {"what": "read past L1", "count": turns * size, "time_s": read_s, **shown}


def time_launches(torch: Any) -> Iterator[Row]:
    """Time of one launch that does next to nothing, by each clock."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherPool

    empty, table = launcher("empty"), torch.ones(1000, 32, device="cuda")
    pool = GatherPool(make_tables([table]), 1)
    ids, out = torch.zeros(1, dtype=torch.int64, device="cuda"), pool.make_out()
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
            yield {"what": name, "count": 0, "time_s": measure(torch, call), "clock": clock, "buffer": 0}


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


def time_row(torch: Any, what: str, count: int, call: Callable[[], Any]) -> Row:
    """Median time of a call in a graph; ``count`` says how much it works on."""
    return {"what": what, "clock": "graph", "count": count, "time_s": time_call_s(torch, call)}


def time_kernels(torch: Any, scale: int) -> Iterator[Row]:
    """Different ids, conversions."""
    yield from time_deduplication(torch, scale)
    rows = torch.randn(max(8, BAGS // scale), DIM, device="cuda")
    for kind in (torch.float16, torch.bfloat16):
        converted = rows.to(kind)
        name = str(kind).removeprefix("torch.")
        yield time_row(torch, f"float32 to {name}", rows.numel(), lambda kind=kind: rows.to(kind))
        yield time_row(torch, f"{name} to float32", rows.numel(), lambda rows=converted: rows.float())


def time_deduplication(torch: Any, scale: int) -> Iterator[Row]:
    """Different ids of a buffer by size: torch's sort; its unique, where the host waits."""
    for count in (2**power for power in range(10, 25, 2)):
        count = max(8, count // scale)
        ids = torch.randint(0, 100 * count, (count,), device="cuda")
        for name, operation in (("torch.sort", torch.sort), ("torch.unique", torch.unique)):
            keywords = {"return_inverse": True} if name == "torch.unique" else {}
            operation(ids, **keywords)
            events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
            for event in events:
                event.record()
                operation(ids, **keywords)
            torch.cuda.synchronize()
            took = [a.elapsed_time(b) / 1e3 for a, b in pairwise(events)]
            clock = "eager" if keywords else "stream"
            yield {"what": name, "clock": clock, "count": count, "time_s": statistics.median(took)}


def time_exchange(torch: Any, scale: int) -> Iterator[Row]:
    """Both methods of one PE: each launch, and a whole call."""
    from oracles.thread_world import make_worlds

    from calibrate.cuda import row_wise_exchange as exchanging
    from calibrate.cuda.exchange_memory import METHODS, Sizes

    rows, batch = max(16, ROWS // scale), max(4, BATCH // scale)
    held = [torch.randint(-8, 9, (rows, DIM), device="cuda").float() for _ in range(TABLES)]
    ids = torch.randint(0, rows, (TABLES * batch * POOLING,), device="cuda")
    lengths = torch.full((TABLES * batch,), POOLING, device="cuda")
    bag, starts = torch.nn.functional.embedding_bag, torch.arange(0, batch * POOLING, POOLING, device="cuda")
    parts = zip(held, ids.view(TABLES, -1), strict=True)
    want = torch.stack([bag(part_ids, table, starts, mode="sum") for table, part_ids in parts], 1)
    launch = exchanging.launch
    for method in METHODS:
        (world,) = make_worlds(1, torch.device("cuda", 0))
        sizes = Sizes([rows] * TABLES, DIM, batch, ids.numel(), method=method)
        exchange = exchanging.RowWiseExchange(world, held, sizes)
        out, spans = torch.empty_like(want), defaultdict[str, list[Any]](list)

        def timed(kernel: Any, *arguments: Any, spans: Any = spans) -> None:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            launch(kernel, *arguments)
            end.record()
            spans[kernel.name.removeprefix("pm::")].append((begin, end))

        exchange.run(ids, lengths, out)
        if not torch.equal(out, want):
            raise SystemExit(f"{method}: other bags than torch's")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPLAYS):
            exchange.queue(ids, lengths, out)
        end.record()
        end.synchronize()
        exchange.raise_faults()
        whole_s = float(begin.elapsed_time(end)) / 1e3 / REPLAYS
        yield {"what": f"exchange {method}", "clock": "stream", "count": ids.numel(), "time_s": whole_s}
        exchanging.launch = timed
        try:
            for _ in range(REPLAYS):
                exchange.queue(ids, lengths, out)
        finally:
            exchanging.launch = launch
        torch.cuda.synchronize()
        for name, pairs in spans.items():
            took_s = statistics.median(before.elapsed_time(after) for before, after in pairs) / 1e3
            what = f"exchange {method}: {name}"
            yield {"what": what, "clock": "stream", "count": ids.numel(), "time_s": took_s}
        exchange.close()


def time_products(torch: Any, batch: int) -> Iterator[Row]:
    """Each different product of the forward and the backward pass."""
    width = BOTTOM[-1] + EMBEDDINGS
    layers = [*pairwise(BOTTOM), (width, RANK), (RANK, width), *pairwise((width, *TOP))]
    shapes = {(batch, k, n) for k, n in layers}
    shapes |= {(batch, n, k) for k, n in layers} | {(k, batch, n) for k, n in layers}
    for m, k, n in sorted(shapes):
        left = torch.randn(m, k, device="cuda", dtype=torch.float16)
        right = torch.randn(k, n, device="cuda", dtype=torch.float16)
        out = torch.empty(m, n, device="cuda", dtype=torch.float16)
        time_s = time_call_s(torch, lambda a=left, b=right, c=out: torch.mm(a, b, out=c))
        yield {"what": "product", "batch": batch, "m": m, "k": k, "n": n, "time_s": time_s}


def time_layers(torch: Any, batch: int) -> Iterator[Row]:
    """All layers, forward and backward, in half precision."""
    linear = torch.nn.Linear

    def chain(widths: Any) -> Any:
        parts = [layer for k, n in pairwise(widths) for layer in (linear(k, n), torch.nn.ReLU())]
        return torch.nn.Sequential(*parts).cuda().half()

    width = BOTTOM[-1] + EMBEDDINGS
    bottom, top = chain(BOTTOM), chain((width, *TOP))
    crossed = [(linear(width, RANK, bias=False), linear(RANK, width)) for _ in range(LAYERS)]
    for pair in crossed:
        for half in pair:
            half.cuda().half()
    dense = torch.randn(batch, BOTTOM[0], device="cuda", dtype=torch.float16)
    bags = torch.randn(batch, EMBEDDINGS, device="cuda", dtype=torch.float16, requires_grad=True)

    def forward() -> Any:
        features = mixed = torch.cat([bottom(dense), bags], dim=1)
        for down, up in crossed:
            mixed = features * up(down(mixed)) + mixed
        return top(mixed)

    def step() -> None:
        forward().mean().backward()

    yield {"what": "forward and backward", "batch": batch, "time_s": time_call_s(torch, step)}
    with torch.no_grad():
        yield {"what": "forward", "batch": batch, "time_s": time_call_s(torch, forward)}


def list_rows(torch: Any, part: str, scale: int) -> Iterator[Row]:
    """The times of a part, as they are measured. scale  divides all sizes, for a rehearsal"""
    if part == "floors":
        yield from measure_bandwidths(torch, scale)
        yield from time_launches(torch)
    elif part == "stages":
        with torch.no_grad():
            yield from time_kernels(torch, scale)
            yield from time_exchange(torch, scale)
    else:
        for batch in sorted({max(2, batch // scale) for batch in BATCHES}):
            yield from time_products(torch, batch)
            if scale == 1:  # a rehearsal's GPU has no gradients
                yield from time_layers(torch, batch)


def main() -> int:
    """0 where all was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=("floors", "stages", "dense"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divides all sizes, for a rehearsal")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    name, rows = torch.cuda.get_device_name(), list[Row]()
    try:
        for row in list_rows(torch, options.part, options.scale):
            rows.append({"gpu": name, **row})
            size = row.get("count", row.get("batch", 0))
            print(f"{row['what']:<56}{size:>12}{1e6 * row['time_s']:>11.2f} us", flush=True)
    finally:
        if options.out and rows:
            with options.out.open("w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, COLUMNS, restval="")
                table.writeheader()
                table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
