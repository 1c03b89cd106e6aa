"""docs/architecture.md, CONTRIBUTING.md: what they name is there, and what was measured is still so."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

from perfmodel.collectives.link_laws import GRID_BYTES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@cache
def list_names(file: str) -> set[str]:
    """Functions and classes of a file, with the class or function that they are in."""

    def list_inside(nodes: list[ast.stmt], outer: str) -> set[str]:
        inner: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner |= {outer + node.name, *list_inside(node.body, f"{outer}{node.name}.")}
        return inner

    return list_inside(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, "")


@pytest.mark.parametrize(("file", "name"), re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE))
def test_what_the_page_names_is_there(file: str, name: str) -> None:
    assert name in list_names(file)


def test_the_walk_ends_in_the_law() -> None:
    walk = re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE.partition("## The walk of")[2])
    assert ("perfmodel/model/laws.py", "compute_pairwise_time") in walk
    assert f"at {GRID_BYTES.size} sizes" in PAGE and len(PAGE.partition("```diff")[0].splitlines()) <= 170


def test_every_room_and_every_contract_is_on_the_page() -> None:
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "perfmodel").glob("*/__init__.py")}
    described = set(re.findall(r"^\| `(perfmodel/\w+)` \| [^\d]", PAGE, flags=re.M))
    assert described == rooms
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}
    named = PAGE.partition("checks the contracts")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- \*\*([^*]+)\*\*", named, flags=re.M)) == contracts


def test_the_drawing_has_the_imports_between_rooms() -> None:
    graph = grimp.build_graph("perfmodel", "calibrate", exclude_type_checking_imports=True)
    uses: dict[str, set[str]] = {}
    for module in graph.modules:
        for used in graph.find_modules_directly_imported_by(module):
            if find_room(module) and find_room(used) and find_room(module) != find_room(used):
                uses.setdefault(find_room(module), set()).add(find_room(used))

    def list_below(top: str) -> set[str]:
        return uses.get(top, set()).union(*map(list_below, uses.get(top, ())))

    needed = {
        (a, b)
        for a, direct in uses.items()
        for b in direct
        if not any(b in list_below(c) for c in direct - {b})
    }
    drawn = re.findall(r"^    (\w+(?: --> \w+)+)$", PAGE, flags=re.M)
    chains = [line.split(" --> ") for line in drawn]
    assert {pair for chain in chains for pair in pairwise(chain)} == needed


def find_room(module: str) -> str:
    """The room of a module; none for files beside the rooms (units, errors, resources)."""
    parts = module.split(".")
    if parts[0] == "calibrate":
        return "calibrate"
    return parts[1] if len(parts) > 1 and (ROOT / "perfmodel" / parts[1]).is_dir() else ""


def test_files_and_tests_that_the_pages_name_are_there() -> None:
    text = PAGE.partition("```diff")[0] + CONTRIBUTING
    for place in sorted(set(re.findall(r"`(\w[\w/.-]*/[\w.-]*|\w+\.md)[`:]", text))):
        place = place.removesuffix("/ROOM")
        assert (ROOT / place).exists() or (ROOT / "perfmodel" / place).exists(), place


def test_the_patch_of_a_new_exchange_applies_and_its_own_test_passes(tmp_path: Path) -> None:
    patch = re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch, flags=re.MULTILINE)
    assert sum(file.startswith("perfmodel/") for file in files) <= 5
    for folder in ("perfmodel", "data", "kernels", "benchmarks", "pyproject.toml"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "perfmodel").unlink()
    shutil.copytree(ROOT / "perfmodel", tmp_path / "perfmodel")
    (tested,) = [file for file in files if file.startswith("tests/")]
    (tmp_path / tested).parent.mkdir(parents=True)
    shutil.copy(ROOT / tested, tmp_path / tested)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tested, "-k", "row_for_each_look_up"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
