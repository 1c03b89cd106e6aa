"""Counted work: a search ends by what it has done, and no clock is read."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from perfmodel import effort
from perfmodel.effort import Budget, Work
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.timing import round_off
from perfmodel.plan.outcome import outcome_of
from perfmodel.plan.searching.search import Found, Search


def test_a_budget_ends_when_its_work_is_done() -> None:
    work = Work()
    work.add(5e8, 3)  # before it begins
    budget = Budget(work, 2.0)
    assert (budget.spent_s, budget.share, budget.over()) == (0.0, 0.0, False)
    work.add(1e9)
    assert budget.share == 0.5 and budget.over(0.5) and not budget.over(0.6)
    work.add(1e9, 4)
    assert budget.over() and budget.share == 1.0
    assert Budget(work, 0.0).over() and not Budget(work, math.inf).over()


def test_sums_in_another_order_are_the_same_number_and_others_are_not() -> None:
    random = np.random.default_rng(1)
    values = 10 ** random.uniform(-8, 12, (2000, 30))
    forth, back = round_off(values.sum(axis=1)), round_off(values[:, ::-1].cumsum(axis=1)[:, -1])
    assert (values.sum(axis=1) != values[:, ::-1].cumsum(axis=1)[:, -1]).mean() > 0.2
    assert (forth == back).all()
    np.testing.assert_allclose(round_off(values), values, rtol=2.0**-33)
    assert (round_off(values * (1 + 1e-9)) != round_off(values)).all()
    kept = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -3.5])
    assert round_off(kept).tobytes() == kept.tobytes()


def searched(**more: Any) -> Found:
    tables = PlanTables.load("mlperf-dlrm-dcnv2")
    evaluator = Evaluator.on("h100-sxm-ib", tables, 1024, 16, training=True, optimizer="rowwise-adagrad")
    return Search(evaluator, 60e9, effort_s=0.7, **more).run()


def as_text(found: Found) -> str:
    placements = [(*vars(p.scheme).values(), p.ranks.tolist()) for p in found.plan.placements]
    return json.dumps([placements, found.cost.time_s, found.bound_s, found.tried], default=str)


def test_two_searches_have_one_answer() -> None:
    first = searched()
    assert as_text(searched()) == as_text(first)
    assert first.stopped == "effort" and first.done == 1.0


def with_next_best() -> int:
    """Groups of tables for which a next best scheme was tried, after a search of 26 tables."""
    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load("criteo-kaggle"), 1024, 64)
    search = Search(evaluator, 60e9, effort_s=0.1)
    found = search.run()
    return sum(group.next_best is not None for group in outcome_of(search, found).groups)


def test_next_best_schemes_take_no_more_work_than_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million GPUs a table takes a second; here a place to look at counts as much."""
    monkeypatch.setattr(effort, "PLACED", 1e9)
    monkeypatch.setattr(Search, "late", lambda search: False)
    assert with_next_best() <= 2
