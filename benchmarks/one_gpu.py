"""A whole session on one GPU, in one folder and under ten minutes: what there is, what it does, what follows.

    python benchmarks/one_gpu.py --out results [--minutes 4] [--machine NAME]
    python benchmarks/one_gpu.py --out results --checks

Leaves in the folder: environment.json, nvidia-smi.txt, doctor.json, runs/ (samples and calibration),
calibrate.json, project.txt, summary.txt (kernels beside copies, and what did not end well), gather.txt and
gather.csv (our gather and pool beside torch's), one_core.txt, kernel_model.txt, and for each part a .log with
what it said on the way. A part that fails, or outlasts its time, ends alone: the others still run. Works from
a checkout that is not installed.
--checks, a session of its own, and the one to begin with: gpu_tests.txt (functional checks of everything on
the GPU; no timings), then the same under compute-sanitizer's four tools, in sanitizer_*.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
PERFMODEL = (sys.executable, "-c", "from perfmodel.cli import main; main()")
TOTAL_S = 570.0
AFTERWARDS_S = 250.0
"""Kept for the start and the end of the calibration, and for what follows it."""

STARTING_S = 60.0
"""What a calibration takes beside its time limit: its start, the points under way, the fit."""

TESTS_S, GATHER_S, ONE_CORE_S = 330.0, 110.0, 40.0
TESTS = ("gather_pool", "id_kernels", "one_core", "kernels", "exchange", "collectives")
"""Checks on a GPU in the order in which they are made: time may end before the last."""

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")

ENDING_S = 15.0
"""How long a part that outlasted its time may take to end by itself."""

PACKAGES = (
    *("numpy", "pandas", "scipy", "pydantic", "torch", "cupy-cuda13x", "nvidia-ml-py"),
    *("nvidia-nccl-cu13", "nvidia-nvshmem-cu13", "nvshmem4py-cu13", "torchrec", "fbgemm-gpu"),
)
MOST_REASONS = 20


@dataclass
class Session:
    """Runs parts until ``ends_s`` on the monotonic clock; ``codes``: exit code of each, 124 out of time."""

    out: Path
    ends_s: float
    codes: dict[str, int] = field(default_factory=dict)

    def left_s(self) -> float:
        """Time until the end."""
        return self.ends_s - time.monotonic()

    def part(self, name: str, command: Sequence[str], most_s: float) -> int:
        """One command: its answer in ``name``, what else it says in ``name``.log."""
        began = time.monotonic()
        log = self.out / f"{name}.log"
        try:
            with (self.out / name).open("wb") as answer, log.open("wb") as said:
                code = run(command, answer, said, min(most_s, self.left_s()))
        except OSError as error:
            log.write_text(f"{error}\n", encoding="utf-8")
            code = 127
        self.codes[name] = code
        print(f"{name}: exit code {code}, {time.monotonic() - began:.0f} s", flush=True)
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print("\n".join(f"  {line}" for line in lines[-8:]), flush=True)
        return code


def run(command: Sequence[str], answer: Any, said: Any, timeout_s: float) -> int:
    """Exit code of a command with all that it started; 124 when it had to be ended."""
    if timeout_s <= 0:
        return 124
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=answer,
        stderr=said,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(ENDING_S)
        return 124


def session(out: Path, minutes: float, machine: Sequence[str], total_s: float = TOTAL_S) -> int:
    """All parts; 0 when the calibration was written."""
    out.mkdir(parents=True, exist_ok=True)
    parts = Session(out, time.monotonic() + total_s)
    own = (sys.executable, str(Path(__file__).resolve()), "--out", str(out))
    parts.part("environment.json", [*own, "--only", "environment"], 90)
    if shutil.which("nvidia-smi"):
        parts.part("nvidia-smi.txt", ["nvidia-smi", "-q"], 30)
    parts.part("doctor.json", [*PERFMODEL, "doctor", "--json", *machine], 60)
    limit_s = min(60 * minutes, parts.left_s() - AFTERWARDS_S - ENDING_S)
    runs = ["--device", "cuda", "--ranks", "1", "--out", str(out / "runs"), "--time-limit", f"{limit_s:.0f}s"]
    code = parts.part(
        "calibrate.json", [*PERFMODEL, "calibrate", *runs, *machine, "--json"], limit_s + STARTING_S
    )
    found = sorted((out / "runs").glob("*/*.json"))
    if found:
        words = ["project", "--table-size", "10TB", "--calibration", str(found[0]), *machine]
        parts.part("project.txt", [*PERFMODEL, *words], 30)
    parts.part("summary.txt", [*own, "--only", "summary"], 30)
    for name, words, most_s in _benchmarks(out):
        parts.part(f"{name}.txt", [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words], most_s)
    summary = out / "summary.txt"
    print(summary.read_text(encoding="utf-8"), flush=True)
    return code


def _benchmarks(out: Path) -> Iterator[tuple[str, list[str], float]]:
    """Name, options and time of each benchmark."""
    yield "gather", ["--minutes", f"{GATHER_S / 60 - 0.3:.2f}", "--out", str(out / "gather.csv")], GATHER_S
    yield "one_core", [], ONE_CORE_S
    for folder in sorted(path.parent for path in (out / "runs").glob("*/samples.jsonl")):
        yield "kernel_model", [str(folder)], 20.0


def checks(out: Path, total_s: float = TOTAL_S) -> int:
    """Functional checks on the GPU, then under each tool of compute-sanitizer; 0 when none found anything.

    Kernels are compiled once, by the first: they are kept in the folder of the results.
    """
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PERFMODEL_HOME", str(out / "home"))
    parts = Session(out, time.monotonic() + total_s)
    files = [f"tests/gpu/test_gpu_{name}.py" for name in TESTS]
    tests = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", *files]
    parts.part("gpu_tests.txt", tests, TESTS_S)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("compute-sanitizer is not there: it checked nothing (it comes with the CUDA toolkit)")
        return 4
    for left, check in zip(range(len(SANITIZERS), 0, -1), SANITIZERS, strict=True):
        words = ["--tool", check, "--error-exitcode", "9", "--target-processes", "all"]
        parts.part(f"sanitizer_{check}.txt", [tool, *words, *tests], parts.left_s() / left)
    return int(any(parts.codes.values()))


def environment() -> dict[str, Any]:
    """Versions, the GPU as torch sees it, and the variables that libraries read."""
    from calibrate.running.stack import allowed_environment

    known: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    known["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    known["environment"] = allowed_environment(os.environ)
    try:
        import torch

        found = torch.cuda.get_device_properties(0)
        names = (name for name in dir(found) if not name.startswith("_"))
        known["gpu"] = {name: str(getattr(found, name)) for name in names}
        known["free_bytes"], known["total_bytes"] = torch.cuda.mem_get_info()
        known["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception as error:  # whatever is wrong with torch or its GPU is what this file has to say
        known["torch_error"] = f"{type(error).__name__}: {error}"
    return known


def summary(out: Path) -> str:
    """Kernels beside copies, the state of the GPU, what did not end well, and what was fitted."""
    from perfmodel.schema.run_files import read_run

    folders = sorted(path.parent for path in (out / "runs").glob("*/samples.jsonl"))
    if not folders:
        return "No samples: see calibrate.json.log."
    found = read_run(folders[-1])
    lines = [f"Run {found.run_id}", *rates(found.kernel_samples()), "", *conditions(found), ""]
    lines += [*troubles(found), ""]
    for path in sorted(folders[-1].glob("*.json")):
        lines += fitted(json.loads(path.read_text(encoding="utf-8")))
    return "\n".join(lines)


def rates(samples: pd.DataFrame) -> list[str]:
    """One line a kernel and clock. GB/s: bytes that the model counts over the time, the quarter with the most
    bytes; share: of the fastest copy back to back."""
    copies = samples[(samples["operation"] == "copy") & (samples["clock"] == "stream")]
    if copies.empty:
        return ["no copy was measured"]
    ceiling = float((copies["payload_bytes"] / copies["time_s"]).max())
    lines = [f"Copies reach {ceiling / 1e9:.0f} GB/s (read and written, back to back)", ""]
    lines += [f"{'kernel':<14}{'library':<9}{'clock':<8}{'points':>7}{'shortest':>11}{'GB/s':>8}{'share':>8}"]
    groups = samples.groupby(["operation", "implementation", "clock"])
    for (operation, library, clock), rows in groups:
        large = rows[rows["payload_bytes"] >= rows["payload_bytes"].quantile(0.75)]
        rate = float((large["payload_bytes"] / large["time_s"]).median())
        told = f"{rate / 1e9:>8.0f}{100 * rate / ceiling:>6.0f} %" if rate else f"{'-':>8}{'-':>8}"
        shortest = f"{1e6 * float(rows['time_s'].min()):.1f} us"
        lines.append(f"{operation:<14}{library:<9}{clock:<8}{len(rows):>7}{shortest:>11}{told}")
    return lines


def conditions(found: Any) -> list[str]:
    """Clocks, temperature and power that visits saw, and how often something held a clock."""
    seen = [v.conditions for visits in found.visits.values() for v in visits if v.conditions is not None]
    if not seen:
        return ["GPU: nobody could read its state"]
    told = []
    for name, unit, scale in (("sm_clock_hz", "MHz", 1e-6), ("temperature_c", "C", 1), ("power_w", "W", 1)):
        values = [value * scale for one in seen if (value := getattr(one, name)) is not None]
        if values:
            told.append(f"{name} {min(values):.0f} to {max(values):.0f} {unit}")
    for name in ("throttle_reasons", "limits"):
        reasons = [reason for one in seen for reason in getattr(one, name)]
        told += [f"{reason}: {reasons.count(reason)} visits" for reason in sorted(set(reasons))]
    return [f"GPU in {len(seen)} visits: {'; '.join(told)}"]


def troubles(found: Any) -> list[str]:
    """How points ended, and why those that did not end well."""
    ends = [(found.points[key], finish) for key, finish in found.finishes.items()]
    counts = {status: sum(finish.status == status for _, finish in ends) for status in ("ok", "noisy")}
    counts |= {
        status: sum(finish.status == status for _, finish in ends) for status in ("throttled", "failed")
    }
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    lines = [f"Points: {told}, {len(found.points) - len(ends)} not ended"]
    bad = [(p, f) for p, f in ends if f.status in ("failed", "throttled")]
    bad += [(p, f) for p, f in ends if f.status == "noisy"]
    for point, finish in bad[:MOST_REASONS]:
        lines.append(
            f"  {finish.status} {point.operation} {point.clock} {point.payload_bytes} B: {finish.reason}"
        )
    return [*lines, f"  and {len(bad) - MOST_REASONS} more"] if len(bad) > MOST_REASONS else lines


def fitted(calibration: dict[str, Any]) -> list[str]:
    """Constants of the kernels of a calibration, with their intervals."""
    kernels = calibration.get("kernels")
    if not kernels:
        return [f"{calibration.get('calibration_id')}: no kernels were fitted"]
    lines = [f"Fitted ({calibration['calibration_id']}, clock {kernels['clock']})"]
    for name, value in sorted(kernels["values"].items()):
        lines.append(f"  {name:<26}{value['value']:>12.4g}  ({value['low']:.4g} to {value['high']:.4g})")
    return [*lines, f"  left out, median error {100 * kernels['loo_median']:.1f} %"]


def main() -> int:
    """0 when the calibration was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=4.0, help="time for the calibration, 4.7 at most")
    parser.add_argument("--machine", help="a shipped machine or a file (default: by the GPU's name)")
    parser.add_argument("--only", choices=("environment", "summary"), help="one part, on stdout")
    parser.add_argument("--checks", action="store_true", help="functional checks, and compute-sanitizer's")
    asked = parser.parse_args()
    out = asked.out.resolve()
    if asked.only == "environment":
        print(json.dumps(environment(), indent=2))
        return 0
    if asked.only == "summary":
        print(summary(out))
        return 0
    if asked.checks:
        return checks(out)
    return session(out, asked.minutes, ["--machine", asked.machine] if asked.machine else [])


if __name__ == "__main__":
    sys.exit(main())
