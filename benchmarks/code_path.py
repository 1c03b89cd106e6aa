"""How far it is from the command line to the law of a collective, and how much code each room has.

python benchmarks/code_path.py            prints the tables of docs/architecture.md, and each way by function
python benchmarks/code_path.py --write    writes the tables into that page

Measures the ``perfmodel`` that this Python imports, so that one checkout can be measured with the script of
another. A way is the functions of the project that run when the law (``LAWS``) is called: from the file of
the command down to the law, which is counted. Functions of other libraries, comprehensions and
``perfmodel/cli/__init__.py``, which every command passes, are not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import perfmodel
from perfmodel.model import laws

ROOT = Path(perfmodel.__file__).resolve().parents[1]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
START, END = "<!-- code-path: python benchmarks/code_path.py --write -->", "<!-- end of code-path -->"
LAWS = (laws.pairwise_time, laws.ring_tree_time)
COMMANDS = (
    "collective --op all_to_all --size 1GiB --gpus 128",
    "project --table-size 10TB",
    "plan --model criteo-kaggle --gpus 8",
)

Way = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Length:
    """Files and functions of the way to the first call of the law, and functions of the longest way."""

    files: int
    functions: int
    longest: int


@dataclass(frozen=True)
class Size:
    """What a room holds: lines of Python, modules, public classes and public functions of its modules."""

    lines: int
    modules: int
    classes: int
    functions: int

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def ways(line: str) -> list[Way]:
    """The way of each call of the law while a command line runs, as (file, function)."""
    codes = {law.__code__ for law in LAWS}
    found: list[Way] = []

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            found.append(tuple(reversed(list(_project_functions(frame)))))

    from perfmodel.cli import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(called)
        try:
            main(shlex.split(line))
        finally:
            sys.setprofile(None)
    return found


def _project_functions(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """(file, function) of a frame of the project and of those that called it, innermost first."""
    while frame is not None:
        code: CodeType = frame.f_code
        path = Path(code.co_filename)
        comprehension = code.co_name.startswith("<") and code.co_name != "<lambda>"
        if path.is_relative_to(ROOT / "perfmodel") and not comprehension:
            name = path.relative_to(ROOT).as_posix()
            if name != "perfmodel/cli/__init__.py":
                yield name, code.co_qualname.replace(".<locals>", "")
        frame = frame.f_back


def length(found: list[Way]) -> Length:
    """How long the ways of one command are."""
    return Length(len({file for file, _ in found[0]}), len(found[0]), max(len(way) for way in found))


def rooms() -> dict[str, Size]:
    """Size of each room: a folder in ``perfmodel``, the files beside them, and ``calibrate``."""
    found: dict[str, Size] = {}
    for package in ("perfmodel", "calibrate"):
        for path in _files(package):
            parts = path.relative_to(ROOT).parts
            room = "/".join(parts[:2]) if package == "perfmodel" and len(parts) > 2 else package
            found[room] = found.get(room, Size(0, 0, 0, 0)) + _size(path.read_text(encoding="utf-8"))
    return found


def _size(text: str) -> Size:
    public = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    classes = sum(isinstance(node, ast.ClassDef) for node in public)
    return Size(len(text.splitlines()), 1, classes, len(public) - classes)


def tables(lengths: dict[str, Length], sizes: dict[str, Size]) -> str:
    """The two tables of the page; each cell is before → now."""
    head = "| {} | files | functions | functions of the longest way |\n|---|---|---|---|\n"
    text = head.format("command") + "".join(
        _row(f"`{line}`", LENGTHS_BEFORE[line], lengths[line]) for line in COMMANDS
    )
    nothing = Size(0, 0, 0, 0)
    text += "\n| room | lines | modules | public classes | public functions |\n|---|---|---|---|---|\n"
    for room in sorted(SIZES_BEFORE | sizes):
        text += _row(f"`{room}`", SIZES_BEFORE.get(room, nothing), sizes.get(room, nothing))
    return text + _row("all", sum(SIZES_BEFORE.values(), nothing), sum(sizes.values(), nothing))


def _row(name: str, before: Length | Size, now: Length | Size) -> str:
    cells = (f"{old} → {new}" for old, new in zip(astuple(before), astuple(now), strict=True))
    return f"| {name} | {' | '.join(cells)} |\n"


ADDED = {
    "a machine": ("rtx-pro-6000-pcie", "^rtx-pro-6000-pcie"),
    "a figure": ("tables-dim", "tables-dim"),
    "a term of a law": ("hops", "^hops|_hops"),
    "a library": ("nvshmem", "^(nvshmem|NVSHMEM)$"),
    "an option": ("id_dtype", "^id_dtype$|--id-dtype"),
    "an exchange": ("sparse", "(?i)^sparse_|_sparse|^sparse(?!_)"),
}
"""What somebody may add: one that is there, and how code names it."""


def touched() -> str:
    """The table of what must be touched to add something: the files whose code names one that is there."""
    said = {path: set(_words(path)) for package in ("perfmodel", "calibrate") for path in _files(package)}
    text = "| to add | for example | files | which name it |\n|---|---|---|---|\n"
    for what, (example, pattern) in ADDED.items():
        files = [path for path, words in said.items() if any(re.search(pattern, word) for word in words)]
        names = (path.relative_to(ROOT).with_suffix("").as_posix() for path in files)
        which = ", ".join(f"`{name.removeprefix('perfmodel/')}`" for name in names)
        text += f"| {what} | `{example}` | {len(files)} | {which or 'none: a file in data/ is enough'} |\n"
    return text


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _words(path: Path) -> Iterator[str]:
    """Names and texts of a file's code, without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    doc = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in doc:
            yield node.value
        for field in ("id", "attr", "arg", "name"):
            if isinstance(word := getattr(node, field, None), str):
                yield word


