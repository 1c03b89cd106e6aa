"""What a session on a GPU ran on, and what its calibration says: kernels beside copies, what failed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

PACKAGES = (
    *("numpy", "pandas", "scipy", "pydantic", "torch", "cupy-cuda13x", "nvidia-ml-py", "nvidia-cuda-nvrtc"),
    *("nvidia-nccl-cu13", "nvidia-nvshmem-cu13", "nvshmem4py-cu13", "torchrec", "fbgemm-gpu"),
)
MOST_REASONS = 20


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
        names = (name for name in dir(found) if not name.startswith(("_", "uuid", "pci_")))
        known["gpu"] = {name: str(getattr(found, name)) for name in names}
        known["free_bytes"], known["total_bytes"] = torch.cuda.mem_get_info()
        known["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception as error:  # whatever is wrong with torch or its GPU is what this file has to say
        known["torch_error"] = f"{type(error).__name__}: {error}"
    return known


def summary(out: Path) -> str:
    """Kernels beside copies, the state of the GPU, what did not end well, and what was fitted."""
    from perfmodel.schema.run_files import read_run
    from perfmodel.schema.runs import functional_reason

    folders = sorted(path.parent for path in (out / "runs").glob("*/samples.jsonl"))
    if not folders:
        return "No samples: see calibrate.json.log."
    found = read_run(folders[-1])
    what = f": {functional_reason(found.header)}" if found.header.functional_only else ""
    lines = [f"Run {found.run_id}{what}", *rates(found.kernel_samples()), "", *conditions(found), ""]
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
    lines = [f"Fitted ({calibration.get('calibration_id')})"]
    found = calibration.get("kernels")
    if not found:
        return [*lines, " kernels: nothing was fitted"]
    lines.append(f" kernels, clock {found['clock']}")
    for name, value in sorted(found["values"].items()):
        lines.append(f"  {name:<26}{value['value']:>12.4g}  ({value['low']:.4g} to {value['high']:.4g})")
    error = found.get("loo_median")
    return lines if error is None else [*lines, f"  left out, median error {100 * error:.1f} %"]
