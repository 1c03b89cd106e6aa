"""Loads as numbers: of a shard, of a table on every rank, of all ranks of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.step_resources import Resource

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ShardLoads:
    """What sharding tables in some ways costs; arrays of shape [..., K].

    own         of *one shard*, on the rank that holds it
    everywhere  of the *whole table*, on every rank: what it does for its own samples
    """

    own: Array
    everywhere: Array

    def at(self, index: NDArray[np.int64]) -> ShardLoads:
        """Those at some positions."""
        return ShardLoads(self.own[index], self.everywhere[index])


@dataclass(frozen=True)
class Loads:
    """Loads of a plan. values  [K, G] of each resource on each rank [bytes]"""

    values: Array

    @property
    def most(self) -> Array:
        """The busiest rank's, shape [K]: what ``Evaluator.step_times`` takes."""
        return np.asarray(self.values.max(axis=1))

    @property
    def mean(self) -> Array:
        """Mean over ranks, shape [K]: what a perfect balance of the same shards would have."""
        return np.asarray(self.values.mean(axis=1))

    def of(self, resource: Resource) -> Array:
        """One resource on every rank, shape [G]."""
        return np.asarray(self.values[resource])
