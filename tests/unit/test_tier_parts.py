"""Parts of all plans by the tiers of their tables: each plan is in one, and what its caches take at least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from perfmodel.passes.allowed_tiers import CACHED, Below
from perfmodel.plan.bounding.relaxed_caches import relaxed_caches
from perfmodel.plan.bounding.tier_parts import by_caches, by_tier, prefetched_s
from perfmodel.schema.tiers import parse_tiers

from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Subspace
from perfmodel.plan.bounding.relaxation import relax
from perfmodel.plan.choices.options import options_of
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet


def problem_of(tier: str, limit_bytes: float = 2.2e6) -> Problem:
    """Three tables of unlike size and use on two GPUs."""
    shapes = ((40_000, 8.0), (20_000, 1.0), (3_000, 20.0))
    some = tuple(Table(name=f"t{at}", rows=rows, dim=32, pooling=p) for at, (rows, p) in enumerate(shapes))
    tables = PlanTables.of(TableSet(name="few", tables=some), parse_distribution("zipf:1.2"))
    evaluator = Evaluator.on("h100-sxm-ib", tables, 256, 2, below=Below.of(parse_tiers(tier.split(","))))
    o = options_of(evaluator, limit_bytes)
    o = relaxed_caches(o.kept((o.hot == 0) & (o.exchange != Exchange.UB)), evaluator)[0]
    return Problem(o, StepCurves.of(evaluator), limit_bytes, 1.0, prefetched_s(o, evaluator))


def has(problem: Problem, part: Subspace, options: NDArray[np.int64]) -> bool:
    """Whether a plan of these options [Q] is in a part."""
    tier = problem.options.tier
    assert tier is not None
    there = np.isin(np.arange(part.used.size), tier[options])
    return bool(part.options(problem)[options].all() and there[part.used].all())


def test_every_plan_is_in_one_part_and_not_below_what_that_says() -> None:
    problem = problem_of("uvm,uvm-caching")
    o, random = problem.options, np.random.default_rng(3)
    whole = Subspace.whole(problem)
    relaxed = relax(problem, whole, np.zeros(0, dtype=np.int64), tolerance=1e-3)
    assert relaxed is not None and o.tier is not None
    mixed = replace(relaxed, room=1e-4, chosen=np.arange(o.group.size))
    mixed.share = random.random(o.group.size)
    split = [by_caches(problem, whole, np.flatnonzero(o.tier == CACHED)), by_tier(problem, whole, mixed)[1]]
    split.append(by_tier(problem, replace(whole, tiers=whole.tiers & [False, True, True, True]), mixed)[1])
    assert [len(parts) for parts in split] == [2, 2, 2]
    below = np.array([np.flatnonzero((o.group == q) & (o.tier > 0)) for q in range(3)], dtype=object)
    for _ in range(200):
        drawn = np.array([random.choice(np.flatnonzero(o.group == q)) for q in range(3)])
        under = np.array([random.choice(np.asarray(some, dtype=np.int64)) for some in below])
        assert [sum(has(problem, part, drawn) for part in parts) for parts in split[:2]] == [1, 1]
        assert sum(has(problem, part, under) for part in split[2]) == 1


@pytest.mark.parametrize("tier", ["uvm-caching", "uvm-caching,prefetch"])
def test_plans_with_a_cached_table_wait_for_a_look_up_in_the_cache(tier: str) -> None:
    """91.3 us for almost no rows: in the pass, or beside it."""
    problem = problem_of(tier)
    whole = Subspace.whole(problem)
    cached = np.flatnonzero(np.asarray(problem.options.tier) == CACHED)
    some, none = by_caches(problem, whole, cached)
    assert problem.least_s(some) >= 9.13e-5 > problem.least_s(whole)
    assert not none.options(problem)[cached].any()
    assert by_caches(problem, some, cached) == [] == by_caches(problem, whole, np.zeros(0, dtype=np.int64))
