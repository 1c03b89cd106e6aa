"""Plans with tables below the HBM: what they cost, what they hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.tier_loads import AskedLaw, law_of, pooled_misses
from perfmodel.plan.bounding.relaxed_caches import corners, least_missed
from perfmodel.plan.choices.node_memory import node_bytes
from perfmodel.plan.searching.greedy_tiers import greedy_plans
from perfmodel.plan.searching.tiered_search import TieredSearch
from perfmodel.report.step_words import ahead_words
from perfmodel.schema.tiers import IN_HBM, parse_tier, parse_tiers

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.step_resources import Resource
from perfmodel.passes.timing import AHEAD
from perfmodel.plan import (
    Evaluator,
    Placement,
    Plan,
    PlanTables,
    Scheme,
    plan_from,
    plan_record,
    uniform_plan,
)
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.for_torchrec.runnable import torchrec_plan
from perfmodel.plan.in_python import question_of
from perfmodel.plan.outcome import given_outcome
from perfmodel.plan.question import PlanQuestion
from perfmodel.projections import project_one
from perfmodel.schema.constraint_files import typed_rules
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import load_machine
from perfmodel.schema.workload import Table, TableSet
from perfmodel.units import format_time

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
@pytest.mark.parametrize("tier", ["uvm", "uvm-caching:5%", "uvm-caching:10%,lfu", "uvm-caching:2%,prefetch"])
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


@pytest.mark.parametrize(
    "tier", ["uvm", "uvm-caching:5%", "uvm-caching:5%,lfu", "uvm-caching:5%,prefetch", "ssd:5%"]
)
def test_unlike_tables_have_the_caches_of_fbgemm_in_a_projection_too(tier: str) -> None:
    """A cache for each type, and where rows are prefetched or on SSDs for each width."""
    shapes = [("a", 32, "fp32", 8.0), ("b", 64, "fp32", 9.0), ("c", 64, "fp16", 7.0), ("d", 128, "fp16", 5.0)]
    own = {"b": parse_distribution("zipf:1.2")}
    some = TableSet(
        "some",
        tuple(
            Table(name, 10**6, dim, L, dtype, name == "a", own.get(name)) for name, dim, dtype, L in shapes
        ),
    )
    answer = project_one(tables=some, gpus=8, tier=tier, distribution="zipf:1.05")
    tables = PlanTables.of(some, parse_distribution("zipf:1.05"))
    evaluator = Evaluator.on(BOX, tables, 1024, 8, below=Below.of([parse_tier(tier)]))
    found = evaluator.cost(in_tier(uniform_plan(tables, "row-wise", 8, evaluator.domain), tier))
    assert {s.name: s.time_s for s in found.rows} == pytest.approx({s.name: s.time_s for s in answer.steps})


@pytest.mark.parametrize("tier", [f"uvm-caching:5%{way}" for way in ("", ",lfu", ",prefetch")] + ["ssd:5%"])
def test_row_wise_a_cache_needs_the_hbm_that_a_projection_says(tier: str) -> None:
    """Rows of two lengths and two types; caches of a plan have whole sets of 32 for each table."""
    shapes = [("a", 32, "fp32"), ("b", 64, "fp32"), ("c", 64, "fp16"), ("d", 128, "fp16")]
    some = TableSet("some", tuple(Table(name, 10**6, dim, 8.0, dtype) for name, dim, dtype in shapes))
    count = project_one(tables=some, gpus=8, tier=tier).gpu_count
    tables = PlanTables.of(some, parse_distribution("uniform"))
    evaluator = Evaluator.on(BOX, tables, 1024, 8, below=Below.of([parse_tier(tier)]))
    memory = evaluator.memory(in_tier(uniform_plan(tables, "row-wise", 8, evaluator.domain), tier))
    held = count.rows_bytes + count.cache_beside_bytes
    assert 0 <= memory.rows_bytes.max() - held <= 4 * 32 * 300
    assert count.rows_bytes == 0.05 * 125_000 * (128 + 256 + 128 + 256)
    assert count.cache_beside_bytes >= 4 * 125_000 * 0.05 * 8


def two_tables(ids: str = "uniform") -> PlanTables:
    """100 000 rows of 128 bytes and 50 000 of 256."""
    some = (Table("long", 100_000, 32, 4.0), Table("wide", 50_000, 64, 2.0))
    return PlanTables.of(TableSet("two", some), parse_distribution(ids))


def placed(tables: PlanTables, *tiers: str) -> Plan:
    """Table-wise on ranks 0 and 1."""
    parsed = [IN_HBM if tier == "hbm" else parse_tier(tier) for tier in tiers]
    cut = [Scheme(Exchange.RB, tier=tier) for tier in parsed]
    return Plan(tables, (Placement.of(cut[0], [0]), Placement.of(cut[1], [1])), 2, 2)


def on_two(tables: PlanTables, *tiers: str, **more: object) -> Evaluator:
    return Evaluator.on(BOX, tables, 64, 2, below=Below.of(parse_tiers(tiers)), **more)


def test_a_cached_table_has_its_cache_in_hbm_and_its_rows_and_state_in_host_memory() -> None:
    tables = two_tables()
    evaluator = on_two(tables, "uvm", "uvm-caching", training=True, optimizer="rowwise-adagrad")
    memory = evaluator.memory(placed(tables, "uvm-caching:10%", "uvm"))
    beside = 32 * 313 * 16 + 100_000 * 4  # slots and rows
    assert memory.rows_bytes.tolist() == [32 * 313 * 256 + beside, 0]  # 10 000 rows, in sets, wide
    assert memory.optimizer_bytes.tolist() == [0, 0]
    assert memory.host.tolist() == [100_000 * (128 + 4), 50_000 * (256 + 4)]
    ahead = on_two(tables, "uvm", "uvm-caching", "prefetch")
    held = ahead.memory(placed(tables, "uvm-caching:10%,prefetch", "hbm"))
    assert held.rows_bytes.tolist() == [
        32 * 313 * (128 + 4) + beside,
        50_000 * 256,
    ]  # a cache for each width; locks
    counted = on_two(tables, "uvm-caching", "lfu").memory(placed(tables, "uvm-caching:10%,lfu", "hbm"))
    assert counted.rows_bytes[0] == 32 * 313 * (256 + 8) + 100_000 * (4 + 8)


def test_training_sends_evicted_rows_back_and_updates_host_memory() -> None:
    """Nine tenths of the rows of a batch, both ways at once; states of 4 bytes are sectors of 32."""
    tables = two_tables()
    plan = placed(tables, "uvm-caching:10%", "uvm")
    evaluator = on_two(tables, "uvm", "uvm-caching", training=True, optimizer="rowwise-adagrad")
    values, rows = evaluator.loads(plan).values, {row.name: row for row in evaluator.cost(plan).rows}
    asked, wide = 100_000 * (1 - (1 - 1e-5) ** 512), 50_000 * (1 - (1 - 2e-5) ** 256)
    missed = float(values[Resource.FETCHED, 0])
    assert 0.89 * asked * 128 < missed < 0.91 * asked * 128
    assert rows["fetch_rows"].time_s == pytest.approx(1.3e-6 + missed * 495 / 128 / (0.85 * 0.908 * 64e9))
    updated = [asked * 32, wide * (256 + 32)]
    assert values[Resource.UPDATED_BELOW].tolist() == pytest.approx(updated, rel=1e-6)
    assert rows["update_host"].rank == 1
    forward = on_two(tables, "uvm", "uvm-caching").cost(plan)
    alone = next(row for row in forward.rows if row.name == "fetch_rows")
    assert alone.time_s == pytest.approx(1.3e-6 + missed * 495 / 128 / (0.908 * 64e9))


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_tables_of_a_rank_share_a_cache_that_misses_no_less_than_the_bound_says(policy: str) -> None:
    """Hot and cold tables with the same share: together they miss less than apart, with LFU, and never less
    than the polygons of the bound allow."""
    laws = {
        0: law_of(parse_distribution("zipf:1.2"), 1e5, 2e4),
        1: law_of(parse_distribution("zipf:1.05"), 3e5, 1e3),
        2: law_of(parse_distribution("uniform"), 2e4, 5e3),
        3: law_of(parse_distribution("one-row"), 1e5, 5e3),
    }
    for share in (0.01, 0.1, 0.4):
        parts = tuple(((kind, 1.0, share, 0.0, 0.0), 1) for kind in laws)
        found = pooled_misses(parts, laws, policy, 32.0).values()
        together = sum(missed for missed, _ in found)
        assert all(reads >= missed * (1 - 1e-9) for missed, reads in found)
        apart = sum(law.missed(share, policy, 32.0) for law in laws.values())
        if policy == "lfu":
            assert together <= apart * (1 + 1e-6)
        rows = 32 * np.ceil(share * sum(law.all_rows for law in laws.values()) / 32)
        assert together >= least_together(list(laws.values()), rows) * (1 - 1e-3)


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("ranks", [0.0, 8.0])
def test_a_table_that_has_a_cache_to_itself_misses_as_in_a_pool_of_one(policy: str, ranks: float) -> None:
    """The opponent counts all tables of a cache together; here that is the one."""
    law, ways = law_of(parse_distribution("zipf:1.05"), 2**20, 1e5), 32.0
    for r, share in ((1.0, 2**-4), (4.0, 2**-3), (8.0, 2**-2)):
        part = (0, r, share, ranks, 1e3)
        alone = pooled_misses(((part, 1),), {0: law}, policy, ways)[part]
        assert law.alone(part, policy, ways) == pytest.approx(alone, rel=1e-9)


def test_fast_times_of_prefetched_steps_are_in_no_part() -> None:
    tables = two_tables("zipf:1.05")
    evaluator = on_two(tables, "uvm-caching:10%", "prefetch")
    tier = "uvm-caching:10%,prefetch"
    most = evaluator.loads(placed(tables, tier, tier)).most
    parts = evaluator.times.parts(most)
    hidden = {name for name in parts if name in AHEAD}
    assert hidden and all(parts[name] == 0 for name in hidden)
    rest = sum(float(time) for name, time in parts.items() if name not in hidden)
    ahead = float(evaluator.times.ahead(most))
    assert max(rest, ahead) == pytest.approx(float(evaluator.times.fast(most)), rel=1e-9) and rest > 0


def least_together(laws: list[AskedLaw], rows: float) -> float:
    """Of polygons of the bound the best division of so many rows: sides by their slope, steepest first."""
    sides = []
    total = 0.0
    for law in laws:
        z, m = corners(law)
        assert np.all(np.diff(z) > 0) and np.all(np.diff(np.diff(m) / np.diff(z)) >= -1e-12)
        where = np.linspace(0, law.all_rows, 2001)
        exact = least_missed(law, where)[0]
        assert np.all(np.interp(where, z, m) <= exact + 1e-6 * exact[0])
        assert np.interp(0, z, m) == pytest.approx(law.distinct)
        total += float(m[0])
        sides += list(zip(np.diff(m) / np.diff(z), np.diff(z), strict=True))
    for slope, width in sorted(sides):
        used = min(width, rows)
        total, rows = total + float(slope) * used, rows - used
    return total


def test_what_is_found_is_no_slower_than_the_greedy_plans() -> None:
    """Of MLPerf's tables, on fewer GPUs than hold them."""
    tables = PlanTables.load("mlperf-dlrm-dcnv2", parse_distribution("zipf:1.05"))
    evaluator = Evaluator.on(BOX, tables, 1024, 2, below=Below.of(parse_tiers(["uvm", "uvm-caching"])))
    options = options_of(evaluator, 24e9)
    greedy = list(greedy_plans(evaluator, options, 24e9))
    times = [evaluator.cost(state.plan()).time_s for state in greedy]
    found = TieredSearch(evaluator, 24e9, options=options, effort_s=0.3).run()
    assert len(greedy) > 20 and found.cost.time_s <= min(times)
    assert found.memory.total_bytes.max() <= 24e9


