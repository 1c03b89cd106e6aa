"""TorchRec's sets of exchanges: nothing lost or counted twice, what each costs, and a bound that holds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import BY_TYPE, TOGETHER, Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, sum_parts
from perfmodel.plan import torchrec
from perfmodel.plan.choices.scheme_options import Options, list_options
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import Table, TableSet

SHAPES = ((4000, 16, 4.0), (900_000, 32, 2.0), (60, 16, 1.0), (2_000_000, 64, 8.0))


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    """Named t0, t1, ..."""
    found = (Table(f"t{i}", rows, dim, pooling) for i, (rows, dim, pooling) in enumerate(shapes))
    return PlanTables.of(TableSet("mine", tuple(found)))


def evaluator_of(tables: PlanTables, sets: ExchangeSets | None, *, training: bool) -> Evaluator:
    """On two nodes of two GPUs; with Adagrad copies have the state that they have everywhere."""
    how = {"training": training, "optimizer": "adagrad" if training else "none"}
    return Evaluator.on("h100-sxm-ib", tables, 512, 4, gpus_per_node=2, sets=sets, **how)


COPY = Placement.of(Scheme(Exchange.DP))
PLACED = (
    COPY,
    *(Placement.of(Scheme(Exchange.RB), [rank]) for rank in range(4)),
    *(Placement.of(Scheme(Exchange.RB, 1, 2), pair) for pair in ([0, 1], [0, 2], [1, 3], [2, 3])),
    Placement.of(Scheme(Exchange.RB, 1, 4), range(4)),
    Placement.of(Scheme(Exchange.RS, 4), range(4)),
    Placement.of(Scheme(Exchange.TWO_LEVEL, 2), [0, 1]),
    Placement.of(Scheme(Exchange.TWO_LEVEL, 2), [2, 3]),
    Placement.of(Scheme(Exchange.TWO_LEVEL, 2, 2), [0, 2, 1, 3]),
)
"""What TorchRec can do with a table on two nodes of two GPUs, but for which pair of GPUs has its columns."""


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("types", [None, ("column_wise", "grid_shard", "row_wise", "table_column_wise")])
def test_sets_hold_what_all_tables_have_together(types: tuple[str, ...] | None, training: bool) -> None:
    """Added up by what they are, the sets of any plan have every byte once, on every rank."""
    tables = tables_of(*SHAPES)
    together = evaluator_of(tables, None, training=training)
    apart = evaluator_of(tables, ExchangeSets(types), training=training)
    random = np.random.default_rng(1)
    for _ in range(50):
        plan = Plan(tables, tuple(PLACED[i] for i in random.integers(len(PLACED), size=4)), 4, 2)
        one, many = together.loads(plan), apart.loads(plan)
        summed = many[:TOGETHER].copy()
        for numbers in BY_TYPE.values():
            for whole, number in numbers.items():
                summed[whole] += many[number] if number < apart.times.groups.start else 0
        np.testing.assert_allclose(summed, one[:TOGETHER], rtol=1e-12)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("halves", [0, 2])
def test_every_group_in_use_is_launched(training: bool, halves: int) -> None:
    """Counted here as pairs of an exchange and a data type, in TorchRec's sets and without: hot rows are
    copies, on one GPU all is local. A search's times have as many."""
    shaped = [
        Table(f"t{i}", rows, dim, pooling, "fp16" if i < halves else "fp32")
        for i, (rows, dim, pooling) in enumerate(SHAPES)
    ]
    tables = PlanTables.of(TableSet("mine", tuple(shaped)))
    apart, together = (evaluator_of(tables, sets, training=training) for sets in (ExchangeSets(), None))
    launch_s = apart.setting.machine.value("launch_floor_s")
    sort_s = apart.basis.list_sorts(apart.model.sort_digits, alone=True)[1][0]
    kernels = {"gather_pool": launch_s, "sort_lookups": sort_s, "update_rows": launch_s}
    random = np.random.default_rng(2)
    for _ in range(30):
        plan = Plan(tables, tuple(PLACED[i] for i in random.integers(len(PLACED), size=4)), 4, 2)
        groups = len(set(zip((p.scheme.kind for p in plan.placements), tables.dtype, strict=True)))
        rows, alone = ({row.name: row for row in e.cost(plan).cost.rows} for e in (apart, together))
        for name in kernels.keys() & rows.keys():
            assert rows[name].floor_s == alone[name].floor_s == pytest.approx(groups * kernels[name])
            if name != "update_rows":  # copies have another state in TorchRec
                assert rows[name].time_s == pytest.approx(alone[name].time_s)
        for evaluator in (apart, together):
            most = evaluator.loads(plan).max(axis=1)[np.newaxis]
            assert evaluator.estimate_times(most) == pytest.approx(evaluator.time_passes(most), rel=1e-3)
    hot = Plan(tables, (Placement.of(Scheme(Exchange.RB, 1, 4, 9), range(4)),) * 4, 4, 2)
    local, single = Plan(tables, (COPY, *PLACED[1:2] * 3), 1, 1), Evaluator.on("h100-sxm-ib", tables, 512, 1)
    for evaluator, plan, groups in ((together, hot, 2), (single, local, 1)):
        (floor_s,) = (row.floor_s for row in evaluator.cost(plan).cost.rows if row.name == "gather_pool")
        assert floor_s == groups * len(set(tables.dtype)) * launch_s


