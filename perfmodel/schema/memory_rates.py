"""Rates of kernels that are a part of the memory's rate, in a machine file that was copied from another's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

MEMORY_RATE = "hbm_bytes_per_s"
FOLLOW_MEMORY = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")
"""Rates of kernels that are a part of the memory's rate."""
_SAME = 1e-9
_DIGITS = 4


class Rate(Protocol):
    """A value with its source."""

    @property
    def value(self) -> float:
        """In SI."""

    @property
    def source(self) -> str:
        """Where it was read or measured."""


def above_memory(values: Mapping[str, Rate]) -> list[str]:
    """Rates of kernels that no such memory gives: those above ``hbm_bytes_per_s``."""
    memory = values[MEMORY_RATE].value
    return [key for key in FOLLOW_MEMORY if values[key].value > memory * (1 + _SAME)]


def copied(values: Mapping[str, Rate], like: Mapping[str, Rate]) -> list[str]:
    """Rates of kernels that are those of another machine, by value and source, while the memory's is not.

    Limits: the same memory rate -> none;  a value or a source of its own -> not among them
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
    """The other machine's share of its memory rate, of this machine's, to four digits [bytes/s]."""
    rate = like[key].value / like[MEMORY_RATE].value * values[MEMORY_RATE].value
    return float(f"{rate:.{_DIGITS}g}")
