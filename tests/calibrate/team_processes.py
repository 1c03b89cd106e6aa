"""Coordinators and ranks as processes: how tests start them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from oracles import environment

from calibrate.providers import describe
from calibrate.ranks.team import RankTeam

HERE = Path(__file__).parent
FAKE = (sys.executable, str(HERE / "team_rank.py"))
CALLER = (sys.executable, str(HERE / "team_caller.py"))


def usable(name: str) -> None:
    found = describe(name)
    if not found.usable:
        pytest.skip(f"{name}: {found.why_not}")


def pids_of(team: RankTeam) -> list[int]:
    """Process ids, by rank."""
    return [hello["pid"] for hello in team.hellos]


def launcher_environment() -> dict[str, str]:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**environment(), **(allowed if os.getuid() == 0 else {})}
