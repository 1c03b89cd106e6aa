"""How often each row of a table is asked for, and the distinct rows, cache misses and hot rows that follow.

Rows are grouped into bins of equal popularity, most popular first. All results are sums over bins, so the
results for some rows (the hot rows, or all others) follow from their own bins and the draws n of the whole
table, of which they get their share.
The h most popular rows of a table, its hot rows, get a share H(h) of the look-ups; all others are its tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model import access
from perfmodel.model.recording import Array, as_array
from perfmodel.schema.workload import ONE_ROW, Distribution

BINS_PER_OCTAVE = 16
"""Bins per doubling of the rank under Zipf's law: results within 0.02 % of 256 bins per doubling."""
_DRAWS_PER_OCTAVE = 6
_MOST_DRAWS_LOG2 = 48
_MOST_KEPT = 64  # numbers of draws whose distinct rows are kept for reuse
_ALL_ASKED = 60.0  # expected draws of the rarest row after which no row is left out
_ROUNDED = 1 - 1e-9  # of a number of rows, which may be a little less than it should


@lru_cache(maxsize=2048)
def list_bins(ids: Distribution, E: float) -> tuple[Array, Array]:
    """(probability of a row per draw, number of rows) by bin of equal popularity, most popular first.

    The two arrays [bins] are cached and read-only.

        uniform       p = 1/E                                                 [-]
        one-row       p = 1 of one row; the others are never asked for
        zipf          ``access.build_zipf_bins``
        histogram     ``scale_histogram``

    ids  distribution of the ids;  E  rows of the table [rows], >= 1
    """
    arrays: tuple[Array, Array]
    if ids == ONE_ROW:
        arrays = np.ones(1), np.ones(1)
    elif ids.bins:
        row_share, lookup_share = np.array(ids.bins).T
        arrays = scale_histogram(E, row_share, lookup_share)
    elif ids.uniform:
        arrays = np.full(1, 1 / E), np.full(1, float(E))
    else:
        arrays = access.build_zipf_bins(E, ids.skew, BINS_PER_OCTAVE)
    for values in arrays:
        values.setflags(write=False)
    return arrays


def scale_histogram(E: float, row_share: ArrayLike, lookup_share: ArrayLike) -> tuple[Array, Array]:
    """Popularity of the rows of a table of E rows, scaled from the shares of another table.

        rows = r_b E,   p = a_b / (r_b E)                                     [rows], [-]

    E             rows of the table [rows], >= 1;  row_share  r_b, share of the rows in each bin [-], > 0
    lookup_share  a_b, share of the look-ups that ask for rows of the bin [-]
    Bins keep their share of the rows and of the look-ups: tables of one model differ in size, not in the
    shape of their popularity. A bin with less than one row gets a whole row: it takes the most popular rows
    of the next bin.
    Source: derived
    Limits: equal shares -> uniform;  E = 1 -> p = 1;  twice the rows -> half the p
    """
    share = as_array(row_share)
    lookups = as_array(lookup_share)
    order = np.argsort(-lookups / share, kind="stable")
    # Of each bin, most popular first: rows up to its end, and share of the look-ups up to there.
    ends = np.cumsum(share[order]) / share.sum() * E
    lookups_before = np.cumsum(lookups[order]) / lookups.sum()
    k = np.arange(ends.size)
    # Ends move so that each is at least one row after the one before, and before the last row.
    whole_rows = np.maximum(np.maximum.accumulate(ends - k), 1) + k
    whole_rows = whole_rows[: int(np.searchsorted(whole_rows, E - 1, side="right"))]
    edges = np.concatenate([[0], whole_rows, [E]])
    rows = np.diff(edges)
    bin_lookups = np.diff(np.interp(edges, np.append(0, ends), np.append(0, lookups_before)))
    looked_up = np.flatnonzero(bin_lookups)
    return bin_lookups[looked_up] / rows[looked_up], rows[looked_up]


