"""All schemes of all tables in boxes: for each, loads and memory that none of its schemes is below.

A plan file may say any number of row parts, column parts and hot rows: too many to list. A box holds the
schemes of one kind of table and one exchange with row parts r1 .. r2, column parts c1 .. c2 and hot rows
h1 .. h2. It costs the least of each load over the box, so no plan is better than the best one of boxes. Where
that matters boxes are split, down to one scheme.

    everywhere >= the least at the corners of (r, h)
    total       = own r c >= the least at the corners;   own >= total / (r2 c)
    DRAM       >= the least that passes the L2, less the most that the L2 saves

Column parts are looked at one by one, but for those that leave parts as wide: of equal ceil(D / c) the least
c costs less in everything. Hot rows of uniform ids are mixes of a few shares of all rows (``hot_ends``).
Source: derived from ``model.exchanges`` and ``model.look_ups``: every load but the misses never falls as r
grows and is monotone in h; what the L2 saves is monotone in each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import BadInputError
from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.growing import Growing
from perfmodel.plan.choices.hot_ends import (
    ALL_HOT,
    NONE_HOT,
    READS_KEPT,
    VERTICES,
    Tables,
    vertex,
    worth_kinks,
)
from perfmodel.plan.pricing.cost import Evaluator

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

GROUP, EXCHANGE, R1, R2, C1, C2, H1, H2, WHAT = range(9)
"""Columns of boxes: kind of table, exchange, least and largest row parts, column parts and hot rows, and one
of ``WHATS``."""
SCHEMES, REST = range(NONE_HOT)
"""What a box is: schemes; those with so many hot rows that no load of the parts is counted; or, of uniform
ids, one of the shares of hot rows of ``hot_ends``, which all numbers of hot rows are above a mix of."""

_ROUNDING = 2e-3  # of what the L2 saves: misses of skewed ids are interpolated
_FINEST = 1.03  # h2 / h1 of a box that is not split further
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
    """Boxes [O, 9] that hold every scheme of Q kinds of table, with what they cost.

    Boxes keep their numbers: those that were split are not ``alive``, their parts come behind all others.

    ``count`` [Q], ``group``, ``exchange`` [O] and the values as in ``Options``
    several, mixed  [O] whether a box holds more than one scheme; whether it is a share of hot rows
    alike           [O] the same number for the shares of hot rows of one box, which are split together
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
        self.copies = evaluator.shard_loads(self.sample, int(Exchange.DP), 1, 1).everywhere
        self.worth = worth_kinks(evaluator, Tables.of(tables, self.sample, self.copies))
        self._kept: dict[str, Growing] = {}
        self.boxes_known = 0
        self._add(self._first())

    def _fits(self, boxes: Ints, values: Values) -> Mask:
        """[n] whether a scheme of a box may fit; of a share of hot rows, of any mix of it with others."""
        needs = values.own_memory + values.everywhere_memory
        fits = (needs <= self.limit_bytes) | (boxes[:, WHAT] >= NONE_HOT)
        return np.asarray(fits if self.allowed is None else fits & self.allowed(boxes))

    def _add(self, boxes: Ints) -> None:
        """Boxes of which a scheme may fit, behind those that there are."""
        values = self._values(boxes)
        fits = self._fits(boxes, values)
        new: dict[str, NDArray[Any]] = {name: getattr(values, name)[fits] for name in _VALUES}
        new["boxes"] = boxes[fits]
        new["alike"] = self.boxes_known + _alike(boxes[fits])
        self.boxes_known += len(boxes)
        new["alive"], new["several"] = np.ones(int(fits.sum()), dtype=bool), self._several(boxes[fits])
        for name, rows in new.items():
            if name in self._kept:
                self._kept[name].add(rows)
            else:
                self._kept[name] = Growing(rows)
        for name, kept in self._kept.items():
            setattr(self, name, kept.rows)
        self.group, self.exchange = self.boxes[:, GROUP], self.boxes[:, EXCHANGE]
        self.mixed = self.boxes[:, WHAT] >= NONE_HOT
        left = np.bincount(self.group[self.alive], minlength=self.count.size)
        if (left == 0).any():
            name = self.evaluator.tables.names[self.sample[int(np.argmin(left))]]
            raise BadInputError(
                f"table {name!r} fits nowhere.",
                "use more GPUs (--gpus) or memory (--max-hbm, --reserve).",
            )

    boxes: Ints
    alike: Ints
    alive: Mask
    several: Mask
    own: Array
    everywhere: Array
    average: Array
    own_memory: Array
    everywhere_memory: Array
    average_memory: Array

    def _first(self) -> Ints:
        """A few boxes for each kind of table; of uniform ids alike for all that are as wide and have as many
        parts."""
        found, known = list[Ints](), dict[Any, Ints]()
        for q in range(self.count.size):
            rows = min(self.rows[q], 2 * self.gpus) if self.uniform[q] else self.rows[q]
            key = int(rows), int(self.dim[q]), bool(self.uniform[q]), self.worth[q].tobytes()
            if key not in known:
                known[key] = np.array(list(self._first_boxes(q)), dtype=np.int64)
            boxes = known[key].copy()
            boxes[:, GROUP] = q
            found.append(boxes)
        return np.concatenate(found)

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
                    yield from self._shares(q, kind, r1, min(r2, rows - 1), c1, c2)
            yield from self._first_hot(q, kind)
        if G % g == 0:
            N = G // g
            for k1, k2 in dict.fromkeys(((1, 1), (2, N - 1), (N, N))):
                for c1, c2 in ((1, 1), (2, widest)):
                    if k1 <= k2:
                        yield from self._legal(q, Exchange.TWO_LEVEL, k1 * g, k2 * g, c1, c2, 0, 0)

    def _first_hot(self, q: int, kind: int) -> Iterator[tuple[int, ...]]:
        """Boxes of schemes with hot rows: by their number, or of uniform ids with all of them."""
        G, rows = self.gpus, int(self.rows[q])
        widest = min(int(self.dim[q]), G)
        for r1, r2 in ((1, 1), (2, min(rows - 1, G))):
            if r2 < r1 or rows == 1:
                continue
            if self.uniform[q]:
                for piece in self._legal(q, kind, r1, r2, 1, widest, 0, 0):
                    yield (*piece[:WHAT], ALL_HOT)
                continue
            for c1, c2 in ((1, 1), (2, widest)):
                for h1, h2 in _hot_ranges(rows - 1):
                    yield from self._legal(q, kind, r1, r2, c1, c2, h1, h2)

    def _shares(self, q: int, kind: int, r1: int, r2: int, c1: int, c2: int) -> Iterator[tuple[int, ...]]:
        """The shares of hot rows of uniform ids, but for all of them, that are worth a box."""
        if not self.uniform[q] or r1 > r2:
            return
        for what in VERTICES:
            if what != ALL_HOT and self.worth[q, what] and not (what == READS_KEPT and kind == Exchange.RB):
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
        total[rest] = 0
        memory = self._memory(b, r1, r2, c)
        values = self._least(of, everywhere, total, total / (r2 * c)[:, np.newaxis], memory)
        return self._mixed(boxes, values, of, everywhere, total, r2 * c)

    def _mixed(
        self, boxes: Ints, values: Values, of: Ints, everywhere: Array, total: Array, parts: Ints
    ) -> Values:
        """Of boxes that are shares of hot rows (``hot_ends``) what those cost."""
        at = np.flatnonzero(boxes[:, WHAT] >= NONE_HOT)
        if not at.size:
            return values
        start = np.flatnonzero(np.diff(of, prepend=-1))
        every = np.minimum.reduceat(everywhere, start, axis=0)[at]
        least = np.minimum.reduceat(total, start, axis=0)[at]
        for dram, l2 in self.gathers:
            saved = np.maximum.reduceat(total[:, l2] - total[:, dram], start)[at]
            least[:, dram] = least[:, l2] - saved
        b, q, t = boxes[at], boxes[at, GROUP], self.sample[boxes[at, GROUP]]
        shapes = Tables.of(self.evaluator.tables, t, self.copies[q])
        f = vertex(self.evaluator, b[:, WHAT], b[:, EXCHANGE], shapes, self.worth[q], every, least)
        most = np.maximum.reduceat(parts, start)[at, np.newaxis]
        values.own[at] = least / np.where(least > 0, most, 1)
        values.everywhere[at], values.average[at] = every, every + least / self.gpus
        whole = np.sum(self.evaluator.shard_memory(t, 1, 1), axis=0)
        values.own_memory[at] *= 1 - f
        values.everywhere_memory[at] = f * whole
        values.average_memory[at] = (1 - f) * values.average_memory[at] + f * whole
        return values

    def _memory(self, b: Ints, r1: Ints, r2: Ints, c: Ints) -> tuple[Array, Array, Array]:
        """Memory of one shard, of what every rank has, and of the mean rank [n]."""
        t, copied = self.sample[b[:, GROUP]], b[:, EXCHANGE] == Exchange.DP
        own = np.sum(self.evaluator.shard_memory(t, r2, c, b[:, H2]), axis=0)
        all_rows = np.sum(self.evaluator.shard_memory(t, 1, c, b[:, H2]), axis=0) * c
        hot = np.sum(self.evaluator.copied_memory(t, b[:, H1]), axis=0)
        mixed = b[:, WHAT] >= NONE_HOT
        one = (r1 == r2) & (b[:, H1] == b[:, H2]) & ~mixed
        spread = np.where(one, own * r2 * c, all_rows) / self.gpus
        whole = np.sum(self.evaluator.shard_memory(t, 1, 1), axis=0)
        hot, spread = hot + np.where(copied, whole, 0), np.where(copied, 0, spread)
        rows = self.rows[b[:, GROUP]]
        own *= np.where(mixed, rows / r2 / np.ceil(rows / r2), 1)
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

    def _several(self, b: Ints) -> Mask:
        """[n] whether boxes hold more than one scheme."""
        columns = np.bincount(self._column_parts(b)[0], minlength=len(b))
        several = (b[:, R1] < b[:, R2]) | (columns > 1) | (b[:, H2] > b[:, H1] * _FINEST)
        return np.asarray(several & (b[:, WHAT] != REST))

    def split(self, at: Ints) -> None:
        """Split these boxes, and with a share of hot rows the others of the same parts."""
        found = np.zeros(self.boxes_known, dtype=bool)
        found[self.alike[at]] = True
        at = np.flatnonzero(found[self.alike])
        at = at[self.several[at] & self.alive[at]]
        if at.size:
            self.alive[at] = False
            self._add(np.array([x for i in at for x in self._pieces(self.boxes[i].tolist())], dtype=np.int64))

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


def _alike(boxes: Ints) -> Ints:
    """[n] a number for each box, the same for shares of hot rows of the same parts but for all of them."""
    own = (boxes[:, WHAT] < NONE_HOT) | (boxes[:, WHAT] == ALL_HOT)
    parts = np.column_stack([boxes[:, : C2 + 1], np.where(own, np.arange(len(boxes)), -1)])
    keys = np.ascontiguousarray(parts).view([("", parts.dtype)] * parts.shape[1]).reshape(-1)
    return np.asarray(np.unique(keys, return_inverse=True)[1], dtype=np.int64)


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
    edges = [round(most ** (k / 16)) for k in range(17)] if most > 1 else [most]
    edges = sorted(set(edges))
    if len(edges) == 1 and edges[0] >= 1:
        yield edges[0], edges[0]
    yield from pairwise(edges)


def _widths(dim: int) -> Ints:
    """Column parts that are the fewest of their width."""
    c = np.arange(1, dim + 1)
    width = -(-dim // c)
    return np.asarray(c[np.concatenate([[True], np.diff(width) < 0])])
