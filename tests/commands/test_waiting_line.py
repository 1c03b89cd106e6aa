"""A command that takes long says on a terminal that it works, and leaves nothing of that behind."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import Any

import pytest
from cli_calls import called
from waiting import a_moment, until

from perfmodel import effort
from perfmodel.cli import output, validate, waiting_line
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.validate import Verdict, accuracy
from perfmodel.validate.verdicts import Finding, load_claims

DRAWN, GONE = re.compile(r"validate   \d+ s"), "\x1b[2K"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What stderr shows, with a line a hundredth of a second."""
    monkeypatch.setattr(waiting_line, "on_terminal", lambda: True)
    monkeypatch.setattr(waiting_line, "_FIRST_S", 0.01)
    monkeypatch.setattr(waiting_line, "_EVERY_S", 0.01)
    return io.StringIO()


def drawn(screen: io.StringIO) -> int:
    return len(DRAWN.findall(screen.getvalue()))


def test_validate_is_not_silent(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: Any) -> list[Verdict]:
        until(lambda: drawn(sys.stderr) > 1)  # type: ignore[arg-type]
        return []

    monkeypatch.setattr(validate, "judge", slow)
    found = called("validate")
    assert found.code == 0 and "\x1b" not in found.out
    assert GONE in DRAWN.split(found.err)[-1] and output.before_writing == [], "the line is taken away"


def test_the_line_says_how_much_is_done(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bands that validate asks, one after the other."""

    def slow(**_: Any) -> Finding:
        before = drawn(sys.stderr)  # type: ignore[arg-type]
        until(lambda: drawn(sys.stderr) > before + 1)  # type: ignore[arg-type]
        return Finding(None, "")

    monkeypatch.setattr(accuracy, "judge_left_out", slow)
    found = called("validate")
    many = sum(not band.held_out for band in load_claims("bands"))
    said = re.findall(r"\d s   (\d+) of (\d+) bands", found.err)
    assert {(str(done), str(many)) for done in range(many)} == set(said) - {(str(many), str(many))}
    assert effort.listeners == []


def test_what_is_printed_takes_its_place(terminal: io.StringIO) -> None:
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        until(lambda: drawn(terminal) > 0)
        output.note("machine: x")
        assert GONE in DRAWN.split(terminal.getvalue())[-1].partition("machine: x\n")[0]
        before = drawn(terminal)
        until(lambda: drawn(terminal) > before)


def test_in_a_pipe_nothing_is_said(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_line, "on_terminal", lambda: False)
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        a_moment()
    assert terminal.getvalue() == ""