class Popularity:
    """The popularity of a table's rows, with tables of distinct rows and misses that make look-ups fast.

    p, rows   of each bin, most popular first: chance that a draw asks for one of its rows, number of its rows
    starts    [S] consecutive bins are grouped in S parts: index of the first bin of each part
    A draw is a look-up by chance. The argument ``part`` of its methods is a slice of these parts.
    """

    def __init__(self, p: ArrayLike, rows: ArrayLike, starts: ArrayLike = (0,)) -> None:
        self.p = as_array(p)
        self.rows = as_array(rows)
        self.starts = np.asarray(starts, dtype=np.int64)
        self._unique: dict[tuple[float, int, int], float] = {}
        self._logs_of: dict[tuple[int, int], tuple[Array, Array, float, float, float]] = {}

    def bins(self, part: slice) -> tuple[Array, Array]:
        """(p, rows) of the bins of a part."""
        start, stop, _ = part.indices(self.starts.size)
        ends = [*self.starts.tolist(), self.p.size]
        return self.p[ends[start] : ends[stop]], self.rows[ends[start] : ends[stop]]

    def share(self, part: slice) -> float:
        """Share of the draws that ask for a row of the part [-]."""
        p, rows = self.bins(part)
        return float(np.sum(p * rows))

    def unique(self, n: float, part: slice) -> float:
        """U(n), distinct rows of the part among n draws of the table (``access.count_unique_rows``)."""
        key = (n, *part.indices(self.starts.size)[:2])
        if key not in self._unique:
            if len(self._unique) >= _MOST_KEPT:
                self._unique.clear()
            p, rows = self.bins(part)
            self._unique[key] = min(float(access.count_unique_rows(p, rows, n)), float(rows.sum()), n)
        return self._unique[key]

    @cached_property
    def _draws(self) -> Array:
        """Numbers of draws [I] of the table, from 1 until every row has been asked for."""
        with np.errstate(divide="ignore"):
            octaves = np.minimum(np.log2(_ALL_ASKED / self.p.min()), _MOST_DRAWS_LOG2)
        return np.asarray(2.0 ** (np.arange(int(octaves * _DRAWS_PER_OCTAVE) + 2) / _DRAWS_PER_OCTAVE))

    @cached_property
    def _draw_logs(self) -> Array:
        """ln of ``_draws`` [I], between which ``misses`` interpolates."""
        return np.log(self._draws)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """(U distinct rows, m chance that a draw misses) for each of ``_draws`` and part, [I, S].

        m = sum over bins of rows p (1 - p)^n   where rows stay for n draws (Che et al., 2002)   [-]
        """
        with np.errstate(divide="ignore"):
            stays = np.outer(self._draws, np.log1p(-self.p))
        left = np.exp(stays)
        missing = left * (self.rows * self.p)
        distinct = (1 - left) * self.rows
        used = self.starts[self.starts < self.p.size]
        return np.add.reduceat(distinct, used, axis=1), np.add.reduceat(missing, used, axis=1)

    def _of_part(self, part: slice) -> tuple[Array, Array, float, float, float]:
        """What ``misses`` needs of a part, computed once: (ln U [I], ln m [I], U of one draw, rows, share).

        U, m   as in ``_table``, for each of ``_draws``;  share  of the draws that ask for its rows
        """
        key = part.indices(self.starts.size)[:2]
        if key not in self._logs_of:
            distinct_of_parts, missing_of_parts = self._table
            distinct = distinct_of_parts[:, part].sum(axis=1)
            missing = missing_of_parts[:, part].sum(axis=1)
            with np.errstate(divide="ignore"):
                logs = np.log(distinct), np.log(np.maximum(missing, 1e-300))
            every = float(self.bins(part)[1].sum())
            self._logs_of[key] = (*logs, float(distinct[0]), every, self.share(part))
        return self._logs_of[key]

    def misses(self, n: float, X: ArrayLike, part: slice) -> Array:
        """Misses among n draws of the table that ask for rows of the part, in a cache of X rows for it.

            U(n)                         if n <= T_c  (nothing that was asked for has left yet)
            max(U(n), X + (n - T_c) m)   if n > T_c  (every row is missed once)   [rows]

        n   draws of the whole table [-], > 0;  X  rows that the cache, empty at first, holds [rows]
        T_c  draws for which a row stays in the cache (``access.find_characteristic_draws``)
        m   chance that a draw misses when rows stay for T_c draws. T_c and m are interpolated in logs of
            draws and rows: within 0.1 % of the draws
        Source: Che et al. (2002) for m and T_c; Lin et al., arXiv 2201.07821 has X for T_c
        Limits: X below U(1) -> every draw misses;  X >= all rows -> U(n)
        """
        if not self.bins(part)[1].size:
            return np.zeros(np.shape(X))
        distinct, missing, first, every, share = self._of_part(part)
        held = np.minimum(X, every)  # where all rows fit, none leaves
        unique = self.unique(n, part)
        with np.errstate(divide="ignore"):
            stays = np.exp(np.interp(np.log(held), distinct, self._draw_logs))  # T_c
            gone = np.exp(np.interp(np.log(stays), self._draw_logs, missing))  # m
        later = held + (n - stays) * gone
        missed = np.where(n <= stays, unique, np.maximum(later, unique))
        # A cache that holds less than the row of a first draw holds none.
        return np.asarray(np.minimum(np.where(held < first * _ROUNDED, n * share, missed), n * share))


