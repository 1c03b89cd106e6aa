"""A command that takes long says on a terminal that it works, and leaves nothing of that behind."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from cli_calls import called
from waiting import a_moment, until

from perfmodel import effort
from perfmodel.cli import output, validate, waiting_line
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.validate import Verdict, accuracy
from perfmodel.validate.verdicts import Finding, load_bands

DRAWN = re.compile(r"\rvalidate   \d+ s")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What stderr shows, with a line a hundredth of a second."""
    screen = io.StringIO()
    monkeypatch.setattr(waiting_line, "on_terminal", lambda: True)
    monkeypatch.setattr(waiting_line, "_FIRST_S", 0.01)
    monkeypatch.setattr(waiting_line, "_EVERY_S", 0.01)
    return screen


def drawn(screen: io.StringIO) -> int:
    return len(DRAWN.findall(screen.getvalue()))


def test_validate_is_not_silent(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(**_: Any) -> list[Verdict]:
        until(lambda: drawn(sys.stderr) > 1)  # type: ignore[arg-type]
        return []

    monkeypatch.setattr(validate, "judge", slow)
    found = called("validate")
    assert found.code == 0 and "\r" not in found.out
    assert DRAWN.match(found.err) and re.search(r"\r +\r$", found.err), "the line is taken away"
    assert output.before_writing == []


def test_the_line_says_how_much_is_done(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bands that validate asks, one after the other."""

    def slow(**_: Any) -> Finding:
        before = drawn(sys.stderr)  # type: ignore[arg-type]
        until(lambda: drawn(sys.stderr) > before + 1)  # type: ignore[arg-type]
        return Finding(None, "")

    monkeypatch.setattr(accuracy, "judge_left_out", slow)
    found = called("validate")
    many = sum(not band.held_out for band in load_bands())
    said = re.findall(r"\d s   (\d+) of (\d+) bands", found.err)
    assert {(str(done), str(many)) for done in range(many)} == set(said) - {(str(many), str(many))}
    assert effort.listeners == []


def test_what_is_printed_takes_its_place(terminal: io.StringIO) -> None:
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        until(lambda: drawn(terminal) > 0)
        output.note("machine: x")
        assert re.search(r"\r +\rmachine: x\n$", terminal.getvalue())
        before = drawn(terminal)
        until(lambda: drawn(terminal) > before)


def test_progress_of_the_command_ends_it(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        output.rewrite("half")
        before = drawn(terminal)
        a_moment()
        assert drawn(terminal) == before


def test_a_short_command_says_nothing_in_a_pipe(terminal: io.StringIO, monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting_line, "on_terminal", lambda: False)
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        a_moment()
    assert terminal.getvalue() == ""


def test_a_long_command_says_in_a_pipe_that_it_works(terminal: io.StringIO, monkeypatch: Any) -> None:
    """Plain lines after 1, 2, 4, 8 ... hundredths of work, also after something was printed."""
    turns = itertools.count()
    work = SimpleNamespace(monotonic=time.monotonic, process_time=lambda: next(turns) / 100)
    monkeypatch.setattr(waiting_line, "time", work)
    monkeypatch.setattr(waiting_line, "on_terminal", lambda: False)
    monkeypatch.setattr(waiting_line, "_PLAIN_S", 0.01)
    with contextlib.redirect_stderr(terminal), WaitingLine("plan"):
        until(lambda: terminal.getvalue().count("\n") > 1)
        output.note("machine: x")
        until(lambda: terminal.getvalue().count("\n") > 4)
    assert next(turns) > 8  # the fourth line, after that of the note
    lines = terminal.getvalue().splitlines()
    assert (
        all(re.fullmatch(r"plan   \d+ s|machine: x", line) for line in lines) and output.before_writing == []
    )
