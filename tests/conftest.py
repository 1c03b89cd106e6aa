"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from cli_calls import Outcome

from perfmodel.cli import run


@pytest.fixture(scope="session", autouse=True)
def _commands_are_read_once() -> Iterator[None]:
    """Typer reads the options of every command anew at each call (20 ms); a process of tests does it once."""
    import typer.main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command in this process."""

    def call(*words: str) -> Outcome:
        code = run(list(words))
        return Outcome(code, *capsys.readouterr())

    return call
