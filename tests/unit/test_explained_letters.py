"""Each letter of an explanation is one term."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from cli_calls import Outcome

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.explanation import Explanation
from perfmodel.plan import Evaluator, Plan, PlanTables, uniform_plan
from perfmodel.plan.explain_step import explain_plan_step, explain_step
from perfmodel.projections import project_one
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_time

QUESTIONS: list[dict[str, Any]] = [
    {"objective": "training"},
    {"reduction": "two_level"},
    {"machine": "h100-sxm-efa"},
]
_SYMBOL = r"log2|[A-Za-z_]\w*(?:\([A-Z][\w ]*\))?"
_OPERATIONS = {"max", "min", "ceil", "log2", "sqrt"}


def name_of(options: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items())


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


def test_several_launches_have_the_letters_of_the_formula() -> None:
    """A table by rows and a whole one: two launches, whose floor is a step of its own in the working."""
    tables = PlanTables.of(
        TableSet("two", tuple(Table(name, 10**6, 32, 8.0) for name in "ab")), parse_distribution("uniform")
    )
    how: dict[str, Any] = {"training": True, "sets": ExchangeSets()}
    evaluator = Evaluator.on("h100-sxm-ib", tables, 512, 8, **how)
    rows, _ = uniform_plan(tables, "row-wise", 8, evaluator.domain).placements
    _, whole = uniform_plan(tables, "table-wise", 8, evaluator.domain).placements
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
    assert several >= {"sort_lookups", "update_rows", "gather_pool"}
