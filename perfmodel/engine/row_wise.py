"""Configurations of a row-wise pass as arrays, and the cost of its steps for many of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import PassCost, cost_passes
from perfmodel.engine.cut import LoadInputs, TableCut, Training
from perfmodel.engine.loads import sum_even_loads
from perfmodel.engine.placement import COPY
from perfmodel.engine.schemes import FLAT, copied
from perfmodel.engine.tables import WIDTHS, Array, TableShapes, collect_laws
from perfmodel.engine.timing import PassTimes
from perfmodel.model import exchanges as ex
from perfmodel.model.popularity import LookUps
from perfmodel.schema.workload import Distribution

CHUNK = 32_768
"""Configurations per chunk: few enough for the caches, enough to make Python's overhead negligible."""

_STACK = 2**16  # tables times configurations per chunk


@dataclass(frozen=True)
class TableGroup:
    """Equal tables: number and shape, each a scalar or an array with a value per configuration.

    Several groups of different tables can be stacked: then each array has an axis of tables first.
    ids  popularity of the rows of each stacked table
    weight_bytes  bytes of the weight of an id; 0: bags are not weighted
    count  number of equal tables;  rows, dim, pooling, dtype  of each (``PlanTables``)
    """

    ids: tuple[Distribution, ...]
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

    def select(self, span: slice | NDArray[np.int64]) -> TableGroup:
        """The same tables for some of the configurations."""
        return TableGroup(self.ids, *[a[span] if a.ndim else a for a in columns_of(self)])


columns_of = attrgetter("count", "rows", "dim", "pooling", "dtype", "weight_bytes")
"""The numeric fields of a ``TableGroup``."""


