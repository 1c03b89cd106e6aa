"""Plans with tables below the HBM: what their page and the explanations of their steps say."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from cli_calls import planned as asked
from perfmodel.passes.allowed_tiers import Below
from perfmodel.schema.tiers import IN_HBM, parse_tier

from perfmodel.cli import run
from perfmodel.errors import BadInputError
from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.step_equations import BELOW_MEANINGS, MEANINGS, bytes_equation
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.steps import BELOW_HBM, step_label
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, write_plan
from perfmodel.plan.explain_step import explain_plan_step
from perfmodel.report.explanation_text import explanation_text
from perfmodel.schema.workload import Table, TableSet

BOX = "h100-sxm-ib"
CSV = "rows,dim,pooling,name\n1000000,64,300,near\n1000000,64,100,far\n"


def plan_of(tables: PlanTables, tier: str) -> tuple[Evaluator, Plan]:
    """Both tables on each of two GPUs, row-wise: one in HBM, one in a tier."""
    schemes = (Scheme(Exchange.RS, 2, tier=each) for each in (IN_HBM, parse_tier(tier)))
    plan = Plan(tables, tuple(Placement.of(scheme, [0, 1]) for scheme in schemes), 2, 2)
    return Evaluator.on(BOX, tables, 1024, 2, below=Below.of_plan(plan.tiers)), plan


def tables() -> PlanTables:
    return PlanTables.of(TableSet("two", (Table("near", 10**6, 64, 300.0), Table("far", 10**6, 64, 100.0))))


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("two.csv").write_text(CSV, encoding="utf-8")
    _, plan = plan_of(PlanTables.load("two.csv"), "uvm")
    write_plan(plan, Path("p.json"))
    return Path("p.json")


def test_the_hidden_gather_is_explained_and_no_host_step_of_a_plan_without_one() -> None:
    evaluator, plan = plan_of(tables(), "uvm")
    cost = evaluator.cost(plan)
    whole = next(row for row in cost.rows if row.name == "gather_host")
    for name in ("gather-pool", "gather", "gather + pool"):
        hidden = explain_plan_step(evaluator, plan, cost, name)
        assert hidden.step.name == "gather_pool"
        assert hidden.step.time_s == pytest.approx(whole.beside_s, rel=1e-12)
        assert "hidden behind gather (host)" in " ".join(hidden.working)
        assert hidden.step.payload_bytes == evaluator.loads(plan).most[Resource.GATHER_DRAM]
    cached, other = plan_of(tables(), "uvm-caching:10%")
    with pytest.raises(BadInputError, match="'gather-host' is not a step of this plan"):
        explain_plan_step(cached, other, cached.cost(other), "gather-host")


def test_each_step_of_a_tier_has_its_equation_of_bytes() -> None:
    known = {**MEANINGS, **BELOW_MEANINGS}
    for step in BELOW_HBM:
        text = bytes_equation(step)
        assert text and set(re.findall(r"\w+", text)) <= known.keys()
    evaluator, plan = plan_of(tables(), "uvm")
    step = evaluator.steps_by_name["gather_host"]
    assert bytes_equation(step) == "m row"
    reads = evaluator.loads(plan).most[Resource.IN_PLACE] / 256  # rows of 64 fp32: whole sectors
    assert 0.5 < reads / (2 * 1024 * 100 / 2) <= 1


def test_the_page_says_where_the_tables_are_and_how_to_explain_the_plan(saved: Path) -> None:
    assert asked("--plan", str(saved), "--model", "two.csv", "--report", "p.html")[0] == 0
    page = unescape(Path("p.html").read_text("utf-8"))
    assert "tables: 1 in HBM, 1 in host memory (uvm); host memory in use 256 MB" in page
    assert "a GPU holds 1 shard and reads 1 shard in host memory (uvm)." in page
    assert "perfmodel explain gather-host --plan p.json --model two.csv" in page
    assert re.search(r"gather \(host\)</th>.*?<td>m row</td></tr>", page)


def test_a_plan_and_a_tier_are_rejected(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--plan", str(saved), "--model", "two.csv", "--tier", "ssd")
    assert run(["plan", *more]) == 2
    assert "--plan and --tier cannot be combined" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tier", "name"),
    [
        ("uvm", "gather-host"),
        ("uvm-caching:10%", "cache-lookup"),
        ("uvm-caching:10%", "fetch-rows"),
        ("uvm-caching:10%,lfu", "gather-host"),
        ("ssd:10%", "read-ssd"),
    ],
)
def test_every_letter_of_the_bytes_is_in_the_list_of_terms(tier: str, name: str) -> None:
    evaluator, plan = plan_of(tables(), tier)
    found = explain_plan_step(evaluator, plan, evaluator.cost(plan), name)
    equation = re.sub(r"\[\w+\]|\((?=nothing|every)[^)]*\)|of the rows that .*", "", found.payload_equation)
    terms = [term.symbol for term in found.terms]
    assert len(terms) == len(set(terms))
    letters = set(re.findall(r"[A-Za-z]\w*", equation))
    words = {"S", "if", "max", "exp", "sum", "over", "of", "k", "bins", "e_1", "gap", "evicted_between"}
    known = {part for term in terms for part in re.findall(r"\w+", term)}
    assert letters - words <= known
    assert "``" not in explanation_text(found)
    if name != "gather-host":
        assert found.title.startswith(step_label(name.replace("-", "_")))


def test_tables_of_two_data_types_and_tiers_have_a_launch_each_in_torchrec() -> None:
    some = (Table("near", 10**6, 64, 8.0, "fp16"), Table("far", 10**6, 64, 8.0), Table("ssd", 10**6, 64, 8.0))
    mine = PlanTables.of(TableSet("three", some))
    schemes = [Scheme(Exchange.RB, tier=parse_tier(tier)) for tier in ("uvm", "uvm", "ssd:10%")]
    plan = Plan(mine, tuple(Placement.of(scheme, [0]) for scheme in schemes), 2, 2)
    for count, sets in ((3, ExchangeSets()), (1, None)):
        evaluator = Evaluator.on(BOX, mine, 64, 2, below=Below.of_plan(plan.tiers), sets=sets)
        assert int(evaluator.times.launches(evaluator.loads(plan).most)) == count
