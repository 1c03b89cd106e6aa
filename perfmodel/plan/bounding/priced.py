"""Options by their kind of exchange: what is cheapest at prices of mean loads and of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.choices.hot_ends import held_whatever_hot

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

KINDS = len(Exchange)


@dataclass(frozen=True, eq=False)
class _Block:
    """The n options of one kind of exchange, those of one kind of table side by side.

    given   [n] the options in the order of their numbers;  option  [n]
    loads   [n, J] mean of all tables of the kind;  memory  [n] the same, shares of the limit
    least   [n, J] the busiest rank has no less of one such table;  largest  [J] of those
    table   [m] kinds of table that have options here;  first  [m] where theirs begin;  of  [n] which of them
    mixed   [J] whether a table may have a mix of its options, of which that is the mean; None: it may not
    """

    given: Ints
    option: Ints
    loads: Array
    memory: Array
    least: Array
    largest: Array
    table: Ints
    first: Ints
    of: Ints
    mixed: Mask | None

    def where(self, value: Array, least: Array) -> Ints:
        """[m] the first option of each kind of table whose value [n] is the least [m] of them."""
        hit = np.flatnonzero(value <= least[self.of])[::-1]
        found = np.zeros(least.size, dtype=np.int64)
        found[self.of[hit]] = hit
        return found


@dataclass(frozen=True, eq=False)
class _Mix:
    """Of m kinds of table the cheapest: a share of one option, and the rest of another."""

    cost: Array
    main: Ints
    share: Array
    rest: Ints


@dataclass(frozen=True, eq=False)
class Cheapest:
    """What costs least at some prices.

    cost  [2 x KINDS, Q] of all tables of a kind [us], infinite where there is none: of single options, and
          of mixes;  mix  of each block, by its row;  most [J] that the busiest rank may have
    """

    cost: Array
    mix: dict[int, _Mix]
    most: Array

    def of(self, kinds: Mask) -> Array:
        """[Q] with some kinds of exchange [6] alone."""
        return np.asarray(self.cost[np.tile(kinds, 2)].min(axis=0))


@dataclass(frozen=True, eq=False)
class WholePlan:
    """A scheme, or a mix of two, for every kind of table, which all of its tables have.

    loads  [J] mean of the ranks;  memory  mean, share of the limit;  least  [J] of the busiest rank
    kinds  [6] of exchange that it uses;  option  all that are used
    prices  [J + 1] of loads and memory at which it was the cheapest
    """

    loads: Array
    memory: float
    least: Array
    kinds: Mask
    option: Ints
    prices: Array


class Priced:
    """The options of a problem that are alive.

    active  [J] resources, of those that steps wait for, that count
    before  the same before boxes were split: what did not change is taken from there
    """

    def __init__(self, problem: Problem, active: Ints, before: Priced | None = None) -> None:
        self.problem, self.active = problem, active
        self.limits: dict[tuple[int, bytes], tuple[Mask | None, Array | None]] = {}
        o, alive = problem.options, np.flatnonzero(problem.alive)
        row = o.exchange[alive] + (KINDS * o.mixed[alive] if isinstance(o, Cover) else 0)
        self.blocks = dict[int, _Block]()
        for at in np.unique(row).tolist():
            given, known = alive[row == at], before.blocks.get(at) if before else None
            same = known is not None and np.array_equal(known.given, given)
            self.blocks[at] = known if known is not None and same else self._block(given, at)

    @property
    def kinds(self) -> list[int]:
        """Kinds of exchange that there are."""
        return sorted({row % KINDS for row in self.blocks})

    def _block(self, given: Ints, row: int) -> _Block:
        problem, o = self.problem, self.problem.options
        option = given[np.argsort(o.group[given], kind="stable")]
        table, first, of = np.unique(o.group[option], return_index=True, return_inverse=True)
        count = problem.count[o.group[option]]
        pick = np.ix_(option, self.active)
        least = problem.own[pick] + problem.everywhere[pick]
        mixed = None
        if row >= KINDS:
            mixed = ~held_whatever_hot(row % KINDS)[problem.curves.resource[self.active]]
        return _Block(
            given,
            option,
            np.asfortranarray(problem.average[pick] * count[:, np.newaxis]),
            o.average_memory[option] * count / problem.limit_bytes,
            np.asfortranarray(least),
            least.max(axis=0, initial=0),
            table,
            first,
            of.reshape(-1),
            mixed,
        )

    def cheapest(self, mean: Array, room: float, kinds: Mask, most: Array) -> Cheapest:
        """At prices of mean loads [J] and of all memory [us], among some kinds of exchange [6].

        most  [J] that the busiest rank may have
        """
        cost = np.full((2 * KINDS, self.problem.count.size), np.inf)
        mix, some = dict[int, _Mix](), np.flatnonzero(mean)
        for row, block in self.blocks.items():
            if not kinds[row % KINDS]:
                continue
            each = block.loads[:, some] @ mean[some] + room * block.memory
            large, share = self._limits(row, most)
            if large is not None:
                each[large] = np.inf
            mix[row] = _mix(block, each, share)
            cost[row, block.table] = mix[row].cost
        return Cheapest(cost, mix, most)

    def _limits(self, row: int, most: Array) -> tuple[Mask | None, Array | None]:
        """[n] which options of a block are too large, and the shares that others may have in a mix."""
        key = row, most.tobytes()
        if key not in self.limits:
            block, large = self.blocks[row], None
            over = block.largest > most
            for j in np.flatnonzero(over if block.mixed is None else over & ~block.mixed):
                larger = block.least[:, j] > most[j]
                large = larger if large is None else large | larger
            if len(self.limits) > len(self.blocks):
                self.limits.clear()  # of the part before
            self.limits[key] = large, _share(block, most)
        return self.limits[key]

    def point(self, cheapest: Cheapest, prices: Array) -> WholePlan | None:
        """The cheapest scheme of every kind of table, at ``prices``. Limits: one that has none -> None"""
        row = cheapest.cost.argmin(axis=0)
        if not np.isfinite(cheapest.cost[row, np.arange(row.size)]).all():
            return None
        loads, least = np.zeros(self.active.size), np.zeros(self.active.size)
        memory, option = 0.0, []
        for k in np.unique(row):
            block, mix = self.blocks[int(k)], cheapest.mix[int(k)]
            at = np.flatnonzero(row[block.table] == k)
            share, held = mix.share[at], np.zeros((at.size, self.active.size))
            for chosen, part in ((mix.main[at], share), (mix.rest[at], 1 - share)):
                used = part > 0
                chosen, part = chosen[used], part[used]
                loads += part @ block.loads[chosen]
                memory += float(part @ block.memory[chosen])
                held[used] += part[:, np.newaxis] * block.least[chosen]
                option.append(block.option[chosen])
            least = np.maximum(least, held.max(axis=0))
        kinds = np.isin(np.arange(KINDS), row % KINDS)
        least = np.minimum(least, cheapest.most)
        return WholePlan(loads, memory, least, kinds, np.concatenate(option), prices)


def _mix(block: _Block, price: Array, share: Array | None) -> _Mix:
    """The cheapest options [m] at prices [n]; or mixes of two where of one no more than a share [n] may be.

    The best takes one option as far as it may, and the cheapest of those that may be whole for the rest.
    """
    if share is None:
        cost = np.minimum.reduceat(price, block.first)
        main = block.where(price, cost)
        return _Mix(cost, main, np.ones(cost.size), main)
    whole = np.where(share < 1, np.inf, price)
    least = np.minimum.reduceat(whole, block.first)
    rest = np.where(np.isfinite(least), least, 0)[block.of]
    value = np.where(share < 1, share * price + (1 - share) * rest, price)
    value[(share < 1) & np.isinf(least)[block.of]] = np.inf
    cost = np.minimum.reduceat(value, block.first)
    main = block.where(value, cost)
    return _Mix(cost, main, share[main], block.where(whole, least))


def _share(block: _Block, most: Array) -> Array | None:
    """[n] how much of each option a mix may have at most, where a shard may have no more than ``most`` [J].

    Shares x of a mix have sum_o x_o own_oj <= most_j, so x_o <= most_j / own_oj: of the resource j alone in
    which an option of the table is largest, which leaves the cheapest mix a bound. None: all may be whole
    """
    over = np.flatnonzero((block.largest > most) & (False if block.mixed is None else block.mixed))
    if not over.size:
        return None
    ratio = block.least[:, over] / most[over]
    largest = np.maximum.reduceat(ratio, block.first, axis=0).argmax(axis=1)
    return np.asarray(1 / np.maximum(ratio[np.arange(len(ratio)), largest[block.of]], 1))
