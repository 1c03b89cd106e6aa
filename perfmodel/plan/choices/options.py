"""All options of each table (schemes: cut and exchange), with their loads: a search chooses among them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.loads import ShardLoads
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange, by_domain, copied, replace_sparse
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.timing import round_off
from perfmodel.errors import BadInputError
from perfmodel.model.popularity import list_bins
from perfmodel.plan.choices.listing import Listing
from perfmodel.schema.workload import Distribution
from perfmodel.units import counted, format_bytes, format_count

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

HOT_SHARES = (0.5, 0.75, 0.9, 0.97)
"""Shares of a table's look-ups for which its hot rows may be replicated."""
_AT_ONCE = 1 << 14  # options whose loads are computed together


@dataclass(frozen=True, eq=False)
class Options:
    """All options (schemes of tables). T tables belong to Q kinds (equal tables are one kind).

    Arrays have an entry per option [O], sorted by kind; K is the number of resources that cause loads.
    kind_of   [T] kind of each table;  count  [Q] number of tables of each kind
    first     [Q + 1] index where the options of each kind begin;  group  [O] kind of table of each option
    exchange, r, c, hot, parts  [O] kind of exchange, row parts, column parts, replicated hot rows, shards
              (0 for a replicated table)
    own, everywhere   [O, K] load of one shard, and load on every rank (``ShardLoads``) [bytes]
    own_memory, everywhere_memory   [O] memory of one shard, and of the replicas on every rank [bytes]
    average, average_memory   [O, K], [O] load and memory of a rank with shards spread evenly [bytes]
    gpus, domain      GPUs of the job, and of a scale-up domain
    """

    kind_of: Ints
    count: Ints
    first: Ints
    group: Ints
    exchange: Ints
    r: Ints
    c: Ints
    hot: Ints
    parts: Ints
    own: Array
    everywhere: Array
    own_memory: Array
    everywhere_memory: Array
    average: Array
    average_memory: Array
    gpus: int
    domain: int

    @cached_property
    def copied(self) -> NDArray[np.bool_]:
        """For each option, whether it replicates the table."""
        return np.asarray(copied(self.exchange))

    @cached_property
    def by_domain(self) -> NDArray[np.bool_]:
        """For each option, whether its row parts fill whole scale-up domains."""
        return np.asarray(by_domain(self.exchange))

    @property
    def kinds(self) -> list[int]:
        """Codes (``Exchange``) of the exchanges among the options, ascending, but not of replication."""
        return [int(kind) for kind in np.unique(self.exchange[~self.copied])]

    def exchanged_by(self, kinds: Sequence[int]) -> NDArray[np.bool_]:
        """Mask of the options that replicate the table, or whose exchange has its code in ``kinds``."""
        return self.copied | np.isin(self.exchange, kinds)

    @cached_property
    def memory(self) -> Array:
        """For each option, memory of a rank that holds one of its shards [bytes]."""
        return self.own_memory + self.everywhere_memory

    @cached_property
    def beside_memory(self) -> tuple[Array, Array, Array]:
        """``average``, ``everywhere`` and ``own``, each with its memory added as the last column."""
        loads = (self.average, self.average_memory), (self.everywhere, self.everywhere_memory)
        mean, every, own = (np.column_stack(pair) for pair in (*loads, (self.own, self.own_memory)))
        return mean, every, own

    @cached_property
    def everywhere_held(self) -> NDArray[np.bool_]:
        """For each option, whether every rank holds the same amount: a replica, or one shard each."""
        return np.asarray((self.parts == 0) | (self.parts == self.gpus))

    def scheme(self, option: int) -> Scheme:
        """The scheme of the option with this index."""
        kind = Exchange(int(self.exchange[option]))
        return Scheme(kind, int(self.r[option]), int(self.c[option]), int(self.hot[option]))

    def of(self, table: int) -> slice:
        """The range of options of a table, by the table's index."""
        kind = self.kind_of[table]
        return slice(int(self.first[kind]), int(self.first[kind + 1]))

    def find(self, table: int, scheme: Scheme) -> int | None:
        """Index of the option that gives a table this scheme; None if there is none."""
        at = self.of(table)
        found = np.flatnonzero(self._same(scheme, at))
        return at.start + int(found[0]) if found.size else None

    def of_each(self, scheme: Scheme) -> Ints | None:
        """For every kind of table, the index of the option with this scheme; None if some kind has none."""
        found = np.flatnonzero(self._same(scheme, slice(None)))
        kinds, first = np.unique(self.group[found], return_index=True)
        return np.asarray(found[first]) if kinds.size == self.count.size else None

    def _same(self, scheme: Scheme, at: slice) -> NDArray[np.bool_]:
        """For each option in the range ``at``, whether it has this scheme."""
        same = (self.exchange[at] == scheme.kind) & (self.r[at] == scheme.row_parts)
        same &= (self.c[at] == scheme.col_parts) & (self.hot[at] == scheme.hot_rows)
        return np.asarray(same)

    def kept(self, keep: NDArray[np.bool_]) -> Options:
        """The options where the mask ``keep`` is true. Limits: each kind of table must keep at least one"""
        if keep.all():
            return self
        group = self.group[keep]
        first = np.searchsorted(group, np.arange(self.count.size + 1))
        some = {
            name: getattr(self, name)[keep]
            for name in (
                *("exchange", "r", "c", "hot", "parts", "own", "everywhere"),
                *("own_memory", "everywhere_memory", "average", "average_memory"),
            )
        }
        return Options(self.kind_of, self.count, first, group, gpus=self.gpus, domain=self.domain, **some)


