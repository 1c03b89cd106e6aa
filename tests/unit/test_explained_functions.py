"""Numbers drawn at random from what commands print: each has a function to import, and a section."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_equations import anchors, function_table, page_text, with_equation

from perfmodel.cli import run
from perfmodel.passes.equations import PAGE, SECTIONS, section_of

_DRAWN = {"project": 14, "plan": 12, "collective": 10}
"""How many numbers of each command's answers."""


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Options of a plan of three tables in three exchanges on 16 GPUs."""
    monkeypatch.chdir(tmp_path)
    rows = "name,rows,dim,pooling\na,10000000,64,20\nb,5000,32,3\nc,40000000,128,10\n"
    Path("three.csv").write_text(rows, encoding="utf-8")
    from perfmodel.passes.schemes import Exchange
    from perfmodel.plan import Placement, Plan, PlanTables, Scheme, write_plan

    tables = PlanTables.load("three.csv")
    placed = (
        Placement.of(Scheme(Exchange.RB, 4, 1), [0, 1, 2, 3]),
        Placement.of(Scheme(Exchange.DP)),
        Placement.of(Scheme(Exchange.UB, 8, 2, 1000), range(16)),
    )
    write_plan(Plan(tables, placed, 16, 8), Path("plan.json"))
    return "--model three.csv --plan plan.json --batch 512"


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    code = run([*line.split(), "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def imported(name: str) -> Any:
    """What a dotted name means: the longest module, then attributes."""
    words = name.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:cut]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            found = getattr(found, word)
        return found
    raise AssertionError(name)


def check(function: str, section: str) -> None:
    assert callable(imported(function)), function
    page, _, anchor = section.partition("#")
    assert page == PAGE and anchor in anchors(), section


def equations(said: Any) -> Iterator[tuple[str, str]]:
    """Every (function, section) of a document."""
    if isinstance(said, dict):
        if "function" in said:
            yield said["function"], said["section"]
        if said.get("payload_function"):
            yield said["payload_function"], said["payload_section"]
    children = said.values() if isinstance(said, dict) else said if isinstance(said, list) else ()
    for child in children:
        yield from equations(child)


def test_a_printed_number_is_explained_by_its_function(
    capsys: pytest.CaptureFixture[str], plan_file: str
) -> None:
    """Times of steps of a projection, a sharding and a plan, of a collective."""
    drawn, seen = random.Random(14), list[str]()
    lines = [
        "project --table-size 10TB --sharding row-wise",
        "project --table-size 10TB --sharding ub --machine h200-sxm-ib",
        "project --model mlperf-dlrm-dcnv2 --gpus 16 --payload fp16 --sharding row-wise",
        "project --table-size 10TB --scenario nvlink-everywhere --sharding row-wise",
        "project --gpus 8 --backend best --machine h200-sxm-ib --sharding row-wise",
        f"plan {plan_file}",
        f"plan {plan_file} --objective throughput",
    ]
    pool: list[tuple[str, str, int]] = []  # command, field, place of the step
    for line in lines:
        steps = answer(capsys, line)["steps"]
        pool += [(line, field, at) for at in range(len(steps)) for field in ("time_s", "high_s")]
    pool += [
        (f"collective --op {op} --size {size} --gpus {gpus}", "time_s", 0)
        for op in ("all_to_all", "all_gather", "all_reduce", "reduce_scatter", "broadcast")
        for size, gpus in (("1GiB", 128), ("64KiB", 8), ("100000", 6), ("33MB", 24))
    ]
    chosen = [
        each
        for name, count in _DRAWN.items()
        for each in drawn.sample([one for one in pool if one[0].startswith(name)], count)
    ]
    for line, field, at in chosen:
        printed = answer(capsys, line)
        command, _, options = line.partition(" ")
        if command == "collective":
            said = answer(capsys, f"explain collective {options}")
            value, told = printed[field], said[field]
            assert said["stages"][-1]["time_s"] == value
        else:
            step = printed["steps"][at]
            said = answer(capsys, f"explain {step['name'].replace('_', '-')} {options}")
            value, told = step[field], said["step"][field]
        assert told == value, (line, field)
        found = list(equations(said))
        assert found, line
        for function, section in found:
            check(function, section)
        seen.append(f"{line} {field}[{at}] = {value:.6g}: {found[0][0]} {found[0][1]}")
    print("\n".join(seen))


def test_every_function_with_an_equation_is_on_the_page() -> None:
    assert len(list(with_equation())) > 100
    assert function_table() in page_text(), "run python tests/unit/model_equations.py"
    for function in with_equation():
        assert section_of(function).partition("#")[2] in anchors()


def test_every_section_that_is_named_exists() -> None:
    assert set(SECTIONS.values()) <= anchors()
    for name in SECTIONS:
        imported(name)
