"""The bound from mean loads: below every plan, near a good one, quick where there are many tables."""

from __future__ import annotations

import numpy as np

from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding.at_once import at_once
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.hulls import Hulls
from perfmodel.plan.bounding.mean_loads import MeanLoads
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def test_many_different_tables_have_a_bound_near_a_plan_in_few_parts() -> None:
    random = np.random.default_rng(5)
    shapes = [(int(10 ** random.uniform(3, 6.5)), 64, float(random.integers(1, 40))) for _ in range(50)]
    tables = PlanTables.of(TableSet("many", tuple(Table(f"t{i}", *s) for i, s in enumerate(shapes))))
    evaluator = Evaluator.on(MACHINE, tables, 4096, 16)
    search = Search(evaluator, 2e9, effort_s=0.3)
    search.starts.quick(lambda: True)
    best_us, loads = search.best_s * 1e6, evaluator.loads(search.best.plan()).most  # type: ignore[union-attr]
    curves = StepCurves.of(evaluator)
    problem = Problem(search.options, curves, 2e9, search.best_s)
    start = at_once(problem, curves.units(loads))
    means = MeanLoads(problem, start.mean, start.room)
    means.run(best_us * 0.99, lambda: means.solved >= 80)
    assert start.bound_s * 1e6 * 1.1 < means.bound_us
    assert 0.75 * best_us < means.bound_us <= best_us


def test_a_hull_is_below_its_curve_and_near_the_largest_one_that_is() -> None:
    tables = PlanTables.of(TableSet("one", (Table("a", 10**6, 64, 8),)))
    curves = StepCurves.of(Evaluator.on(MACHINE, tables, 4096, 16))
    hulls = Hulls(curves)
    first, last = 300, 7000
    places = np.full(len(curves.times), first), np.full(len(curves.times), last)
    for slope in np.logspace(-13, -6, 15):
        exact = curves.least(np.full(len(curves.times), slope), *places) * 1e6
        at = np.stack([np.full(len(curves.times), slope * 1e6)])
        found = float(hulls.least(at, *places)[0])
        assert exact.sum() - 3e-4 * hulls.times[:, last].sum() <= found <= exact.sum() + 1e-9
    size, taken = hulls.of(0, first, last)
    bend = np.diff(np.diff(taken) / np.diff(size))
    assert (bend >= -1e-12).all() and size.size < 40


def test_a_bound_that_is_stopped_at_any_time_holds_and_goes_on() -> None:
    tables = PlanTables.of(
        TableSet("some", tuple(Table(f"t{i}", 30_000 * i, 32, 2.0 * i) for i in range(1, 30)))
    )
    evaluator = Evaluator.on(MACHINE, tables, 2048, 16)
    options = options_of(evaluator, 400e6)
    best = Search(evaluator, 400e6, effort_s=0.1, options=options).run().cost.time_s
    curves = StepCurves.of(evaluator)
    means = MeanLoads(Problem(options, curves, 400e6, best), np.zeros(curves.step.size), 1.0)
    found = []
    for asked in range(1, 40, 3):
        looks = iter(range(asked))
        means.run(best * 1e6, lambda looks=looks: next(looks, None) is None)  # type: ignore[misc]
        found.append(means.bound_us)
    assert (np.diff(found) >= -1e-9).all()
    assert 0 < found[-1] <= best * 1e6
