"""Gather and pool on a GPU: our kernel beside torch's embedding_bag (and FBGEMM's, where installed), one run.

Run:    python benchmarks/gather.py [--minutes 6] [--out gather.csv]
Needs:  a GPU and torch.
Grid:   NVIDIA cuEmbed's: alpha {0, 1.05, 1.15} x rows {1e6, 1e7} x D {32, 128} x batch {1024, 32768, 131072}
        x pooling {1, 16, 64}, fp32 rows, int64 ids. Each table has its share of the time, and its cells come
        in random order: a cut leaves a sample.
Exit code 1 where bags differ, 4 without a GPU.
How:    every implementation is captured in a CUDA graph that looks up several sets of ids in turn; graphs are
        replayed in turn; the median of the replays counts. bytes = ids and offsets read, 32-byte sectors of
        the rows read, bags written: TB/s above the memory's come from rows in the L2.
        Table values are small whole numbers: every implementation must give the same bags, bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALPHAS, ROWS, DIMS, BATCHES, POOLINGS = (
    (0.0, 1.05, 1.15), (1_000_000, 10_000_000), (32, 128), (1024, 32768, 131072), (1, 16, 64),
)  # fmt: skip
SET_BYTES = 512 * 2**20
"""Rows and ids of all sets together: several times the L2."""
MOST_SETS, SECTOR, CHUNK_ROWS = 16, 32, 2**22
REPLAYS, MOST_ROUNDS = 11, 200
LEAST_S = 2e-3
"""Time of one graph: sets of ids are looked up again and again until it lasts so long."""
DEVICE = "cuda"
COLUMNS = (
    *("gpu", "implementation", "rows", "dim", "alpha", "batch", "pooling"),
    *("time_s", "bytes", "wrong"),
)
Call = Callable[[int], None]


@dataclass(frozen=True)
class Cell:
    """One shape: E rows of D columns, B bags of L ids with popularity rank^-alpha."""

    rows: int
    dim: int
    alpha: float
    batch: int
    pooling: int

    @property
    def ids(self) -> int:
        """Look-ups of a call."""
        return self.batch * self.pooling

    @property
    def bytes(self) -> int:
        """Bytes that a call must move when no row is in a cache."""
        row = -(-4 * self.dim // SECTOR) * SECTOR
        return self.ids * (row + 8) + (self.batch + 1) * 8 + self.batch * 4 * self.dim

    @property
    def sets(self) -> int:
        """Sets of ids that are looked up in turn."""
        return max(2, min(MOST_SETS, math.ceil(SET_BYTES / (self.ids * (4 * self.dim + 8)))))


@dataclass
class Timing:
    """What was measured of a cell: seconds of a call in each replay, wrong elements, by implementation."""

    cell: Cell
    times_s: dict[str, list[float]] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def median_s(self, name: str) -> float:
        """Median of the replays."""
        return statistics.median(self.times_s[name])


def list_cells(scale: int = 1) -> list[list[Cell]]:
    """All cells, a list a table, in an order that is always the same. scale  divides rows and batches"""
    tables = []
    for E, D in itertools.product(ROWS, DIMS):
        shapes = itertools.product(ALPHAS, BATCHES, POOLINGS)
        cells = [Cell(max(64, E // scale), D, alpha, max(4, B // scale), L) for alpha, B, L in shapes]
        random.Random(1).shuffle(cells)
        tables.append(cells)
    return tables


def draw_ids(torch: Any, cell: Cell, seed: int) -> Any:
    """Ids of a call, int64 on the GPU: rank^-alpha by its continuous inverse, ranks scattered."""
    source = torch.Generator(DEVICE).manual_seed(seed)
    if cell.alpha == 0:
        return torch.randint(0, cell.rows, (cell.ids,), device=DEVICE, generator=source)
    u = torch.rand(cell.ids, device=DEVICE, generator=source, dtype=torch.float64)
    power = 1 - cell.alpha
    rank = ((1 + u * ((cell.rows + 1.0) ** power - 1)) ** (1 / power)).long().clamp(1, cell.rows) - 1
    step = int(cell.rows * 0.6180339887)
    while math.gcd(step, cell.rows) != 1:
        step += 1
    return (rank * step + cell.rows // 3) % cell.rows


def make_table(torch: Any, cell: Cell) -> Any:
    """Rows of small whole numbers, whose sums are exact in any order."""
    table = torch.empty(cell.rows, cell.dim, device=DEVICE)
    for start in range(0, cell.rows, CHUNK_ROWS):
        chunk = table[start : start + CHUNK_ROWS]
        chunk.copy_(torch.randint(-8, 9, chunk.shape, device=DEVICE, dtype=torch.int8))
    return table


def list_calls(torch: Any, cell: Cell, table: Any) -> tuple[dict[str, Call], dict[str, Any]]:
    """Calls of each implementation by the number of the set, and where each leaves its bags."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherPool

    drawn = [draw_ids(torch, cell, seed) for seed in range(cell.sets)]
    offsets = torch.arange(0, cell.ids + 1, cell.pooling, device=DEVICE)
    pool = GatherPool(make_tables([table]), cell.batch, float(cell.pooling))
    out: dict[str, Any] = {"perfmodel": pool.make_out()}

    def of_torch(number: int) -> None:
        out["torch"] = torch.nn.functional.embedding_bag(
            drawn[number], table, offsets, mode="sum", include_last_offset=True
        )

    calls: dict[str, Call] = {"torch": of_torch}
    calls["perfmodel"] = lambda number: pool(drawn[number], offsets, out["perfmodel"])
    fbgemm = make_fbgemm(torch, cell, table)
    if fbgemm is not None:
        calls["fbgemm"] = lambda number: out.update(fbgemm=fbgemm(drawn[number], offsets))
    return calls, out


