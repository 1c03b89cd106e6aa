"""Four ways to look a table up on one core of a GPU, side by side: small tables of a table set, one run.

Run:    python benchmarks/one_core.py [--model mlperf-dlrm-dcnv2] [--batch 4096] [--most-rows 50000]
            [--out one_core.jsonl]
On a GPU it times, in CUDA graphs replayed in turn: gather_pool, torch's embedding_bag, every way with a slice
of every table's batch on every SM (GM where a way does not fit), the cheapest way of each table, and SMs that
own tables. Uniform ids, and one row only. Median and quartiles of the replays, beside the time that ChipCost
predicts for the same items with the values of --chip (perfmodel chips h200-sxm has each with its source);
bytes of the tables, ids and bags as the plan counts them. All bags are compared first.
--out appends what was measured, with the plan of each: python benchmarks/one_core_fit.py fits a chip to it.
Elsewhere it prints the plans and what the model predicts, and measures nothing: exit code 4.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from calibrate.cuda.one_core_plan import (
    WAYS,
    CorePlan,
    Item,
    TableShape,
    asymmetric,
    fitted,
    least_time_s,
    symmetric,
)  # fmt: skip
from perfmodel.errors import BadInputError
from perfmodel.model import one_core as model
from perfmodel.onechip.answer import cost_on
from perfmodel.onechip.layout import layout
from perfmodel.onechip.work import Batch, Way
from perfmodel.passes.tables import PlanTables
from perfmodel.schema.chip import Chip, load_chip
from perfmodel.schema.distributions import ONE_ROW, UNIFORM, Distribution
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import Table, TableSet

KERNEL_BYTES = 128
"""Of a core's memory that kernels/one_core.cu keeps for itself."""
IDS = {"uniform": UNIFORM, "one row": ONE_ROW}
LAUNCHES, REPLAYS = 20, 15
"""Of one graph; and of each graph, in turn."""

OFFSET_BYTES, GLOBAL_ID_BYTES = 8, 8
OF_WAY = {way.label: way for way in Way}


