"""Wall time of the command line, best and median of seven runs: help, the main job, one collective.

python benchmarks/cli_startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 7
COMMANDS = {
    "--help": (["--help"], 0.3),
    "project --table-size 10TB": (["project", "--table-size", "10TB"], 1.5),
    "collective": (["collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "128"], 1.5),
}


def wall_times(words: list[str]) -> list[float]:
    """Seconds of each run of one command in a fresh process, the first one (cold cache) left out."""
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        code = "from perfmodel.cli import main; main()"
        subprocess.run([sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return times[1:]


def main() -> None:
    """Print one line a command."""
    sys.stdout.write(f"{'command':28} {'best':>8} {'median':>8} {'target':>8}\n")
    for name, (words, target) in COMMANDS.items():
        times = wall_times(words)
        best, middle = min(times), statistics.median(times)
        sys.stdout.write(f"{name:28} {best:6.2f} s {middle:6.2f} s {target:6.2f} s\n")


if __name__ == "__main__":
    main()
