"""Simulated ranks in the place of real ones, for whole runs of ``perfmodel calibrate``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from oracles.simulated_team import SimulatedTeam, TrueCurve

from calibrate.running import stack
from calibrate.running.interfaces import RunOptions, RunOutcome
from calibrate.running.session import calibrate as measure
from perfmodel.cli import calibrate

ONLY = ("calibrate", "--only", "gloo:all_to_all", "--clock", "eager")
SIZES = ("--sizes", "1KiB..1MiB")
QUICK = (*ONLY, *SIZES, "--quick")


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Ranks:
    """Puts simulated ranks in the place of real ones; ``last`` is the team of the last command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fields: dict[str, Any] = {}
        self.seed = 0
        self.last: SimulatedTeam | None = None
        monkeypatch.setattr(calibrate, "open_team", self.open)
        monkeypatch.setattr(stack, "read_revision", lambda _: "")  # a checkout may change between two starts
        self._monkeypatch = monkeypatch

    def open(self, *_: object) -> SimulatedTeam:
        curve = TrueCurve(4e-6, 2e9)
        self.last = SimulatedTeam({"": curve}, **{"visit_noise": 0.002, **self.fields})
        self._monkeypatch.setattr(calibrate, "measure", self._measure)
        return self.last

    def _measure(self, options: RunOptions, *rest: Any) -> RunOutcome:
        """With the ranks' clock, and points in one order: a time limit leaves out the same each time."""
        assert self.last is not None
        return measure(replace(options, seed=self.seed), *rest, clock=self.last.clock)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ranks:
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody cuts the power
    for name in [name for name in os.environ if name.startswith(("OMPI_", "SLURM_", "PMIX_"))]:
        monkeypatch.delenv(name)
    return Ranks(monkeypatch)


def folder(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "home" / "runs").iterdir()
    return found
