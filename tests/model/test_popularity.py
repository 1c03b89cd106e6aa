"""Which rows look-ups touch: laws by hand, tables against sums, caches against simulated ones."""

from __future__ import annotations

import statistics
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import access
from perfmodel.model import exchanges as ex
from perfmodel.model.popularity import Gather, LookUps, build_popularity, list_bins, scale_histogram
from perfmodel.model.recording import Array
from perfmodel.schema.workload import ONE_ROW, UNIFORM, Distribution, zipf

ALL = slice(None)
HALVES = Distribution("histogram:mine", 0.0, ((0.1, 0.5), (0.9, 0.5)))
rows_of = st.floats(1, 1e11)
draws_of = st.floats(1, 1e8)


def replay(batches: Iterable[Iterable[int]], held: int) -> list[int]:
    """Misses of each batch of ids in a least-recently-used cache of ``held`` rows."""
    cache, missed = OrderedDict[int, None](), []
    for ids in batches:
        missed.append(0)
        for row in ids:
            missed[-1] += row not in cache
            cache[row] = None
            cache.move_to_end(row)
        while len(cache) > held:
            cache.popitem(last=False)
    return missed


def draw(E: int, s: float, n: int, seed: int) -> Array:
    p = np.arange(1, E + 1, dtype=float) ** -s
    return np.random.default_rng(seed).choice(E, n, p=p / p.sum())


@pytest.mark.parametrize(
    ("p", "n", "share"), [(0.25, 1, 0.25), (0.5, 2, 0.75), (1.0, 5, 1), (0.1, 1e9, 1), (1e-15, 10, 1e-14)]
)
def test_chance_of_at_least_one_look_up(p: float, n: float, share: float) -> None:
    assert access.compute_touched_share(p, n) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(
    ("E", "n", "unique"), [(2, 2, 1.5), (7, 1, 1), (1, 99, 1), (1e12, 1e3, 1e3), (10, 1e6, 10)]
)
def test_unique_rows_of_uniform_ids(E: float, n: float, unique: float) -> None:
    """Of 2 draws from 2 rows (1 + 2) / 2 are distinct on average; no skew is the uniform law."""
    assert access.count_unique_uniform(E, n) == pytest.approx(unique, rel=1e-6)
    assert access.count_unique_rows(*access.build_zipf_bins(E, 0.0, 8), n) == pytest.approx(unique, rel=1e-6)


@given(st.integers(2, 10**7), st.floats(0.2, 2))
def test_skew_never_adds_unique_rows(E: int, s: float) -> None:
    skewed = access.count_unique_rows(*access.build_zipf_bins(E, s, 16), 1000.0)
    assert skewed <= access.count_unique_uniform(E, 1000.0) * (1 + 1e-9)


def test_bins_stand_for_their_rows() -> None:
    p = np.arange(1, 100_001) ** -1.15
    exact = np.sum(1 - (1 - p / p.sum()) ** 20_000)
    unique = access.count_unique_rows(*access.build_zipf_bins(100_000, 1.15, 16), 20_000)
    assert unique == pytest.approx(exact, rel=2e-3)
    p, _ = access.build_zipf_bins(1e6, 1.05, 32)
    assert p[0] / p[1] == pytest.approx(2**1.05)


@pytest.mark.parametrize(
    ("E", "n", "X", "U", "hit"), [(1000, 100, 0, 95, 0), (1, 10, 1, 1, 0.9), (4, 10, 1.75, 3.8, 0.375)]
)
def test_hit_ratio_by_hand(E: float, n: float, X: float, U: float, hit: float) -> None:
    """2 draws from 4 rows fill a cache of 4 (1 - (3/4)^2) = 1.75; of the other 8, 2.25/4 miss: 6.25 of 10."""
    assert access.compute_hit_ratio(E, n, X, U) == pytest.approx(hit)


@given(rows_of, draws_of, st.floats(1, 1e6), st.floats(1.0, 4.0))
def test_misses_never_fall_as_look_ups_grow(E: float, n: float, cache_rows: float, more: float) -> None:
    def misses(look_ups: float) -> float:
        resident = access.count_resident_rows(E, look_ups, 1.0, cache_rows)
        unique = access.count_unique_uniform(E, look_ups)
        return float(look_ups * (1 - access.compute_hit_ratio(E, look_ups, resident, unique)))

    assert misses(n * more) >= misses(n) * (1 - 1e-9) - 1e-14 * n * more


@pytest.mark.parametrize(("n", "held"), [(1500, 800), (3000, 500), (1200, 600)])
def test_the_uniform_hit_ratio_is_that_of_a_simulated_cache(n: int, held: int) -> None:
    misses = np.mean([sum(replay([[row] for row in draw(1000, 0, n, seed)], held)) for seed in range(40)])
    hit = access.compute_hit_ratio(1000, n, held, access.count_unique_uniform(1000, n))
    assert n * (1 - hit) == pytest.approx(misses, rel=0.01)
    if (n, held) == (1200, 600):  # Lin et al. fill the cache with X draws: 600 + 600 (1 - 0.6) = 840
        assert 840 / misses == pytest.approx(1.18, abs=0.01)


