"""Shards on ranks: the state of a search, with loads and memory of every rank kept up to date."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel import effort
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHARPNESS = 3  # ranks are compared by the 2^3 th powers of their loads: the largest loads decide
_AT_ONCE = 8  # share of the ranks, 1/8, that get shards of equal tables together
_LAST_ROUNDS = 2  # of many equal tables that are placed one by one
_DUST_BYTES = 1e-3  # remainder of sums of floats that cancel


class Packing:
    """A plan during the search; some tables may have no ranks yet. T tables, K resources, G ranks.

    option  [T] index of each table's option, -1: none yet
    ranks   of each table, as in ``Placement.ranks``; None: not yet
    base    [K] loads that every rank has [bytes];  held  [G, K] other loads, of each rank's own shards
    memory  [G] rows and optimizer state [bytes]
    """

    def __init__(self, evaluator: Evaluator, options: Options, limit_bytes: float) -> None:
        self.evaluator, self.options, self.limit_bytes = evaluator, options, limit_bytes
        tables, resources = options.kind_of.size, options.own.shape[1]
        self.option: Ints = np.full(tables, -1, dtype=np.int64)
        self.ranks: list[Ints | None] = [None] * tables
        self.base = np.zeros(resources)
        self.held = np.zeros((options.gpus, resources))
        self.memory = np.zeros(options.gpus)

    def choose(self, tables: Sequence[int] | Ints, option: Ints) -> None:
        """Set the options of tables that have none; a table that every rank holds is placed at once."""
        o = self.options
        self.option[tables] = option
        self.base = self.base + o.everywhere[option].sum(axis=0)
        fixed = o.everywhere_held[option]
        self.base += o.own[option[fixed & (o.parts[option] > 0)]].sum(axis=0)
        self.memory += o.everywhere_memory[option].sum() + o.own_memory[option[fixed]].sum()
        everywhere = {int(at): on_all(o, int(at)) for at in np.unique(option[fixed])}
        for table, at in zip(np.asarray(tables).tolist(), option.tolist(), strict=True):
            self.ranks[table] = everywhere.get(at)

    def put(self, table: int, ranks: Ints) -> None:
        """Put the shards of a table on these ranks."""
        self.ranks[table] = ranks
        at = self.option[table]
        self.held[ranks] += self.options.own[at]
        self.memory[ranks] += self.options.own_memory[at]

    def clear(self, table: int) -> None:
        """Take a table off all ranks."""
        o, at, ranks = self.options, int(self.option[table]), self.ranks[table]
        self.base -= o.everywhere[at]
        self.memory -= o.everywhere_memory[at]
        if o.everywhere_held[at]:
            self.base -= o.own[at] * (o.parts[at] > 0)
            self.memory -= o.own_memory[at]
        elif ranks is not None:
            self.held[ranks] -= o.own[at]
            self.memory[ranks] -= o.own_memory[at]
            self.held[ranks] *= self.held[ranks] > _DUST_BYTES
        self.base *= self.base > _DUST_BYTES
        self.option[table], self.ranks[table] = -1, None

    def move(self, table: int, source: int, target: int) -> None:
        """Move a shard of a table from a rank to a rank that holds none of it."""
        ranks, at = self.ranks[table], self.option[table]
        assert ranks is not None
        self.ranks[table] = np.where(ranks == source, target, ranks)
        self.held[source] -= self.options.own[at]
        self.held[source] *= self.held[source] > _DUST_BYTES
        self.held[target] += self.options.own[at]
        self.memory[source] -= self.options.own_memory[at]
        self.memory[target] += self.options.own_memory[at]

    @property
    def most(self) -> Array:
        """Largest load of any rank, for each resource [bytes]."""
        return np.asarray(self.base + self.held.max(axis=0))

    @property
    def time_s(self) -> float:
        """Time of the step by ``Evaluator.estimate_times`` [s]."""
        return float(self.evaluator.estimate_times(self.most))

    def needs(self) -> Array:
        """Memory of every rank, including buffers of exchanges [bytes]."""
        return self.memory + self.evaluator.times.count_buffers((self.base + self.held).T)

    @property
    def fits(self) -> bool:
        """Whether every rank has the memory for what it holds."""
        return bool(self.needs().max() <= self.limit_bytes)

    def copy(self) -> Packing:
        """An independent copy of the state."""
        other = Packing(self.evaluator, self.options, self.limit_bytes)
        other.option, other.ranks = self.option.copy(), list(self.ranks)
        other.base, other.held, other.memory = self.base.copy(), self.held.copy(), self.memory.copy()
        return other

    def plan(self) -> Plan:
        """The state as a plan; all of its tables must be placed."""
        o, placements = self.options, []
        made: dict[tuple[int, bytes], Placement] = {}  # equal placements are one object
        for at, ranks in zip(self.option.tolist(), self.ranks, strict=True):
            assert ranks is not None
            key = at, ranks.tobytes()
            if key not in made:
                made[key] = Placement(o.scheme(at), ranks)
            placements.append(made[key])
        return Plan(self.evaluator.tables, tuple(placements), o.gpus, o.domain)


@dataclass(frozen=True, eq=False)
class Scale:
    """Measures how full a rank is: each load counts by the part of the step's time that it causes.

    target  [K] loads that count as full: of a balanced rank, or of the largest shard
    weight  [K] time that twice the load would cost
    sharpness  how often loads are squared: how much more the fullest rank counts; 0: all count equally
    """

    target: Array
    weight: Array
    sharpness: int = _SHARPNESS

    @staticmethod
    def of(evaluator: Evaluator, target: Array) -> Scale:
        """The scale whose full loads are ``target``, for each resource."""
        most = np.repeat(target[np.newaxis], target.size + 1, axis=0)
        most[np.arange(target.size), np.arange(target.size)] *= 2
        time = evaluator.estimate_times(most)
        return Scale(np.where(target > 0, target, 1), (time[:-1] - time[-1]) * (target > 0))

    def score(self, loads: Array) -> Array:
        """How full ranks are with these loads; the last axis of ``loads`` is the resource."""
        share: Array = loads / self.target
        for _ in range(self.sharpness):
            share = share * share
        return round_off(share @ self.weight)


def balance(options: Options, option: Ints) -> Array:
    """For each resource, the load of a rank with shards spread evenly, or if more, of the largest shard.

    option  of every table
    """
    everywhere = options.everywhere[option].sum(axis=0)
    largest = everywhere + options.own[option].max(axis=0)
    return np.asarray(np.maximum(options.average[option].sum(axis=0), largest))


def pack(
    evaluator: Evaluator, options: Options, option: Ints, limit_bytes: float, sharpness: int = _SHARPNESS
) -> Packing | None:
    """Places tables with these options on ranks: largest shards first, each on the least full ranks.

    option  of every table;  sharpness  as ``Scale.sharpness``
    Limits: no rank has memory for a shard -> None
    """
    evaluator.work.add(effort.PACKED_TABLE, option.size)
    state = Packing(evaluator, options, limit_bytes)
    state.choose(range(option.size), option)
    scale = replace(Scale.of(evaluator, balance(options, option)), sharpness=sharpness)
    size = scale.score(options.own[option] + state.base) + 1e-9 * options.own_memory[option] / limit_bytes
    order = np.lexsort((option, -size))
    order = order[~options.everywhere_held[option[order]]]
    for run in np.split(order, np.flatnonzero(np.diff(option[order])) + 1):
        at = _in_rounds(state, run, scale)
        while at < run.size:
            placed = _together(state, run[at:], scale)
            if not placed:
                return None
            at += placed
    return state if state.fits else None


def _together(state: Packing, tables: Ints, scale: Scale) -> int:
    """Place the first of several equal tables, or several of them at once; returns how many; 0: none fits."""
    o, option = state.options, int(state.option[tables[0]])
    count = min(tables.size, o.gpus // (_AT_ONCE * int(o.parts[option])))
    if count < 2 or tables.size < 2 * count:
        ranks = place(state, option, scale)
        if ranks is not None:
            state.put(int(tables[0]), ranks)
        return int(ranks is not None)
    order = _emptiest(state, option, scale)
    each = int(o.parts[option])
    each = each // o.domain if o.by_domain[option] else each
    count = min(count, order.size // each)
    for n in range(count):
        chosen = np.sort(order[n * each : (n + 1) * each])
        two = o.by_domain[option]
        state.put(int(tables[n]), in_domains(chosen, o, option) if two else chosen)
    return count


def _in_rounds(state: Packing, tables: Ints, scale: Scale) -> int:
    """Deal the first of many equal tables to ranks, equally many shards per rank; returns how many.

    The other tables are left for later: they fill ranks that were less full before, and a few rounds more.
    """
    o = state.options
    if not tables.size:
        return 0
    at = int(state.option[tables[0]])
    each, places = int(o.parts[at]), o.gpus
    if o.by_domain[at]:
        each, places = each // o.domain, o.gpus // o.domain
    period = places // math.gcd(each, places)  # number of tables after which ranks have equally many
    if tables.size <= _LAST_ROUNDS * period:
        return 0
    shards = period * each // places
    used = (o.own[at] > 0) & (scale.weight > 0)
    short = ((state.held.max(axis=0) - state.held)[:, used] / o.own[at][used]).max(axis=1, initial=0)
    left = int(np.ceil(short.sum() / max(o.parts[at], 1))) + _LAST_ROUNDS * period
    rounds = (tables.size - left) // period
    room = state.limit_bytes - float(state.needs().max())
    if o.own_memory[at] > 0:
        rounds = min(rounds, int(room / 2 / (o.own_memory[at] * shards)))
    if rounds <= 0:
        return 0
    turns = [_turn(o, at, n * each, each, places) for n in range(period)]
    for n, table in enumerate(tables[: rounds * period].tolist()):
        state.ranks[table] = turns[n % period]
    state.held += o.own[at] * (rounds * shards)
    state.memory += o.own_memory[at] * (rounds * shards)
    return rounds * period


def _turn(o: Options, option: int, first: int, each: int, places: int) -> Ints:
    """Ranks of a table that is dealt to ``each`` consecutive places, from the place ``first`` on.

    places  their number: ranks, or domains if the option's row parts fill domains
    """
    chosen = np.sort(np.arange(first, first + each) % places)
    return in_domains(chosen, o, option) if o.by_domain[option] else chosen


def place(state: Packing, option: int, scale: Scale) -> Ints | None:
    """Ranks for the shards of a table with this option: the ranks that are least full with a shard.

    Limits: too few ranks with memory -> None
    """
    o = state.options
    order = _emptiest(state, option, scale)
    if o.by_domain[option]:
        each = int(o.parts[option]) // o.domain
        return in_domains(np.sort(order[:each]), o, option) if order.size >= each else None
    each = int(o.parts[option])
    return np.asarray(np.sort(order[:each])) if order.size >= each else None


def _emptiest(state: Packing, option: int, scale: Scale) -> Ints:
    """Ranks with memory for a shard of this option, first the ranks that are least full with it.

    Limits: row parts that fill domains -> domains
    """
    o = state.options
    state.evaluator.work.add(effort.PLACED, state.held.size)
    loads = state.base + state.held + o.own[option]
    score = scale.score(loads)
    needs = state.memory + o.own_memory[option] + state.evaluator.times.count_buffers(loads.T)
    score[needs > state.limit_bytes] = np.inf
    if o.by_domain[option]:
        score = score.reshape(-1, o.domain).sum(axis=1)
    order = np.argsort(score, kind="stable")
    return np.asarray(order[: int(np.isfinite(score).sum())])


def on_all(o: Options, option: int) -> Ints:
    """Ranks of a table's shards with this option if every rank holds some; empty for a replica."""
    if o.by_domain[option]:
        return in_domains(np.arange(o.gpus // o.domain), o, option)
    return np.arange(o.parts[option])


def in_domains(chosen: Ints, o: Options, option: int) -> Ints:
    """Ranks of a table's shards on these domains, in the order of ``Placement.ranks``.

    chosen  the domains;  option  a cut whose row parts fill domains
    """
    each, columns = int(o.r[option]) // o.domain, int(o.c[option])
    ranks = chosen.reshape(columns, each)[:, :, np.newaxis] * o.domain + np.arange(o.domain)
    return np.asarray(ranks.reshape(columns, -1).T.reshape(-1))
