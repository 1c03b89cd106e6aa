"""Loads, memory and times of plans: by hand, beside the projection's pass, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dealt_plan import uniform_plan

from perfmodel.answer import project_one
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import UNIFORM, Table, TableSet, parse_distribution, zipf

MACHINE = "h100-sxm-ib"


def tables_of(*shapes: tuple[int, int, float], dtype: str = "fp32") -> PlanTables:
    """Tables of (rows, dim, pooling)."""
    return PlanTables.of(
        TableSet("mine", tuple(Table(f"t{i}", *shape, dtype) for i, shape in enumerate(shapes)))
    )


MLPERF = PlanTables.load("mlperf-dlrm-dcnv2")


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("gpus", [1, 8, 128])
@pytest.mark.parametrize("ids", ["uniform", "zipf:1.1", "histogram:fbgemm-t856", "own"])
def test_a_row_wise_plan_costs_what_a_projection_says(gpus: int, ids: str, objective: str) -> None:
    known, given = load_tables("mlperf-dlrm-dcnv2"), "zipf:0.9" if ids == "own" else ids
    if ids == "own":  # every second table says its ids itself and has two features; every third has weights
        own = [None, parse_distribution("zipf:1.1")]
        each = [
            replace(
                table, distribution=own[at % 2], weighted=at % 3 == 0, features=1 + at % 2, buckets=at % 5 * 7
            )
            for at, table in enumerate(known.tables)
        ]
        known = replace(known, tables=tuple(each))
    tables = PlanTables.of(known, parse_distribution(given))
    training, optimizer = (
        objective == "throughput",
        "rowwise-adagrad" if objective == "throughput" else "none",
    )
    payload = {1: None, 8: "fp16", 128: "fp8"}[gpus]
    how = {"training": training, "optimizer": optimizer, "payload": payload}
    evaluator = Evaluator.on(MACHINE, tables, 1024, gpus, **how)
    whole, copy = Placement.of(Scheme(Exchange.RS, gpus), range(gpus)), Placement.of(Scheme(Exchange.DP))
    placements = tuple(whole if rows >= gpus else copy for rows in MLPERF.rows)
    found = evaluator.cost(Plan(tables, placements, gpus, evaluator.domain)).cost
    wanted = project_one(
        tables=known,
        machine=MACHINE,
        batch=1024,
        gpus=gpus,
        distribution=given,
        objective=objective,
        payload=payload,
        overrides={"hbm_bytes": 200e9},
    ).totals
    for name in ("time_s", "low_s", "high_s"):
        assert getattr(found, name) == pytest.approx(wanted[name], rel=1e-13)


def test_two_tables_on_two_gpus_by_hand() -> None:
    """B = 10, dims 4 and 8, 2 and 3 rows a bag; table 0 on rank 0, table 1 on rank 1."""
    tables = tables_of((100, 4, 2.0), (200, 8, 3.0))
    evaluator = Evaluator.on(MACHINE, tables, 10, 2, optimizer="rowwise-adagrad")
    plan = uniform_plan(tables, "table-wise", 2, 2)
    loads = evaluator.loads(plan)
    by_hand = {
        Resource.LENGTHS_SENT: [2 * 10 * 8] * 2,
        Resource.LENGTHS_RECEIVED: [2 * 10 * 8] * 2,
        Resource.IDS_SENT: [10 * (2 + 3) * 8] * 2,
        Resource.IDS_RECEIVED: [20 * 2 * 8, 20 * 3 * 8],
        Resource.BAGS_SENT: [20 * 16, 20 * 32],
        Resource.BAGS_RECEIVED: [10 * 16 + 10 * 32] * 2,
        Resource.BUCKETIZE: [160 + 400] * 2,
    }
    for resource, wanted in by_hand.items():
        assert loads[resource].tolist() == wanted, resource
    cost = evaluator.step(loads)
    rows = {row.name: row for row in cost.rows}
    assert (rows["all_to_all_ids"].payload_bytes, rows["all_to_all_ids"].mean_bytes) == (
        480,
        440,
    )  # rank 1 receives 480
    assert rows["all_to_all_ids"].rank == 1
    assert (rows["all_to_all_bags"].payload_bytes, rows["all_to_all_bags"].rank) == (640, 1)
    assert rows["all_to_all_bags"].imbalance == 640 / ((480 + 640) / 2)
    assert rows["all_to_all_splits"].payload_bytes == 3 * 8 * 2
    assert "local_sum" not in rows and "reduce_scatter_bags" not in rows
    assert cost.time_s == sum(row.time_s for row in cost.rows)
    memory = evaluator.cost(plan).memory
    assert memory.rows_bytes.tolist() == [100 * 16, 200 * 32]
    assert memory.optimizer_bytes.tolist() == [400, 800]
    assert memory.buffer_bytes.tolist() == [320 + 480, 640 + 480]  # bags, sent and received


def test_the_busiest_rank_of_a_gather_is_the_slowest() -> None:
    """Rank 0 waits 5 s for DRAM; rank 1 waits 4 s for DRAM and 4.5 s for the L2."""
    evaluator = Evaluator.on(MACHINE, tables_of((1000, 32, 1.0)), 10, 2)
    (gather,) = [step for step in evaluator.steps if step.name == "gather_pool"]
    dram, l2 = gather.resources
    loads = np.zeros_like(evaluator.loads(uniform_plan(evaluator.tables, "row-wise", 2, 2)))
    loads[dram] = np.array([5, 4]) * evaluator.basis.numbers["gather_bytes_per_s"]
    loads[l2] = np.array([1, 4.5]) * evaluator.basis.numbers["l2_bytes_per_s"]
    (row,) = [row for row in evaluator.step(loads).rows if row.name == "gather_pool"]
    assert (row.rank, row.payload_bytes) == (0, loads[dram, 0])


def test_unique_rows_by_hand() -> None:
    """One table of one row in one part: whatever is asked, one row travels to each rank."""
    tables = tables_of((1, 4, 5.0))
    evaluator = Evaluator.on(MACHINE, tables, 10, 2)
    plan = Plan(tables, (Placement.of(Scheme(Exchange.UB), [1]),), 2, 2)
    loads = evaluator.loads(plan)
    assert loads[Resource.REQUESTS_SENT].tolist() == [8 + 4, 8 + 4]  # an id, and the id of its feature
    assert loads[Resource.REQUESTS_RECEIVED].tolist() == [0, 24]
    assert loads[Resource.DEDUPLICATE_REQUESTS].tolist() == [0, 2 * 200]  # at the holder, of both ranks
    assert loads[Resource.ROWS_SENT].tolist() == [0, 2 * 16]
    assert loads[Resource.ROWS_RECEIVED].tolist() == [16, 16]
    assert loads[Resource.DEDUPLICATE].tolist() == [50 * 200] * 2
    assert not loads[Resource.IDS_SENT].any() and not loads[Resource.LENGTHS_SENT].any()
    short = evaluator.setting.machine.value("row_access_bytes")  # a row of 16 bytes takes 128
    assert loads[Resource.GATHER_L2].tolist() == [0, pytest.approx(2 * (short + 8) + 2 * 1.2 * 16)]
    names = [row.name for row in evaluator.step(loads).rows]
    assert names == [
        "deduplicate",
        "all_to_all_request_splits",
        "all_to_all_requests",
        "deduplicate_requests",
        "gather_pool",
        "all_to_all_rows",
        "pool_unique_rows",
    ]


def test_two_level_in_some_domains_sums_what_comes_from_each() -> None:
    """Row parts in 2 of 3 domains of 8: each sends to 3 places, every rank adds 2 partial bags."""
    B, D = 10, 32
    tables = tables_of((1000, D, 4.0))
    evaluator = Evaluator.on(MACHINE, tables, B, 24)
    plan = Plan(tables, (Placement.of(Scheme(Exchange.TWO_LEVEL, 16), range(16)),), 24, 8)
    loads = evaluator.loads(plan)
    assert loads[Resource.REDUCE_INSIDE].tolist() == [24 * B * D * 4] * 16 + [0] * 8
    assert loads[Resource.ACROSS_SENT].tolist() == [3 * B * D * 4] * 16 + [0] * 8
    assert loads[Resource.ACROSS_RECEIVED].tolist() == [2 * B * D * 4] * 24
    assert loads[Resource.LOCAL_SUM].tolist() == [3 * B * D * 4] * 24


KINDS = [
    Scheme(Exchange.DP),
    Scheme(Exchange.RB),
    Scheme(Exchange.RB, 4, 2),
    Scheme(Exchange.RS, 16),
    Scheme(Exchange.SPARSE, 16),
    Scheme(Exchange.TWO_LEVEL, 8),
    Scheme(Exchange.TWO_LEVEL, 8, 2),
    Scheme(Exchange.TWO_LEVEL, 16),
    Scheme(Exchange.UB, 2, 2),
]


def mixed_plan(tables: PlanTables, rng: np.random.Generator) -> Plan:
    """One table of every kind on 16 GPUs, shards on random ranks."""
    placements = []
    for scheme in KINDS:
        if scheme.kind == Exchange.TWO_LEVEL:
            domains = rng.permutation(2)
            ranks = domains[:, None] * 8 + np.arange(8)
            ranks = ranks.ravel() if scheme.row_parts == 16 else ranks[: scheme.col_parts].T.ravel()
        else:
            ranks = rng.permutation(16)[: scheme.parts]
        placements.append(Placement(scheme, ranks.astype(np.int64)))
    return Plan(tables, tuple(placements), 16, 8)


MIXED = tables_of(*[(10_000 + i, 32 * (1 + i % 3), 1.0 + i) for i in range(len(KINDS))])


def test_what_is_sent_is_received() -> None:
    evaluator = Evaluator.on(MACHINE, MIXED, 100, 16, training=True)
    values = evaluator.loads(mixed_plan(MIXED, np.random.default_rng(2))).sum(axis=1)
    for name in ("LENGTHS", "IDS", "REQUESTS", "ROWS", "BAGS", "SPARSE", "ACROSS", "ROW_GRADIENTS"):
        sent, received = (values[Resource[f"{name}_{side}"]] for side in ("SENT", "RECEIVED"))
        assert sent > 0 and received == pytest.approx(sent, rel=1e-12), name


def test_more_bytes_never_take_less_time() -> None:
    evaluator = Evaluator.on(MACHINE, MIXED, 100, 16)
    rng = np.random.default_rng(6)
    low = evaluator.loads(mixed_plan(MIXED, rng)).max(axis=1) * rng.uniform(0, 30, (2000, 1))
    high = low * (1 + rng.uniform(0, 1, low.shape) * (rng.uniform(size=low.shape) < 0.3))
    for name, time in evaluator.times.estimate_steps(low).items():
        assert np.all(evaluator.times.estimate_steps(high)[name] >= time * (1 - 1e-12)), name


@pytest.mark.parametrize("gpus", [1, 8, 16, 1024])
def test_fast_times_are_the_exact_ones(gpus: int) -> None:
    """Within 0.1 % for every step, from a byte to 100 GB, not only at round sizes."""
    evaluator = Evaluator.on(MACHINE, MIXED, 100, gpus, training=True)
    rng = np.random.default_rng(7)
    groups = evaluator.times.groups
    most = np.exp(rng.uniform(0, np.log(1e11), (3000, groups.stop)))
    most[rng.uniform(size=most.shape) < 0.1] = 0
    most[:, [groups[0], Resource.SORT, Resource.UPDATE_DRAM]] += 1  # rows are looked up, so they are updated
    fast = evaluator.times.estimate_steps(most)
    for step in evaluator.steps:
        timing = evaluator.times.time_step(step, most)
        exact = timing.time_s - step.grouped * timing.floor_s  # launches are with the groups
        time_s = fast.get(step.name, 0 * exact)
        np.testing.assert_allclose(time_s, exact, rtol=1e-3, atol=1e-15, err_msg=step.name)
    total = sum(evaluator.times.time_step(step, most).time_s for step in evaluator.steps)
    np.testing.assert_allclose(evaluator.estimate_times(most), total, rtol=1e-3)


def test_memory_of_copies_and_shards() -> None:
    tables = tables_of((100, 4, 1.0), (103, 8, 1.0))
    evaluator = Evaluator.on(MACHINE, tables, 10, 4, optimizer="adam")
    plan = Plan(
        tables, (Placement.of(Scheme(Exchange.DP)), Placement.of(Scheme(Exchange.RB, 2), [1, 3])), 4, 4
    )
    memory = evaluator.cost(plan).memory
    assert memory.rows_bytes.tolist() == [1600, 1600 + 52 * 32, 1600, 1600 + 52 * 32]
    assert memory.optimizer_bytes.tolist() == [3200, 3200 + 2 * 52 * 32, 3200, 3200 + 2 * 52 * 32]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"optimizer": "sgdd"}, "optimizer 'sgdd'"),
        ({"payload": "fp3"}, "payload 'fp3'"),
        ({"batch": 0}, "batch 0"),
        ({"gpus": -8}, "gpus -8"),
        ({"id_dtype": "int6"}, "id dtype 'int6'"),
    ],
)
def test_what_an_evaluator_refuses(options: dict[str, object], named: str) -> None:
    with pytest.raises(BadInputError) as caught:
        Evaluator.on(MACHINE, MIXED, **{"batch": 1, "gpus": 8, **options})  # type: ignore[arg-type]
    assert named in caught.value.message


def test_a_plan_for_other_gpus_or_tables_is_refused() -> None:
    tables, others = tables_of((100, 4, 1.0)), tables_of((100, 8, 1.0))
    evaluator = Evaluator.on(MACHINE, tables, 1, 8)
    with pytest.raises(BadInputError, match="16 GPUs"):
        evaluator.loads(uniform_plan(tables, "table-wise", 16, 8))
    with pytest.raises(BadInputError, match="tables of"):
        evaluator.loads(uniform_plan(others, "table-wise", 8, 8))


def test_training_adds_a_backward_pass_and_leaves_the_forward_alone() -> None:
    forward, training = (Evaluator.on(MACHINE, MIXED, 100, 16, training=t) for t in (False, True))
    plan = mixed_plan(MIXED, np.random.default_rng(9))
    one, both = forward.cost(plan).cost, training.cost(plan).cost
    first = both.rows[: len(one.rows)]
    assert [replace(row, share=0) for row in first] == [replace(row, share=0) for row in one.rows]
    backward = {row.name: row for row in both.rows[len(one.rows) :]}
    rows = {row.name: row for row in one.rows}
    for back, there in {
        "all_to_all_gradients": "all_to_all_bags",
        "all_to_all_sparse_gradients": "all_to_all_sparse_bags",
        "all_to_all_gradients_across": "all_to_all_across",
        "all_gather_gradients": "reduce_scatter_bags",
        "all_gather_inside": "reduce_scatter_inside",
        "all_gather_across": "reduce_scatter_across",
    }.items():  # the transpose: as many bytes; of an all-to-all as much time
        assert backward[back].payload_bytes == rows[there].payload_bytes
        assert backward[back].collective == "all_gather" or backward[back].time_s == rows[there].time_s


def test_backward_pass_by_hand() -> None:
    """Two tables of one row: table 0 copied, table 1 on rank 1; 10 samples of 2 and 3 rows a rank."""
    tables = tables_of((1, 64, 2.0), (1, 128, 3.0))
    plan = Plan(tables, (Placement.of(Scheme(Exchange.DP)), Placement.of(Scheme(Exchange.RB), [1])), 2, 2)
    evaluator = Evaluator.on(MACHINE, tables, 10, 2, optimizer="rowwise-adagrad", training=True)
    loads = evaluator.loads(plan)
    assert loads[Resource.COPIED_GRADIENTS].tolist() == [256, 256]
    assert loads[Resource.SORT].tolist() == [20 * 32, (20 + 60) * 32]  # one digit
    # gradients read for every look-up with its id, one row and its state read and written
    copy = 20 * (256 + 8) + 2 * (256 + 4) + 2 * 256
    shard = 60 * (512 + 8) + 2 * (512 + 4)
    assert loads[Resource.UPDATE_L2].tolist() == pytest.approx([copy, copy + shard])
    names = [row.name for row in evaluator.step(loads).rows]
    assert names[-4:] == ["all_to_all_gradients", "sort_lookups", "all_reduce_copies", "update_rows"]


def test_gradients_of_unique_rows_by_hand() -> None:
    tables = tables_of((1, 128, 5.0), dtype="fp16")
    evaluator = Evaluator.on(MACHINE, tables, 10, 2, training=True)
    loads = evaluator.loads(Plan(tables, (Placement.of(Scheme(Exchange.UB), [1]),), 2, 2))
    assert loads[Resource.ACCUMULATE_L2].tolist() == [50 * (512 + 8) + 512] * 2
    assert loads[Resource.ROW_GRADIENTS_SENT].tolist() == [512, 512]  # fp32, though rows are fp16
    assert loads[Resource.ROW_GRADIENTS_RECEIVED].tolist() == [0, 1024]
    assert loads[Resource.UPDATE_L2].tolist() == [0, 2 * (512 + 8) + 2 * 256]


def test_rows_that_two_ranks_touch_are_updated_once() -> None:
    """All 10 rows are touched by each rank: 5 on each of two holders, not 10."""
    tables = tables_of((10, 128, 100.0))
    evaluator = Evaluator.on(MACHINE, tables, 100, 2, training=True)
    loads = evaluator.loads(Plan(tables, (Placement.of(Scheme(Exchange.RB, 2), [0, 1]),), 2, 2))
    one_row, lookups = 2 * 512, 2 * 100 * 100 / 2
    wanted = lookups * (512 + 8) + 5 * one_row
    assert loads[Resource.UPDATE_L2].tolist() == pytest.approx([wanted] * 2)
    found = tables_of((1000, 128, 1.0))
    evaluator = Evaluator.on(MACHINE, found, 100, 4, training=True)
    loads = evaluator.loads(Plan(found, (Placement.of(Scheme(Exchange.RB), [0]),), 4, 4))
    rows = 1000 * (1 - (1 - 1 / 1000) ** 400)  # of all four ranks' look-ups
    assert loads[Resource.UPDATE_L2][0] == pytest.approx(400 * (512 + 8) + rows * one_row)


TABLES = PlanTables.of(TableSet("mine", (Table("wide", 1000, 128, 4.0, "fp32"), Table("t", 3, 8, 1, "fp32"))))


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator.on("h100-sxm-ib", TABLES, 10, 8)


def test_every_column_part_counts_as_the_widest(evaluator: Evaluator) -> None:
    """128 columns in three parts are 43 + 43 + 42: one column in 129 is counted and not there."""
    G, B, v = 8, 10, 4
    wide = evaluator.count_shards(0, Exchange.RB, 1, 3)
    assert wide.on_holder[Resource.BAGS_SENT] == G * B * 43 * v  # of the GPU with the most
    assert wide.everywhere[Resource.BAGS_RECEIVED] == B * 128 * v  # whole bags arrive
    plans = [uniform_plan(TABLES, "column-wise", G, 8, col_parts=c) for c in (1, 2, 4)]
    sums = {float(evaluator.loads(plan)[Resource.BAGS_SENT].sum()) for plan in plans}
    assert sums == {G * B * (128 + 8) * v}  # equal parts: exact whatever they are
    plan = uniform_plan(TABLES, "column-wise", G, 8, col_parts=3)
    assert evaluator.loads(plan)[Resource.BAGS_SENT].sum() == G * B * (129 + 9) * v
    assert evaluator.cost(plan).memory.rows_bytes.sum() == 1000 * 129 * v + 3 * 9 * v


@pytest.mark.parametrize("kind", [Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL, Exchange.UB])
def test_more_row_parts_than_rows_are_refused_not_nan(evaluator: Evaluator, kind: Exchange) -> None:
    said = r"^table 't' cannot be cut so: 8 row parts of 3 rows\.\ngive fewer row parts"
    with pytest.raises(BadInputError, match=said):
        evaluator.count_shards([0, 1], kind, 8, 1)
    fits = evaluator.count_shards(0, kind, 8, 1)
    assert np.isfinite(fits.on_holder).all() and np.isfinite(fits.everywhere).all()


@pytest.mark.parametrize("pooling", [1.0, 32.0])
@pytest.mark.parametrize("rows", [500, 30_000, 4_000_000])
def test_ids_that_are_hardly_skewed_cost_what_uniform_ids_cost(rows: int, pooling: float) -> None:
    found = []
    for ids in (UNIFORM, zipf(1e-6)):
        tables = PlanTables.of(TableSet("mine", (Table("t", rows, 64, pooling),)), ids)
        evaluator = Evaluator.on("h100-sxm-ib", tables, 1024, 16, training=True)
        kinds = np.array(
            [Exchange.DP, Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL, Exchange.UB]
        )
        parts = np.array([1, 4, 16, 16, 8, 16])
        loads = evaluator.count_shards(0, kinds, parts, 1)
        found.append(np.concatenate([loads.on_holder, loads.everywhere], axis=1))
    # skewed ids count a row once that a bag of 32 has twice: 1 % of 500 rows
    np.testing.assert_allclose(found[1], found[0], rtol=0.01, atol=1)
