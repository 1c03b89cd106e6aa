"""All ways to cut each table into pieces for cores, with costs: the choices from which a mapping is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Choices:
    """The choices (ways to cut a table) of Q kinds of equal tables, O in all, sorted by kind.

    A choice makes some pieces, each on one core, and spreads the other look-ups over all cores in any amounts
    (look-ups in global memory cost the same on any core). Equal pieces of a choice are listed once, as a
    part; there are P parts. R is the number of shared resources.

    cores        N;  capacity  bytes that the pieces of a core may keep there together, inf: no limit
    kind_of      [T] kind of each table;  count  [Q] tables of each kind
    first        [Q + 1] index where the choices of each kind begin
    spread_s     [O] time of one core for all look-ups that are spread over the cores [s]
    shared_s     [O, R] time of each shared resource [s]
    alone_s      [O] least time of a core that does some of the spread look-ups [s]
    hot_s        [O, R] additional time due to its hottest row; of several tables the largest counts [s]
    parts        [O + 1] index where the parts of each choice begin
    number       [P] number of equal pieces;  core_s  [P] time of one of them on its core [s]
    local        [P] bytes that a piece keeps on its core
    vector       [P] further bytes of ``capacity`` that it needs while it works
    """

    cores: int
    capacity: float
    kind_of: Ints
    count: Ints
    first: Ints
    spread_s: Array
    shared_s: Array
    alone_s: Array
    hot_s: Array
    parts: Ints
    number: Ints
    core_s: Array
    local: Array
    vector: Array

    @cached_property
    def kind(self) -> Ints:
        """Kind of table of each choice."""
        return np.repeat(np.arange(self.count.size), np.diff(self.first))

    @cached_property
    def total_s(self) -> Array:
        """For each choice, time of all cores added up [s]."""
        return np.asarray(self.spread_s + self._sums(self.number * self.core_s))

    @cached_property
    def total_local(self) -> Array:
        """For each choice, bytes kept in all cores together."""
        return self._sums(self.number * self.local)

    @cached_property
    def squares(self) -> Array:
        """For each choice, the sum of the squared times of its pieces, over the number of cores [s^2]."""
        return self._sums(self.number * self.core_s**2) / self.cores

    @cached_property
    def longest_s(self) -> Array:
        """For each choice, a lower bound on mappings with it: its longest piece, or its hottest row [s]."""
        longest = np.maximum(self.alone_s, (self.shared_s + self.hot_s).max(axis=1, initial=0.0))
        np.maximum.at(longest, self.choice_of_part, self.core_s)
        return np.asarray(longest)

    @cached_property
    def choice_of_part(self) -> Ints:
        """Index of the choice that each part belongs to."""
        return np.repeat(np.arange(self.spread_s.size), np.diff(self.parts))

    @cached_property
    def loads(self) -> Array:
        """[O, 1 + R] for each choice: mean time of the cores, then time of each shared resource [s]."""
        return np.column_stack([self.total_s / self.cores, self.shared_s])

    @cached_property
    def room(self) -> Array:
        """For each choice, bytes kept as a share of the memory of all cores [-]; 0 without a limit."""
        if not np.isfinite(self.capacity):
            return np.zeros(self.spread_s.size)
        return self.total_local / (self.cores * max(self.capacity, 1.0))

    def of(self, table: int) -> slice:
        """The range of choices of a table, by the table's index."""
        kind = self.kind_of[table]
        return slice(int(self.first[kind]), int(self.first[kind + 1]))

    def parts_of(self, choice: int) -> range:
        """Indices of the parts of a choice."""
        return range(int(self.parts[choice]), int(self.parts[choice + 1]))

    def _sums(self, values: Array) -> Array:
        return np.bincount(self.choice_of_part, values, self.spread_s.size).astype(np.float64)
