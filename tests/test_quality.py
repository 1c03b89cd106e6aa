"""Style, types and the downward-only imports of the rooms: one test run proves all of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES = 400


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_ruff() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_formatting() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_types() -> None:
    run(sys.executable, "-m", "mypy")


def test_imports_go_downwards() -> None:
    run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")


def test_files_import_in_no_circle() -> None:
    """Imports inside functions count, imports for types alone do not."""
    graph = grimp.build_graph("perfmodel", "calibrate", exclude_type_checking_imports=True, cache_dir=None)
    files = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", ["perfmodel", "calibrate"])
def test_every_package_is_installed(package: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"])
    found = {".".join(init.parent.relative_to(ROOT).parts) for init in (ROOT / package).rglob("__init__.py")}
    missing = found - listed
    assert not missing, f"add to [tool.setuptools] packages in pyproject.toml: {sorted(missing)}"


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("perfmodel", "calibrate")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES
    }
    assert not long, f"more than {LINES} lines: {long}"
