"""A whole session on one GPU, in one folder and under ten minutes: what there is, what it does, what follows.

    python benchmarks/one_gpu.py --out results [--minutes 7] [--machine NAME]

Leaves in the folder: doctor.json, runs/ (samples and calibration), calibrate.json, project.txt, gpu_tests.txt
(functional checks of the GPU libraries; no timings), nvidia-smi.txt.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERFMODEL = (sys.executable, "-c", "from perfmodel.cli import main; main()")
TESTS_S = 120


def step(out: Path, name: str, command: Sequence[str], timeout_s: float | None = None) -> int:
    """Run one command, its answer in a file of the folder; progress stays on the terminal."""
    began = time.monotonic()
    path = out / name
    try:
        with path.open("w", encoding="utf-8") as file:
            code = subprocess.run(command, stdout=file, timeout=timeout_s, check=False, cwd=ROOT).returncode
    except subprocess.TimeoutExpired:
        code = 124
    print(f"{name}: exit code {code}, {time.monotonic() - began:.0f} s", flush=True)
    return code


def main() -> int:
    """0 when the calibration was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=7.0, help="time for the calibration")
    parser.add_argument("--machine", help="a shipped machine or a file (default: by the GPU's name)")
    asked = parser.parse_args()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    machine = ["--machine", asked.machine] if asked.machine else []
    if shutil.which("nvidia-smi"):
        step(out, "nvidia-smi.txt", ["nvidia-smi", "-q"], 60)
    step(out, "doctor.json", [*PERFMODEL, "doctor", "--json", *machine], 60)
    limit = f"{60 * asked.minutes:.0f}s"
    runs = ["--device", "cuda", "--ranks", "1", "--out", str(out / "runs"), "--time-limit", limit]
    code = step(out, "calibrate.json", [*PERFMODEL, "calibrate", *runs, *machine, "--json"])
    for calibration in sorted((out / "runs").glob("*/*.json")):
        words = ["project", "--table-size", "10TB", "--calibration", str(calibration), *machine]
        step(out, "project.txt", [*PERFMODEL, *words], 60)
    step(out, "gpu_tests.txt", [sys.executable, "-m", "pytest", "-q", "-rs", "tests/gpu"], TESTS_S)
    return code


if __name__ == "__main__":
    sys.exit(main())
