"""Dense layers of DLRM-DCNv2 on a GPU beside the model, whose share of the rate was fitted to MLPerf's steps.

Run:    python benchmarks/dense_model.py [DENSE_CSV]      (default: that of the H200 that is shipped)
Prints: for each batch the products one by one (and what they reach of the datasheet's rate), all that torch
        runs forward and backward, the model, and its error against torch's layers. Nothing is fitted to these
        times.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
from gpu_dense import BOTTOM, EMBEDDINGS, LAYERS, RANK, TOP

from perfmodel.model.dense import DenseModel, kernels_time
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_rates

ROOT = Path(__file__).resolve().parents[1]
MACHINE = "h200-sxm-ib"


def main() -> int:
    """Prints; always 0."""
    path = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else next((ROOT / "data" / "measurements" / "kernels").glob("*-dense.csv"))
    )
    rates, machine = load_rates(), load_machine(MACHINE)
    gpu = rates.of(MACHINE)
    share = rates.share_of(gpu.generation).products
    memory, floor_s = machine.value("local_sum_bytes_per_s"), machine.value("launch_floor_s")
    model, rows = DenseModel(BOTTOM, TOP, RANK, LAYERS), pd.read_csv(path)
    width = EMBEDDINGS + BOTTOM[-1]
    shapes = [*pairwise(BOTTOM), *[(width, RANK), (RANK, width)] * LAYERS]
    shapes += pairwise((width, *TOP))
    print(f"share {share} of {gpu.flops_per_s / 1e12:.0f} TFLOP/s, fitted to MLPerf's steps")
    print(f"{'samples':>8}{'products us':>13}{'share':>7}{'torch us':>10}{'model us':>10}{'error':>9}")
    for batch, found in rows.groupby("batch"):
        single = found[found["what"] == "product"].set_index(["m", "k", "n"])["time_s"]
        all_products = [
            single[each] for k, n in shapes for each in ((batch, k, n), (batch, n, k), (k, batch, n))
        ]
        products_s = float(sum(all_products))
        flops = sum(6 * batch * k * n for k, n in shapes)
        torch_s = float(found[found["what"] == "forward and backward"]["time_s"].iloc[0])
        kernels = [kernel for part in model.kernels(EMBEDDINGS, float(batch)).values() for kernel in part]
        said_s = kernels_time(kernels, gpu.flops_per_s, share, memory, floor_s)
        print(
            f"{batch:>8}{1e6 * products_s:>13.0f}{flops / products_s / gpu.flops_per_s:>7.2f}"
            f"{1e6 * torch_s:>10.0f}{1e6 * said_s:>10.0f}{100 * (said_s / torch_s - 1):>+8.0f} %"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