def sum_tables(stacks: Iterable[Array]) -> Array:
    """Sums over tables, [C] for C configurations, of arrays [T, C] of stacks or [C] of equal tables."""
    return np.asarray(sum(x.sum(axis=0) if np.ndim(x) > 1 else x for x in stacks))


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

    def __len__(self) -> int:
        return self.gpus.size

    @cached_property
    def all_rows(self) -> Array:
        """Rows of all tables together, per configuration or for all."""
        return sum_tables([group.count * group.rows for group in self.stacked])

    @cached_property
    def table_count(self) -> Array:
        """Number of tables, per configuration or for all."""
        return sum_tables([group.count for group in self.stacked])

    @property
    def ids_names(self) -> str:
        """Names of the distributions of ids."""
        return ", ".join(dict.fromkeys(law.name for group in self.groups for law in group.ids))

    @cached_property
    def stacked(self) -> tuple[TableGroup, ...]:
        """Groups of single tables combined into stacks [T, 1], in chunks that fit the CPU's caches.

        Limits: one group, or groups with different values per configuration -> unchanged
        """
        if len(self.groups) == 1 or any([group.rows.ndim for group in self.groups]):
            return self.groups
        columns = np.array([columns_of(group) for group in self.groups], float)
        ids = [law for group in self.groups for law in group.ids]
        size = max(_STACK // len(self), 1)
        return tuple(
            TableGroup(tuple(ids[start : start + size]), *columns[start : start + size].T[..., np.newaxis])
            for start in range(0, len(self.groups), size)
        )

    def select(self, span: slice | NDArray[np.int64]) -> Configs:
        """Some of the configurations."""
        cut = (a[span] for a in (self.table_bytes, self.gpus, self.needed, self.batch, self.id_bytes))
        table_bytes, gpus, needed, batch, ids = cut
        groups = tuple(group.select(span) for group in self.groups)
        options = (self.given_gpus, self.filled, self.usable_bytes)
        return Configs(table_bytes, gpus, needed, batch, ids, groups, *options)


Codes = NDArray[np.int64]
"""Codes of ``Exchange``, one per configuration."""


def count_loads(
    basis: PassBasis, work: Configs, kind: Codes, *, works: bool = True, exchanges: bool = True
) -> Array:
    """Loads of every GPU in a row-wise pass, all tables together: [..., K] bytes of each of the K resources.

    kind  exchange of the bags of each configuration (``choose_exchanges``)
    works, exchanges  whether look-ups and updates of rows, and whether all else counts
    """
    cuts = (cut_group(basis, work, stack, kind) for stack in work.stacked)
    sides = (sum_even_loads(cut, count, works=works, exchanges=exchanges) for cut, count in cuts)
    return reduce(np.add, sides)


def cut_group(basis: PassBasis, work: Configs, group: TableGroup, kind: Codes) -> tuple[TableCut, Array]:
    """(tables of a group cut over all GPUs, number of equal tables of each).

    A table with fewer rows than GPUs is replicated, without exchange.
    """
    shape = np.broadcast_shapes(np.shape(group.rows), work.gpus.shape)
    laws, law = collect_laws(group.ids)
    law = np.broadcast_to(law[:, np.newaxis] if law.size > 1 else law, shape).reshape(-1)
    columns = group.rows, group.dim, group.dtype, group.pooling, group.weight_bytes
    of_pass = work.batch, work.gpus, basis.domain(work.gpus), work.id_bytes, work.table_count, work.all_rows
    rows, dim, dtype, pooling, weight, batch, gpus, domain, id_bytes, beside, all_rows = (
        np.broadcast_to(column, shape).reshape(-1) for column in (*columns, *of_pass)
    )
    shapes = TableShapes(rows, dim, dtype, pooling, weight, laws, law)
    training = None
    if basis.training:
        training = Training(basis.state, basis.state, shapes.count_unique(batch * gpus))
    model = LoadInputs(
        tables=shapes,
        basis=basis,
        batch=batch,
        gpus=gpus,
        domain=domain,
        id_bytes=id_bytes,
        training=training,
        beside=beside,
        all_rows=all_rows,
    )
    kinds = np.broadcast_to(np.where(group.rows >= work.gpus, kind, int(COPY.kind)), shape)
    parts = np.where(copied(kinds), 1.0, work.gpus)
    place = np.arange(rows.size).reshape(shape)
    cut = TableCut(model, place, kinds, parts, np.ones(shape), np.zeros(shape))
    return cut, np.broadcast_to(group.count, shape)


def choose_exchanges(basis: PassBasis, work: Configs) -> Codes:
    """The exchange of bags of each configuration: the faster, if the library can run two."""
    times = build_times(basis, work)
    gather = next(place for place, step in enumerate(times.steps) if step.always)
    best, best_s = np.asarray(int(basis.exchanges[0])), np.asarray(np.inf)
    for kind in basis.exchanges[len(basis.exchanges) == 1 :]:
        loads = count_loads(basis, work, np.asarray(int(kind)), works=False)
        after_s = np.asarray(sum(times.time_step(step, loads).time_s for step in times.steps[gather + 1 :]))
        best, best_s = np.where(after_s < best_s, int(kind), best), np.minimum(after_s, best_s)
    return best


def build_times(basis: PassBasis, work: Configs) -> PassTimes:
    """Times of the steps on the GPUs of each configuration."""
    digits = ex.sort_digits(work.all_rows / work.gpus)
    return PassTimes(basis, work.gpus, basis.domain(work.gpus), basis.steps, digits=digits)


def cost_locally(basis: PassBasis, work: Configs) -> PassCost:
    """The same batch with all tables in one GPU's HBM: gather, and in training the update."""
    alone = replace(work, gpus=np.ones_like(work.gpus))
    loads = count_loads(basis, alone, np.asarray(int(FLAT)), exchanges=False)
    times = build_times(basis, alone)
    kernels = [step for step in times.steps if step.is_kernel and not step.hosted]
    return cost_passes(times, loads, [step for step in kernels if step.always or step.alone])


def fullest_part(work: Configs) -> float:
    """Look-ups of the row shard with the hottest row over the mean shard's, for the most skewed table.

    For one configuration; for a set of tables, among the tables with most look-ups.
    Limits: uniform ids -> 1;  all look-ups ask for one row, G GPUs -> G
    """
    gpus, batch = float(work.gpus[0]), float(work.batch[0])
    if gpus == 1:
        return 1.0
    groups = sorted(work.groups, key=lambda t: -float((t.count * t.pooling).flat[0]))[:_MOST_GROUPS]
    shapes = ((t.ids[0], float(t.rows.flat[0]), float(t.pooling.flat[0])) for t in groups)
    return max(
        (
            LookUps(ids, rows, pooling, batch, gpus).fullest(0, gpus)
            for ids, rows, pooling in shapes
            if not ids.uniform and rows >= gpus
        ),
        default=1.0,
    )


_MOST_GROUPS = 20
