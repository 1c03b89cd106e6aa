"""Shards on ranks: the state of a search, with loads and memory of every rank kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel import effort
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.scheme_options import Options

Until = Callable[[], bool]  # whether to stop
_SHARPNESS = 3  # ranks are compared by the 2^3 th powers of their loads: the largest loads decide
_AT_ONCE = 8  # share of the ranks, 1/8, that get shards of equal tables together
_DUST_BYTES = 1e-3  # at most what rounding leaves of loads that were added and taken away: it counts as 0
_LESS = 1 - 1e-9  # of a time: another plan must be faster than this


def is_faster(time_s: Array | float, than_s: Array | float) -> Any:
    """Whether times are less than others by more than rounding errors of sums."""
    return time_s < than_s * _LESS


def drop_dust(loads: Array) -> Array:
    """Loads [bytes], without what rounding leaves of those that were added and taken away."""
    return loads * (loads > _DUST_BYTES)


class Packing:
    """A plan during the search; some tables may have no ranks yet. T tables, K resources, G ranks.

    option  [T] index of each table's option, if it has ranks
    ranks   of each table, as in ``Placement.ranks``; None: not yet
    base    [K] loads that every rank has [bytes];  held  [G, K] other loads, of each rank's shards
    memory  [G] rows and optimizer state [bytes]
    """

    def __init__(self, evaluator: Evaluator, options: Options, limit_bytes: float) -> None:
        self.evaluator = evaluator
        self.options = options
        self.limit_bytes = limit_bytes
        tables, resources = options.kind_of.size, options.shard.shape[1]
        self.option: Ints = np.zeros(tables, dtype=np.int64)
        self.ranks: list[Ints | None] = [None] * tables
        self.base = np.zeros(resources)
        self.held = np.zeros((options.gpus, resources))
        self.memory = np.zeros(options.gpus)

    def choose(self, tables: Sequence[int] | Ints, option: Ints) -> None:
        """Give tables that are on no ranks an option each; if every rank holds the table, it is placed."""
        o = self.options
        self.option[tables] = option
        self.base = self.base + o.everywhere[option].sum(axis=0)
        fixed = o.everywhere_held[option]
        self.base += o.shard[option[fixed]].sum(axis=0)
        self.memory += o.everywhere_memory[option].sum() + o.shard_memory[option[fixed]].sum()
        everywhere = {int(index): list_all_ranks(o, int(index)) for index in np.unique(option[fixed])}
        for table, index in zip(np.asarray(tables).tolist(), option.tolist(), strict=True):
            self.ranks[table] = everywhere.get(index)

    def put(self, table: int, ranks: Ints) -> None:
        """Put the shards of a table on these ranks."""
        self.ranks[table] = ranks
        option = self.option[table]
        self.held[ranks] += self.options.shard[option]
        self.memory[ranks] += self.options.shard_memory[option]

    def put_back(self, table: int, option: int, ranks: Ints) -> None:
        """Place a table that has no ranks, with this option on these ranks."""
        self.choose([table], np.array([option]))
        if self.ranks[table] is None:
            self.put(table, ranks)

    def clear(self, table: int) -> None:
        """Take a table, with its loads and its memory, off all ranks; ``choose`` may follow."""
        o = self.options
        option = int(self.option[table])
        ranks = self.ranks[table]
        self.base -= o.everywhere[option]
        self.memory -= o.everywhere_memory[option]
        if o.everywhere_held[option]:
            self.base -= o.shard[option]
            self.memory -= o.shard_memory[option]
        elif ranks is not None:
            self.held[ranks] = drop_dust(self.held[ranks] - o.shard[option])
            self.memory[ranks] -= o.shard_memory[option]
        self.base = drop_dust(self.base)
        self.ranks[table] = None

    def move(self, table: int, source: int, target: int) -> None:
        """Move a shard of a table from a rank to a rank that holds none of it."""
        ranks, option = self.ranks[table], self.option[table]
        assert ranks is not None
        self.ranks[table] = np.where(ranks == source, target, ranks)
        self.held[source] = drop_dust(self.held[source] - self.options.shard[option])
        self.held[target] += self.options.shard[option]
        self.memory[source] -= self.options.shard_memory[option]
        self.memory[target] += self.options.shard_memory[option]

    @property
    def busiest(self) -> Array:
        """Largest load of any rank, for each resource [bytes]."""
        return np.asarray(self.base + self.held.max(axis=0))

    @property
    def time_s(self) -> float:
        """Time of the step by ``Evaluator.estimate_times`` [s]."""
        return float(self.evaluator.estimate_times(self.busiest))

    @property
    def needs(self) -> Array:
        """Memory of every rank, including buffers of exchanges [bytes]."""
        return self.memory + self.evaluator.times.count_buffers((self.base + self.held).T)

    @property
    def fits(self) -> bool:
        """Whether every rank has the memory for what it holds."""
        return bool(self.needs.max() <= self.limit_bytes)

    def copy(self) -> Packing:
        """An independent copy of the state."""
        state = Packing(self.evaluator, self.options, self.limit_bytes)
        state.option = self.option.copy()
        state.ranks = list(self.ranks)
        state.base, state.held = self.base.copy(), self.held.copy()
        state.memory = self.memory.copy()
        return state

    def build_plan(self) -> Plan:
        """The state as a plan; all of its tables must be placed."""
        o = self.options
        placements = []
        shared: dict[tuple[int, bytes], Placement] = {}  # equal placements are one object
        for option, ranks in zip(self.option.tolist(), self.ranks, strict=True):
            assert ranks is not None
            key = option, ranks.tobytes()
            if key not in shared:
                shared[key] = Placement(o.build_scheme(option), ranks)
            placements.append(shared[key])
        return Plan(self.evaluator.tables, tuple(placements), o.gpus, o.domain)


@dataclass(frozen=True, eq=False)
class Scale:
    """Measures how full a rank is: each load counts by the part of the step's time that it causes.

    target  [K] loads that count as full: of a balanced rank, or of the largest shard
    weight  [K] time that twice the load would cost
    """

    target: Array
    weight: Array

    @staticmethod
    def build(evaluator: Evaluator, target: Array) -> Scale:
        """The scale on which a rank with the loads ``target`` [K] is full."""
        doubled = np.vstack([target + np.diag(target), target])
        time = evaluator.estimate_times(doubled)
        return Scale(np.where(target, target, np.inf), time[:-1] - time[-1])

    def score(self, loads: Array) -> Array:
        """How full ranks are [...] with loads [..., K]: a time to compare ranks by, no time of a pass."""
        share: Array = loads / self.target
        for _ in range(_SHARPNESS):
            share = share * share
        return round_off(share @ self.weight)


def compute_balance(options: Options, option: Ints) -> Array:
    """Loads [K] of a rank with shards spread evenly, or if more, the largest shard. option  of each table"""
    everywhere = options.everywhere[option].sum(axis=0)
    largest = everywhere + options.shard[option].max(axis=0)
    return np.asarray(np.maximum(options.average[option].sum(axis=0), largest))


def pack(evaluator: Evaluator, options: Options, option: Ints, limit_bytes: float) -> Packing | None:
    """Places tables with these options on ranks: largest shards first, each on the least full ranks.

    option  of every table;  Limits: no rank has memory for a shard -> None
    """
    evaluator.work.add(effort.PACKED_TABLE, option.size)
    state = Packing(evaluator, options, limit_bytes)
    state.choose(range(option.size), option)
    scale = Scale.build(evaluator, compute_balance(options, option))
    size = scale.score(options.shard[option] + state.base)
    size += 1e-9 * options.shard_memory[option] / limit_bytes  # among equal loads, most memory first
    order = np.lexsort((option, -size))
    order = order[~options.everywhere_held[option[order]]]
    for alike in np.split(order, np.flatnonzero(np.diff(option[order])) + 1):
        begin = 0
        while begin < alike.size:
            count = _place_first(state, alike[begin:], scale)
            if not count:
                return None
            begin += count
    return state if state.fits else None


def pack_as(plan: Plan, evaluator: Evaluator, options: Options, limit_bytes: float) -> Packing | None:
    """A plan as the state of a search. Limits: a table may not have its scheme -> None"""
    state = Packing(evaluator, options, limit_bytes)
    option_of: dict[tuple[int, Scheme], int | None] = {}
    for table, (kind, placement) in enumerate(zip(options.kind_of.tolist(), plan.placements, strict=True)):
        key = kind, placement.scheme
        if key not in option_of:
            option_of[key] = options.find(table, placement.scheme)
        option = option_of[key]
        if option is None:
            return None
        state.option[table] = option
    state.choose(range(state.option.size), state.option.copy())
    for table, placement in enumerate(plan.placements):
        if state.ranks[table] is None:
            state.put(table, placement.ranks)
    return state


def _place_first(state: Packing, tables: Ints, scale: Scale) -> int:
    """Place the first of some equal tables, or several of them at once; returns how many; 0: none fits.

    scale  says how full ranks are. Ranks are sorted anew for each table, or, while many tables are left, for
    as many as an eighth of the ranks takes.
    """
    o, option = state.options, int(state.option[tables[0]])
    order = _sort_emptiest(state, option, scale)
    places = count_places(o, option)
    count = min(o.gpus // (_AT_ONCE * int(o.parts[option])), order.size // places)
    count = count if count and tables.size >= 2 * count else min(order.size // places, 1)
    for table, chosen in zip(tables.tolist(), order[: count * places].reshape(count, places), strict=False):
        state.put(table, list_ranks(o, option, np.sort(chosen)))
    return count


def place(state: Packing, option: int, scale: Scale) -> Ints | None:
    """Ranks for the shards of a table with this option: the ranks that are least full with a shard.

    Limits: too few ranks with memory -> None
    """
    order = _sort_emptiest(state, option, scale)
    places = count_places(state.options, option)
    return None if order.size < places else list_ranks(state.options, option, np.sort(order[:places]))


def _sort_emptiest(state: Packing, option: int, scale: Scale) -> Ints:
    """Ranks with memory for a shard of this option, first the ranks that are least full with it.

    Limits: row parts that fill domains -> domains
    """
    o = state.options
    state.evaluator.work.add(effort.PLACED, state.held.size)
    loads = state.base + state.held + o.shard[option]
    score = scale.score(loads)
    needs = state.memory + o.shard_memory[option] + state.evaluator.times.count_buffers(loads.T)
    score[needs > state.limit_bytes] = np.inf
    if o.by_domain[option]:
        score = score.reshape(o.gpus // o.domain, o.domain).sum(axis=1)
    order = np.argsort(score, kind="stable")
    return np.asarray(order[: int(np.isfinite(score).sum())])


def count_places(o: Options, option: int) -> int:
    """Places of a table with this option: its shards, or the domains that its row parts fill."""
    return int(o.parts[option]) // (o.domain if o.by_domain[option] else 1)


def list_all_ranks(o: Options, option: int) -> Ints:
    """Ranks of a table's shards with this option if every rank holds some; empty for a replica."""
    return list_ranks(o, option, np.arange(count_places(o, option)))


def list_ranks(o: Options, option: int, places: Ints) -> Ints:
    """Ranks of a table's shards, in the order of ``Placement.ranks``, on these places (``count_places``)."""
    if not o.by_domain[option]:
        return places
    columns = int(o.c[option])
    ranks = np.repeat(places, o.domain) * o.domain + np.tile(np.arange(o.domain), places.size)
    return np.asarray(ranks.reshape(columns, ranks.size // columns).T.ravel())
