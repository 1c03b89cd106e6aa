"""The bound with whole tables: true, the least of all choices, and stopped when it is told to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from oracles.bound_cases import random_case, whole_s
from oracles.plan_files import descended

from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.mixed_integer import MixedInteger, undominated
from perfmodel.plan.bounding.problem import Problem, Subspace
from perfmodel.plan.bounding.relaxation import relax
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.pricing.allowed_tiers import Below
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.tiers import parse_tiers
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"
ROUNDING = 1 + 1e-9


def problem_of(*tables: Table, gpus: int = 4, limit: float = np.inf, batch: int = 4096) -> Problem:
    """Listed schemes of these tables; a very slow plan is known."""
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("few", tables)), batch, gpus)
    return Problem(options_of(evaluator, limit), StepCurves.of(evaluator), limit, 1.0)


def solved(problem: Problem) -> tuple[MixedInteger, list[np.ndarray]]:
    """The program, solved, and the solutions that it found."""
    whole, found = MixedInteger(problem), list[np.ndarray]()
    whole.solve(lambda: False, found.append)
    return whole, found


def mean_s(problem: Problem, options: tuple[int, ...]) -> float:
    """Time of these options if loads were even, but for the largest shard [s]; infinite: no room."""
    at = np.array(options)
    if problem.options.average_memory[at].sum() > problem.limit_bytes:
        return np.inf
    every = problem.everywhere[at].sum(axis=0)
    sizes = np.maximum(problem.average[at].sum(axis=0), every + problem.own[at].max(axis=0))
    most = np.zeros(len(problem.curves.times))
    np.maximum.at(most, problem.curves.step, sizes)
    place = np.searchsorted(problem.curves.sizes, most)
    return float(problem.curves.times[np.arange(most.size), place].sum())


@pytest.mark.parametrize("limit", [np.inf, 20e6])
def test_it_is_the_least_of_all_choices_of_whole_tables(limit: float) -> None:
    problem = problem_of(
        Table("a", 10**5, 32, 8), Table("b", 10**4, 16, 2), Table("c", 3000, 64, 20), limit=limit
    )
    o = problem.options
    ways = [np.flatnonzero(o.group == q).tolist() for q in range(o.count.size)]
    least = min(mean_s(problem, options) for options in product(*ways))
    whole, found = solved(problem)
    assert whole.ended
    assert 0.98 * least < whole.bound_s <= least * ROUNDING  # lines under the curves cost a little
    assert min(mean_s(problem, tuple(options)) for options in found) <= 1.02 * least


def test_whole_tables_bound_more_than_shares_do() -> None:
    """A share of a table hides the latency of an exchange; a whole table does not."""
    problem = problem_of(
        Table("big", 4 * 10**6, 128, 20), Table("small", 1000, 64, 1), gpus=8, limit=1.2e9, batch=64
    )
    shares = relax(problem, Subspace.whole(problem), np.zeros(0, dtype=np.int64), tolerance=1e-3)
    assert shares is not None
    whole, _ = solved(problem)
    assert whole.bound_s > 1.2 * shares.bound_s


@pytest.mark.parametrize(("seed", "listed"), [(0, False), (5, False), (8, False), (2, True), (6, True)])
def test_no_plan_that_was_tried_is_below_it(seed: int, listed: bool) -> None:
    random = np.random.default_rng(seed)
    case = replace(random_case(random), listed=listed)
    best, _ = descended(case, random, 40, 80)
    assert np.isfinite(best)
    found = whole_s(case, best * 4 / 3)
    assert 0.3 * best < found <= best * ROUNDING


def test_equal_tables_may_differ() -> None:
    """Two of three equal tables are copied where there is room for two copies."""
    one = 10**5 * 64 * 4
    problem = problem_of(
        Table("a", 10**5, 64, 4), Table("b", 10**5, 64, 4), Table("c", 10**5, 64, 4), limit=2.5 * one
    )
    assert problem.options.count.tolist() == [3]
    whole, found = solved(problem)
    assert whole.ended
    assert sorted(problem.options.parts[found[0]] == 0) == [False, True, True]


def test_an_option_that_another_is_as_good_as_in_all_is_left_out() -> None:
    problem = problem_of(Table("a", 10**5, 32, 8), Table("b", 10**4, 16, 2))
    alive = problem.order
    kept = undominated(problem, alive)
    assert 0 < kept.sum() < alive.size
    o = problem.options
    memory = o.own_memory + o.everywhere_memory
    worth = np.column_stack([problem.own, problem.everywhere, problem.average, o.average_memory, memory])
    for at in alive[~kept]:
        rivals = alive[kept & (o.group[alive] == o.group[at])]
        assert (worth[rivals] <= worth[at]).all(axis=1).any()
    fewer, _ = solved(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfmodel.plan.bounding.mixed_integer.undominated", lambda problem, alive: alive >= 0)
        everything, _ = solved(problem)
    assert everything.options.size == alive.size
    assert fewer.bound_s == pytest.approx(everything.bound_s, rel=2e-3)


def test_it_stops_when_it_is_told_to_and_its_bound_is_true() -> None:
    tables = [Table(f"t{i}", 10 ** (3 + i % 4), 16 << i % 4, 1 + i) for i in range(12)]
    problem = problem_of(*tables, gpus=8, limit=400e6)
    least, _ = solved(problem)
    looks = iter(range(3))
    early = MixedInteger(problem)
    early.solve(lambda: next(looks, None) is None, lambda options: None)
    assert not early.ended
    assert 0 <= early.bound_s <= least.bound_s * ROUNDING


def test_ctrl_c_comes_through() -> None:
    tables = [Table(f"t{i}", 10 ** (3 + i % 4), 16 << i % 4, 1 + i) for i in range(12)]

    def pressed() -> bool:
        raise KeyboardInterrupt

    whole = MixedInteger(problem_of(*tables, gpus=8, limit=400e6))
    with pytest.raises(KeyboardInterrupt):
        whole.solve(pressed, lambda options: None)
    assert not whole.ended


def test_nothing_is_said_where_no_plan_is_as_fast_as_the_one_that_is_known() -> None:
    problem = problem_of(Table("a", 10**5, 32, 8))
    whole, found = solved(Problem(problem.options, problem.curves, problem.limit_bytes, 1e-9))
    assert whole.ended
    assert whole.bound_s == 0
    assert not found


def test_schemes_with_hot_rows_of_uniform_ids_may_be_mixed() -> None:
    """A number of hot rows is above a mix of boxes: those have shares, all other schemes do not."""
    evaluator = Evaluator.on(MACHINE, PlanTables.of(TableSet("one", (Table("a", 50_000, 64, 8),))), 4096, 8)
    cover = Cover(evaluator, np.inf)
    whole = MixedInteger(Problem(cover, StepCurves.of(evaluator), np.inf, 1.0))
    mixed = cover.mixed[whole.options]
    assert mixed.sum() == (cover.mixed & cover.alive).sum() > 0
    assert whole.whole[: mixed.size] == (~mixed).tolist()


def test_there_is_none_with_tiers() -> None:
    """What a cache misses is above a mix of several options, and nodes have only so much room."""
    tables = PlanTables.of(
        TableSet("two", (Table("a", 10**5, 32, 4), Table("b", 10**4, 32, 4))), parse_distribution("zipf:1.05")
    )
    for tiers, whole in (([], True), (["uvm", "uvm-caching"], False)):
        below = Below.of(parse_tiers(tiers)) if tiers else None
        evaluator = Evaluator.on(MACHINE, tables, 512, 2, below=below)
        problem = Problem(options_of(evaluator, np.inf), StepCurves.of(evaluator), np.inf, 1.0)
        bounding = Bounding(problem, lambda part, relaxed: 1.0, 0.01)
        assert bounding.takes_whole_tables(10.0) == whole
