"""Popularity of rows on a chip: shares of any part, misses, and distributions that are none."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.model.access import zipf_popularity
from perfmodel.model.caching import cold_misses
from perfmodel.onechip.popular import RowPopularity, stays_alone, stays_together


def test_shares_of_rows() -> None:
    popular = RowPopularity.of([0.01, 0.08], [20, 10])
    assert popular.p.tolist() == [0.08, 0.01]
    assert popular.share([0, 5, 10, 0], [5, 10, 30, 30]).tolist() == pytest.approx([0.4, 0.4, 0.2, 1])
    assert popular.at(popular.p, [0, 9, 10, 29]).tolist() == [0.08, 0.08, 0.01, 0.01]


def test_misses_of_rows_sum_to_those_of_the_table() -> None:
    p, rows = zipf_popularity(10_000, 1.05, 64)
    popular = RowPopularity.of(p, rows)
    for held in (0.0, 500.0, 10_000.0):
        stays = stays_alone(popular, held)
        missed = np.sum(popular.misses(20_000, stays) * popular.rows)
        assert missed == pytest.approx(float(cold_misses(p, rows, 20_000, held)), rel=1e-3)


def test_tables_share_a_cache_by_how_often_they_are_asked() -> None:
    alike = [RowPopularity.uniform(1000)] * 2
    size = np.array([100.0, 100.0])
    both = stays_together(alike, np.array([5000.0, 5000.0]), size, 100_000)
    assert 5000 * both == pytest.approx(stays_alone(alike[0], 500), rel=1e-3)
    assert stays_together(alike, np.array([10.0, 10.0]), size, 100_000) == np.inf
    assert stays_together(alike, np.array([10.0, 10.0]), size, 0) == 0
