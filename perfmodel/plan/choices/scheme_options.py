"""All options of each table (schemes: cut and exchange), with their loads: a search chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perfmodel.answer.inputs import TooFewGpusError, write
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange, by_domain, copied, replace_sparse
from perfmodel.engine.tables import Array, Ints, PlanTables
from perfmodel.engine.timing import round_off
from perfmodel.errors import BadInputError
from perfmodel.model.popularity import list_bins
from perfmodel.plan.choices.listing import Listing, Mask, list_columns
from perfmodel.schema.workload import Distribution
from perfmodel.units import counted, format_count

HOT_SHARES = (0.5, 0.75, 0.9, 0.97)  # shares of a table's look-ups for which its hot rows may be replicated
MORE_MEMORY = "use more GPUs (--gpus) or more memory of each (--set max_hbm=…, --set reserve=…)."
MOST_KINDS = 10_000  # most kinds of table (equal tables are one kind) of which options are listed: 1.3 GB
_AT_ONCE = 1 << 14  # options whose loads are computed together
_FEW = 6  # options of a table and an exchange that are tried at their prices


@dataclass(frozen=True, eq=False)
class Options:
    """All options (schemes of tables). T tables belong to Q kinds (equal tables are one kind).

    Arrays have an entry per option [O], sorted by kind; K is the number of resources that cause loads.
    kind_of   [T] kind of each table;  count  [Q] number of tables of each kind
    begin     [Q + 1] index where the options of each kind begin;  group  [O] kind of table of each option
    exchange, r, c, hot, parts  [O] kind of exchange, row parts, column parts, replicated hot rows, shards
              (0 for a replicated table)
    shard, everywhere   [O, K] load of one shard, and load on every rank (``ShardLoads``) [bytes]
    shard_memory, everywhere_memory   [O] memory of one shard, and of the replicas on every rank [bytes]
    average, average_memory   [O, K], [O] load and memory of a rank with shards spread evenly [bytes]
    gpus, domain      GPUs of the job, and of a scale-up domain
    """

    kind_of: Ints
    count: Ints
    begin: Ints
    group: Ints
    exchange: Ints
    r: Ints
    c: Ints
    hot: Ints
    parts: Ints
    shard: Array
    everywhere: Array
    shard_memory: Array
    everywhere_memory: Array
    average: Array
    average_memory: Array
    gpus: int
    domain: int

    @cached_property
    def copied(self) -> Mask:
        """For each option, whether it replicates the table."""
        return np.asarray(copied(self.exchange))

    @cached_property
    def by_domain(self) -> Mask:
        """For each option, whether its row parts fill whole scale-up domains."""
        return np.asarray(by_domain(self.exchange))

    @cached_property
    def everywhere_held(self) -> Mask:
        """For each option, whether every rank holds the same amount: a replica, or one shard each."""
        return np.asarray((self.parts == 0) | (self.parts == self.gpus))

    @property
    def kinds(self) -> list[int]:
        """Codes (``Exchange``) of the exchanges among the options, ascending, but not of replication."""
        return [int(kind) for kind in np.unique(self.exchange[~self.copied])]

    @cached_property
    def beside_memory(self) -> tuple[Array, Array, Array]:
        """``average``, ``everywhere`` and ``shard``, each with its memory added as the last column."""
        return (
            np.column_stack([self.average, self.average_memory]),
            np.column_stack([self.everywhere, self.everywhere_memory]),
            np.column_stack([self.shard, self.shard_memory]),
        )

    @cached_property
    def memory(self) -> Array:
        """For each option, memory of a rank that holds one of its shards [bytes]."""
        return self.shard_memory + self.everywhere_memory

    def select_exchanges(self, kinds: Sequence[int]) -> Mask:
        """Mask of the options that replicate the table, or whose exchange has its code in ``kinds``."""
        return self.copied | np.isin(self.exchange, kinds)

    def build_scheme(self, option: int) -> Scheme:
        """The scheme of the option with this index."""
        kind = Exchange(int(self.exchange[option]))
        return Scheme(kind, int(self.r[option]), int(self.c[option]), int(self.hot[option]))

    def find_range(self, table: int) -> slice:
        """The range of options of a table, by the table's index."""
        kind = self.kind_of[table]
        return slice(int(self.begin[kind]), int(self.begin[kind + 1]))

    def find(self, table: int, scheme: Scheme) -> int | None:
        """Index of the option that gives a table this scheme; None if there is none."""
        span = self.find_range(table)
        equal = (self.exchange[span] == scheme.kind) & (self.r[span] == scheme.row_parts)
        equal &= (self.c[span] == scheme.col_parts) & (self.hot[span] == scheme.hot_rows)
        places = np.flatnonzero(equal)
        return span.start + int(places[0]) if places.size else None

    def keep(self, mask: Mask) -> Options:
        """The options where the mask is true. Limits: each kind of table must keep at least one"""
        if mask.all():
            return self
        columns = {name: getattr(self, name)[mask] for name in _OF_OPTIONS}
        begin = np.searchsorted(columns["group"], np.arange(self.count.size + 1))
        return replace(self, begin=begin, **columns)

    def find_empty(self, mask: Mask) -> Ints:
        """The kinds of table that have no option in the mask."""
        return np.setdiff1d(np.arange(self.count.size), self.group[mask])

    def select_least(self, value: Array, mask: Mask) -> Ints:
        """Indices of the options in the mask with the ``_FEW`` least values of each kind and exchange."""
        allowed = np.flatnonzero(mask)
        segment = self.group[allowed] * len(Exchange) + self.exchange[allowed]
        order = np.lexsort((value[allowed], segment))
        start = np.searchsorted(segment[order], segment[order])  # where the segment of each begins
        return allowed[order[np.arange(order.size) - start < _FEW]]


