"""Plans with tables on SSDs: what they cost, what they hold, what TorchRec gets, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from perfmodel.passes.allowed_tiers import SHARES, SSD_SHARES, Below
from perfmodel.passes.tier_loads import law_of, pooled_misses
from perfmodel.plan.choices.node_memory import within_nodes
from perfmodel.plan.searching.greedy_tiers import greedy_plans
from perfmodel.plan.searching.tiered_search import TieredSearch
from perfmodel.schema.tiers import parse_tier, parse_tiers
from test_plan_tiers import BOX, in_tier, on_two, placed, question, table_set, two_tables

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.step_resources import Resource
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
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.explain_step import explain_plan_step
from perfmodel.plan.for_torchrec.files import plan_of
from perfmodel.plan.for_torchrec.runnable import torchrec_plan
from perfmodel.plan.outcome import given_outcome
from perfmodel.projections import project_one
from perfmodel.schema.constraint_files import typed_rules
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.machine import load_machine
from perfmodel.units import format_bytes

_ROUNDING = 4 * np.finfo(np.float64).eps


@pytest.mark.parametrize("gpus", [1, 8, 16])
@pytest.mark.parametrize("ids", ["uniform", "zipf:1.05"])
@pytest.mark.parametrize("tier", ["ssd:5%", "ssd:2%,prefetch"])
def test_tables_that_are_all_on_ssds_cost_what_a_projection_says(tier: str, ids: str, gpus: int) -> None:
    """To the last bits: the same equations, added in another order."""
    rows = 1_000_000
    answer = project_one(tables=table_set(8, rows), gpus=gpus, tier=tier, batch=512, distribution=ids)
    tables = PlanTables.of(table_set(8, rows), parse_distribution(ids))
    evaluator = Evaluator.on(BOX, tables, 512, gpus, below=Below.of([parse_tier(tier)]))
    plan = in_tier(uniform_plan(tables, "row-wise", gpus, evaluator.domain), tier)
    found = evaluator.cost(plan)
    assert (found.time_s, found.low_s, found.high_s) == pytest.approx(
        tuple(answer.totals[name] for name in ("time_s", "low_s", "high_s")), rel=_ROUNDING
    )
    steps = {row.name: row for row in found.rows}
    theirs = {step.name: step for step in answer.steps}
    assert steps["read_ssd"].time_s == pytest.approx(theirs["read_ssd"].time_s, rel=_ROUNDING)
    assert steps["read_ssd"].payload_bytes == pytest.approx(theirs["read_ssd"].payload_bytes)
    most = evaluator.loads(plan).most
    assert float(evaluator.step_times(most)) == pytest.approx(found.time_s, rel=1e-3)
    assert evaluator.exact_times(most[np.newaxis])[0] == pytest.approx(found.time_s, rel=1e-9)


def test_rows_on_ssds_cost_what_a_plan_of_the_same_rows_there_costs() -> None:
    """A projection has the largest cache that fits: the plan with that share, row-wise, is the same."""
    some = {"tables": table_set(4, 2_000_000), "batch": 512, "distribution": "zipf:1.05"}
    answer = project_one(**some, tier="ssd", gpus=8, overrides={"hbm_bytes": 2e8}, reduction="reduce_scatter")
    assert answer.work.cached is not None
    tier = f"ssd:{100 * float(answer.work.cached[0]):.17g}%"
    machine = load_machine(BOX).with_overrides({"hbm_bytes": 2e8})
    tables = PlanTables.of(table_set(4, 2_000_000), parse_distribution("zipf:1.05"))
    evaluator = Evaluator.on(machine, tables, 512, 8, below=Below.of([parse_tier(tier)]))
    plan = in_tier(uniform_plan(tables, "row-wise", 8, evaluator.domain), tier)
    assert evaluator.cost(plan).time_s == pytest.approx(answer.time_s, rel=1e-12)


def test_a_table_on_ssds_has_a_cache_of_its_width_and_its_state_in_hbm() -> None:
    """FBGEMM keeps the state of SSD tables on the device; a cache is of one width."""
    tables = two_tables()
    evaluator = on_two(tables, "ssd", training=True, optimizer="rowwise-adagrad")
    memory = evaluator.memory(placed(tables, "ssd:10%", "ssd:10%"))
    assert memory.rows_bytes.tolist() == [32 * 313 * (128 + 16), 32 * 157 * (256 + 16)]
    assert memory.optimizer_bytes.tolist() == [4 * 100_000, 4 * 50_000]
    assert memory.ssd.tolist() == [100_000 * 128, 50_000 * 256]
    assert memory.host.tolist() == [0, 0]


def test_misses_read_whole_blocks_and_training_writes_what_leaves() -> None:
    """Nine tenths of a batch's rows of 128 bytes: a block of 4096 each, and two GPUs share the drives."""
    tables = two_tables()
    plan = placed(tables, "ssd:10%", "hbm")
    evaluator = on_two(tables, "ssd", training=True, optimizer="rowwise-adagrad")
    values, rows = evaluator.loads(plan).values, {row.name: row for row in evaluator.cost(plan).rows}
    missed = values[Resource.SSD_WRITTEN, 0] / 128
    asked = 100_000 * (1 - (1 - 1e-5) ** 512)
    assert 0.89 * asked < missed < 0.91 * asked
    assert values[Resource.SSD_READ, 0] == pytest.approx(4096 * missed)
    assert rows["read_ssd"].time_s == pytest.approx(90e-6 + missed / (7.2e6 / 2))
    assert rows["write_ssd"].time_s == pytest.approx(missed * 128 / (28e9 / 2))
    assert values[Resource.UPDATED_BELOW].sum() == 0  # rows are updated in the cache, states in HBM
    forward = on_two(tables, "ssd")
    assert forward.loads(plan).values[Resource.SSD_WRITTEN].sum() == 0
    assert not {"write_ssd", "fetch_rows"} & {row.name for row in forward.cost(plan).rows}