@lru_cache(maxsize=4096)
def build_popularity(ids: Distribution, E: float, heads: tuple[float, ...] = ()) -> Popularity:
    """Popularity of a table of E rows in parts; a part ends after the h hottest rows, for h in ``heads``.

    ids    distribution of the ids
    heads  numbers of rows [rows], increasing, above 0; a part after all rows that are asked for is empty
    """
    p, rows = list_bins(ids, E)
    if not heads:
        return Popularity(p, rows)
    # A bin in which a part ends is cut in two, so that parts are whole bins.
    ends = np.cumsum(rows)
    ranks = np.minimum(heads, ends[-1])
    edges = np.union1d(ends, ranks)
    starts = np.searchsorted(edges, ranks) + 1
    cut = np.diff(edges, prepend=0.0)
    return Popularity(p[np.searchsorted(ends, edges)], cut, [0, *starts])


class Gather(IntEnum):
    """Kind of gather, by the set of rows that it reads."""

    SHARD = 0  # rows of a row part, for the samples of all ranks
    COPY = 1  # the whole table, for one rank's samples; in exchange ub, the rows that were sent to it
    REQUESTS = 2  # exchange ub: rows of a row part that ranks asked for, once per rank
    HOT = 3  # the replica of the hot rows, for one rank's samples


