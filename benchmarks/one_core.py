"""Four ways to look a table up on one core of a GPU, side by side: small tables of a table set, one run.

Run:    python benchmarks/one_core.py [--model mlperf-dlrm-dcnv2] [--batch 4096] [--most-rows 50000]
On a GPU (H200 assumed for the predictions) it times, in CUDA graphs replayed in turn: gather_pool, torch's
embedding_bag, every way with a slice of every table's batch on every SM (GM where a way does not fit), the
cheapest way of each table, and SMs that own tables. Uniform ids, and one row only. Median and quartiles of
the replays; bytes of the tables, ids and bags as the plan counts them. All bags are compared first.
Elsewhere it prints the plans and what the model predicts, and measures nothing: exit code 4.
The constants of the prediction (ASSUMED) are data sheet figures and guesses, fitted to nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibrate.cuda.one_core_plan import (
    WAYS,
    Item,
    Plan,
    Shape,
    asymmetric,
    fitted,
    least_time_s,
    symmetric,
)  # fmt: skip
from perfmodel.errors import BadInputError
from perfmodel.model import one_core as model
from perfmodel.schema.workload import load_tables

ASSUMED = {
    "cores": (132, "H200 data sheet"),
    "core_bytes": (232_320, "227 KiB of shared memory of a block, CUDA programming guide, less 128 bytes"),
    "clock_hz": (1.755e9, "guess: between base and boost"),
    "hbm_bytes_per_s": (4.8e12, "H200 data sheet"),
    "l2_bytes": (50e6, "H200 data sheet"),
    "l2_bytes_per_clock": (32, "guess, of one SM"),
    "shared_bytes_per_clock": (128, "32 banks of 4 bytes, CUDA programming guide"),
    "latency_s": (600e-9, "guess: a row that misses the core's cache"),
    "warps": (16, "512 threads of a block"),
    "rows_in_flight": (4, "of a bag, kernels/one_core.cu"),
    "ids_per_clock": (16, "guess: ids that a core compares"),
}
IDS = ("uniform", "one row")
LAUNCHES, REPLAYS = 20, 15
OFFSET_BYTES, GLOBAL_ID_BYTES = 8, 8


def constant(name: str) -> float:
    """Value of an assumed constant."""
    return float(ASSUMED[name][0])


def row_bytes(shape: Shape, item: Item) -> int:
    """Bytes of the columns of a row that an item looks up."""
    return item.columns * shape.element_bytes


def cost(shape: Shape, item: Item) -> float:
    """Predicted time of an item on one SM [s]."""
    row, n = row_bytes(shape, item), item.bags * shape.pooling
    groups = constant("warps") * 32 / min(32, 2 ** int(np.ceil(np.log2(max(1, row / 16)))))
    in_flight = groups * min(max(shape.pooling, 1), constant("rows_in_flight"))
    in_l2 = shape.rows * shape.dim * shape.element_bytes <= constant("l2_bytes")
    l2 = constant("l2_bytes_per_clock") * constant("clock_hz")
    stream = l2 if in_l2 else min(l2, constant("hbm_bytes_per_s") / constant("cores"))
    inside = constant("shared_bytes_per_clock") * constant("clock_hz")
    bag_bytes = item.columns * 4 + OFFSET_BYTES
    common = model.ids_and_bags_time(n, GLOBAL_ID_BYTES, item.bags, bag_bytes, stream)
    if item.way == "GM":
        return float(
            common + model.gm_time(n, row, model.row_rate(row, constant("latency_s"), in_flight, stream))
        )
    if item.way == "L1":
        return float(common + model.l1_time(shape.rows, n, row, stream, inside))
    kept = item.resident_rows
    chunks = max(1, -(-(shape.rows - kept) // item.chunk_rows))
    scan = model.scan_time(n, chunks + (kept > 0), constant("ids_per_clock") * constant("clock_hz"))
    time = model.l1_ub_time(shape.rows, kept, n, row, stream, np.inf, stream, inside, item.passes, chunks)
    return float(common + scan + time)


def moved_bytes(shape: Shape, item: Item) -> float:
    """Bytes of rows, ids, offsets and bags that an item reads from, or writes to, global memory."""
    row, n = row_bytes(shape, item), item.bags * shape.pooling
    around = n * GLOBAL_ID_BYTES + item.bags * (item.columns * 4 + OFFSET_BYTES)
    if item.way == "GM":
        return n * row + around
    return float(model.table_bytes(shape.rows, item.resident_rows, row, max(item.passes, 1))) + around


def one_way(shapes: Sequence[Shape], way: str, batch: int, cores: int, capacity: int) -> Plan:
    """Every core a slice of every table, in one way; GM where it does not fit."""
    ways = []
    for shape in shapes:
        try:
            fitted(shape, Item(0, way, 0, -(-batch // cores), 0, shape.dim), capacity)
            ways.append(way)
        except BadInputError:
            ways.append("GM")
    return symmetric(shapes, ways, batch, cores, capacity)


def plans(shapes: Sequence[Shape], batch: int, cores: int, capacity: int) -> dict[str, Plan]:
    """What is compared, by name."""
    made = {way: one_way(shapes, way, batch, cores, capacity) for way in WAYS}
    items = {way: {item.table: item for item in plan.cores[-1]} for way, plan in made.items()}
    cheapest = [
        min(WAYS, key=lambda way: cost(shape, items[way][table])) if table in items["GM"] else "GM"
        for table, shape in enumerate(shapes)
    ]
    fitting = [items[way][table].way if table in items[way] else "GM" for table, way in enumerate(cheapest)]
    made["cheapest way"] = symmetric(shapes, fitting, batch, cores, capacity)
    made["owned tables"] = asymmetric(shapes, batch, cores, capacity, cost)
    return made


def predicted_line(name: str, plan: Plan, shapes: Sequence[Shape]) -> str:
    """A plan, and what the model says of it."""
    every = [item for items in plan.cores for item in items]
    ways = ", ".join(f"{count} {way}" for way, count in sorted(Counter(item.way for item in every).items()))
    loads = plan.loads(shapes, cost)
    moved = sum(moved_bytes(shapes[item.table], item) for item in every)
    return (
        f"{name:<14} {1e6 * max(loads):>10.1f} {1e6 * statistics.mean(loads):>10.1f} {moved / 1e6:>10.1f} "
        f"{plan.shared_bytes(shapes) / 1024:>8.0f}  {ways}"
    )


def draw(torch: Any, shapes: Sequence[Shape], batch: int, which: str) -> tuple[Any, Any]:
    """Ids and offsets of bags of ``pooling`` ids each, on the GPU."""
    lengths = [round(shape.pooling) for shape in shapes for _ in range(batch)]
    offsets = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int64, device="cuda")
    ids = [
        torch.randint(0, shape.rows, (batch * round(shape.pooling),), device="cuda")
        * (1 if which == "uniform" else 0)
        for shape in shapes
    ]
    return torch.cat(ids), offsets


def replayed_us(torch: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Time of one launch of each, in graphs that are replayed in turn."""
    graphs: dict[str, Any] = {}
    for name, call in calls.items():
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(LAUNCHES):
                call()
    took: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(REPLAYS + 2):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn >= 2:
                took[name].append(1e3 * begin.elapsed_time(end) / LAUNCHES)
    return took


