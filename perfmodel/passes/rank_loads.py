"""Loads as arrays. A load is the bytes of one of the K resources on a rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.step_resources import Resource

Array = NDArray[np.float64]


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
