"""What a plan file moves and holds, counted id by id: a referee of the planner that uses none of its code.

Ids are drawn for every bag of every rank and sent where the file says that their rows are. Rows of a table
are dealt to its row parts by chance, anew in every draw, so what is counted are means over draws: no row part
is fuller than another. All sizes are bytes of one rank. What is counted of a table, by its exchange:

    rb, rs, sparse, two_level    lengths and ids to each row part and column part; bags, or their parts, back
    ub                           distinct ids to the holders, rows back
    dp                           nothing
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

ID, LENGTH, POOLED, POSITION = 8, 8, 4, 4
"""Bytes of an id, of a length, of a pooled element (fp32), and of the position of a bag that is not empty."""
FEATURE = 4
"""Bytes of the feature that HugeCTR sends with a requested id."""
SORTED = 8 + 8 * 2 * (8 + 4)
"""Bytes that sorting an id with its place moves: read to count, read and written for each of 8 digits."""

LINE = 16
"""Bytes of the load that FBGEMM's forward kernels of narrow elements read rows by."""

DIGIT = 256
"""Values of a digit: the backward sorts the digits that a rank's equal share of all rows has."""


@dataclass(frozen=True)
class CountedTable:
    """rows, dim, bytes of an element, look-ups of a bag; zipf's exponent, 0: uniform; features sharing it."""

    rows: int
    dim: int
    width: int
    pooling: int
    skew: float
    features: int = 1

    def popularity(self) -> Array:
        """Of each row the chance of a look-up, the most popular first."""
        weight = np.arange(1, self.rows + 1) ** -self.skew
        return np.asarray(weight / weight.sum())

    def drawn(self, random: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Ids, the most popular row first."""
        if not self.skew:
            return random.integers(0, self.rows, shape)
        below = np.cumsum(self.popularity())
        return np.minimum(np.searchsorted(below, random.random(shape)), self.rows - 1)


@dataclass
class Count:
    """Bytes that each rank sends and receives in each exchange, moves in a kernel, and holds, [G] each."""

    gpus: int
    sent: dict[str, Array] = field(init=False)
    received: dict[str, Array] = field(init=False)
    moved: dict[str, Array] = field(init=False)
    rows: Array = field(init=False)
    optimizer: Array = field(init=False)

    def __post_init__(self) -> None:
        self.sent, self.received, self.moved = (defaultdict(lambda: np.zeros(self.gpus)) for _ in range(3))
        self.rows, self.optimizer = np.zeros(self.gpus), np.zeros(self.gpus)

    def add_share(self, other: Count, draws: int) -> None:
        """One of so many draws, of whose bytes this is the mean."""
        for name in ("sent", "received", "moved"):
            for step, values in getattr(other, name).items():
                getattr(self, name)[step] += values / draws

    def busiest(self, step: str) -> Array:
        """What a rank has of a step: of an exchange the larger of both sides, [G]."""
        return self.moved[step] if step in self.moved else np.maximum(self.sent[step], self.received[step])

    @property
    def buffers(self) -> Array:
        """Send and receive buffer of the largest exchange of each rank, [G]."""
        return np.max([np.zeros(self.gpus), *(self.sent[s] + self.received[s] for s in self.sent)], axis=0)


@dataclass(frozen=True)
class Referee:
    """Counts plans of some tables.

    batch  samples of a rank;  domain  GPUs of an NVLink domain;  payload  bytes of a sent element of a bag
    per_element, per_row  state of the optimizer [bytes];  training  whether rows are updated
    """

    tables: list[CountedTable]
    batch: int
    domain: int
    payload: int
    per_element: int
    per_row: int
    training: bool

    def sorted_bytes(self, gpus: int) -> int:
        """Of an id in the backward on ``gpus`` ranks: as ``SORTED``, with fewer digits."""
        rows, digits = sum(table.rows for table in self.tables) // gpus, 1
        while DIGIT**digits <= rows:
            digits += 1
        return ID + digits * 2 * (ID + 4)

    def count(self, document: dict[str, Any], random: np.random.Generator, ids: int) -> Count:
        """Means of so many draws that each holder got ``ids`` of them."""
        G = int(document["gpus"])
        total = Count(G)
        for table, entry in zip(self.tables, document["placements"], strict=True):
            self._held(total, table, entry)
            draws = -(-ids * entry["row_parts"] // (G * self.batch * table.features * table.pooling))
            for _ in range(draws):
                draw = Count(G)
                self._moved(draw, table, entry, random)
                total.add_share(draw, draws)
        return total

    def _stored(self, row_bytes: int, width: int) -> int:
        """A row in memory: a forward pass fills up rows of narrow elements to whole lines of a load."""
        return row_bytes if self.training or width >= POOLED else -(-row_bytes // LINE) * LINE

    def _held(self, count: Count, table: CountedTable, entry: dict[str, Any]) -> None:
        """Rows and optimizer state of every shard and copy."""

        def hold(ranks: Any, rows: int, columns: int) -> None:
            count.rows[ranks] += rows * self._stored(columns * table.width, table.width)
            count.optimizer[ranks] += rows * (columns * self.per_element + self.per_row)

        hot, r, c = entry["hot_rows"], entry["row_parts"], entry["col_parts"]
        copied = table.rows if entry["exchange"] == "dp" else hot
        if copied:
            hold(np.arange(count.gpus), copied, table.dim)
        if entry["exchange"] != "dp":
            hold(np.array(entry["ranks"]), -(-(table.rows - hot) // r), table.dim // c)

    def _moved(
        self, count: Count, table: CountedTable, entry: dict[str, Any], random: np.random.Generator
    ) -> None:
        kind, hot = entry["exchange"], entry["hot_rows"]
        bags = self.batch * table.features  # of each sample one for each feature
        ids = table.drawn(random, (count.gpus, bags, table.pooling))
        if kind == "dp":
            self._copied(count, table, table.rows, np.full(count.gpus, ids[0].size))
            return
        r, c = entry["row_parts"], entry["col_parts"]
        holders = np.array(entry["ranks"]).reshape(r, c)
        part_of = np.full(table.rows, -1)  # of hot rows: every rank has them
        part_of[hot:] = random.permutation(table.rows - hot) % r
        row_part = part_of[ids]
        if hot:
            self._copied(count, table, hot, np.sum(row_part < 0, axis=(1, 2)))
        shard = _Shards(self, count, table, holders, ids, row_part)
        if kind == "ub":
            shard.unique_rows()
        else:
            shard.routed()
            getattr(shard, kind)()
        if hot:
            shard.summed_with_hot(alone=kind == "ub" or r == 1)

    def _copied(self, count: Count, table: CountedTable, rows: int, asked: Ints) -> None:
        """The update of copies: look-ups sorted, the gradient of all rows added up over ranks."""
        if self.training:
            count.moved["sort_lookups"] += asked * self.sorted_bytes(count.gpus)
            if count.gpus > 1:
                size = float(rows * table.dim * POOLED)
                count.sent["all_reduce_copies"] += size  # in place


@dataclass
class _Shards:
    """One table's ids [G, B, L] and the row part of each, -1 of a hot one; holders [r, c]."""

    of: Referee
    count: Count
    table: CountedTable
    holders: Ints
    ids: Ints
    part: Ints

    def __post_init__(self) -> None:
        self.G, self.B, _ = self.ids.shape
        self.r, self.c = self.holders.shape
        self.columns = self.table.dim // self.c

    def routed(self) -> None:
        """Lengths of all bags and the ids of the tail, to every column part of the row part."""
        count, tail = self.count, self.part >= 0
        count.sent["all_to_all_lengths"] += self.r * self.c * self.B * LENGTH
        mine = np.sum(tail, axis=(1, 2)) * ID
        count.sent["all_to_all_ids"] += self.c * mine
        hot = np.sum(~tail, axis=(1, 2)) * ID
        count.moved["bucketize"] += self.r * self.c * self.B * LENGTH + self.c * mine + hot
        for i in range(self.r):
            row_ids = self.ids[self.part == i]
            for holder in self.holders[i]:
                count.received["all_to_all_lengths"][holder] += self.G * self.B * LENGTH
                count.received["all_to_all_ids"][holder] += row_ids.size * ID
                if self.of.training:
                    count.moved["sort_lookups"][holder] += row_ids.size * self.of.sorted_bytes(self.G)

    def _back(self, step: str, sent: Array, received: Array, backward: str) -> None:
        """An exchange, and that of the gradients: the other way."""
        self.count.sent[step] += sent
        self.count.received[step] += received
        if self.of.training:
            self.count.sent[backward] += received
            self.count.received[backward] += sent

    def _summed(self, read: Any) -> None:
        """Parts of bags that every rank reads to add them up [bytes], and the bags that it writes."""
        self.count.moved["local_sum"] += read + float(self.B * self.table.dim * POOLED)

    def summed_with_hot(self, *, alone: bool) -> None:
        """The part of each bag from hot rows is one more to add up; alone: to a bag that is whole."""
        self.count.moved["local_sum"] += float(self.B * self.table.dim * POOLED) * (3 if alone else 1)

    def rb(self) -> None:
        """Every holder sends a part of every bag."""
        sent, v = np.zeros(self.G), self.of.payload
        sent[self.holders] += self.G * self.B * self.columns * v
        received = np.full(self.G, float(self.r * self.B * self.table.dim * v))
        self._back("all_to_all_bags", sent, received, "all_to_all_gradients")
        if self.r > 1:
            self._summed(float(self.r * self.B * self.table.dim * POOLED))

    def sparse(self) -> None:
        """Every holder sends those parts of bags that have a row of its own."""
        sent, received = np.zeros(self.G), np.zeros(self.G)
        bag_bytes, read = self.columns * self.of.payload + POSITION, np.zeros(self.G)
        for i in range(self.r):
            filled = np.sum((self.part == i).any(axis=2), axis=1)  # bags of each rank
            sent[self.holders[i]] += filled.sum() * bag_bytes
            received += filled * self.c * bag_bytes
            read += filled * self.c * (self.columns * POOLED + POSITION)
        self._back("all_to_all_sparse_bags", sent, received, "all_to_all_sparse_gradients")
        if self.r > 1:
            self._summed(read)

    def rs(self) -> None:
        """A reduce-scatter of all bags."""
        sent = np.full(self.G, float(self.G * self.B * self.table.dim * self.of.payload))
        self._reduced("reduce_scatter_bags", "all_gather_gradients", sent, self.G)

    def _reduced(self, step: str, backward: str, sent: Array, ranks: int) -> None:
        """What a reduce-scatter sends; the gather of gradients has the same buffers, changed round."""
        for name in (step, backward) if self.of.training else (step,):
            self.count.sent[name] += sent
            self.count.received[name] += sent / ranks

    def two_level(self) -> None:
        """Bags are added up in each domain, then over the domains of a column part."""
        g, v = self.of.domain, self.of.payload
        domains, parts = self.G // g, self.r // g
        inside = np.zeros(self.G)
        inside[self.holders] += self.G * self.B * self.columns * v
        if g > 1:
            self._reduced("reduce_scatter_inside", "all_gather_inside", inside, g)
        across = inside / g  # of its domain's sums each rank has that part
        if parts == domains and domains > 1:
            self._reduced("reduce_scatter_across", "all_gather_across", across, domains)
        elif domains > 1:
            received = np.full(self.G, float(parts * self.B * self.table.dim * v))
            self._back("all_to_all_across", across, received, "all_to_all_gradients_across")
            if parts > 1:
                self._summed(float(parts * self.B * self.table.dim * POOLED))

    def unique_rows(self) -> None:
        """Every rank asks for each of its rows once, in every column part; rows go as they are stored."""
        count, table, v = self.count, self.table, self.of.payload
        row = self.of._stored(self.columns * table.width, table.width)
        for rank in range(self.G):
            mine, places = np.unique(self.ids[rank], return_index=True)
            row_part = self.part[rank].reshape(-1)[places]
            mine, row_part = mine[row_part >= 0], row_part[row_part >= 0]
            count.moved["deduplicate"][rank] += self.ids[rank].size * SORTED
            count.sent["all_to_all_requests"][rank] += self.c * mine.size * (ID + FEATURE)
            count.received["all_to_all_rows"][rank] += mine.size * self.c * row
            if self.of.training:
                count.sent["all_to_all_row_gradients"][rank] += mine.size * table.dim * v
            for i in range(self.r):
                requests = int(np.sum(row_part == i))
                for holder in self.holders[i]:
                    count.received["all_to_all_requests"][holder] += requests * (ID + FEATURE)
                    count.moved["deduplicate_requests"][holder] += requests * SORTED
                    count.sent["all_to_all_rows"][holder] += requests * row
                    if self.of.training:
                        count.received["all_to_all_row_gradients"][holder] += requests * self.columns * v
                        count.moved["sort_lookups"][holder] += requests * self.of.sorted_bytes(self.G)
