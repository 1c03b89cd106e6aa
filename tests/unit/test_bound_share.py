"""What a search's time goes to: bound and plans each have a share of it, and neither waits for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from searches import counted_clock

from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding import bound as plan_bound
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.relaxation import Master, relax
from perfmodel.plan.searching import search as plan_search
from perfmodel.plan.searching.search import Search

MACHINE = "h100-sxm-ib"
LIMIT = 68e9
NONE = np.zeros(0, dtype=np.int64)


def evaluator() -> Evaluator:
    return Evaluator.on(MACHINE, PlanTables.load("embark-t180"), 512, 16)


def problem() -> Problem:
    of = evaluator()
    return Problem(Cover(of, LIMIT), StepCurves.of(of), LIMIT, 1.0)


def relaxed(patience: float) -> Relaxation:
    of = problem()
    found = relax(of, Subspace.whole(of), NONE, tolerance=0.01, patience=patience)
    assert found is not None
    return found


def solved_in(search: Search) -> int:
    """Parts of plans that both bounds have solved."""
    bounds = search.bounds
    return bounds.listed.solved + (0 if bounds.every is None else bounds.every.solved)


def test_few_tables_leave_the_bound_time_after_plans_were_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that counts looks; plans of few tables were changed until the time was up."""
    counted_clock(monkeypatch)
    search = Search(evaluator(), LIMIT, time_limit_s=4)
    assert search.small
    whole, took, annealed = search.deadline - search.began, [], search._anneal

    def timed() -> None:
        began, solved = plan_search.time.monotonic(), solved_in(search)
        annealed()
        took.append((plan_search.time.monotonic() - began, solved))

    monkeypatch.setattr(search, "_anneal", timed)
    search.run()
    assert took, "no plan was changed: another case is needed"
    (first_s, solved), *_ = took
    assert 0.1 * whole < first_s < 0.3 * whole
    assert solved_in(search) > solved


def test_a_part_is_left_when_smaller_boxes_do_not_raise_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    programs, solve = [0], Master.solve

    def counted(master: Master) -> Any:
        programs[0] += 1
        return solve(master)

    monkeypatch.setattr(Master, "solve", counted)
    all_s, of_all = relaxed(np.inf).bound_s, programs[0]
    some = relaxed(2)
    assert some.finer
    assert programs[0] - of_all < of_all
    assert 0.99 * all_s < some.bound_s <= all_s * (1 + 1e-9)


def test_a_part_that_cannot_be_split_is_solved_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[Relaxation] = []

    def recorded(*of: Any, **how: Any) -> Relaxation | None:
        found = relax(*of, **how)
        assert found is not None
        solved.append(found)
        return found

    monkeypatch.setattr(plan_bound, "relax", recorded)
    monkeypatch.setattr(plan_bound, "split", lambda *_: [])
    monkeypatch.setattr(plan_bound, "_PATIENCE", 2)
    of = problem()
    bounding = Bounding(of, lambda part, found: of.most_s, 0.01)
    bounding.run(lambda: False)
    assert [found.finer for found in solved] == [True, False]
    assert bounding.bound_s == max(found.bound_s for found in solved)
