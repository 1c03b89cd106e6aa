"""Figures of pages: their names, their hatches, and the functions that draw them."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.plan.outcome import given_outcome
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import PLAN
from perfmodel.report.page.plan_page import plan_blocks


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block | Missing]:
    return {block.name: block for block in plan_blocks(_answer())}


def _answer() -> Any:
    tables = PlanTables.load("criteo-kaggle")
    evaluator = Evaluator.on("h100-sxm-ib", tables, batch=1024, gpus=4)
    return given_outcome(evaluator, uniform_plan(tables, "table-wise", 4, 4), limit_bytes=68e9)


def test_names_are_those_of_the_pages(blocks: dict[str, Block | Missing]) -> None:
    assert list(blocks) == [figure.name for figure in PLAN]


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
