"""A value that cannot be read is refused before anything that computes is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "pandas", "plotly", "perfmodel.answer", "perfmodel.plan", "perfmodel.model")


@pytest.mark.parametrize(
    "line",
    [
        "project --table-size 10Tb",
        "report --table-size 10Tb",
        "sweep --table-size 10Tb",
        "project --table-size 10TB --batch many",
        "plan --model criteo-kaggle --gpus x",
        "collective --op all_to_all --size 10Tb --gpus 8",
    ],
)
def test_a_bad_value_loads_nothing_that_computes(line: str) -> None:
    program = (
        "import sys; from perfmodel.cli import main\ntry: sys.exit(main())\nfinally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "10Tb is ambiguous" in done.stderr or "is not a whole number" in done.stderr
    assert not [name for name in done.stdout.split() if name in HEAVY]
