"""Plans for many cores: everything is looked up once, memory suffices, and loads are level."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.cuda.one_core_plan import (
    WAYS,
    CorePlan,
    Item,
    TableShape,
    asymmetric,
    check_covers,
    fitted,
    least_time_s,
    symmetric,
)
from perfmodel.errors import BadInputError

CAPACITY = 100_000


def cost(shape: TableShape, item: Item) -> float:
    """Rows brought cost 1 each, look-ups 4 from global memory and 1 inside the core, for 128 columns."""
    n = item.bags * shape.pooling
    width = item.columns / 128
    if item.way == "GM":
        return 4 * n * width
    brought = item.resident_rows + item.passes * (shape.rows - item.resident_rows)
    return (brought + n) * width


shapes = st.builds(
    TableShape, st.integers(1, 5000), st.integers(1, 300), st.sampled_from([2, 4]), st.floats(0, 50)
)


def test_a_resident_table_takes_its_rows_rounded_to_16_bytes() -> None:
    item = fitted(TableShape(100, 6), Item(0, "L1", 0, 9, 0, 6), 3200)
    assert (item.resident_rows, item.shared_bytes(4), item.passes) == (100, 3200, 0)
    with pytest.raises(BadInputError, match=r"needs 3200 bytes of a core's memory, which has 3199"):
        fitted(TableShape(100, 6), Item(0, "L1", 0, 9, 0, 6), 3199)


def test_a_stream_leaves_bags_an_eighth_for_each_chunk_and_makes_passes_equal() -> None:
    # chunks of 16 rows of 64 bytes twice: 2048 of 8192; a bag takes 64 of sums, 4 of its start, 2 x 4 of ids
    one = Item(0, "GM-UB", 0, 200, 0, 16)
    item = fitted(TableShape(1000, 16, 4, 2), one, 8192)
    assert (item.chunk_rows, item.pass_bags, item.passes, item.id_room) == (16, 67, 3, 134)
    assert item.shared_bytes(4) == 2 * 16 * 64 + 67 * 64 + 68 * 4 + 134 * 4 == 7144
    kept = fitted(TableShape(1000, 16, 4, 2), replace(one, way="L1-UB"), 8192)
    assert kept.resident_rows == (8192 - 7144) // 64 == 16
    assert fitted(TableShape(5, 16, 4, 2), one, 8192).chunk_rows == 3


@given(shapes, st.integers(1, 5000), st.sampled_from(WAYS), st.integers(1000, 232_000))
def test_what_is_fitted_fits(shape: TableShape, bags: int, way: str, capacity: int) -> None:
    try:
        item = fitted(shape, Item(0, way, 0, bags, 0, shape.dim), capacity)
    except BadInputError:
        assert way != "GM"
        return
    assert item.shared_bytes(shape.element_bytes) <= capacity
    if item.passes:
        assert item.pass_bags * item.passes >= bags and item.id_room >= item.pass_bags * shape.pooling
        assert item.resident_rows + 2 * item.chunk_rows >= 1


@settings(max_examples=30)
@given(st.lists(shapes, min_size=1, max_size=5), st.integers(1, 400), st.integers(1, 9))
def test_every_plan_looks_everything_up_once_within_memory(
    tables: list[TableShape], batch: int, cores: int
) -> None:
    for plan in (
        symmetric(tables, ["GM"] * len(tables), batch, cores, CAPACITY),
        asymmetric(tables, batch, cores, CAPACITY, cost),
    ):
        check_covers(plan, tables, batch)
        assert len(plan.cores) == cores and plan.shared_bytes(tables) <= CAPACITY
    assert asymmetric(tables, batch, cores, CAPACITY, cost) == plan
    assert max(plan.loads(tables, cost)) >= least_time_s(tables, batch, cores, CAPACITY, cost) * (1 - 1e-9)


def test_small_tables_stay_with_a_core_and_large_ones_are_cut() -> None:
    # 120 small tables cost 10 + 100 each; a large one 4 x 100 x 120 = 48000 on 16 cores: 3825 each
    tables = [TableShape(10, 128)] * 120 + [TableShape(10**9, 128, 4, 120)]
    plan = asymmetric(tables, 100, 16, CAPACITY, cost)
    owners = [
        {core for core, items in enumerate(plan.cores) if any(i.table == t for i in items)}
        for t in range(121)
    ]
    assert all(len(cores) == 1 for cores in owners[:120]) and len(owners[120]) > 10
    loads = plan.loads(tables, cost)
    assert max(loads) <= 1.1 * least_time_s(tables, 100, 16, CAPACITY, cost) == pytest.approx(1.1 * 3825)
    equal = symmetric(tables, ["L1"] * 120 + ["GM"], 100, 16, CAPACITY)
    assert max(equal.loads(tables, cost)) > 1.2 * max(loads)


def test_each_part_takes_its_cheapest_way() -> None:
    # 1000 look-ups: 40 rows fit; 600 rows of 512 bytes do not, and stream
    many, few = TableShape(600, 128, 4, 50), TableShape(40, 128, 4, 50)
    plan = asymmetric([many, few, TableShape(10**6, 128, 4, 1)], 100, 1, CAPACITY, cost)
    assert [item.way for item in plan.cores[0]] == ["GM-UB", "L1", "GM"]


def test_columns_are_cut_where_a_slice_of_them_is_resident() -> None:
    # 300 rows of 512 bytes: 320 of 332 bytes fit, 80 columns; streaming them takes 2 passes
    plan = asymmetric([TableShape(300, 128, 4, 4)], 300, 2, CAPACITY, cost)
    parts = {(item.way, item.first_column, item.columns) for items in plan.cores for item in items}
    assert parts == {("L1", 0, 80), ("L1", 80, 48)}


def test_the_busiest_core_is_relieved() -> None:
    # longest first puts 4 3 2 beside 4 3; a 4 for a 3 makes 8 and 8
    tables = [TableShape(1, 128, 4, pooling) for pooling in (4, 4, 3, 3, 2)]
    plan = asymmetric(tables, 1, 2, CAPACITY, lambda shape, item: shape.pooling)
    assert sorted(plan.loads(tables, lambda shape, item: shape.pooling)) == [8, 8]


def test_plans_that_leave_out_or_repeat_are_refused() -> None:
    tables = [TableShape(5, 8)] * 2
    good = symmetric(tables, ["GM", "GM"], 6, 2, CAPACITY)
    check_covers(good, tables, 6)
    first = good.cores[0]
    for wrong in (
        CorePlan((first,)),
        CorePlan((*good.cores, (first[0],))),
        CorePlan(((replace(first[0], columns=7), first[1]), good.cores[1])),
        CorePlan(((replace(first[0], table=2), first[1]), good.cores[1])),
    ):
        with pytest.raises(BadInputError, match=r"exactly once"):
            check_covers(wrong, tables, 6)
    with pytest.raises(BadInputError, match=r"0 cores has no work"):
        symmetric(tables, ["GM", "GM"], 6, 0, CAPACITY)
    with pytest.raises(BadInputError, match=r"cannot stream"):
        fitted(TableShape(2**30, 8), Item(0, "GM-UB", 0, 1, 0, 8), CAPACITY)


def test_cores_without_bags_have_no_items() -> None:
    plan = symmetric([TableShape(5, 8)], ["L1"], 2, 5, CAPACITY)
    assert sorted(len(items) for items in plan.cores) == [0, 0, 0, 1, 1]


def test_tables_are_cut_no_finer_than_needed() -> None:
    # 12 bags of 30 and of 10 look-ups at 4: 1440 and 480 on 4 cores, 480 each
    tables = [TableShape(10**9, 128, 4, 30), TableShape(10**9, 128, 4, 10)]
    plan = asymmetric(tables, 12, 4, CAPACITY, cost)
    assert sorted(item.bags for items in plan.cores for item in items) == [4, 4, 4, 12]
    assert plan.loads(tables, cost) == (480, 480, 480, 480)
