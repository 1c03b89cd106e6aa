"""Misses of a set-associative cache: the limits that docstrings state, and simulated caches of 32 ways."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from oracles.set_cache import SetCache
from perfmodel.model.set_caches import asked_rate
from simulated_caches import ROWS, WAYS, batches, lru_fetched, sets_of

from perfmodel.model import access, caching, set_caches
from perfmodel.model.popularity import popularity_bins
from perfmodel.schema.distributions import zipf

BINS = 32


def lru_batch_misses(*of: object, **more: float) -> float:
    return float(np.sum(set_caches.lru_batch_misses(*of, **more)))  # type: ignore[arg-type]


def lfu_batch_misses(*of: object) -> float:
    return float(np.sum(set_caches.lfu_batch_misses(*of)))  # type: ignore[arg-type]


def lfu_missed(asked: list[list[int]], sets: int, warm: int) -> float:
    """Distinct rows a batch that are not among the 32 rows of their set that were asked for the most."""
    place = sets_of(sets)
    seen = Counter(row for batch in asked[:warm] for row in batch)
    of: dict[int, list[int]] = {}
    for row, _ in seen.most_common():
        of.setdefault(place[row], []).append(row)
    kept = {row for rows in of.values() for row in rows[:WAYS]}
    return float(np.mean([len(set(batch) - kept) for batch in asked[warm:]]))


def test_a_simulated_cache_of_32_ways_misses_as_often() -> None:
    """Draw after draw."""
    errors = []
    for s, share in product((0.0, 0.8, 1.05, 1.2), (0.05, 0.2)):
        p, rows = access.zipf_popularity(ROWS, s, BINS)
        sets, many = int(ROWS * share / WAYS), 220 * 400
        seen = lru_fetched(batches(s, 1, many, seed=sets), sets, warm=2 * many // 3)
        errors.append(abs(lru_batch_misses(asked_rate(p, 1), rows, sets, WAYS) / seen - 1))
    assert np.median(errors) <= 0.01
    assert max(errors) <= 0.04


def batch_error(s: float, n: int, share: float) -> tuple[float, float]:
    """Misses of the law over those of FBGEMM's cache, less 1; rows of a batch over the cache's room."""
    random = np.random.default_rng([int(100 * s), n, int(1000 * share)])
    p, rows = access.zipf_popularity(ROWS, s, BINS)
    below, shuffled = np.cumsum(np.arange(1, ROWS + 1) ** -s), random.permutation(ROWS)
    cache = SetCache(ROWS, int(ROWS * share / WAYS), random, "lru")
    many = 60 + int(60 * share * ROWS / n)
    drawn = np.searchsorted(below / below[-1], random.random((many, n)))
    found = [cache.batch(shuffled[np.minimum(ids, ROWS - 1)]) for ids in drawn][many // 2 :]
    missed, asked = (
        float(np.mean([one.size for one in x])) for x in ([f.missed for f in found], [f.asked for f in found])
    )
    law = lru_batch_misses(asked_rate(p, n), rows, cache.held.shape[0], WAYS)
    return law / missed - 1, asked / cache.held.size


def test_batches_of_any_size_miss_as_often_as_in_a_cache_that_takes_them_whole() -> None:
    """Of a fiftieth of what a cache has room for to ten times as much: then its sets overflow."""
    cases = product((0.0, 0.8, 1.05, 1.2), (200, 1000, 4000), (0.02, 0.1, 0.5))
    errors, filled = np.abs(np.array([batch_error(s, n, share) for s, n, share in cases])).T
    assert np.median(errors) <= 0.01
    assert errors[filled < 0.7].max() <= 0.03
    assert errors.max() <= 0.09
    assert filled.min() < 0.05 < 5 < filled.max()


def test_a_simulated_cache_of_the_most_frequent_rows_misses_as_often() -> None:
    errors = []
    for s in (0.8, 1.05, 1.2):
        p, rows = access.zipf_popularity(ROWS, s, BINS)
        asked = list(batches(s, 400, 2000, seed=3))
        for share in (0.05, 0.2, 0.5):
            sets = int(ROWS * share / WAYS)
            found = lfu_batch_misses(asked_rate(p, 400), rows, sets, WAYS)
            errors.append(abs(found / lfu_missed(asked, sets, 1800) - 1))
    assert np.median(errors) <= 0.05
    assert max(errors) <= 0.15


def test_many_ways_are_a_cache_without_sets() -> None:
    p, rows = access.zipf_popularity(ROWS, 1.05, BINS)
    stays = caching.characteristic_draws(p, rows, 2000)
    whole = float(caching.miss_ratio(p, rows, stays))
    assert lru_batch_misses(asked_rate(p, 1), rows, 2, 1000) == pytest.approx(whole, rel=0.02)
    assert lru_batch_misses(asked_rate(p, 1), rows, 62.5, 32) > whole


def test_limits() -> None:
    p, rows = access.zipf_popularity(5000, 1.1, BINS)
    a, asked = asked_rate(p, 300), float(access.unique_rows(p, rows, 300))
    assert set_caches.rows_asked(a, rows, [0, 1, 1e12]) == pytest.approx([0, asked, 5000])
    assert set_caches.rows_asked([np.inf], [1], [0, 1]) == pytest.approx([0, 1])
    for misses in (lru_batch_misses, lfu_batch_misses):
        assert misses(a, rows, 1e9, WAYS) == pytest.approx(0, abs=1e-9)
        assert misses(a, rows, 1e-9, WAYS) == pytest.approx(asked)
    assert set_caches.evicted_chance([0, 1e9], 10, WAYS) == pytest.approx([0, 1])


def test_a_cache_of_rows_asked_for_alike_keeps_its_share() -> None:
    a, whole = asked_rate([1 / ROWS], 100), 100 * (1 - 50 / ROWS)
    assert lfu_batch_misses(a, [ROWS], ROWS / 2 / WAYS, 1e6) == pytest.approx(0)
    found = lfu_batch_misses(a, [ROWS], ROWS / 2 / WAYS, WAYS)
    assert found == pytest.approx(lru_batch_misses(a, [ROWS], ROWS / 2 / WAYS, WAYS), rel=0.01)
    assert 0.5 * whole < found < 0.51 * whole


def test_batches_that_come_again_before_a_row_leaves_miss_nothing() -> None:
    p, rows = access.zipf_popularity(5000, 1.1, BINS)
    a = asked_rate(p, 100)
    assert lru_batch_misses(a, rows, 100, WAYS, repeat=3) == pytest.approx(0, abs=1e-6)
    assert lru_batch_misses(a, rows, 100, WAYS) > 1


def test_two_tables_that_share_a_cache_are_one_table_of_both() -> None:
    p, rows = access.zipf_popularity(5000, 1.1, BINS)
    a = asked_rate(p, 300)
    both = lru_batch_misses(np.concatenate([a, a]), np.concatenate([rows, rows]), 80, WAYS)
    assert both == pytest.approx(2 * lru_batch_misses(a, rows, 40, WAYS))


@pytest.mark.parametrize("part", [0.01, 0.1, 0.5])
def test_many_bins_are_merged_without_another_answer(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    """Sixty tables of Zipf's law against the sum over every bin; fewer than a tenth of the rates are left."""
    rng, rates, counts = np.random.default_rng(1), [], []
    for size in 10 ** rng.uniform(4, 7, 60):
        p, rows = popularity_bins(zipf(1.05), float(int(size)))
        rates.append(asked_rate(p, 16_384 * rng.uniform(5, 60)))
        counts.append(rows / 16)
    a, rows = np.tile(np.hstack(rates), 2), np.tile(np.hstack(counts), 2)
    sets = part * rows.sum() / WAYS
    assert a.size > set_caches._MANY_BINS
    assert set_caches._merged(a, rows)[0].size < a.size / 8
    merged = set_caches.lru_batch_misses(a, rows, sets, WAYS)
    monkeypatch.setattr(set_caches, "_MANY_BINS", a.size)
    every = set_caches.lru_batch_misses(a, rows, sets, WAYS)
    assert np.abs(merged - every).sum() < 2e-5 * every.sum()
    assert not np.array_equal(merged, every)


@pytest.mark.parametrize("often", [0.5, 3.0, 50.0, np.inf])
def test_a_full_cache_has_as_many_rows_as_fit(often: float) -> None:
    """3000 rows that many batches ask for and a million others, in 90 sets of 32: nearly 2880 of them."""
    a, rows, sets = np.array([often, 1e-4]), np.array([3000.0, 1e6]), 90
    missed = set_caches.lru_batch_misses(a, rows, sets, WAYS)
    there = rows - missed / -np.expm1(-a)
    assert there.sum() == pytest.approx(sets * WAYS, rel=2e-3)
    assert (there >= 0).all() and missed[0] >= (3000 - sets * WAYS) * -np.expm1(-often) * (1 - 1e-3)
