"""Rows that look-ups touch, and misses of a cache: limits as docstrings state them, and a simulated cache."""

from __future__ import annotations

import statistics
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import access

rows = st.floats(1, 1e11)
draws = st.floats(1, 1e8)
BINS = 32


def test_touched_fraction_limits() -> None:
    assert access.touched_fraction(0.25, 1) == pytest.approx(0.25)
    assert access.touched_fraction(0.5, 2) == pytest.approx(0.75)
    assert access.touched_fraction(1.0, 5) == access.touched_fraction(0.1, 1e9) == 1
    assert access.touched_fraction(1e-15, 10) == pytest.approx(1e-14, rel=1e-9)


@pytest.mark.parametrize(
    ("E", "n", "unique"), [(2, 2, 1.5), (7, 1, 1), (1, 99, 1), (1e12, 1e3, 1e3), (10, 1e6, 10)]
)
def test_unique_rows_of_uniform_ids(E: float, n: float, unique: float) -> None:
    """Of 2 draws from 2 rows (1 + 2) / 2 are distinct on average; no skew is the uniform law."""
    assert access.unique_rows_uniform(E, n) == pytest.approx(unique, rel=1e-6)
    assert access.unique_rows(*access.zipf_popularity(E, 0.0, 8), n) == pytest.approx(unique, rel=1e-6)


@given(rows, draws)
def test_unique_rows_are_within_rows_and_draws(E: float, n: float) -> None:
    assert 1 - 1e-9 <= float(access.unique_rows_uniform(E, n)) <= min(E, n) * (1 + 1e-9)


def test_unique_rows_of_skewed_ids() -> None:
    p = np.arange(1, 100_001) ** -1.15
    exact = np.sum(1 - (1 - p / p.sum()) ** 20_000)
    assert access.unique_rows(*access.zipf_popularity(100_000, 1.15, 16), 20_000) == pytest.approx(
        exact, 2e-3
    )
    assert access.unique_rows(*access.zipf_popularity(100, 1.1, 8), 1e9) == pytest.approx(100, rel=1e-6)


@given(st.integers(2, 10**7), st.floats(0.2, 2))
def test_skew_never_adds_unique_rows(E: int, s: float) -> None:
    skewed = access.unique_rows(*access.zipf_popularity(E, s, 16), 1000.0)
    assert skewed <= access.unique_rows_uniform(E, 1000.0) * (1 + 1e-9)


def test_resident_rows_limits() -> None:
    cases = ((1e6, 1e6, 0), (50, 200, np.inf), (500, 200, np.inf), (500, 200, 12_800))
    assert [access.resident_rows(E, n, 128, cache) for E, n, cache in cases] == [0, 50, 200, 100]


def test_l2_hit_ratio_limits() -> None:
    assert access.l2_hit_ratio(1000, 100, 0, 95) == 0
    assert access.l2_hit_ratio(1, 10, 1, 1) == pytest.approx(0.9)
    assert access.l2_hit_ratio(1e15, 1000, 500, 1000) == pytest.approx(0, abs=1e-9)
    # 2 draws from 4 rows ask for 4 (1 - (3/4)^2) = 1.75 different ones and fill a cache of 1.75 rows; of the
    # 8 draws left, 2.25/4 miss: 1.75 + 4.5 = 6.25 misses of 10
    assert access.l2_hit_ratio(4, 10, 1.75, 3.8) == pytest.approx(0.375)


@given(rows, draws, st.floats(1, 1e6), st.floats(1.0, 4.0))
def test_misses_never_fall_as_lookups_grow(E: float, n: float, cache_rows: float, more: float) -> None:
    def misses(look_ups: float) -> float:
        kept = access.resident_rows(E, look_ups, 1.0, cache_rows)
        unique = access.unique_rows_uniform(E, look_ups)
        return float(look_ups * (1 - access.l2_hit_ratio(E, look_ups, kept, unique)))

    assert misses(n * more) >= misses(n) * (1 - 1e-9) - 1e-14 * n * more


def lru_misses(ids: np.ndarray, held: int, warm: np.ndarray | None = None) -> int:
    """Misses of ``ids`` in a cache of ``held`` rows that forgets the row not asked for the longest."""
    cache: OrderedDict[int, None] = OrderedDict()
    misses, before = 0, [] if warm is None else warm.tolist()
    for place, row in enumerate([*before, *ids.tolist()]):
        misses += row not in cache and place >= len(before)
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > held:
            cache.popitem(last=False)
    return misses


def draw(E: int, s: float, n: int, seed: int) -> np.ndarray:
    p = np.arange(1, E + 1, dtype=float) ** -s
    return np.random.default_rng(seed).choice(E, n, p=p / p.sum())


def test_popularities_sum_to_one_and_fall_with_the_rank() -> None:
    p, counts = access.zipf_popularity(1e6, 1.05, BINS)
    assert np.sum(p * counts) == pytest.approx(1) and counts.sum() == 1e6
    assert (np.diff(p) < 0).all() and p[0] / p[1] == pytest.approx(2**1.05)


