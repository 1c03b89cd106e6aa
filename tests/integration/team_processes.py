"""Coordinators and ranks as processes: how tests start them, and whether they are still there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from calibrate.providers import availability
from calibrate.ranks.team import RankTeam

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "team_rank.py"))
CALLER = (sys.executable, str(HERE / "team_caller.py"))
GONE_S, SOON_S = 10.0, 5.0  # for a busy machine: some milliseconds on an idle one


def usable(name: str) -> None:
    found = availability(name)
    if not found.usable:
        pytest.skip(f"{name}: {found.why_not}")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self/stat").exists()


def gone(pids: Sequence[int], within_s: float = GONE_S) -> bool:
    ends = time.monotonic() + within_s
    while any(alive(pid) for pid in pids) and time.monotonic() < ends:
        time.sleep(0.05)
    return not any(alive(pid) for pid in pids)


def pids_of(team: RankTeam) -> list[int]:
    """Process ids, by rank."""
    return [team._coordinator.peers[place.rank].hello["pid"] for place in team.places]


def start_caller(
    backend: str, calls: int, prefix: Sequence[str] = (), **variables: str
) -> tuple[subprocess.Popen[str], list[int]]:
    """A coordinator in its own process, and the ids of its ranks."""
    process = subprocess.Popen(
        [*prefix, *CALLER, backend, "2", str(calls)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**launcher_environment(), **variables},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        pytest.fail(process.communicate()[1])
    return process, json.loads(first)["pids"]


def launcher_environment() -> dict[str, str]:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **(allowed if os.getuid() == 0 else {})}
