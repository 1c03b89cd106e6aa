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


class CollectiveTimes(Protocol):
    """Protocol of a source of collective times: a ``CollectiveModel``, or a what-if scenario around it."""

    @property
    def clock(self) -> Clock: ...

    @property
    def calibration_id(self) -> str: ...

    def estimate(self, collective: str, payload_bytes: Any, gpus: Any, gpus_per_node: Any = None) -> Any: ...


@dataclass(frozen=True)
class Timing:
    """Times of one step of many configurations, with their band, floor, evidence and library.

    limit, library  indices into ``limit_names`` (what the time depends on most) and ``library_names``
    """

    time_s: Array
    low_s: Array
    high_s: Array
    floor_s: Array  # latency: the part that no faster link or memory would shorten
    evidence: Codes  # ranks of ``Evidence``, 0 = strongest
    limit: Codes  # index into limit_names: the input with the weakest evidence
    limit_names: tuple[str, ...]
    library: Codes  # index into library_names: the library that runs the collective
    library_names: tuple[str, ...]

    def at(self, index: int) -> Timing:
        """The times of row ``index``, where several sizes of a step were timed together."""
        numbers = (self.time_s, self.low_s, self.high_s, self.floor_s)
        time, low, high, floor = (values[index] for values in numbers)
        evidence, limit, library = (codes[index] for codes in (self.evidence, self.limit, self.library))
        return Timing(time, low, high, floor, evidence, limit, self.limit_names, library, self.library_names)

    def where(self, mask: NDArray[np.bool_]) -> Timing:
        """These times where ``mask`` is true, and zero elsewhere."""
        return select(mask, self, nothing(self.time_s.shape))


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

    def pick(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.where(mask, x, y)

    limits, libraries = a.limit_names + b.limit_names, a.library_names + b.library_names
    return Timing(
        pick(a.time_s, b.time_s),
        pick(a.low_s, b.low_s),
        pick(a.high_s, b.high_s),
        pick(a.floor_s, b.floor_s),
        pick(a.evidence, b.evidence),
        pick(a.limit, (b.limit + len(a.limit_names)).astype(np.int8)),
        limits,
        pick(a.library, (b.library + len(a.library_names)).astype(np.int8)),
        libraries,
    )


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
        per_node = None if gpus_per_node is None else np.asarray(gpus_per_node, dtype=np.float64)
        shape = np.broadcast_shapes(np.shape(payload), np.shape(gpus))
        fill = np.broadcast_to
        sent = fill((np.asarray(gpus) > 1) & (np.asarray(payload) > 0), shape)
        e = self.times.estimate(collective, np.maximum(payload, 1), gpus, per_node)
        timing = Timing(
            fill(e.time_s, shape),
            fill(e.low_s, shape),
            fill(e.high_s, shape),
            np.minimum(fill(e.floor_s, shape), e.time_s),
            fill(np.asarray(e.evidence, dtype=np.int8), shape),
            fill(np.asarray(e.limit, dtype=np.int8), shape),
            tuple(e.limit_names),
            constant(0, shape),
            (self.name,),
        )
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
        known, refused = [], []
        for library in (self.first, self.second):
            try:
                known.append(library.timing(collective, payload, gpus, gpus_per_node))
            except NoCalibrationError as error:
                refused.append(error)
        if not known:
            raise refused[0]
        a, b = known[0], known[-1]
        return select(a.time_s <= b.time_s, a, b)


Links = Library | Faster