MOST_KINDS = 10_000
"""Most kinds of table (equal tables are one kind) of which options are listed: 1.3 GB."""


def check_kinds(tables: PlanTables) -> None:
    """Refuse more kinds of table than a plan can choose for. Limits: above ``MOST_KINDS`` -> BadInputError"""
    kinds = tables.kinds[0].size
    if kinds > MOST_KINDS:
        raise BadInputError(
            f"{format_count(kinds)} different tables are more than a plan can choose for.",
            f"at most {format_count(MOST_KINDS)}: plan groups of them apart, or round rows and pooling.",
        )


def options_of(
    evaluator: Evaluator,
    limit_bytes: float,
    more: Sequence[Collection[Scheme]] = (),
) -> Options:
    """All options of the evaluator's tables whose shards fit a rank with ``limit_bytes`` of memory.

    Row and column parts are those of ``schemes``. Hot rows are replicated only if that saves time, alone or
    for all tables.
    more  further schemes for each kind of equal tables, with any number of parts
    Limits: a table without an option that fits -> BadInputError: by how much;  as ``check_kinds``
    """
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    check_kinds(tables)
    sample, kind_of, count = tables.kinds
    few = [hot_rows(tables.ids[at], float(tables.rows[at])) for at in sample]
    further = [set(schemes) for schemes in more] or [set[Scheme]() for _ in sample]
    listed = Listing.of(tables.rows[sample], tables.dim[sample], gpus, domain, few, further)
    group, exchange, r, c, hot_of = listed.group, listed.exchange, listed.r, listed.c, listed.hot
    parts = np.where(copied(exchange), 0, r * c)
    memory = np.sum(evaluator.memories.count_shard(sample[group], r, c, hot_of), axis=0)
    loads = _loads(evaluator, sample[group], exchange, r, c, hot_of)
    spread, whole = parts / gpus, parts == 0
    everywhere_rows = np.where(whole, tables.rows[sample[group]], hot_of)
    everywhere_memory = np.sum(evaluator.memories.count_copies(sample[group], everywhere_rows), axis=0)
    own_memory = np.where(whole, 0, memory)
    found = Options(
        kind_of,
        count,
        np.searchsorted(group, np.arange(count.size + 1)),
        group,
        exchange,
        r,
        c,
        hot_of,
        parts,
        round_off(loads.own),
        round_off(loads.everywhere),
        round_off(own_memory),
        round_off(everywhere_memory),
        round_off(_average(loads, spread)),
        round_off(everywhere_memory + own_memory * spread),
        gpus,
        domain,
    )
    return _fitting(
        found.kept(listed.further | _worth_copying(found, evaluator)), tables, sample, limit_bytes
    )


def _loads(evaluator: Evaluator, table: Ints, kind: Ints, r: Ints, c: Ints, hot: Ints) -> ShardLoads:
    """Loads of many options, by ``Evaluator.count_shards`` in chunks that fit a processor's cache.

    table, kind, r, c, hot  of each option: index of the table, exchange, row parts, column parts, hot rows
    """
    count = table.size
    found: list[Array] = []
    for at in range(0, count, _AT_ONCE):
        some = slice(at, at + _AT_ONCE)
        part = evaluator.count_shards(table[some], kind[some], r[some], c[some], hot[some])
        if part.own.shape[0] == count:
            return part
        found = found or [np.zeros((part.own.shape[1], count)).T for _ in range(2)]
        for whole, values in zip(found, (part.own, part.everywhere), strict=True):
            for k in np.flatnonzero(values.any(axis=0)):  # columns of zeros take no memory
                whole[some, k] = values[:, k]
    own, everywhere = found
    return ShardLoads(own, everywhere)