@pytest.mark.parametrize("s", [0, 0.8, 1.2])
@pytest.mark.parametrize("held", [20, 200, 1500])
def test_a_simulated_cache_that_starts_empty_misses_as_often(s: float, held: int) -> None:
    misses = sum(replay([[row] for row in draw(4000, s, 20_000, seed=held)], held))
    popularity = build_popularity(zipf(s), 4000)
    assert misses == pytest.approx(float(popularity.misses(20_000, held, ALL)), rel=0.02)


def test_draws_that_fill_a_cache() -> None:
    bins = access.build_zipf_bins(5000, 1.1, 32)
    draws = access.find_characteristic_draws(*bins, [0, 1, 5000, 9000])
    assert draws == pytest.approx([0, 1, np.inf, np.inf])
    flat = access.build_zipf_bins(1000, 0, 32)
    assert access.find_characteristic_draws(*flat, 250) == pytest.approx(np.log(0.75) / np.log(0.999))


def test_misses_of_a_warm_cache_by_hand() -> None:
    p, counts = np.array([1 / 1000]), np.array([1000.0])
    once = float(access.count_unique_rows(p, counts, 500.0))
    assert access.count_cache_misses([1.0, 0.0], [1, 9], 4, [0.0, 1.0]).tolist() == [1, 0]  # one row is hot
    misses = access.count_cache_misses(p, counts, 500.0, np.array([0.0, 100, 999, 1000]))
    assert misses == pytest.approx([once, 0.9 * once, 0.001 * once, 0])


@pytest.mark.parametrize(("skew", "held"), [(0.0, 300), (1.05, 100), (1.05, 600)])
def test_a_simulated_cache_that_is_warm_misses_as_many_rows_of_a_batch(skew: float, held: int) -> None:
    """Batches of 200 ids from 2 000 rows, through a cache that keeps whole batches."""
    p = np.arange(1, 2001, dtype=np.float64) ** -skew
    ids = draw(2000, skew, 150 * 200, seed=1).reshape(150, 200)
    missed = replay([dict.fromkeys(batch.tolist()) for batch in ids], held)
    misses = float(access.count_cache_misses(p / p.sum(), np.ones(2000), 200.0, np.array(float(held))))
    assert misses == pytest.approx(statistics.mean(missed[50:]), rel=0.03)


@pytest.mark.parametrize("ids", [UNIFORM, zipf(1.05), zipf(0.8), HALVES])
@pytest.mark.parametrize("rows", [1, 7, 1000, 4e7])
def test_all_look_ups_ask_for_some_row(ids: Distribution, rows: float) -> None:
    p, counts = list_bins(ids, rows)
    assert np.sum(p * counts) == pytest.approx(1)
    assert counts.sum() == pytest.approx(rows)
    assert (p <= 1).all() and (np.diff(p) < 0).all() and not p.flags.writeable


@pytest.mark.parametrize(
    ("E", "row_share", "lookup_share", "rows", "p"),
    [
        (100, [0.9, 0.1], [0.5, 0.5], [10, 90], [0.05, 0.5 / 90]),
        (5, [0.1, 0.9], [0.5, 0.5], [1, 4], [0.5 + 0.5 / 9, 0.5 / 4.5]),  # half a row is one, of both
        (20, [0.02, 0.08, 0.9], [0.2, 0.3, 0.5], [1, 1, 18], [0.2 + 0.3 * 0.6 / 1.6, 0.3 / 1.6, 0.5 / 18]),
        (50, [0.3, 0.7], [0.3, 0.7], [15, 35], [0.02, 0.02]),
    ],
)
def test_a_histogram_by_hand(
    E: float, row_share: list[float], lookup_share: list[float], rows: list[float], p: list[float]
) -> None:
    chances, counts = scale_histogram(E, row_share, lookup_share)
    assert chances == pytest.approx(p) and counts == pytest.approx(rows)


def test_one_row_is_asked_for_always() -> None:
    popularity = build_popularity(ONE_ROW, 1e6)
    assert popularity.unique(1000, ALL) == 1 and popularity.share(ALL) == 1
    assert popularity.misses(1000, [1, 50], ALL) == pytest.approx([1, 1])