def test_limits_of_a_cache() -> None:
    p, counts = access.zipf_popularity(5000, 1.1, BINS)
    stays = access.characteristic_draws(p, counts, [0, 1, 5000, 9000])
    assert stays == pytest.approx([0, 1, np.inf, np.inf])
    assert access.miss_ratio(p, counts, [0, np.inf]) == pytest.approx([1, 0])
    assert access.cold_misses(p, counts, [1, 700], 0) == pytest.approx([1, 700])
    assert access.cold_misses(p, counts, 700, 5000) == pytest.approx(access.unique_rows(p, counts, 700))
    flat = access.zipf_popularity(1000, 0, BINS)
    assert access.characteristic_draws(*flat, 250) == pytest.approx(np.log(0.75) / np.log(0.999))
    assert access.miss_ratio(*flat, access.characteristic_draws(*flat, 250)) == pytest.approx(0.75)


@pytest.mark.parametrize("s", [0, 0.8, 1.2])
@pytest.mark.parametrize("held", [20, 200, 1500])
def test_a_simulated_cache_that_starts_empty_misses_as_often(s: float, held: int) -> None:
    p, counts = access.zipf_popularity(4000, s, BINS)
    misses = lru_misses(draw(4000, s, 20_000, seed=held), held)
    assert misses == pytest.approx(float(access.cold_misses(p, counts, 20_000, held)), rel=0.02)


@pytest.mark.parametrize("s", [0, 1.05])
def test_a_simulated_cache_that_is_warm_misses_as_often(s: float) -> None:
    n, held = 20_000, 400
    p, counts = access.zipf_popularity(4000, s, BINS)
    misses = lru_misses(draw(4000, s, n, 1), held, warm=draw(4000, s, n, 2))
    expected = n * access.miss_ratio(p, counts, access.characteristic_draws(p, counts, held))
    assert misses == pytest.approx(float(expected), rel=0.02)


@pytest.mark.parametrize(("n", "held"), [(1500, 800), (3000, 500), (1200, 600)])
def test_the_uniform_hit_ratio_is_that_of_a_simulated_cache(n: int, held: int) -> None:
    p, counts = access.zipf_popularity(1000, 0, BINS)
    misses = np.mean([lru_misses(draw(1000, 0, n, seed), held) for seed in range(40)])
    hit = access.l2_hit_ratio(1000, n, held, access.unique_rows_uniform(1000, n))
    assert n * (1 - hit) == pytest.approx(misses, rel=0.01)
    assert n * (1 - hit) == pytest.approx(float(access.cold_misses(p, counts, n, held)))
    if (n, held) == (1200, 600):  # Lin et al. fill the cache with X draws: 600 + 600 (1 - 0.6) = 840
        assert 840 / misses == pytest.approx(1.18, abs=0.01)


def test_every_row_is_missed_once_whatever_the_room() -> None:
    """Within a draw of when a small cache is full, later misses are rarer than first ones were."""
    for held in (1.125, 1.5, 2):
        assert access.cold_misses([0.5], [2], 2, held) == pytest.approx(1.5)
    assert access.cold_misses([0.5], [2], 4, 1) == pytest.approx(1 + 3 * 0.5)
    assert access.cold_misses([1.0], [1], [1, 10], 1) == pytest.approx([1, 1])


@given(
    st.integers(2, 10**7), st.floats(0, 2), *[st.integers(1, 10**8)] * 2, st.floats(0.01, 1), st.floats(0, 1)
)
def test_more_draws_miss_more_and_more_room_misses_less(
    E: int, s: float, n: int, more: int, share: float, part: float
) -> None:
    p, counts = access.zipf_popularity(E, s, 8)
    held = max(1.0, share * E)
    few, many = access.cold_misses(p, counts, [n, n + more], held)
    tight = access.cold_misses(p, counts, n, max(1.0, part * held))
    assert few <= min(many, n) * (1 + 1e-9) and few <= tight * (1 + 1e-6)


def test_misses_of_a_cache_of_rows_in_host_memory() -> None:
    p, counts = np.array([1 / 1000]), np.array([1000.0])
    once = float(access.unique_rows(p, counts, 500.0))
    misses = access.cache_misses(p, counts, 500.0, np.array([0.0, 100, 999, 1000]))
    assert misses == pytest.approx([once, 0.9 * once, 0.001 * once, 0])
    skewed = np.array([0.5, 0.001]), np.array([1.0, 500.0])
    stays = access.characteristic_draws(*skewed, np.array(50.0))
    assert access.cache_misses(*skewed, 1.0, np.array(50.0)) == pytest.approx(
        access.miss_ratio(*skewed, stays)
    )


@pytest.mark.parametrize(("skew", "held"), [(0.0, 300), (1.05, 100), (1.05, 600)])
def test_misses_are_those_of_a_replayed_cache_of_whole_batches(skew: float, held: int) -> None:
    """Batches of 200 ids from 2 000 rows, through a least-recently-used cache that keeps whole batches."""
    p, generator = np.arange(1, 2001, dtype=np.float64) ** -skew, np.random.default_rng(1)
    p, cache, missed = p / p.sum(), OrderedDict[int, None](), []
    for _ in range(150):
        ids = list(dict.fromkeys(generator.choice(2000, size=200, p=p).tolist()))
        missed.append(sum(row not in cache for row in ids))
        for row in ids:
            cache[row] = None
            cache.move_to_end(row)
        while len(cache) > held:
            cache.popitem(last=False)
    misses = float(access.cache_misses(p, np.ones(2000), 200.0, np.array(float(held))))
    assert misses == pytest.approx(statistics.mean(missed[50:]), rel=0.03)