_OF_OPTIONS = (
    *("group", "exchange", "r", "c", "hot", "parts", "shard", "everywhere"),
    *("shard_memory", "everywhere_memory", "average", "average_memory"),
)


def check_kinds(tables: PlanTables) -> None:
    """Refuse more kinds of table than a plan can choose for. Limits: above ``MOST_KINDS`` -> BadInputError"""
    kinds = tables.kinds[0].size
    if kinds > MOST_KINDS:
        raise BadInputError(
            f"{format_count(kinds)} different tables are more than a plan can choose for.",
            f"at most {format_count(MOST_KINDS)}: plan groups of them apart, or round rows and pooling.",
        )


def list_options(evaluator: Evaluator, limit_bytes: float, more: Sequence[set[Scheme]] = ()) -> Options:
    """All options of the evaluator's tables whose shards fit a rank with ``limit_bytes`` of memory.

    Row and column parts are those of ``list_possible_schemes``. Hot rows are replicated only if that saves
    time, alone or for all tables.
    more  further schemes for each kind of equal tables, with any number of parts
    Limits: a table without an option that fits -> BadInputError: by how much;  as ``check_kinds``
    """
    tables = evaluator.tables
    gpus = evaluator.gpus
    check_kinds(tables)
    sample, kind_of, count = tables.kinds
    hot = [count_hot_rows(tables.ids[t], float(tables.rows[t])) for t in sample]
    listed = list_columns(tables.rows[sample], tables.dim[sample], gpus, evaluator.domain, hot).add(more)
    table = sample[listed.group]
    copies = copied(listed.exchange)
    parts = listed.r * listed.c * ~copies
    memory = np.sum(evaluator.memories.count_shard(table, listed.r, listed.c, listed.hot), axis=0)
    replicas = np.where(copies, tables.rows[table], listed.hot)
    everywhere_memory = np.sum(evaluator.memories.count_copies(table, replicas), axis=0)
    shard_memory = memory * ~copies
    shard, everywhere, average = _count_loads(evaluator, table, listed, parts / gpus)
    options = Options(
        kind_of=kind_of,
        count=count,
        begin=np.searchsorted(listed.group, np.arange(count.size + 1)),
        group=listed.group,
        exchange=listed.exchange,
        r=listed.r,
        c=listed.c,
        hot=listed.hot,
        parts=parts,
        shard=round_off(shard),
        everywhere=round_off(everywhere),
        shard_memory=round_off(shard_memory),
        everywhere_memory=round_off(everywhere_memory),
        average=round_off(average),
        average_memory=round_off(everywhere_memory + shard_memory * (parts / gpus)),
        gpus=gpus,
        domain=evaluator.domain,
    )
    options = options.keep(listed.further | _find_worth_copying(options, evaluator))
    return _keep_fitting(options, tables, sample, limit_bytes)


def _count_loads(
    evaluator: Evaluator, table: Ints, listed: Listing, spread: Array
) -> tuple[Array, Array, Array]:
    """Loads [O, K] of a shard, of every rank, and of the mean rank, in chunks that fit a processor's cache.

    table   index of a table that has each option;  spread  number of its shards over number of ranks
    Columns lie one after the other, and columns of zeros take no memory.
    """
    loads: list[Array] = []
    for start in range(0, table.size, _AT_ONCE):
        span = slice(start, start + _AT_ONCE)
        columns = (values[span] for values in (listed.exchange, listed.r, listed.c, listed.hot))
        chunk = evaluator.count_shards(table[span], *columns)
        loads = loads or [np.zeros((chunk.on_holder.shape[1], table.size)).T for _ in range(3)]
        for k in np.flatnonzero(chunk.on_holder.any(axis=0) | chunk.everywhere.any(axis=0)):
            loads[0][span, k] = chunk.on_holder[:, k]
            loads[1][span, k] = chunk.everywhere[:, k]
            loads[2][span, k] = chunk.everywhere[:, k] + chunk.on_holder[:, k] * spread[span]
    shard, everywhere, average = loads
    return shard, everywhere, average