@pytest.mark.parametrize("ids", [zipf(1.05), zipf(0.8), zipf(1.5), HALVES, UNIFORM])
@pytest.mark.parametrize("rows", [1000, 4e7])
def test_what_is_tabulated_is_what_is_summed(ids: Distribution, rows: float) -> None:
    """Misses of the table, of its 50 hottest rows and of all others, within 0.1 % of the look-ups."""
    popularity = build_popularity(ids, rows, (50.0,))
    X = np.array([1, 10, 300, rows / 30, rows / 2])
    for part in (ALL, slice(0, 1), slice(1, None)):
        p, counts = popularity.bins(part)
        stays = access.find_characteristic_draws(p, counts, X)
        gone = np.exp(np.minimum(stays, 1e300)[:, np.newaxis] * np.log1p(-p)) @ (p * counts)
        for n in (100.0, 1e5, 1e8):
            share, unique = popularity.share(part), float(access.count_unique_rows(p, counts, n))
            later = X + np.maximum(n - stays, 0) * gone
            wanted = np.minimum(np.where(n <= stays, unique, np.maximum(unique, later)), n * share)
            assert popularity.misses(n, X, part) == pytest.approx(wanted, abs=1e-3 * n * share)
            assert popularity.unique(n, part) == pytest.approx(unique)


@given(st.floats(0, 2), st.integers(2, 10**7), st.floats(1e-6, 1), st.floats(1, 1e9))
def test_hot_rows_and_the_others_are_all(skew: float, rows: int, part: float, n: float) -> None:
    hot = max(1.0, np.floor(part * rows))
    popularity = build_popularity(zipf(skew), rows, (hot,))
    head, tail = slice(0, 1), slice(1, None)
    assert popularity.share(head) + popularity.share(tail) == pytest.approx(1)
    assert popularity.bins(head)[1].sum() == pytest.approx(hot)
    assert popularity.share(head) >= hot / rows * (1 - 1e-6)
    unique = popularity.unique(n, head) + popularity.unique(n, tail)
    assert unique == pytest.approx(popularity.unique(n, ALL), rel=1e-6)


def test_uniform_hot_rows_have_their_share() -> None:
    look_ups = LookUps(UNIFORM, 1000, 10, 8, 4)
    assert look_ups.hot_share(0) == 0 and look_ups.hot_share(250) == 0.25
    assert look_ups.unique(250) == pytest.approx(750 * (1 - 0.999**80))
    assert look_ups.unique(250, everywhere=True) == pytest.approx(750 * (1 - 0.999**320))
    every = 1000 * (1 - 0.999**320)
    assert look_ups.cached(1.0) == pytest.approx((every, 0))
    assert look_ups.hot_share(1000) == 1 and look_ups.unique(1000) == 0
    assert look_ups.miss(Gather.SHARD, 1000, np.array([1.0, 5.0])).tolist() == [0, 0]


def test_a_gather_misses_what_a_cache_of_its_rows_misses() -> None:
    look_ups, table = LookUps(zipf(1.1), 10_000, 20, 100, 8), build_popularity(zipf(1.1), 10_000)
    X = np.array([500.0])
    assert look_ups.miss(Gather.COPY, 0, X) == pytest.approx(table.misses(2000, X, ALL) / 2000)
    shard = table.misses(16_000, X, ALL) / 16_000
    assert look_ups.miss(Gather.SHARD, 0, X) == pytest.approx(shard)
    # every rank asks once for each of its distinct rows: they are spread more evenly, and hit less
    assert look_ups.miss(Gather.REQUESTS, 0, X)[0] > 2 * shard[0]
    all_held = look_ups.miss(Gather.REQUESTS, 0, np.array([1e6]))[0]
    assert all_held == pytest.approx(look_ups.unique(0, everywhere=True) / (8 * look_ups.unique(0)), rel=0.06)
    # of what came to a rank, each row is read once where the cache holds them all
    assert look_ups.miss(Gather.COPY, 0, np.array([1e6]))[0] * 2000 == pytest.approx(look_ups.unique(0))


@pytest.mark.parametrize(("skew", "hot"), [(1.1, 0), (1.1, 20), (0.7, 0), (0.7, 200)])
def test_filled_bags_are_those_of_drawn_ids(skew: float, hot: int) -> None:
    """Bags of 20 drawn ids, rows in 8 parts by chance: how many parts have a row that is not hot."""
    rows, L, r, bags = 2000, 20, 8, 20_000
    ids, random = draw(rows, skew, bags * L, seed=hot).reshape(bags, L), np.random.default_rng(hot)
    filled = []
    for _ in range(10):
        part = np.where(np.arange(rows) < hot, -1, random.integers(0, r, rows))
        filled += [np.mean((part[ids] == piece).any(axis=1)) for piece in range(r)]
    look_ups = LookUps(zipf(skew), rows, L, 1, 1)
    q = float(ex.filled_share(r, look_ups.distinct_in_bag(hot), 1 - look_ups.hot_share(hot)))
    assert q == pytest.approx(np.mean(filled), rel=0.03)
