"""Traces: what is drawn, what is read, and files that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfmodel.errors import BadInputError
from perfmodel.onechip.popular import RowPopularity
from perfmodel.onechip.traces import draw

NAMES = ("users", "items")


def tables(rows: tuple[float, ...] = (10, 1000), pooling: tuple[float, ...] = (1, 2.5)) -> Any:
    return SimpleNamespace(rows=np.array(rows, dtype=float), pooling=np.array(pooling, dtype=float))


def test_draws_are_those_of_a_seed() -> None:
    one, same, other = (draw(tables(), 400, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.ids, same.ids, strict=True))
    assert not np.array_equal(one.ids[1], other.ids[1])
    assert one.offsets[0].size == 401 and one.ids[0].size == 400
    assert one.ids[1].size == pytest.approx(1000, rel=0.05)
    assert set(np.diff(one.offsets[1]).tolist()) == {2, 3}


def test_draws_follow_the_popularity() -> None:
    popular = [RowPopularity.uniform(10), RowPopularity.of([0.4, 0.6 / 999], [1, 999])]
    trace = draw(tables(), 4000, popular, scattered=False)
    counts = np.bincount(trace.ids[1], minlength=1000)
    assert counts[0] / trace.ids[1].size == pytest.approx(0.4, abs=0.02)
    assert np.argmax(counts) == 0
    anywhere = draw(tables(), 4000, popular, seed=3)
    assert np.argmax(np.bincount(anywhere.ids[1])) != 0
    large = tables((2.0**23,), (1,))
    far = draw(large, 1000, [RowPopularity.uniform(2.0**23)])
    assert far.ids[0].min() >= 0 and far.ids[0].max() < 2**23 and np.unique(far.ids[0]).size > 990


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"batch of 0"):
        draw(tables(), 0)