def test_host_memory_and_ssds_have_caches_of_their_own() -> None:
    """Two compute kernels are two kernels of FBGEMM: each looks in its own cache, one after the other."""
    tables = PlanTables.of(table_set(2, 100_000), parse_distribution("zipf:1.05"))
    evaluator = Evaluator.on(BOX, tables, 64, 1, below=Below.of(parse_tiers(["uvm-caching", "ssd"])))
    both = [Scheme(Exchange.RB, tier=parse_tier(tier)) for tier in ("uvm-caching:10%", "ssd:20%")]
    plan = Plan(tables, tuple(Placement.of(cut, [0]) for cut in both), 1, 1)
    values = evaluator.loads(plan).values[:, 0]
    law = law_of(parse_distribution("zipf:1.05"), 1e5, 64 * 32)
    for resource, share in ((Resource.FETCHED, 0.1), (Resource.SSD_FETCHED, 0.2)):
        part = (0, 1.0, share, 0.0, 0.0)
        alone = pooled_misses(((part, 1),), {0: law}, "lru", 32.0)[part][0]
        assert values[resource] == pytest.approx(alone * 128)
    names = [row.name for row in evaluator.cost(plan).rows]
    assert [name for name in names if name.endswith("lookup")] == ["cache_lookup", "ssd_lookup"]


def test_a_plan_file_and_torchrecs_keep_tables_on_ssds() -> None:
    plan = placed(two_tables(), "ssd:12.5%,prefetch", "hbm")
    assert plan_record(plan)["placements"][0]["memory"] == "ssd:12.5%,prefetch"
    again = plan_from(plan_record(plan), plan.tables)
    assert [p.scheme for p in again.placements] == [p.scheme for p in plan.placements]
    file = torchrec_plan(on_two(two_tables(), "ssd", "prefetch"), plan)
    assert (file.topology.ssd_bytes, file.topology.ssd_bytes_per_s) == (15.36e12, 26e9)
    assert file.topology.host_bytes is None and file.tables[1].key_value_params is None
    assert file.tables[0].key_value_params is not None
    assert file.tables[0].key_value_params.max_l1_cache_size == 2  # 12 500 rows of 128 bytes: 1.53 MiB
    assert file.tables[0].compute_kernel == "key_value" and file.tables[0].cache_params is not None
    assert [p.scheme for p in plan_of(file, plan.tables).placements] == [p.scheme for p in plan.placements]


