"""Kernels on few and odd shapes, each result compared: what a sanitizer can run in a minute.

    python tests/gpu/small_cases.py FAMILY [--device cuda]

FAMILY  smoke (one kernel, by itself and in a graph: before anything else), gather_pool
Exit code 1 where a result is wrong. Says on stdout how many cases there were.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.kernels.gather_pool import check_bags

from calibrate.cuda.device_tables import make_tables
from calibrate.cuda.gather_layout import GatherLayout
from calibrate.cuda.gather_pool import GatherPool, make_faults

SHAPES = ((70, 128), (33, 32), (1, 4), (20, 33), (9, 260), (50, 7))
PLANS = {"chosen": None, "long": GatherLayout(True, 64, 1, 40), "runs": GatherLayout(False, 64, 5, 20)}


def smoke(device: Any) -> Iterator[str]:
    table = torch.randint(-8, 9, (1000, 128), device=device).float()
    ids, offsets = torch.randint(0, 1000, (640,), device=device), torch.arange(0, 641, 10, device=device)
    want = torch.nn.functional.embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True)
    pool = GatherPool(make_tables([table]), 64, 10)
    out, faults = pool.make_out(), make_faults(device)
    pool(ids, offsets, out, faults)
    torch.cuda.synchronize()
    yield "" if torch.equal(out, want) and faults.tolist() == [0, -1, 0, -1] else "bags are not torch's"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pool(ids, offsets, out, faults)
    out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    yield "" if torch.equal(out, want) else "bags of a graph are not torch's"


def gather_pool(device: Any) -> Iterator[str]:
    """Widths, element types, both kernels."""
    for dtype, (name, plan) in product(("fp32", "fp16"), PLANS.items()):
        wrong = ""
        try:
            check_bags(SHAPES, dtype, 37, 1, plan=plan, most=20, device=device)
        except AssertionError as error:
            wrong = f"{dtype} {name}: {error}"
        yield wrong


FAMILIES = {"smoke": smoke, "gather_pool": gather_pool}
"""What each yields: of every case what is wrong, or ""."""


def main() -> int:
    """0 where all results are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    cases = list(FAMILIES[options.family](torch.device(options.device)))
    wrong = [case for case in cases if case]
    for case in wrong:
        print(f"WRONG {options.family}: {case}")
    print(f"{options.family}: {len(cases)} cases, {len(wrong)} wrong")
    return int(bool(wrong) or not cases)


if __name__ == "__main__":
    sys.exit(main())
