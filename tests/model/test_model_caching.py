"""Misses of a cache: the limits that docstrings state, and a simulated LRU cache."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import access

BINS = 32


def lru_misses(ids: np.ndarray, held: int, warm: np.ndarray | None = None) -> int:
    """Misses of ``ids`` in a cache of ``held`` rows that forgets the row not asked for the longest."""
    kept: OrderedDict[int, None] = OrderedDict()
    misses = 0
    before = [] if warm is None else warm.tolist()
    for at, one in enumerate([*before, *ids.tolist()]):
        if one in kept:
            kept.move_to_end(one)
            continue
        misses += at >= len(before)
        kept[one] = None
        if len(kept) > held:
            kept.popitem(last=False)
    return misses


def drawn(rows: int, s: float, n: int, seed: int) -> np.ndarray:
    p = np.arange(1, rows + 1, dtype=float) ** -s
    return np.random.default_rng(seed).choice(rows, n, p=p / p.sum())


def test_popularities_sum_to_one_and_fall_with_the_rank() -> None:
    p, rows = access.zipf_popularity(1e6, 1.05, BINS)
    assert np.sum(p * rows) == pytest.approx(1)
    assert rows.sum() == 1e6
    assert (np.diff(p) < 0).all()
    assert p[0] / p[1] == pytest.approx(2**1.05)


def test_no_skew_is_the_uniform_law() -> None:
    p, rows = access.zipf_popularity(1000, 0, BINS)
    assert p == pytest.approx(np.full(p.shape, 1e-3))
    assert access.unique_rows(p, rows, [1, 500]) == pytest.approx(access.unique_rows_uniform(1000, [1, 500]))
    assert access.characteristic_draws(p, rows, 250) == pytest.approx(np.log(0.75) / np.log(0.999))
    assert access.miss_ratio(p, rows, access.characteristic_draws(p, rows, 250)) == pytest.approx(0.75)


def test_one_row_is_missed_once() -> None:
    p, rows = access.zipf_popularity(1, 1.2, BINS)
    assert access.cold_misses(p, rows, [1, 10], 1) == pytest.approx([1, 1])


def test_limits() -> None:
    p, rows = access.zipf_popularity(5000, 1.1, BINS)
    assert access.characteristic_draws(p, rows, [0, 1, 5000, 9000]) == pytest.approx([0, 1, np.inf, np.inf])
    assert access.miss_ratio(p, rows, [0, np.inf]) == pytest.approx([1, 0])
    assert access.cold_misses(p, rows, [1, 700], 0) == pytest.approx([1, 700])
    assert access.cold_misses(p, rows, 700, 5000) == pytest.approx(access.unique_rows(p, rows, 700))


@pytest.mark.parametrize("s", [0, 0.8, 1.05, 1.2])
@pytest.mark.parametrize("held", [20, 200, 1500])
def test_a_simulated_cache_that_starts_empty_misses_as_often(s: float, held: int) -> None:
    n = 20_000
    p, rows = access.zipf_popularity(4000, s, BINS)
    seen = lru_misses(drawn(4000, s, n, seed=held), held)
    assert seen == pytest.approx(float(access.cold_misses(p, rows, n, held)), rel=0.02)


@pytest.mark.parametrize("s", [0, 1.05])
def test_a_simulated_cache_that_is_warm_misses_as_often(s: float) -> None:
    n, held = 20_000, 400
    p, rows = access.zipf_popularity(4000, s, BINS)
    seen = lru_misses(drawn(4000, s, n, 1), held, warm=drawn(4000, s, n, 2))
    expected = n * access.miss_ratio(p, rows, access.characteristic_draws(p, rows, held))
    assert seen == pytest.approx(float(expected), rel=0.02)


@pytest.mark.parametrize(("n", "held"), [(1500, 800), (3000, 500), (1200, 600)])
def test_the_uniform_hit_ratio_is_that_of_a_simulated_cache(n: int, held: int) -> None:
    E = 1000
    p, rows = access.zipf_popularity(E, 0, BINS)
    seen = np.mean([lru_misses(drawn(E, 0, n, seed), held) for seed in range(40)])
    hit = access.l2_hit_ratio(E, n, held, access.unique_rows_uniform(E, n))
    assert n * (1 - hit) == pytest.approx(seen, rel=0.01)
    assert n * (1 - hit) == pytest.approx(float(access.cold_misses(p, rows, n, held)))
    if (n, held) == (1200, 600):  # Lin et al. fill the cache with X draws: 600 + 600 (1 - 0.6) = 840
        assert 840 / seen == pytest.approx(1.18, abs=0.01)


def test_every_row_is_missed_once_whatever_the_room() -> None:
    """Within a draw of when a small cache is full, later misses are rarer than first ones were."""
    for held in (1.125, 1.5, 2):
        assert access.cold_misses([0.5], [2], 2, held) == pytest.approx(1.5)
    assert access.cold_misses([0.5], [2], 4, 1) == pytest.approx(1 + 3 * 0.5)


@given(
    st.integers(2, 10**7),
    st.floats(0, 2),
    st.integers(1, 10**8),
    st.integers(1, 10**8),
    st.floats(0.01, 1),
    st.data(),
)
def test_more_draws_miss_more_and_more_room_misses_less(
    E: int, s: float, n: int, more: int, share: float, data: st.DataObject
) -> None:
    p, rows = access.zipf_popularity(E, s, 8)
    held = max(1.0, share * E)
    few, many = access.cold_misses(p, rows, [n, n + more], held)
    tight = access.cold_misses(p, rows, n, max(1.0, data.draw(st.floats(0, 1)) * held))
    assert few <= many * (1 + 1e-9)
    assert few <= tight * (1 + 1e-6)
    assert few <= n * (1 + 1e-9)
