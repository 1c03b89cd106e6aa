"""Style, types and the downward-only imports of the rooms: one test run proves all of them.

The linters are the hooks of ``.pre-commit-config.yaml``.
"""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LINES = 400

KEEPS_ALL = (
    "import gc; gc.disable(); gc.enable = gc.disable\n"
    "from mypy.__main__ import console_entry; console_entry()"
)
"""mypy, which looks for garbage a quarter of its time, and ends before it needs the memory."""

HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hook(hook: dict[str, Any]) -> None:
    """What the hook would run before a commit, with the programs of this environment."""
    program, *words = shlex.split(hook["entry"])
    command = [str(Path(sys.executable).with_name(program)), *words]
    if program == "mypy":
        command = [sys.executable, "-c", KEEPS_ALL, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{hook['entry']}\n{done.stdout}\n{done.stderr}"


def test_the_hooks_are_all_linters_of_this_environment() -> None:
    """As CONTRIBUTING.md lists them, one by one; each looks at the whole checkout."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "\n".join(hook["entry"] for hook in HOOKS) in page
    assert [hook["id"] for hook in HOOKS] == ["ruff-check", "ruff-format", "mypy", "lint-imports"]
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in HOOKS)


def test_files_import_in_no_circle() -> None:
    """Imports inside functions count, imports for types alone do not."""
    graph = grimp.build_graph("perfmodel", "calibrate", exclude_type_checking_imports=True, cache_dir=None)
    files = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_package_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"]) - {"perfmodel.data", "perfmodel.kernels"}
    packages = [
        path.parent for name in ("perfmodel", "calibrate") for path in (ROOT / name).rglob("__init__.py")
    ]
    found = {".".join(path.relative_to(ROOT).parts) for path in packages}
    assert listed == found, "[tool.setuptools] packages in pyproject.toml"


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("perfmodel", "calibrate")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES
    }
    assert not long, f"more than {LINES} lines: {long}"


def test_no_two_public_classes_share_a_name() -> None:
    """A name says what a thing is (docs/architecture.md): two things do not share one."""
    homes: dict[str, list[str]] = {}
    for folder in ("perfmodel", "calibrate"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert not shared, shared
