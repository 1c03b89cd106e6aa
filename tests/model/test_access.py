"""Limits of perfmodel.model.access, asserted as the docstrings state them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from perfmodel.model import access

rows = st.floats(1, 1e11)
draws = st.floats(1, 1e8)


def unique_rows_zipf(E: float, n: ArrayLike, s: float, bins_per_octave: int) -> Any:
    """Distinct rows among n draws under Zipf's law."""
    return access.unique_rows(*access.zipf_popularity(E, s, bins_per_octave), n)


def test_touched_fraction_limits() -> None:
    assert access.touched_fraction(0.25, 1) == pytest.approx(0.25)
    assert access.touched_fraction(0.5, 2) == pytest.approx(0.75)
    assert access.touched_fraction(1.0, 5) == 1.0
    assert access.touched_fraction(1e-15, 10) == pytest.approx(1e-14, rel=1e-9)
    assert access.touched_fraction(0.1, 1e9) == 1.0


def test_unique_rows_uniform_by_hand() -> None:
    # 2 draws from 2 rows: (1 + 2) / 2 distinct on average
    assert access.unique_rows_uniform(2, 2) == pytest.approx(1.5)
    assert access.unique_rows_uniform(7, 1) == pytest.approx(1)
    assert access.unique_rows_uniform(1, 99) == pytest.approx(1)
    assert access.unique_rows_uniform(1e12, 1000) == pytest.approx(1000, rel=1e-6)
    assert access.unique_rows_uniform(10, 1e6) == pytest.approx(10)


def test_unique_rows_uniform_against_a_drawn_sample() -> None:
    rng = np.random.default_rng(7)
    distinct = [np.unique(rng.integers(0, 500, 400)).size for _ in range(300)]
    assert access.unique_rows_uniform(500, 400) == pytest.approx(np.mean(distinct), rel=0.01)


@given(rows, draws)
def test_unique_rows_are_within_rows_and_draws(E: float, n: float) -> None:
    unique = float(access.unique_rows_uniform(E, n))
    assert 1 - 1e-9 <= unique <= min(E, n) * (1 + 1e-9)


def test_unique_rows_zipf_limits() -> None:
    n = np.array([1.0, 100.0, 1e4])
    flat = unique_rows_zipf(5000, n, 0.0, 8)
    assert flat == pytest.approx(access.unique_rows_uniform(5000, n), rel=1e-9)
    assert unique_rows_zipf(1, 5, 1.1, 8) == pytest.approx(1)
    assert unique_rows_zipf(10_000, 1, 1.1, 8) == pytest.approx(1, rel=1e-9)
    assert unique_rows_zipf(100, 1e9, 1.1, 8) == pytest.approx(100, rel=1e-6)


def test_unique_rows_zipf_against_the_whole_sum() -> None:
    ranks = np.arange(1, 100_001)
    p = ranks**-1.15 / np.sum(ranks**-1.15)
    exact = np.sum(1 - (1 - p) ** 20_000)
    assert unique_rows_zipf(100_000, 20_000, 1.15, 16) == pytest.approx(exact, rel=2e-3)


@given(st.integers(2, 10**7), st.floats(0.2, 2))
def test_skew_never_adds_unique_rows(E: int, s: float) -> None:
    skewed = unique_rows_zipf(E, 1000.0, s, 16)
    assert skewed <= access.unique_rows_uniform(E, 1000.0) * (1 + 1e-9)


def test_resident_rows_limits() -> None:
    assert access.resident_rows(1e6, 1e6, 128, 0) == 0
    assert access.resident_rows(50, 200, 128, np.inf) == 50
    assert access.resident_rows(500, 200, 128, np.inf) == 200
    assert access.resident_rows(500, 200, 128, 12_800) == 100


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
