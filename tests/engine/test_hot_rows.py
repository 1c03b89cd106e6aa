"""Tables whose hot rows are on every rank: loads by hand, and limits."""

from __future__ import annotations

import numpy as np
import pytest
from searches import draw_tables

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import TOGETHER, Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.timing import round_off
from perfmodel.engine.training import Dense, sum_parts
from perfmodel.errors import BadInputError
from perfmodel.schema.workload import Distribution, Table, TableSet

MACHINE = "h100-sxm-ib"
HALVES = Distribution("histogram:mine", 0.0, ((0.1, 0.5), (0.9, 0.5)))
"""A tenth of the rows has half of the look-ups."""
B, G, D, L = 10, 2, 8, 4.0


def evaluator(ids: Distribution, rows: int = 100, pooling: float = L, **options: object) -> Evaluator:
    tables = PlanTables.of(TableSet("mine", (Table("t", rows, D, pooling),)), ids)
    return Evaluator.on(MACHINE, tables, B, G, **options)  # type: ignore[arg-type]


def loads(e: Evaluator, scheme: Scheme) -> dict[Resource, list[float]]:
    plan = Plan(e.tables, (Placement.of(scheme, range(scheme.parts)),), G, e.domain)
    found = e.loads(plan)
    return dict(zip(Resource, found.tolist(), strict=False))


def test_half_of_the_ids_stay_where_they_are() -> None:
    """40 look-ups of a rank, 20 of them hot; the table on rank 0 but for its 10 hottest rows."""
    found = loads(evaluator(HALVES), Scheme(Exchange.RB, hot_rows=10))
    assert found[Resource.IDS_SENT] == [20 * 8] * 2
    assert found[Resource.IDS_RECEIVED] == [2 * 20 * 8, 0]
    assert found[Resource.LENGTHS_SENT] == [10 * 8] * 2
    assert found[Resource.BUCKETIZE] == [10 * 8 + 40 * 8] * 2  # all are looked at
    assert found[Resource.BAGS_SENT] == [2 * 10 * D * 4, 0]  # dense: every bag
    assert found[Resource.LOCAL_SUM] == [3 * 10 * D * 4] * 2  # hot part + other part -> bag


def test_bytes_of_the_gathers_of_hot_rows_and_of_the_others() -> None:
    """What passes the L2: 20 rows of each rank from its copy, 40 of all ranks at the holder."""
    e = evaluator(HALVES)
    found = loads(e, Scheme(Exchange.RB, hot_rows=10))
    row, bag = e.setting.machine.value("row_access_bytes") + 8, 1.2 * (D * 4 + 8)
    assert found[Resource.GATHER_L2][1] == pytest.approx(20 * row + 10 * bag)
    assert found[Resource.GATHER_L2][0] == pytest.approx(20 * row + 10 * bag + 40 * row + 20 * bag)
    # from DRAM each row once: of 10 hot ones 10 (1 - 0.95^40)
    row = e.setting.machine.value("row_access_bytes")
    unique = 10 * (1 - 0.95**40)
    assert found[Resource.GATHER_DRAM][1] == pytest.approx(unique * row + 20 * 8 + 10 * bag)


def test_a_sparse_exchange_sends_bags_that_are_not_all_hot() -> None:
    found = loads(evaluator(HALVES, rows=10**6), Scheme(Exchange.SPARSE, hot_rows=10**5))
    bags = 10 * (1 - 0.5**4)
    assert found[Resource.SPARSE_RECEIVED] == pytest.approx([bags * (D * 4 + 4)] * 2, rel=1e-4)
    assert found[Resource.SPARSE_SENT] == pytest.approx([2 * bags * (D * 4 + 4), 0], rel=1e-4)


def test_unique_rows_are_those_of_the_others() -> None:
    e = evaluator(HALVES)
    found = loads(e, Scheme(Exchange.UB, hot_rows=10))
    unique = 90 * (1 - (1 - 0.5 / 90) ** 40)
    assert found[Resource.ROWS_RECEIVED] == pytest.approx([unique * D * 4] * 2)
    assert found[Resource.REQUESTS_SENT] == pytest.approx([unique * 12] * 2)
    assert found[Resource.DEDUPLICATE] == [40 * 200] * 2  # ids of the copies too
    row = e.setting.machine.value("row_access_bytes")  # each of those that came is read once
    assert found[Resource.POOL_DRAM] == pytest.approx([unique * row + 20 * 8 + 12 * (D * 4 + 8)] * 2)
    assert found[Resource.LOCAL_SUM] == [3 * 10 * D * 4] * 2


