"""Tables cut into shards: their look-ups, and the quantities in the equations of loads, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.engine.basis import HostRows, Of, PassBasis
from perfmodel.engine.exchange_sets import ExchangeSets, LookUpGroups, list_codes
from perfmodel.engine.schemes import PARTIAL, Exchange, sends_rows
from perfmodel.engine.tables import Array, Ints, TableShapes, row_bytes
from perfmodel.model import access, kernels
from perfmodel.model import exchanges as ex
from perfmodel.model.popularity import Gather, LookUps
from perfmodel.schema.workload import Distribution


class AllLookUps:
    """``LookUps`` of each of T tables; tables with equal ids, rows and pooling share one object.

    laws           (the different distributions of ids, each table's index among them [T])
    rows, pooling  of each table, and rows that a bag sums [T];  batch, gpus  bags of a rank, ranks [T] or ()
    """

    def __init__(
        self,
        laws: tuple[tuple[Distribution, ...], Ints],
        rows: Array,
        pooling: Array,
        batch: ArrayLike,
        gpus: ArrayLike,
    ) -> None:
        self._laws, self._law = laws
        self._columns = np.broadcast_arrays(self._law.astype(np.float64), rows, pooling, batch, gpus)
        self.skewed = np.array([not law.uniform for law in self._laws])[self._law]

    @cached_property
    def _kinds(self) -> tuple[Ints, list[LookUps]]:
        """(kind of each table [T], the ``LookUps`` of each kind): tables of a kind have equal look-ups."""
        columns = np.stack(self._columns, axis=1)
        _, firsts, of = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        shapes = zip(
            self._law[firsts].tolist(),
            *(column[firsts].tolist() for column in self._columns[1:]),
            strict=True,
        )
        return of.ravel(), [LookUps(self._laws[law], *numbers) for law, *numbers in shapes]

    def find(self, table: int) -> LookUps:
        """The look-ups of a table."""
        return self._kinds[1][int(self._kinds[0][table])]

    def group_skewed(self, table: Ints, hot: Array) -> list[tuple[tuple[Ints, ...], LookUps, float]]:
        """The entries that no formula for uniform ids serves, as groups: (positions, look-ups, hot rows).

        table  indices of tables [...];  hot  number of hot rows of each [...]
        Their ids are skewed or they have hot rows. Entries of a group have equal look-ups and equal hot rows;
        positions index an array [...].
        """
        odd = np.flatnonzero(self.skewed[table] | hot.astype(bool))
        if not odd.size:
            return []
        kinds, look_ups = self._kinds
        kind = kinds[np.ravel(table)[odd]]
        rows = np.ravel(hot)[odd]
        order = np.lexsort((rows, kind))
        kind = kind[order]
        rows = rows[order]
        odd = odd[order]
        starts = np.flatnonzero(np.append(True, np.diff([kind, rows]).any(axis=0))).tolist()
        groups = []
        for begin, end in zip(starts, [*starts[1:], odd.size], strict=True):
            equal = look_ups[int(kind[begin])]
            hot_rows = float(rows[begin])
            equal.prepare([hot_rows])
            where = np.unravel_index(odd[begin:end], np.shape(table)) if np.ndim(table) else ()
            groups.append((where, equal, hot_rows))
        return groups


@dataclass(frozen=True, eq=False)
class Training:
    """What the backward pass needs to know beyond the forward pass.

    state, copied      optimizer state of a shard, and of a replicated table: (per element, per row) [bytes]
    unique_everywhere  distinct rows that the samples of all ranks look up in each table [rows], shape [T]
    """

    state: tuple[float, float]
    copied: tuple[float, float]
    unique_everywhere: Array


@dataclass(frozen=True, eq=False)
class LoadInputs:
    """Everything that the loads of a pass depend on: the tables, the ranks, and the constants.

    batch     B, samples of one rank;  gpus  G, ranks;  domain  g, ranks of a scale-up domain
    id_bytes  of one id [bytes]: one number, or [T] where tables belong to many configurations
    training  None: forward only
    sets      TorchRec's sets of tables that exchange together; None: all tables do
    beside    number of tables in the pass, which share the L2; None: T
    all_rows  rows of all these tables together, and dtypes  their data types; None: of the T tables
    The L2 is shared by the shards of a rank. Their number depends on the whole plan; each shard is given the
    share that it has if all tables are cut into as many parts: 1 / max(1, T r c / G). Replicas of hot rows
    get 1 / T, because every rank has the hot rows of all tables.
    Limits: every table on every rank -> 1/T;  few shards -> the whole cache
    """

    tables: TableShapes
    basis: PassBasis
    batch: Of
    gpus: Of
    domain: Of
    id_bytes: Of
    training: Training | None = None
    sets: ExchangeSets | None = None
    beside: Array | None = None
    all_rows: Array | None = None
    dtypes: Array | None = None

    @cached_property
    def groups(self) -> LookUpGroups:
        """The groups of tables with launches of their own."""
        return LookUpGroups(self.sets, list_codes(self.tables.dtype if self.dtypes is None else self.dtypes))

    @cached_property
    def look_ups(self) -> AllLookUps:
        """Look-ups of all tables."""
        tables = self.tables
        bags = self.batch * tables.features
        return AllLookUps((tables.laws, tables.law), tables.rows, tables.pooling, bags, self.gpus)

    @cached_property
    def unique(self) -> Array:
        """U of each table: distinct rows for the samples of one rank."""
        return self.tables.count_unique(self.batch)

    @cached_property
    def sort_digits(self) -> Of:
        """Number of 8-bit digits of an id that the sort of the backward pass goes through.

        The rows of a rank depend on the whole plan; each rank is given an equal share of all rows.
        """
        rows = self.tables.rows.sum() if self.all_rows is None else self.all_rows
        return ex.sort_digits(rows / self.gpus)


class TableCut:
    """Some tables in one cut each: the quantities of ``model.exchanges`` as arrays of one shape [...].

    t, kind      indices of the tables;  their ``Exchange`` codes
    r, c, even   row parts, column parts;  E / even is the rows of the fullest part (``count_even_parts``)
    hot          rows of a table that every rank replicates; all others are its tail, which is cut
    B, G, g      bags of one rank: of a sample one for each feature of the table;  ranks;  ranks of a domain
    E, D         rows of a table;  elements of a row;  elements  of a part of a row
    L, hot_L     look-ups of a bag for rows of the tail, and for hot rows
    U            distinct rows that the samples of one rank look up, where rows are sent (exchange ub)
    lookups, requested  look-ups, and rows in exchange ub, that all ranks ask of the holder of a shard
    id_bytes, ids       bytes of an id, without and with the weight of its row
    v, pooled    bytes of an element of a bag, on the wire and as it is pooled;  gradient  of a replica's
    q, index     share of the bags that are sent;  bytes of the index that says which, of sparse bags
    domains      that hold row parts of one column, in exchange two_level
    beside, shards      tables of the pass;  shards that share the L2 of a holder
    plain        whether all ids are uniform and no rows are hot, so that formulas give all numbers of rows
    dp, ub, sparse, two, split  masks by exchange; split: lengths and ids go to the holders
    """

    def __init__(
        self, model: LoadInputs, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array, hot: Array
    ) -> None:
        """Arguments are arrays of one shape [...], with an entry for each table and cut: see the class."""
        self.model = model
        self.t = t
        self.kind = kind
        self.r = r
        self.c = c
        self.hot = hot
        tables = model.tables
        self.even = ex.count_even_parts(r, tables.buckets[t])
        self.B = _pick(model.batch * tables.features, t)
        self.G = _pick(model.gpus, t)
        self.g = _pick(model.domain, t)
        self.id_bytes = _pick(model.id_bytes, t)
        self.beside = _pick(len(tables) if model.beside is None else model.beside, t)
        self.E = tables.rows[t]
        self.D = tables.dim[t]
        pooling = tables.pooling[t]
        self.dp = kind == Exchange.DP
        self.ub = sends_rows(kind)
        self.sparse = kind == Exchange.SPARSE
        self.two = kind == Exchange.TWO_LEVEL
        self.split = np.isin(kind, PARTIAL)
        self.plain = all(law.uniform for law in tables.laws) and not hot.any()
        self.hot_L, self.U, distinct = self._count_rows(pooling)
        self.L = pooling - self.hot_L
        self.n = n = model.basis.numbers
        self.v = model.basis.sent_element_bytes
        self.pooled = n["pooled_element_bytes"]
        self.ids = self.id_bytes + tables.weight_bytes[t]
        self.gradient = tables.element_bytes[t] if model.sets else self.pooled
        self.elements = ex.count_part_elements(self.D, c)
        self.q = np.ones(t.shape)
        if self.sparse.any():
            self.q = np.where(self.sparse, ex.filled_share(r, distinct, self.L / pooling), 1.0)
        self.index = np.where(self.sparse, n["sparse_bag_index_bytes"], 0.0)
        self.domains = r / self.g
        self.lookups = np.asanyarray(ex.shard_lookups(self.G, self.B, self.L, self.even))
        self.requested: Array = np.zeros(t.shape)
        if self.ub.any():
            self.requested = np.asanyarray(ex.requested_rows(self.G, self.U, self.even))
        self.shards = np.maximum(self.beside * np.where(self.dp, self.G, r * c) / self.G, 1)

    def _count_rows(self, pooling: Array) -> tuple[Array, Array, Array]:
        """(hot_L; U, 0 but in exchange ub; distinct rows of a bag), each [...]. pooling  look-ups of a bag"""
        hot_L = np.zeros(self.t.shape)
        U = np.zeros(self.t.shape)
        distinct = np.array(pooling)
        if self.ub.any():
            U = np.array(self.model.unique[self.t])
        for where, look_ups, rows in self.groups:
            hot_L[where] = look_ups.hot_share(rows) * look_ups.pooling
            if self.ub[where].any():
                U[where] = look_ups.unique(rows)
            if self.sparse[where].any():
                distinct[where] = look_ups.distinct_in_bag(rows)
        return hot_L, U, distinct

    @cached_property
    def groups(self) -> list[tuple[tuple[NDArray[np.int64], ...], LookUps, float]]:
        """``AllLookUps.group_skewed`` of these tables: skewed look-ups, or hot rows that are replicated."""
        return [] if self.plain else self.model.look_ups.group_skewed(self.t, self.hot)

    @cached_property
    def row(self) -> Array:
        """Bytes of a row of a shard."""
        return self.count_row_bytes(self.elements)

    def count_row_bytes(self, elements: Array) -> Array:
        """Bytes of a row of so many elements."""
        training = self.model.training is not None
        return row_bytes(self.model.tables.dtype[self.t], elements, training=training)

    @cached_property
    def gathered(self) -> kernels.GatherTraffic:
        """DRAM and L2 bytes of a gather: of a shard for all ranks' samples, or of a replica for one rank's.

        It writes bags or partial bags; in exchange ub, the requested rows; unpooled, a row for each look-up.
        """
        bags = np.where(self.dp, self.B, self.G * self.B * self.q)
        lookups = np.where(self.dp, self.B * self.L, self.lookups)
        bag = self.elements * self.pooled + self.n["offset_bytes"]
        gather = np.where(self.dp, Gather.COPY, Gather.SHARD)
        if self.ub.any():
            bags = np.where(self.ub, self.requested, bags)
            lookups = np.where(self.ub, self.requested, lookups)
            bag = np.where(self.ub, self.row, bag)
            gather = np.where(self.ub, Gather.REQUESTS, gather)
        if self.model.basis.unpooled:
            bags = lookups
            bag = self.elements * self.pooled
        return self.count_traffic(self.E / self.even, lookups, self.row, bags, bag, self.shards, gather)

    def count_host_reads(self, host: HostRows, in_flight: Array) -> tuple[Array, Array]:
        """(rows that the holder of a shard reads over its host's link, rows that it looks up in its cache).

        in_flight  rows on their way at any moment: a second read of such a row waits for the first, so they
                   act as a small cache where there is no other
        """
        if not host.cached:  # each look-up reads its row over the link, unless it is on its way already
            lookups = np.where(self.ub, self.requested, self.lookups)
            gather = np.where(self.ub, Gather.REQUESTS, Gather.SHARD)
            return lookups * self._count_misses(self.E / self.even, lookups, in_flight, gather), 0 * lookups
        distinct = np.array(access.count_unique_uniform(self.E, self.G * self.B * self.L))
        missing = distinct * (1 - host.cached)
        for where, look_ups, _ in self.groups:
            distinct[where], missing[where] = look_ups.cached(host.cached)
        return missing / self.even, distinct / self.even

    def count_updates(self, training: Training) -> tuple[Array, Array, Array]:
        """(look-ups whose gradients a holder reads, rows that it updates, bytes per updated row), each [...].

        A replica's gradient was reduced as a dense array, so that all of its rows are updated.
        """
        U = np.array(training.unique_everywhere[self.t])
        for where, look_ups, hot in self.groups:
            U[where] = look_ups.unique(hot, everywhere=True)
        held = np.where(self.ub, self.requested, self.lookups)
        read = np.where(self.dp, self.B * self.L, held)
        touched = np.where(self.dp, self.E, U / self.even)
        pairs = zip(training.copied, training.state, strict=True)
        state = (np.where(self.dp, copied, held) for copied, held in pairs)
        row = ex.update_row_bytes(self.elements, self.row / self.elements, *state)
        return read, touched, row + np.where(self.dp, 2 * self.D * self.gradient, 0)  # gradient of a replica

    def sort_bytes(self, lookups: Array, *, backward: bool = False) -> Array:
        """Bytes that sorting the ids of so many look-ups moves [...].

        backward  whether it is the backward pass, which sorts only ``sort_digits``; else all bytes of an id
        """
        digits = _pick(self.model.sort_digits, self.t) if backward else self.id_bytes
        place = self.n["sort_place_bytes"]
        size: Array = ex.sort_bytes(lookups, digits, self.id_bytes, place)
        return size

    def count_traffic(
        self,
        E: Array,
        n: Array,
        row: Array,
        bags: Array,
        bag: Array,
        shards: Array | float,
        gather: NDArray[np.int64] | Gather | None = None,
    ) -> kernels.GatherTraffic:
        """DRAM and L2 bytes of a gather, or of another kernel that reads rows and writes them [...].

        E          rows that it reads from;  n  look-ups;  row  bytes of a row
        bags, bag  number of bags that it writes, and bytes of each;  shards  number that share the L2
        gather     which rows a gather reads (``Gather``); None: another kernel, which reads all E rows,
                   each as often as others
        """
        value = self.n
        cache = value["l2_bytes"] * value["l2_usable_fraction"] / shards
        ids = np.where(np.asarray(gather) == Gather.REQUESTS, self.id_bytes, self.ids)  # without weights
        miss = self._count_misses(E, n, cache / row, gather)
        bag = bag if gather is None else bag * value["bag_factor"]  # a gather's writes cost more than reads
        least = value["row_access_bytes"]
        return kernels.count_traffic(miss, n, row, least, value["sector_bytes"], ids, bags, bag)

    def _count_misses(
        self, E: Array, n: Array, X: Array, gather: NDArray[np.int64] | Gather | None
    ) -> NDArray[np.float64]:
        """Share of n look-ups in E rows that a cache of X rows misses. gather  as in ``count_traffic``"""
        draws = np.maximum(n, _LEAST)
        miss = np.array(kernels.compute_uniform_misses(E, draws, 1.0, X))
        if gather is None:
            return kernels.compute_misses_of_all(miss, E, draws)
        kind = np.broadcast_to(np.asarray(gather, dtype=np.int64), miss.shape)
        for where, look_ups, hot in self.groups:
            for code in np.unique(kind[where]):
                some = tuple(place[kind[where] == code] for place in where)
                # Popularity is of the whole table: the caches of all its row parts count together.
                parts = self.even[some] if code in (Gather.SHARD, Gather.REQUESTS) else 1
                miss[some] = look_ups.miss(Gather(code), hot, parts * X[some])
        return miss


def _pick(value: ArrayLike, t: NDArray[np.int64]) -> Array:
    """The values of tables ``t``; a single value that holds for all tables is returned as it is."""
    array = np.asarray(value, dtype=np.float64)
    return array[t] if array.ndim else array


_LEAST = 1e-9  # look-ups of a table at least, so that no share is of none
