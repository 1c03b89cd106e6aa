"""Time and memory of a sweep of 1 000 000 configurations.

Run:    python benchmarks/sweep.py [--backend best] [--limit]
Goal:   under 2 s of wall time for the call (warm file cache, 2 cores) and under 1 GB of peak memory;
        with --limit the exit code is 1 when either is missed.
Each line is a fresh process: import, first call (loads machine and calibration), and the calls after it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

GOAL_S, GOAL_BYTES = 2.0, 1e9
AXES = {
    "table_bytes": np.geomspace(100e9, 100e12, 20),
    "batch": 2 ** np.arange(5, 15),
    "pooling": np.arange(1, 51),
    "dim": np.arange(16, 1616, 16),
}


def once(backend: str, scenario: str, repeats: int) -> int:
    """Run in this process; print one line; 1 when a goal is missed."""
    start = time.perf_counter()
    import perfmodel
    from perfmodel.project import grids

    grid = grids.product(**AXES)
    imported = time.perf_counter()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        frame = perfmodel.project(grid, backend=backend, scenario=scenario)
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wall = time.perf_counter() - start - sum(times[1:])
    print(
        f"{backend:8} {scenario:18} {len(frame):>9} rows   import + grid {imported - start:5.2f} s   "
        f"first call {times[0]:5.2f} s   later calls {min(times[1:] or times):5.2f} s   "
        f"process {wall:5.2f} s   peak {peak / 1e6:4.0f} MB",
        flush=True,
    )
    return int(wall > GOAL_S or peak > GOAL_BYTES)


def main() -> int:
    """Each case in a process of its own, so that the peak is its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", action="append", choices=["nccl", "nvshmem", "best"])
    parser.add_argument("--scenario", default="cluster")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", action="store_true", help="exit with 1 when a goal is missed")
    parser.add_argument("--here", action="store_true", help="in this process (used by the program itself)")
    options = parser.parse_args()
    backends = options.backend or ["nccl"]
    if options.here:
        return once(backends[0], options.scenario, options.repeats)
    missed = 0
    for backend in backends:
        command = [sys.executable, __file__, "--here", "--backend", backend, "--scenario", options.scenario]
        done = subprocess.run([*command, "--repeats", str(options.repeats)], check=False)
        missed |= done.returncode
    return missed if options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
