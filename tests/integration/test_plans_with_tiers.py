"""Every plan of small tables with tiers below the HBM, priced one by one: against search and bound."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.tiered_plans import BOX, all_plans_s, judged, random_case
from perfmodel.passes.allowed_tiers import Below
from perfmodel.plan.choices.node_memory import within_nodes
from perfmodel.plan.searching.tiered_search import TieredSearch
from perfmodel.schema.tiers import parse_tiers

from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.choices.options import options_of
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet


def few_tables(ids: str) -> PlanTables:
    """Three tables of unlike size and use."""
    shapes = ((40_000, 32, 8.0), (20_000, 32, 1.0), (3_000, 32, 20.0))
    some = tuple(Table(name=f"t{at}", rows=r, dim=d, pooling=p) for at, (r, d, p) in enumerate(shapes))
    return PlanTables.of(TableSet(name="few", tables=some), parse_distribution(ids))


@pytest.mark.parametrize(
    ("ids", "tier", "training"),
    [
        ("uniform", "uvm,uvm-caching:10%,lfu,uvm-caching:50%,lfu", False),
        ("zipf:1.2", "uvm,uvm-caching:10%,uvm-caching:50%", True),
        ("zipf:1.05", "uvm-caching:10%,prefetch,uvm-caching:50%,prefetch", False),
        ("zipf:1.2", "uvm-caching:20%,lfu", True),
    ],
)
def test_no_plan_of_the_listed_ones_is_below_the_bound_nor_faster_than_what_is_found(
    ids: str, tier: str, training: bool
) -> None:
    """All of them, in a memory that not all tables fit."""
    below, limit = Below.of(parse_tiers(tier.split(","))), 2.2e6
    evaluator = Evaluator.on(BOX, few_tables(ids), 256, 2, below=below, training=training)
    o = options_of(evaluator, limit)
    whole = (o.exchange == Exchange.RB) & (o.parts == 1)
    o = o.kept((whole | np.isin(o.exchange, [Exchange.DP, Exchange.RS])) & (o.hot == 0))
    found = TieredSearch(evaluator, limit, options=o, effort_s=2).run()
    times = all_plans_s(evaluator, o, limit)
    assert any(p.scheme.tier.kind != "hbm" for p in found.plan.placements)
    assert 0 < found.bound_s <= times.min() * (1 + 1e-9)
    assert found.cost.time_s <= times.min() * (1 + 1e-6)
    assert found.bound_s >= 0.9 * times.min()
    assert times.size >= 18


@pytest.mark.parametrize(
    ("ids", "tier", "training", "host_bytes", "tight"),
    [
        ("uniform", "ssd:10%,ssd:50%", False, 2e12, 0.6),  # the bound is over all shares, not over two
        ("zipf:1.2", "uvm-caching:20%,ssd:10%,ssd:50%", True, 2e12, 0.9),
        ("zipf:1.2", "ssd:10%,prefetch,ssd:50%,prefetch", True, 2e12, 0.4),
        ("zipf:1.05", "uvm,ssd:10%", False, 5e6, 0.35),
        ("zipf:1.2", "uvm-caching:20%,ssd:20%", True, 3.2e6, 0.8),
    ],
)
def test_no_plan_with_ssds_is_below_the_bound_nor_faster_than_what_is_found(
    ids: str,
    tier: str,
    training: bool,
    host_bytes: float,
    tight: float,
) -> None:
    """All of them; in the last two host memory has no room for the two largest tables, or for the largest."""
    below, limit = Below.of(parse_tiers(tier.split(","))), 2.2e6
    box = load_machine(BOX).with_overrides({"host_bytes": host_bytes})
    more = {"training": training, "optimizer": "rowwise-adagrad" if training else "none"}
    evaluator = Evaluator.on(box, few_tables(ids), 256, 2, below=below, **more)
    o = within_nodes(options_of(evaluator, limit), evaluator, limit)
    assert o.crowded == (host_bytes < 1e9)
    whole = (o.exchange == Exchange.RB) & (o.parts == 1)
    o = o.kept((whole | np.isin(o.exchange, [Exchange.DP, Exchange.RS])) & (o.hot == 0))
    found = TieredSearch(evaluator, limit, options=o, effort_s=2).run()
    times = all_plans_s(evaluator, o, limit)
    assert 0 < found.bound_s <= times.min() * (1 + 1e-9)
    assert found.cost.time_s <= times.min() * (1 + 1e-6)
    assert found.bound_s >= tight * times.min()
    assert times.size >= 18


@pytest.mark.parametrize("seed", [1, 7, 16])
def test_on_4_gpus_too(seed: int) -> None:
    """Row parts on any ranks as well; python tests/oracles/tiered_plans.py 40 judges more cases."""
    one = judged(random_case(seed), effort_s=2.0)
    assert not one.wrong
    assert one.plans >= 700 and one.bound_s >= 0.9 * one.best_s
