"""Loads as arrays: of a shard, of a table on every rank, of all ranks of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.step_resources import Resource

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShardLoads:
    """Loads of sharded tables, by table and scheme; arrays of shape [..., K].

    own         load of *one shard*, on the rank that holds it
    everywhere  load of the *whole table*, on every rank, for the rank's own samples
    """

    own: Array
    everywhere: Array

    def at(self, index: NDArray[np.int64]) -> ShardLoads:
        """The loads at some positions."""
        return ShardLoads(self.own[index], self.everywhere[index])


@dataclass(frozen=True)
class Loads:
    """Loads of a plan. values  [K, G] of each resource on each rank [bytes]"""

    values: Array

    @property
    def most(self) -> Array:
        """Largest load over ranks, shape [K], as ``Evaluator.step_times`` needs it."""
        return np.asarray(self.values.max(axis=1))

    @property
    def mean(self) -> Array:
        """Mean load over ranks, shape [K]: the loads if the same shards were perfectly balanced."""
        return np.asarray(self.values.mean(axis=1))

    def of(self, resource: Resource) -> Array:
        """Load of one resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])