def torch_call(torch: Any, rows: Sequence[Any], ids: Any, offsets: Any, batch: int) -> Callable[[], Any]:
    """torch's embedding_bag of every table, one after the other."""
    starts = offsets[::batch].tolist()
    bounds = [offsets[t * batch : (t + 1) * batch + 1] - starts[t] for t in range(len(rows))]
    parts = [ids[starts[t] : starts[t + 1]] for t in range(len(rows))]
    bag = torch.nn.functional.embedding_bag
    return lambda: [
        bag(some, table, bound, mode="sum", include_last_offset=True)
        for table, some, bound in zip(rows, parts, bounds, strict=True)
    ]


def compare(torch: Any, lookups: dict[str, Any], pool: Any, ids: Any, offsets: Any) -> dict[str, list[float]]:
    """Check that all give the same bags, then time all, torch included [us of a launch]."""
    tables, batch = pool.tables, pool.batch
    outs = {
        name: torch.full(tables.out_shape(batch), torch.nan, device="cuda")
        for name in ("gather_pool", *lookups)
    }
    faults = torch.tensor([0, -1], device="cuda")
    calls: dict[str, Callable[[], Any]] = {
        "gather_pool": lambda: pool(ids, offsets, outs["gather_pool"]),
        "torch": torch_call(torch, tables.rows, ids, offsets, batch),
    }
    for name, lookup in lookups.items():
        calls[name] = lambda one=lookup, to=outs[name]: one(ids, offsets, to, faults=faults, check=False)
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    for name, out in outs.items():
        if not torch.equal(out, outs["gather_pool"]) or faults[0] != 0:
            raise SystemExit(f"{name}: other bags than those of gather_pool, or ids out of range")
    return replayed_us(torch, calls)