class Sample(BaseModel):
    """What one plan took on one GPU.

    cache_bytes  of its L2;  local_bytes  of a core's memory for items;  tables  rows, columns, ids of a bag
    items        of the plan (``items_of``);  time_s  of a launch, the median
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu: str
    cores: int = Field(ge=1)
    cache_bytes: int = Field(ge=1)
    local_bytes: int = Field(ge=1)
    tables: list[tuple[int, int, float]] = Field(min_length=1)
    batch: int = Field(ge=1)
    ids: Literal["uniform", "one row"]
    plan: str
    items: list[tuple[int, int, int, int, int]] = Field(min_length=1)
    time_s: float = Field(gt=0)

    @property
    def shapes(self) -> list[TableShape]:
        """The tables, of fp32 rows."""
        return [TableShape(rows, dim, 4, pooling) for rows, dim, pooling in self.tables]


class Predicted:
    """What the model that ``perfmodel`` ships says of items and plans of some tables.

    capacity  of a core's memory for items [bytes]
    """

    def __init__(
        self, chip: Chip, shapes: Sequence[TableShape], batch: int, capacity: int, ids: Distribution = UNIFORM
    ) -> None:
        tables = tuple(Table(f"t{at}", one.rows, one.dim, one.pooling) for at, one in enumerate(shapes))
        self.cost = cost_on(chip, PlanTables.of(TableSet("these", tables)), batch, ids)
        self.at = {shape: table for table, shape in enumerate(shapes)}
        self.capacity, self.known = capacity, dict[tuple[TableShape, str, int], dict[int, float]]()
        cores = range(1, chip.cores + 1)
        self.slices = np.unique([size for k in cores for size in (batch // k, -(-batch // k)) if size > 0])

    def item_s(self, shape: TableShape, item: Item) -> float:
        """Time of an item on one core that has nothing else [s]; all slices like it are costed at once."""
        key = shape, item.way, item.columns
        if item.bags not in self.known.setdefault(key, {}):
            bags = np.union1d(self.slices, [item.bags])
            table, way = self.at[shape], OF_WAY[item.way]
            work = self.cost.work(table, way, shape.rows, item.columns, bags, local=self.capacity)
            self.known[key] |= dict(zip(bags.tolist(), work.core_s.tolist(), strict=True))
        return self.known[key][item.bags]

    def whole(self, shape: TableShape, item: Item) -> bool:
        """Whether L1-UB keeps the whole table for an item."""
        row, bags = row_bytes(shape, item), item.bags
        args = shape.rows, row, item.columns, bags, shape.pooling, self.capacity
        return bool(layout(self.cost.chip, Way.L1_UB, *args).chunk_rows == 0)

    def plan(self, plan: CorePlan, *, in_order: bool) -> Batch:
        """Time of a launch, and what decides it.

        in_order  all cores have slices of all tables, and go through these in one order
        """
        return self.items(items_of(plan), in_order=in_order)

    def items(self, items: Sequence[Sequence[int]], *, in_order: bool) -> Batch:
        """The same of ``items_of`` a plan."""
        core, table, way, columns, bags = (np.array(column) for column in zip(*items, strict=True))
        way = np.array([OF_WAY[WAYS[one]] for one in way])
        rows = self.cost.tables.rows[table]
        work = self.cost.work(table, way, rows, columns, bags, local=self.capacity, lockstep=in_order)
        return self.cost.batch_s(core.tolist(), table, work)


def items_of(plan: CorePlan) -> list[tuple[int, int, int, int, int]]:
    """Core, table, number of the way in ``WAYS``, columns and bags of every item of a plan."""
    return [
        (core, item.table, WAYS.index(item.way), item.columns, item.bags)
        for core, own in enumerate(plan.cores)
        for item in own
    ]


def row_bytes(shape: TableShape, item: Item) -> int:
    """Bytes of the columns of a row that an item looks up."""
    return item.columns * shape.element_bytes


def moved_bytes(shape: TableShape, item: Item) -> float:
    """Bytes of rows, ids, offsets and bags that an item reads from, or writes to, global memory."""
    row, n = row_bytes(shape, item), item.bags * shape.pooling
    around = n * GLOBAL_ID_BYTES + item.bags * (item.columns * 4 + OFFSET_BYTES)
    if item.way == "GM":
        return n * row + around
    return float(model.table_bytes(shape.rows, item.resident_rows, row, max(item.passes, 1))) + around


def one_way(
    shapes: Sequence[TableShape], way: str, batch: int, cores: int, capacity: int, predicted: Predicted
) -> CorePlan:
    """Every core a slice of every table, in one way; GM where it does not fit."""
    ways = []
    for shape in shapes:
        try:
            fitted(shape, Item(0, way, 0, -(-batch // cores), 0, shape.dim), capacity)
            ways.append(way)
        except BadInputError:
            ways.append("GM")
    return symmetric(shapes, ways, batch, cores, capacity, predicted.whole)


OWNED = "owned tables"


def plans(
    shapes: Sequence[TableShape], batch: int, cores: int, capacity: int, predicted: Predicted
) -> dict[str, CorePlan]:
    """What is compared, by name."""
    made = {way: one_way(shapes, way, batch, cores, capacity, predicted) for way in WAYS}
    items = {way: {item.table: item for item in plan.cores[-1]} for way, plan in made.items()}
    cheapest = [
        min(WAYS, key=lambda way: predicted.item_s(shape, items[way][table]))
        if table in items["GM"]
        else "GM"
        for table, shape in enumerate(shapes)
    ]
    fitting = [items[way][table].way if table in items[way] else "GM" for table, way in enumerate(cheapest)]
    made["cheapest way"] = symmetric(shapes, fitting, batch, cores, capacity, predicted.whole)
    made[OWNED] = asymmetric(shapes, batch, cores, capacity, predicted.item_s, predicted.whole)
    return made


def predicted_line(name: str, plan: CorePlan, shapes: Sequence[TableShape], predicted: Predicted) -> str:
    """A plan, and what the model says of it."""
    every = [item for items in plan.cores for item in items]
    ways = ", ".join(f"{count} {way}" for way, count in sorted(Counter(item.way for item in every).items()))
    batch = predicted.plan(plan, in_order=name != OWNED)
    moved = sum(moved_bytes(shapes[item.table], item) for item in every)
    return (
        f"{name:<14} {1e6 * batch.seconds:>10.1f} {batch.limit:<8} {1e6 * batch.core_s.max():>10.1f} "
        f"{1e6 * batch.core_s.mean():>10.1f} {moved / 1e6:>10.1f} "
        f"{plan.shared_bytes(shapes) / 1024:>8.0f}  {ways}"
    )


def draw(torch: Any, shapes: Sequence[TableShape], batch: int, which: str) -> tuple[Any, Any]:
    """Ids and offsets of bags of ``pooling`` ids each, on the GPU."""
    lengths = [round(shape.pooling) for shape in shapes for _ in range(batch)]
    offsets = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int64, device="cuda")
    ids = [
        torch.randint(0, shape.rows, (batch * round(shape.pooling),), device="cuda")
        * (1 if which == "uniform" else 0)
        for shape in shapes
    ]
    return torch.cat(ids), offsets


def replayed_us(
    torch: Any, calls: dict[str, Callable[[], Any]], launches: int, replays: int
) -> dict[str, list[float]]:
    """Time of one launch of each, in graphs of so many launches that are replayed in turn."""
    graphs: dict[str, Any] = {}
    for name, call in calls.items():
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(launches):
                call()
    took: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(replays + 2):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn >= 2:
                took[name].append(1e3 * begin.elapsed_time(end) / launches)
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


def compared_calls(
    torch: Any, lookups: dict[str, Any], pool: Any, ids: Any, offsets: Any
) -> dict[str, Callable[[], Any]]:
    """What is timed, torch included, after a check that all give the same bags."""
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
    return calls


def measure(
    torch: Any,
    chip: Chip,
    shapes: Sequence[TableShape],
    batch: int,
    path: Path | None = None,
    launches: int = LAUNCHES,
    replays: int = REPLAYS,
) -> None:
    """Print measured times beside predicted ones of the same plans, and append them to a file."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherOptions, GatherPool
    from calibrate.cuda.one_core import OneCore, core_bytes, cores

    gpu = torch.device("cuda")
    name = torch.cuda.get_device_name(gpu)
    cache = int(torch.cuda.get_device_properties(gpu).L2_cache_size)  # an H200 has more than its data sheet
    here = chip.with_overrides({"cores": cores(gpu), "cache_bytes": cache}, source=name)
    rows = [torch.randint(-8, 8, (shape.rows, shape.dim), device=gpu).float() for shape in shapes]
    tables, room = make_tables(rows), core_bytes(gpu)
    predicted = {which: Predicted(here, shapes, batch, room, law) for which, law in IDS.items()}
    compared = plans(shapes, batch, here.cores, room, predicted["uniform"])
    lookups = {name: OneCore(tables, plan, batch) for name, plan in compared.items()}
    pool = GatherPool(tables, batch, GatherOptions(), statistics.mean(shape.pooling for shape in shapes))
    print(f"measured on {name}: us of a launch, quartiles, predicted with {chip.name} of {here.cores} cores")
    for which in IDS:
        ids, offsets = draw(torch, shapes, batch, which)
        calls = compared_calls(torch, lookups, pool, ids, offsets)
        for what, took in replayed_us(torch, calls, launches, replays).items():
            low, middle, high = np.percentile(took, [25, 50, 75])
            said = ""
            if what in compared:
                batch_of = predicted[which].plan(compared[what], in_order=what != OWNED)
                said = f"{1e6 * batch_of.seconds:>10.1f} {batch_of.limit}"
                if path is not None:
                    seen = Sample(
                        gpu=name,
                        cores=here.cores,
                        cache_bytes=cache,
                        local_bytes=room,
                        tables=[(one.rows, one.dim, one.pooling) for one in shapes],
                        batch=batch,
                        ids=which,
                        plan=what,
                        items=items_of(compared[what]),
                        time_s=1e-6 * middle,
                    )
                    with path.open("a", encoding="utf-8") as file:
                        file.write(seen.model_dump_json() + "\n")
            print(f"{which:<8} {what:<14} {middle:>10.1f} {low:>10.1f} {high:>10.1f} {said}", flush=True)


