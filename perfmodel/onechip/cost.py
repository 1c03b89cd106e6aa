"""Cost of work on one chip: time of each piece on its core, and load on the shared resources.

A piece is the part of a table that one core looks up in one ``Way``: some rows, columns and bags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import BadInputError
from perfmodel.model import one_chip, one_core
from perfmodel.onechip.batch import batch_of
from perfmodel.onechip.core_misses import passed_of
from perfmodel.onechip.gathered import Gathered, Rows, gathered
from perfmodel.onechip.layout import BURST_BYTES, layout
from perfmodel.onechip.piece import Piece
from perfmodel.onechip.popular import RowPopularity, shared_misses
from perfmodel.onechip.work import Batch, CoreStep, CoreWork, TableColumns, Way
from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]
Ints = NDArray[np.intp]

GLOBAL_ID_BYTES, OFFSET_BYTES, BAG_BYTES = 8, 8, 4
"""Sizes in global memory: of an id, of the offset of a bag, of an element of a bag."""


class ChipCost:
    """Computes time and bytes of any pieces of tables on a chip, for one batch with given popularity of rows.

    tables      such as ``PlanTables``;  batch  samples, each with one bag per table
    popularity  of the rows of each table; None: uniform
    The shared cache is empty when a batch begins. All ways read ids and write bags.
    """

    def __init__(
        self,
        chip: Chip,
        tables: TableColumns,
        batch: float,
        popularity: Sequence[RowPopularity] | None = None,
    ) -> None:
        if not (np.isfinite(batch) and batch >= 1):
            raise BadInputError(f"a batch of {batch:g} samples has no work.", "give 1 or more.")
        self.chip, self.tables, self.batch = chip, tables, float(batch)
        self.popular = list(popularity or [RowPopularity.uniform(float(m)) for m in tables.rows])
        self._v = {key: quantity.value for key, quantity in chip.values.items()}
        self.kind_of, self.sample, self.count = self._kinds()
        self._kept, self._misses = self._miss_arrays()
        self._in_step: dict[tuple[int, Way], Batch] = {}

    def _kinds(self) -> tuple[Ints, Ints, Ints]:
        """(kind of each table, a table of each kind, number of each); tables of a kind have equal costs."""
        t = self.tables
        known: dict[tuple[bytes, bytes], int] = {}
        ids = [known.setdefault((one.p.tobytes(), one.rows.tobytes()), len(known)) for one in self.popular]
        columns = np.stack([t.rows, t.dim, t.element_bytes, t.pooling, np.array(ids, dtype=float)], axis=1)
        _, sample, kind_of, count = np.unique(
            columns, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return kind_of.reshape(-1), sample, count

    @cached_property
    def _draws(self) -> tuple[list[Array], list[Array]]:
        """(requests of a row per batch, mean squares of them), by table and bin of its popularity."""
        q = [self.batch * pool * one.p for pool, one in zip(self.tables.pooling, self.popular, strict=True)]
        return q, [a + a * a for a in q]

    @cached_property
    def _squares(self) -> dict[bool, list[Array]]:
        """Mean squares of a row's misses by table and bin, with lockstep (True) and without (False)."""
        return {key: [np.maximum(a, a * a) for a in every] for key, every in self._misses.items()}

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
    ) -> CoreWork:
        """The work of pieces; all arguments broadcast to one shape.

        table, way  index of the table, and ``Way``;  rows, columns, bags  numbers that the piece has
        first_row   its first row, in order of popularity;  local  bytes of the local buffer for it; None: all
        lockstep    whether all cores work on the same table at a time, each with a slice of its batch: it
                    then has the cache for itself, and a row that streams past all cores is read once
        Limits: no bags -> no time beyond a latency;  a table that fits no buffer -> fits is False
        """
        piece = self._piece(table, way, rows, columns, bags, first_row, local, lockstep)
        copy, persist = self._copied(piece), self.chip.buffers.persist
        steps = (self._ids(piece), self._looked_up(piece), self._written(piece))
        return CoreWork(
            steps=steps if persist else (copy, *steps),
            preload_s=(copy.wait_s + copy.busy_s) * persist,
            local_bytes=piece.lay.local_bytes,
            vector_bytes=piece.lay.vector_bytes,
            fits=piece.lay.fits,
            lockstep=lockstep,
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
    ) -> Piece:
        at, ways = (np.asarray(a, dtype=np.intp) for a in (table, way))
        of = np.broadcast_arrays(
            at, ways, *(np.asarray(a, dtype=float) for a in (rows, columns, bags, first))
        )
        at, ways, m, d, b, begin = of[0], of[1], *of[2:]
        row = one_chip.read_bytes(d * self.tables.element_bytes[at], self._v["access_bytes"])
        pool = self.tables.pooling[at]
        share = np.empty(at.shape)
        like = self.sample[self.kind_of[at]]
        for one in np.unique(like):
            mine = like == one
            share[mine] = self.popular[one].share(begin[mine], begin[mine] + m[mine])
        lay = layout(self.chip, ways, m, row, d, b, pool, local)
        of = like.astype(float), begin, m, b, row
        draws = self.batch * self.tables.pooling
        out = passed_of(self._v, self.popular, draws, self.batch, of, (ways == Way.GM) & (b > 0))
        return Piece(at, ways, m, d, b, begin, row, pool, np.clip(share, 0, 1), lay, lockstep, out)

    def _copied(self, p: Piece) -> CoreStep:
        """The step in which rows that stay are copied to the local buffer."""
        size = p.lay.resident * p.row
        some = size > 0
        busy = one_core.table_bytes(p.lay.resident, p.lay.resident, p.row) / self._v["dma_bytes_per_s"]
        return self._copy_step(p, size, np.where(some, self._v["row_latency_s"], 0), busy, size)

    def _ids(self, p: Piece) -> CoreStep:
        """The step in which ids and offsets are read."""
        size = p.ids * GLOBAL_ID_BYTES + p.bags * OFFSET_BYTES
        busy = one_core.ids_and_bags_time(
            p.ids, GLOBAL_ID_BYTES, p.bags, OFFSET_BYTES, self._v["dma_bytes_per_s"]
        )
        wait = np.where(p.bags > 0, self._v["row_latency_s"] * p.lay.passes, 0)
        return _past_cache(wait, busy, size, self._v["channels"])

    def _written(self, p: Piece) -> CoreStep:
        """The step in which bags are written; a bag with rows in several pieces is read and added to."""
        part = p.rows < self.tables.rows[p.table]
        bags = np.where(part, one_chip.touched_bags(p.bags, p.pooling, p.share), p.bags)
        size = bags * p.columns * BAG_BYTES * np.where(part, 2, 1)
        wait = np.where(part & (size > 0), self._v["row_latency_s"], 0)
        busy = one_core.ids_and_bags_time(0, 0, 1, size, self._v["dma_bytes_per_s"])
        return _past_cache(wait, busy, size, self._v["channels"])

    def _looked_up(self, p: Piece) -> CoreStep:
        """The step in which rows are gathered, or stream past the core."""
        streamed = self._streamed(p)
        moved = np.where(p.bags > 0, p.lay.passes * (p.rows - p.lay.resident) * p.row, 0)
        once = (p.rows - p.lay.resident) * p.row
        one = self._copy_step(p, moved, np.zeros_like(streamed), streamed, once, np.maximum(p.lay.chunks, 1))
        other = self._gather_step(p, self._gathered(p))
        streams = (p.way == Way.GM_UB) | (p.way == Way.L1_UB)
        return CoreStep(
            **{
                f.name: np.where(streams, getattr(one, f.name), getattr(other, f.name))
                for f in fields(CoreStep)
            }
        )

    def _gathered(self, p: Piece) -> Gathered:
        """The time to gather rows, for the ways GM and L1."""
        v, n, local = self._v, p.draws, self._local(p)
        gm, gathers = gathered(v, self._rows(p)), p.way == Way.GM
        inside = one_chip.gather_variance(n, p.share, [p.row / local], [], 1)
        scan = np.where(p.rows < self.tables.rows[p.table], p.ids * v["id_s"], 0)
        return Gathered(
            np.where(gathers, gm.wait, 0),
            np.where(gathers, gm.busy, one_core.gm_time(n, p.row, local)) + scan,
            np.where(gathers, gm.variance, inside),
            np.where(gathers, gm.quick, 0),
            np.where(gathers, gm.after, 0),
        )

    def _rows(self, p: Piece) -> Rows:
        missed, top, part = self._missed(p), self._top(p), p.bags / self.batch
        return Rows(p.draws, p.row, p.share, missed, top, part, p.passed, p.lockstep)

    def _local(self, p: Piece) -> Array:
        """Rate at which rows are read from the local buffer [bytes/s]."""
        return one_chip.issued_rate(p.row, self._v["local_bytes_per_s"], self._v["row_issue_s"])

    def _still(self, p: Piece) -> Array:
        """Share of the rows that stay in the vector buffer while the others stream past it [-]."""
        inside = self._v["local_to_vector_bytes_per_s"]
        return np.where(inside > 0, 0, p.lay.resident / np.maximum(p.rows, 1))

    def _looked(self, p: Piece) -> Array:
        """Time to look up rows in the vector buffer, for one pass of a streamed table [s]."""
        return p.draws / p.lay.passes * p.row / self._v["vector_bytes_per_s"]

    def _chunks(self, p: Piece) -> tuple[Array, ...]:
        """Arguments of ``one_chip.chunk_times`` for one pass of a streamed table."""
        v, lay = self._v, p.lay
        inside = v["local_to_vector_bytes_per_s"]
        chunks = np.maximum(lay.chunks, 1)
        moved = (lay.resident / inside if inside else 0) + (p.rows - lay.resident) / v["dma_bytes_per_s"]
        looked = self._looked(p) * (1 - self._still(p))
        wait = np.where(lay.resident < p.rows, self._copy_wait(p), 0)
        scan = p.ids / lay.passes * v["id_s"]
        return moved * p.row / chunks, looked, chunks, self._hot_share(p, chunks), wait, scan

    def _streamed(self, p: Piece) -> Array:
        """Time of the ways GM-UB and L1-UB, after the rows that stay and the ids have been read [s]."""
        v, lay, still, asked = self._v, p.lay, self._still(p), self._chunks(p)
        (stream, *_, wait, scan), passing = asked, one_chip.chunk_times(*asked)
        stays = np.where(still > 0, self._looked(p) * still + scan, 0)
        after = np.where(lay.chunks > 0, np.maximum(stays - stream, 0) + passing - wait, stays)
        hidden = np.where(wait > 0, 0, np.minimum(stream, v["row_latency_s"]))
        return np.where(p.bags > 0, lay.passes * (after - hidden), 0)

    def _copy_wait(self, p: Piece) -> Array:
        """Mean latency of a copy of streamed rows [s]; if they fit the cache, only the first pass misses."""
        far, near = self._v["row_latency_s"], self._v["cache_latency_s"]
        held = (p.rows - p.lay.resident) * p.row <= self._v["cache_bytes"]
        return np.where(held, (far + (p.lay.passes - 1) * near) / p.lay.passes, far)

    def _hot_share(self, p: Piece, parts: Array) -> Array:
        """Share of a piece's look-ups that go to the channel or slice (of ``parts``) of its hottest row."""
        return one_chip.hottest_share(self._top(p), p.rows, parts)

    def _top(self, p: Piece) -> Array:
        """Share of a piece's look-ups that go to its hottest row."""
        top = self._of_table(p, lambda one, at: self.popular[one].at(self.popular[one].p, p.first[at]))
        return np.minimum(np.divide(top, p.share, out=np.ones_like(top), where=p.share > 0), 1)

    # ---- what is shared -------------------------------------------------------------------------------

    def _missed(self, p: Piece) -> Array:
        """Share of a piece's look-ups that miss the shared cache."""
        misses = self._misses[p.lockstep]
        return self._sum(p, misses) * p.bags / self.batch

    def _copy_step(
        self, p: Piece, size: Array, wait: Array, busy: Array, once: Array, chunks: Array | float = 1.0
    ) -> CoreStep:
        """A step that copies ``size`` bytes of rows in chunks; ``once`` bytes are of different rows."""
        v = self._v
        bursts = chunks * np.maximum(np.ceil(once / chunks / BURST_BYTES), 1)
        none = np.zeros_like(size)
        if v["cache_bytes"] <= 0:
            hot = _beyond(size, bursts, v["channels"])
            return CoreStep(wait, busy, none, size, hot, none, none, none, none, none, none, none)
        read = np.where(once <= v["cache_bytes"], np.minimum(once, size), size)
        read = read * self._once_of(p, once)
        return CoreStep(
            wait, busy, none, read, _beyond(read, bursts, v["channels"]), none,
            size, _beyond(size, bursts, v["cache_slices"]), none, none, none, none,
        )  # fmt: skip

    def _once_of(self, p: Piece, once: Array) -> Array:
        """Share of the copied bytes ``once`` that no other slice of the batch has put into the cache."""
        if p.lockstep:
            return p.bags / self.batch
        slices = np.maximum(self.batch / np.maximum(p.bags, 1e-300), 1)
        kept = np.where(once <= self._v["cache_bytes"], self._kept, 0)
        return one_chip.copies_read(slices, kept) / slices

    def _gather_step(self, p: Piece, of: Gathered) -> CoreStep:
        """A step that looks up rows one by one in time ``of``; only the way GM requests them from memory."""
        v, gathers = self._v, p.way == Way.GM
        cached = v["cache_bytes"] > 0
        asked = self._asked(p, v["cache_slices"] if cached else v["channels"])
        none, busy = np.zeros_like(of.wait), of.busy
        all_gm: tuple[Array, ...] = asked
        all_cache: tuple[Array, ...] = (none, none, none)
        if cached:
            missed, all_cache = self._misses[p.lockstep], asked
            all_gm = self._requests(p, missed, self._squares[p.lockstep], v["channels"])
        rates = v["gm_bytes_per_s"] / v["channels"], v["cache_bytes_per_s"] / max(v["cache_slices"], 1)
        for (size, hot, _), parts, rate in zip(
            (all_gm, all_cache), (v["channels"], v["cache_slices"]), rates, strict=True
        ):
            if parts:
                busy = np.where(gathers, np.maximum(busy, (size / parts + hot) / rate), busy)
        cubes = none if p.passed is None else p.passed.cubes * p.row**3
        shared = [np.where(gathers, a, 0) for a in (*all_gm, *all_cache, cubes)]
        return CoreStep(of.wait, busy, of.variance, *[*shared, of.quick, of.after])

    def _asked(self, p: Piece, parts: float) -> tuple[Array, ...]:
        """``_requests`` for all look-ups; if cores have caches, for the look-ups that miss them."""
        if p.passed is not None:
            return self._dealt(p, p.passed.requests, p.passed.hottest, p.passed.squares, parts)
        return self._requests(p, *self._draws, parts)

    def _requests(
        self, p: Piece, of_a_row: list[Array], squares: list[Array], parts: float
    ) -> tuple[Array, ...]:
        """(bytes of requested rows, excess of the fullest channel or slice over the mean, squared spread).

        of_a_row  requests of a row per batch, by table and bin;  squares  mean of their squares
        parts     number of channels or slices
        """
        part = p.bags / self.batch
        count, square = part * self._sum(p, of_a_row), part * self._sum(p, squares)
        top = part * self._of_table(p, lambda one, at: self.popular[one].at(of_a_row[one], p.first[at]))
        return self._dealt(p, count, top, square, parts)

    def _dealt(self, p: Piece, count: Array, top: Array, squares: Array, parts: float) -> tuple[Array, ...]:
        """``_requests`` for given requests of all rows (count, squares) and of the hottest (top)."""
        part = p.bags / self.batch
        share = np.divide(top, count, out=np.zeros_like(count), where=count > 0)
        beyond = np.maximum(one_chip.hottest_share(np.minimum(share, 1), p.rows, parts) - 1 / parts, 0)
        spread = squares - count * count / np.maximum(p.rows * part, 1e-300)
        return count * p.row, count * p.row * beyond, np.maximum(spread, 0) * p.row**2

    def _sum(self, p: Piece, of_a_row: list[Array]) -> Array:
        """Sum over the rows of a piece of the value of a row, given by table and bin of its popularity."""
        return self._of_table(
            p, lambda one, at: self.popular[one].part(of_a_row[one], p.first[at], p.first[at] + p.rows[at])
        )

    def _miss_arrays(self) -> tuple[float, dict[bool, list[Array]]]:
        """The result of ``shared_misses``, for every table."""
        held = self._v["cache_bytes"]
        row = one_chip.read_bytes(self.tables.dim * self.tables.element_bytes, self._v["access_bytes"])
        draws = self.batch * self.tables.pooling
        popular, draws, row = [self.popular[at] for at in self.sample], draws[self.sample], row[self.sample]
        kept, found = shared_misses(popular, draws, row, self.count, held)
        return kept, {key: [every[kind] for kind in self.kind_of] for key, every in found.items()}

    def _of_table(self, p: Piece, value: Callable[[int, NDArray[np.bool_]], Array]) -> Array:
        """``value(table, mask of its pieces)`` for each kind of table, joined to one array."""
        out = np.empty(p.table.shape)
        like = self.sample[self.kind_of[p.table]]
        for one in np.unique(like):
            mine = like == one
            out[mine] = value(int(one), mine)
        return out

    # ---- batches --------------------------------------------------------------------------------------

    def batch_s(self, core: ArrayLike, table: ArrayLike, work: CoreWork) -> Batch:
        """Time of a batch of pieces on their cores (``batch.batch_of``); core, table  of each piece"""
        return batch_of(self.chip, core, table, work)

    @cached_property
    def bags_of_cores(self) -> Array:
        """Number of bags on each core if the batch is divided evenly; the first cores have one more."""
        least, more = divmod(int(self.batch), self.chip.cores)
        return least + (np.arange(self.chip.cores) < more).astype(float)

    def in_step(self, table: int, way: Way) -> Batch:
        """Time of one table if every core has a slice of its batch. A symmetric batch is the sum over tables.

        A table that stays in the local buffer has all of it here. Source: ``one_chip.chip_time``
        Limits: one core -> ``core_s`` of the whole batch, or the shared resource;  buffers too small -> inf
        """
        if (table, way) not in self._in_step:
            rows, dim, cores = self.tables.rows[table], self.tables.dim[table], np.arange(self.chip.cores)
            work = self.work(table, way, rows, dim, self.bags_of_cores, lockstep=True)
            self._in_step[table, way] = self.batch_s(cores, np.full(cores.size, table), work)
        return self._in_step[table, way]


def _beyond(size: Array, bursts: Array, parts: float) -> Array:
    """Bytes by which the fullest of ``parts`` exceeds the mean, if bursts of a copy go to them in turn."""
    return size * np.maximum(one_chip.hottest_share(1 / bursts, bursts, parts) - 1 / parts, 0)


def _past_cache(wait: Array, busy: Array, size: Array, channels: float) -> CoreStep:
    """A step that copies ids or bags, which bypass the cache and may be anywhere in memory."""
    none = np.zeros_like(size)
    spread = np.minimum(size, channels * BURST_BYTES) * np.minimum(size, BURST_BYTES)
    return CoreStep(wait, busy, none, size, none, spread, none, none, none, none, none, none)