def question(**more: object) -> PlanQuestion:
    tables = PlanTables.load("mlperf-dlrm-dcnv2")
    asked = {"tables": tables, "machine": load_machine(BOX), "gpus": 2, "batch": 1024, "most_bytes": 24e9}
    return PlanQuestion(**(asked | {"below": Below.of(parse_tiers(["uvm"]))} | more))  # type: ignore[arg-type]


def test_the_reserve_is_kept_of_the_host_memory_also_in_what_torchrec_gets() -> None:
    """Of 2 TB a node, 85 % unless --reserve says another share; --max-hbm says nothing of hosts."""
    asked = {"tables": "mlperf-dlrm-dcnv2", "gpus": 2, "tier": "uvm"}
    for more, share in (
        ({}, 0.85),
        ({"max_hbm_bytes": 24e9}, 0.85),
        ({"reserve": 0.5}, 0.5),
        ({"reserve": 0.0, "max_hbm_bytes": 24e9}, 1.0),
    ):
        evaluator = question_of(**asked, **more).evaluator  # type: ignore[arg-type]
        assert node_bytes(evaluator) == pytest.approx(share * 2e12)
        plan = in_tier(uniform_plan(evaluator.tables, "row-wise", 2, evaluator.domain), "uvm")
        given = torchrec_plan(evaluator, plan).topology.host_bytes
        assert given == pytest.approx(share * 1e12)


