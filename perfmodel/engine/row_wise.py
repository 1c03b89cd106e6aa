"""Configurations of a row-wise pass as arrays, and the cost of its steps for many of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cut import LoadInputs, TableCut, Training
from perfmodel.engine.loads import sum_even_loads
from perfmodel.engine.memory import count_state
from perfmodel.engine.pass_cost import PassCost, cost_passes
from perfmodel.engine.placement import COPY
from perfmodel.engine.schemes import AUTO, FLAT, Exchange, by_domain, copied, list_exchanges
from perfmodel.engine.schemes import REDUCTIONS as BY_NAME
from perfmodel.engine.tables import WIDTHS, Array, TableShapes, collect_laws
from perfmodel.engine.timing import PassTimes
from perfmodel.model import exchanges as ex
from perfmodel.model.look_ups import LookUps
from perfmodel.schema.distributions import UNIFORM, Distribution

CHUNK = 32_768
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
    reserve: float = 0.0  # share of the memory that tables may not use

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

    def name_ids(self, usual: Distribution) -> str:
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
        options = (self.given_gpus, self.filled, self.usable_bytes, self.reserve)
        return Configs(table_bytes, gpus, needed, batch, ids, groups, *options)


Codes = NDArray[np.int64]

REDUCTIONS = tuple(name.replace("-", "_") for name in BY_NAME)
REDUCE_SCATTER, ALL_TO_ALL, TWO_LEVEL, SPARSE = REDUCTIONS[1:]
"""How partial bags are reduced to bags. ``auto``: as the library can (``schemes.list_exchanges``).
``sparse``: all-to-all of the non-empty bags."""


@dataclass(frozen=True)
class Forward(PassBasis):
    """A row-wise pass on a setting; ``cost`` and ``cost_locally`` compute its times for any configurations.

    reduction  one of ``REDUCTIONS``
    ids   popularity of the rows of tables that do not specify it
    """

    reduction: str = AUTO
    ids: Distribution = UNIFORM

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Exchanges of bags that may be used; each configuration uses the fastest."""
        kind = BY_NAME[self.reduction.replace("_", "-")]
        return list_exchanges(self.setting.backend) if kind is None else (kind,)

    def count_loads(self, work: Configs, kind: Codes, *, works: bool = True, exchanges: bool = True) -> Array:
        """Loads of every GPU, all tables together: [..., K] bytes of each of the K resources.

        kind  ``Exchange`` code of the bags of each configuration (``choose_exchanges``)
        works, exchanges  whether look-ups and updates of rows, and whether all else counts
        """
        cuts = (self.cut(work, stack, kind) for stack in work.stacked)
        sides = (sum_even_loads(cut, count, works=works, exchanges=exchanges) for cut, count in cuts)
        return reduce(np.add, sides)

    def cut(self, work: Configs, t: TableGroup, kind: Codes) -> tuple[TableCut, Array]:
        """(tables of a group cut over all GPUs, number of equal tables of each).

        A table with fewer rows than GPUs is replicated, without exchange.
        """
        shape = np.broadcast_shapes(np.shape(t.rows), work.gpus.shape)
        laws, law = collect_laws([ids or self.ids for ids in t.ids])
        law = np.broadcast_to(law[:, np.newaxis] if law.size > 1 else law, shape).reshape(-1)
        domain, columns = self.domain(work.gpus), (t.rows, t.dim, t.dtype, t.pooling, t.weight_bytes)
        of_pass = work.batch, work.gpus, domain, work.id_bytes, work.table_count, work.all_rows
        rows, dim, dtype, pooling, weight, batch, gpus, g, id_bytes, beside, all_rows = (
            np.broadcast_to(column, shape).reshape(-1) for column in (*columns, *of_pass)
        )
        shapes = TableShapes(rows, dim, dtype, pooling, weight, laws, law)
        training = None
        if self.training:
            training = Training(self.state, self.state, shapes.count_unique(batch * gpus))
        model = LoadInputs(
            shapes,
            batch,
            gpus,
            g,
            self.constant,
            self.setting.machine.value,
            id_bytes,
            self.sent_element_bytes,
            training,
            beside=beside,
            all_rows=all_rows,
            host=self.rows,
            unpooled=self.unpooled,
        )
        kinds = np.where(t.rows >= work.gpus, kind, int(COPY.kind))
        kinds = np.broadcast_to(kinds, shape)
        parts = np.where(copied(kinds), 1.0, work.gpus)
        place = np.arange(rows.size).reshape(shape)
        cut = TableCut(model, place, kinds, parts, np.ones(shape), np.zeros(shape))
        return cut, np.broadcast_to(t.count, shape)

    @property
    def state(self) -> tuple[float, float]:
        """Optimizer state: (bytes per element, bytes per row)."""
        return count_state(self.optimizer, self.constant("optimizer_state_bytes"))

    def choose_exchanges(self, work: Configs) -> Codes:
        """Code of the exchange of bags of each configuration: the faster, if two are possible."""
        best, *rivals = (self.fit_domains(work, kind) for kind in self.exchanges)
        for kind in rivals:
            faster = self._time_reduction(work, kind) < self._time_reduction(work, best)
            best = np.where(faster, kind, best)
        return best

    def fit_domains(self, work: Configs, kind: int) -> Codes:
        """Code of an exchange for all configurations. An exchange that reduces by domains is replaced by its
        flat form where the GPUs do not fill whole domains.
        """
        uneven = by_domain(kind) & (np.mod(work.gpus, self.domain(work.gpus)) > 0)
        return np.where(uneven, int(FLAT), kind)

    def _time_reduction(self, work: Configs, kind: Codes) -> Array:
        """Time of all exchanges after the gather, with the kernels that they need [s]."""
        times, loads = self.build_times(work), self.count_loads(work, kind, works=False)
        gather = next(place for place, step in enumerate(times.steps) if step.always)
        return np.asarray(sum(times.time_step(step, loads).time_s for step in times.steps[gather + 1 :]))

    def build_times(self, work: Configs) -> PassTimes:
        """Times of the steps on the GPUs of each configuration."""
        digits = ex.sort_digits(work.all_rows / work.gpus)
        return PassTimes(self, work.gpus, self.domain(work.gpus), self.steps, digits=digits)

    def cost_locally(self, work: Configs) -> PassCost:
        """The same batch with all tables in one GPU's HBM: gather, and in training the update."""
        alone = replace(work, gpus=np.ones_like(work.gpus))
        loads, times = (
            self.count_loads(alone, np.asarray(int(FLAT)), exchanges=False),
            self.build_times(alone),
        )
        kernels = [step for step in times.steps if step.is_kernel and not step.hosted]
        steps = [step for step in kernels if step.always or step.alone]
        return cost_passes(times, loads, steps)


def fullest_part(forward: Forward, work: Configs) -> float:
    """Look-ups of the row shard with the hottest row over the mean shard's, for the most skewed table.

    For one configuration; for a set of tables, among the tables with most look-ups.
    Limits: uniform ids -> 1;  all look-ups ask for one row, G GPUs -> G
    """
    gpus, batch = float(work.gpus[0]), float(work.batch[0])
    if gpus == 1:
        return 1.0
    groups = sorted(work.groups, key=lambda t: -float((t.count * t.pooling).flat[0]))[:_MOST_GROUPS]
    shapes = ((t.ids[0] or forward.ids, float(t.rows.flat[0]), float(t.pooling.flat[0])) for t in groups)
    return max(
        (
            LookUps(ids, rows, pooling, batch, gpus).fullest(0, gpus)
            for ids, rows, pooling in shapes
            if not ids.uniform and rows >= gpus
        ),
        default=1.0,
    )


_MOST_GROUPS = 20
