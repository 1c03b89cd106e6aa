"""benchmarks/one_chip_speedups.py: a small run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "one_chip_speedups.py"
ASKED = (
    "--chips ascend-910 --models criteo-kaggle --batches 64 --ids uniform one-row --effort quick --details"
)


def test_a_small_run_has_all_tables() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *ASKED.split()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith(" criteo-kaggle 64"))
    ratios = [float(text) for text in re.findall(r"([\d.]+)×", line)]
    assert len(ratios) == 2 and min(ratios) > 1.5
    for words in (
        "uniform and skewed ids, over GM:",
        "one row, over GM",
        "worst batch of GM",
        "core, core",
    ):
        assert words in done.stdout, words
