"""All schemes of all tables in boxes: for each, loads and memory that none of its schemes is below.

A plan file may say any number of row parts, column parts and hot rows: too many to list. A box holds the
schemes of one kind of table and one exchange with row parts r1 .. r2, column parts c1 .. c2 and hot rows
h1 .. h2. It costs the least of each load over the box, so no plan is better than the best one of boxes. Where
that matters boxes are split, down to one scheme.

    everywhere >= the least at the corners of (r, h)
    total       = own r c >= the least at the corners;   own >= total / (r2 c)
    DRAM       >= the least that passes the L2, less the most that the L2 saves

Column parts are looked at one by one, but for those that leave parts as wide: of equal ceil(D / c) the least
c costs less in everything. Source: derived from ``model.exchanges`` and ``model.look_ups``: every load but
the misses never falls as r grows and is monotone in h; what the L2 saves is monotone in each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model.exchanges import Exchange
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.hot_ends import READ, Tables, all_hot, hot_rows_help, none_hot
from perfmodel.plan.loads import Resource
from perfmodel.plan.options import Options
from perfmodel.plan.placement import HOT

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

GROUP, EXCHANGE, R1, R2, C1, C2, H1, H2, WHAT = range(9)
"""Columns of boxes: kind of table, exchange, least and largest row parts, column parts and hot rows, and one
of ``WHATS``."""
WHATS = SCHEMES, REST, NONE_HOT, ALL_HOT = range(4)
"""What a box is: schemes; those with so many hot rows that no load of the parts is counted; or, of uniform
ids, an end of all numbers of hot rows: any scheme between is above a mix of both ends."""

_ROUNDING = 2e-3  # of what the L2 saves: misses of skewed ids are interpolated
_FINEST = 1.03  # h2 / h1 of a box that is not split further
_FAR = 1e3  # of schemes with another exchange
_ROW_STEP = 4  # r2 / r1 of the first boxes
_VALUES = ("own", "everywhere", "average", "own_memory", "everywhere_memory", "average_memory")


@dataclass(frozen=True, eq=False)
class Values:
    """What boxes cost, as ``Options``: own, everywhere, average [n, K]; the same of memory [n]."""

    own: Array
    everywhere: Array
    average: Array
    own_memory: Array
    everywhere_memory: Array
    average_memory: Array


class Cover:
    """Boxes [O, 9] that hold every scheme of Q kinds of table, with what they cost: a kind's side by side.

    ``count`` [Q], ``first`` [Q + 1], ``group``, ``exchange`` [O] and the values as in ``Options``
    limit_bytes  of a rank: boxes of which no scheme fits are left out
    allowed      whether any scheme of boxes [n, 9] may be: those of which none may are left out
    Limits: a kind of table that fits in no way -> BadInputError
    """

    def __init__(
        self, evaluator: Evaluator, limit_bytes: float, allowed: Callable[[Ints], Mask] | None = None
    ) -> None:
        self.evaluator, self.limit_bytes, self.allowed = evaluator, limit_bytes, allowed
        self.gpus, self.domain = evaluator.gpus, evaluator.domain
        self.sample, self.kind_of, self.count = evaluator.tables.kinds
        tables = evaluator.tables
        self.uniform = np.array([tables.ids[t].uniform for t in self.sample])
        self.rows, self.dim = (x[self.sample].astype(np.int64) for x in (tables.rows, tables.dim))
        self.widths = {int(D): _widths(int(D)) for D in np.unique(self.dim)}
        self.gathers = [tuple(int(x) for x in step.resources) for step in evaluator.steps if step.gathers]
        none = np.zeros(self.count.size, dtype=np.int64)
        self.copies = evaluator.shard_loads(self.sample, none, 1, 1).everywhere
        at = self.sample
        shapes = Tables(self.copies, tables.rows[at], tables.dim[at], tables.element_bytes[at])
        self.helped = hot_rows_help(evaluator, shapes)
        boxes = [box for q in range(self.count.size) for box in self._first_boxes(q)]
        self.boxes: Ints = np.array(boxes, dtype=np.int64)
        self._set(self.boxes, self._values(self.boxes))

    def _fits(self, boxes: Ints, values: Values) -> Mask:
        """[n] whether a scheme of a box may fit; of an end, of any mix of it with the other."""
        needs = values.own_memory + values.everywhere_memory
        fits = (needs <= self.limit_bytes) | (boxes[:, WHAT] >= NONE_HOT)
        return np.asarray(fits if self.allowed is None else fits & self.allowed(boxes))

    def _set(self, boxes: Ints, values: Values) -> Ints:
        order = np.argsort(boxes[:, GROUP], kind="stable")
        order = order[self._fits(boxes, values)[order]]
        self.boxes = boxes[order]
        self.values = Values(*(getattr(values, name)[order] for name in _VALUES))
        self.group, self.exchange = self.boxes[:, GROUP], self.boxes[:, EXCHANGE]
        self.first = np.searchsorted(self.group, np.arange(self.count.size + 1))
        if (np.diff(self.first) == 0).any():
            q = int(np.flatnonzero(np.diff(self.first) == 0)[0])
            name = self.evaluator.tables.names[self.sample[q]]
            raise BadInputError(
                f"table {name!r} fits nowhere.",
                "use more GPUs (--gpus) or memory (--max-hbm, --reserve).",
            )
        for name in _VALUES:
            setattr(self, name, getattr(self.values, name))
        mixed = (self.boxes[:, WHAT] == NONE_HOT)[:, np.newaxis]
        self.least_own = np.where(mixed, 0, self.own)
        return order

    own: Array
    least_own: Array
    everywhere: Array
    average: Array
    own_memory: Array
    everywhere_memory: Array
    average_memory: Array

    def _first_boxes(self, q: int) -> Iterator[tuple[int, ...]]:
        """A few boxes that hold every scheme of a kind of table."""
        G, g, rows = self.gpus, self.domain, int(self.rows[q])
        widest = min(int(self.dim[q]), G)
        yield (q, Exchange.DP, 1, 1, 1, 1, 0, 0, 0)
        if rows >= G:
            yield (q, Exchange.RS, G, G, 1, 1, 0, 0, 0)
        for kind in (Exchange.RB, Exchange.SPARSE, Exchange.UB):
            for c1, c2 in ((1, 1), (2, widest)):
                for r1, r2 in _row_ranges(min(rows, G), c1):
                    yield from self._legal(q, kind, r1, r2, c1, c2, 0, 0)
                    if self.uniform[q] and self.helped[q]:
                        yield from self._end(q, kind, r1, r2, c1, c2, NONE_HOT)
            yield from self._first_hot(q, kind)
        if G % g == 0:
            N = G // g
            for k1, k2 in dict.fromkeys(((1, 1), (2, N - 1), (N, N))):
                for c1, c2 in ((1, 1), (2, widest)):
                    if k1 <= k2:
                        yield from self._legal(q, Exchange.TWO_LEVEL, k1 * g, k2 * g, c1, c2, 0, 0)

    def _first_hot(self, q: int, kind: int) -> Iterator[tuple[int, ...]]:
        """Boxes of schemes with hot rows: by their number, or of uniform ids the two ends of all of them."""
        G, rows = self.gpus, int(self.rows[q])
        widest = min(int(self.dim[q]), G)
        for r1, r2 in ((1, 1), (2, min(rows - 1, G))):
            if r2 < r1 or rows == 1:
                continue
            if self.uniform[q]:
                yield from self._end(q, kind, r1, r2, 1, widest, ALL_HOT)
                continue
            for c1, c2 in ((1, 1), (2, widest)):
                for h1, h2 in _hot_ranges(rows - 1):
                    yield from self._legal(q, kind, r1, r2, c1, c2, h1, h2)

    def _end(
        self, q: int, kind: int, r1: int, r2: int, c1: int, c2: int, what: int
    ) -> Iterator[tuple[int, ...]]:
        """A box of schemes without hot rows as an end of all numbers of them."""
        for piece in self._legal(q, kind, r1, r2, c1, c2, 0, 0):
            yield (*piece[:WHAT], what)

    def _legal(
        self, q: int, kind: int, r1: int, r2: int, c1: int, c2: int, h1: int, h2: int
    ) -> Iterator[tuple[int, ...]]:
        """The part of a box that a plan may use: r c <= G, r <= E - h; in two where a corner has no rows."""
        G, rows, step = self.gpus, int(self.rows[q]), self._row_step(kind)
        c2 = min(c2, int(self.dim[q]), G // r1)
        r2 = min(r2, G // c1, rows - h1)
        r2, h2 = r2 - r2 % step, min(h2, rows - r1)
        if r1 > r2 or c1 > c2 or h1 > h2:
            return
        if h2 == 0 or r2 <= rows - h2:
            yield (q, kind, r1, r2, c1, c2, h1, h2, 0)
            return
        full = rows - r2
        if full >= h1:
            yield (q, kind, r1, r2, c1, c2, h1, full, 0)
        yield (q, kind, r1, r2, c1, c2, max(h1, full), h2, 1)

    def _row_step(self, kind: int) -> int:
        return self.domain if kind == Exchange.TWO_LEVEL else 1

    def _values(self, boxes: Ints) -> Values:
        """The least of each load over boxes."""
        of, c = self._column_parts(boxes)
        b = boxes[of]
        step = np.where(b[:, EXCHANGE] == Exchange.TWO_LEVEL, self.domain, 1)
        r1, r2 = b[:, R1], np.minimum(b[:, R2], self.gpus // c)
        r2 -= r2 % step
        rest = b[:, WHAT] == REST
        r2 = np.where(rest, r1, r2)
        everywhere = np.full((of.size, self.copies.shape[1]), np.inf)
        total, saved = everywhere.copy(), np.zeros((of.size, len(self.gathers)))
        wide, tall = r1 < r2, b[:, H1] < b[:, H2]
        corners = ((r1, H1, r1 > 0), (r2, H1, wide), (r1, H2, tall), (r2, H2, wide & tall))
        t, kind = self.sample[b[:, GROUP]], b[:, EXCHANGE]
        for r, column, new in corners:
            at, h = np.flatnonzero(new), b[:, column]
            loads = self.evaluator.shard_loads(t[at], kind[at], r[at], c[at], h[at])
            all_parts = loads.own * (r * c)[at, np.newaxis]
            everywhere[at] = np.minimum(everywhere[at], loads.everywhere)
            total[at] = np.minimum(total[at], all_parts)
            for k, (dram, l2) in enumerate(self.gathers):
                saved[at, k] = np.maximum(saved[at, k], all_parts[:, l2] - all_parts[:, dram])
        one = ~wide & ~tall
        for k, (dram, l2) in enumerate(self.gathers):
            least = np.maximum(total[:, l2] - saved[:, k] * (1 + _ROUNDING), 0)
            total[:, dram] = np.where(one, total[:, dram], np.minimum(least, total[:, dram]))
        near = self.uniform[b[:, GROUP]]
        total[near, Resource.GATHER_DRAM] *= READ
        everywhere[near, Resource.POOL_DRAM] *= READ
        total[rest] = 0
        self._ends(b, everywhere, total, saved[:, 0])
        return self._least(of, everywhere, total, total / (r2 * c)[:, np.newaxis], self._memory(b, r1, r2, c))

    def _ends(self, b: Ints, everywhere: Array, total: Array, saved: Array) -> None:
        """The ends of all numbers of hot rows (``hot_ends``), in place."""
        tables = self.evaluator.tables
        for what, change in ((NONE_HOT, none_hot), (ALL_HOT, all_hot)):
            at = np.flatnonzero(b[:, WHAT] == what)
            if at.size:
                q = b[at, GROUP]
                t = self.sample[q]
                of = Tables(self.copies[q], tables.rows[t], tables.dim[t], tables.element_bytes[t])
                some, parts = everywhere[at], total[at]
                change(self.evaluator, b[at, EXCHANGE], of, some, parts, saved[at])
                everywhere[at], total[at] = some, parts

    def _memory(self, b: Ints, r1: Ints, r2: Ints, c: Ints) -> tuple[Array, Array, Array]:
        """Memory of one shard, of what every rank has, and of the mean rank [n]."""
        t, copied = self.sample[b[:, GROUP]], (b[:, EXCHANGE] == Exchange.DP) | (b[:, WHAT] == ALL_HOT)
        own = np.sum(self.evaluator.shard_memory(t, r2, c, b[:, H2]), axis=0)
        all_rows = np.sum(self.evaluator.shard_memory(t, 1, c, b[:, H2]), axis=0) * c
        hot = np.sum(self.evaluator.copied_memory(t, b[:, H1]), axis=0)
        ends = self.uniform[b[:, GROUP]] & np.isin(b[:, EXCHANGE], HOT)  # also stand for hot rows
        one = (r1 == r2) & (b[:, H1] == b[:, H2]) & ~ends
        spread = np.where(one, own * r2 * c, all_rows) / self.gpus
        whole = np.sum(self.evaluator.shard_memory(t, 1, 1), axis=0)
        hot, spread = hot + np.where(copied, whole, 0), np.where(copied, 0, spread)
        rows = self.rows[b[:, GROUP]]
        own *= np.where(ends, rows / r2 / np.ceil(rows / r2), 1)
        own = np.where(copied | (b[:, WHAT] == REST), 0, own)
        return own, hot, hot + spread

    def _least(
        self, of: Ints, everywhere: Array, total: Array, own: Array, memory: tuple[Array, Array, Array]
    ) -> Values:
        """Of the column parts of each box."""
        start = np.flatnonzero(np.diff(of, prepend=-1))
        average = everywhere + total / self.gpus
        return Values(*(np.minimum.reduceat(x, start, axis=0) for x in (own, everywhere, average, *memory)))

    def _column_parts(self, boxes: Ints) -> tuple[Ints, Ints]:
        """(which box, column parts) of all column parts of boxes that are worth a look.

        The first are the fewest that leave parts as wide as ``C1`` do, even where those are not in the box.
        """
        of, parts = [], []
        for D, widths in self.widths.items():
            at = np.flatnonzero(self.dim[boxes[:, GROUP]] == D)
            first, last = boxes[at, C1], boxes[at, C2]
            low = np.searchsorted(widths, first, "right") - 1
            n = np.searchsorted(widths, last, "right") - low
            of.append(np.repeat(at, n))
            place = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n) + np.repeat(low, n)
            parts.append(widths[place])
        which, c = np.concatenate(of), np.concatenate(parts)
        order = np.argsort(which, kind="stable")
        return which[order], c[order]

    def nearest(self, options: Options, at: Ints) -> Ints:
        """Of boxes the options [n] that are most like one of their schemes."""
        found = np.zeros(at.size, dtype=np.int64)
        for i, box in enumerate(self.boxes[at]):
            of = np.arange(options.first[box[GROUP]], options.first[box[GROUP] + 1])
            hot = int(np.sqrt(max(box[H1], 1) * box[H2]))
            far = np.abs(np.log2(options.r[of] / box[R1])) + np.abs(np.log2(options.c[of] / box[C1]))
            far += np.abs(np.log2((options.hot[of] + 1) / (hot + 1)))
            kind = Exchange.DP if box[WHAT] == ALL_HOT else box[EXCHANGE]
            found[i] = of[np.argmin(far + _FAR * (options.exchange[of] != kind))]
        return found

    def splittable(self, at: Ints) -> Mask:
        """[n] whether boxes hold more than one scheme."""
        b = self.boxes[at]
        columns = np.bincount(self._column_parts(b)[0], minlength=at.size)
        several = (b[:, R1] < b[:, R2]) | (columns > 1) | (b[:, H2] > b[:, H1] * _FINEST)
        return np.asarray(several & (b[:, WHAT] != REST))

    def alike(self, at: Ints) -> Ints:
        """These boxes, and those of other exchanges with the same parts of the same kind of table."""
        ranges = np.ascontiguousarray(self.boxes[:, [GROUP, R1, R2, C1, C2, H1, H2]])
        keys = ranges.view([("", ranges.dtype)] * ranges.shape[1]).reshape(-1)
        return np.flatnonzero(np.isin(keys, keys[at]))

    def split(self, at: Ints) -> tuple[Ints, Ints]:
        """Split these boxes.

        Returns (old, new): pairs of a box as it was numbered and one that holds some of its schemes now.
        """
        keep = np.ones(len(self.boxes), dtype=bool)
        keep[at] = False
        pieces = [(int(i), piece) for i in at for piece in self._pieces(self.boxes[i].tolist())]
        new = np.array([piece for _, piece in pieces], dtype=np.int64)
        values = self._values(new)
        kept = np.flatnonzero(keep)
        old = np.concatenate([kept, [i for i, _ in pieces]]).astype(np.int64)
        boxes = np.concatenate([self.boxes[kept], new])
        merged = Values(
            *(np.concatenate([getattr(self.values, name)[kept], getattr(values, name)]) for name in _VALUES)
        )
        order = self._set(boxes, merged)
        return old[order], np.arange(order.size)

    def _pieces(self, box: list[int]) -> Iterator[tuple[int, ...]]:
        """The halves of a box in all that it is wide in."""
        q, kind, r1, r2, c1, c2, h1, h2, what = box
        widths = self.widths[int(self.dim[q])]
        several = np.searchsorted(widths, c1, "right") < np.searchsorted(widths, c2, "right")
        for a1, a2 in _halves(r1, r2, self._row_step(kind)):
            for b1, b2 in _halves(c1, c2) if several else [(c1, c2)]:
                for d1, d2 in _touching(h1, h2) if h2 > h1 * _FINEST else [(h1, h2)]:
                    for piece in self._legal(q, kind, a1, a2, b1, b2, d1, d2):
                        yield (*piece[:WHAT], what or piece[WHAT])


def _halves(low: int, high: int, step: int = 1) -> list[tuple[int, int]]:
    """Two ranges of whole numbers of steps; one where they are the same."""
    if low == high:
        return [(low, high)]
    middle = max(int(np.sqrt(low * high)) // step * step, low)
    return [(low, middle), (middle + step, high)]


def _touching(low: int, high: int) -> list[tuple[int, int]]:
    """Two ranges that share an end."""
    middle = max(int(np.sqrt(low * high)), low)
    return [(low, middle), (middle, high)] if middle > low else [(low, low), (low + 1, high)]


def _row_ranges(most: int, columns: int) -> Iterator[tuple[int, int]]:
    """Row parts of the first boxes."""
    yield 1, 1
    low, step = 2, _ROW_STEP if columns == 1 else most
    while low <= most:
        high = max(min(low * step - 1, most), low)
        yield low, high
        low = high + 1


def _hot_ranges(most: int) -> Iterator[tuple[int, int]]:
    """Hot rows of the first boxes."""
    edges = [round(most ** (k / 4)) for k in range(5)] if most > 1 else [most]
    edges = sorted(set(edges))
    if len(edges) == 1 and edges[0] >= 1:
        yield edges[0], edges[0]
    yield from pairwise(edges)


def _widths(dim: int) -> Ints:
    """Column parts that are the fewest of their width."""
    c = np.arange(1, dim + 1)
    width = -(-dim // c)
    return np.asarray(c[np.concatenate([[True], np.diff(width) < 0])])
