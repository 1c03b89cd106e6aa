"""Plans with tables below the HBM: what they cost, what they hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, uniform_plan
from perfmodel.plan.below_hbm import Below
from perfmodel.project import project_one
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.tiers import parse_tier
from perfmodel.schema.workload import Table, TableSet

BOX = "h100-sxm-ib"
Array = NDArray[np.float64]


def table_set(count: int, rows: int, dim: int = 32, pooling: float = 32) -> TableSet:
    some = tuple(Table(name=f"t{at}", rows=rows, dim=dim, pooling=pooling) for at in range(count))
    return TableSet(name="some", tables=some)


def in_tier(plan: Plan, tier: str) -> Plan:
    """The same with all tables in a tier."""
    placements = tuple(Placement(replace(p.scheme, tier=parse_tier(tier)), p.ranks) for p in plan.placements)
    return Plan(plan.tables, placements, plan.gpus, plan.domain)


@pytest.mark.parametrize("gpus", [8, 16])
@pytest.mark.parametrize("ids", ["uniform", "zipf:1.05"])
@pytest.mark.parametrize(
    "tier", ["uvm", "uvm-caching:5%", "uvm-caching:10%,lfu", "uvm-caching:2%,lfu,prefetch"]
)
def test_tables_that_are_all_in_one_tier_cost_what_a_projection_says(tier: str, ids: str, gpus: int) -> None:
    rows = 1_000_000
    answer = project_one(tables=table_set(8, rows), gpus=gpus, tier=tier, batch=512, distribution=ids)
    tables = PlanTables.of(table_set(8, rows), parse_distribution(ids))
    evaluator = Evaluator.on(BOX, tables, 512, gpus, below=Below.of([parse_tier(tier)]))
    plan = in_tier(uniform_plan(tables, "row-wise", gpus, evaluator.domain), tier)
    found = evaluator.cost(plan)
    assert {s.name: s.time_s for s in found.rows} == pytest.approx({s.name: s.time_s for s in answer.steps})
    assert (found.time_s, found.low_s, found.high_s) == pytest.approx(
        tuple(answer.totals[name] for name in ("time_s", "low_s", "high_s")), rel=1e-9
    )
    most = evaluator.loads(plan).most
    assert float(evaluator.step_times(most)) == pytest.approx(found.time_s, rel=1e-3)
    assert evaluator.exact_times(most[np.newaxis])[0] == pytest.approx(found.time_s, rel=1e-9)
