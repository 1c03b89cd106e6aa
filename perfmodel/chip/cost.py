"""What work on one chip costs: each piece on its core, and what all of them take of what is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.chip.layout import Layout, layout
from perfmodel.chip.popular import Popularity, stays_alone, stays_together
from perfmodel.chip.work import WAYS, Batch, Tables, Way, Work
from perfmodel.errors import BadInputError
from perfmodel.model import one_chip, one_core
from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]
Ints = NDArray[np.intp]

GLOBAL_ID_BYTES = 8
OFFSET_BYTES = 8
BAG_BYTES = 4
"""In global memory: of an id, of the offset of a bag, of an element of a bag."""

LIMITS = ("core", "memory", "channel", "cache", "slice")


@dataclass(frozen=True, eq=False)
class _Piece:
    """Broadcast arrays that describe pieces, and what follows from them at once."""

    table: Ints
    way: Ints
    rows: Array
    columns: Array
    bags: Array
    first: Array
    row: Array
    pooling: Array
    share: Array
    lay: Layout
    lockstep: bool

    @property
    def draws(self) -> Array:
        """Look-ups that fall into the piece."""
        return self.bags * self.pooling * self.share

    @property
    def ids(self) -> Array:
        """Ids that are read."""
        return self.bags * self.pooling


class ChipCost:
    """Time and bytes of any pieces of tables on a chip, for one batch of given popularity.

    tables      T tables (``PlanTables`` or the like);  batch  samples of a batch, one bag of each table
    popularity  of each table, [T]; None: uniform
    The cache is empty when a batch begins. Ids are read and bags written by every way.
    """

    def __init__(
        self,
        chip: Chip,
        tables: Tables,
        batch: float,
        popularity: Sequence[Popularity] | None = None,
    ) -> None:
        if not (np.isfinite(batch) and batch >= 1):
            raise BadInputError(f"a batch of {batch:g} samples has no work.", "give 1 or more.")
        self.chip, self.tables, self.batch = chip, tables, float(batch)
        self.popular = list(popularity or [Popularity.uniform(float(m)) for m in tables.rows])
        if len(self.popular) != tables.rows.size:
            raise BadInputError(
                f"{len(self.popular)} distributions are given for {tables.rows.size} tables.",
                "give one for each table.",
            )
        self._v = {key: quantity.value for key, quantity in chip.values.items()}
        self._channel = self._v["gm_bytes_per_s"] / self._v["channels"]
        self._misses = {lockstep: self._miss_arrays(lockstep) for lockstep in (True, False)}

    # ---- pieces ---------------------------------------------------------------------------------------

    def work(
        self,
        table: ArrayLike,
        way: ArrayLike,
        rows: ArrayLike,
        columns: ArrayLike,
        bags: ArrayLike,
        first_row: ArrayLike = 0,
        *,
        local: ArrayLike | None = None,
        lockstep: bool = False,
    ) -> Work:
        """What pieces take; all arguments broadcast to one shape.

        table, way  index and ``Way``;  rows, columns, bags  of the piece;  first_row  most popular row first
        local       bytes of the local buffer for each piece; None: all of it
        lockstep    all cores are at the same table at a time, each with a slice of its batch: it has the
                    cache for itself, and a row that streams past all of them is read once
        Limits: no bags -> no time beyond a latency;  a table that no buffer holds -> fits is False
        """
        piece = self._piece(table, way, rows, columns, bags, first_row, local, lockstep)
        gather, preload = self._gather(piece)
        around_s, around_bytes = self._around(piece)
        gm, cache = self._traffic(piece)
        hot_gm, hot_cache = self._hottest(piece)
        persist = self.chip.buffers.persist
        return Work(
            core_s=around_s + gather + (0 if persist else preload),
            preload_s=preload if persist else np.zeros_like(preload),
            gm_bytes=gm + around_bytes,
            hot_gm_bytes=hot_gm,
            cache_bytes=cache,
            hot_cache_bytes=hot_cache,
            local_bytes=piece.lay.local_bytes,
            vector_bytes=piece.lay.vector_bytes,
            fits=piece.lay.fits,
        )

    def _piece(
        self,
        table: ArrayLike,
        way: ArrayLike,
        rows: ArrayLike,
        columns: ArrayLike,
        bags: ArrayLike,
        first: ArrayLike,
        local: ArrayLike | None,
        lockstep: bool,
    ) -> _Piece:
        at, ways = (np.asarray(a, dtype=np.intp) for a in (table, way))
        of = np.broadcast_arrays(
            at, ways, *(np.asarray(a, dtype=float) for a in (rows, columns, bags, first))
        )
        at, ways, m, d, b, begin = of[0], of[1], *of[2:]
        row = one_chip.read_bytes(d * self.tables.element_bytes[at], self._v["access_bytes"])
        pool = self.tables.pooling[at]
        share = np.empty(at.shape)
        for one in np.unique(at):
            mine = at == one
            share[mine] = self.popular[one].share(begin[mine], begin[mine] + m[mine])
        lay = layout(self.chip, ways, m, row, d, b, pool, local)
        return _Piece(at, ways, m, d, b, begin, row, pool, np.clip(share, 0, 1), lay, lockstep)

    def row_s(self, row: ArrayLike, hit: ArrayLike) -> Array:
        """Mean time from a row's request to its last byte, a share ``hit`` of which come from the cache [s].

        Source: ``one_chip.row_latency``
        Limits: hit = 0, no cache -> latency and channel
        """
        share = np.asarray(hit, dtype=float)
        if self._v["cache_bytes"] <= 0:
            return one_chip.row_latency(row, self._v["row_latency_s"], self._channel)
        inside = self._v["cache_bytes_per_s"] / self._v["cache_slices"]
        far = one_chip.row_latency(row, self._v["row_latency_s"], self._channel, inside)
        near = one_chip.row_latency(row, self._v["cache_latency_s"], inside)
        return share * near + (1 - share) * far

    def _gather(self, p: _Piece) -> tuple[Array, Array]:
        """Time to look rows up, and to copy those that stay [s]."""
        v, n = self._v, p.draws
        partial = p.share < 1
        scan = one_core.scan_time(p.ids, 1, 1 / v["id_s"] if v["id_s"] else np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            hit = np.where(n > 0, 1 - self._missed(p) / np.maximum(n, 1e-300), 0)
        peak = one_chip.issued_rate(p.row, v["core_bytes_per_s"], v["row_issue_s"])
        gm = one_chip.gather_time(n, p.row, self.row_s(p.row, np.clip(hit, 0, 1)), v["rows_in_flight"], peak)
        local = one_core.gm_time(
            n, p.row, one_chip.issued_rate(p.row, v["local_bytes_per_s"], v["row_issue_s"])
        )
        time = np.where(p.way == Way.GM, gm, local) + np.where(partial, scan, 0)
        streams = (p.way == Way.GM_UB) | (p.way == Way.L1_UB)
        preload = np.where(
            p.lay.resident > 0, v["row_latency_s"] + p.lay.resident * p.row / v["dma_bytes_per_s"], 0
        )
        return np.where(streams, self._streamed(p), time), preload

    def _streamed(self, p: _Piece) -> Array:
        """Time of GM-UB and L1-UB, after what stays is there [s]."""
        v, lay = self._v, p.lay
        inside = v["local_to_vector_bytes_per_s"]
        chunks = np.maximum(lay.chunks, 1)
        moved = (lay.resident / inside if inside else 0) + (p.rows - lay.resident) / v["dma_bytes_per_s"]
        looked = p.draws / lay.passes * p.row / v["vector_bytes_per_s"]
        scan = p.ids / lay.passes * v["id_s"]
        still = np.where(inside > 0, 0, lay.resident / np.maximum(p.rows, 1))
        hottest = self._hot_share(p, chunks)
        wait = np.where(lay.resident < p.rows, v["row_latency_s"], 0)
        passing = one_chip.chunk_times(
            moved * p.row / chunks, looked * (1 - still) + scan * chunks, chunks, hottest, wait
        )
        passing = np.where(lay.chunks > 0, passing, 0)
        first = np.where(lay.chunks > 0, wait + moved * p.row / chunks, 0)
        stays = np.where(still > 0, np.maximum(looked * still + scan - first, 0), 0)
        return lay.passes * (passing + stays)

    def _hot_share(self, p: _Piece, parts: Array) -> Array:
        """Share of a piece's look-ups that goes to the part that has its hottest row."""
        top = self._of_table(p, lambda one, at: self.popular[one].at(self.popular[one].p, p.first[at]))
        within = np.divide(top, p.share, out=np.ones_like(top), where=p.share > 0)
        return one_chip.hottest_share(np.minimum(within, 1), p.rows, parts)

    def _around(self, p: _Piece) -> tuple[Array, Array]:
        """Time and bytes of ids and offsets read and bags written; partial bags are read and added to."""
        bags = one_chip.touched_bags(p.bags, p.pooling, p.share)
        times = np.where(p.share < 1, 2, 1)
        moved = p.ids * GLOBAL_ID_BYTES + p.bags * OFFSET_BYTES + bags * times * p.columns * BAG_BYTES
        wait = p.lay.passes * np.where(p.lay.chunks > 0, 0, self._v["row_latency_s"])
        time = one_core.ids_and_bags_time(
            p.ids, GLOBAL_ID_BYTES, 1, moved - p.ids * GLOBAL_ID_BYTES, self._v["dma_bytes_per_s"]
        )
        return np.where(p.bags > 0, time + wait, 0), moved

    # ---- what is shared -------------------------------------------------------------------------------

    def _missed(self, p: _Piece) -> Array:
        """Look-ups of a piece that miss the cache."""
        misses = self._misses[p.lockstep]
        part = self._of_table(
            p, lambda one, at: self.popular[one].part(misses[one], p.first[at], p.first[at] + p.rows[at])
        )
        return part * p.bags / self.batch

    def _traffic(self, p: _Piece) -> tuple[Array, Array]:
        """Bytes of rows from global memory, and through the cache."""
        kept, m = p.lay.resident, p.rows
        copied = np.where(self.chip.buffers.persist, 0, kept)
        rows = copied + p.lay.passes * (m - kept)
        streams = p.way != Way.GM
        asked = np.where(streams, rows, p.draws) * p.row
        once = np.where(streams, rows, self._missed(p)) * p.row
        if self._v["cache_bytes"] <= 0:
            return asked, np.zeros_like(asked)
        together = p.bags / self.batch if p.lockstep else np.ones_like(p.bags)
        again = np.where(m * p.row <= self._v["cache_bytes"], copied + (m - kept), rows)
        once = np.where(streams, again * p.row * together, once)
        return once, asked

    def _hottest(self, p: _Piece) -> tuple[Array, Array]:
        """Bytes beyond an even share of the channel, and of the cache slice, that have the hottest row."""
        v, gathers = self._v, p.way == Way.GM
        top = self._of_table(p, lambda one, at: self.popular[one].at(self.popular[one].p, p.first[at]))
        every, asked = p.draws * p.row, p.bags * p.pooling * p.row * top
        misses = self._misses[p.lockstep]
        missed = self._of_table(p, lambda one, at: self.popular[one].at(misses[one], p.first[at]))
        hot, total = missed * p.bags / self.batch * p.row, self._missed(p) * p.row
        if v["cache_bytes"] <= 0:
            return np.where(gathers, _beyond(asked, every, p.rows, v["channels"]), 0), np.zeros_like(every)
        return (
            np.where(gathers, _beyond(hot, total, p.rows, v["channels"]), 0),
            np.where(gathers, _beyond(asked, every, p.rows, v["cache_slices"]), 0),
        )

    def _miss_arrays(self, lockstep: bool) -> list[Array]:
        """Expected misses of one row of each bin of each table, over the whole batch."""
        held = self._v["cache_bytes"]
        row = one_chip.read_bytes(self.tables.dim * self.tables.element_bytes, self._v["access_bytes"])
        draws = self.batch * self.tables.pooling
        if lockstep:
            stays = [stays_alone(one, held / x) for one, x in zip(self.popular, row, strict=True)]
        else:
            stays = list(stays_together(self.popular, draws, row, held))
        return [one.misses(n, t) for one, n, t in zip(self.popular, draws, stays, strict=True)]

    def _of_table(self, p: _Piece, value: Callable[[int, NDArray[np.bool_]], Array]) -> Array:
        """``value(table, where)`` of the pieces of each table, in one array."""
        out = np.empty(p.table.shape)
        for one in np.unique(p.table):
            mine = p.table == one
            out[mine] = value(int(one), mine)
        return out

    # ---- batches --------------------------------------------------------------------------------------

    def batch_s(self, core: ArrayLike, table: ArrayLike, work: Work) -> Batch:
        """Time of pieces that run side by side on their cores, each core one piece after the other.

        core, table  of each piece, arrays of the shape of ``work``
        Source: ``one_chip.chip_time``
        Limits: one core, nothing shared is slower -> the sum of its pieces
        """
        v = self._v
        owner, of = np.asarray(core, dtype=np.intp).ravel(), np.asarray(table, dtype=np.intp).ravel()
        if owner.size and (owner.min() < 0 or owner.max() >= self.chip.cores):
            raise BadInputError(
                f"core {owner.max()} is asked for; {self.chip.name} has {self.chip.cores} cores.",
                "cores are counted from 0.",
            )
        own = np.bincount(owner, work.core_s.ravel(), self.chip.cores).astype(np.float64)
        gm, cache = float(np.sum(work.gm_bytes)), float(np.sum(work.cache_bytes))
        shared = {"memory": gm / v["gm_bytes_per_s"], "channel": 0.0, "cache": 0.0, "slice": 0.0}
        beyond = float(np.max(np.bincount(of, work.hot_gm_bytes.ravel()), initial=0))
        shared["channel"] = (gm / v["channels"] + beyond) / self._channel
        if v["cache_bytes"] > 0:
            beyond = float(np.max(np.bincount(of, work.hot_cache_bytes.ravel()), initial=0))
            inside = v["cache_bytes_per_s"] / v["cache_slices"]
            shared["cache"] = cache / v["cache_bytes_per_s"]
            shared["slice"] = (cache / v["cache_slices"] + beyond) / inside
        times = {"core": float(np.max(own, initial=0)), **shared}
        if not work.fits.all():
            return Batch(float("inf"), "core", own, shared)
        limit = max(LIMITS, key=lambda name: times[name])
        return Batch(float(one_chip.chip_time(*(times[name] for name in LIMITS))), limit, own, shared)

    def symmetric(self) -> Array:
        """Time of each way for each table where every core takes B/N samples of it, shape [4, T] [s].

        Cores go through the tables together: a batch takes the sum over tables. inf where buffers are too
        small. A table that persists has the local buffer for itself here; ``Way.GM`` needs none.
        Source: ``one_chip.chip_time``
        Limits: one core -> ``core_s`` of the whole batch, or what is shared
        """
        count = self.tables.rows.size
        cores = self.chip.cores
        least, more = divmod(int(self.batch), cores)
        bags = np.array([least + (core < more) for core in range(cores)], dtype=float)
        out = np.empty((len(WAYS), count))
        for way in WAYS:
            for table in range(count):
                work = self.work(
                    table, way, self.tables.rows[table], self.tables.dim[table], bags, lockstep=True
                )
                at = np.full(cores, table)
                out[way, table] = self.batch_s(np.arange(cores), at, work).seconds
        return out


def _beyond(hot: Array, total: Array, rows: Array, parts: float) -> Array:
    """Bytes of the part with the hottest row, beyond an even share of all bytes [bytes]."""
    share = np.divide(hot, total, out=np.zeros_like(total), where=total > 0)
    return np.maximum(total * (one_chip.hottest_share(share, rows, parts) - 1 / parts), 0)
