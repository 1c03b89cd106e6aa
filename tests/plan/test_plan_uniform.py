"""A search begins with the plans in which all tables have one sharding: those that ``project`` compares."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.answer import project_one
from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import plan_shardings
from perfmodel.answer.uniform_plans import UniformPlan, UniformPlans
from perfmodel.effort import EFFORTS
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.schemes import ROWS_ONCE, WAYS
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

MACHINES = ("h100-sxm-ib", "b200-sxm-ib", "gh200-slingshot")
SAME = 1 + 1e-9
EACH_QUICK = 20  # of so many drawn sets, one is searched with an effort; the others with none


def uniform_s(evaluator: Evaluator, limit_bytes: float) -> float:
    """The least time of all sharding options, none left out by a bound; infinite: none fits."""
    plans = [UniformPlans(evaluator, limit_bytes).find_best(way) for way in WAYS]
    return min((plan.cost.time_s for plan in plans if isinstance(plan, UniformPlan)), default=np.inf)


def planned_s(evaluator: Evaluator, limit_bytes: float, effort_s: float) -> float:
    """The time of the best plan of a search."""
    return Search(evaluator, limit_bytes, effort_s=effort_s).run().cost.time_s


def test_rows_over_all_of_40_gpus_are_found_before_the_effort_is_spent() -> None:
    """Prices prefer 32 row parts of 39 GB, of which no GPU with 153 GB holds 4."""
    base = project_one(
        table_bytes=5e12, table_count=4, dim=128, pooling=1, gpus=40, batch=4096, machine="b200-sxm-ib"
    )
    evaluator = plan_shardings(base).evaluator
    assert planned_s(evaluator, 153e9, EFFORTS["quick"]) <= uniform_s(evaluator, 153e9) * SAME


def test_a_plan_that_takes_all_but_two_thousandths_of_the_memory_is_found() -> None:
    """Schemes at prices are chosen for at most 98.5 % of the memory."""
    base = project_one(
        table_bytes=20e12,
        table_count=16,
        dim=128,
        pooling=8,
        gpus=248,
        machine="gh200-slingshot",
        objective="training",
    )
    evaluator = plan_shardings(base).evaluator
    over_all = UniformPlans(evaluator, np.inf).find_best(ROWS_ONCE)
    assert isinstance(over_all, UniformPlan)
    limit_bytes = float(over_all.memory.total_bytes.max()) * 1.002
    assert planned_s(evaluator, limit_bytes, EFFORTS["quick"]) <= over_all.cost.time_s * SAME


def drawn(seed: int) -> Answer:
    """The row-wise projection of 1 to 3 tables that fill 5 to 95 % of the memory of 2 to 60 GPUs."""
    random = np.random.default_rng(seed)
    gpus, count = int(random.choice([2, 3, 6, 8, 12, 24, 40, 60])), int(random.integers(1, 4))
    whole_bytes = gpus * 60e9 * random.uniform(0.05, 0.95)
    dims = random.choice([4, 16, 48, 100, 128], count)
    rows = np.maximum(whole_bytes * random.dirichlet(np.ones(count)) / (dims * 4), 1000).astype(int)
    shapes = zip(rows.tolist(), dims.tolist(), random.integers(1, 40, count).tolist(), strict=True)
    return project_one(
        TableSet("drawn", tuple(Table(f"t{at}", *shape) for at, shape in enumerate(shapes))),
        MACHINES[random.integers(len(MACHINES))],
        gpus=gpus,
        batch=int(random.choice([64, 1024, 8192])),
        objective=str(random.choice(["latency", "training"])),
    )


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_plan_is_slower_than_the_best_uniform_sharding(first: int) -> None:
    """Over 40 sets. More effort only improves what a search without effort has, so most have none."""
    slower = []
    for seed in range(first, first + 20):
        base = drawn(seed)
        evaluator, limit_bytes = plan_shardings(base).evaluator, base.gpu_count.usable_bytes
        uniform = uniform_s(evaluator, limit_bytes)
        if base.gpu_count.fits:
            uniform = min(uniform, base.time_s)
        effort_s = EFFORTS["quick"] if seed % EACH_QUICK == 0 else 0.0
        if np.isfinite(uniform) and planned_s(evaluator, limit_bytes, effort_s) > uniform * SAME:
            slower.append(seed)
    assert slower == []
