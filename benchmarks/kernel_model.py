"""How well the kernel model predicts gather+pool: fitted to half of a run's cells, judged on the other half.

Run:    python benchmarks/kernel_model.py [FOLDER] [--seed 1]
FOLDER  a run of `perfmodel calibrate` (default: the latest)
Goal:   on a GPU, median <= 5 %, mean <= 10 %, p95 <= 20 % of the other half, uniform ids (published: 10.9 %
        geometric mean, 20.3 % mean, Lin et al., arXiv 2201.07821). Exit code 1 where a GPU misses it.
One line for each implementation and clock.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

GOALS = {"median": 0.05, "mean": 0.10, "p95": 0.20}
SHOWN = (*GOALS, "bias")


def judged(folder: Path, seed: int) -> pd.DataFrame:
    """Each gather cell that no fit has seen, with ``error`` = predicted / measured - 1."""
    from perfmodel.fit.kernels import fit_kernels, predict_gathers
    from perfmodel.schema.evidence import Clock
    from perfmodel.schema.run_files import read_run
    from perfmodel.schema.runs import functional_reason
    from perfmodel.validate.own import machine_of_run

    run = read_run(folder)
    if run.header.functional_only:
        raise SystemExit(f"{folder}: {functional_reason(run.header)}; nothing is judged")
    machine = machine_of_run(run, folder)
    samples = run.kernel_samples()
    keep = (samples["operation"] == "gather_pool") & (samples["flag"] != "throttled")
    samples = samples[keep & (samples["distribution"] == "uniform")]
    parts = []
    for (implementation, clock), cells in samples.groupby(["implementation", "clock"]):
        seen = cells[np.random.default_rng(seed).permutation(len(cells)) % 2 == 0]
        fits = fit_kernels(seen.assign(held_out=False), machine, Clock(str(clock)))
        if not fits:
            print(f"{implementation} {clock}: {len(seen)} cells are too few to fit", file=sys.stderr)
            continue
        unseen = cells.drop(seen.index)
        error = predict_gathers(unseen, machine, fits[0]) / unseen["time_s"].to_numpy(float) - 1
        parts.append(unseen.assign(error=error, implementation=implementation, clock=clock))
    return pd.concat(parts) if parts else samples.assign(error=np.nan).iloc[:0]


def main() -> int:
    """Exit code 1 when a GPU's cells miss a goal, 2 when there is nothing to judge."""
    from perfmodel.schema.run_files import latest_run

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    cells = judged(options.folder or latest_run(), options.seed)
    if cells.empty:
        print("no gather cells in this run", file=sys.stderr)
        return 2
    print(
        f"{'implementation':<15}{'clock':<9}{'ids':<11}{'n':>5}"
        + "".join(f"{key + ' %':>10}" for key in SHOWN)
    )
    missed = False
    for names, group in cells.groupby(["implementation", "clock", "distribution"]):
        size = group["error"].abs()
        errors = {"median": size.median(), "mean": size.mean(), "p95": size.quantile(0.95)}
        numbers = [*errors.values(), group["error"].median()]
        who = "{:<15}{:<9}{:<11}".format(*names)
        print(f"{who}{len(group):>5}" + "".join(f"{100 * float(number):>10.1f}" for number in numbers))
        missed |= any(float(errors[key]) > goal for key, goal in GOALS.items())
    on_gpu = bool((cells["clock"] != "eager").any())
    print("" if on_gpu else "cells of a CPU: the goal is for GPUs")
    return int(missed and on_gpu)


if __name__ == "__main__":
    sys.exit(main())
