"""Where look-ups happen: ways, pieces of tables, and their work, as arrays.

A *way* here is how one core looks up a table (``Way``); in other rooms it is a sharding option."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Way(IntEnum):
    """How one core looks up a table, named by the memories that it uses (``model.one_core``)."""

    GM = 0
    L1 = 1
    GM_UB = 2
    L1_UB = 3

    @property
    def label(self) -> str:
        """The name as people write it: ``GM-UB``."""
        return self.name.replace("_", "-")


WAYS = tuple(Way)


class TableColumns(Protocol):
    """Protocol of tables as columns: arrays with an entry per table, as ``PlanTables`` has."""

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
    """The part of a table that one core looks up in one way: rows, columns and bags, each as (first, end).

    Rows are numbered by popularity if ``first_row`` of ``ChipCost.work`` is not 0.
    """

    table: int
    way: Way
    rows: tuple[int, int]
    columns: tuple[int, int]
    bags: tuple[int, int]


@dataclass(frozen=True, eq=False)
class CoreStep:
    """Work of pieces in one step, an array entry per piece.

    wait_s           time until data has arrived, unless other work hides it [s]
    busy_s           time of the core after that [s];  variance_s2  its variance by chance [s^2]
    gm_bytes         read from and written to global memory, all channels [bytes]
    hot_gm_bytes     excess of the channel with the table's hottest row over the mean channel [bytes]
    gm_spread        sum over requests to random channels of their bytes times the bytes of a row [bytes^2]
    cache_bytes, hot_cache_bytes, cache_spread  these three for the shared cache and its slices
    cubes            as the spread, to the power of 3, if cores have caches of their own: then all cores
                     request some rows, once each [bytes^3]; else 0
    quick_s          time until a row arrives that another core has requested before [s], if cores have caches
                     of their own and so request the hottest row once; else 0
    after_s          part of busy_s that cannot begin before the hottest row has arrived [s]
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
    """Work of pieces, an array entry per piece.

    steps           one after the other: copying rows that stay, reading ids, look-ups, writing bags
    preload_s       time to copy rows that stay for all batches, once [s]
    local_bytes     of the local buffer, used by rows [bytes]
    vector_bytes    of the vector buffer, used by chunks, bags and ids [bytes]
    fits            whether the buffers of one core are large enough
    lockstep        as given to ``ChipCost.work``
    """

    steps: tuple[CoreStep, ...]
    preload_s: Array
    local_bytes: Array
    vector_bytes: Array
    fits: NDArray[np.bool_]
    lockstep: bool

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> CoreWork:
        """The work of the pieces that an index array selects."""
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
        """Sum over the steps of the array with this name (of ``CoreStep``)."""
        return np.asarray(sum(getattr(step, name) for step in self.steps))

    @property
    def core_s(self) -> Array:
        """Time of each piece on a core alone, without copying rows that stay for all batches [s]."""
        return self.total("wait_s") + self.total("busy_s")


@dataclass(frozen=True)
class Batch:
    """Time of one batch, and what limits it.

    limit    the busiest: ``core``, ``memory``, ``channel``, ``cache`` or ``slice``
    core_s   time of each core alone [s];  shared_s  time of each shared resource alone, by name [s]
    """

    seconds: float
    limit: str
    core_s: Array
    shared_s: dict[str, float]
