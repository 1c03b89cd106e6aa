"""Figures of other pages than that of one question: their names, and what says where they are."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.plan.outcome import given_outcome
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import EVERY, PAGES, PLAN
from perfmodel.report.page import assemble
from perfmodel.report.page.plan_page import plan_blocks

Cli = Callable[..., Outcome]


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block | Missing]:
    return {block.name: block for block in plan_blocks(_answer())}


def _answer() -> Any:
    tables = PlanTables.load("criteo-kaggle")
    evaluator = Evaluator.on("h100-sxm-ib", tables, batch=1024, gpus=4)
    return given_outcome(evaluator, uniform_plan(tables, "table-wise", 4, 4), limit_bytes=68e9)


def test_names_are_those_of_the_pages(blocks: dict[str, Block | Missing]) -> None:
    assert list(blocks) == list(PLAN.shows)
    assert len(EVERY) == sum(len(page.figures) for page in PAGES), "a name stands twice"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("timeline", ("it is drawn on plan.html, a page that this command writes", "--report plan.html")),
        ("cores", ("the cores of one chip: it is drawn on cores.html", "perfmodel chip plan --chip")),
        ("over-gpus", ("more and more GPUs", "figure over-gpus --model")),
        ("compare-steps", ("two machines", "figure compare-steps --compare")),
    ],
)
def test_figures_of_other_pages_say_what_draws_them(cli: Cli, name: str, says: tuple[str, ...]) -> None:
    is_an_error(cli("figure", name), 2, *says)


def test_hatches_are_in_the_legend(blocks: dict[str, Block | Missing]) -> None:
    """What is told apart by its hatch has a name beside the others."""
    seen = 0
    for block in blocks.values():
        bars = [t for t in block.figure.data if t.type == "bar"] if isinstance(block, Block) else []
        hatched = [bar for bar in bars if bar.marker.pattern.shape]
        seen += len(hatched)
        assert all(bar.name and bar.showlegend is not False for bar in hatched)
        assert not hatched or len(bars) > 1
    assert seen > 2


def test_one_of_a_comparison(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "whole_page", None)  # no page is written on the way
    asked = ("--compare", "h100-sxm-ib", "h200-sxm-ib", "--table-size", "10TB", "--batch", "1024")
    done = cli("figure", "compare-steps", *asked, "--pooling", "32", "--dim", "32", "--json")
    told = json.loads(done.out)
    assert told["title"].startswith("For 10 TB the longest step of A is the reduce-scatter (bags) (66.4 % ")
    assert {row[0] for row in told["rows"]} == {"A", "B"}


def test_each_is_drawn_by_a_function_of_its_own() -> None:
    """The registry names functions as text: each is there."""
    makers = [figure.maker.rpartition(".")[::2] for page in PAGES for figure in page.figures]
    assert len(set(makers)) == len(makers)
    for module, function in makers:
        assert callable(getattr(importlib.import_module(module, "perfmodel.report.figures"), function))
