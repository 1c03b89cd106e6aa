"""Laws of kernels that find equal ids, fitted to half of what a GPU was timed with, judged on the other half.

Run:    python benchmarks/sort_model.py [SORT_CSV STAGES_CSV]   (default: those of the H200 that is shipped)
Prints: for the sort of the backward (CUB's radix sort of ids of 8 bytes with their places, and the lengths of
        the runs of equal ids) floor, floor of a digit and part of the memory's rate; for torch.unique and a
        hash table of ours that has gone since floor and part; the error of each on the sizes that it was not
        fitted to. These are the constants of data/kernels/kernel_model.toml. Sorts below 16384 ids are one
        kernel, which takes less: they are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel.model import exchanges, kernels
from perfmodel.schema.machine import load_machine

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "data" / "measurements" / "kernels"
ID_BYTES, PLACE_BYTES, FEWEST = 8, 4, 16384
UNIQUE = {"torch.unique": "torch_unique", "unique, by size": "hash"}

Floats = NDArray[np.float64]


def fitted(law: Callable[[Floats, pd.DataFrame], Floats], start: list[float], rows: pd.DataFrame) -> Floats:
    """Constants of the law from every other row."""
    half = rows.iloc[::2]

    def residual(q: Floats) -> Floats:
        return np.asarray(np.log(law(np.exp(q), half) / half["time_s"]))

    return np.asarray(np.exp(least_squares(residual, np.log(start), loss="soft_l1").x))


def errors(law: Callable[[Floats, pd.DataFrame], Floats], q: Floats, rows: pd.DataFrame) -> str:
    """Of the rows that were not fitted to."""
    unseen = rows.iloc[1::2]
    error = 100 * np.abs(law(q, unseen) / unseen["time_s"] - 1)
    return f"error of {len(unseen)} other rows {error.median():.1f} % (median), {error.max():.0f} % (most)"


def main(words: list[str] | None = None) -> int:
    """Prints; always 0."""
    arguments = sys.argv[1:] if words is None else words
    files = [next(KEPT.glob(f"*-{name}.csv")) for name in ("sort", "stages")]
    sort, stages = map(Path, arguments) if arguments else files
    rate = load_machine("h200-sxm-ib").value("hbm_bytes_per_s")
    keys = ["id_bytes", "bits", "count"]
    table = pd.read_csv(sort).pivot_table(index=keys, columns="what", values="time_s").reset_index()
    table["time_s"] = table["cub sort_pairs"] + table["cub run_lengths"]
    rows = table[(table["id_bytes"] == ID_BYTES) & (table["count"] >= FEWEST)]

    def predict_radix(q: Floats, rows: pd.DataFrame) -> Floats:
        digits = np.ceil(rows["bits"] / 8)
        moved = exchanges.sort_bytes(rows["count"], digits, ID_BYTES, PLACE_BYTES)
        return np.asarray(
            kernels.stream_kernel_time(moved, kernels.sort_floor(q[0], q[1], digits), q[2] * rate)
        )

    q = fitted(predict_radix, [1e-5, 1e-5, 0.5], rows)
    floors = f"floor {1e6 * q[0]:.1f} us, a digit {1e6 * q[1]:.1f} us"
    print(f"sort          {floors}, {q[2]:.3f} of the memory's rate")
    print(f"              {errors(predict_radix, q, rows)}")

    def unique(q: Floats, rows: pd.DataFrame) -> Floats:
        moved = exchanges.sort_bytes(rows["count"], ID_BYTES, ID_BYTES, PLACE_BYTES)
        return np.asarray(kernels.stream_kernel_time(moved, q[0], q[1] * rate))

    timed = pd.read_csv(stages)
    for label, name in UNIQUE.items():
        rows = timed[(timed["what"] == label) & (timed["count"] >= FEWEST)].sort_values("count")
        q = fitted(unique, [1e-4, 0.3], rows)
        print(f"{name:<13} floor {1e6 * q[0]:.1f} us, {q[1]:.3f} of the memory's rate")
        print(f"              {errors(unique, q, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
