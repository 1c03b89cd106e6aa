"""Steps of a plan, explained: the equation of the largest table gives its bytes, in every exchange."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from test_shardings import value_of

from perfmodel.cli import run
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, write_plan
from perfmodel.plan.explain_step import explain_plan_step
from perfmodel.schema.distributions import UNIFORM, zipf
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import parse_bytes

GPUS, DOMAIN = 16, 8
SCHEMES = {
    "copies": Scheme(Exchange.DP),
    "table-wise": Scheme(Exchange.RB),
    "parts": Scheme(Exchange.RB, 4, 2),
    "hot parts": Scheme(Exchange.RB, 4, 2, 1000),
    "hot whole": Scheme(Exchange.RB, 1, 2, 1000),
    "row-wise": Scheme(Exchange.RS, 16, 1),
    "sparse": Scheme(Exchange.SPARSE, 8, 1),
    "hot sparse": Scheme(Exchange.SPARSE, 8, 1, 500),
    "one domain": Scheme(Exchange.TWO_LEVEL, 8, 1),
    "all domains": Scheme(Exchange.TWO_LEVEL, 16, 1),
    "unique rows": Scheme(Exchange.UB, 4, 2),
    "hot unique rows": Scheme(Exchange.UB, 4, 2, 1000),
}


@pytest.mark.parametrize("payload", [None, "fp16"])
@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", SCHEMES)
def test_the_equation_of_the_largest_table_gives_its_bytes(
    name: str, training: bool, payload: str | None
) -> None:
    scheme = SCHEMES[name]
    ids = zipf(1.05) if scheme.hot_rows else UNIFORM
    tables = PlanTables.of(TableSet("one", (Table("only", 1_000_000, 64, 20, "fp32"),)), ids)
    plan = Plan(tables, (Placement.of(scheme, np.arange(scheme.parts)),), GPUS, DOMAIN)
    options = {"optimizer": "rowwise-adagrad"} if training else {}
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, GPUS, payload=payload, training=training, **options)
    cost = evaluator.cost(plan)
    for row in cost.rows:
        found = explain_plan_step(evaluator, plan, cost, row.name)
        values: dict[str, float] = {}
        for term in found.terms:
            values.setdefault(term.symbol, term.value)
        if found.payload_equation != "0":
            size = value_of(found.payload_equation, values)
            assert size == pytest.approx(row.payload_bytes, rel=1e-9), row.name
        assert found.step == row and found.title.startswith(row.label)
        assert found.payload.function and found.time.equations[0].function


@pytest.mark.parametrize(
    ("name", "written"),
    [("table-wise", 1.2 * (64 * 4 + 8)), ("parts", 1.2 * (32 * 4 + 8)), ("unique rows", 1.2 * 32 * 2)],
)
def test_a_bag_that_a_gather_writes_is_its_fp32_columns_and_an_offset(name: str, written: float) -> None:
    """Bytes of a row are what is left of all, so no sum tells; rows that are sent stay as stored, in fp16."""
    tables = PlanTables.of(TableSet("one", (Table("only", 1_000_000, 64, 20, "fp16"),)), UNIFORM)
    scheme = SCHEMES[name]
    plan = Plan(tables, (Placement.of(scheme, np.arange(scheme.parts)),), GPUS, DOMAIN)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, GPUS)
    found = explain_plan_step(evaluator, plan, evaluator.cost(plan), "gather")
    assert next(term.value for term in found.terms if term.symbol == "o") == pytest.approx(written)


def test_what_a_plan_prints_is_what_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tables of 3 row parts each on 6 GPUs, as a search wrote them: every step, time, bytes, who."""
    monkeypatch.chdir(tmp_path)
    rows = "name,rows,dim,pooling\na,10000000,16,60\nb,10000000,16,30\n"
    Path("two.csv").write_text(rows, encoding="utf-8")
    placed = [(Exchange.RB, [0, 1, 2]), (Exchange.RB, [3, 4, 5])]
    parts = tuple(Placement.of(Scheme(kind, 3), ranks) for kind, ranks in placed)
    write_plan(Plan(PlanTables.load("two.csv"), parts, 6, 6), Path("two.json"))
    words = ["--model", "two.csv", "--plan", "two.json", "--batch", "8192", "--json"]
    assert run(["plan", *words]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    for step in steps:
        assert run(["explain", step["name"], *words]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["step"]["time_s"] == step["time_s"]
        assert said["step"]["payload_bytes"] == step["bytes"]
        line = said["working"][0]
        if line.startswith("S = "):  # of one size for all it is its equation alone
            size = re.search(r"= ([\d.]+ [KMG]?i?B)( on |$)", line)
            assert size and parse_bytes(size[1]) == pytest.approx(step["bytes"], rel=0.01)
    assert run(["explain", "gather", *words[:-1]]) == 0
    text = capsys.readouterr().out
    assert "on rank 0" in text and "tables there: a " in text
    assert run(["explain", "gradients", *words]) != 0
    assert "is not a step of this plan" in capsys.readouterr().err
    assert run(["explain", "update-rows", *words]) != 0
    assert "--objective" in capsys.readouterr().err


def test_the_time_of_a_gather_is_that_of_all_its_tables() -> None:
    """The equation of the time with the printed terms gives the time; of S it is said that it is a sum."""
    sizes = (Table(name, 5_000_000, 64, 20.0 * n, "fp32") for n, name in enumerate("abc", start=1))
    tables = PlanTables.of(TableSet("three", tuple(sizes)), zipf(1.05))
    placed = [Placement.of(Scheme(Exchange.RB), [0]), Placement.of(Scheme(Exchange.RB, 4, 2), range(8))]
    plan = Plan(tables, (placed[0], placed[1], placed[0]), GPUS, DOMAIN)
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, GPUS)
    cost = evaluator.cost(plan)
    found = explain_plan_step(evaluator, plan, cost, "gather")
    value = {term.symbol: term.value for term in found.terms}
    rates = (value["dram_bytes"] / value["dram_rate"], value["l2_bytes"] / value["l2_rate"])
    assert value["t0"] + max(rates) == pytest.approx(found.step.time_s, rel=1e-9)
    assert value["dram_bytes"] == pytest.approx(found.step.payload_bytes, rel=1e-9)
    assert found.payload_equation == "sum over the 3 tables there of ( n × (r + id) + bags × o )"
    assert next(term for term in found.terms if term.symbol == "n").meaning.endswith(", of c")


def test_the_line_that_a_plan_prints_explains_its_longest_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the plan's time of it; without ``--plan`` the first line says that it is of another pass."""
    monkeypatch.chdir(tmp_path)
    Path("two.csv").write_text(
        "name,rows,dim,pooling\na,10000000,16,60\nb,10000000,16,30\n", encoding="utf-8"
    )
    placed = tuple(Placement.of(Scheme(Exchange.RB, 3), ranks) for ranks in ([0, 1, 2], [3, 4, 5]))
    write_plan(Plan(PlanTables.load("two.csv"), placed, 6, 6), Path("two.json"))
    assert (
        run(["plan", "--model", "two.csv", "--plan", "two.json", "--batch", "512", "--reserve", "20%"]) == 0
    )
    out = capsys.readouterr().out
    line = out.split("The equation behind its longest step:\n")[1].replace("\\\n", " ").split()
    assert line[:2] == ["perfmodel", "explain"] and "--reserve" not in line
    assert run(line[1:]) == 0
    text = capsys.readouterr().out
    time = re.search(r"GPUs of [\w-]+: ([\d.]+ .?s)", text.splitlines()[0])
    assert time is not None and re.search(
        rf"^ {re.escape(text.split(' on 6 GPUs')[0])} .* {time[1]} ", out, re.M
    )
    assert run(["explain", "gather", "--model", "two.csv", "--gpus", "6"]) == 0
    assert capsys.readouterr().out.startswith("A step of row-wise, as project has it.")


def test_options_of_one_kind_of_explanation_are_refused_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = PlanTables.of(TableSet("one", (Table("only", 1_000_000, 64, 20, "fp32"),)))
    write_plan(Plan(tables, (Placement.of(Scheme(Exchange.RB), [0]),), GPUS, DOMAIN), Path("plan.json"))
    for words, said in (
        (["collective", "--op", "all_to_all", "--size", "1GiB"], "see perfmodel explain collective --help"),
        (["collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "8", "--dim", "3"], "--dim says"),
        (["collective", "--op", "all_to_all", "--size", "1GiB,2GiB", "--gpus", "8"], "these are 2"),
        (["collective", "--op", "all_to_all", "--size", "1GiB", "--gpus", "1"], "sends nothing"),
        (["gather", "--op", "all_to_all"], "--op says nothing about a step of project"),
        (["gather", "--plan", "plan.json"], "for the tables of 'one', which are not known here"),
        (["gather", "--plan", "plan.json", "--dim", "3"], "--dim says nothing about a plan"),
        (["gather", "--model", "collective"], "table set 'collective' is not known"),  # a value is no command
        (["--json", "collective", "--op", "all_to_all"], "--size"),
        (["gather", "--nothing", "3"], "No such option"),
    ):
        assert run(["explain", *words]) == BadInputError.exit_code
        assert said in capsys.readouterr().err, words
