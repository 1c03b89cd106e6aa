"""Tables of which a chip looks rows up, for tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


def tables(rows: Any, dim: float = 25, pooling: float = 1) -> Any:
    """Of fp32: rows of each, columns of all [-], and look-ups of a bag."""
    m = np.atleast_1d(np.asarray(rows, dtype=float))
    return SimpleNamespace(
        rows=m,
        dim=np.full(m.size, float(dim)),
        element_bytes=np.full(m.size, 4.0),
        pooling=np.full(m.size, pooling),
    )
