"""Reads facts about a node: kernel files, output of programs, the processors of each core."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path("/")
_SECONDS = 20.0


def read_text(path: Path) -> str:
    """The content of a file, stripped. Limits: it cannot be read -> empty"""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def get_output(
    *command: str, timeout_s: float = _SECONDS, environ: Mapping[str, str] | None = None
) -> str | None:
    """The output of a program. Limits: it is missing, fails, or takes longer -> None"""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environ,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def cores_of(cpus: Iterable[int], root: Path = ROOT) -> list[list[int]]:
    """Logical processors of each physical core, in the order in which ``cpus`` names the cores.

    Limits: an unknown topology -> one processor per core
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core = read_text(topology / "core_id") or f"cpu{cpu}"
        groups.setdefault((read_text(topology / "physical_package_id"), core), []).append(cpu)
    return list(groups.values())
