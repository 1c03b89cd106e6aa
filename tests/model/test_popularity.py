"""Popularity of rows: laws of any table size, what is tabulated against what is summed, hot rows by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.model import access
from perfmodel.model import exchanges as ex
from perfmodel.model.popularity import (
    Gather,
    LookUps,
    histogram_popularity,
    popularity,
    popularity_bins,
)
from perfmodel.schema.workload import ONE_ROW, UNIFORM, Distribution, zipf

ALL = slice(None)
HALVES = Distribution("histogram:mine", 0.0, ((0.1, 0.5), (0.9, 0.5)))


@pytest.mark.parametrize("ids", [UNIFORM, zipf(1.05), zipf(0.8), HALVES])
@pytest.mark.parametrize("rows", [1, 7, 1000, 4e7])
def test_all_look_ups_ask_for_some_row(ids: Distribution, rows: float) -> None:
    p, counts = popularity_bins(ids, rows)
    assert np.sum(p * counts) == pytest.approx(1)
    assert counts.sum() == pytest.approx(rows)
    assert (p <= 1).all() and (np.diff(p) < 0).all()


def test_a_histogram_by_hand() -> None:
    """A tenth of the rows has half of the look-ups: 10 of 100 rows with 5 % each, 90 with 5/9 %."""
    p, rows = histogram_popularity(100, [0.9, 0.1], [0.5, 0.5])
    assert rows == pytest.approx([10, 90]) and p == pytest.approx([0.05, 0.5 / 90])
    p, rows = histogram_popularity(5, [0.1, 0.9], [0.5, 0.5])  # half a row is one, with a ninth of the others
    assert rows == pytest.approx([1, 4]) and p == pytest.approx([0.5 + 0.5 / 9, 0.5 / 4.5])
    p, rows = histogram_popularity(20, [0.02, 0.08, 0.9], [0.2, 0.3, 0.5])  # 0.4, 1.6 and 18 rows
    assert rows == pytest.approx([1, 1, 18])
    assert p == pytest.approx([0.2 + 0.3 * 0.6 / 1.6, 0.3 / 1.6, 0.5 / 18])
    p, rows = histogram_popularity(100, [0.0001, 0.9999], [0.5, 0.5])  # a hundredth of a row is one
    assert p[0] == pytest.approx(0.5 + 0.5 * 0.99 / 99.99) and p @ rows == pytest.approx(1)
    p, rows = histogram_popularity(50, [0.3, 0.7], [0.3, 0.7])
    assert p == pytest.approx([0.02, 0.02]) and rows.sum() == 50


def test_one_row_is_asked_for_always() -> None:
    one = popularity(ONE_ROW, 1e6)
    assert one.unique(1000, ALL) == 1 and one.share(ALL) == 1
    assert one.misses(1000, [1, 50], ALL) == pytest.approx([1, 1])


@pytest.mark.parametrize("ids", [zipf(1.05), zipf(0.8), zipf(1.5), HALVES, UNIFORM])
@pytest.mark.parametrize("rows", [1000, 4e7])
def test_what_is_tabulated_is_what_is_summed(ids: Distribution, rows: float) -> None:
    """Misses of the table, of its 50 hottest rows and of all others, within 0.1 % of the look-ups."""
    found = popularity(ids, rows, (50.0,))
    X = np.array([1, 10, 300, rows / 30, rows / 2, rows])
    for part in (ALL, slice(0, 1), slice(1, None)):
        p, counts = found.bins(part)
        for n in (100.0, 1e5, 1e8):
            wanted = np.minimum(access.cold_misses(p, counts, n, X), n * found.share(part))
            assert found.misses(n, X, part) == pytest.approx(wanted, abs=1e-3 * n * found.share(part))
            assert found.unique(n, part) == pytest.approx(float(access.unique_rows(p, counts, n)))


@given(st.floats(0, 2), st.integers(2, 10**7), st.floats(1e-6, 1), st.floats(1, 1e9))
def test_hot_rows_and_the_others_are_all(skew: float, rows: int, part: float, n: float) -> None:
    hot = max(1.0, np.floor(part * rows))
    found = popularity(zipf(skew), rows, (hot,))
    head, tail = slice(0, 1), slice(1, None)
    assert found.share(head) + found.share(tail) == pytest.approx(1)
    assert found.bins(head)[1].sum() == pytest.approx(hot)
    assert found.share(head) >= hot / rows * (1 - 1e-6)
    assert found.unique(n, head) + found.unique(n, tail) == pytest.approx(found.unique(n, ALL), rel=1e-6)


def test_uniform_hot_rows_have_their_share() -> None:
    asked = LookUps(UNIFORM, 1000, 10, 8, 4)
    assert asked.hot_share(0) == 0 and asked.hot_share(250) == 0.25
    assert asked.unique(250) == pytest.approx(750 * (1 - 0.999**80))
    assert asked.unique(250, everywhere=True) == pytest.approx(750 * (1 - 0.999**320))
    assert asked.hot_share(1000) == 1 and asked.unique(1000) == 0
    assert asked.miss(Gather.SHARD, 1000, np.array([1.0, 5.0])).tolist() == [0, 0]


def test_a_gather_misses_what_a_cache_of_its_rows_misses() -> None:
    asked = LookUps(zipf(1.1), 10_000, 20, 100, 8)
    p, rows = popularity_bins(zipf(1.1), 10_000)
    X = np.array([500.0])
    copy = access.cold_misses(p, rows, 2000, X) / 2000
    assert asked.miss(Gather.COPY, 0, X) == pytest.approx(copy, abs=1e-3)
    shard = access.cold_misses(p, rows, 16_000, X) / 16_000
    assert asked.miss(Gather.SHARD, 0, X) == pytest.approx(shard, abs=1e-3)
    # every rank asks once for each of its distinct rows: they are spread more evenly, and hit less
    assert asked.miss(Gather.REQUESTS, 0, X)[0] > 2 * shard[0]
    whole = asked.miss(Gather.REQUESTS, 0, np.array([1e6]))[0]
    assert whole == pytest.approx(asked.unique(0, everywhere=True) / (8 * asked.unique(0)), rel=0.06)
    # of what came to a rank, each row is read once where the cache holds them all
    came = asked.miss(Gather.COPY, 0, np.array([1e6]))[0]
    assert came * 2000 == pytest.approx(asked.unique(0))


@pytest.mark.parametrize(("skew", "hot"), [(1.1, 0), (1.1, 20), (0.7, 0), (0.7, 200)])
def test_filled_bags_are_those_of_drawn_ids(skew: float, hot: int) -> None:
    """Bags of 20 drawn ids, rows in 8 parts by chance: how many parts have a row that is not hot."""
    random = np.random.default_rng(hot)
    rows, L, r, bags = 2000, 20, 8, 20_000
    p = np.arange(1, rows + 1) ** -skew
    ids = random.choice(rows, (bags, L), p=p / p.sum())
    filled = []
    for _ in range(10):
        part = np.where(np.arange(rows) < hot, -1, random.integers(0, r, rows))
        filled += [np.mean((part[ids] == each).any(axis=1)) for each in range(r)]
    asked = LookUps(zipf(skew), rows, L, 1, 1)
    q = float(ex.filled_share(r, asked.distinct_in_bag(hot), 1 - asked.hot_share(hot)))
    assert q == pytest.approx(np.mean(filled), rel=0.03)