class LookUps:
    """Look-ups of one table by G ranks with B samples each.

    ids  distribution of the ids;  rows  E;  pooling  L, rows of a bag;  batch  B;  gpus  G
    mine, all  look-ups of one rank, B L, and of all, G B L;  heads  numbers of hot rows that are prepared
    In its methods, ``hot`` is h, the number of hot rows, which are replicated on every rank; the methods
    return numbers of the tail: of all other rows. Rows are spread over the r row parts at random. So each
    part has on average 1/r of the look-ups, of the distinct rows and of the misses; parts in caches of X rows
    each have as many misses as the whole tail in one cache of r X rows.
    Limits: the part with the hottest row has more look-ups (``fullest``); hot = 0 -> the whole table
    """

    def __init__(self, ids: Distribution, rows: float, pooling: float, batch: float, gpus: float) -> None:
        self.ids = ids
        self.rows = rows
        self.pooling = pooling
        self.gpus = gpus
        self.mine = batch * pooling
        self.all = gpus * batch * pooling
        self.heads: tuple[float, ...] = ()

    def prepare(self, heads: Iterable[float]) -> None:
        """Let a part of the popularities end after each of these numbers of hot rows, made once for all."""
        wanted = tuple(sorted({*self.heads, *heads} - {0.0}))
        if wanted != self.heads:
            self.heads = wanted
            for name in ("whole", "requested"):
                self.__dict__.pop(name, None)

    @cached_property
    def whole(self) -> Popularity:
        """Popularity of the table's rows among look-ups."""
        return build_popularity(self.ids, self.rows, self.heads)

    @cached_property
    def requested(self) -> Popularity:
        """Popularity of rows among requests of exchange ub: each rank asks for a row once per batch."""
        return _build_requested(self.ids, self.rows, self.heads, self.mine)

    def _find_tail(self, hot: float) -> int:
        """Index, among the parts of ``Popularity``, of the first part of the tail."""
        if not hot:
            return 0
        if hot not in self.heads:
            self.prepare([hot])
        return self.heads.index(hot) + 1

    def hot_share(self, hot: float) -> float:
        """H, share of the look-ups that ask for hot rows [-]."""
        head = slice(0, self._find_tail(hot))
        return min(self.whole.share(head), 1.0)

    def unique(self, hot: float, everywhere: bool = False) -> float:
        """U, distinct rows of the tail in the look-ups of one rank, or of all if ``everywhere`` [rows]."""
        draws = self.all if everywhere else self.mine
        return self.whole.unique(draws, slice(self._find_tail(hot), None))

    def distinct_in_bag(self, hot: float) -> float:
        """Distinct rows of the tail in a bag of L ids, over the share of its ids in the tail [rows].

            U(L) / (1 - H)                                                    [rows]

        H  share of ids that are hot rows
        If it replaces L, ``exchanges.filled_share`` counts a row that occurs twice in a bag only once.
        Limits: no row twice -> L;  all look-ups hot -> L
        """
        tail_share = 1 - self.hot_share(hot)
        if not tail_share:
            return self.pooling
        distinct = self.whole.unique(self.pooling, slice(self._find_tail(hot), None))
        return min(distinct / tail_share, self.pooling)

    def fullest(self, hot: float, r: float) -> float:
        """Look-ups of the row part with the hottest row, relative to the mean part.

            1 + (r - 1) p_1 / (1 - H)                                         [-]

        p_1  chance that a look-up asks for the hottest row of the tail;  H  share of the hot rows' look-ups
        All other loads are of the mean part, without this factor.
        Source: p_1 of the tail's 1 - H on one part, the rest spread evenly
        Limits: r = 1 -> 1;  uniform ids of many rows -> 1;  one row -> r;  all look-ups hot -> 1
        """
        tail_share = 1 - self.hot_share(hot)
        p, _ = self.whole.bins(slice(self._find_tail(hot), None))
        return 1 + (r - 1) * float(p[0]) / tail_share if p.size and tail_share else 1.0

    def cached(self, share: float) -> tuple[float, float]:
        """(distinct rows of all ranks' look-ups, those that a warm cache of a share of all rows misses)."""
        p, rows = self.whole.bins(slice(None))
        missed = access.count_cache_misses(p, rows, self.all, share * self.rows)
        return self.unique(0, everywhere=True), float(missed)

    def miss(self, gather: Gather, hot: float, X: ArrayLike) -> Array:
        """Share of the look-ups of a gather that miss a cache, of the shape of X.

        gather  which rows it reads;  hot  h, number of hot rows
        X  rows that the caches hold together [rows], any shape: r X for ``SHARD`` and ``REQUESTS``
        Limits: X = 0 -> 1;  no look-ups -> 0
        """
        place = self._find_tail(hot)
        rows = slice(0, place) if gather == Gather.HOT else slice(place, None)
        source = self.whole
        draws = self.mine
        if gather == Gather.SHARD:
            draws = self.all
        elif gather == Gather.REQUESTS:
            source = self.requested
            draws = self.gpus * self.unique(0)
        lookups = draws * source.share(rows)
        if not lookups:
            return np.zeros(np.shape(X))
        if np.size(X) > _FEW:
            return source.misses(draws, X, rows) / lookups
        few = tuple(np.ravel(X).tolist())  # hashable, to be remembered
        return _count_misses(source, draws, few, rows.start, rows.stop).reshape(np.shape(X)) / lookups


_FEW = 8
"""Number of cache sizes whose misses are remembered: passes with other exchanges have the same sizes."""


@lru_cache(maxsize=2**17)
def _count_misses(
    what: Popularity, draws: float, X: tuple[float, ...], start: int | None, stop: int | None
) -> Array:
    """``Popularity.misses`` of ``what``, remembered; start, stop  of the slice of parts."""
    return what.misses(draws, np.array(X), slice(start, stop))


@lru_cache(maxsize=2048)
def _build_requested(ids: Distribution, rows: float, heads: tuple[float, ...], mine: float) -> Popularity:
    """Popularity of the rows among requests of all ranks: p = q/U, as a rank requests a row once per batch.

    q  chance that a rank needs the row in a batch;  U  its sum over all rows, the requests of a rank
    mine  look-ups of one rank;  ids, rows, heads  as in ``build_popularity``
    """
    drawn = build_popularity(ids, rows, heads)
    q = access.compute_touched_share(drawn.p, mine)
    return Popularity(q / np.sum(q * drawn.rows), drawn.rows, drawn.starts)
