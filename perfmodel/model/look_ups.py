"""Look-ups of a table with skewed ids or replicated hot rows: shares, distinct rows and misses for a pass.

The h most popular rows of a table, its hot rows, get a share H(h) of the look-ups; all others are its tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model import access, host_rows
from perfmodel.model.popularity import Popularity, popularity
from perfmodel.model.recording import Array
from perfmodel.schema.distributions import Distribution


class Gather(IntEnum):
    """Kind of gather, by the set of rows that it reads."""

    SHARD = 0  # rows of a row part, for the samples of all ranks
    COPY = 1  # the whole table, for one rank's samples; in exchange ub, the rows that were sent to it
    REQUESTS = 2  # exchange ub: rows of a row part that ranks asked for, once per rank
    HOT = 3  # the replica of the hot rows, for one rank's samples


class LookUps:
    """Look-ups of one table by G ranks with B samples each.

    ids  distribution of the ids;  rows  E;  pooling  L, rows of a bag;  batch  B;  gpus  G
    In its methods, ``hot`` is h, the number of hot rows, which are replicated on every rank; the methods
    return numbers of the tail: of all other rows. Rows are spread over the r row parts at random. So each
    part has on average 1/r of the look-ups, of the distinct rows and of the misses; parts in caches of X rows
    each have as many misses as the whole tail in one cache of r X rows.
    Limits: the part with the hottest row has more look-ups (``fullest``); hot = 0 -> the whole table
    """

    def __init__(self, ids: Distribution, rows: float, pooling: float, batch: float, gpus: float) -> None:
        self.ids, self.rows, self.pooling = ids, rows, pooling
        self.mine, self.all = batch * pooling, gpus * batch * pooling
        self.gpus = gpus
        self.heads: tuple[float, ...] = ()  # numbers of hot rows at which popularities are split

    def prepare(self, heads: Iterable[float]) -> None:
        """Tabulate these numbers of hot rows in advance, so that they are quick to look up."""
        wanted = tuple(sorted({*self.heads, *(h for h in heads if h > 0)}))
        if wanted != self.heads:
            self.heads = wanted
            for name in ("whole", "requested"):
                self.__dict__.pop(name, None)

    @cached_property
    def whole(self) -> Popularity:
        """Popularity of the table's rows among look-ups."""
        return popularity(self.ids, self.rows, self.heads)

    @cached_property
    def requested(self) -> Popularity:
        """Popularity of the rows among requests, if each rank requests a row once per batch."""
        return _requested(self.ids, self.rows, self.heads, self.mine)

    def _at(self, hot: float) -> int:
        """Index, among the parts of ``Popularity``, of the first part of the tail."""
        if not hot:
            return 0
        if hot not in self.heads:
            self.prepare([hot])
        return self.heads.index(hot) + 1

    def hot_share(self, hot: float) -> float:
        """H, share of the look-ups that ask for hot rows [-]."""
        head = slice(0, self._at(hot))
        return min(self.whole.share(head), 1.0) if hot else 0.0

    def unique(self, hot: float, everywhere: bool = False) -> float:
        """U, distinct rows of the tail in the look-ups of one rank, or of all if ``everywhere`` [rows]."""
        draws, tail = self.all if everywhere else self.mine, slice(self._at(hot), None)
        return self.whole.unique(draws, tail)

    def distinct_in_bag(self, hot: float) -> float:
        """Distinct rows of the tail in a bag of L ids, over the share of its ids in the tail [rows].

            U(L) / (1 - H)                                                    [rows]

        H  share of ids that are hot rows
        If it replaces L, ``exchanges.filled_share`` counts a row that occurs twice in a bag only once.
        Limits: no row twice -> L;  all look-ups hot -> L
        """
        rest = 1 - self.hot_share(hot)
        if rest <= 0:
            return self.pooling
        return min(self.whole.unique(self.pooling, slice(self._at(hot), None)) / rest, self.pooling)

    def fullest(self, hot: float, r: float) -> float:
        """Look-ups of the row part with the hottest row, relative to the mean part.

            1 + (r - 1) p_1 / (1 - H)                                         [-]

        p_1  chance that a look-up asks for the hottest row of the tail;  H  share of the hot rows' look-ups
        All other loads are of the mean part, without this factor.
        Source: p_1 of the tail's 1 - H on one part, the rest spread evenly
        Limits: r = 1 -> 1;  uniform ids of many rows -> 1;  one row -> r;  all look-ups hot -> 1
        """
        rest, tail = 1 - self.hot_share(hot), slice(self._at(hot), None)
        p, _ = self.whole.bins(tail)
        return 1 + (r - 1) * float(p[0]) / rest if p.size and rest > 0 else 1.0

    def cached(self, share: float) -> tuple[float, float]:
        """(distinct rows of all ranks' look-ups, those that an LRU cache of a share of the rows misses).

        Source: ``host_rows.cache_misses``
        """
        p, rows = self.whole.bins(slice(None))
        missed = host_rows.cache_misses(p, rows, self.all, share * self.rows)
        return self.unique(0, everywhere=True), float(missed)

    def miss(self, gather: Gather, hot: float, X: ArrayLike) -> Array:
        """Share of the look-ups of a gather that miss a cache.

        gather  rows that it reads
        X  rows that the caches hold together [rows], any shape: r X for ``SHARD`` and ``REQUESTS``
        Limits: X = 0 -> 1;  no look-ups -> 0
        """
        at = self._at(hot)
        part = slice(0, at) if gather == Gather.HOT else slice(at, None)
        what, draws = self.whole, self.mine
        if gather == Gather.SHARD:
            draws = self.all
        elif gather == Gather.REQUESTS:
            what, draws = self.requested, self.gpus * self.unique(0)
        asked = draws * what.share(part)
        if asked <= 0:
            return np.zeros(np.shape(X))
        if np.size(X) > _FEW:
            return what.misses(draws, X, part) / asked
        few = tuple(np.ravel(X).tolist())
        return _misses(what, draws, few, part.start, part.stop).reshape(np.shape(X)) / asked


_FEW = 8
"""Number of cache sizes whose misses are remembered: passes with other exchanges have the same sizes."""


@lru_cache(maxsize=2**17)
def _misses(
    what: Popularity, draws: float, X: tuple[float, ...], start: int | None, stop: int | None
) -> Array:
    return what.misses(draws, np.array(X), slice(start, stop))


@lru_cache(maxsize=2048)
def _requested(ids: Distribution, rows: float, heads: tuple[float, ...], mine: float) -> Popularity:
    """Popularity of the rows among requests of all ranks: p = q/U, as a rank requests a row once per batch.

    mine  look-ups of one rank;  heads  numbers of hot rows, as in ``popularity``
    """
    whole = popularity(ids, rows, heads)
    q = access.touched_fraction(whole.p, mine)
    return Popularity(q / np.sum(q * whole.rows), whole.rows, whole.starts)
