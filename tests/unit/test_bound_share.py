"""What a search's work goes to: bound and plans each have a share of it, and neither waits for nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding import bound as plan_bound
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.relaxation import Master, relax
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.searching.search import Search

MACHINE = "h100-sxm-ib"
LIMIT = 68e9
NONE = np.zeros(0, dtype=np.int64)


def evaluator(model: str = "embark-t180") -> Evaluator:
    return Evaluator.on(MACHINE, PlanTables.load(model), 512, 16)


def problem() -> Problem:
    of = evaluator()
    return Problem(options_of(of, LIMIT), StepCurves.of(of), LIMIT, 1.0)


def relaxed(*, coarse: bool) -> Relaxation:
    of = problem()
    found = relax(of, Subspace.whole(of), NONE, tolerance=0.01, stop_s=1.0, coarse=coarse)
    assert found is not None
    return found


def solved_in(search: Search) -> int:
    """Parts of plans that the bound has solved."""
    assert search.bounds is not None
    return search.bounds.solved + (search.bounds.means.solved if search.bounds.means else 0)


def test_few_tables_leave_the_bound_work_after_plans_were_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of few tables were changed until nothing was left for the bound."""
    search = Search(evaluator("embark-t200"), LIMIT, effort_s=2)
    assert search.small
    took: list[tuple[float, int]] = []
    annealed = search._anneal

    def recorded(until: Any) -> None:
        began, solved = search.budget.share, solved_in(search)
        annealed(until)
        took.append((search.budget.share - began, solved))

    monkeypatch.setattr(search, "_anneal", recorded)
    search.run()
    assert took, "no plan was changed: another case is needed"
    (first, solved), *_ = took
    assert 0.1 < first < 0.5
    assert solved_in(search) > solved


def test_a_part_whose_bound_is_far_from_the_best_plan_is_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    programs, solve = [0], Master.solve

    def counted(master: Master) -> Any:
        programs[0] += 1
        return solve(master)

    monkeypatch.setattr(Master, "solve", counted)
    whole, of_whole = relaxed(coarse=False), programs[0]
    some = relaxed(coarse=True)
    assert some.finer and not whole.finer
    assert programs[0] - of_whole < of_whole
    assert 0.5 * whole.bound_s < some.bound_s <= whole.bound_s * (1 + 1e-9)


def test_a_part_that_cannot_be_split_is_solved_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[Relaxation] = []

    def recorded(*of: Any, **how: Any) -> Relaxation | None:
        found = relax(*of, **how)
        assert found is not None
        solved.append(found)
        return found

    monkeypatch.setattr(plan_bound, "relax", recorded)
    monkeypatch.setattr(plan_bound, "split", lambda *_: [])
    of = problem()
    bounding = Bounding(of, lambda part, found: of.most_s, 0.01)
    bounding.run(lambda: False)
    assert [found.finer for found in solved] == [True, False]
    assert bounding.bound_s == max(found.bound_s for found in solved)


def test_tables_that_are_not_copied_cost_what_their_cheapest_cut_does() -> None:
    """With no copy at all and any prices the least is that of the other options, looked at one by one."""
    of = problem()
    o, Q = of.options, of.options.count.size
    part = replace(Subspace.whole(of), most=np.zeros(Q))
    price = np.random.default_rng(3).uniform(1, 2, o.copied.size)
    cost, column = Master(of, part)._cheapest(price)
    for q, (first, last) in enumerate(itertools.pairwise(o.first)):
        options = [at for at in range(first, last) if not o.copied[at]]
        if options:
            best = min(options, key=lambda at: price[at])
            assert (cost[q], column[q]) == (price[best], best)
