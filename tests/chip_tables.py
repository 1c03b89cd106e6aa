"""Tables of which a chip looks rows up, for tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from perfmodel.onechip.popular import RowPopularity


def tables(rows: Any, dim: float = 25, pooling: float = 1) -> Any:
    """Of fp32: rows of each, columns of all [-], and look-ups of a bag."""
    m = np.atleast_1d(np.asarray(rows, dtype=float))
    return SimpleNamespace(
        rows=m,
        dim=np.full(m.size, float(dim)),
        element_bytes=np.full(m.size, 4.0),
        pooling=np.full(m.size, pooling),
    )


def one_row(rows: float) -> RowPopularity:
    """All look-ups ask for one row."""
    return RowPopularity(np.array([1.0, 0.0]), np.array([1.0, rows - 1.0]))
