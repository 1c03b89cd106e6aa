"""A plan file says what it was made for; the table of a plan begins with what matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome

from perfmodel.engine.schemes import Exchange
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, write_plan
from perfmodel.plan.files import MadeFor, read_made_for, read_plan
from perfmodel.plan.outcome import given_outcome
from perfmodel.report.plan_text import placements
from perfmodel.schema.workload import Table, TableSet

TABLES = "name,rows,dim,pooling\nbig,2000000,64,8\nsmall,5000,32,2\n"
SHORT = ("--effort", "quick", "--json")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "two.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


def test_a_plan_is_judged_on_what_it_was_made_for(cli: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    asked = ("--model", model, "--gpus", "8", "--machine", "h200-sxm-ib", "--batch", "4096")
    made = cli("plan", *asked, *SHORT, "--out", str(file))
    assert made.code == 0, made.err
    planned, said = json.loads(made.out), json.loads(file.read_text(encoding="utf-8"))["made_for"]
    assert (said["machine"], said["batch"], said["training"]) == ("h200-sxm-ib", 4096, False)
    again: Outcome = cli("plan", "--model", model, "--plan", str(file), *SHORT)
    found = json.loads(again.out)
    assert (found["machine"], found["batch"]) == ("h200-sxm-ib", 4096)
    assert found["time_s"] == planned["time_s"] and found["plan"] == planned["plan"]
    assert f"taken from {file}: --machine h200-sxm-ib --batch 4096" in " ".join(again.err.split())
    step = found["steps"][0]
    told = cli("plan", "--explain", step["name"], "--plan", str(file), "--model", model, "--json")
    assert json.loads(told.out)["step"]["time_s"] == step["time_s"]
    other = cli(
        "plan", "--model", model, "--plan", str(file), *SHORT, "--batch", "64", "--machine", "h100-sxm-ib"
    )
    judged = json.loads(other.out)
    assert (judged["machine"], judged["batch"]) == ("h100-sxm-ib", 64)


def test_the_tables_are_those_of_the_file(cli: Any, model: str, tmp_path: Path) -> None:
    """A file of tables is found beside the plan; other tables, and tables that are gone, are refused."""
    file = tmp_path / "p.json"
    made = cli("plan", "--model", model, "--gpus", "8", "--batch", "64", *SHORT, "--out", str(file))
    planned = json.loads(made.out)
    assert made.code == 0 and planned["plan"]["made_for"]["model_file"] == model
    again: Outcome = cli("plan", "--plan", str(file), *SHORT)
    assert again.code == 0, again.err
    assert json.loads(again.out)["time_s"] == planned["time_s"]
    assert f"taken from {file}: --model {model} --batch 64" in " ".join(again.err.split())
    step = planned["steps"][0]["name"].replace("_", "-")
    assert cli("plan", "--explain", step, "--plan", str(file), "--json").code == 0
    other = cli("plan", "--plan", str(file), "--model", "criteo-kaggle")
    assert other.code == 2 and "for 'two' as it was, not for criteo-kaggle" in " ".join(other.err.split())
    Path(model).unlink()
    gone = cli("plan", "--plan", str(file))
    assert (gone.code, gone.out) == (2, "") and "which are not known here" in " ".join(gone.err.split())
    assert "--model tables.csv" in gone.err


def test_what_was_typed_is_repeated(cli: Any, model: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    asked = (
        "--model",
        model,
        "--gpus",
        "8",
        "--set",
        "nvlink_bytes_per_s=900GB/s",
        "--distribution",
        "zipf:1.1",
    )
    assert cli("plan", *asked, "--objective", "throughput", *SHORT, "--out", str(file)).code == 0
    again = cli("plan", "--model", model, "--plan", str(file), *SHORT)
    words = f"taken from {file}: --set nvlink_bytes_per_s=900GB/s"
    assert f"{words} --objective throughput --distribution zipf:1.1" in " ".join(again.err.split())


def test_files_that_do_not_say_and_files_that_say_nonsense(model: str, tmp_path: Path) -> None:
    tables, file = PlanTables.load(model), tmp_path / "p.json"
    plan = Plan(tables, (Placement.of(Scheme(Exchange.DP)),) * 2, 4, 4)
    write_plan(plan, file)
    assert read_made_for(file) is None
    write_plan(plan, file, MadeFor.of(Evaluator.on("h200-sxm-ib", tables, 64, 4)))
    assert read_made_for(file) == MadeFor(machine="h200-sxm-ib", batch=64, id_dtype="int64")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"exchange": "dp"', '"exchange": "mail"', 1), encoding="utf-8")
    with pytest.raises(BadInputError, match=r"of table 'big' is none of bags, .*two-level, .*data-parallel"):
        read_plan(file, tables)
    file.write_text(text.replace('"batch": 64', '"batch": 0'), encoding="utf-8")
    with pytest.raises(BadInputError, match=r"made_for.*batch"):
        read_made_for(file)


def test_the_table_begins_with_the_largest_and_folds_copies() -> None:
    """40 tables that are copied, each another; a huge one that is hardly looked up; a busy one."""
    copied = [Table(f"copy_{n}", 1000 + n, 16, 1.0) for n in range(40)]
    huge, busy = Table("huge", 100_000_000, 64, 1.0), Table("busy", 2_000_000, 128, 100.0)
    tables = PlanTables.of(TableSet("many", (*copied, huge, busy)))
    rows = Placement.of(Scheme(Exchange.RB, 8), range(8))
    plan = Plan(tables, (*(Placement.of(Scheme(Exchange.DP)),) * 40, rows, rows), 8, 8)
    answer = given_outcome(Evaluator.on("h100-sxm-ib", tables, 1024, 8), plan, 80e9)
    first = [tables.names[group.tables[0]] for group, _ in answer.by_share[:2]]
    assert sorted(first) == ["busy", "huge"]
    lines = placements(answer).splitlines()
    assert {line.split()[0] for line in lines[1:3]} == {"busy", "huge"}
    assert lines[3].split()[:2] == ["40", "tables"] and "data-parallel" in lines[3]
    assert not any("copy_" in line for line in lines)
