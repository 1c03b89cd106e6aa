"""The benchmark of faults, a little of each; over night it tries many more."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import faults
import pytest
from fault_files import Reader
from oracles import environment

from calibrate.running.journal import Journal, PointState
from perfmodel.errors import BadInputError

CALIBRATION = """
import os, subprocess, sys
from pathlib import Path
from calibrate.planning.measurement_plan import Request
from calibrate.running.interfaces import RunOptions
from calibrate.running.session import calibrate
from oracles.simulated_team import Recorder, SimulatedTeam, TrueCurve

class Team(SimulatedTeam):
    def visit(self, *words, **named):
        if ranks and len(self.visits) == 60:
            os.wait()
            for rank in ranks:
                rank.kill()
            os._exit(4)
        return super().visit(*words, **named)

folder = Path(sys.argv[-1])
ranks = [] if folder.exists() else [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
team = Team({"": TrueCurve(5e-6, 1e9)})
request = Request("quick", only=["gloo:all_reduce"])
calibrate(RunOptions(request, "m", folder, {"gloo": "5"}, {}, seed=1), team, Recorder(), team.clock)
"""
"""A calibration that in its first start waits after some visits until a rank is lost, and then ends."""


def test_a_little_of_each_fault_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "PROGRAM", (sys.executable, "-c", CALIBRATION))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(sys, "argv", ["faults.py", "--kills", "2", "--inputs", "40"])
    code, (out, problems) = faults.main(), capsys.readouterr()
    rows = [row.split() for row in out.splitlines()[1:]]
    assert code == 0, out + problems
    assert [row[-2:] for row in rows] == 6 * [["0", "0"]]
    assert all(int(row[-3]) > 0 for row in rows)


def in_place(path: Path, text: str) -> None:
    """A file written in its place, as a careless program does."""
    try:
        path.write_text(text)
    except OSError as error:
        raise BadInputError(str(error)) from None


def test_a_fault_that_costs_something_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)
    assert faults.lost(Counter(a=3, b=1), Counter(a=1)) == 2
    monkeypatch.setattr(faults, "write_whole_text", in_place)
    (tmp_path / "full").mkdir()
    assert faults.full(3, dice, tmp_path / "full").failed
    monkeypatch.setattr(PointState, "add", lambda self, visit: None)
    (tmp_path / "journals").mkdir()
    assert faults.journals(20, dice, tmp_path / "journals").lost
    monkeypatch.setattr(Journal, "open", lambda *words, **named: [][0])
    (tmp_path / "again").mkdir()
    with pytest.raises(IndexError):
        faults.journals(20, dice, tmp_path / "again")
    broken = Reader("broken", ".x", (b"1",), lambda path: 1 / 0)
    monkeypatch.setattr(faults, "all_readers", lambda: [broken])
    assert len(faults.files(5, 1, tmp_path).failed) == 5


def test_a_journal_of_which_only_the_header_is_left_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut in the middle of its first line end, it has no line that is whole."""
    monkeypatch.setattr(faults, "damaged", lambda raw, dice: raw.split(b"\n")[0])
    row = faults.journals(1, random.Random(1), tmp_path)
    assert (row.tries, row.failed, row.lost) == (1, [], 0)


def test_without_kills_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "begun", lambda *words: [][0])
    assert faults.killed(True, 0, random.Random(1), tmp_path).tries == 0
