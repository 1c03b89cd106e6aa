"""Kernel rates that depend on the memory's rate, in a machine file that was copied from another machine's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

MEMORY_RATE = "hbm_bytes_per_s"
FOLLOW_MEMORY = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")
"""Kernel rates that are a share of the memory's rate."""
_SAME = 1e-9
_DIGITS = 4


class Rate(Protocol):
    """Protocol of a value with its source."""

    @property
    def value(self) -> float:
        """The rate in SI units."""

    @property
    def source(self) -> str:
        """Its source."""


def above_memory(values: Mapping[str, Rate]) -> list[str]:
    """Keys of the kernel rates that exceed the memory's rate, ``hbm_bytes_per_s``, and so cannot be right."""
    memory = values[MEMORY_RATE].value
    return [key for key in FOLLOW_MEMORY if values[key].value > memory * (1 + _SAME)]


def copied(values: Mapping[str, Rate], like: Mapping[str, Rate]) -> list[str]:
    """Kernel rates that equal another machine's, by value and source, although the memory's rate differs.

    Limits: the same memory rate -> none;  a rate with a different value or source -> left out
    """
    if math.isclose(values[MEMORY_RATE].value, like[MEMORY_RATE].value, rel_tol=_SAME):
        return []
    return [
        key
        for key in FOLLOW_MEMORY
        if math.isclose(values[key].value, like[key].value, rel_tol=_SAME)
        and values[key].source == like[key].source
    ]


def scaled(key: str, values: Mapping[str, Rate], like: Mapping[str, Rate]) -> float:
    """A kernel rate for this machine: the same share of its memory rate as on machine ``like`` [bytes/s].

    The rate is rounded to four digits.
    """
    rate = like[key].value / like[MEMORY_RATE].value * values[MEMORY_RATE].value
    return float(f"{rate:.{_DIGITS}g}")
