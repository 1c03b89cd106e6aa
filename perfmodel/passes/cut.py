"""Tables cut in some ways: the quantities that the equations of loads have, as arrays of one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import exchanges as ex
from perfmodel.model import kernels
from perfmodel.model.look_ups import Gather
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import PARTIAL, Exchange
from perfmodel.passes.skew import AllLookUps
from perfmodel.passes.tables import PlanTables

Array = NDArray[np.float64]
Part = tuple[int, float, float, float, float]
"""A shard of a cache: look-up kind of its table, row parts, share of its rows that the cache is sized for;
ranks of ``ub``, each of which asks for a row once, else 0; rows of its table on their way at once."""


@dataclass(frozen=True)
class Training:
    """What the backward pass needs.

    per_element, per_row  state of the optimizer [bytes];  copied  the same two of copies
    unique_everywhere     U_G, distinct rows that all ranks' samples look up in each table [rows], shape [T]
    """

    per_element: float
    per_row: float
    copied: tuple[float, float]
    unique_everywhere: Array


@dataclass(frozen=True)
class LoadInputs:
    """Tables on G ranks; ``constant`` and ``machine_value`` give what the equations of loads need.

    batch     B, samples of one rank;  gpus  G;  domain  g;  id_bytes  of one id [bytes]
    payload_bytes  v, bytes of a pooled element in an exchange
    The L2 is shared by the shards of a rank. How many those are depends on the whole plan; each is given the
    share that it has where all tables are cut into as many parts: 1 / max(1, T r c / G); copies of hot rows
    1 / T, for every rank has those of all tables.
    Limits: every table on every rank -> 1/T;  few shards -> the whole cache
    """

    tables: PlanTables
    batch: float
    gpus: int
    domain: int
    constant: Callable[[str], float]
    machine_value: Callable[[str], float]
    id_bytes: float
    payload_bytes: float
    unique: Array  # U of each table for the samples of one rank
    training: Training | None = None
    sets: ExchangeSets | None = None  # of TorchRec; None: all tables exchange together
    below: Below | None = None  # tiers that tables may be in beside the HBM

    @cached_property
    def look_ups(self) -> AllLookUps:
        """Of all tables."""
        tables = self.tables
        return AllLookUps(tables.ids, tables.rows, tables.pooling, self.batch, float(self.gpus))

    @cached_property
    def sort_digits(self) -> float:
        """Of 8 bits, that the rows of all tables have together: FBGEMM's backward sorts no more of an id."""
        return float(np.ceil(np.log2(max(float(self.tables.rows.sum()), 2.0)) / 8))

    @cached_property
    def pools(self) -> dict[tuple[tuple[Part, int], ...], dict[Part, tuple[float, float]]]:
        """Misses of caches that were priced before, and reads for them."""
        return {}


