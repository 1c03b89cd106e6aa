"""Pieces of tables on the cores of a chip, with quantities that follow directly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.core_misses import Passed
from perfmodel.onechip.layout import CoreBufferLayout

Array = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Piece:
    """Broadcast arrays that describe pieces."""

    table: Ints
    way: Ints
    rows: Array
    columns: Array
    bags: Array
    first: Array
    row: Array
    pooling: Array
    share: Array
    lay: CoreBufferLayout
    lockstep: bool
    passed: Passed | None

    @property
    def draws(self) -> Array:
        """Look-ups that fall into the piece."""
        return self.bags * self.pooling * self.share

    @property
    def ids(self) -> Array:
        """Ids that the piece reads."""
        return self.bags * self.pooling
