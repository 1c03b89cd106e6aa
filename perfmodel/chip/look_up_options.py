"""How a table may be looked up on the cores of a chip, with what each option takes: time, buffers, loads.

An option cuts a table into equal pieces, each on a core of its own: slices of the batch, and parts of the
rows, dealt so that parts have equally many look-ups. Rows are numbered from the hottest one. In the ways L1
and L1-UB a core keeps the hottest rows of its part, and gathers the others from global memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfmodel.chip import equations
from perfmodel.engine.tables import Array, Ints
from perfmodel.model.access import compute_touched_share, count_unique_rows, find_characteristic_draws
from perfmodel.model.popularity import list_bins
from perfmodel.schema.machine import Chip
from perfmodel.schema.workload import Distribution

WAYS = ("GM", "L1", "GM-UB", "L1-UB")
"""How a core looks a table up, named by the memories that it uses (``equations``)."""
GM, L1, GM_UB, L1_UB = range(4)

_ID_BYTES = _OFFSET_BYTES = 8  # of ids and offsets of bags
_ELEMENT_BYTES = 4  # of a bag's element
_LOCAL_ID_BYTES = 4  # of an id in the vector buffer
_CHUNK_PARTS = 8  # a chunk is an eighth of the vector buffer
_KEPT_PARTS = (1, 2, 4, 8, 16, 64, 10**9)  # rows kept: a buffer of them, a half, a quarter …, and one row
_SLICES = np.rint(1.2 ** np.arange(46)).astype(int).tolist()  # of a batch, with all cores: up to 3 650
_FITTING = np.array([0.5, 0.75, 1, 1.5])  # parts of the rows, over those that fill a buffer each
_ALIKE = 1.05  # loads of shared memory so close are equal when options are compared


@dataclass(frozen=True, eq=False)
class LookUpOptions:
    """Options of a table; an array entry for each. Times are whole picoseconds.

    way, slices, parts  index in ``WAYS``, slices of the batch, parts of the rows [-]
    kept_rows   rows that are in the local buffer of each core [rows]
    piece_ps    time of a piece on its core [ps];  wait_ps  until its first row is there [ps]
    held_bytes  of the core's local buffer that stay in use between batches [bytes]
    shared_ps   time that (global memory, the cache) are busy for all pieces, [options, 2] [ps]
    """

    way: Ints
    slices: Ints
    parts: Ints
    kept_rows: Array
    piece_ps: Array
    wait_ps: Array
    held_bytes: Array
    shared_ps: Array

    @property
    def pieces(self) -> Ints:
        """Number of pieces, each on a core of its own [-]."""
        return self.slices * self.parts

    @property
    def alone_ps(self) -> Array:
        """Time of the table if all its pieces run at once, and nothing else does [ps]."""
        return np.asarray(np.maximum(self.piece_ps, self.wait_ps + self.shared_ps.max(axis=1)))

    def take(self, chosen: Ints | int) -> LookUpOptions:
        """The options at these indices, or the one at this index."""
        index = np.atleast_1d(chosen)
        return LookUpOptions(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def join(self, other: LookUpOptions) -> LookUpOptions:
        """These options, and then those of ``other``."""
        names = [field.name for field in fields(self)]
        return LookUpOptions(*[np.concatenate([getattr(self, n), getattr(other, n)]) for n in names])

    def drop_beaten(self) -> LookUpOptions:
        """The options that no other one beats in pieces, time and buffer, with loads about as small."""
        values = np.column_stack([self.pieces, self.piece_ps, self.held_bytes, self.shared_ps])
        _, index = np.unique(values, axis=0, return_index=True)  # of equal options one
        finite = self.take(np.sort(index[np.isfinite(self.piece_ps[index])]))
        values = np.column_stack([finite.pieces, finite.piece_ps, finite.held_bytes])
        no_worse = np.all(values[:, np.newaxis] <= values, axis=2)  # [i, j]: i is no worse than j
        better = no_worse & ~no_worse.T
        better &= np.all(finite.shared_ps[:, np.newaxis] <= finite.shared_ps * _ALIKE, axis=2)
        return finite.take(np.flatnonzero(~better.any(axis=0)))


@dataclass(frozen=True, eq=False)
class TableOnChip:
    """A table, and the batch that is looked up in it.

    rows, dim  E and D [-];  row  bytes of a row as read [bytes];  pooling  L [-];  law  of ids over rows
    batch  samples;  cache_bytes  of the shared cache that this table gets [bytes]
    """

    chip: Chip
    rows: float
    dim: float
    row: float
    pooling: float
    law: Distribution
    batch: int
    cache_bytes: float

    @cached_property
    def options(self) -> LookUpOptions:
        """The options that no other one beats."""
        return _Pieces(self, *self._list_cuts()).options.drop_beaten()

    @cached_property
    def symmetric(self) -> LookUpOptions:
        """The four ways if every core has a slice of the batch; infinite times where it does not fit."""
        way = np.arange(len(WAYS))
        slices = np.full(len(WAYS), min(self.chip.cores, self.batch))
        kept_rows = np.where((way == L1) | (way == L1_UB), self.rows, 0.0)
        return _Pieces(self, way, slices, np.ones_like(way), kept_rows).options

    def price(self, cuts: LookUpOptions) -> LookUpOptions:
        """Options with the same cuts, as long as they take for this table and its ids."""
        return _Pieces(self, cuts.way, cuts.slices, cuts.parts, cuts.kept_rows).options

    def _list_cuts(self) -> tuple[Ints, Ints, Ints, Array]:
        """(way, slices of the batch, parts of the rows: 2ⁿ or so that one fills a buffer, kept rows)."""
        cores = self.chip.cores
        room = float(self.chip.value("local_bytes") // self.row)
        powers = (2 ** np.arange(cores.bit_length())).tolist()
        fitting = np.ceil(self.rows / np.maximum(room, 1) * _FITTING).tolist()
        numbers = {int(parts) for parts in [*powers, *fitting] if 1 < parts <= self.rows}
        slices_of_all = sorted({*_SLICES, cores})
        cuts = [(slices, 1, share) for slices in slices_of_all for share in _KEPT_PARTS]
        further = product(sorted(numbers), powers, _KEPT_PARTS[:3])
        cuts += [(slices, parts, share) for parts, slices, share in further]
        cuts = [cut for cut in cuts if cut[0] * cut[1] <= cores and cut[0] <= self.batch]
        slices, parts, share = np.array(cuts).T
        kept_rows = np.maximum(np.minimum(np.ceil(self.rows / parts), room // share), 1)
        undivided = share == 1
        every = np.ones_like(undivided)
        used = [undivided & (parts == 1), every, undivided, every]  # cuts of each of WAYS
        way, cut = np.nonzero(used)
        return way, slices[cut], parts[cut], np.where((way == L1) | (way == L1_UB), kept_rows[cut], 0.0)

    @cached_property
    def bins(self) -> tuple[Array, Array, Array]:
        """(chance of a row per look-up, rows, rows before) of each bin of equal rows."""
        p, rows = list_bins(self.law, self.rows)
        return p, rows, np.concatenate([[0.0], np.cumsum(rows)])

    def sum_rows(self, values: Array, head: Array | float) -> Array:
        """Sum over the ``head`` hottest rows of a value that is given for a row of each bin."""
        _, rows, before = self.bins
        return np.asarray(np.interp(head, before, np.concatenate([[0.0], np.cumsum(values * rows)])))

    def count_misses(self, head: Array) -> Array:
        """Look-ups, by all cores, of rows after the ``head`` hottest ones that miss the shared cache [-]."""
        stays = self._find_stay(self.cache_bytes)  # look-ups for which a row that was read stays
        values = equations.row_misses(self.bins[0], self.batch * self.pooling, stays)  # of a row, by bin
        return self.sum_rows(values, self.rows) - self.sum_rows(values, head)

    def count_past_core(self, draws: Array) -> tuple[Array, Array]:
        """(share of so many look-ups that miss the core's own cache, such misses of the hottest row) [-]."""
        numbers, place = np.unique(draws, return_inverse=True)
        stays = self._find_stay(self.chip.value("core_cache_bytes"))
        values = np.array([equations.row_misses(self.bins[0], n, stays) for n in numbers])
        return (values @ self.bins[1] / numbers)[place], values[:, 0][place]

    def _find_stay(self, cache_bytes: float) -> float:
        """Look-ups during which a row stays in a cache of so many bytes; infinite if it holds all rows."""
        p, rows, _ = self.bins
        held = cache_bytes / self.row
        if held >= count_unique_rows(p, rows, self.batch * self.pooling):
            return np.inf
        return float(find_characteristic_draws(p, rows, held)) if held >= 1 else 0.0


class _Pieces:
    """Costs of the pieces of a table, an array entry for each of its options."""

    def __init__(self, table: TableOnChip, way: Ints, slices: Ints, parts: Ints, kept_rows: Array) -> None:
        """v  value of the chip by key;  every  look-ups of a batch;  bags, look_ups  of the busiest piece
        share  of look-ups in it;  head  hottest rows that all buffers keep;  inside  share of look-ups there
        past, past_hottest  as of ``count_past_core``;  copied  bytes that a batch first copies to a buffer
        """
        self.table, self.way = table, way
        self.slices, self.parts = slices, parts
        self.kept_rows = kept_rows
        self.v, self.row = table.chip.value, table.row
        self.every = table.batch * table.pooling
        self.keeps = (way == L1) | (way == L1_UB)
        self.streams = (way == GM_UB) | (way == L1_UB)
        self.bags = np.ceil(table.batch / slices)
        self.share = np.maximum(table.bins[0][0], 1 / parts)  # of the look-ups: the part with the hottest row
        self.look_ups = self.bags * table.pooling * self.share
        self.head = np.where(self.keeps, np.minimum(kept_rows * parts, table.rows), 0.0)
        served = table.sum_rows(table.bins[0], self.head)  # by buffers
        self.inside = np.where(way == GM_UB, 1.0, served)
        self.past, self.past_hottest = table.count_past_core(self.bags * table.pooling)
        self.copied = np.where(self.keeps & (not table.chip.buffers.persist), kept_rows * self.row, 0.0)

    @cached_property
    def options(self) -> LookUpOptions:
        """The options with all that they take; infinite times where a buffer is too small."""
        table = self.table
        partial = self.parts > 1
        gathered_s = self._compute_gathered()
        near_s, passes, fits = self._compute_near()
        fits &= ~self.keeps | (self.kept_rows * self.row <= self.v("local_bytes"))
        touched = self.bags * np.where(partial, compute_touched_share(self.share, table.pooling), 1.0)
        moved = self.bags * (table.pooling * _ID_BYTES + _OFFSET_BYTES)
        sent = np.where(partial, 2, 1)  # partial bags are added to others'
        moved = moved + touched * table.dim * _ELEMENT_BYTES * sent
        waits_s = self.v("row_latency_s") * (passes + partial + self.copied.astype(bool))
        piece_s = waits_s + (moved + self.copied) / self.v("core_bytes_per_s") + near_s + gathered_s
        piece_s = np.where(fits, np.maximum(piece_s, self._compute_slice_s()), np.inf)
        waits_s = waits_s + np.where(gathered_s > 0, self.v("row_latency_s"), 0.0)
        memory, cache = self._count_row_bytes(passes)
        memory = memory + self.slices * self.parts * moved
        shared_s = np.column_stack([memory / self.v("gm_bytes_per_s"), cache / self.v("cache_bytes_per_s")])
        held = np.where(self.keeps & table.chip.buffers.persist, self.kept_rows * self.row, 0.0)
        times = [np.rint(times_s * 1e12) for times_s in (piece_s, waits_s, shared_s)]
        return LookUpOptions(
            self.way, self.slices, self.parts, self.kept_rows, times[0], times[1], held, times[2]
        )

    def _compute_near(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """(time of the look-ups that buffers serve [s], passes [-], whether the vector buffer suffices).

        A pass has as many bags, with their ids, as the vector buffer holds beside two chunks, or beside the
        kept rows where both buffers are one memory.
        """
        v, row = self.v, self.row
        table = self.table
        inside_rate = v("local_to_vector_bytes_per_s")
        vector_rate = v("vector_bytes_per_s")
        m = np.where(self.way == GM_UB, np.ceil(table.rows / self.parts), self.kept_rows)
        chunk = max(1.0, v("vector_bytes") // (_CHUNK_PARTS * row))
        in_place = (self.way == L1_UB) & (inside_rate == 0)
        per_bag = table.dim * _ELEMENT_BYTES + _LOCAL_ID_BYTES * (1 + np.ceil(table.pooling))
        at_once = (v("vector_bytes") - np.where(in_place, m * row, 2 * chunk * row)) // per_bag
        passes = np.where(self.streams, np.ceil(self.bags / np.maximum(at_once, 1)), 1)
        chunks = passes * np.where(self.streams & ~in_place, np.ceil(m / chunk), 1)
        n = self.look_ups * self.inside
        scan = self.bags * table.pooling / passes * v("id_s")
        stream = (passes * m * row, n, row, chunks, scan)
        times = {
            GM: np.zeros_like(n),
            L1: equations.l1_time(n, row, v("local_bytes_per_s"), v("row_issue_s")),
            GM_UB: equations.gm_ub_time(*stream, v("row_latency_s"), v("core_bytes_per_s"), vector_rate),
            L1_UB: equations.l1_ub_time(*stream, inside_rate, vector_rate),
        }
        near_s = np.select([self.way == way for way in times], list(times.values()))
        return near_s, passes, ~self.streams | (at_once >= 1)

    def _compute_gathered(self) -> Array:
        """Time to gather the look-ups that buffers do not serve from global memory [s]."""
        v = self.v
        rate = v("core_bytes_per_s")
        past = np.where(self.way == GM, self.past, 1.0)  # share that misses the core's own cache
        gathered = np.maximum((1 - self.inside) * self.every, 1e-300)
        missed = np.minimum(self.table.count_misses(self.head) / gathered, past)  # and the shared cache too
        near = v("core_cache_latency_s") + self.row / rate
        middle = v("cache_latency_s") + self.row / rate
        far = v("row_latency_s") + self.row / rate
        mean = (1 - past) * near + (past - missed) * middle + missed * far
        rates = np.minimum(v("local_bytes_per_s"), rate / past)
        n = self.look_ups * (1 - self.inside)
        return equations.gm_time(n, self.row, mean, far, v("rows_in_flight"), rates, v("row_issue_s"))

    def _compute_slice_s(self) -> Array:
        """Time of the busiest slice of the shared cache: the one with the hottest row gathered [s]."""
        p, rows, _ = self.table.bins
        gathered = self.every * (1 - self.inside)
        bin_after = np.searchsorted(np.cumsum(rows), self.head, side="right")
        next_p = p.take(bin_after, mode="clip")  # of the first row that no buffer keeps
        after = np.minimum(self.every * next_p, gathered)
        hottest = np.where(self.way == GM, self.past_hottest * self.slices, after)
        requests = np.where(self.way == GM, self.past * self.every, gathered)
        rate = self.v("cache_bytes_per_s")
        return equations.slice_time(requests, hottest, self.row, self.v("cache_slices"), rate)

    def _count_row_bytes(self, passes: Array) -> tuple[Array, Array]:
        """Bytes of rows that all pieces read from (global memory, the shared cache) [bytes]."""
        table_bytes = self.table.rows * self.row
        again = 1.0 if table_bytes <= self.v("cache_bytes") else self.slices * passes
        past = np.where(self.way == GM, self.past, 1 - self.inside) * self.every
        missed = self.table.count_misses(self.head) * self.row
        memory = np.where(self.way == GM_UB, table_bytes * again, missed)
        cache = np.where(self.way == GM_UB, table_bytes * self.slices * passes, past * self.row)
        return memory + self.copied * self.parts, cache + self.copied * self.slices * self.parts
