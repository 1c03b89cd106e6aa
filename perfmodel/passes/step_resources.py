"""Resources of a rank: the bytes that each step of a pass waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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
    ROW_WISE_LENGTHS_SENT = 38  # of one sharding type of TorchRec; resources above are of all other tables
    ROW_WISE_LENGTHS_RECEIVED = 39
    ROW_WISE_IDS_SENT = 40
    ROW_WISE_IDS_RECEIVED = 41
    ROW_WISE_WEIGHTS_SENT = 42
    ROW_WISE_WEIGHTS_RECEIVED = 43
    TABLE_ROW_WISE_LENGTHS_SENT = 44
    TABLE_ROW_WISE_LENGTHS_RECEIVED = 45
    TABLE_ROW_WISE_IDS_SENT = 46
    TABLE_ROW_WISE_IDS_RECEIVED = 47
    TABLE_ROW_WISE_WEIGHTS_SENT = 48
    TABLE_ROW_WISE_WEIGHTS_RECEIVED = 49
    COLUMN_WISE_LENGTHS_SENT = 50
    COLUMN_WISE_LENGTHS_RECEIVED = 51
    COLUMN_WISE_IDS_SENT = 52
    COLUMN_WISE_IDS_RECEIVED = 53
    COLUMN_WISE_WEIGHTS_SENT = 54
    COLUMN_WISE_WEIGHTS_RECEIVED = 55
    COLUMN_WISE_BAGS_SENT = 56
    COLUMN_WISE_BAGS_RECEIVED = 57
    TABLE_COLUMN_WISE_LENGTHS_SENT = 58
    TABLE_COLUMN_WISE_LENGTHS_RECEIVED = 59
    TABLE_COLUMN_WISE_IDS_SENT = 60
    TABLE_COLUMN_WISE_IDS_RECEIVED = 61
    TABLE_COLUMN_WISE_WEIGHTS_SENT = 62
    TABLE_COLUMN_WISE_WEIGHTS_RECEIVED = 63
    TABLE_COLUMN_WISE_BAGS_SENT = 64
    TABLE_COLUMN_WISE_BAGS_RECEIVED = 65
    GRID_SHARD_LENGTHS_SENT = 66
    GRID_SHARD_LENGTHS_RECEIVED = 67
    GRID_SHARD_IDS_SENT = 68
    GRID_SHARD_IDS_RECEIVED = 69
    GRID_SHARD_WEIGHTS_SENT = 70
    GRID_SHARD_WEIGHTS_RECEIVED = 71
    GRID_SHARD_REDUCE_INSIDE = 72
    GRID_SHARD_ACROSS_SENT = 73
    GRID_SHARD_ACROSS_RECEIVED = 74


TOGETHER = Resource.WEIGHTS_RECEIVED + 1
"""Number of resources of a pass that exchanges all tables together."""

SHARDING_TYPES = ("row_wise", "table_row_wise", "column_wise", "table_column_wise", "grid_shard")
"""TorchRec's sharding types whose tables may exchange apart from whole tables, the types in every plan for
TorchRec first."""


def _by_type(name: str) -> dict[Resource, Resource]:
    whole = {each.name: each for each in list(Resource)[:TOGETHER]}
    named = {own.name.removeprefix(f"{name.upper()}_"): own for own in list(Resource)[TOGETHER:]}
    return {whole[part]: own for part, own in named.items() if part in whole}


BY_TYPE: dict[str, dict[Resource, Resource]] = {name: _by_type(name) for name in SHARDING_TYPES}
"""For each of ``SHARDING_TYPES``, its own resource for each resource of all tables."""
WHOLE: dict[Resource, Resource] = {own: whole for each in BY_TYPE.values() for whole, own in each.items()}
"""For each resource of a sharding type, the resource of all tables."""

RESOURCES: tuple[str, ...] = tuple(resource.name.lower() for resource in Resource)
"""Names of the resources, in the order of the arrays; a pass has the first K."""


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

    def of(self, resource: Resource) -> Array:
        """Load of one resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])