def test_tables_leave_for_host_memory_and_then_for_ssds(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLPerf's, of 105 GB, on two GPUs of 24 GB and a host with room for two of the five largest tables."""
    box = load_machine(BOX).with_overrides({"host_bytes": 45e9})
    below = Below.of(parse_tiers(["uvm", "ssd"]))
    tables = PlanTables.load("mlperf-dlrm-dcnv2", parse_distribution("zipf:1.05"))
    asked = question(machine=box, below=below, tables=tables)
    evaluator, options = asked.evaluator, asked.options()
    assert options.crowded
    greedy = list(greedy_plans(evaluator, options, 24e9))
    best = min(evaluator.cost(state.plan()).time_s for state in greedy)
    found = TieredSearch(evaluator, 24e9, options=options, effort_s=0.5).run()
    kinds = {p.scheme.tier.kind for p in found.plan.placements}
    assert kinds == {"hbm", "uvm", "ssd"}
    assert found.cost.time_s <= best and found.bound_s <= found.cost.time_s
    assert found.memory.host.sum() <= 45e9 and found.memory.ssd.sum() > 20e9
    assert found.memory.total_bytes.max() <= 24e9


def test_every_step_of_ssds_is_explained_to_its_time() -> None:
    tables = two_tables("zipf:1.05")
    plan = placed(tables, "ssd:5%", "uvm-caching:5%")
    evaluator = on_two(tables, "uvm-caching", "ssd", training=True, optimizer="rowwise-adagrad")
    cost = evaluator.cost(plan)
    for row in cost.rows:
        if row.name not in ("ssd_lookup", "read_ssd", "write_ssd"):
            continue
        found = explain_plan_step(evaluator, plan, cost, row.name)
        text = "\n".join(found.time.working)
        assert f"S = {format_bytes(row.payload_bytes)} on rank 0: 1 table there, long" in text
        assert ("share one cache" in text) and "5 %" in text


def test_what_cannot_be_on_ssds_is_refused_with_the_next_step() -> None:
    below = Below.of(parse_tiers(["ssd"]))
    small = load_machine(BOX).with_overrides({"ssd_bytes": 20e9})
    with pytest.raises(BadInputError, match=r"of SSDs, 36\.\d GB more than the 20 GB of a node"):
        question(machine=small, below=below).options()
    both = Below.of(parse_tiers(["uvm", "ssd"]))
    tight = small.with_overrides({"host_bytes": 10e9})
    with pytest.raises(BadInputError, match="of host memory and SSDs") as short:
        question(machine=tight, below=both).options()
    assert "--set host_bytes=… --set ssd_bytes=…" in short.value.next_step
    with pytest.raises(BadInputError, match="of host memory,") as host_alone:
        question(machine=tight).options()
    assert "--tier uvm-caching,ssd" in host_alone.value.next_step
    assert "--tier" not in short.value.next_step
    with pytest.raises(BadInputError, match="gh200-slingshot does not say its ssd_bytes"):
        question(machine=load_machine("gh200-slingshot"), below=below).evaluator  # noqa: B018
    with pytest.raises(BadInputError, match="differ in more than their share"):
        Below.of(parse_tiers(["uvm-caching", "lfu", "ssd"]))
    with pytest.raises(BadInputError, match="a copy on every GPU with its rows in ssd"):
        Plan(two_tables(), (Placement.of(Scheme(Exchange.DP, tier=parse_tier("ssd:5%"))),) * 2, 2, 2)
    with pytest.raises(BadInputError, match="FBGEMM's cache of rows on SSDs is LRU"):
        parse_tiers(["uvm", "ssd", "lfu"])
    with pytest.raises(BadInputError, match="TorchRec caches at most 20 % of the rows of tables on SSDs"):
        torchrec_plan(on_two(two_tables(), "ssd"), placed(two_tables(), "ssd:50%", "hbm"))
    with pytest.raises(BadInputError, match="on SSDs, where FBGEMM has no adagrad"):
        torchrec_plan(
            on_two(two_tables(), "ssd", training=True, optimizer="adagrad"),
            placed(two_tables(), "ssd:5%", "hbm"),
        )
    with pytest.raises(BadInputError, match=r"node 0 needs 12\.8 MB of SSDs"):
        evaluator = Evaluator.on(
            load_machine(BOX).with_overrides({"ssd_bytes": 10e6}), two_tables(), 64, 2, below=below
        )
        given_outcome(evaluator, placed(two_tables(), "ssd:5%", "hbm"), 1e9)


def test_what_tier_says_is_what_may_be() -> None:
    below = Below.of(parse_tiers(["uvm", "uvm-caching", "prefetch", "ssd:3%", "prefetch"]))
    assert below is not None and str(below) == "uvm,uvm-caching,prefetch,ssd:3%,prefetch"
    assert (below.shares, below.ssd_shares) == (SHARES, (0.03,))
    whole = Below.of(parse_tiers(["ssd"]))
    assert whole is not None and (str(whole), whole.ssd_shares) == ("ssd", SSD_SHARES)
    rules = typed_rules(["t9=ssd", "t19=hbm"], ["t0=ssd"])
    options = question(rules=rules, below=Below.of(parse_tiers(["uvm", "ssd:5%"])), gpus=8).options()
    kinds = {t: {options.scheme(at).tier.kind for at in range(*_span(options.of(t)))} for t in (0, 9, 19)}
    assert kinds == {0: {"hbm", "uvm"}, 9: {"ssd"}, 19: {"hbm"}}
    columns = {
        (s.row_parts, s.col_parts) for s in (options.scheme(at) for at in range(*_span(options.of(9))))
    }
    assert {(1, 1), (1, 2), (8, 1), (2, 2)} <= columns


def _span(at: slice) -> tuple[int, int]:
    return at.start, at.stop


def test_room_on_every_node_is_no_question_where_one_node_has_room_for_all() -> None:
    asked = question(below=Below.of(parse_tiers(["uvm", "ssd"])))
    listed = options_of(asked.evaluator, 24e9)
    assert within_nodes(listed, asked.evaluator, 24e9) is listed
