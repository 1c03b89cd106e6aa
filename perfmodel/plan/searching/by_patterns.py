"""Plans from patterns of shards on ranks: an optimum of the bound by rooms in whole tables and ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.rooms import NearRooms
from perfmodel.plan.choices.options import Options
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.searching.packing import Packing, Scale, balance, in_domains

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-6


def by_patterns(evaluator: Evaluator, o: Options, near: NearRooms, limit_bytes: float) -> Packing | None:
    """As many ranks with each pattern as the optimum has whole ones; shards that are left on ranks that they
    fill least, the largest first.

    Limits: it does not fit the memory, shards that move by domains are beside others, or some ranks may not
            hold some tables -> None
    """
    together = o.exchange[near.shard] == Exchange.TWO_LEVEL
    if not near.ranks.size or together.any() != together.all() or o.bound_to_ranks.any():
        return None
    each = o.domain if together.any() else 1  # ranks that have the same
    option = _whole_tables(o, near)
    state = Packing(evaluator, o, limit_bytes)
    state.choose(range(option.size), option)
    tables = [np.flatnonzero(option == at) for at in near.shard]
    left = np.array([of.size for of in tables]) * o.parts[near.shard] // each
    number = _on_ranks(state, near, left, np.array([of.size for of in tables]), each)
    if number is None:
        return None
    for shard, of in enumerate(tables):
        places = np.repeat(np.arange(len(number)), number[:, shard])
        for turn, table in enumerate(of.tolist()):
            mine = np.sort(places[turn :: of.size])  # no two on one place: it has no more than ``of.size``
            state.put(table, in_domains(mine, o, int(near.shard[shard])) if each > 1 else mine)
    return state if all(ranks is not None for ranks in state.ranks) and state.fits else None


def _whole_tables(o: Options, near: NearRooms) -> Ints:
    """Options [T]: largest remainders, but copies are rounded down, for they need memory everywhere."""
    option = np.zeros(o.kind_of.size, dtype=np.int64)
    group = o.group[near.option]
    for kind in range(o.count.size):
        at = np.flatnonzero(group == kind)
        exact, count = near.tables[at], int(o.count[kind])
        whole = np.floor(exact + _ROUNDING).astype(np.int64)
        rest = exact - whole - (o.parts[near.option[at]] == 0)
        whole[np.argsort(-rest, kind="stable")[: count - int(whole.sum())]] += 1
        option[o.kind_of == kind] = np.repeat(near.option[at], whole)
    return option


def _on_ranks(state: Packing, near: NearRooms, left: Ints, most: Ints, each: int) -> Ints | None:
    """[G / each, m] how many shards each place gets: those ``left`` [m], at most ``most`` [m] of each option.

    Limits: a shard that has no place -> None
    """
    o = state.options
    places, m = o.gpus // each, near.shard.size
    number, place = np.zeros((places, m), dtype=np.int64), 0
    for pattern in np.argsort(-near.ranks, kind="stable"):
        for _ in range(int(near.ranks[pattern] / each + _ROUNDING)):
            if place < places:
                number[place] = np.minimum(np.minimum(near.number[pattern], left), most)
                left = left - number[place]
                place += 1
    own = o.own[near.shard]
    held, scale = number @ own, Scale.of(state.evaluator, balance(o, state.option))
    memory = state.memory[0] + number @ o.own_memory[near.shard]
    for shard in np.argsort(-scale.score(own), kind="stable"):
        for _ in range(int(left[shard])):
            score = scale.score(state.base + held + own[shard])
            full = memory + o.own_memory[near.shard[shard]] > state.limit_bytes
            score[(number[:, shard] >= most[shard]) | full] = np.inf
            at = int(np.argmin(score))
            if not np.isfinite(score[at]):
                return None
            held[at] += own[shard]
            memory[at] += o.own_memory[near.shard[shard]]
            number[at, shard] += 1
    return number