def main() -> None:
    """Print the tables and the ways, or write the tables into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the tables into docs/architecture.md")
    write = parser.parse_args().write
    found = {line: ways(line) for line in COMMANDS}
    text = tables({line: length(every) for line, every in found.items()}, rooms()) + f"\n{touched()}"
    if write:
        page = PAGE.read_text(encoding="utf-8")
        start, end = page.index(START) + len(START), page.index(END)
        PAGE.write_text(f"{page[:start]}\n\n{text}\n{page[end:]}", encoding="utf-8")
        return
    sys.stdout.write(text)
    for line, every in found.items():
        for what, way in (("first", every[0]), ("longest", max(every, key=len))):
            sys.stdout.write(f"\nperfmodel {line}: {what} way\n")
            sys.stdout.writelines(f"  {file}:{function}\n" for file, function in way)


LENGTHS_BEFORE = dict(zip(COMMANDS, (Length(7, 13, 14), Length(12, 19, 28), Length(12, 24, 25)), strict=True))
SIZES_BEFORE = {
    "calibrate": Size(15204, 97, 126, 283),
    "perfmodel": Size(580, 4, 7, 26),
    "perfmodel/cli": Size(6778, 39, 13, 134),
    "perfmodel/collectives": Size(892, 6, 5, 18),  # was predict.py and prediction
    "perfmodel/fit": Size(1852, 12, 8, 34),
    "perfmodel/model": Size(3289, 23, 15, 137),
    "perfmodel/chip": Size(5969, 34, 41, 63),
    "perfmodel/plan": Size(5872, 32, 46, 57),
    "perfmodel/project": Size(3590, 17, 32, 56),
    "perfmodel/report": Size(12933, 74, 38, 301),
    "perfmodel/schema": Size(3223, 18, 48, 67),
    "perfmodel/validate": Size(1612, 11, 18, 57),
}
"""Of commit 6e1688c, by this file; rooms under the names that they have now."""

if __name__ == "__main__":
    main()
