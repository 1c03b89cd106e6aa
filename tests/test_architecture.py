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
WALK = re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE.partition("## The walk of")[2])
AGAIN = "run python benchmarks/code_path.py --write"


@cache
def names(file: str) -> set[str]:
    """Functions and classes of a file, with the class or function that they are in."""

    def inside(nodes: list[ast.stmt], outer: str) -> set[str]:
        found: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found |= {outer + node.name, *inside(node.body, f"{outer}{node.name}.")}
        return found

    return inside(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, "")


@cache
def printed() -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "code_path.py")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def now(text: str) -> dict[str, list[int]]:
    """The right-hand side of the cells ``before → now`` of each row."""
    rows = re.findall(r"^\| `?([^|`]+)`? \| (\d+ → .*) \|$", text, flags=re.M)
    return {name.strip(): [int(number) for number in re.findall(r"→ (\d+)", cells)] for name, cells in rows}


@pytest.mark.parametrize(("file", "name"), re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE))
def test_what_the_page_names_is_there(file: str, name: str) -> None:
    assert name in names(file)


def test_the_walk_passes_every_function_down_to_the_law() -> None:
    """As the command prints it: the functions that run when the law is called, in their order."""
    _, way = printed().split("collective --op all_to_all --size 1GiB --gpus 128: first way\n")
    passed = [tuple(line.split(":")) for line in re.findall(r"^  (\S+)$", way.partition("\n\n")[0], re.M)]
    assert len(passed) > 5 and passed[-1] == ("perfmodel/model/laws.py", "pairwise_time")
    places = []
    for file, function in passed:
        named = (file, function) if (file, function) in WALK else (file, function.rpartition(".")[0])
        assert named in WALK, f"docs/architecture.md leaves out {file}:{function}"
        places.append(WALK.index(named))
    assert places == sorted(places)
    assert f"at {GRID_BYTES.size} sizes" in PAGE


def test_ways_are_no_longer_than_the_page_says() -> None:
    said, found = now(PAGE), now(printed())
    ways = [name for name in found if " --" in name]
    assert len(ways) == 3
    for name in ways:
        assert all(a <= b for a, b in zip(found[name], said[name], strict=True)), f"{name}: {AGAIN}"


def test_rooms_are_about_as_large_as_the_page_says() -> None:
    """Within a twentieth and a few: not every change of a line is a change of the page."""
    said, found = now(PAGE), now(printed())
    assert set(said) == set(found), AGAIN
    for name, sizes in found.items():
        slack = (20, 2, 2, 4)[: len(sizes)]
        for old, new, few in zip(said[name], sizes, slack, strict=True):
            assert " --" in name or abs(new - old) <= max(0.05 * old, few), f"{name}: {AGAIN}"


def test_what_must_be_touched_is_what_the_page_says() -> None:
    table = printed().partition("| to add |")[2].partition("\n\n")[0]
    assert table.count("|") > 20 and table in PAGE, AGAIN


def test_every_room_and_every_contract_is_on_the_page() -> None:
    rooms = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "perfmodel").glob("*/__init__.py")}
    described = set(re.findall(r"^\| `(perfmodel/\w+)` \| [^\d]", PAGE, flags=re.M))
    assert described == rooms
    picture = PAGE.partition("## The rooms")[2].partition("| room |")[0]
    assert all(room.replace("/", ".") in picture for room in rooms)
    layout = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Layout")[2]
    assert set(re.findall(r"^      (\w+)/", layout, flags=re.M)) == {Path(room).name for room in rooms}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}
    assert all(f"**{name}**" in " ".join(PAGE.split()) for name in contracts)
    assert PAGE.count("- **") == len(contracts)


def test_the_drawing_has_the_imports_between_rooms() -> None:
    graph = grimp.build_graph("perfmodel", "calibrate", exclude_type_checking_imports=True)
    uses: dict[str, set[str]] = {}
    for module in graph.modules:
        for used in graph.find_modules_directly_imported_by(module):
            if room(module) and room(used) and room(module) != room(used):
                uses.setdefault(room(module), set()).add(room(used))

    def below(top: str) -> set[str]:
        return uses.get(top, set()).union(*map(below, uses.get(top, ())))

    needed = {
        (a, b) for a, direct in uses.items() for b in direct if not any(b in below(c) for c in direct - {b})
    }
    drawn = re.findall(r"^    (\w+(?: --> \w+)+)$", PAGE, flags=re.M)
    chains = [line.split(" --> ") for line in drawn]
    assert {pair for chain in chains for pair in pairwise(chain)} == needed


def room(module: str) -> str:
    """The room of a module; none for files beside the rooms (units, errors, resources)."""
    parts = module.split(".")
    if parts[0] == "calibrate":
        return "calibrate"
    return parts[1] if len(parts) > 1 and (ROOT / "perfmodel" / parts[1]).is_dir() else ""


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`(\w[\w/.-]*/[\w.-]*|\w+\.md)[`:]", CONTRIBUTING))))
def test_files_that_contributing_names_are_there(place: str) -> None:
    assert (ROOT / place).exists()


def test_tests_and_names_that_contributing_says_will_tell_are_there() -> None:
    told = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", CONTRIBUTING)
    assert len(told) > 5 and all(name in names(file) for file, name in told)


def test_the_patch_of_a_new_exchange_applies_and_its_own_test_passes(tmp_path: Path) -> None:
    patch = re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    files = re.findall(r"^\+\+\+ b/(\S+)$", patch, flags=re.MULTILINE)
    assert sum(file.startswith("perfmodel/") for file in files) <= 5
    for folder in ("perfmodel", "data", "kernels", "pyproject.toml"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "perfmodel").unlink()
    shutil.copytree(ROOT / "perfmodel", tmp_path / "perfmodel")
    (tmp_path / "tests/engine").mkdir(parents=True)
    (tested,) = [file for file in files if file.startswith("tests/")]
    shutil.copy(ROOT / tested, tmp_path / tested)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tested, "-k", "row_for_each_look_up"]
    known = {**os.environ, "PYTHONPATH": str(tmp_path)}
    made = subprocess.run(words, cwd=tmp_path, env=known, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout
