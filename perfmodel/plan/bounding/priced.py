"""Options sorted by their exchange, and the cheapest options at given prices of mean loads and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes import work_units as units
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.steady import steady
from perfmodel.plan.bounding.problem import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

KINDS = len(Exchange)


@dataclass(frozen=True, eq=False)
class _Block:
    """The n options of one kind of exchange, sorted by kind of table (equal tables are one kind).

    option  [n] indices of the options;  memory  [n] memory, as a share of the limit
    loads   [n, J] mean loads of a rank from all tables of the kind, per pair of step and resource
    least   [n, J] lower bound on the busiest rank's load from a single such table
    largest [J] maximum of ``least``
    table   [m] the kinds of table that have options here;  first  [m] where the options of each begin
    of      [n] index into ``table``
    """

    option: Ints
    loads: Array
    memory: Array
    least: Array
    largest: Array
    table: Ints
    first: Ints
    of: Ints

    def where(self, value: Array, least: Array) -> Ints:
        """[m] for each kind of table, the first option whose ``value`` [n] is the least, ``least`` [m]."""
        hit = np.flatnonzero(value <= least[self.of])[::-1]
        found = np.zeros(least.size, dtype=np.int64)
        found[self.of[hit]] = hit
        return found


@dataclass(frozen=True, eq=False)
class Cheapest:
    """The cheapest options at some prices, for each of Q kinds of table.

    cost    [KINDS, Q] cost of all tables of a kind, by kind of exchange [us]; infinite without an option
    option  index of the cheapest options in each block, by kind of exchange
    most    [J] largest load that a shard was allowed to have
    """

    cost: Array
    option: dict[int, Ints]
    most: Array

    def of(self, kinds: Mask) -> Array:
        """[Q] least cost of each kind of table, with only the kinds of exchange in the mask ``kinds`` [6]."""
        return np.asarray(self.cost[kinds].min(axis=0))


@dataclass(frozen=True, eq=False)
class WholePlan:
    """A plan in which equal tables all have the same scheme.

    loads  [J] mean loads of a rank, per pair of step and resource;  memory  mean, as a share of the limit
    least  [J] lower bound on the busiest rank's load;  kinds  [6] which kinds of exchange it uses
    """

    loads: Array
    memory: float
    least: Array
    kinds: Mask


class Priced:
    """The options of a problem, grouped by kind of exchange, to be compared at prices.

    active  [J] for each pair of a step and its resource, whether its load counts
    """

    def __init__(self, problem: Problem, active: Ints) -> None:
        self.problem, self.active = problem, active
        self.limits: dict[tuple[int, bytes], Mask] = {}
        self.blocks = {int(kind): self._block(int(kind)) for kind in np.unique(problem.options.exchange)}

    def _block(self, kind: int) -> _Block:
        problem, o = self.problem, self.problem.options
        option = np.flatnonzero(o.exchange == kind)
        table, first, of = np.unique(o.group[option], return_index=True, return_inverse=True)
        count = problem.count[o.group[option]]
        pick = np.ix_(option, self.active)
        least = problem.own[pick] + problem.everywhere[pick]
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
        """The cheapest option of each kind of table.

        mean, room  prices of mean loads [J] and of all memory [us];  kinds  [6] allowed kinds of exchange
        most  [J] largest load that a shard may have
        """
        cost = np.full((KINDS, self.problem.count.size), np.inf)
        option, some = dict[int, Ints](), np.flatnonzero(mean)
        for kind, block in self.blocks.items():
            if not kinds[kind]:
                continue
            self.problem.curves.work.add(units.PRICED, block.option.size * some.size)
            each = steady(block.loads[:, some] @ mean[some] + room * block.memory)
            each[self._too_large(kind, most)] = np.inf
            cost[kind, block.table] = np.minimum.reduceat(each, block.first)
            option[kind] = block.where(each, cost[kind, block.table])
        return Cheapest(cost, option, most)

    def _too_large(self, kind: int, most: Array) -> Mask:
        """[n] which options with this kind of exchange have a shard whose load exceeds ``most`` [J]."""
        key = kind, most.tobytes()
        if key not in self.limits:
            block = self.blocks[kind]
            if len(self.limits) > len(self.blocks):
                self.limits.clear()  # of the part before
            over = np.flatnonzero(block.largest > most)
            self.limits[key] = np.asarray((block.least[:, over] > most[over]).any(axis=1))
        return self.limits[key]

    def point(self, cheapest: Cheapest) -> WholePlan | None:
        """A plan: each kind of table has its cheapest scheme. Limits: a kind without a scheme -> None"""
        kind = cheapest.cost.argmin(axis=0)
        if not np.isfinite(cheapest.cost[kind, np.arange(kind.size)]).all():
            return None
        loads, least, memory = np.zeros(self.active.size), np.zeros(self.active.size), 0.0
        for k in np.unique(kind).tolist():
            block = self.blocks[k]
            at = cheapest.option[k][kind[block.table] == k]
            loads += block.loads[at].sum(axis=0)
            memory += float(block.memory[at].sum())
            least = np.maximum(least, block.least[at].max(axis=0))
        kinds = np.isin(np.arange(KINDS), kind)
        return WholePlan(loads, memory, np.minimum(least, cheapest.most), kinds)