def test_training_reduces_the_gradients_of_hot_rows_as_those_of_copies() -> None:
    e = evaluator(HALVES, training=True, optimizer="rowwise-adagrad")
    found = loads(e, Scheme(Exchange.RB, hot_rows=10))
    assert found[Resource.COPIED_GRADIENTS] == [10 * D * 4] * 2
    copied = loads(e, Scheme(Exchange.DP))
    assert copied[Resource.COPIED_GRADIENTS] == [100 * D * 4] * 2
    assert found[Resource.SORT][1] == 20 * 32  # look-ups of hot rows alone, one digit
    assert found[Resource.SORT][0] == (20 + 40) * 32


def test_memory_is_the_copy_and_a_part_of_the_others() -> None:
    e = evaluator(HALVES, optimizer="rowwise-adagrad")
    plan = Plan(e.tables, (Placement.of(Scheme(Exchange.UB, 2, 1, 10), [0, 1]),), G, e.domain)
    memory = e.cost(plan).memory
    assert memory.rows_bytes.tolist() == [(10 + 45) * D * 4] * 2
    assert memory.optimizer_bytes.tolist() == [(10 + 45) * 4] * 2


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (Scheme(Exchange.RB, 1, 1, -1), "-1 hot rows"),
        (Scheme(Exchange.DP, 1, 1, 10), "dp with 10 hot rows"),
        (Scheme(Exchange.RS, 2, 1, 10), "rs with 10 hot rows"),
        (Scheme(Exchange.TWO_LEVEL, 2, 1, 10), "two_level with 10 hot rows"),
        (Scheme(Exchange.UB, 2, 1, 99), "2 row parts beside 99 hot rows of 100"),
    ],
)
def test_hot_rows_that_cannot_be(scheme: Scheme, said: str) -> None:
    e = evaluator(HALVES)
    with pytest.raises(BadInputError, match=said):
        Plan(e.tables, (Placement.of(scheme, range(scheme.parts)),), G, 2)


def test_hot_rows_are_looked_up_beside_the_exchange_as_copies_are() -> None:
    """In an overlapped step the hot part of the gather waits for no ids: half of its bytes and more here."""
    e = evaluator(HALVES, rows=10**6, training=True)
    plan = Plan(e.tables, (Placement.of(Scheme(Exchange.SPARSE, 2, 1, 10**5), [0, 1]),), G, e.domain)
    parts = sum_parts(e.cost(plan), Dense({}))
    found = loads(e, Scheme(Exchange.SPARSE, 2, 1, 10**5))[Resource.GATHER_DRAM][0]
    own = e.count_shards(0, Exchange.SPARSE, 2, 1, 10**5).on_holder[Resource.GATHER_DRAM]
    assert parts.dp_lookup / (parts.dp_lookup + parts.lookup) == pytest.approx(1 - own / found, rel=1e-6)
    assert parts.dp_update > 0 and parts.dp_reduce > 0


@pytest.mark.parametrize("training", [False, True])
def test_buffers_are_those_of_the_largest_collective(training: bool) -> None:
    evaluator = Evaluator.on(MACHINE, draw_tables(6), 1024, 16, training=training)
    values = np.random.default_rng(0).uniform(1, 1e9, (TOGETHER, 16))
    times, largest = evaluator.times, np.zeros(16)
    for step in times.steps:
        if step.collective and not step.splits and not step.in_place:
            sent = values[step.resources[0]]
            one = len(step.resources) == 1
            received = sent / times.group(step)[0] if one else values[step.resources[1]]
            largest = np.maximum(largest, sent + received)
    np.testing.assert_array_equal(times.count_buffers(values), largest)


def test_sums_in_another_order_are_the_same_number_and_others_are_not() -> None:
    random = np.random.default_rng(1)
    values = 10 ** random.uniform(-8, 12, (2000, 30))
    forth, back = round_off(values.sum(axis=1)), round_off(values[:, ::-1].cumsum(axis=1)[:, -1])
    assert (values.sum(axis=1) != values[:, ::-1].cumsum(axis=1)[:, -1]).mean() > 0.2
    assert (forth == back).all()
    np.testing.assert_allclose(round_off(values), values, rtol=2.0**-33)
    assert (round_off(values * (1 + 1e-9)) != round_off(values)).all()
    kept = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -3.5])
    assert round_off(kept).tobytes() == kept.tobytes()
