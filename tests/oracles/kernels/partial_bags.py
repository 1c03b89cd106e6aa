"""Sums of partial bags in float64: what partial_bags.cu must give."""

from __future__ import annotations

from typing import Any

import numpy as np


def partial_sum(parts: Any) -> Any:
    """Sum over sources [bags, D] of partial bags [G, bags, D], in float64."""
    return parts.astype(np.float64).sum(0)
