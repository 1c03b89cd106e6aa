"""Single-token mutants of the product, and which test kills each of them.

    python benchmarks/mutants.py draw --count 40 --seed 56 > mutants.csv
    python benchmarks/mutants.py run mutants.csv --out killed.csv

A mutant is a line of a file, the ``nth`` of equal ones, with one token replaced. It is killed if a test file
that imports its module, or a module that imports it, fails, or a test of its room. Where ``killed_by`` names
a test, that test alone is run.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import random
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
FIELDS = "file", "line", "nth", "column", "token", "replacement", "killed_by"
FLIPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "+": "-", "-": "+", "*": "/", "/": "*",
    "and": "or", "or": "and", "True": "False", "False": "True", "min": "max", "max": "min",
    "1": "2", "0": "1",
}  # fmt: skip
SECONDS = 1800  # of a run that waits for nothing; what computes for too long fails by its processor time
SHOWN = ("tests/test_quality.py", "tests/golden/test_layout.py")
"""Test files that are run for every mutant, last: they read all code, or print most commands."""
TESTED_IN = {"cli": "commands", "question": "answer", "cuda": "kernels"}


def list_mutants(path: Path) -> Iterator[tuple[str, int, int, str]]:
    """Line, which of the equal ones, column and token of what can be flipped: code of functions, no words."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    inside = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        for number in range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    }
    last = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        unpacks = token.string == "*" and last in {"(", ",", "[", "{", "="}
        if row in inside and token.string in FLIPS and token.type != tokenize.STRING and not unpacks:
            yield lines[row - 1], lines[:row].count(lines[row - 1]), column, token.string
        last = token.string if token.type != tokenize.NL else last


def draw(count: int, seed: int) -> list[dict[str, object]]:
    """Mutants of ``count`` places, drawn from all that can be flipped."""
    tracked = subprocess.check_output(["git", "ls-files", "perfmodel", "calibrate"], cwd=ROOT, text=True)
    names = [name for name in tracked.split() if name.endswith(".py")]
    places = [(name, *place) for name in names for place in list_mutants(ROOT / name)]
    chosen = random.Random(seed).sample(places, count)
    return [dict(zip(FIELDS, (*place, FLIPS[place[-1]], ""), strict=True)) for place in chosen]


def list_tests(name: str) -> list[str]:
    """Test files that import the module of a file, then those of the modules that import it."""
    module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    graph = grimp.build_graph("perfmodel", "calibrate", cache_dir=None)
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    near: list[str] = []
    for importer in (module, *sorted(graph.find_modules_that_directly_import(module))):
        parent, _, stem = importer.rpartition(".")
        imports = re.compile(rf"{re.escape(importer)}\b|from {re.escape(parent)} import .*\b{stem}\b")
        near += [str(path.relative_to(ROOT)) for path, text in sources.items() if imports.search(text)]
    rooms = [f"tests/{TESTED_IN.get(part, part)}" for part in Path(name).parts[:2]]
    files = dict.fromkeys((*near, *SHOWN, *(room for room in rooms if (ROOT / room).is_dir())))
    return [file for file in files if not file.startswith(("tests/browser/", "tests/gpu/"))]


def find_killer(row: dict[str, str]) -> str:
    """The first test that fails with the mutant in place; "" if none does; "gone" if its line is gone."""
    path = ROOT / row["file"]
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    line, column, lines = row["line"], int(row["column"]), before.splitlines()
    places = [place for place, text in enumerate(lines) if text == line][int(row["nth"]) - 1 :]
    if not places:
        return "gone"
    lines[places[0]] = line[:column] + row["replacement"] + line[column + len(row["token"]) :]
    tests = [row["killed_by"]] if "::" in row["killed_by"] else list_tests(row["file"])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "::hangs"
    finally:
        path.write_text(before, encoding="utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    return failed[1] if failed else "::no test starts" * (done.returncode != 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("--count", type=int, default=40)
    drawing.add_argument("--seed", type=int, default=56)
    running = verbs.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    target = sys.stdout if options.verb == "draw" else options.out.open("w", encoding="utf-8", newline="")
    writer = csv.DictWriter(target, FIELDS, lineterminator="\n")
    writer.writeheader()
    if options.verb == "draw":
        writer.writerows(draw(options.count, options.seed))
        return
    for row in csv.DictReader(options.mutants.open(encoding="utf-8", newline="")):
        writer.writerow(row | {"killed_by": find_killer(row)})
        target.flush()


if __name__ == "__main__":
    main()
