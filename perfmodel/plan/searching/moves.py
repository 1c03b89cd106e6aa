"""Moves and swaps of shards between ranks: candidates are evaluated together, the best is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.searching.packing import Packing, Scale

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_FULLEST = 4  # ranks that shards leave in one round
_EMPTIEST = 32  # ranks that they go to
_MOST_SHARDS = 24  # of one rank
_LESS = 1e-9
_TOP = 3  # fullest ranks that are examined, as two of them may change


class Moves:
    """Rebalances a plan under search (``Packing``): a shard moves to another rank, or two ranks swap shards.

    A move is accepted if the step's time falls, or if it stays and the ranks' loads become more even
    (``Scale``): if several ranks are equally full, a single move does not change the time.
    Tables whose row parts fill domains, and tables that are bound to ranks, stay where they are.
    """

    def __init__(self, state: Packing, scale: Scale) -> None:
        self.state, self.scale = state, scale
        o = state.options
        self.holds = np.zeros((state.option.size, o.gpus), dtype=bool)
        free = ~o.everywhere_held[state.option] & ~o.by_domain[state.option]
        free &= ~o.bound_to_ranks
        self.movable = free
        for table in np.flatnonzero(free):
            self.holds[table, state.ranks[table]] = True

    def run(self, rounds: int, until: Callable[[], bool]) -> int:
        """Make moves until none helps; returns how many were made."""
        if not self.movable.any():
            return 0
        for made in range(rounds):
            if until() or not (self._move() or self._swap()):
                return made
        return rounds

    def _fullest(self) -> Ints:
        """Ranks that some step waits for, most expensive steps first."""
        held, weight = self.state.held, self.scale.weight
        order = [k for k in np.argsort(-weight, kind="stable") if weight[k] > 0 and held[:, k].any()]
        ranks = [int(np.argmax(held[:, k])) for k in order]
        ranks.append(int(np.argmax(self.scale.score(self.state.base + held))))
        return np.array(list(dict.fromkeys(ranks))[:_FULLEST])

    def _emptiest(self) -> Ints:
        score = self.scale.score(self.state.base + self.state.held)
        return np.argsort(score, kind="stable")[:_EMPTIEST]

    def _shards(self, rank: int) -> Ints:
        """Tables with a shard on a rank, largest shards first; of several equal shards only the first."""
        tables = np.flatnonzero(self.holds[:, rank])
        option = self.state.option[tables]
        _, first = np.unique(option, return_index=True)
        size = self.scale.score(self.state.options.own[option[first]])
        return tables[first[np.argsort(-size, kind="stable")]][:_MOST_SHARDS]

    def _move(self) -> bool:
        """Make the best move of one shard, if one helps."""
        to = self._emptiest()
        found = []
        for rank in self._fullest():
            tables = self._shards(int(rank))
            t, d = (x.reshape(-1) for x in np.meshgrid(tables, to, indexing="ij"))
            possible = ~self.holds[t, d] & (d != rank)
            t, d = t[possible], d[possible]
            found.append(np.stack([np.full(t.size, rank), t, d, np.full(t.size, -1)]))
        return self._best(np.concatenate(found, axis=1))

    def _swap(self) -> bool:
        """Make the best swap of two shards, if one helps."""
        found = []
        to = self._emptiest()
        for rank in self._fullest():
            tables = self._shards(int(rank))
            for other in to:
                if other == rank:
                    continue
                back = self._shards(int(other))
                t, s = (x.reshape(-1) for x in np.meshgrid(tables, back, indexing="ij"))
                differ = self.state.option[t] != self.state.option[s]
                possible = differ & ~self.holds[t, other] & ~self.holds[s, rank]
                t, s = t[possible], s[possible]
                found.append(np.stack([np.full(t.size, rank), t, np.full(t.size, other), s]))
        return bool(found) and self._best(np.concatenate(found, axis=1))

    def _best(self, moves: Ints) -> bool:
        """Make the best of the moves, if it helps; returns whether it does.

        moves  [4, n] rank that each leaves, table, rank that it reaches, table that comes back or -1
        """
        if not moves.size:
            return False
        state = self.state
        time, uneven, fits = self.value(moves)
        now = state.time_s
        faster = fits & (time < now * (1 - _LESS))
        better = faster if faster.any() else fits & (time <= now * (1 + _LESS)) & (uneven < 0)
        if not better.any():
            return False
        order = np.lexsort((uneven, np.where(better, time, np.inf)))
        self.make(*(int(x) for x in moves[:, order[0]]))
        return True

    def value(self, moves: Ints) -> tuple[Array, Array, NDArray[np.bool_]]:
        """(time of the step [s], change of unevenness, whether it fits) after each move of ``_best``.

        Only two ranks change: the busiest of the others is among the three busiest ranks now.
        """
        state, o = self.state, self.state.options
        source, table, target, back = moves
        load, weight = o.own[state.option[table]], o.own_memory[state.option[table]]
        returns = np.where(back >= 0, state.option[back], 0)
        load = load - o.own[returns] * (back >= 0)[:, np.newaxis]
        weight = weight - o.own_memory[returns] * (back >= 0)
        left, right = state.held[source] - load, state.held[target] + load
        most = state.base + np.maximum(others(state.held, source, target), np.maximum(left, right))
        uneven = np.zeros(table.size)
        for rank, after in ((source, left), (target, right)):
            uneven += self.scale.score(state.base + after)
            uneven -= self.scale.score(state.base + state.held[rank])
        fits = np.ones(table.size, dtype=bool)
        for rank, after, sign in ((source, left, -1), (target, right, 1)):
            needs = state.memory[rank] + sign * weight
            needs = needs + state.evaluator.times.count_buffers((state.base + after).T)
            fits &= needs <= state.limit_bytes
        scale = self.scale.weight.sum()
        return state.evaluator.estimate_times(most), np.where(np.abs(uneven) > 1e-9 * scale, uneven, 0), fits

    def make(self, source: int, table: int, target: int, back: int) -> None:
        """Make one move."""
        for shard, gone, new in ((table, source, target), (back, target, source)):
            if shard < 0:
                continue
            ranks = self.state.ranks[shard]
            assert ranks is not None
            self.state.move(shard, gone, new)
            self.holds[shard, gone], self.holds[shard, new] = False, True


def others(held: Array, one: Ints, other: Ints) -> Array:
    """For n pairs of ranks, the largest load of each resource over all ranks except the pair, [n, K].

    held  [G, K] loads of the ranks, of which at most the three largest matter;  one, other  [n] the pair
    Limits: no other rank -> 0
    """
    count = min(_TOP, len(held))
    top = np.argpartition(-held, count - 1, axis=0)[:count]
    values = np.take_along_axis(held, top, axis=0)
    taken = (top == one[:, np.newaxis, np.newaxis]) | (top == other[:, np.newaxis, np.newaxis])
    return np.asarray(np.where(taken, 0, values).max(axis=1))
