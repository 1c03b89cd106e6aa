"""What is tried in a process of its own: imports, the help that loads little, and the data of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from perfmodel.schema import machine as machines


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys\nfrom perfmodel.cli import app, run\nrun(['--help'])\n"
        "commands = {one.place.partition(':')[0] for one in app.COMMANDS.values() if hasattr(one, 'place')}\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'pydantic', 'plotly', 'rich', 'torch'}\n"
        "found = sorted((heavy | commands) & set(sys.modules))\n"
        "sys.exit(f'imported: {found}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_data_is_found_from_any_folder(tmp_path: Path) -> None:
    code = "from perfmodel.schema.machine import load_machine as m; print(m('h100-sxm-ib').gpus_per_node)"
    root = str(Path(machines.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "8"