def _average(loads: ShardLoads, spread: Array) -> Array:
    """Mean load of a rank for each option and resource [bytes].

    spread  for each option, its number of shards divided by the number of ranks
    """
    count, width = loads.own.shape
    average = np.zeros((width, count)).T
    for k, (own, everywhere) in enumerate(zip(loads.own.T, loads.everywhere.T, strict=True)):
        if own.any() or everywhere.any():
            average[:, k] = everywhere + own * spread
    return average


def _worth_copying(o: Options, evaluator: Evaluator) -> NDArray[np.bool_]:
    """Mask of the options without hot rows, and of the options whose hot rows save time.

    Replicas of hot rows always need more memory. So they must make a pass faster, for the table alone or if
    all tables had them.
    """
    if not o.hot.any():
        return np.ones(o.hot.size, dtype=bool)
    scheme = ((o.group * len(Exchange) + replace_sparse(o.exchange, o.r)) * (o.r.max() + 1) + o.r) * (
        o.c.max() + 1
    ) + o.c
    _, of = np.unique(scheme, return_inverse=True)
    worth = np.asarray(o.hot == 0)
    for tables in (1, evaluator.tables.rows.size):
        time = evaluator.estimate_times(o.average * tables)
        without = np.full(of.max() + 1, np.inf)
        without[of[o.hot == 0]] = time[o.hot == 0]
        worth |= time < without[of]
    return worth


def hot_rows(ids: Distribution, rows: float) -> tuple[int, ...]:
    """Numbers of hot rows of a table that a search tries: rows that get ``HOT_SHARES`` of its look-ups.

    ids  distribution of the look-ups;  rows  of the table; at most half of them are hot
    Limits: uniform ids -> none
    """
    if ids.uniform:
        return ()
    p, count = list_bins(ids, rows)
    share, below = np.cumsum(p * count), np.cumsum(count)
    found = np.ceil(np.interp(HOT_SHARES, np.append(0, share), np.append(0, below)) - 1e-6)
    return tuple(int(h) for h in np.unique(found) if 1 <= h <= rows / 2)


def _fitting(found: Options, tables: PlanTables, sample: Ints, limit_bytes: float) -> Options:
    fits = found.memory <= limit_bytes
    left = np.bincount(found.group[fits], minlength=found.count.size)
    for q in np.flatnonzero(left == 0):
        name, least = tables.names[sample[q]], float(found.memory[found.group == q].min())
        needs, room, more = (format_bytes(x, binary=False) for x in (least, limit_bytes, least - limit_bytes))
        raise BadInputError(
            f"table {name!r} fits nowhere: its smallest shard needs {needs}, "
            f"{more} more than the {room} of a GPU.",
            "use more GPUs (--gpus) or GPUs with more memory (--set max_hbm=…, --set reserve=…).",
        )
    fitting = found.kept(fits)
    check_room(fitting, tables.model, limit_bytes)
    return fitting


def check_room(options: Options, model: str, limit_bytes: float, rules: str = "") -> None:
    """Check that all tables fit in the memory of all ranks, each with its smallest option.

    rules  that the message names. Limits: they need more than ``limit_bytes`` per rank -> BadInputError
    """
    leanest = np.minimum.reduceat(options.average_memory, options.first[:-1])
    total = float(np.sum(leanest * options.count))
    if total <= limit_bytes:
        return
    needs, room, excess = (
        format_bytes(x * options.gpus, binary=False) for x in (total, limit_bytes, total - limit_bytes)
    )
    raise BadInputError(
        f"the tables of {model} need {needs}, {excess} more than the {room} of "
        f"{counted(options.gpus, 'GPU')}.",
        f"{rules}use {int(np.ceil(total * options.gpus / limit_bytes))} GPUs or more (--gpus), "
        f"or allow more of the memory of each (--set max_hbm=…, --set reserve=…).",
    )


def least_of(value: Array, first: Ints) -> tuple[Array, Ints]:
    """(least value, the option that has it) for each kind of table; the first option among equals.

    value  one per option, sorted by kind of table;  first  [Q + 1] where the options of each kind begin
    """
    begin = first[:-1]
    least = np.minimum.reduceat(value, begin)
    at = np.flatnonzero(value == np.repeat(least, np.diff(first)))
    return least, at[np.searchsorted(at, begin)]
