"""Caches of cores: limits, chance against draws, a cache of few lines."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chip_tables import one_row
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import BadInputError
from perfmodel.model import core_cache, one_chip
from perfmodel.model.access import unique_rows, zipf_popularity
from perfmodel.model.caching import characteristic_draws
from perfmodel.model.core_cache import stays_in_core
from perfmodel.onechip.core_misses import Cores, Passed, passed
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.popular import RowPopularity, popularities
from perfmodel.onechip.work import CoreStep, Way
from perfmodel.resources import data_path
from perfmodel.schema.chip import Chip, load_chip, read_chip
from perfmodel.schema.distributions import parse_distribution

NONE = {"core_cache_bytes": 0, "core_cache_bytes_per_s": 0, "core_cache_latency_s": 0}
NEAR = {"core_cache_bytes": 1000, "core_cache_bytes_per_s": 1e15, "core_cache_latency_s": 10e-9}


def tables(rows: Any, dim: float = 32, pooling: float = 1) -> Any:
    m = np.atleast_1d(np.asarray(rows, dtype=float))
    shape = (np.full(m.size, float(a)) for a in (dim, 4, pooling))
    return SimpleNamespace(rows=m, **dict(zip(("dim", "element_bytes", "pooling"), shape, strict=True)))


def passed_by(
    one: RowPopularity, draws: float, held: float, first: float = 0, part: float = 0.1, parts: float = 96
) -> Passed:
    rows = float(one.rows.sum())
    cores = Cores(np.array([part]), np.array([held]), 64, parts)
    return passed(one, np.array([first]), np.array([rows]), np.array([float(draws)]), cores)


# ---- equations --------------------------------------------------------------------------------------------


def test_gathering_through_an_empty_cache_has_its_limits() -> None:
    def time(n: float, first: float, missed: float, misses: float, peak: float = 1e15) -> float:
        last = first
        return float(core_cache.cold_gather_time(n, 512, first, last, 20, missed, misses, 64, peak))

    assert time(0, 350, 350, 0) == 0
    assert time(1, 350, 350, 0) == pytest.approx(350)
    assert time(64, 350, 350, 0) == pytest.approx(350)
    assert time(640, 350, 350, 576) == pytest.approx(640 * 350 / 64, rel=0.01)
    assert time(640, 350, 350, 576) == pytest.approx(
        float(one_chip.gather_time(640, 512, 350, 350, 64, 1e15)), rel=0.01
    )
    assert time(6.4e6, 350, 350, 0) == pytest.approx(6.4e6 * 20 / 64, rel=1e-2)
    assert time(6.4e6, 350, 350, 0, peak=512) == pytest.approx(6.4e6, rel=1e-2)


def test_the_last_slow_ones_are_waited_for() -> None:
    assert core_cache.last_wait(100, 0, 50, 2) == pytest.approx(0, abs=1e-6)
    assert core_cache.last_wait(100, 1, 50, 2) == pytest.approx(100, rel=0.03)
    random, long, each, chance, count = np.random.default_rng(1), 100.0, 2.0, 0.03, 200
    slow = random.random((20_000, count)) < chance
    ends = np.arange(count) * each + slow * long
    more = ends.max(axis=1).mean() - (count - 1) * each
    assert core_cache.last_wait(long, chance, long / each, each) == pytest.approx(more, rel=0.05)
    few = ends[:, -20:].max(axis=1).mean() - (count - 1) * each
    assert core_cache.last_wait(long, chance, 20, each) == pytest.approx(few, rel=0.05)


def test_rows_from_outside_limit_the_rate_by_their_share() -> None:
    assert core_cache.passed_rate(200, 100, 1) == 100
    assert core_cache.passed_rate(200, 100, 0) == 200
    assert core_cache.passed_rate(200, 100, 0.8) == pytest.approx(125)


def test_few_balls_meet_as_often_as_drawn_ones() -> None:
    random = np.random.default_rng(2)
    for balls, bins in ((1, 96), (5, 96), (20, 96), (60, 80), (1000, 32)):
        at = random.integers(bins, size=(4000, balls)) + np.arange(4000)[:, np.newaxis] * bins
        most = np.bincount(at.ravel(), minlength=4000 * bins).reshape(4000, bins).max(axis=1).mean()
        assert one_chip.most_balls(balls, bins) == pytest.approx(most, rel=0.04), (balls, bins)


def test_few_heavy_rows_make_parts_more_uneven_than_many() -> None:
    assert one_chip.uneven(132.0**2, 96, 132.0**3) == pytest.approx(132 * (1 - 1 / 96), rel=0.01)
    assert one_chip.uneven(100.0, 1, 1000.0) == 0
    assert one_chip.uneven(132.0**2, 96, 1e9 * 132.0**3) == one_chip.uneven(132.0**2, 96, 132.0**3)
    for least in (0.0, 5e-324, 1e-300):
        assert 0 <= one_chip.uneven(least, 96, 1.4e-40) <= least**0.5
        assert one_chip.uneven(1.0, 96, least) == one_chip.uneven(1.0, 96)
    many = float(one_chip.uneven(1e6, 96, 1e6))
    assert many == pytest.approx(float(one_chip.uneven(1e6, 96)), rel=0.02)
    assert one_chip.uneven(20 * 100.0**2, 96, 20 * 100.0**3) > 1.2 * one_chip.uneven(20 * 100.0**2, 96)


def test_cores_that_a_row_lets_go_one_by_one() -> None:
    assert one_chip.staggered_time([1, 2, 3], [1, 1, 1], [0, 0, 0]) == 0
    assert one_chip.staggered_time([1, 2, 3], [1, 1, 1], [0, 5, 0]) == 1 + 5 + 1
    assert one_chip.staggered_time([1, 2, 3], [1, 1, 1], [0, 0, 9]) == 12


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 3)), min_size=1, max_size=20))
def test_a_queue_is_first_come_first_served(jobs: list[tuple[float, float]]) -> None:
    arrive, service = (np.array(a) for a in zip(*jobs, strict=True))
    free, expected = 0.0, {}
    for at in np.argsort(arrive, kind="stable").tolist():
        expected[at] = max(free - arrive[at], 0)
        free = max(free, arrive[at]) + service[at]
    found = one_chip.queue_waits(arrive, service)
    assert found == pytest.approx([expected[at] for at in range(len(jobs))], abs=1e-9)


@pytest.mark.parametrize("kept", [0.0, 0.4])
def test_copies_of_the_same_rows_are_read_as_often_as_at_random_times(kept: float) -> None:
    assert one_chip.copies_read(1, kept) == pytest.approx(1)
    times = np.sort(np.random.default_rng(3).random((20_000, 12)), axis=1)
    read = 1 + (np.diff(times, axis=1) > kept).sum(axis=1).mean()
    assert one_chip.copies_read(12, kept) == pytest.approx(read, rel=0.02)


# ---- what a core's cache passes on ------------------------------------------------------------------------


def lru_misses(ids: np.ndarray, held: int) -> int:
    kept: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for row in ids.tolist():
        missed += row not in kept
        kept[row] = None
        kept.move_to_end(row)
        if len(kept) > held:
            kept.popitem(last=False)
    return missed


def test_no_room_passes_everything_on() -> None:
    one = RowPopularity.of(*zipf_popularity(1000, 1.05, 16))
    out = passed_by(one, 500, 0.5)
    assert out.requests == pytest.approx(500) and out.hottest == pytest.approx(500 * one.p[0])
    q = 500 * one.p
    assert out.squares == pytest.approx(np.sum(one.rows * (q + q**2 / 0.1)))


def test_room_for_all_passes_each_row_once() -> None:
    one = RowPopularity.of(*zipf_popularity(1000, 1.05, 16))
    out = passed_by(one, 5000, 1000)
    assert out.requests == pytest.approx(float(unique_rows(one.p, one.rows, 5000)))
    assert out.hottest == pytest.approx(1) and out.begin <= 64
    assert passed_by(one_row(1000), 5000, 1).requests == pytest.approx(1)
    assert passed_by(one_row(1000), 5000, 1).begun == pytest.approx(1)


def test_few_rows_that_all_cores_ask_for_are_heavy() -> None:
    one = RowPopularity.of([0.04, 0.2 / 980], [20.0, 980.0])
    out = passed_by(one, 200, 1000, part=0.01)
    hot, cold = ((1 - (1 - p) ** 200) / 0.01 for p in one.p)
    mean = (20 * hot + 980 * cold) / 1000
    cubes = 0.01 * (20 * (hot - mean) ** 3 + 980 * (cold - mean) ** 3)
    assert out.cubes == pytest.approx(cubes * 96 * 10 / 999, rel=1e-6)
    assert passed_by(RowPopularity.of([0.04, 0.2 / 60], [20.0, 60.0]), 200, 1000).cubes == 0


def test_a_part_of_the_rows_has_the_cache_for_itself() -> None:
    one = RowPopularity.of(*zipf_popularity(1000, 1.05, 16))
    rest = passed_by(one, 5000, 990, first=10)
    assert rest.requests == pytest.approx(
        float(unique_rows(one.p, one.rows, 5000)) - np.sum(1 - (1 - one.p[:10]) ** 5000), rel=1e-6
    )


@pytest.mark.parametrize(("skew", "held"), [(0.0, 150), (1.05, 20), (1.05, 700)])
def test_a_simulated_cache_passes_on_as_much(skew: float, held: int) -> None:
    p, rows = zipf_popularity(1000, skew, 64)
    one = RowPopularity.of(p, rows)
    every = np.repeat(one.p, np.round(one.rows).astype(int))
    random = np.random.default_rng(4)
    for n in (50, 400, 5000):
        seen = [
            lru_misses(random.choice(every.size, n, p=every / every.sum()), held)
            for _ in range(-(-1000 // n))
        ]
        assert passed_by(one, n, held).requests == pytest.approx(np.mean(seen), rel=0.04), n


def test_how_long_a_row_stays_is_the_characteristic_time() -> None:
    p, rows = zipf_popularity(5000, 1.05, 16)
    held, draws = np.array([1.0, 30.0, 2000.0, 4990.0, 0.5]), np.full(5, 1e9)
    found = stays_in_core(p, np.tile(rows, (5, 1)), draws, held)
    assert found[:4] == pytest.approx(characteristic_draws(p, rows, held[:4]), rel=1e-4)
    assert found[4] == 0
    assert np.isinf(stays_in_core(p, rows[np.newaxis], np.array([10.0]), np.array([30.0])))


# ---- costs ------------------------------------------------------------------------------------------------


def steps_of(chip: Chip, ids: str, lockstep: bool) -> list[np.ndarray]:
    t = tables([40, 3000, 500_000], dim=64, pooling=4)
    c = ChipCost(chip, t, 2048, popularities([parse_distribution(ids)] * 3, t.rows))
    work = c.work([0, 1, 2], Way.GM, t.rows, 64, np.array([[2048.0], [37], [0]]), lockstep=lockstep)
    return [getattr(step, each.name) for step in work.steps for each in fields(CoreStep)]


def test_a_chip_whose_file_gives_no_cache_of_a_core_has_none(tmp_path: Path) -> None:
    text = data_path("chips", "h100-sxm.toml").read_text(encoding="utf-8")
    older = tmp_path / "older.toml"
    older.write_text(text[: text.index("[values.core_cache_bytes]")], encoding="utf-8")
    without = read_chip(older)
    assert without.value("core_cache_bytes") == 0
    zero = load_chip("h100-sxm").with_overrides(NONE)
    for ids in ("uniform", "zipf:1.05", "one-row"):
        for lockstep in (True, False):
            for one, other in zip(
                steps_of(without, ids, lockstep), steps_of(zero, ids, lockstep), strict=True
            ):
                np.testing.assert_array_equal(one, other)


def test_a_cache_without_room_for_a_row_changes_no_request() -> None:
    small = load_chip("h100-sxm").with_overrides({"core_cache_bytes": 100})
    for ids in ("uniform", "zipf:1.05"):
        pairs = zip(steps_of(small, ids, True), steps_of(small.with_overrides(NONE), ids, True), strict=True)
        names = [each.name for each in fields(CoreStep)] * 4
        for name, (one, other) in zip(names, pairs, strict=True):
            if name.endswith("bytes") or name.endswith("spread"):
                np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)


def test_each_core_asks_once_for_the_one_row() -> None:
    chip = load_chip("h100-sxm")
    t = tables(1000, pooling=10)
    c = ChipCost(chip, t, 4096, [one_row(1000)])
    work = c.work(0, Way.GM, 1000, 32, np.full(132, 4096 / 132), lockstep=True)
    assert work.steps[2].cache_bytes.sum() == pytest.approx(132 * 128)
    assert work.steps[2].gm_bytes.sum() == pytest.approx(128)


def test_a_cache_of_a_core_makes_hot_rows_cheaper_and_nothing_dearer() -> None:
    chip = load_chip("h100-sxm")
    t = tables(100_000, pooling=20)
    for ids, at_most in (("uniform", 1.02), ("zipf:1.05", 0.5), ("one-row", 0.05)):
        popular = popularities([parse_distribution(ids)], t.rows)
        both = [ChipCost(on, t, 8192, popular) for on in (chip, chip.with_overrides(NONE))]
        times = [cost.in_step(0, Way.GM).seconds for cost in both]
        assert times[0] <= at_most * times[1], ids


@pytest.mark.parametrize(("cache", "read"), [({}, 1.0), ({"cache_bytes": 2000}, 8.0)])
def test_slices_that_keep_the_same_rows_read_them_once_where_they_stay(
    cache: dict[str, float], read: float
) -> None:
    chip, t = load_chip("h100-sxm").with_overrides(cache), tables(50)
    c = ChipCost(chip, t, 512)
    size = 50 * 128
    parts = c.work(0, Way.L1, 50, 32, np.full(8, 64.0))
    assert parts.steps[0].gm_bytes.sum() == pytest.approx(read * size)
    assert parts.steps[0].cache_bytes.sum() == pytest.approx(8 * size)
    assert c.work(0, Way.L1, 50, 32, 512).steps[0].gm_bytes == pytest.approx(size)


def test_without_a_cache_every_slice_reads() -> None:
    none = dict.fromkeys(("cache_bytes", "cache_bytes_per_s", "cache_slices", "cache_latency_s"), 0.0)
    c = ChipCost(load_chip("h100-sxm").with_overrides({**none, **NONE}), tables(50), 512)
    for way in (Way.L1, Way.GM_UB):
        step = c.work(0, way, 50, 32, np.full(8, 64.0)).steps[0 if way == Way.L1 else 2]
        assert step.gm_bytes.sum() == pytest.approx(8 * 50 * 128)


# ---- simulator --------------------------------------------------------------------------------------------


# ---- both, and files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"core_cache_bytes_per_s": 0, "core_cache_latency_s": 0}, "gives all of core_cache_bytes,"),
        ({"core_cache_latency_s": "250ns"}, "core_cache_latency_s is more than cache_latency_s"),
        ({"core_cache_bytes": -1}, "must not be negative"),
    ],
)
def test_caches_that_cannot_be_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_chip("h100-sxm").with_overrides(values)
    assert said in str(caught.value)
