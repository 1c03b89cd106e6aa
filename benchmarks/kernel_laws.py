"""Laws of kernels that were timed on an H200 on two days, each judged on rows that it was not fitted to.

Run:    python benchmarks/kernel_laws.py
Prints: look-ups of uniform ids, and the sort of the backward (CUB's radix sort of ids of 8 bytes with their
        places, and the lengths of the runs of equal ids), fitted to the first day: the error on the second.
        torch.unique and a hash table of ours that has gone since, fitted to every other row of the slower
        day: the host waits in them, and hosts differ. Floors, the floor of a digit and parts of the memory's
        rate are those of data/kernels/kernel_model.toml. Sorts below 16384 ids are one kernel: left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel.fit.kernel_fits import build_kernel, fit_kernels
from perfmodel.model import exchanges, kernels
from perfmodel.schema.evidence import Clock
from perfmodel.schema.machine import load_machine

KEPT = Path(__file__).resolve().parents[1] / "data" / "measurements" / "kernels"
ID_BYTES, PLACE_BYTES, FEWEST = 8, 4, 16384
UNIQUE = {"torch.unique": "torch_unique", "unique, by size": "hash"}
MACHINE = load_machine("h200-sxm-ib")
RATE = MACHINE.value("hbm_bytes_per_s")

Floats = NDArray[np.float64]


def read_days(name: str) -> list[pd.DataFrame]:
    """A file of each day, the first day first."""
    return [pd.read_csv(path) for path in (KEPT / f"h200-{name}.csv", *sorted(KEPT.glob(f"*/{name}.csv")))]


def fitted(law: Callable[[Floats, pd.DataFrame], Floats], start: list[float], rows: pd.DataFrame) -> Floats:
    """Constants of the law from these rows."""

    def residual(q: Floats) -> Floats:
        return np.asarray(np.log(law(np.exp(q), rows) / rows["time_s"]))

    return np.asarray(np.exp(least_squares(residual, np.log(start), loss="soft_l1").x))


def describe_errors(times_s: Floats, rows: pd.DataFrame) -> str:
    """Of rows that the law was not fitted to."""
    error = 100 * np.abs(times_s / rows["time_s"] - 1)
    return f"error of {len(rows)} other rows {error.median():.1f} % (median), {error.max():.0f} % (most)"


def judge_lookups() -> None:
    """Print the errors of look-ups that are timed back to back."""
    first, *later = read_days("samples")
    plain = first.query("distribution == 'uniform'")
    timed = pd.concat(later).query("operation == 'gather_pool' and clock == 'stream'")
    for constants in fit_kernels(plain, MACHINE, Clock.STREAM):
        rows = timed[timed["implementation"] == constants.implementation]
        kernel = build_kernel("gather_pool", rows, MACHINE)
        values = {key: interval.value for key, interval in constants.values.items()}
        assert kernel
        times_s = kernel.time(values)
        print(f"look-ups      {constants.implementation}: {describe_errors(times_s, rows)}")


def judge_sorts() -> None:
    """Print the constants of CUB's radix sort with run lengths."""

    def predict_radix(q: Floats, rows: pd.DataFrame) -> Floats:
        digits = np.ceil(rows["bits"] / 8)
        moved = exchanges.sort_bytes(rows["count"], digits, ID_BYTES, PLACE_BYTES)
        floor = kernels.sort_floor(q[0], q[1], digits)
        return np.asarray(kernels.stream_kernel_time(moved, floor, q[2] * RATE))

    keys, days = ["id_bytes", "bits", "count"], list[pd.DataFrame]()
    for day in read_days("sort"):
        whole = day.groupby(keys)["time_s"].sum().reset_index()  # the sort and the lengths of runs
        days.append(whole[(whole["id_bytes"] == ID_BYTES) & (whole["count"] >= FEWEST)])
    q, later = fitted(predict_radix, [1e-5, 1e-5, 0.5], days[0]), pd.concat(days[1:])
    floors = f"floor {1e6 * q[0]:.1f} us, a digit {1e6 * q[1]:.1f} us"
    print(f"sort          {floors}, {q[2]:.3f} of the memory's rate")
    print(f"              {describe_errors(predict_radix(q, later), later)}")


def judge_uniques() -> None:
    """Print the constants of what finds different ids, of the day with the highest floor."""

    def predict_unique(q: Floats, rows: pd.DataFrame) -> Floats:
        moved = exchanges.sort_bytes(rows["count"], ID_BYTES, ID_BYTES, PLACE_BYTES)
        return np.asarray(kernels.stream_kernel_time(moved, q[0], q[1] * RATE))

    for label, name in UNIQUE.items():
        days = [day[(day["what"] == label) & (day["count"] >= FEWEST)] for day in read_days("stages")]
        fits = [
            (fitted(predict_unique, [1e-4, 0.3], day.iloc[::2]), day.iloc[1::2]) for day in days if len(day)
        ]
        q, unseen = max(fits, key=lambda fit: float(fit[0][0]))
        print(f"{name:<13} floor {1e6 * q[0]:.1f} us, {q[1]:.3f} of the memory's rate")
        print(f"              {describe_errors(predict_unique(q, unseen), unseen)}")


def main() -> None:
    judge_lookups()
    judge_sorts()
    judge_uniques()


if __name__ == "__main__":
    main()
