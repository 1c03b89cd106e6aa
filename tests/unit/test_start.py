"""What a command loads before it answers: help is there before the model is."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CODE = """
import sys
from perfmodel.cli import run
run(sys.argv[1:])
print(sorted({name.split('.')[0] for name in sys.modules} & {'numpy', 'pandas', 'pydantic'}), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["", "project", "explain"])
def test_help_does_not_wait_for_numbers(command: str) -> None:
    """pydantic's name is imported to recognise its errors; its models are not."""
    words = [sys.executable, "-c", _CODE, *command.split(), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "Examples" in done.stdout
    assert done.stderr.strip() in ("[]", "['pydantic']")
