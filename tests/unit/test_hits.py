"""Which part of a cell's look-ups misses the cache, by the distribution of its ids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfmodel.errors import BadInputError
from perfmodel.fit.hits import miss_ratios
from perfmodel.model import access


def cells(*names: str, rows: int = 1000, batch: int = 100, pooling: float = 20) -> pd.DataFrame:
    columns = {"rows": rows, "shards": 1, "batch": batch, "pooling": pooling}
    return pd.DataFrame([{**columns, "distribution": name} for name in names])


def missed(frame: pd.DataFrame, cached_rows: float) -> np.ndarray:
    ones = np.ones(len(frame))
    return miss_ratios(frame, 64 * ones, 64 * cached_rows * ones)


def test_uniform_ids_miss_as_the_model_says() -> None:
    hit = access.l2_hit_ratio(1000, 2000, 500, access.unique_rows_uniform(1000, 2000))
    assert missed(cells("uniform"), 500) == pytest.approx([1 - hit])


def test_one_row_is_fetched_once() -> None:
    assert missed(cells("one-row"), 500) == pytest.approx([1 / 2000])


def test_popular_rows_of_a_large_table_are_in_the_cache_already() -> None:
    p, counts = access.zipf_popularity(1000, 1.05, 1000)
    warm = float(access.miss_ratio(p, counts, access.characteristic_draws(p, counts, 100)))
    assert missed(cells("zipf:1.05"), 100) == pytest.approx([warm], rel=1e-3)


def test_a_table_that_fits_is_fetched_once() -> None:
    p, counts = access.zipf_popularity(1000, 1.05, 1000)
    unique = float(access.unique_rows(p, counts, 2000))
    assert missed(cells("zipf:1.05"), 1500) == pytest.approx([unique / 2000], rel=1e-3)


def test_more_skew_misses_less() -> None:
    ratios = missed(cells("zipf:0", "zipf:0.8", "zipf:1.05", "zipf:1.2"), 100)
    assert (np.diff(ratios) < 0).all()
    assert ratios[0] == pytest.approx(0.9)  # 100 of 1000 rows are kept


@pytest.mark.parametrize("name", ["zipf", "zipf:-1", "zipf:x", "normal", "zipf:nan"])
def test_unknown_distributions_are_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="unknown"):
        missed(cells(name), 100)


@pytest.mark.parametrize("skew", [0.8, 1.15])
def test_popularities_in_few_bins_miss_as_finely_binned_ones(skew: float) -> None:
    p, counts = access.zipf_popularity(1e6, skew, 256)
    fine = float(access.miss_ratio(p, counts, access.characteristic_draws(p, counts, 1e4)))
    assert missed(cells(f"zipf:{skew}", rows=10**6), 1e4) == pytest.approx([fine], rel=1e-3)
