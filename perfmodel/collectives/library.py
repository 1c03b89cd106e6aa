"""Times of collectives as a projection needs them: of one communication library, or of the faster of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
class Library:
    """One communication library on one machine: its name and the source of its times."""

    name: str
    times: CollectiveTimes

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clock of its times, as a tuple of one clock."""
        return (self.times.clock,)

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The calibration behind its times, as a tuple of one name."""
        return (self.times.calibration_id,)

    def timing(self, collective: str, payload: Array, gpus: Array, gpus_per_node: int | None) -> Timing:
        """Time of a collective; 0 on one GPU and for an empty payload."""
        sent = (np.asarray(gpus) > 1) & (np.asarray(payload) > 0)
        timing = self.times.estimate(collective, np.maximum(payload, 1), gpus, gpus_per_node)
        timing = replace(timing, library_names=(self.name,))
        return timing if sent.all() else timing.where(sent)


@dataclass(frozen=True)
class Faster:
    """Two libraries: each collective runs on the library that is faster at its size."""

    first: Library
    second: Library

    @property
    def clocks(self) -> tuple[Clock, ...]:
        """The clocks of both libraries."""
        return self.first.clocks + self.second.clocks

    @property
    def calibrations(self) -> tuple[str, ...]:
        """The calibrations of both libraries."""
        return self.first.calibrations + self.second.calibrations

    def timing(self, collective: str, payload: Array, gpus: Array, gpus_per_node: int | None) -> Timing:
        """Time of the faster library, element by element; if only one knows the collective, its time.

        Limits: neither library knows the collective -> NoCalibrationError of the first library
        """
        timings, refused = [], []
        for library in (self.first, self.second):
            try:
                timings.append(library.timing(collective, payload, gpus, gpus_per_node))
            except NoCalibrationError as error:
                refused.append(error)
        if not timings:
            raise refused[0]
        a, b = timings[0], timings[-1]
        return select(a.time_s <= b.time_s, a, b)


Links = Library | Faster
