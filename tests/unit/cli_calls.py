"""What a command left behind, and what every error has."""

from __future__ import annotations

from typing import NamedTuple

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
    assert outcome.err.startswith("error: "), outcome.err
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) <= 24
    for part in parts:
        assert part in outcome.err, outcome.err
