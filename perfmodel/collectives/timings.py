"""Times as a projection needs them, with their band and what they depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.schema.evidence import Evidence

Array = NDArray[np.float64]
Codes = NDArray[np.int8]

COLUMNS = "time_s", "low_s", "high_s", "floor_s", "evidence", "limit", "library"
"""The arrays of a ``Timing``; all but the last in the order of ``TimeTable.read``."""


@dataclass(frozen=True)
class Timing:
    """Times of one collective or step of many configurations, with their 95 % band, arrays of one shape.

    floor_s   latency: the part that no faster link or memory would shorten
    evidence  ranks of ``Evidence``, 0 = strongest
    limit     what the time depends on most: index into ``limit_names``
    library   that runs the step: index into ``library_names``
    """

    time_s: Array
    low_s: Array
    high_s: Array
    floor_s: Array
    evidence: Codes
    limit: Codes
    limit_names: tuple[str, ...]
    library: Codes
    library_names: tuple[str, ...]

    def at(self, index: int) -> Timing:
        """The times of row ``index``, where several sizes of a step were timed together."""
        return replace(self, **{name: getattr(self, name)[index] for name in COLUMNS})

    def where(self, mask: NDArray[np.bool_]) -> Timing:
        """These times where ``mask`` is true, and zero elsewhere."""
        return select(mask, self, nothing(self.time_s.shape))


def constant(value: int, shape: tuple[int, ...]) -> Codes:
    """A read-only integer array of one value."""
    return np.broadcast_to(np.int8(value), shape)


def nothing(shape: tuple[int, ...]) -> Timing:
    """Zero times, for a step that is not run."""
    zero, code = np.zeros(shape), np.zeros(shape, np.int8)
    return Timing(zero, zero, zero, zero, code, code, ("",), code, ("",))


def untimed(timing: Timing) -> Timing:
    """The same times, marked as assumed: a kernel that nobody timed, with constants of another kernel."""
    return replace(timing, evidence=constant(Evidence.ASSUMED.rank, timing.time_s.shape))


def select(mask: NDArray[np.bool_], a: Timing, b: Timing) -> Timing:
    """The times of ``a`` where ``mask`` is true, else of ``b``; names are those of ``a``, then of ``b``."""
    return Timing(
        time_s=np.where(mask, a.time_s, b.time_s),
        low_s=np.where(mask, a.low_s, b.low_s),
        high_s=np.where(mask, a.high_s, b.high_s),
        floor_s=np.where(mask, a.floor_s, b.floor_s),
        evidence=np.where(mask, a.evidence, b.evidence),
        limit=np.where(mask, a.limit, (b.limit + len(a.limit_names)).astype(np.int8)),
        limit_names=a.limit_names + b.limit_names,
        library=np.where(mask, a.library, (b.library + len(a.library_names)).astype(np.int8)),
        library_names=a.library_names + b.library_names,
    )
