"""What the linters do not see: circles of imports, packages, lengths, budgets, names, clocks in tests.

The linters are the hooks of ``.pre-commit-config.yaml``; ``.ci/run`` runs them before the tests.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
import yaml

from perfmodel.engine.schemes import OF_TORCHREC, WAYS, Exchange

ROOT = Path(__file__).resolve().parents[1]
LINES = 400

HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]


def test_the_hooks_are_all_linters_of_this_environment() -> None:
    """As CONTRIBUTING.md lists them, one by one; each looks at the whole checkout."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "\n".join(hook["entry"] for hook in HOOKS) in page
    assert [hook["id"] for hook in HOOKS] == ["ruff-check", "ruff-format", "mypy", "lint-imports"]
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in HOOKS)


def test_files_import_in_no_circle() -> None:
    """Imports inside functions count, and so do imports for types alone."""
    graph = grimp.build_graph("perfmodel", "calibrate", cache_dir=None)
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
    packaged = {".".join(path.relative_to(ROOT).parts) for path in packages}
    assert listed == packaged, "[tool.setuptools] packages in pyproject.toml"


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("perfmodel", "calibrate")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES
    }
    assert not long, f"more than {LINES} lines: {long}"


def test_rooms_keep_to_their_budgets() -> None:
    """Lines of code, pages and settings of each room; pyproject.toml says how one is raised."""
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["perfmodel"]["lines"]
    counted: Counter[str] = Counter()
    for folder in ("perfmodel", "calibrate", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in _CODE and "__pycache__" not in path.parts:
                name, parts = folder, path.relative_to(ROOT).parts
                if folder == "perfmodel":
                    name = parts[1] if len(parts) > 2 else "top"
                counted[name] += len(path.read_text(encoding="utf-8").splitlines())
    assert counted.keys() == rooms.keys()
    over = {name: f"{counted[name]} of {limit}" for name, limit in rooms.items() if counted[name] > limit}
    assert not over, (
        f"{over}: take lines out, there or in another room (pyproject.toml, tool.perfmodel.lines)"
    )
    loose = {
        name: f"{counted[name]} of {limit}"
        for name, limit in rooms.items()
        if counted[name] < min(0.95 * limit, limit - 100)
    }
    assert not loose, f"{loose}: lower the budget, so that what was won is kept"


_CODE = (".py", ".html", ".css", ".js", ".toml")


def count_concepts() -> Counter[str]:
    """What makes code hard to read whatever its lines, by the names of pyproject.toml."""
    counts: Counter[str] = Counter()
    paths = [path for folder in ("perfmodel", "calibrate") for path in (ROOT / folder).rglob("*.py")]
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        uses += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = [argument for argument in arguments if argument.arg not in ("self", "cls")]
                counts["parameters"] += len(own) >= 6
                private = node.name.startswith("_") and not node.name.endswith("__")
                counts["helpers"] += private and uses[node.name] == 1
                counts["untyped"] += [ast.unparse(a.annotation) for a in own if a.annotation].count("Any")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                counts["parallel"] += isinstance(node.value, ast.Tuple)
                counts["unpacked"] += isinstance(node.value, ast.GeneratorExp)
            elif isinstance(node, ast.Subscript):
                counts["untyped"] += ast.unparse(node) in ("dict[str, Any]", "Mapping[str, Any]")
    graph = grimp.build_graph("perfmodel", "calibrate", cache_dir=None)
    modules = [name for name in graph.modules if not (ROOT / name.replace(".", "/")).is_dir()]
    counts["importers"] = sum(len(graph.find_modules_that_directly_import(name)) == 1 for name in modules)
    names = Counter(path.name for path in paths if path.name != "__init__.py")
    counts["namesakes"] = sum(count > 1 for count in names.values())
    return counts


def test_concepts_only_get_fewer() -> None:
    """Lines alone reward density, so these are held beside them; each number in pyproject.toml only falls."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert dict(count_concepts()) == settings["tool"]["perfmodel"]["concepts"], (
        "more: mend; fewer: write it down"
    )


SHORTER = {
    "calibrate/cuda/exchange_memory.py": 1, "calibrate/importers/nccl_text.py": 4,
    "calibrate/torchrec_plan.py": 1, "perfmodel/cli/running.py": 1, "perfmodel/collectives/estimate.py": 1,
    "perfmodel/plan/scaling.py": 1, "perfmodel/plan/searching/annealing.py": 1,
    "perfmodel/plan/searching/packing.py": 1,
}  # fmt: skip


def test_what_is_zipped_is_of_one_length_but_where_it_is_said() -> None:
    paths = [path for folder in ("perfmodel", "calibrate") for path in (ROOT / folder).rglob("*.py")]
    counts = {str(path.relative_to(ROOT)): path.read_text().count("strict=False") for path in paths}
    assert {name: count for name, count in counts.items() if count} == SHORTER


def test_no_two_public_classes_share_a_name() -> None:
    """A name says what a thing is (docs/architecture.md): two things do not share one."""
    homes: dict[str, list[str]] = {}
    for folder in ("perfmodel", "calibrate"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not shared, shared


def test_names_of_schemes_are_in_their_table() -> None:
    """A sharding or an exchange is named in ``engine/schemes.py`` alone; elsewhere its properties are asked.

    Who may name the codes: what counts their bytes, what prints the equations of it, and the two schemes of a
    table that is not cut. TorchRec's own words are in the schema of its files and in names of loads as well.
    """
    table = "perfmodel/engine/schemes.py"
    torchrec = {table, "perfmodel/schema/torchrec_plan.py", "perfmodel/engine/steps.py"}
    coding = ("engine/cut", "engine/loads", "engine/placement")
    coded = {table, *(f"perfmodel/{file}.py" for file in coding)}
    scheme_words = {word for kind in Exchange for word in (kind.key, kind.facts.word)}
    scheme_words |= set(WAYS)
    said = {"bags", "sparse", "all-to-all", "reduce-scatter", "none", "rb", "dp", "grid", "3d", ""}  # else
    for path in (ROOT / "perfmodel").rglob("*.py"):
        name, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        words &= scheme_words | set(OF_TORCHREC)
        assert name == table or not words & (scheme_words - said), (
            f"{name} names {words & (scheme_words - said)}"
        )
        assert name in torchrec or not words & (set(OF_TORCHREC) - {"row_wise"}), f"{name} names {words}"
        held = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        codes = {node.attr for node in held if ast.unparse(node).startswith("Exchange.")}
        assert name in coded or not codes, f"{name} names {codes}"


NAMED = (
    *("engine", "question", "answer", "plan", "schema", "chip", "in_torchrec", "explore", "collectives"),
    *("fit", "model", "validate", "report", "cli", "calibrate"),
)
"""Rooms whose names are counted."""
FILLERS = """
    found each one own at known made asked given here there it some many more most least which what thing
    things other others this that both same whole part two first last item rest as_is told kept
"""
VERBS = """
    add all_gather allow append apply ask assert assign bound build calibrate call carry check choose clamp
    clear close collect combine compare compile compose compute copy correct cost count cover create cut
    decide decode deduplicate describe detect divide draw drop emit encode ensure estimate evaluate exchange
    expand explain export extend extract fetch fill filter find finish fit flatten format from gather get
    give group guess handle has import infer insert install interpolate invert is iter join judge keep label
    launch limit link list load lock look make map mark match measure merge move name normalize note open
    order pack pad parse pass permute pick place plan plot pool predict prepare price print probe project
    propose prove pull push put raise rank read rebuild record reduce refuse register reject release remove
    rename render repeat replace report require reset resolve restore resume round run sample save scale
    scan schedule score search select send serve set share shift show shrink simulate skip solve sort split
    spread start stop store strip subtract suggest sum swap take tell test time to trace transfer trim try
    tune unpack update use validate verify wait walk warn watch widen wrap write
"""


@pytest.mark.parametrize("room", NAMED)
def test_variables_are_nouns_and_functions_begin_with_a_verb(room: str) -> None:
    """At most 1 % of assignments go to filler names; at least 60 % of functions do as they are called."""
    variables, functions = list[str](), list[str]()
    folder = ROOT / ("" if room == "calibrate" else "perfmodel") / room
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                variables.append(node.id)
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
                if not marks & {"property", "cached_property"}:
                    functions.append(node.name.strip("_").partition("_")[0])
    fillers = Counter(name for name in variables if name in set(FILLERS.split()))
    assert fillers.total() <= 0.01 * len(variables), fillers
    nouns = [word for word in functions if word not in VERBS.split()]
    assert len(nouns) <= 0.4 * len(functions), nouns


_CLOCK = re.compile(r"\b(import|from) time\b|perf_counter|(process|thread)_time|ru_utime")
_BOUND = re.compile(r"\b(?:timeout|wait|join|communicate)(?:=|\()(\d[\d.]*)\b")
_SHORTEST_BOUND_S = 60.0
_TIMED = {
    "conftest.py": "it ends a test that hangs, by its processor time",
    "waiting.py": "it waits for other processes; nothing that is asserted depends on how long",
    "fake_gpu.py": "its events are a GPU's clock, which the product reads",
    "stand_in_torch.py": "its events are a GPU's clock, which the product reads",
    "team_rank.py": "a call that takes a millisecond at least",
    "test_waiting_line.py": "its clock of work is a counter",
    Path(__file__).name: "it looks for clocks",
}
"""Files of tests that may read a clock."""


def test_no_test_reads_a_clock_nor_waits_for_a_short_time() -> None:
    """A busy machine is slower; speed is measured in ``benchmarks/``, side by side."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert path.name in _TIMED or not _CLOCK.search(text), path
        assert all(float(bound) >= _SHORTEST_BOUND_S for bound in _BOUND.findall(text)), path


def test_files_that_start_ranks_are_there() -> None:
    """``RANKS`` of conftest.py: a file of another name would run beside them, and take their cores."""
    text = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    names = set(re.findall(r'"(\w+)"', text.partition("RANKS = {")[2].partition("}")[0]))
    assert names <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")} and names