def test_what_cannot_be_is_refused_with_the_next_step() -> None:
    with pytest.raises(BadInputError, match=r"16\.5 GB more than the 40 GB of a node"):
        question(machine=load_machine(BOX).with_overrides({"host_bytes": 40e9})).options()
    with pytest.raises(BadInputError, match=r"16\.5 GB more than the 40 GB of a node that tables may use"):
        question(machine=load_machine(BOX).with_overrides({"host_bytes": 80e9}), host_reserve=0.5).options()
    with pytest.raises(BadInputError) as nowhere:
        question(below=None).options()
    assert "--tier uvm,uvm-caching" in nowhere.value.next_step
    bare = load_machine(BOX)
    bare = bare.model_copy(update={"values": {k: v for k, v in bare.values.items() if k != "host_bytes"}})
    with pytest.raises(BadInputError, match="does not say its host_bytes"):
        question(machine=bare).evaluator  # noqa: B018
    with pytest.raises(BadInputError, match="differ in more than their share"):
        Below.of(parse_tiers(["uvm-caching:1%", "uvm-caching:2%", "lfu"]))
    with pytest.raises(BadInputError, match="a copy on every GPU with its rows in uvm"):
        Plan(two_tables(), (Placement.of(Scheme(Exchange.DP, tier=parse_tier("uvm"))),) * 2, 2, 2)
    with pytest.raises(BadInputError, match="is in HBM, not in uvm"):
        question(rules=typed_rules(["t0=data-parallel,uvm"], [])).options()
    with pytest.raises(BadInputError, match="the plan has caches like uvm-caching:5%,lfu"):
        on_two(two_tables(), "uvm-caching").loads(placed(two_tables(), "uvm-caching:5%,lfu", "hbm"))
    with pytest.raises(BadInputError, match="only the HBM may be used here"):
        Evaluator.on(BOX, two_tables(), 64, 2).loads(placed(two_tables(), "uvm", "uvm"))


