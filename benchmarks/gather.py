"""Gather and pool on a GPU: our kernel beside torch's embedding_bag (and FBGEMM's, where installed), one run.

Run:    python benchmarks/gather.py [--minutes 6] [--out gather.csv] [--cells] [--rows 1000000 ...]
            [--variants gather_variants.csv] [--more]
Needs:  a GPU and torch. --cells only lists the cells, anywhere.
Grid:   NVIDIA cuEmbed's: alpha {0, 1.05, 1.15} x rows {1e6, 1e7} x D {32, 128} x batch {1024, 32768, 131072}
        x pooling {1, 16, 64}, fp32 rows, int64 ids. --more: D {64, 256}, fp16 rows, tables of 13 and 51 GB.
        Each table has its share of the time, and its cells come in random order: a cut leaves a sample.
Goals:  geometric mean at least 1.3x torch's speed and never below 1.0x; uniform ids into tables far larger
        than the L2: at least 90 % of the copy bandwidth for D >= 64, 75 % for D = 32; at most 5 us for a
        captured launch of one bag. Exit code 1 where one is missed, 4 without a GPU.
How:    every implementation is captured in a CUDA graph that looks up several sets of ids in turn; graphs are
        replayed in turn; the median of the replays counts. bytes = ids and offsets read, 32-byte sectors of
        the rows read, bags written. The ceiling is the best copy of 1 GiB of random data in the
        same run, read and written.
        --variants times every variant of our kernel too (calibrate/cuda/gather_variants.py) and writes the
        table from which the launcher takes the fastest, after each cell: copy it to $PERFMODEL_HOME.
        Table values are small whole numbers: every implementation must give the same bags, bit for bit.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gather_cells import DIMS, ROWS, Cell, cells, draw, make_table

REPLAYS = 11
MOST_ROUNDS = 200
LEAST_S = 2e-3
"""Time of one graph: sets of ids are looked up again and again until it lasts so long."""
COPY_BYTES = 2**30
MOST_FBGEMM_BYTES = 2 * 10**10
"""FBGEMM makes a table of its own before it takes ours."""

GOALS = {"geometric mean": 1.3, "slowest cell": 1.0, 128: 0.90, 32: 0.75, "floor": 5e-6}

OF_VARIANT = "variant "
"""Begins the name of an implementation that is one variant of ours."""

DEVICE = "cuda"
LABELS = {"torch": "torch", "perfmodel": "ours", "fbgemm": "fbgemm"}

Call = Callable[[int], None]


@dataclass
class Seen:
    """What was measured of a cell: seconds of a call in each replay, by implementation."""

    cell: Cell
    times_s: dict[str, list[float]] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    @property
    def large(self) -> bool:
        """Whether the table is far larger than any L2."""
        return self.cell.table_bytes > 10**9

    def median_s(self, name: str) -> float:
        """Median of the replays; NaN where it was not measured."""
        return statistics.median(self.times_s[name]) if self.times_s.get(name) else math.nan

    def spread(self, name: str) -> float:
        """Half the distance between the quartiles over the median."""
        low, _, high = statistics.quantiles(self.times_s[name], n=4)
        return (high - low) / 2 / self.median_s(name)


def implementations(
    torch: Any, cell: Cell, table: Any, *, variants: Sequence[Any] = ()
) -> tuple[dict[str, Call], dict[str, Any]]:
    """Calls of each implementation by the number of the set, and where each leaves its bags."""
    drawn = [draw(torch, cell, seed, DEVICE) for seed in range(cell.sets)]
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

    tables, options = make_tables([table]), GatherOptions(out_dtype=cell.dtype)
    wanted = {"perfmodel": None} | {f"{OF_VARIANT}{one.name}": one for one in variants}
    for name, variant in wanted.items():
        pool = GatherPool(tables, cell.batch, options, float(cell.pooling), variant=variant)
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
    if cell.dtype != "fp32" or cell.table_bytes > MOST_FBGEMM_BYTES:
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


def measure(torch: Any, cell: Cell, table: Any, *, variants: Sequence[Any] = ()) -> Seen:
    """All implementations of a cell, replayed in turn, and compared with each other."""
    seen = Seen(cell)
    calls, out = implementations(torch, cell, table, variants=variants)
    graphs, counts = {}, {}
    with torch.no_grad():
        for name, call in calls.items():
            once = graph_of(torch, call, cell.sets, 1)
            replayed_s(torch, once)
            rounds = max(1, min(MOST_ROUNDS, math.ceil(LEAST_S / max(replayed_s(torch, once), 1e-7))))
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


def copy_rate(torch: Any, size: int) -> float:
    """Bytes read and written a second by the best of some copies of random data."""
    source = torch.randint(-(2**31), 2**31 - 1, (size // 4,), device=DEVICE, dtype=torch.int32)
    target = torch.empty_like(source)
    graph = graph_of(torch, lambda _: target.copy_(source), 1, 4)
    best = min(replayed_s(torch, graph) for _ in range(9))
    return 4 * 2 * size / best


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
    about = f"{cell.rows:>10}{cell.dim:>5}{cell.dtype:>6}{cell.alpha:>6.2f}{cell.batch:>8}{cell.pooling:>4}"
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
        large = [one for one in found if one.cell.row_bytes == 4 * dim and not one.cell.alpha and one.large]
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
            row_type=one.cell.dtype,
            id_bytes=8,
            row_bytes=one.cell.row_bytes,
            table_bytes=one.cell.table_bytes,
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


def measured(torch: Any, given: argparse.Namespace, ceiling: float) -> tuple[list[Seen], int]:
    """Cells, until the time is over: every table has its share of it; and how many were planned."""
    from calibrate.cuda.gather_variants import VARIANTS

    planned = cells(given.rows, more=given.more, scale=given.scale)
    total, began_s, done = sum(map(len, planned)), time.monotonic(), 0
    found: list[Seen] = []
    variants = VARIANTS[:: 1 if given.scale == 1 else 4] if given.variants else ()
    for of_table in planned:
        done += len(of_table)
        ends_s = began_s + 60 * given.minutes * done / total
        table = make_table(torch, of_table[0], DEVICE) if time.monotonic() < ends_s else None
        for cell in of_table if table is not None else ():
            if time.monotonic() >= ends_s:
                break
            found.append(measure(torch, cell, table, variants=variants))
            if len(found) == 1:
                print(heading(compared(found)))
            print(shown(found[-1], compared(found), ceiling), flush=True)
            keep(torch, given, found, ceiling)
        del table
    return found, total


def keep(torch: Any, given: argparse.Namespace, found: list[Seen], ceiling: float) -> None:
    """Write what was measured so far."""
    from calibrate.cuda.gather_variants import write_table

    if given.variants:
        write_table(given.variants, variant_lines(torch.cuda.get_device_name(), found))
    if given.out:
        write(given.out, found, ceiling, torch.cuda.get_device_name())


def compared(found: list[Seen]) -> list[str]:
    """Implementations that are shown: all but single variants."""
    return [name for name in found[0].times_s if not name.startswith(OF_VARIANT)] if found else []


def heading(names: list[str]) -> str:
    """Above the lines of ``shown``."""
    others = "".join(f"{LABELS[name] + '/ours':>12}" for name in names if name != "perfmodel")
    heads = "".join(f"{LABELS[name] + ' us':>11}" for name in names)
    shape = f"{'rows':>10}{'D':>5}{'type':>6}{'alpha':>6}{'batch':>8}{'L':>4}"
    return f"{shape}{heads}{others}{'copy %':>8}{'± %':>7}"


def main() -> int:
    """Exit code 1 where bags are wrong, or a goal is missed (not with --report); 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--variants", type=Path, help="time every variant of our kernel, and write the table")
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--more", action="store_true", help="other rows, and tables up to 51 GB")
    parser.add_argument("--report", action="store_true", help="a missed goal is no failure")
    parser.add_argument("--scale", type=int, default=1, help="divides sizes, and fewer variants: a rehearsal")
    given = parser.parse_args()
    if given.cells:
        for of_table in cells(given.rows, more=given.more, scale=given.scale):
            print("\n".join(map(str, of_table)))
        return 0
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    if given.scale > 1:
        global MOST_ROUNDS, REPLAYS
        MOST_ROUNDS, REPLAYS = 2, 2
    ceiling, floor = copy_rate(torch, COPY_BYTES // given.scale), floor_s(torch)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {ceiling / 1e12:.3f} TB/s")
    found, total = measured(torch, given, ceiling)
    if len(found) < total:
        print(f"{total - len(found)} of {total} cells left out: no time, or no memory", file=sys.stderr)
    good = verdicts(found, compared(found), ceiling, floor)
    if given.report:
        return int(not found or any(any(one.wrong.values()) for one in found))
    return 0 if good and len(found) == total else 1


def write(path: Path, found: list[Seen], ceiling: float, gpu: str) -> None:
    """One row an implementation and cell."""
    rows = [
        {
            "gpu": gpu,
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
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