def _find_worth_copying(o: Options, evaluator: Evaluator) -> Mask:
    """Mask of the options without hot rows, and of the options whose hot rows save time.

    Replicas of hot rows always need more memory. So they must make a pass faster, for the table alone or if
    all tables had them.
    """
    if not o.hot.any():
        return np.ones(o.hot.size, dtype=bool)
    keys = np.stack([o.group, replace_sparse(o.exchange, o.r), o.r, o.c])
    _, scheme = np.unique(keys, axis=1, return_inverse=True)  # options that differ in hot rows alone
    scheme = scheme.ravel()
    worth = np.asarray(o.hot == 0)
    for tables in (1, evaluator.tables.rows.size):
        time = evaluator.estimate_times(o.average * tables)
        without = np.full(scheme.max() + 1, np.inf)
        without[scheme[o.hot == 0]] = time[o.hot == 0]
        worth |= time < without[scheme]
    return worth


def count_hot_rows(ids: Distribution, rows: float) -> tuple[int, ...]:
    """Numbers of hot rows of a table that a search tries: rows that get ``HOT_SHARES`` of its look-ups.

    ids  distribution of the look-ups;  rows  of the table; at most half of them are hot
    Limits: uniform ids -> none
    """
    if ids.uniform:
        return ()
    p, count = list_bins(ids, rows)
    share = np.append(0, np.cumsum(p * count))
    ranks = np.append(0, np.cumsum(count))
    numbers = np.ceil(np.interp(HOT_SHARES, share, ranks) - 1e-6)
    return tuple(int(h) for h in np.unique(numbers) if h <= rows / 2)


def _keep_fitting(options: Options, tables: PlanTables, sample: Ints, limit_bytes: float) -> Options:
    """The options whose shards fit a rank. sample  [Q] a table of each kind. Limits: none -> error"""
    fits = options.memory <= limit_bytes
    for q in options.find_empty(fits):
        needed = float(options.memory[options.group == q].min())
        needs, excess, room = map(write, (needed, needed - limit_bytes, limit_bytes))
        raise TooFewGpusError(
            f"table {tables.names[sample[q]]!r} does not fit {counted(options.gpus, 'GPU')}: its smallest "
            f"shard needs {needs}, {excess} more than the {room} of a GPU.",
            MORE_MEMORY,
        )
    options = options.keep(fits)
    check_room(options, limit_bytes)
    return options


def check_room(options: Options, limit_bytes: float, rules: str = "") -> None:
    """Raise BadInputError if all tables, each with its smallest option, need more than the ranks together.

    limit_bytes  memory of a rank;  rules  advice about rules, with which the message begins
    """
    leanest = np.minimum.reduceat(options.average_memory, options.begin[:-1])
    total = float(np.sum(leanest * options.count))
    if total <= limit_bytes:
        return
    gpus = options.gpus
    needs, excess, room = map(write, (total * gpus, (total - limit_bytes) * gpus, limit_bytes * gpus))
    words = f"the tables need {needs}, {excess} more than the {room} of {counted(gpus, 'GPU')}."
    raise TooFewGpusError(words, rules + MORE_MEMORY)


def price_loads(estimate: Callable[[Array], Array], loads: Array, share: float = 0.05) -> Array:
    """Time per byte of each resource at these loads [K]: difference quotients [s/byte].

    estimate  times of passes from their loads [..., K];  share  step of a quotient, over its load [-]
    """
    step = np.maximum(loads, loads.max() * 1e-6) * share
    time = estimate(np.vstack([loads + np.diag(step), loads]))
    return np.asarray((time[:-1] - time[-1]) / step)


def find_least(value: Array, begin: Ints) -> tuple[Array, Ints]:
    """(least value, the option that has it) for each kind of table; the first option among equals.

    value  one per option, sorted by kind of table;  begin  [Q + 1] where the options of each kind begin
    """
    least = np.minimum.reduceat(value, begin[:-1])
    places = np.flatnonzero(value == np.repeat(least, np.diff(begin)))
    return least, places[np.searchsorted(places, begin[:-1])]
