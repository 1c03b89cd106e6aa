"""Matrix products of DLRM-DCNv2's dense layers, and its whole forward and backward pass, on one GPU.

Run:    python benchmarks/gpu_dense.py [--out dense.csv] [--scale 1]
Needs:  a GPU and torch.
Says:   device time in a CUDA graph of each different product of the layers in half precision, and of the
        layers with all that torch runs between the products (bias, ReLU, the cross layers' products by
        element, gradients of the weights), for 64 to 16384 samples. What they reach of the datasheet's rate
        is what data/dlrm/rates.toml calls share.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from gather import graph_of, replayed_s

BOTTOM, TOP, RANK, LAYERS, EMBEDDINGS = (13, 512, 256, 128), (1024, 1024, 512, 256, 1), 512, 3, 26 * 128
"""Of MLPerf's DLRM-DCNv2."""

BATCHES = (64, 256, 512, 1024, 2048, 4096, 6912, 8192, 16384)
REPLAYS = 9
COLUMNS = ("what", "batch", "m", "k", "n", "time_s")

Row = dict[str, Any]


def time_call_s(torch: Any, call: Any) -> float:
    """Median device time of a call in a graph [s]."""
    graph = graph_of(torch, lambda _: call(), 1, 4)
    return statistics.median(replayed_s(torch, graph) for _ in range(REPLAYS)) / 4


def products(torch: Any, batch: int) -> Iterator[Row]:
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


def layers(torch: Any, batch: int) -> Iterator[Row]:
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


def main() -> int:
    """0 where all was measured, 4 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=int, default=1, help="divides the batches, for a rehearsal")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 4
    name, rows = torch.cuda.get_device_name(), list[Row]()
    parts = (products, layers) if options.scale == 1 else (products,)  # a rehearsal's GPU has no gradients
    try:
        for work, batch in product(parts, sorted({max(2, batch // options.scale) for batch in BATCHES})):
            rows += ({"gpu": name, **dict.fromkeys(COLUMNS, ""), **row} for row in work(torch, batch))
            print(f"{work.__name__:<12}{batch:>8}{1e6 * rows[-1]['time_s']:>11.2f} us", flush=True)
    finally:
        if options.out and rows:
            with options.out.open("w", newline="", encoding="utf-8") as file:
                table = csv.DictWriter(file, list(rows[0]))
                table.writeheader()
                table.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