def make_fbgemm(torch: Any, cell: Cell, table: Any) -> Any:
    """FBGEMM's table-batched forward on the same table; None where it is not installed."""
    try:
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )
    except ImportError:
        return None
    spec = [(cell.rows, cell.dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)]
    bags = SplitTableBatchedEmbeddingBagsCodegen(spec, device=torch.device(DEVICE))
    bags.weights_dev.data = table.view(-1)
    bags.eval()
    return bags


def graph_of(torch: Any, call: Call, sets: int, rounds: int) -> Any:
    """A CUDA graph of ``rounds`` turns through all sets."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in range(sets):
            call(number)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for turn in range(rounds * sets):
            call(turn % sets)
    return graph


def replayed_s(torch: Any, graph: Any) -> float:
    """Time of one replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def measure(torch: Any, cell: Cell, table: Any) -> Timing:
    """All implementations of a cell, replayed in turn, and compared with each other."""
    timing, graphs, counts = Timing(cell), {}, {}
    calls, out = list_calls(torch, cell, table)
    with torch.no_grad():
        for name, call in calls.items():
            once = graph_of(torch, call, cell.sets, 1)
            replayed_s(torch, once)
            rounds = max(1, min(MOST_ROUNDS, math.ceil(LEAST_S / max(replayed_s(torch, once), 1e-7))))
            graphs[name] = once if rounds == 1 else graph_of(torch, call, cell.sets, rounds)
            counts[name] = rounds * cell.sets
        for turn in range(REPLAYS + 1):
            for name, graph in graphs.items():
                took_s = replayed_s(torch, graph) / counts[name]
                if turn:
                    timing.times_s.setdefault(name, []).append(took_s)
        for name in calls:
            timing.wrong[name] = int((out[name].view_as(out["torch"]) != out["torch"]).sum())
    return timing


def floor_s(torch: Any) -> float:
    """Time of our launch for one bag of one id, in a graph of many."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherPool

    pool = GatherPool(make_tables([torch.ones(1000, 32, device=DEVICE)]), 1)
    ids, offsets = torch.zeros(1, dtype=torch.int64, device=DEVICE), torch.tensor([0, 1], device=DEVICE)
    out = pool.make_out()
    graph = graph_of(torch, lambda _: pool(ids, offsets, out), 1, 500)
    return min(replayed_s(torch, graph) for _ in range(9)) / 500


def print_summary(timings: list[Timing], floor: float) -> None:
    """Our launch of one bag, and our speed beside each other implementation."""
    print(f"captured launch of one bag: {1e6 * floor:.2f} us")
    for name in timings[0].times_s if timings else ():
        if name == "perfmodel":
            continue
        ratios = [timing.median_s(name) / timing.median_s("perfmodel") for timing in timings]
        mean, lowest = math.exp(statistics.fmean(map(math.log, ratios))), min(ratios)
        slower = f"slower in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} cells"
        print(f"beside {name}: geometric mean {mean:.2f}x, least {lowest:.2f}x, {slower}")


def write(path: Path, timings: list[Timing], gpu: str) -> None:
    """One row an implementation and cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for timing in timings:
            cell = timing.cell
            for name in timing.times_s:
                numbers = timing.median_s(name), cell.bytes, timing.wrong[name]
                table.writerow([gpu, name, *vars(cell).values(), *numbers])


def main() -> int:
    """Exit code 1 where bags differ, or nothing was timed; 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divides sizes: a rehearsal")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    if options.scale > 1:
        global MOST_ROUNDS, REPLAYS
        MOST_ROUNDS = REPLAYS = 2
    gpu, floor = torch.cuda.get_device_name(), floor_s(torch)
    print(f"{gpu}, torch {torch.__version__}")
    tables, timings = list_cells(options.scale), list[Timing]()
    began_s = time.monotonic()
    for number, cells in enumerate(tables, start=1):
        ends_s, table = began_s + 60 * options.minutes * number / len(tables), make_table(torch, cells[0])
        for cell in cells:
            if time.monotonic() >= ends_s:
                break
            timings.append(measure(torch, cell, table))
            times = "".join(f"{n}{1e6 * timings[-1].median_s(n):>9.1f} us  " for n in timings[-1].times_s)
            rate = cell.bytes / timings[-1].median_s("perfmodel") / 1e12
            wrong = "  WRONG" if any(timings[-1].wrong.values()) else ""
            print(f"{cell!s:<75}{times}{rate:>5.1f} TB/s{wrong}", flush=True)
            if options.out:
                write(options.out, timings, gpu)
        del table
    left = sum(map(len, tables)) - len(timings)
    if left:
        print(f"{left} cells left out: no time", file=sys.stderr)
    print_summary(timings, floor)
    return int(not timings or any(any(timing.wrong.values()) for timing in timings))


if __name__ == "__main__":
    sys.exit(main())
