"""Counted work: a search ends by what it has done, and the clock may only cut it short."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from perfmodel import effort
from perfmodel.effort import EFFORTS, Budget, Deadline, Work
from perfmodel.engine.timing import round_off
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.outcome import outcome_of
from perfmodel.plan.searching.search import Found, Search


def test_a_budget_ends_when_its_work_is_done() -> None:
    work = Work()
    work.add(5e8, 3)  # before it begins
    budget = Budget(work, 2.0)
    assert (budget.spent_s, budget.share, budget.over()) == (0.0, 0.0, False)
    work.add(1e9)
    assert (budget.left_s, budget.share) == (1.0, 0.5)
    assert budget.over(0.5) and not budget.over(0.6) and budget.over(more_s=1.0)
    work.add(1e9, 4)
    assert budget.over() and budget.share == 1.0 and budget.left_s == 0.0 and not budget.cut
    assert Budget(work, 0.0).over() and not Budget(work, math.inf).over()


def test_the_clock_cuts_a_budget_short_and_it_stays_cut() -> None:
    now = [100.0]
    budget = Budget(Work(), 2.0, cap_s=3.0, clock=lambda: now[0])
    now[0] = 102.9
    assert not budget.over() and not budget.cut
    now[0] = 103.0
    assert budget.over() and budget.cut and budget.left_s == 0.0
    now[0] = 100.0
    assert budget.over() and budget.share == 0.0


def test_someone_may_stop_a_budget() -> None:
    asked = [False]
    budget = Budget(Work(), 2.0, stop=lambda: asked[0])
    assert not budget.over()
    asked[0] = True
    assert budget.over() and budget.cut


def test_searches_share_what_time_is_left() -> None:
    now = [0.0]
    ends = Deadline(6.0, lambda: now[0])
    assert ends.share(3) == 2.0 and not ends.over
    now[0] = 4.0
    assert ends.share(2) == 1.0
    now[0] = 9.0
    assert ends.share() == 0.0 and ends.over
    assert Deadline(None).share() is None and not Deadline(None).over


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


def test_a_search_without_a_time_limit_never_reads_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> float:
        raise AssertionError("the clock was read")

    first = searched()
    monkeypatch.setattr(effort.time, "monotonic", read)
    monkeypatch.setattr(effort.time, "perf_counter", read)
    again = searched()
    assert as_text(again) == as_text(first)
    assert first.stopped == "effort" and first.done == 1.0


def test_a_search_that_is_cut_short_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(10**9))
    monkeypatch.setattr(Budget.__init__, "__defaults__", (None, None, lambda: float(next(looks))))
    found = searched(time_limit_s=100.0)
    assert found.stopped == "time-limit" and 0 < found.done < 1


def with_next_best(tables: str = "criteo-kaggle", **more: Any) -> int:
    """Groups of tables for which a next best scheme was tried, after a search of 26 tables."""
    evaluator = Evaluator.on("h100-sxm-ib", PlanTables.load(tables), 1024, 64)
    search = Search(evaluator, 60e9, effort_s=0.1, **more)
    found = search.run()
    return sum(group.next_best is not None for group in outcome_of(search, found).groups)


def test_no_next_best_scheme_is_tried_after_the_time_limit() -> None:
    """A limit of a nanosecond is over at once: what was begun is ended, and nothing more."""
    assert with_next_best() > 10 and with_next_best(time_limit_s=1e-9) == 1


def test_next_best_schemes_take_no_more_work_than_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a million GPUs a table takes a second; here a place to look at counts as much."""
    monkeypatch.setattr(effort, "PLACED", 1e9)
    monkeypatch.setattr(Search, "late", lambda search: False)
    assert with_next_best() <= 2


def test_a_name_of_an_effort_is_more_work_than_the_one_before() -> None:
    assert list(EFFORTS) == ["quick", "normal", "thorough"]
    assert list(EFFORTS.values()) == sorted(EFFORTS.values())
