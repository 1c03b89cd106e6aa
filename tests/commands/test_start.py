"""What a command loads before it answers: help is there before the model is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from perfmodel.cli.app import COMMANDS
from perfmodel.cli.lazy import Command, CommandGroup

_CODE = """
import sys
from perfmodel.cli import run
for line in sys.argv[1:]:
    run([*line.split(), '--help'])
print(sorted({name.split('.')[0] for name in sys.modules} & {'numpy', 'pandas', 'pydantic'}), file=sys.stderr)
"""


def lines(commands: Mapping[str, Command | CommandGroup], before: str = "") -> Iterator[str]:
    for name, one in commands.items():
        if isinstance(one, CommandGroup):
            yield from lines(one.commands, f"{name} ")
        else:
            yield before + name


@pytest.mark.parametrize("command", ["", *lines(COMMANDS)])
def test_a_command_has_examples_in_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from perfmodel.cli import run

    assert run([*command.split(), "--help"]) == 0
    assert f"perfmodel {command}".rstrip() in capsys.readouterr().out.partition("Examples")[2]


def test_help_of_no_command_waits_for_numbers() -> None:
    """pydantic's name is imported to recognise its errors; its models are not."""
    words = [sys.executable, "-c", _CODE, "", *lines(COMMANDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.strip() in ("[]", "['pydantic']")
