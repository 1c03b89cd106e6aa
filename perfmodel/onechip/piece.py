"""Pieces of tables on the cores of a chip, as arrays."""

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
    """Pieces of tables, an array entry each.

    table, way, rows, columns, bags  as in ``ChipCost.work``;  first  first row;  row  bytes of a row
    pooling  look-ups per bag in the table;  share  share of them in the piece;  lay  use of the buffers
    lockstep whether all cores work on the same table
    passed   requests that miss the core's own cache; None: cores have no caches
    """

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
        """Look-ups in the piece."""
        return self.bags * self.pooling * self.share

    @property
    def ids(self) -> Array:
        """Ids that the piece reads."""
        return self.bags * self.pooling
