"""What a plan file with tiers reads over the link and holds, counted id by id, by none of the planner's code.

Ids are drawn for every bag of every rank; a table's rows are dealt to its row parts once, by chance. Each
rank has one cache for all its cached tables of one data type, as FBGEMM has, which sees batch after batch.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.id_by_id import CountedTable
from oracles.set_cache import WAYS, SetCache

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

ID, SECTOR, PACKET, HEADER, SHORTEST = 8, 32, 128, 18, 495
"""Bytes of an id; of a sector; of the longest read of a link; of its header; of the shortest row there."""
PER_SLOT, PER_ROW = {"lru": 16, "lfu": 8}, {"lru": 4, "lfu": 12}
"""Bytes in HBM that FBGEMM has beside the rows of a cache: of each slot, of each row of the cached tables."""
LONG_AGO = 1e10  # batches, in which the counts of an LFU cache have come to say which rows are popular: whole
# numbers by chance, so that few batches more change the order of no two rows


def sectors(row: float) -> float:
    """Bytes that are read for a row: whole sectors."""
    return float(SECTOR * -(-row // SECTOR))


def wire(row: float) -> float:
    """Bytes on the link for a row."""
    return max(sectors(row) + float(HEADER * -(-sectors(row) // PACKET)), float(SHORTEST)) if row else 0.0


@dataclass
class TierCount:
    """Bytes of each rank, [G] each: of the mean batch, and held.

    filled  of its fullest cache: rows that a batch asks for, over the rows that there is room for [-]
    """

    gpus: int
    filled: Array = field(init=False)
    of: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        names = "ids fetched fetched_wire evicted in_place in_place_wire updated updated_wire hbm host"
        self.of = {name: np.zeros(self.gpus) for name in names.split()}
        self.filled = np.zeros(self.gpus)

    def rows(self, name: str, rank: int, rows: float, size: float) -> None:
        """So many rows over the link."""
        self.of[name][rank] += rows * sectors(size)
        if f"{name}_wire" in self.of:
            self.of[f"{name}_wire"][rank] += rows * wire(size)


@dataclass(frozen=True)
class Shard:
    """Of a table on one rank: which part of its rows, how many columns, and where it is."""

    table: int
    part: int
    row_bytes: int
    columns: int
    memory: str
    by_rank: bool  # each rank asks for each of its rows once


@dataclass
class TierReferee:
    """Counts plans of some tables; ``batch``  samples of a rank.

    in_flight_bytes  of rows on their way over the link at once: a second read of one of them waits for it
    per_element, per_row  state of the optimizer [bytes];  training  whether rows are updated
    """

    tables: list[CountedTable]
    batch: int
    in_flight_bytes: float
    per_element: int
    per_row: int
    training: bool

    def count(
        self, document: dict[str, Any], random: np.random.Generator, batches: int, warm: int, read: int
    ) -> TierCount:
        """Mean of ``batches`` batches after ``warm`` others; ``read`` of them row by row in place."""
        G = int(document["gpus"])
        found, entries = TierCount(G), document["placements"]
        ranks = [self._shards(entries, rank) for rank in range(G)]
        part_of = [
            random.permutation(table.rows) % entry["row_parts"]
            for table, entry in zip(self.tables, entries, strict=True)
        ]
        for rank, shards in enumerate(ranks):
            self._held(found, rank, shards, entries)
        caches = [self._caches(shards, entries, part_of, random) for shards in ranks]
        for now in range(warm + batches):
            drawn = [t.drawn(random, (G, self.batch * t.pooling)) for t in self.tables]
            for rank, shards in enumerate(ranks):
                mine = [ids_of(shard, drawn[shard.table], part_of[shard.table]) for shard in shards]
                seen = TierCount(G)
                left = self._cached(seen, rank, shards, mine, caches[rank])
                if now < warm:
                    continue
                self._updated(seen, rank, shards, mine, left)
                for name, values in seen.of.items():
                    found.of[name] += values / batches
                found.filled = np.maximum(found.filled, seen.filled)
                if now - warm < read:
                    self._in_place(found, rank, shards, mine, left, read)
        return found

    def _shards(self, entries: list[dict[str, Any]], rank: int) -> list[Shard]:
        found = []
        for t, (table, entry) in enumerate(zip(self.tables, entries, strict=True)):
            for at, holder in enumerate(entry["ranks"]):
                if holder == rank:
                    columns, part = table.dim // entry["col_parts"], at // entry["col_parts"]
                    memory, by_rank = entry.get("memory", "hbm"), entry["exchange"] == "ub"
                    found.append(Shard(t, part, columns * table.width, columns, memory, by_rank))
        return found

    def _held(self, found: TierCount, rank: int, shards: list[Shard], entries: list[dict[str, Any]]) -> None:
        """Rows and optimizer state where they are, caches in HBM."""
        for shard in shards:
            rows = -(-self.tables[shard.table].rows // entries[shard.table]["row_parts"])
            size = rows * (shard.row_bytes + shard.columns * self.per_element + self.per_row)
            found.of["hbm" if shard.memory == "hbm" else "host"][rank] += size
        for width, cached in by_width(self.tables, shards).items():
            policy = policy_of(cached)
            slots = WAYS * sum(self._sets(shard, entries) for shard in cached)
            widest = max(t.dim for t in self.tables if t.width == width) * width
            rows = sum(-(-self.tables[s.table].rows // entries[s.table]["row_parts"]) for s in cached)
            found.of["hbm"][rank] += slots * (widest + PER_SLOT[policy]) + rows * PER_ROW[policy]

    def _sets(self, shard: Shard, entries: list[dict[str, Any]]) -> int:
        """Of a cache for this shard alone; one for several shards has no more than all of theirs."""
        return int(np.ceil(self._share(shard, entries) / WAYS - 1e-9))

    def _share(self, shard: Shard, entries: list[dict[str, Any]]) -> float:
        """Rows that the cache is sized for."""
        share = float(shard.memory.split(":")[1].split("%")[0]) / 100
        return share * self.tables[shard.table].rows / float(entries[shard.table]["row_parts"])

    def _caches(
        self,
        shards: list[Shard],
        entries: list[dict[str, Any]],
        part_of: list[Ints],
        random: np.random.Generator,
    ) -> dict[int, SetCache]:
        """Of a rank, by bytes of an element; rows of all tables are numbered through."""
        found = {}
        for width, cached in by_width(self.tables, shards).items():
            sets = int(np.ceil(sum(self._share(shard, entries) for shard in cached) / WAYS - 1e-9))
            counts = np.concatenate([t.popularity() * self.batch * t.pooling for t in self.tables])
            before = random.poisson(LONG_AGO * counts).astype(np.float64)
            cache = SetCache(counts.size, sets, random, policy_of(cached), before)
            here = [np.flatnonzero(part_of[s.table] == s.part) + self._first(s.table) for s in cached]
            cache.batch(random.permutation(np.concatenate(here)))
            found[width] = cache
        return found

    def _first(self, table: int) -> int:
        return sum(each.rows for each in self.tables[:table])

    def _cached(
        self,
        found: TierCount,
        rank: int,
        shards: list[Shard],
        mine: list[Ints],
        caches: dict[int, SetCache],
    ) -> dict[int, Ints]:
        """Rows looked for, brought in, and sent back; by shard those that an LFU cache has no place for.

        FBGEMM's kernels read and update such rows in host memory. Of LRU caches, which bring in all rows but
        those beyond 32 of a set, every missed row counts as brought in.
        """
        left = {}
        for width, cache in caches.items():
            at = [i for i, s in enumerate(shards) if s in by_width(self.tables, shards)[width]]
            seen = cache.batch(np.concatenate([mine[i] + self._first(shards[i].table) for i in at]))
            found.of["ids"][rank] += seen.asked.size * ID
            found.filled[rank] = max(found.filled[rank], seen.asked.size / cache.held.size)
            taken = seen.inserted if cache.policy == "lfu" else seen.missed
            unplaced = np.setdiff1d(seen.missed, taken)
            for i in at:
                first, size = self._first(shards[i].table), shards[i].row_bytes
                last = first + self.tables[shards[i].table].rows
                here = [int(np.sum((x >= first) & (x < last))) for x in (taken, seen.evicted)]
                left[i] = unplaced[(unplaced >= first) & (unplaced < last)] - first
                found.rows("fetched", rank, here[0], size)
                found.rows("evicted", rank, here[1], size)
        return left

    def _updated(
        self, found: TierCount, rank: int, shards: list[Shard], mine: list[Ints], left: dict[int, Ints]
    ) -> None:
        """The state of every row that was looked up, and the row itself where it is read in place."""
        if not self.training:
            return
        for i, (shard, ids) in enumerate(zip(shards, mine, strict=True)):
            if shard.memory != "hbm":
                rows, state = np.unique(ids).size, shard.columns * self.per_element
                own = rows if shard.memory == "uvm" else left[i].size
                for count, size in ((own, shard.row_bytes), (rows, state), (rows, self.per_row)):
                    found.rows("updated", rank, count, size)

    def _in_place(
        self,
        found: TierCount,
        rank: int,
        shards: list[Shard],
        mine: list[Ints],
        left: dict[int, Ints],
        read: int,
    ) -> None:
        """Look-ups of rows in host memory, or that a cache has no place for."""
        for i, (shard, ids) in enumerate(zip(shards, mine, strict=True)):
            if shard.memory != "hbm":
                there = ids if shard.memory == "uvm" else ids[np.isin(ids, left[i])]
                crossed = crossing(there, self.in_flight_bytes / sectors(shard.row_bytes))
                found.rows("in_place", rank, crossed / read, shard.row_bytes)


def by_width(tables: list[CountedTable], shards: list[Shard]) -> dict[int, list[Shard]]:
    """The cached shards of a rank, by bytes of an element."""
    found: dict[int, list[Shard]] = {}
    for shard in shards:
        if shard.memory.startswith("uvm-caching"):
            found.setdefault(tables[shard.table].width, []).append(shard)
    return found


def policy_of(shards: list[Shard]) -> str:
    """Of a cache."""
    return "lfu" if ",lfu" in shards[0].memory else "lru"


def ids_of(shard: Shard, drawn: Ints, part_of: Ints) -> Ints:
    """Look-ups [n] of a shard among those of all ranks [G, B L]: of ``ub`` each rank's different rows."""
    asked = [np.unique(ids) if shard.by_rank else ids for ids in drawn]
    ids = np.concatenate(asked)
    return ids[part_of[ids] == shard.part]


def crossing(ids: Ints, room: float) -> int:
    """Reads that cross the link: all but those of one of the ``room`` rows that were read last."""
    under_way: OrderedDict[int, None] = OrderedDict()
    crossed = 0
    for row in ids.tolist():
        if row in under_way:
            under_way.move_to_end(row)
            continue
        crossed += 1
        under_way[row] = None
        if len(under_way) > room:
            under_way.popitem(last=False)
    return crossed
