"""What a command left behind, and what every error has."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple

from perfmodel.cli import run

WIDTH = 100


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def is_an_error(outcome: Outcome, code: int, *parts: str) -> None:
    """One screen on stderr, nothing on stdout, the right exit code, no traceback."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith(("error: ", '{"error": ')), outcome.err
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) <= 24
    for words in parts:  # a long path may break the line anywhere
        assert words in outcome.err or words in " ".join(outcome.err.split()), outcome.err


def called(*words: str) -> Outcome:
    """Exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*words])
    return Outcome(code, out.getvalue(), err.getvalue())


def planned(*words: str) -> Outcome:
    """Of ``perfmodel plan``."""
    return called("plan", *words)


def mapped(*words: str) -> Outcome:
    """Of ``perfmodel chip plan``."""
    return called("chip", "plan", *words)


EXPLORE = [
    *(sys.executable, "-c", "from perfmodel.cli import main; main()"),
    *("explore", "--port", "0", "--no-browser"),
]
"""The live page at a free port, in a process of its own."""
