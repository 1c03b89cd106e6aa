"""Steps of a pass that the calibration does not time, on one GPU: ids, conversions, the one-sided exchange.

Run:    python benchmarks/gpu_stages.py [--out stages.csv] [--scale 1]
Needs:  a GPU, torch and CuPy.
Says:   device time of finding different ids (uniform and skewed) and of converting bags to fp16 and bf16,
        each in a CUDA graph; of the row-wise exchange of one PE with itself, fused and in its three
        stages, each launch between two events, and all of them. One PE has no fabric: what it says is what
        the kernels themselves take. Bags are compared with torch's.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from gather import graph_of, replayed_s

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

IDS, BUCKETS, BAGS, DIM = 4_000_000, 8, 65536, 128
TABLES, ROWS, BATCH, POOLING = 8, 1_000_000, 4096, 16
REPLAYS = 9

Row = dict[str, Any]


def replayed(torch: Any, what: str, count: int, call: Callable[[], Any]) -> Row:
    """Median time of a call in a graph; ``count`` says how much it works on."""
    graph = graph_of(torch, lambda _: call(), 1, 4)
    took_s = statistics.median(replayed_s(torch, graph) for _ in range(REPLAYS)) / 4
    return {"what": what, "clock": "graph", "count": count, "time_s": took_s}


def kernels(torch: Any, scale: int) -> Iterator[Row]:
    """Different ids, conversions."""
    from calibrate.cuda.unique import Uniquer

    ids_count, bags = max(BUCKETS, IDS // scale), max(8, BAGS // scale)
    yield from time_deduplication(torch, scale)
    offsets = torch.arange(BUCKETS + 1, device="cuda") * (ids_count // BUCKETS)
    for law, power in (("uniform", 1), ("skewed", 8)):
        ids = (torch.rand(int(offsets[-1]), device="cuda", dtype=torch.float64).pow(power) * ROWS).long()
        uniquer = Uniquer(BUCKETS, ids.numel(), ids.dtype, torch.device("cuda"))
        yield replayed(
            torch, f"unique, {law}", ids.numel(), lambda uniquer=uniquer, ids=ids: uniquer.run(ids, offsets)
        )
    rows = torch.randn(bags, DIM, device="cuda")
    for kind in (torch.float16, torch.bfloat16):
        converted = rows.to(kind)
        name = str(kind).removeprefix("torch.")
        yield replayed(torch, f"float32 to {name}", rows.numel(), lambda kind=kind: rows.to(kind))
        yield replayed(
            torch, f"{name} to float32", rows.numel(), lambda converted=converted: converted.float()
        )


def time_deduplication(torch: Any, scale: int) -> Iterator[Row]:
    """Different ids of a buffer by size: ours in a graph; torch's sort; its unique, where the host waits."""
    from calibrate.cuda.unique import Uniquer

    for count in (2**power for power in range(10, 25, 2)):
        count = max(BUCKETS, count // scale)
        ids = torch.randint(0, 100 * count, (count,), device="cuda")
        offsets = torch.tensor([0, count], device="cuda")
        uniquer = Uniquer(1, count, ids.dtype, torch.device("cuda"))
        call = lambda uniquer=uniquer, ids=ids, at=offsets: uniquer.run(ids, at)  # noqa: E731
        yield replayed(torch, "unique, by size", count, call)
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


def exchange(torch: Any, scale: int) -> Iterator[Row]:
    """Both methods of one PE: each launch, and a whole call."""
    from oracles.thread_world import threads_of

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
        (world,) = threads_of(1, torch.device("cuda", 0))
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
            exchange.run(ids, lengths, out, check=False)
        end.record()
        end.synchronize()
        exchange.raise_faults()
        whole_s = float(begin.elapsed_time(end)) / 1e3 / REPLAYS
        yield {"what": f"exchange {method}", "clock": "stream", "count": ids.numel(), "time_s": whole_s}
        exchanging.launch = timed
        try:
            for _ in range(REPLAYS):
                exchange.run(ids, lengths, out, check=False)
        finally:
            exchanging.launch = launch
        torch.cuda.synchronize()
        for name, pairs in spans.items():
            took_s = statistics.median(before.elapsed_time(after) for before, after in pairs) / 1e3
            yield {
                "what": f"exchange {method}: {name}",
                "clock": "stream",
                "count": ids.numel(),
                "time_s": took_s,
            }
        exchange.close()


def main() -> int:
    """0 where all was measured, 1 where bags are wrong, 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divides all sizes, for a rehearsal")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    name, rows = torch.cuda.get_device_name(), list[Row]()
    with torch.no_grad():
        for row in (*kernels(torch, options.scale), *exchange(torch, options.scale)):
            rows.append({"gpu": name, **row})
            print(f"{row['what']:<56}{row['count']:>12}{1e6 * row['time_s']:>11.2f} us", flush=True)
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
