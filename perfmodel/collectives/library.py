"""Times of collectives as a projection needs them: of the fastest of a machine's communication libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import NoCalibrationError
from perfmodel.schema.evidence import Clock, Evidence

Array = NDArray[np.float64]
Codes = NDArray[np.int8]

_COLUMNS = "time_s", "low_s", "high_s", "floor_s", "evidence", "limit", "library"


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
        return replace(self, **{name: getattr(self, name)[index] for name in _COLUMNS})

    def where(self, mask: NDArray[np.bool_]) -> Timing:
        """These times where ``mask`` is true, and zero elsewhere."""
        return select(mask, self, nothing(self.time_s.shape))


class CollectiveTimes(Protocol):
    """Protocol of a source of collective times: a ``CollectiveModel``, or a what-if scenario around it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def calibration_id(self) -> str: ...

    def estimate(
        self, collective: str, payload_bytes: Any, gpus: Any, gpus_per_node: Any = None
    ) -> Timing: ...


def constant(value: int, shape: tuple[int, ...]) -> Codes:
    """A read-only integer array of one value."""
    return np.broadcast_to(np.int8(value), shape)


def nothing(shape: tuple[int, ...]) -> Timing:
    """Zero times, for a step that is not run."""
    zero, code = np.broadcast_to(np.float64(0), shape), constant(0, shape)
    return Timing(zero, zero, zero, zero, code, code, ("",), code, ("",))


def untimed(timing: Timing) -> Timing:
    """The same times, marked as assumed: a kernel that nobody timed, with constants of another kernel."""
    return replace(timing, evidence=constant(Evidence.ASSUMED.rank, timing.time_s.shape))


def select(mask: NDArray[np.bool_], a: Timing, b: Timing) -> Timing:
    """``a`` where ``mask`` is true, ``b`` elsewhere."""
    columns: dict[str, Any] = {
        name: np.where(mask, getattr(a, name), getattr(b, name)) for name in _COLUMNS[:5]
    }
    for name in _COLUMNS[5:]:
        names = f"{name}_names"
        moved = (getattr(b, name) + len(getattr(a, names))).astype(np.int8)
        columns[name], columns[names] = (
            np.where(mask, getattr(a, name), moved),
            getattr(a, names) + getattr(b, names),
        )
    return Timing(**columns)


@dataclass(frozen=True)
class Libraries:
    """The communication libraries of one machine, by name; each collective runs on the fastest of them."""

    libraries: Mapping[str, CollectiveTimes]

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clock of each library's times."""
        return tuple(times.clock for times in self.libraries.values())

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The name of the calibration behind each library's times."""
        return tuple(times.calibration_id for times in self.libraries.values())

    def find_clock(self, library: str) -> Clock:
        """Clock of the times of a step that this library runs. Limits: a step of none -> the last one's"""
        return self.libraries.get(library, [*self.libraries.values()][-1]).clock

    def timing(self, collective: str, payload: Array, gpus: Array, gpus_per_node: int | None) -> Timing:
        """Time of a collective by the fastest library, element by element; 0 on one GPU, or without payload.

        Limits: equal times -> the first library;  a library does not know the collective -> the others';
        none knows it -> NoCalibrationError of the first library
        """
        sent = (np.asarray(gpus) > 1) & (np.asarray(payload) > 0)
        timings, refused = [], []
        for name, times in self.libraries.items():
            try:
                timing = times.estimate(collective, np.maximum(payload, 1), gpus, gpus_per_node)
            except NoCalibrationError as error:
                refused.append(error)
                continue
            timings.append(replace(timing, library_names=(name,)))
        if not timings:
            raise refused[0]
        fastest = reduce(lambda a, b: select(a.time_s <= b.time_s, a, b), timings)
        return fastest if sent.all() else fastest.where(sent)
