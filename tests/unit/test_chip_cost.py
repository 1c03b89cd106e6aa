"""Costs of pieces on one chip: numbers that a human can divide, limits, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chip_tables import one_row, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import BadInputError
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.layout import layout
from perfmodel.onechip.popular import RowPopularity, popularities
from perfmodel.onechip.symmetric import symmetric_pieces
from perfmodel.onechip.work import WAYS, Way
from perfmodel.schema.chip import Chip, load_chip
from perfmodel.schema.distributions import parse_distribution

PLAIN = {
    "cores": 2,
    "local_bytes": 100_000,
    "vector_bytes": 100_000,
    "core_bytes_per_s": 10e9,
    "dma_bytes_per_s": 10e9,
    "local_bytes_per_s": 20e9,
    "vector_bytes_per_s": 40e9,
    "local_to_vector_bytes_per_s": 50e9,
    "row_issue_s": 0,
    "id_s": 0,
    "row_latency_s": 1e-6,
    "rows_in_flight": 1,
    "gm_bytes_per_s": 1e15,
    "channels": 1,
    "cache_bytes": 0,
    "cache_bytes_per_s": 0,
    "cache_slices": 0,
    "cache_latency_s": 0,
}


def chip(**values: float) -> Chip:
    return load_chip("ascend-910").with_overrides({**PLAIN, **values})


def cost(
    on: Chip | None = None, rows: Any = 500, batch: float = 100, popular: Any = None, **shape: float
) -> ChipCost:
    return ChipCost(on or chip(), tables(rows, **shape), batch, popular)


# ---- one piece --------------------------------------------------------------------------------------------

AROUND = 1e-6 + 100 * (8 + 8 + 100) / 10e9
"""Ids of 100 bags waited for and read, 100 bags of 25 numbers written."""


def test_gathering_from_global_memory() -> None:
    work = cost(chip(access_bytes=1)).work(0, Way.GM, 500, 25, 100)
    assert work.core_s == pytest.approx(AROUND + 100 * 1e-6, rel=1e-6)
    assert work.total("gm_bytes") == pytest.approx(100 * (100 + 8 + 8 + 100))
    assert work.local_bytes == work.vector_bytes == 0 and work.fits.all()


def test_a_table_that_stays_is_copied_once() -> None:
    work = cost(chip(access_bytes=1)).work(0, Way.L1, 500, 25, 100)
    assert work.core_s == pytest.approx(AROUND + 100 * 100 / 20e9)
    assert work.preload_s == pytest.approx(1e-6 + 50_000 / 10e9)
    assert work.local_bytes == 50_000 and work.total("gm_bytes") == pytest.approx(100 * (8 + 8 + 100))


def test_a_table_that_does_not_stay_is_copied_for_every_batch() -> None:
    kept = load_chip("h100-sxm").with_overrides(
        {**PLAIN, "local_to_vector_bytes_per_s": 0, "access_bytes": 1}
    )
    work = ChipCost(kept, tables(500), 100).work(0, Way.L1, 500, 25, 100)
    assert work.core_s == pytest.approx(AROUND + 100 * 100 / 20e9 + 1e-6 + 50_000 / 10e9)
    assert work.preload_s == 0
    assert work.total("gm_bytes") == pytest.approx(100 * (8 + 8 + 100) + 50_000)


def test_streaming_never_depends_on_which_ids_are_drawn_where_copies_decide() -> None:
    on = chip(access_bytes=1, vector_bytes_per_s=1e15)
    even = cost(on).work(0, Way.GM_UB, 500, 25, 100)
    one = cost(on, popular=[one_row(500)]).work(0, Way.GM_UB, 500, 25, 100)
    assert even.core_s == pytest.approx(float(one.core_s))
    assert even.core_s == pytest.approx(AROUND + 50_000 / 10e9, rel=0.01)


def test_no_bags_take_no_time() -> None:
    for way in WAYS:
        work = cost().work(0, way, 500, 25, 0)
        assert work.core_s == 0 and work.total("gm_bytes") == 0, way


def test_pieces_of_the_batch_share_what_the_table_takes() -> None:
    whole = cost().work(0, Way.GM, 500, 25, 100)
    parts = cost().work(0, Way.GM, 500, 25, np.array([30, 70]))
    assert parts.total("gm_bytes").sum() == pytest.approx(float(whole.total("gm_bytes")))


def test_rows_that_are_asked_for_often_take_their_share() -> None:
    popular = [RowPopularity(np.array([0.8 / 5, 0.2 / 495]), np.array([5.0, 495.0]))]
    few = cost(popular=popular).work(0, Way.GM, 5, 25, 100)
    rest = cost(popular=popular).work(0, Way.GM, 495, 25, 100, 5)
    look_ups = few.steps[1].gm_bytes + rest.steps[1].gm_bytes
    assert few.steps[1].gm_bytes == pytest.approx(0.8 * 100 * 128)
    assert look_ups == pytest.approx(100 * 128)


def test_partial_bags_are_read_and_added_to() -> None:
    half = cost(pooling=2.0).work(0, Way.GM, 250, 25, 100)
    whole = cost(pooling=2.0).work(0, Way.GM, 500, 25, 100)
    assert half.steps[2].gm_bytes == pytest.approx(100 * 0.75 * 100 * 2)
    assert whole.steps[2].gm_bytes == pytest.approx(100 * 100)


def test_what_does_not_fit_is_said() -> None:
    big = cost(rows=10_000)
    assert [bool(big.work(0, way, 10_000, 25, 100).fits) for way in WAYS] == [True, False, True, True]
    wide = cost(rows=10, dim=30_000)
    assert [bool(wide.work(0, way, 10, 30_000, 100).fits) for way in WAYS] == [True, False, False, False]
    work = big.work(0, Way.L1, 10_000, 25, np.array([100.0]))
    assert big.batch_s([0], [0], work).seconds == np.inf


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"batch of 0"):
        cost(batch=0)


# ---- buffers ----------------------------------------------------------------------------------------------


def test_the_vector_buffer_holds_two_chunks_and_the_bags_of_a_pass() -> None:
    lay = layout(chip(), Way.GM_UB, 1000, 100, 25, 1000, 1)
    assert lay.chunks == 8
    most = (100_000 - 2 * 12_500 - 4) // (100 + 4 + 4)
    assert lay.passes == np.ceil(1000 / most) == 2
    assert lay.vector_bytes == 25_000 + 500 * 108 + 4 and lay.fits


def test_rows_stay_where_chunks_and_bags_leave_room() -> None:
    one = load_chip("h100-sxm").with_overrides({"local_bytes": 100_000, "vector_bytes": 100_000})
    lay = layout(one, Way.L1_UB, 1000, 100, 25, 100, 1)
    assert lay.resident == (100_000 - 25_000 - 100 * 108 - 4) // 100 == 641
    two = layout(chip(), Way.L1_UB, 1000, 100, 25, 100, 1)
    assert two.resident == 1000 and two.local_bytes == 100_000
    assert layout(chip(), Way.L1_UB, 5000, 100, 25, 100, 1, local=20_000).resident == 200


def test_a_table_that_has_room_stays_whole_where_that_is_faster() -> None:
    """Two rows beside as many bags as have room: they stay, as nothing has to be copied in chunks then."""
    one = load_chip("h100-sxm")
    room = one.value("local_bytes")
    per_bag = 3 * 4 + 4 + 20 * 4
    most = (room - 2 * 12 - 4) // per_bag
    for bags, passes in ((most - 1, 1), (most, 1), (most + 1, 2)):
        lay = layout(one, Way.L1_UB, 2, 12, 3, bags, 20)
        assert (lay.resident, lay.chunks, lay.passes) == (2, 0, passes)
        assert lay.fits and lay.local_bytes + lay.vector_bytes <= room
    few = layout(one, Way.L1_UB, 440, 512, 128, 1000, 1)  # the table leaves room for a dozen bags
    assert few.chunks > 0 and few.passes < 10


# ---- batches ----------------------------------------------------------------------------------------------


def test_cores_work_side_by_side_and_pieces_one_after_the_other() -> None:
    c = cost(rows=[500, 500])
    work = c.work([0, 1], Way.L1, 500, 25, 100)
    assert c.batch_s([0, 0], [0, 1], work).seconds == pytest.approx(2 * float(work.core_s[0]))
    assert c.batch_s([0, 1], [0, 1], work).seconds == pytest.approx(float(work.core_s[0]))


def test_memory_decides_where_it_is_slow() -> None:
    c = cost(chip(gm_bytes_per_s=1e8, access_bytes=1, rows_in_flight=64))
    work = c.work(0, Way.GM, 500, 25, np.array([50.0, 50.0]))
    batch = c.batch_s([0, 1], [0, 0], work)
    assert batch.limit in ("memory", "channel")
    assert batch.shared_s["memory"] == pytest.approx(100 * 216 / 1e8)
    assert batch.seconds >= batch.shared_s["memory"]


def test_one_row_keeps_one_channel_busy() -> None:
    on = chip(channels=10, gm_bytes_per_s=1e9, rows_in_flight=64)
    even = cost(on).work(0, Way.GM, 500, 25, np.array([100.0]))
    one = cost(on, popular=[one_row(500)]).work(0, Way.GM, 500, 25, np.array([100.0]))
    assert cost(on).batch_s([0], [0], one).shared_s["channel"] == pytest.approx((100 * 128 + 1160) / 1e8)
    assert one.total("hot_gm_bytes") == pytest.approx(0.9 * 100 * 128)
    assert even.total("hot_gm_bytes") == pytest.approx(0, abs=1e-6)


def test_a_cache_serves_rows_that_were_asked_for() -> None:
    cached = {"cache_bytes": 1e6, "cache_bytes_per_s": 1e15, "cache_slices": 1, "cache_latency_s": 1e-7}
    c = cost(chip(**cached), batch=10_000)
    work = c.work(0, Way.GM, 500, 25, 10_000)
    assert work.steps[1].gm_bytes == pytest.approx(500 * 128)
    assert work.steps[1].cache_bytes == pytest.approx(10_000 * 128)
    assert work.steps[1].busy_s + work.steps[1].wait_s == pytest.approx(500 * 1e-6 + 9500 * 1e-7, rel=1e-3)


def test_tables_in_one_order_take_less_than_one_by_one() -> None:
    on, t = load_chip("h100-sxm"), tables([1000, 5000, 300], dim=64)
    popular = popularities([parse_distribution("zipf:1.05")] * 3, t.rows)
    c = ChipCost(on, t, 1024, popular)
    pieces = symmetric_pieces(on, t, 1024, [Way.GM] * 3)
    flat = [(core, piece) for core, every in enumerate(pieces) for piece in every]
    table = np.array([piece.table for _, piece in flat])
    bags = np.array([piece.bags[1] - piece.bags[0] for _, piece in flat])
    work = c.work(table, Way.GM, t.rows[table], 64, bags, lockstep=True)
    said = c.batch_s([core for core, _ in flat], table, work)
    one_by_one = np.array([c.in_step(at, Way.GM).seconds for at in range(3)])
    assert max(one_by_one) < said.seconds < one_by_one.sum()


# ---- properties -------------------------------------------------------------------------------------------

SHAPES = st.tuples(
    st.sampled_from(["ascend-910", "ascend-910b", "h100-sxm"]),
    st.integers(1, 5000),
    st.integers(1, 256),
    st.sampled_from([1.0, 2.5, 20.0]),
    st.sampled_from(["uniform", "zipf:1.05", "one-row"]),
)


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(1, 3000), st.integers(1, 3000))
def test_more_bags_never_take_less(shape: tuple[str, int, int, float, str], fewer: int, more: int) -> None:
    """But where a pass more, of fewer bags, leaves room for rows that need not be copied again then."""
    name, rows, dim, pooling, ids = shape
    t = tables(rows, dim, pooling)
    c = ChipCost(load_chip(name), t, 4096, popularities([parse_distribution(ids)], t.rows))
    few, many = sorted((fewer, more))
    for way in WAYS:
        work = c.work(0, way, rows, dim, np.array([few, many]))
        if work.fits.all():
            slack = 0.1 if way == Way.L1_UB and c.chip.buffers.shared else 1e-9
            assert work.core_s[0] <= work.core_s[1] * (1 + slack), way
            assert work.total("gm_bytes")[0] <= work.total("gm_bytes")[1] * (1 + 1e-9), way
            for field in ("wait_s", "busy_s", "variance_s2", "hot_gm_bytes", "gm_spread", "hot_cache_bytes"):
                assert (work.total(field) >= 0).all(), (way, field)
            one = c.batch_s([0], [0], work.take(np.array([1]))).seconds
            assert one >= 0.99 * work.core_s[1]


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.floats(0.01, 0.99))
def test_parts_of_the_rows_share_the_look_ups(shape: tuple[str, int, int, float, str], cut: float) -> None:
    name, rows, dim, pooling, ids = shape
    t = tables(rows + 1, dim, pooling)
    c = ChipCost(load_chip(name), t, 512, popularities([parse_distribution(ids)], t.rows))
    first = min(max(1, int(cut * rows)), rows)
    parts = c.work(0, Way.GM, [first, rows + 1 - first], dim, 512, [0, first])
    whole = c.work(0, Way.GM, rows + 1, dim, 512)
    for field in ("gm_bytes", "cache_bytes"):
        mine, all_of_it = (getattr(work.steps[-2], field) for work in (parts, whole))
        if field == "cache_bytes" and c.chip.value(
            "core_cache_bytes"
        ):  # a part has a core's cache for itself
            assert mine.sum() <= float(all_of_it) * (1 + 1e-6)
        else:
            assert mine.sum() == pytest.approx(float(all_of_it), rel=1e-6)
