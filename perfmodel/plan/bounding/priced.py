"""Options by their kind of exchange: what is cheapest at prices of mean loads and of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.problem import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Block:
    """The n options of one kind of exchange, those of one kind of table side by side.

    option  [n];  loads  [n, J] mean of all tables of the kind;  memory  [n] the same, shares of the limit
    least   [n, J] the busiest rank has no less of one such table
    largest [J] of those;  table  [m] kinds of table that have options here;  first  [m] where theirs begin
    of      [n] which of them each is of
    """

    option: Ints
    loads: Array
    memory: Array
    least: Array
    largest: Array
    table: Ints
    first: Ints
    of: Ints


@dataclass(frozen=True, eq=False)
class Cheapest:
    """What costs least at some prices.

    cost  [kinds of exchange, Q] of all tables of a kind [us], infinite where there is none
    price of each block of options, [n] each
    """

    cost: Array
    price: dict[int, Array]


@dataclass(frozen=True, eq=False)
class Point:
    """A scheme for every kind of table, which all of its tables have.

    loads  [J] mean of the ranks;  memory  mean, share of the limit;  least  [J] of the busiest rank
    kinds  [6] of exchange that it uses;  option  [Q]
    """

    loads: Array
    memory: float
    least: Array
    kinds: Mask
    option: Ints


class Priced:
    """The options of a problem that are alive.

    active  [J] resources, of those that steps wait for, that count
    """

    def __init__(self, problem: Problem, active: Ints) -> None:
        self.problem, self.active = problem, active
        o, alive = problem.options, np.flatnonzero(problem.alive)
        self.blocks = {
            int(kind): self._block(alive[o.exchange[alive] == kind]) for kind in np.unique(o.exchange[alive])
        }

    def _block(self, option: Ints) -> _Block:
        problem, o = self.problem, self.problem.options
        option = option[np.argsort(o.group[option], kind="stable")]
        table, first, of = np.unique(o.group[option], return_index=True, return_inverse=True)
        count = problem.count[o.group[option]]
        pick = np.ix_(option, self.active)
        least = problem.own[pick] + problem.everywhere[pick]
        if isinstance(o, Cover):
            least[o.mixed[option]] = 0.0  # with more hot rows a shard is smaller
        return _Block(
            option,
            np.asfortranarray(problem.average[pick] * count[:, np.newaxis]),
            o.average_memory[option] * count / problem.limit_bytes,
            np.asfortranarray(least),
            least.max(axis=0, initial=0),
            table,
            first,
            of.reshape(-1),
        )

    def cheapest(self, mean: Array, room: float, kinds: Mask, most: Array) -> Cheapest:
        """At prices of mean loads [J] and of all memory [us], among some kinds of exchange [6].

        most  [J] that the busiest rank may have
        """
        cost = np.full((len(Exchange), self.problem.count.size), np.inf)
        price, some = dict[int, Array](), np.flatnonzero(mean)
        for kind, block in self.blocks.items():
            if kinds[kind]:
                each = block.loads[:, some] @ mean[some] + room * block.memory
                for j in np.flatnonzero(block.largest > most):
                    each[block.least[:, j] > most[j]] = np.inf
                cost[kind, block.table] = np.minimum.reduceat(each, block.first)
                price[kind] = each
        return Cheapest(cost, price)

    def point(self, cheapest: Cheapest) -> Point | None:
        """The cheapest scheme of every kind of table. Limits: one that has none -> None"""
        kind = cheapest.cost.argmin(axis=0)
        tables = np.arange(kind.size)
        least = cheapest.cost[kind, tables]
        if not np.isfinite(least).all():
            return None
        loads, most = np.zeros(self.active.size), np.zeros(self.active.size)
        memory, option = 0.0, np.zeros(kind.size, dtype=np.int64)
        for k in np.unique(kind):
            block, price = self.blocks[int(k)], cheapest.price[int(k)]
            hit = np.flatnonzero(price <= cheapest.cost[k, block.table][block.of])
            where = np.zeros(kind.size, dtype=np.int64)
            where[block.table[block.of[hit[::-1]]]] = hit[::-1]  # the first of equal ones stays
            at = where[kind == k]
            loads += block.loads[at].sum(axis=0)
            memory += float(block.memory[at].sum())
            most = np.maximum(most, block.least[at].max(axis=0))
            option[kind == k] = block.option[at]
        return Point(loads, memory, most, np.isin(np.arange(len(Exchange)), kind), option)
