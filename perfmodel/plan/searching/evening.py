"""Rebalances ranks in rounds, each with many moves and swaps of shards, at most one per rank.

A step waits for its busiest rank, and different steps wait for different ranks. So the objective is a sum
over ranks of high powers of their loads, weighted by the time that each load costs: a smooth maximum.
Tables whose row parts fill domains move by whole domains; a place is a domain for them, and else a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel import effort
from perfmodel.engine.timing import round_off
from perfmodel.plan.searching.local_search import put_back
from perfmodel.plan.searching.packing import Packing

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_WHOLE, _QUICK = ((3, 4, 5), 40, 192), ((5,), 12, 96)
"""(squarings: the 8th, 16th and 32nd power; rounds of each; shards that leave, and candidates for a swap)."""
_EMPTY = 64  # places that they go to
_OF_PLACE = 16  # shards of one place
_MADE = 400  # best changes of a round that are examined
_LOWER, _HIGHER = 0.1, 0.2  # of a load: steps of the difference quotients to either side
_LESS = 1e-6


@dataclass(frozen=True, eq=False)
class _Units:
    """The n things that move: a shard, or all parts of a table in a domain.

    table, place  [n] where each is;  weight  [n] its memory on a rank [bytes]
    size  [n, J] its load of each of J resources, relative to the largest load of any rank
    """

    table: Ints
    place: Ints
    size: Array
    weight: Array


class Evening:
    """Moves the shards of a plan under search (``Packing``) to other ranks; schemes stay as they are.

    quick  fewer rounds of fewer changes: most of the gain, in a tenth of the time
    """

    def __init__(self, state: Packing, random: np.random.Generator, *, quick: bool = False) -> None:
        self.state, self.random = state, random
        self.powers: tuple[int, ...]
        self.powers, self.rounds, self.full = _QUICK if quick else _WHOLE
        o = self.o = state.options
        self.cols = np.flatnonzero(state.held.any(axis=0))
        buffers = state.evaluator.times.count_buffers((state.base + state.held).T)
        self.room = state.limit_bytes - float(buffers.max())
        apart = ~o.everywhere_held[state.option]
        two = o.by_domain[state.option]
        self.movable = [(np.flatnonzero(apart & ~two), 1), (np.flatnonzero(apart & two), o.domain)]

    def run(self, until: Callable[[], bool]) -> bool:
        """Rebalance; returns whether the plan became faster. It ends in the fastest state of all rounds."""
        if not self.cols.size:
            return False
        state = self.state
        first = best = state.time_s
        kept = list(state.ranks)
        for squarings in self.powers:
            for _ in range(self.rounds):
                made = 0 if until() else sum(self._round(squarings, *of) for of in self.movable if of[0].size)
                now = state.time_s if made else best
                if now < best * (1 - _LESS) and state.fits:
                    best, kept = now, list(state.ranks)
                if not made:
                    break
        self._restore(kept)
        return best < first * (1 - _LESS)

    def _restore(self, kept: list[Ints | None]) -> None:
        state = self.state
        for table, ranks in enumerate(kept):
            if ranks is not state.ranks[table]:
                assert ranks is not None
                option = int(state.option[table])
                state.clear(table)
                put_back(state, table, option, ranks)

    def _weights(self) -> tuple[Array, Array]:
        """For each resource: (largest load of any rank, change of the time per relative change of load)."""
        state = self.state
        most, held = state.most, state.held.max(axis=0)
        held[held <= 0] = 1.0
        changed = np.repeat(most[np.newaxis], 2 * self.cols.size + 1, axis=0)
        n = np.arange(self.cols.size)
        changed[n, self.cols] -= _LOWER * held[self.cols]
        changed[n + n.size, self.cols] += _HIGHER * held[self.cols]
        time = state.evaluator.estimate_times(np.maximum(changed, 0))
        weight = (time[-1] - time[: n.size]) / _LOWER + (time[n.size : -1] - time[-1]) / _HIGHER
        return held[self.cols], np.maximum(weight, weight.max() * 1e-4)

    def _round(self, squarings: int, tables: Ints, each: int) -> int:
        """Make many changes at once; returns how many.

        squarings  how often loads are squared: the sharpness of the smooth maximum
        tables     that may move;  each  ranks of a place: 1, or the ranks of a domain
        """
        held, weight = self._weights()
        load = (self.state.held[:, self.cols] / held).reshape(-1, each, self.cols.size)
        score = round_off(_power(load, squarings) @ weight)
        full = round_off(score.sum(axis=1))
        units = self._units(tables, each, held)
        order = np.lexsort((-round_off(units.size @ weight), units.place, -full[units.place]))
        place = units.place[order]
        begins = np.flatnonzero(np.diff(place, prepend=-1))
        of_place = np.arange(order.size) - np.repeat(begins, np.diff(np.append(begins, order.size)))
        leave = order[of_place < _OF_PLACE][: self.full]
        back = order[order.size // 4 :]
        if back.size > self.full:
            back = np.sort(self.random.choice(back, self.full, replace=False))
        empty = np.argsort(full, kind="stable")[:_EMPTY]
        moves = self._gains(units, leave, empty, None, load, full, weight, squarings)
        swaps = self._gains(units, leave, units.place[back], back, load, full, weight, squarings)
        return self._make(units, np.concatenate([moves, swaps], axis=1), each)

    def _units(self, tables: Ints, each: int, held: Array) -> _Units:
        state, o = self.state, self.o
        places = [np.unique(state.ranks[t] // each) if each > 1 else state.ranks[t] for t in tables]
        table = np.repeat(tables, [of.size for of in places])
        option = state.option[table]
        size = o.own[option][:, self.cols] / held
        return _Units(table, np.concatenate(places), size, o.own_memory[option])

    def _gains(
        self,
        units: _Units,
        leave: Ints,
        to: Ints,
        back: Ints | None,
        load: Array,
        full: Array,
        weight: Array,
        squarings: int,
    ) -> Array:
        """Changes that help, [4, n]: gain, unit that moves, its new place, unit that comes back or -1.

        leave  units that may move;  to  places to move to;  back  the unit on each of these to swap with;
               None: moves
        load   of each rank;  full, weight  objective of each place, weight of each resource
        """
        source = units.place[leave]
        change = units.size[leave][:, np.newaxis]
        heavier = units.weight[leave][:, np.newaxis]
        if back is not None:
            change = change - units.size[back]
            heavier = heavier - units.weight[back]
        change = change[:, :, np.newaxis]
        self.state.evaluator.work.add(effort.EVENED, change.size * weight.size)
        left = np.maximum(load[source][:, np.newaxis] - change, 0)
        right = np.maximum(load[to][np.newaxis] + change, 0)
        after = round_off(((_power(left, squarings) + _power(right, squarings)) @ weight).sum(axis=-1))
        gain = full[source][:, np.newaxis] + full[to] - after
        memory = self.state.memory.reshape(load.shape[:2]).max(axis=1)
        fits = (memory[to] + heavier <= self.room) & (memory[source][:, np.newaxis] - heavier <= self.room)
        good = fits & (gain > _LESS * full.max()) & (source[:, np.newaxis] != to)
        u, d = np.nonzero(good)
        comes = np.full(u.size, -1) if back is None else back[d]
        return np.stack([gain[u, d], leave[u], to[d], comes])

    def _make(self, units: _Units, changes: Array, each: int) -> int:
        """Make the changes with the largest gains (``_gains``), at most one a place; returns how many."""
        touched: set[int] = set()
        made = 0
        order = np.argsort(-changes[0], kind="stable")[:_MADE]
        for unit, to, back in changes[1:, order].T.astype(np.int64).tolist():
            source = int(units.place[unit])
            if source in touched or to in touched:
                continue
            moves = [(int(units.table[unit]), source, to)]
            if back >= 0:
                moves.append((int(units.table[back]), to, source))
            if not all(self._free(table, target, each) for table, _, target in moves):
                continue
            if len({table for table, _, _ in moves}) < len(moves):
                continue
            for table, start, target in moves:
                self._shift(table, start, target, each)
            touched |= {source, to}
            made += 1
        return made

    def _free(self, table: int, target: int, each: int) -> bool:
        ranks = self.state.ranks[table]
        assert ranks is not None
        return not (ranks // each == target).any()

    def _shift(self, table: int, source: int, target: int, each: int) -> None:
        """Move a table's part from one place to another that holds none of it."""
        for rank in range(each):
            self.state.move(table, source * each + rank, target * each + rank)


def _power(value: Array, squarings: int) -> Array:
    for _ in range(squarings):
        value = value * value
    return value
