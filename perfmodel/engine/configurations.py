"""Configurations of one pass: table sizes, batches, poolings and so on, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.tables import WIDTHS
from perfmodel.schema.distributions import Distribution

Array = NDArray[np.float64]

CHUNK = 65_536
"""Configurations per chunk: few enough for the caches, enough to make Python's overhead negligible."""

_STACK = 2**16  # tables times configurations per chunk


@dataclass(frozen=True)
class TableGroup:
    """Equal tables: number and shape, each a scalar or an array with a value per configuration.

    Several groups of different tables can be stacked: then each array has an axis of tables first.
    ids  popularity of the rows of each stacked table; None: the popularity given for all tables
    weight_bytes  bytes of the weight of an id; 0: bags are not weighted
    count  number of equal tables;  rows, dim, pooling, dtype  of each (``PlanTables``)
    """

    ids: tuple[Distribution | None, ...]
    count: Array
    rows: Array
    dim: Array
    pooling: Array
    dtype: Array
    weight_bytes: Array

    @property
    def element_bytes(self) -> Array:
        """Bytes of an element, without what else a row has [bytes]."""
        return np.asarray(WIDTHS[np.asarray(self.dtype, dtype=np.int64)])

    @property
    def plain(self) -> bool:
        """Whether its tables have unweighted bags, and ids with the popularity given for all tables."""
        return not self.weight_bytes.any() and set(self.ids) == {None}

    def part(self, span: slice | NDArray[np.int64]) -> TableGroup:
        """The same tables for some of the configurations."""
        return TableGroup(self.ids, *[a[span] if a.ndim else a for a in columns_of(self)])


columns_of = attrgetter("count", "rows", "dim", "pooling", "dtype", "weight_bytes")
"""The numeric fields of a ``TableGroup``."""


def all_tables(stacks: Iterable[Array]) -> Array:
    """Sums over tables, [C] for C configurations, of arrays [T, C] of stacks or [C] of equal tables."""
    return np.asarray(sum(each.sum(axis=0) if np.ndim(each) > 1 else each for each in stacks))


@dataclass(frozen=True)
class Configs:
    """Configurations, one per element of the arrays: tables, batch, and number of GPUs.

    table_bytes  of all tables;  gpus  number used [-];  needed  the fewest GPUs that hold the rows [-]
    batch        samples of one GPU [-];  id_bytes  bytes of one id;  groups  the tables
    given_gpus   whether the user gave the number of GPUs
    """

    table_bytes: Array
    gpus: Array
    needed: Array
    batch: Array
    id_bytes: Array
    groups: tuple[TableGroup, ...]
    given_gpus: bool
    filled: bool = False  # no table size was given: the tables fill the memory
    usable_bytes: float = np.inf  # memory of a GPU for tables and exchanges
    reserve: float = 0.0  # share of the memory that tables may not use

    def __len__(self) -> int:
        return self.gpus.size

    @cached_property
    def all_rows(self) -> Array:
        """Rows of all tables together, per configuration or for all."""
        return all_tables([group.count * group.rows for group in self.stacked])

    @cached_property
    def table_count(self) -> Array:
        """Number of tables, per configuration or for all."""
        return all_tables([group.count for group in self.stacked])

    def ids_words(self, usual: Distribution) -> str:
        """Names of the distributions of ids; ``usual`` applies to tables that specify none."""
        return ", ".join(dict.fromkeys((law or usual).name for group in self.groups for law in group.ids))

    @cached_property
    def stacked(self) -> tuple[TableGroup, ...]:
        """Groups of single tables combined into stacks [T, 1], in chunks that fit the CPU's caches.

        Limits: one group, or groups with different values per configuration -> unchanged
        """
        if len(self.groups) == 1 or any([group.rows.ndim for group in self.groups]):
            return self.groups
        columns = np.array([columns_of(group) for group in self.groups], float)
        ids = [law for group in self.groups for law in group.ids]
        each = max(_STACK // len(self), 1)
        return tuple(
            TableGroup(tuple(ids[at : at + each]), *columns[at : at + each].T[..., np.newaxis])
            for at in range(0, len(self.groups), each)
        )

    def part(self, span: slice | NDArray[np.int64]) -> Configs:
        """Some of the configurations."""
        cut = (a[span] for a in (self.table_bytes, self.gpus, self.needed, self.batch, self.id_bytes))
        table_bytes, gpus, needed, batch, ids = cut
        groups = tuple(group.part(span) for group in self.groups)
        kept = (self.given_gpus, self.filled, self.usable_bytes, self.reserve)
        return Configs(table_bytes, gpus, needed, batch, ids, groups, *kept)
