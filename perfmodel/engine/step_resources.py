"""Resources of a rank: the bytes that each step of a pass waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import count

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Resource(IntEnum):
    """Quantities in bytes that a rank sends, receives or moves, and that the steps of a pass wait for.

    ``X_SENT`` and ``X_RECEIVED`` are the two sides of one collective.
    """

    BUCKETIZE = 0  # ids and lengths sorted by owner
    LENGTHS_SENT = 1
    LENGTHS_RECEIVED = 2
    IDS_SENT = 3
    IDS_RECEIVED = 4
    DEDUPLICATE = 5  # ids in exchange ub
    REQUESTS_SENT = 6  # distinct ids in exchange ub
    REQUESTS_RECEIVED = 7
    DEDUPLICATE_REQUESTS = 8  # ids that arrived at a holder, of all ranks
    GATHER_DRAM = 9
    GATHER_L2 = 10
    ROWS_SENT = 11  # unique rows in exchange ub
    ROWS_RECEIVED = 12
    POOL_DRAM = 13  # pooling of the unique rows that arrived
    POOL_L2 = 14
    CONVERT_OUT = 15  # bags converted to another precision before an exchange
    REDUCE_SCATTER = 16
    REDUCE_INSIDE = 17  # row parts that reduce by domains: inside each domain
    REDUCE_ACROSS = 18  # then across, if all domains hold row parts
    ACROSS_SENT = 19  # then across, if some domains hold row parts
    ACROSS_RECEIVED = 20
    BAGS_SENT = 21
    BAGS_RECEIVED = 22
    SPARSE_SENT = 23
    SPARSE_RECEIVED = 24
    CONVERT_IN = 25
    LOCAL_SUM = 26
    SORT = 27  # training: look-ups sorted by row
    UPDATE_DRAM = 28  # gradients added up by row, rows and optimizer state updated
    UPDATE_L2 = 29
    ACCUMULATE_DRAM = 30  # exchange ub: gradients added up by row before they are sent
    ACCUMULATE_L2 = 31
    ROW_GRADIENTS_SENT = 32
    ROW_GRADIENTS_RECEIVED = 33
    COPIED_GRADIENTS = 34  # of replicated tables
    WEIGHTS_SENT = 35  # weights of ids, where they are sent apart from the ids
    WEIGHTS_RECEIVED = 36
    COPIED_LENGTHS = 37  # in TorchRec: lengths for the look-ups of replicated tables


TOGETHER = Resource.WEIGHTS_RECEIVED + 1
"""Number of resources of a pass that exchanges all tables together."""

_OF_INPUT = (
    Resource.LENGTHS_SENT,
    Resource.LENGTHS_RECEIVED,
    Resource.IDS_SENT,
    Resource.IDS_RECEIVED,
    Resource.WEIGHTS_SENT,
    Resource.WEIGHTS_RECEIVED,
)
_OF_BAGS = Resource.BAGS_SENT, Resource.BAGS_RECEIVED
_OF_TYPE: dict[str, tuple[Resource, ...]] = {
    "row_wise": _OF_INPUT,
    "table_row_wise": _OF_INPUT,
    "column_wise": (*_OF_INPUT, *_OF_BAGS),
    "table_column_wise": (*_OF_INPUT, *_OF_BAGS),
    "grid_shard": (*_OF_INPUT, Resource.REDUCE_INSIDE, Resource.ACROSS_SENT, Resource.ACROSS_RECEIVED),
}
SHARDING_TYPES = tuple(_OF_TYPE)
"""TorchRec's sharding types whose tables may exchange apart from whole tables, the types in every plan for
TorchRec first."""
_NUMBERS = count(len(Resource))
BY_TYPE: dict[str, dict[Resource, int]] = {
    name: {resource: next(_NUMBERS) for resource in resources} for name, resources in _OF_TYPE.items()
}
"""For each of ``SHARDING_TYPES``, the number of its own resource for each resource of all tables."""
WHOLE: dict[int, Resource] = {
    number: resource for numbers in BY_TYPE.values() for resource, number in numbers.items()
}
"""For each resource of a sharding type, the resource of all tables."""
WIDTH = next(_NUMBERS)
"""Number of resources, those of sharding types counted."""


@dataclass(frozen=True)
class ShardLoads:
    """Bytes that sharded tables add to ranks, by table and scheme; arrays [..., K] for K resources.

    own         load of *one shard*, on the rank that holds it
    everywhere  load of the *whole table*, on every rank, for the rank's own samples
    """

    own: Array
    everywhere: Array

    def at(self, index: NDArray[np.int64]) -> ShardLoads:
        """The loads at some positions of the leading axes."""
        return ShardLoads(self.own[index], self.everywhere[index])


@dataclass(frozen=True)
class Loads:
    """Bytes of every resource on every rank of a plan: ``values`` is [K, G] for K resources, G ranks."""

    values: Array

    @property
    def most(self) -> Array:
        """Largest load over ranks, shape [K], the argument of ``Evaluator.step_times``."""
        return np.asarray(self.values.max(axis=1))

    @property
    def mean(self) -> Array:
        """Mean load over ranks, shape [K]: the loads if the same shards were perfectly balanced."""
        return np.asarray(self.values.mean(axis=1))

    def of(self, resource: int) -> Array:
        """Load of one resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])
