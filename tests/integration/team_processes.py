"""Coordinators and ranks as processes: how tests start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from oracles import environment

from calibrate.providers import availability
from calibrate.ranks.team import RankTeam

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "team_rank.py"))
CALLER = (sys.executable, str(HERE / "team_caller.py"))


def usable(name: str) -> None:
    found = availability(name)
    if not found.usable:
        pytest.skip(f"{name}: {found.why_not}")


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
    return {**environment(), **(allowed if os.getuid() == 0 else {})}