def measure(torch: Any, shapes: Sequence[Shape], batch: int) -> None:
    """Print measured times beside predicted ones."""
    from calibrate.cuda.gather_pool import GatherPool, Options
    from calibrate.cuda.one_core import OneCore, core_bytes, cores
    from calibrate.cuda.tables import make_tables

    gpu = torch.device("cuda")
    rows = [torch.randint(-8, 8, (shape.rows, shape.dim), device=gpu).float() for shape in shapes]
    tables = make_tables(rows)
    compared = plans(shapes, batch, cores(gpu), core_bytes(gpu))
    lookups = {name: OneCore(tables, plan, batch) for name, plan in compared.items()}
    pool = GatherPool(tables, batch, Options(), statistics.mean(shape.pooling for shape in shapes))
    print(f"measured on {torch.cuda.get_device_name(gpu)}: us of a launch, quartiles, predicted here")
    for which in IDS:
        ids, offsets = draw(torch, shapes, batch, which)
        for name, took in compare(torch, lookups, pool, ids, offsets).items():
            low, middle, high = np.percentile(took, [25, 50, 75])
            said = f"{1e6 * max(compared[name].loads(shapes, cost)):>10.1f}" if name in compared else ""
            print(f"{which:<8} {name:<14} {middle:>10.1f} {low:>10.1f} {high:>10.1f} {said}", flush=True)


def main() -> int:
    """Plans and predictions; measurements where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="mlperf-dlrm-dcnv2")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--most-rows", type=int, default=50_000, help="larger tables are left out")
    options = parser.parse_args()
    tables = load_tables(options.model).tables
    shapes = [
        Shape(table.rows, table.dim, 4, table.pooling) for table in tables if table.rows <= options.most_rows
    ]
    if not shapes:
        raise SystemExit(
            f"{options.model} has no table of at most {options.most_rows} rows: raise --most-rows"
        )
    cores, capacity = int(constant("cores")), int(constant("core_bytes"))
    small = sum(shape.rows < 1000 for shape in shapes)
    print(
        f"{options.model}: {len(shapes)} of {len(tables)} tables ({small} below 1000 rows; larger than "
        f"{options.most_rows} left out), batch {options.batch}, fp32 rows"
    )
    print(f"predicted for {cores} cores, us; constants are ASSUMED, not measured:")
    for name, (value, source) in ASSUMED.items():
        print(f"  {name} {value:g} ({source})")
    print(f"{'':<14} {'busiest':>10} {'mean':>10} {'MB moved':>10} {'KiB used':>8}  items")
    for name, plan in plans(shapes, options.batch, cores, capacity).items():
        print(predicted_line(name, plan, shapes))
    least = least_time_s(shapes, options.batch, cores, capacity, cost)
    print(f"{'no plan below':<14} {1e6 * least:>10.1f}")
    import torch

    if not torch.cuda.is_available():
        print("NOTHING WAS MEASURED: there is no GPU here. The times above are predictions.", file=sys.stderr)
        return 4
    measure(torch, shapes, options.batch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