def test_a_rule_names_the_memory_of_a_table() -> None:
    rules = typed_rules(["t9=uvm-caching", "t19=hbm"], ["t0=uvm"])
    below = Below.of(parse_tiers(["uvm", "uvm-caching:5%"]))
    options = question(rules=rules, below=below, gpus=8).options()
    kinds = {t: {options.scheme(at).tier.kind for at in _of(options, t)} for t in (0, 9, 19)}
    assert kinds == {0: {"hbm", "uvm-caching"}, 9: {"uvm-caching"}, 19: {"hbm"}}


def _of(options: Options, table: int) -> range:
    at = options.of(table)
    return range(at.start, at.stop)


def test_a_plan_file_keeps_the_tier_and_the_share() -> None:
    plan = placed(two_tables(), "uvm-caching:12.5%,prefetch", "uvm")
    again = plan_from(plan_record(plan), plan.tables)
    assert [p.scheme for p in again.placements] == [p.scheme for p in plan.placements]
    assert plan_record(plan)["placements"][0]["memory"] == "uvm-caching:12.5%,prefetch"
    assert "memory" not in plan_record(placed(two_tables(), "hbm", "hbm"))["placements"][0]


@pytest.mark.parametrize("tier", ["uvm", "uvm-caching:10%"])
def test_tables_of_one_model_in_one_tier_cost_what_a_projection_says(tier: str) -> None:
    """MLPerf's on two GPUs, all of which have rows for both; their cache is one."""
    ids, name = "zipf:1.05", "mlperf-dlrm-dcnv2"
    answer = project_one(
        tables=name, gpus=2, tier=tier, batch=1024, distribution=ids, overrides={"hbm_bytes": 200e9}
    )
    tables = PlanTables.load(name, parse_distribution(ids))
    evaluator = Evaluator.on(BOX, tables, 1024, 2, below=Below.of([parse_tier(tier)]))
    found = evaluator.cost(in_tier(uniform_plan(tables, "row-wise", 2, evaluator.domain), tier))
    assert found.time_s == pytest.approx(answer.time_s, rel=1e-6)


def test_a_next_best_that_fits_is_found_behind_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU that holds two of three tables: the third may always be read in place, or cached otherwise."""
    tables = PlanTables.of(table_set(3, 1_000_000), parse_distribution("uniform"))
    evaluator = Evaluator.on(BOX, tables, 512, 1, below=Below.of(parse_tiers(["uvm", "uvm-caching"])))
    placements = [Placement.of(Scheme(Exchange.RB, tier=parse_tier("uvm-caching:50%")), [0])] * 3
    plan = Plan(tables, tuple(placements), 1, evaluator.domain)
    limit = 1.01 * float(evaluator.memory(plan, evaluator.loads(plan)).total_bytes.max())
    monkeypatch.setattr("perfmodel.plan.searching.reasons._TRIED", 1)  # the fastest: in HBM, where no room is
    found = given_outcome(evaluator, plan, limit)
    assert all(group.reason and group.reason.scheme for group in found.groups)


def test_what_is_fetched_ahead_is_said_beside_the_steps_that_hide_it() -> None:
    tables = two_tables()
    plans = {tier: placed(tables, tier, tier) for tier in ("uvm-caching:10%", "uvm-caching:10%,prefetch")}
    costs = [on_two(tables, tier).cost(plan) for tier, plan in plans.items()]
    brought = sum(row.time_s for row in costs[0].rows if row.name in ("cache_lookup", "fetch_rows"))
    assert ahead_words(costs[0]) == "" and costs[0].ahead_s == 0
    assert costs[1].ahead_s == pytest.approx(brought, rel=0.01)
    assert ahead_words(costs[1]).startswith(
        f"rows for the next batch {format_time(costs[1].ahead_s)}, beside"
    )
