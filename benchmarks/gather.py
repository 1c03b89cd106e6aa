"""Gather and pool on a GPU: our kernel beside torch's embedding_bag (and FBGEMM's, where installed), one run.

Run:    python benchmarks/gather.py [--minutes 6] [--out gather.csv] [--cells] [--rows 1000000 ...]
            [--variants gather_variants.csv]
Needs:  a GPU and torch. --cells only lists the cells, anywhere.
Grid:   NVIDIA cuEmbed's: alpha {0, 1.05, 1.15} x rows {1e6, 1e7} x D {32, 128} x batch {1024, 32768, 131072}
        x pooling {1, 16, 64}, fp32 rows, int64 ids.
Goals:  geometric mean at least 1.3x torch's speed and never below 1.0x; uniform ids into tables far larger
        than the L2: at least 90 % of the copy bandwidth for D >= 64, 75 % for D = 32; at most 5 us for a
        captured launch of one bag. Exit code 1 where one is missed, 4 without a GPU.
How:    every implementation is captured in a CUDA graph that looks up several sets of ids in turn; graphs are
        replayed in turn; the median of the replays counts. bytes = ids and offsets read, 32-byte sectors of
        the rows read, bags written. The ceiling is the best copy of 1 GiB in the same run, read and written.
        --variants times every variant of our kernel too (calibrate/cuda/gather_variants.py) and writes the
        table from which the launcher takes the fastest, after each cell: copy it to $PERFMODEL_HOME.
        Table values are small whole numbers: every implementation must give the same bags, bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALPHAS, ROWS, DIMS, BATCHES, POOLINGS = (
    (0.0, 1.05, 1.15), (1_000_000, 10_000_000), (32, 128), (1024, 32768, 131072), (1, 16, 64),
)  # fmt: skip
REPLAYS = 11
LEAST_S = 2e-3
"""Time of one graph: sets of ids are looked up again and again until it lasts so long."""
SET_BYTES = 512 * 2**20
"""Rows and ids of all sets together: several times the L2."""
MOST_SETS, SECTOR, COPY_BYTES = 16, 32, 2**30
GOALS = {"geometric mean": 1.3, "slowest cell": 1.0, 128: 0.90, 32: 0.75, "floor": 5e-6}

OF_VARIANT = "variant "
"""Begins the name of an implementation that is one variant of ours."""

DEVICE = "cuda"
LABELS = {"torch": "torch", "perfmodel": "ours", "fbgemm": "fbgemm"}

Call = Callable[[int], None]


@dataclass(frozen=True)
class Cell:
    """One shape: E rows of D fp32 columns, B bags of L ids with popularity rank^-alpha."""

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
        row = -(-self.dim * 4 // SECTOR) * SECTOR
        return self.ids * (row + 8) + (self.batch + 1) * 8 + self.batch * self.dim * 4

    @property
    def sets(self) -> int:
        """Sets of ids that are looked up in turn."""
        return max(2, min(MOST_SETS, math.ceil(SET_BYTES / (self.ids * (self.dim * 4 + 8)))))


@dataclass
class Seen:
    """What was measured of a cell: seconds of a call in each replay, by implementation."""

    cell: Cell
    times_s: dict[str, list[float]] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def median_s(self, name: str) -> float:
        """Median of the replays; NaN where it was not measured."""
        return statistics.median(self.times_s[name]) if self.times_s.get(name) else math.nan

    def spread(self, name: str) -> float:
        """Half the distance between the quartiles over the median."""
        low, _, high = statistics.quantiles(self.times_s[name], n=4)
        return (high - low) / 2 / self.median_s(name)


def cells(rows: list[int]) -> Iterator[Cell]:
    """All cells, tables one after the other."""
    for E, D in itertools.product(rows, DIMS):
        for alpha, B, L in itertools.product(ALPHAS, BATCHES, POOLINGS):
            yield Cell(E, D, alpha, B, L)


def draw(torch: Any, cell: Cell, seed: int) -> Any:
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


def implementations(
    torch: Any, cell: Cell, table: Any, *, variants: bool = False
) -> tuple[dict[str, Call], dict[str, Any]]:
    """Calls of each implementation by the number of the set, and where each leaves its bags."""
    drawn = [draw(torch, cell, seed) for seed in range(cell.sets)]
    offsets = torch.arange(0, cell.ids + 1, cell.pooling, device=DEVICE)
    out: dict[str, Any] = {}
    calls: dict[str, Call] = {}

    def of_torch(number: int) -> None:
        out["torch"] = torch.nn.functional.embedding_bag(
            drawn[number], table, offsets, mode="sum", include_last_offset=True
        )

    calls["torch"] = of_torch
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherOptions, GatherPool
    from calibrate.cuda.gather_variants import VARIANTS

    tables = make_tables([table])
    wanted = {"perfmodel": None} | {f"{OF_VARIANT}{one.name}": one for one in VARIANTS if variants}
    for name, variant in wanted.items():
        pool = GatherPool(tables, cell.batch, GatherOptions(), float(cell.pooling), variant=variant)
        out[name] = pool.new_out()
        calls[name] = lambda number, pool=pool, name=name: pool(drawn[number], offsets, out[name])
    fbgemm = _fbgemm(torch, cell, table)
    if fbgemm is not None:

        def of_fbgemm(number: int) -> None:
            out["fbgemm"] = fbgemm(drawn[number], offsets)

        calls["fbgemm"] = of_fbgemm
    return calls, out


def _fbgemm(torch: Any, cell: Cell, table: Any) -> Any:
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


def measure(torch: Any, cell: Cell, table: Any, *, variants: bool = False) -> Seen:
    """All implementations of a cell, replayed in turn, and compared with each other."""
    seen = Seen(cell)
    calls, out = implementations(torch, cell, table, variants=variants)
    graphs, counts = {}, {}
    with torch.no_grad():
        for name, call in calls.items():
            once = graph_of(torch, call, cell.sets, 1)
            replayed_s(torch, once)
            rounds = max(1, min(200, math.ceil(LEAST_S / max(replayed_s(torch, once), 1e-7))))
            graphs[name] = once if rounds == 1 else graph_of(torch, call, cell.sets, rounds)
            counts[name] = rounds * cell.sets
        for turn in range(REPLAYS + 1):
            for name, graph in graphs.items():
                took = replayed_s(torch, graph) / counts[name]
                if turn:
                    seen.times_s.setdefault(name, []).append(took)
        want = out["torch"]
        for name in calls:
            seen.wrong[name] = int((out[name].view_as(want) != want).sum())
    return seen


def copy_rate(torch: Any) -> float:
    """Bytes read and written a second by the best of some copies."""
    source = torch.zeros(COPY_BYTES // 4, device=DEVICE)
    target = torch.empty_like(source)
    graph = graph_of(torch, lambda _: target.copy_(source), 1, 4)
    best = min(replayed_s(torch, graph) for _ in range(9))
    return 4 * 2 * COPY_BYTES / best


def floor_s(torch: Any) -> float:
    """Time of our launch for one bag of one id, in a graph of many."""
    from calibrate.cuda.device_tables import make_tables
    from calibrate.cuda.gather_pool import GatherOptions, GatherPool

    table = torch.ones(1000, 32, device=DEVICE)
    pool = GatherPool(make_tables([table]), 1, GatherOptions())
    ids, offsets, out = torch.zeros(1, dtype=torch.int64, device=DEVICE), None, pool.new_out()
    offsets = torch.tensor([0, 1], device=DEVICE)
    graph = graph_of(torch, lambda _: pool(ids, offsets, out), 1, 500)
    return min(replayed_s(torch, graph) for _ in range(9)) / 500


def shown(seen: Seen, names: list[str], ceiling: float) -> str:
    """One line of the table."""
    cell, ours = seen.cell, seen.median_s("perfmodel")
    times = "".join(f"{1e6 * seen.median_s(name):>11.1f}" for name in names)
    ratios = "".join(f"{seen.median_s(name) / ours:>12.2f}" for name in names if name != "perfmodel")
    part = cell.bytes / ours / ceiling
    wrong = "  WRONG" if any(seen.wrong.values()) else ""
    about = f"{cell.rows:>9}{cell.dim:>5}{cell.alpha:>6.2f}{cell.batch:>8}{cell.pooling:>4}"
    return f"{about}{times}{ratios}{100 * part:>8.0f}{100 * seen.spread('perfmodel'):>7.1f}{wrong}"


def verdicts(found: list[Seen], names: list[str], ceiling: float, floor: float) -> bool:
    """Print what holds; whether all goals do."""
    good = floor <= GOALS["floor"] and not any(any(one.wrong.values()) for one in found)
    print(f"captured launch of one bag: {1e6 * floor:.2f} us (goal: at most {1e6 * GOALS['floor']:.0f})")
    for name in names:
        if name == "perfmodel" or not found:
            continue
        ratios = [one.median_s(name) / one.median_s("perfmodel") for one in found]
        mean, least = math.exp(statistics.fmean(map(math.log, ratios))), min(ratios)
        slow = sum(ratio < 1 for ratio in ratios)
        lost = f"slower in {slow} of {len(ratios)} cells"
        print(f"beside {name}: geometric mean {mean:.2f}x, least {least:.2f}x, {lost}")
        good &= least >= GOALS["slowest cell"] and (name != "torch" or mean >= GOALS["geometric mean"])
    for dim in DIMS:
        large = [one for one in found if one.cell.dim == dim and one.cell.alpha == 0 and one.cell.rows > 5e6]
        parts = [one.cell.bytes / one.median_s("perfmodel") / ceiling for one in large if one.cell.ids > 2e5]
        if parts:
            print(
                f"D = {dim}, uniform, large table, more than 200 000 ids: {100 * min(parts):.0f} to "
                f"{100 * max(parts):.0f} % of the copy bandwidth (goal: {100 * GOALS[dim]:.0f})"
            )
            good &= min(parts) >= GOALS[dim]
    return good


def variant_lines(gpu: str, found: list[Seen]) -> list[Any]:
    """The table of variants that a launcher reads."""
    from calibrate.cuda.gather_variants import TimedVariant

    return [
        TimedVariant(
            gpu=gpu,
            row_type="fp32",
            id_bytes=8,
            row_bytes=4 * one.cell.dim,
            table_bytes=4 * one.cell.dim * one.cell.rows,
            bags=one.cell.batch,
            pooling=one.cell.pooling,
            alpha=one.cell.alpha,
            variant=name.removeprefix(OF_VARIANT),
            time_s=one.median_s(name),
        )
        for one in found
        for name in one.times_s
        if name.startswith(OF_VARIANT)
    ]


def main() -> int:
    """Exit code 1 where a goal is missed, 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variants", type=Path, help="time every variant of our kernel, and write the table")
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    given = parser.parse_args()
    planned = list(cells(given.rows))
    if given.cells:
        for cell in planned:
            print(cell)
        return 0
    import torch

    from calibrate.cuda.gather_variants import write_table

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    ends_s, ceiling, floor = time.monotonic() + 60 * given.minutes, copy_rate(torch), floor_s(torch)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {ceiling / 1e12:.3f} TB/s")
    found: list[Seen] = []
    names: list[str] = []
    table, made = None, (0, 0)
    for cell in planned:
        if time.monotonic() > ends_s:
            print(
                f"out of time: {len(planned) - len(found)} of {len(planned)} cells left out", file=sys.stderr
            )
            break
        if made != (cell.rows, cell.dim):
            table, made = None, (cell.rows, cell.dim)
            table = torch.randint(-8, 9, made, device=DEVICE, dtype=torch.int8).float()
        found.append(measure(torch, cell, table, variants=given.variants is not None))
        if given.variants:
            write_table(given.variants, variant_lines(torch.cuda.get_device_name(), found))
        if not names:
            names = [name for name in found[0].times_s if not name.startswith(OF_VARIANT)]
            others = "".join(f"{LABELS[name] + '/ours':>12}" for name in names if name != "perfmodel")
            heads = "".join(f"{LABELS[name] + ' us':>11}" for name in names)
            print(
                f"{'rows':>9}{'D':>5}{'alpha':>6}{'batch':>8}{'L':>4}{heads}{others}{'copy %':>8}{'± %':>7}"
            )
        print(shown(found[-1], names, ceiling), flush=True)
    if given.out:
        write(given.out, found, ceiling)
    return 0 if verdicts(found, names, ceiling, floor) and len(found) == len(planned) else 1


def write(path: Path, found: list[Seen], ceiling: float) -> None:
    """One row an implementation and cell."""
    rows = [
        {
            "implementation": name,
            **vars(one.cell),
            "time_s": one.median_s(name),
            "spread": one.spread(name),
            "bytes": one.cell.bytes,
            "wrong": one.wrong[name],
            "copy_bytes_per_s": ceiling,
        }
        for one in found
        for name in one.times_s
    ]
    if not rows:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
