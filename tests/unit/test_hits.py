"""Which part of a timed kernel's look-ups misses the cache."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfmodel.fit.kernels import count_misses
from perfmodel.model import access


def test_uniform_ids_miss_as_the_model_says() -> None:
    """2 000 look-ups in a shard of 1 000 rows, of which the cache holds 500."""
    cells = pd.DataFrame([{"rows": 2000, "shards": 2, "batch": 100, "pooling": 20}])
    hit = access.l2_hit_ratio(1000, 2000, 500, access.unique_rows_uniform(1000, 2000))
    assert count_misses(cells, np.array([64.0]), np.array([32000.0])) == pytest.approx([1 - hit])
