"""What is looked up where: ways, pieces of tables, and what their work takes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Way(IntEnum):
    """How one core looks a table up (``model.one_core``)."""

    GM = 0
    L1 = 1
    GM_UB = 2
    L1_UB = 3

    @property
    def label(self) -> str:
        """As people write it: ``GM-UB``."""
        return self.name.replace("_", "-")

    @property
    def streams(self) -> bool:
        """Whether the table passes through the vector buffer."""
        return self in (Way.GM_UB, Way.L1_UB)


WAYS = tuple(Way)


class TableColumns(Protocol):
    """T tables as arrays [T], as ``plan.tables.PlanTables`` has them."""

    @property
    def rows(self) -> Array: ...
    @property
    def dim(self) -> Array: ...
    @property
    def element_bytes(self) -> Array: ...
    @property
    def pooling(self) -> Array: ...


@dataclass(frozen=True)
class TablePiece:
    """Rows, columns and bags of one table that one core looks up in one way; ranges are (first, end).

    Rows are numbered from the most popular one where ``first_row`` of ``ChipCost.work`` is not 0.
    """

    table: int
    way: Way
    rows: tuple[int, int]
    columns: tuple[int, int]
    bags: tuple[int, int]


@dataclass(frozen=True, eq=False)
class CoreStep:
    """What pieces take in one step of their work, arrays of one shape.

    wait_s           until something has come that nothing else hides [s];  busy_s  of the core after that [s]
    variance_s2      of busy_s, as chance has it [s^2]
    gm_bytes         read from and written to global memory, all channels [bytes]
    hot_gm_bytes     of these, to the channel of the table's hottest row, beyond an even share [bytes]
    gm_spread        sum over requests that are dealt at random of bytes times bytes of one row [bytes^2]
    cache_bytes, hot_cache_bytes, cache_spread  the same for the cache and its slices
    cubes            as the spread of what cores ask for, to the power of 3, where they have caches of their
                     own: some rows are then asked for by all cores, once each [bytes^3]; 0 elsewhere
    quick_s          until a row has come that another core has asked for before [s], where cores ask for the
                     hottest row once, as they have caches of their own; 0 elsewhere
    after_s          of busy_s, what cannot begin there before the hottest row has come [s]
    """

    wait_s: Array
    busy_s: Array
    variance_s2: Array
    gm_bytes: Array
    hot_gm_bytes: Array
    gm_spread: Array
    cache_bytes: Array
    hot_cache_bytes: Array
    cache_spread: Array
    cubes: Array
    quick_s: Array
    after_s: Array


@dataclass(frozen=True, eq=False)
class CoreWork:
    """What pieces take, arrays of one shape.

    steps           rows copied to stay, ids read, look-ups, bags written: one after the other
    preload_s       of copying rows that persist, once and not in a batch [s]
    local_bytes     of the local buffer that rows take [bytes]
    vector_bytes    of the vector buffer that chunks, bags and ids take [bytes]
    fits            whether the buffers of one core hold it
    lockstep        as given to ``ChipCost.work``
    """

    steps: tuple[CoreStep, ...]
    preload_s: Array
    local_bytes: Array
    vector_bytes: Array
    fits: NDArray[np.bool_]
    lockstep: bool

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> CoreWork:
        """Those of one index array."""
        steps = tuple(
            CoreStep(**{one.name: getattr(step, one.name)[index] for one in fields(CoreStep)})
            for step in self.steps
        )
        return CoreWork(
            steps,
            self.preload_s[index],
            self.local_bytes[index],
            self.vector_bytes[index],
            self.fits[index],
            self.lockstep,
        )

    def total(self, name: str) -> Array:
        """Sum over the steps of one of their arrays."""
        return np.asarray(sum(getattr(step, name) for step in self.steps))

    @property
    def core_s(self) -> Array:
        """Time of a core that does it alone, once rows that persist are there [s]."""
        return self.total("wait_s") + self.total("busy_s")


@dataclass(frozen=True)
class Batch:
    """Time of one batch, and what decides it.

    seconds  [s];  limit  ``core``, ``memory``, ``channel``, ``cache`` or ``slice``: what is busiest
    core_s   time of each core alone [s], shape [cores]
    shared_s time of each of the shared ones alone [s], by name
    """

    seconds: float
    limit: str
    core_s: Array
    shared_s: dict[str, float]