def main() -> int:
    """Plans and predictions; measurements where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="mlperf-dlrm-dcnv2")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--most-rows", type=int, default=50_000, help="larger tables are left out")
    parser.add_argument("--out", type=Path, help="append what was measured, a line a plan and kind of ids")
    parser.add_argument("--chip", default="h200-sxm", help="of the predictions (perfmodel chips), or a file")
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="in a graph (less: a rehearsal)")
    parser.add_argument("--replays", type=int, default=REPLAYS, help="of each graph, two or more")
    options = parser.parse_args()
    tables, chip = load_tables(options.model).tables, load_chip(options.chip)
    shapes = [
        TableShape(table.rows, table.dim, 4, table.pooling)
        for table in tables
        if table.rows <= options.most_rows
    ]
    if not shapes:
        raise SystemExit(
            f"{options.model} has no table of at most {options.most_rows} rows: raise --most-rows"
        )
    cores, capacity = chip.cores, int(chip.value("local_bytes")) - KERNEL_BYTES
    small = sum(shape.rows < 1000 for shape in shapes)
    print(
        f"{options.model}: {len(shapes)} of {len(tables)} tables ({small} below 1000 rows; larger than "
        f"{options.most_rows} left out), batch {options.batch}, fp32 rows"
    )
    assumed = [key for key, value in sorted(chip.values.items()) if str(value.evidence) == "assumed"]
    print(
        f"predicted for the {cores} cores of {chip.name}, us, uniform ids; nothing is fitted to a measurement"
    )
    print(f"assumed of it: {', '.join(assumed)} (perfmodel chips {chip.name} says from where)")
    print(
        f"{'':<14} {'batch':>10} {'limit':<8} {'busiest':>10} {'mean':>10} {'MB moved':>10} {'KiB used':>8}"
        "  items"
    )
    predicted = Predicted(chip, shapes, options.batch, capacity)
    for name, plan in plans(shapes, options.batch, cores, capacity, predicted).items():
        print(predicted_line(name, plan, shapes, predicted))
    least = least_time_s(shapes, options.batch, cores, capacity, predicted.item_s, predicted.whole)
    print(f"{'no plan below':<14} {1e6 * least:>10.1f}")
    import torch

    if not torch.cuda.is_available():
        print("NOTHING WAS MEASURED: there is no GPU here. The times above are predictions.", file=sys.stderr)
        return 4
    measure(torch, chip, shapes, options.batch, options.out, options.launches, options.replays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
