"""Units of counted work in the search for a mapping, each with its measured time on one CPU core [ns]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.effort import EFFORTS, Budget, Work
from perfmodel.schema.files import unknown_name

KIND = 250_000
"""A kind of table whose pieces are costed in one call."""
COSTED = 2_000
"""A piece, or a part of a choice, that is costed."""
PROGRAM = 3_000_000
"""A linear program, with the round around it."""
COLUMN = 5_000
"""An unknown of a linear program."""
CHOICE = 200
"""A choice whose price, or time, is compared."""
COMPARED = 170_000
"""A call that compares the choices of a table."""
PLACED = 17_000
"""A part of a choice that is put on cores."""
CORE = 60
"""A core that is compared for a part."""
PIECE = 3_000
"""A piece that is made, or added up for a batch."""
DEALT = 11_500
"""A slice of spread look-ups that is assigned to a core."""
BATCH = 1_700_000
"""A batch whose pieces are added up."""

_DIGITS = 19  # bits of a float's 52 that are dropped: 33 are 10 digits
_SHARE = 0.5
"""Share of an effort for the search; the rest is for the bound."""
_OF_A_KIND, _FEW_KINDS = 5e-3, 100
"""Relative increase of the search per kind of table above a number of kinds [-]."""


def effort_s(effort: str, kinds: int) -> float:
    """Most counted work that a search may do [s]; computing its lower bound may take as much again.

    effort  key of ``EFFORTS``;  kinds  number of sets of equal tables. Limits: unknown name -> BadInputError
    """
    if effort not in EFFORTS:
        raise unknown_name("effort", effort, EFFORTS)
    return _SHARE * EFFORTS[effort] * (1 + _OF_A_KIND * max(0, kinds - _FEW_KINDS))


def unlimited() -> Budget:
    """A budget without a limit."""
    return Budget(Work(), math.inf)


def ranked(values: ArrayLike) -> Any:
    """Values rounded to 10 digits, so that values that differ by rounding alone are equal on every CPU."""
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return ((bits + (1 << _DIGITS - 1)) >> _DIGITS << _DIGITS).view(np.float64)