class TableCut:
    """Tables cut in some ways: the quantities of ``model.exchanges`` as arrays of one shape."""

    def __init__(
        self, model: LoadInputs, t: NDArray[np.int64], kind: NDArray[Any], r: Array, c: Array, hot: Array
    ) -> None:
        self.model, self.t, self.kind, self.r, self.c, self.hot = model, t, kind, r, c, hot
        self.B, self.G, self.g = model.batch, float(model.gpus), float(model.domain)
        tables = model.tables
        self.E, self.D, self.w = tables.rows[t], tables.dim[t], tables.element_bytes[t]
        self.groups = model.look_ups.groups(t, hot)
        self.hot_L = np.zeros(t.shape)
        self.distinct, self.U = np.array(tables.pooling[t]), np.array(model.unique[t])
        for where, asked, h in self.groups:
            self.hot_L[where] = asked.hot_share(h) * asked.pooling
            self.U[where], self.distinct[where] = asked.unique(h), asked.distinct_in_bag(h)
        self.L = tables.pooling[t] - self.hot_L  # look-ups of a bag that ask for the tail
        self.v, self.pooled = model.payload_bytes, model.constant("pooled_element_bytes")
        self.ids = model.id_bytes + tables.weight_bytes[t]  # of an id with the weight of its row
        self.gradient = self.w if model.sets else self.pooled  # of an element of a copy
        self.split = np.isin(kind, PARTIAL)  # lengths and ids go to the holders
        self.dp, self.ub = kind == Exchange.DP, kind == Exchange.UB
        self.sparse, self.two = kind == Exchange.SPARSE, kind == Exchange.TWO_LEVEL
        self.elements = ex.part_elements(self.D, c)
        self.q = np.where(self.sparse, ex.filled_share(r, self.distinct, self.L / tables.pooling[t]), 1.0)
        self.index = np.where(self.sparse, model.constant("sparse_bag_index_bytes"), 0.0)
        self.lookups = ex.shard_lookups(self.G, self.B, self.L, r)
        parts = np.where(self.dp, self.G, r * c)
        self.shards = np.maximum(len(tables) * parts / self.G, 1)  # that share the L2 of their holder
        self.copies = len(tables)  # of hot rows: every rank has those of all tables
        self.domains = np.maximum(r / self.g, 1)  # k, domains that hold row parts of one column

    def updated(self, training: Training) -> tuple[Array, Array, Array]:
        """Look-ups whose gradients a holder reads, rows that it updates, and bytes of the update of one."""
        U = np.array(training.unique_everywhere[self.t])
        for where, asked, h in self.groups:
            U[where] = asked.unique(h, everywhere=True)
        held = np.where(self.ub, ex.requested_rows(self.G, self.U, self.r), self.lookups)
        read = np.where(self.dp, self.B * self.L, held)
        touched = np.where(self.dp, self.E, ex.touched_rows(U, self.r))  # a copy's gradient has all rows
        own = zip(training.copied, (training.per_element, training.per_row), strict=True)
        state = (np.where(self.dp, copied, held) for copied, held in own)
        row = ex.update_row_bytes(self.elements, self.w, *state)
        return read, touched, row + np.where(self.dp, 2 * self.D * self.gradient, 0)  # written and read

    def sorted(self, lookups: Array, digits: float) -> Array:
        """Bytes that sorting the ids of so many look-ups moves."""
        plain, place = self.model.id_bytes, self.model.constant("sort_place_bytes")
        return np.asarray(ex.sort_bytes(lookups, digits, plain, place))

    def traffic(
        self,
        E: Array,
        n: Array,
        elements: Array,
        bags: Array,
        bag: Array,
        shards: Array | float,
        w: Array | float,
        gather: NDArray[np.int64] | Gather | None = None,
    ) -> kernels.GatherTraffic:
        """DRAM and L2 bytes of gathering n of E rows of w-byte elements; ``shards`` share the cache.

        gather  ``Gather`` that it is, of each; None: all rows are asked for, and alike, whatever the ids
        """
        value, constant = self.model.machine_value, self.model.constant
        row = elements * w
        cache = value("l2_bytes") * constant("l2_usable_fraction") / shards
        ids = np.where(np.asarray(gather) == Gather.REQUESTS, self.model.id_bytes, self.ids)
        miss = np.array(kernels.uniform_misses(E, np.maximum(n, _LEAST), row, cache))
        if gather is None:
            miss = kernels.misses_of_all(miss, E, np.maximum(n, _LEAST))
        else:
            bag = bag * value("bag_factor")
            kind = np.broadcast_to(np.asarray(gather), miss.shape)
            for where, asked, h in self.groups:
                for each in np.unique(kind[where]):
                    at = tuple(place[kind[where] == each] for place in where)
                    parts = self.r[at] if each in (Gather.SHARD, Gather.REQUESTS) else 1
                    miss[at] = asked.miss(Gather(each), h, parts * (cache / row)[at])
        least, sector = value("row_access_bytes"), value("sector_bytes")
        return kernels.traffic_of_misses(miss, n, row, least, sector, ids, bags, bag)


_LEAST = 1e-9  # look-ups
