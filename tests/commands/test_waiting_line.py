"""A command that takes long says on a terminal how far it is, and leaves nothing of that behind."""

from __future__ import annotations

import contextlib
import io
import itertools
import re

import pytest
from cli_calls import called

from perfmodel import effort
from perfmodel.cli import output, waiting_line
from perfmodel.cli.waiting_line import WaitingLine
from perfmodel.validate import accuracy
from perfmodel.validate.verdicts import Finding, load_claims

GONE = "\x1b[2K"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What stderr shows, with a line for each progress."""
    monkeypatch.setattr(waiting_line, "is_on_terminal", lambda: True)
    monkeypatch.setattr(waiting_line, "_FIRST_S", 0.0)
    monkeypatch.setattr(waiting_line, "_EVERY_S", 0.0)
    return io.StringIO()


def test_the_line_says_how_much_is_done(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bands that validate asks, one after the other."""
    monkeypatch.setattr(accuracy, "judge_left_out", lambda **_: Finding(None, ""))
    done = called("validate")
    many = sum(not band.held_out for band in load_claims("bands"))
    shown = re.findall(r"validate   \d s   (\d+) of (\d+) bands", done.err)
    assert {(str(count), str(many)) for count in range(many)} <= set(shown)
    assert "\x1b" not in done.out and effort.listeners == [] and output.before_writing == []


def test_the_line_comes_after_two_seconds_and_twice_a_second(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_line, "_FIRST_S", 2.0)
    monkeypatch.setattr(waiting_line, "_EVERY_S", 0.5)
    clock = itertools.chain([0.0, 1.9, 2.1, 2.5, 2.7]).__next__
    with contextlib.redirect_stderr(terminal), WaitingLine("plan", clock=clock):
        for number in range(1, 5):
            effort.tell(f"{number} of 4")
    assert set(re.findall(r"plan   \d s   (\d) of 4", terminal.getvalue())) == {"2", "4"}


def test_what_is_printed_takes_its_place(terminal: io.StringIO) -> None:
    with contextlib.redirect_stderr(terminal), WaitingLine("validate"):
        effort.tell("1 of 2")
        output.note("machine: x")
        shown = terminal.getvalue()
        assert GONE in shown.partition("1 of 2")[2].partition("machine: x\n")[0]
        effort.tell("2 of 2")
    assert "2 of 2" in terminal.getvalue() and GONE in terminal.getvalue().rpartition("2 of 2")[2]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_where_no_line_can_be_rewritten_a_calibration_says_it_every_15_s(
    monkeypatch: pytest.MonkeyPatch, plain: bool, term: str
) -> None:
    stream, clock = io.StringIO(), itertools.count(0.0, 1.0).__next__
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(stream, "isatty", lambda: term == "dumb")
    with contextlib.redirect_stderr(stream), WaitingLine("calibrate", plain=plain, clock=clock):
        for second in range(1, 61):
            effort.tell(f"[ {second} %]")
    assert stream.getvalue().split("\n")[:-1] == ([f"[ {s} %]" for s in (2, 17, 32, 47)] if plain else [])