def test_the_pipeline_sends_the_splits_of_all_sets_at_once() -> None:
    """Beside dense layers they are one all-to-all of three times the bytes; without training they stay."""
    tables = tables_of(*SHAPES)
    plan = Plan(tables, (PLACED[2], PLACED[10], COPY, PLACED[12]), 4, 2)
    for training in (True, False):
        evaluator = evaluator_of(tables, ExchangeSets(), training=training)
        costed = evaluator.cost(plan)
        times = {row.name: row.time_s for row in costed.cost.rows}
        keys = sum(time for name, time in times.items() if any(x in name for x in ("lengths", "ids")))
        splits = sum(time for name, time in times.items() if "splits" in name)
        one = evaluator.setting.links.timing(
            "all_to_all", np.array([3 * evaluator.times.splits_bytes]), np.array([4.0]), 2
        )
        want = keys + (float(one.time_s[0]) if training else splits)
        assert sum_parts(costed, Dense({})).keys == pytest.approx(want, rel=1e-12)


def test_no_plan_for_torchrec_is_below_the_bound() -> None:
    """Every plan of three tables, one after the other; and the search finds the best of them."""
    tables = tables_of(*SHAPES[1:])
    evaluator = evaluator_of(tables, ExchangeSets(), training=False)
    loads = [
        evaluator.loads(Plan(tables, tuple(PLACED[i] for i in placed), 4, 2)).max(axis=1)
        for placed in product(range(len(PLACED)), repeat=3)
    ]
    best = float(evaluator.time_passes(np.array(loads)).min())

    def list_for_torchrec(more: Any) -> Options:
        return torchrec.restrict_to_torchrec(list_options(evaluator, 80e9, more), evaluator)

    found = Search(evaluator, 80e9, effort_s=0.4, options=list_for_torchrec, ruled=True).run()
    assert found.bound_s <= best * (1 + 1e-3)
    assert found.costed.time_s <= best * (1 + 1e-3)


def test_copies_are_one_dense_parameter() -> None:
    """Of 60 rows of 16 in fp32: a gradient as large as the rows, a state for every element, none for rows;
    the update moves them all. By itself a copy has rowwise Adagrad's state, and its gradient is a buffer."""
    tables, copied = tables_of(*SHAPES[2:]), (COPY, PLACED[2])
    how = {"training": True, "optimizer": "rowwise-adagrad", "gpus_per_node": 2}
    inside = Evaluator.on("h100-sxm-ib", tables, 512, 4, sets=ExchangeSets(), **how)
    own = Evaluator.on("h100-sxm-ib", tables, 512, 4, **how)
    rows = 60 * 16 * 4.0
    assert [float(part[0]) for part in inside.memories.count_copies([0], [60])] == [rows, 2 * rows]
    assert [float(part[0]) for part in own.memories.count_copies([0], [60])] == [rows, 60 * 4]
    plan = Plan(tables, copied, 4, 2)
    updated = [e.loads(plan)[Resource.UPDATE_L2][0] for e in (inside, own)]
    assert updated[0] - updated[1] == pytest.approx(2 * (rows - 60 * 4))
    halves = PlanTables.of(TableSet("mine", (Table("t0", 60, 16, 1.0, "fp16"), Table("t1", 4000, 16, 4.0))))
    reduced = [
        on_halves.loads(Plan(halves, copied, 4, 2))[Resource.COPIED_GRADIENTS][0]
        for sets in (ExchangeSets(), None)
        for on_halves in [Evaluator.on("h100-sxm-ib", halves, 512, 4, sets=sets, **how)]
    ]
    assert reduced == [60 * 16 * 2, 60 * 16 * 4]  # a parameter's gradient is of its own type


def test_an_all_reduce_needs_the_gradient_and_no_more() -> None:
    """Of 10^6 rows of 16 in fp32 on every rank, 64 MB: it is summed in place. In TorchRec it is there in any
    case, with the table (``gradient_as_bucket_view``), and the buffers are those of the other exchanges."""
    tables = PlanTables.of(TableSet("mine", (Table("t0", 10**6, 16, 1.0), Table("t1", 4000, 16, 4.0))))
    plan, how = Plan(tables, (COPY, PLACED[2]), 4, 2), {"training": True, "gpus_per_node": 2}
    own, inside = (
        Evaluator.on("h100-sxm-ib", tables, 512, 4, sets=sets, **how).cost(plan)
        for sets in (None, ExchangeSets())
    )
    assert own.memory.buffer_bytes.tolist() == [64e6] * 4
    assert inside.memory.buffer_bytes.max() < 1e6
    assert own.fullest_bytes == pytest.approx(inside.fullest_bytes, rel=0.01)


@pytest.mark.parametrize("weighted", [(True, False, False), (True, True, True), (False, False, False)])
def test_a_collection_is_weighted_as_a_whole(weighted: tuple[bool, ...]) -> None:
    """Ids of all tables count with a weight if those of one have any; without TorchRec each for itself."""

    def sent(which: tuple[bool, ...], sets: ExchangeSets | None) -> float:
        named = [Table(f"t{i}", 4000, 16, 4.0, weighted=each) for i, each in enumerate(which)]
        tables = PlanTables.of(TableSet("mine", tuple(named)))
        plan = Plan(tables, tuple(PLACED[1:4]), 4, 2)
        return float(evaluator_of(tables, sets, training=True).loads(plan)[Resource.WEIGHTS_SENT][0])

    every = 512 * 4 * 4.0 * 3  # samples, look-ups and bytes of a weight, of three tables
    assert sent(weighted, ExchangeSets()) == (every if any(weighted) else 0)
    assert sent(weighted, None) == 0  # with the ids
