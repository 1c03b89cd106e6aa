"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_calls import Outcome

from perfmodel.cli import run


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command in this process."""

    def call(*words: str) -> Outcome:
        code = run(list(words))
        return Outcome(code, *capsys.readouterr())

    return call
