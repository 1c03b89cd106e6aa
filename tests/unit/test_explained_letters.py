"""Each letter of an explanation is one term, and the equation of a tier has the letters of its working."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from cli_calls import Outcome
from perfmodel.passes.allowed_tiers import Below
from perfmodel.schema.tiers import parse_tier

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.explanation import Explanation
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, uniform_plan
from perfmodel.plan.explain_step import explain_plan_step, explain_step
from perfmodel.projections import project_one
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_time

QUESTIONS: list[dict[str, Any]] = [
    {"objective": "training"},
    {"reduction": "two_level"},
    {"machine": "h100-sxm-efa"},
    *({"tier": tier} for tier in ("uvm", "uvm-caching:1%", "ssd:1%")),
]
_SYMBOL = r"log2|[A-Za-z_]\w*(?:\([A-Z][\w ]*\))?"
_OPERATIONS = {"max", "min", "ceil", "log2", "sqrt"}


def name_of(options: dict[str, Any]) -> str:
    given = (f"{key}={value}" for key, value in options.get("overrides", {}).items())
    return " ".join([options.get("tier", ""), *given])


def explained(options: dict[str, Any]) -> list[Explanation]:
    answer = project_one(table_bytes=10e12, **options)
    return [explain_step(answer, step.name) for step in answer.steps]


def equations(lines: Iterable[str]) -> list[list[str]]:
    """[letter, equation in letters, the same in numbers, value] of the lines of a working that have these."""
    parts = [line.split(" = ") for line in lines]
    return [each for each in parts if len(each) == 4 and re.fullmatch(_SYMBOL, each[0])]


def plain(numbers: str) -> str:
    return re.sub("[()]", "", numbers)


def filled(letters: str, text: dict[str, str]) -> str:
    return re.sub(_SYMBOL, lambda each: text.get(each[0], each[0]), letters)


def check(said: dict[str, Any]) -> None:
    """Each letter replaced by the number of its term: the numbers that the working prints."""
    text = {term["symbol"]: term["text"].split(" (")[0] for term in said["terms"]}
    assert len(text) == len(said["terms"]), said["title"]
    for _, letters, numbers, _ in equations(said["working"]):
        assert set(re.findall(_SYMBOL, letters)) <= text.keys() | _OPERATIONS, letters
        assert plain(filled(letters, text)) == plain(numbers), (said["title"], letters)


def check_tier(found: Explanation) -> None:
    worked = {f"{symbol} = {letters}" for symbol, letters, *_ in equations(found.working)}
    assert set(found.equation.splitlines()) == worked, found.title


@pytest.mark.parametrize("options", QUESTIONS, ids=name_of)
def test_a_letter_has_the_number_of_its_term(options: dict[str, Any]) -> None:
    for found in explained(options):
        check(found.to_dict())


def test_a_letter_has_the_number_of_its_term_in_the_best_sharding(cli: Callable[..., Outcome]) -> None:
    typed = ("--table-size", "10TB", "--json")
    names = [step["name"].replace("_", "-") for step in json.loads(cli("project", *typed).out)["steps"]]
    assert "reduce-scatter-bags" in names
    for name in names:
        check(json.loads(cli("explain", name, *typed).out))


@pytest.mark.parametrize("options", [each for each in QUESTIONS if "tier" in each], ids=name_of)
def test_the_equation_of_a_tier_is_that_of_its_working(options: dict[str, Any]) -> None:
    below = [found for found in explained(options) if ".tiers." in found.time.equations[0].function]
    assert below
    for found in below:
        check_tier(found)


@pytest.mark.parametrize("tier", ["hbm", "uvm"])
def test_several_launches_have_the_letters_of_the_formula(tier: str) -> None:
    """A table by rows and a whole one: two launches, whose floor is a step of its own in the working."""
    tables = PlanTables.of(
        TableSet("two", tuple(Table(name, 10**6, 32, 8.0) for name in "ab")), parse_distribution("uniform")
    )
    below = None if tier == "hbm" else Below.of([parse_tier(tier)])
    how: dict[str, Any] = {"below": below, "training": True, "sets": ExchangeSets()}
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, 8, **how)
    rows, _ = uniform_plan(tables, "row-wise", 8, evaluator.domain).placements
    _, whole = uniform_plan(tables, "table-wise", 8, evaluator.domain).placements
    if below is not None:
        rows = Placement(replace(rows.scheme, tier=parse_tier(tier)), rows.ranks)
    plan = Plan(tables, (rows, whole), 8, evaluator.domain)
    several = set()
    cost = evaluator.cost(plan)
    for step in cost.rows:
        found = explain_plan_step(evaluator, plan, cost, step.name.replace("_", "-"))
        check(found.to_dict())
        letters = {term.symbol for term in found.terms}
        if "n_launch" in letters:
            several.add(step.name)
            formula = found.time.equations[0].text.replace(" [s]", "").splitlines()
            lines = equations(found.working)
            assert set(formula) <= {f"{name} = {said}" for name, said, *_ in lines}, found.title
            assert [term.value for term in found.terms if term.symbol == "n_launch"] == [2]
            assert format_time(step.time_s) in [value for name, *_, value in lines if name == "t"]
    assert several >= {"sort_lookups", "update_rows"} and several & {"gather_pool", "gather_host"}
