"""The benchmark of faults, a little of each; over night it tries many more."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import faults
import pytest
from fault_inputs import Reader
from oracles import environment

from calibrate.running.journal import Journal, PointState
from perfmodel.errors import BadInputError


def test_a_little_of_each_fault_costs_nothing() -> None:
    program = str(Path(faults.__file__))
    done = subprocess.run(
        [sys.executable, program, "--kills", "2", "--inputs", "100", "--noise", "50%"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(),
    )
    rows = done.stdout.splitlines()[1:]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows) == 8 and all(row.split()[-2:] == ["0", "0"] for row in rows)
    assert all(int(row.split()[-3]) > 0 for row in rows)


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
    (tmp_path / "links").mkdir()
    assert faults.links(20, dice, tmp_path / "links").failed
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
