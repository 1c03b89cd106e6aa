"""Rebalances ranks in rounds, each with many moves and swaps of shards, at most one per rank.

A step waits for its busiest rank, and different steps wait for different ranks. So the objective is a sum
over ranks of high powers of their loads, weighted by the time that each load costs: a smooth maximum.
Tables whose row parts fill domains move by whole domains; a place is a domain for them, and else a rank.
"""

from __future__ import annotations

import numpy as np

from perfmodel import effort
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.searching.packing import Packing, Until, is_faster

_WHOLE, _QUICK = ((3, 4, 5), 40, 192), ((5,), 12, 96)
"""(squarings: the 8th, 16th and 32nd power; rounds of each; shards that leave, and candidates for a swap)."""
_EMPTY = 64  # emptiest places, to which shards may go
_OF_PLACE = 16  # shards of one place
_CHANGES = 400  # best changes of a round that are examined
_LOWER, _HIGHER = 0.1, 0.2  # of a load: steps of the difference quotients to either side
_LEAST = 1e-6  # of the fullest place: the gain of a change


class Evening:
    """Moves the shards of a plan under search (``Packing``) to other ranks; schemes stay as they are.

    quick  fewer rounds of fewer changes: most of the gain, in a tenth of the time
    used, movable  resources of which ranks differ;  tables whose shards may move, with the ranks of a place
    """

    def __init__(self, state: Packing, random: np.random.Generator, *, quick: bool = False) -> None:
        """Find what may move: shards of tables that not every rank holds, by rank or by whole domain."""
        self.state = state
        self.random = random
        self.powers: tuple[int, ...]
        self.powers, self.rounds, self.full = _QUICK if quick else _WHOLE
        self.used = np.flatnonzero(state.held.any(axis=0))
        buffers = state.evaluator.times.count_buffers((state.base + state.held).T)
        self.room = state.limit_bytes - float(buffers.max())
        apart = ~state.options.everywhere_held[state.option]
        together = state.options.by_domain[state.option]
        movable = (apart & ~together, 1), (apart & together, state.options.domain)
        self.movable = [(np.flatnonzero(mask), ranks) for mask, ranks in movable if mask.any()]

    def run(self, until: Until) -> bool:
        """Rebalance; returns whether the plan became faster. It ends in the fastest state of all rounds."""
        if not self.used.size:
            return False
        state = self.state
        before = best = state.time_s
        ranks = list(state.ranks)
        for squarings in self.powers:
            for _ in range(self.rounds):
                if until() or not any([self._run_round(squarings, *group) for group in self.movable]):
                    break
                now = state.time_s
                if is_faster(now, best) and state.fits:
                    best = now
                    ranks = list(state.ranks)
        for table, places in enumerate(ranks):  # back to the fastest state
            if places is not state.ranks[table] and places is not None:
                option = int(state.option[table])
                state.clear(table)
                state.put_back(table, option, places)
        return bool(is_faster(best, before))

    def _run_round(self, squarings: int, tables: Ints, ranks: int) -> bool:
        """Move shards, or swap two, many at once; returns whether any. Arguments as of ``_Round``"""
        this = _Round(self, squarings, tables, ranks)
        order = np.lexsort((-round_off(this.size @ this.price), this.place, -this.full[this.place]))
        # Things in order: of the fullest place the most costly first, then of the next place; ``of_place``
        # is the number of each among those of its place.
        begins = np.sort(np.unique(this.place[order], return_index=True)[1])
        of_place = np.arange(order.size) - np.repeat(begins, np.diff(np.append(begins, order.size)))
        leave = order[of_place < _OF_PLACE][: self.full]  # the largest shards of the fullest places
        back = order[order.size // 4 :]  # some others, drawn at random, to swap with
        back = np.sort(self.random.choice(back, min(back.size, self.full), replace=False))
        empty = np.argsort(this.full, kind="stable")[:_EMPTY]
        moves = this.find_gains(leave, empty, None)
        swaps = this.find_gains(leave, this.place[back], back)
        return this.apply(np.concatenate([moves, swaps], axis=1))


class _Round:
    """The N things that move in a round (a shard, or all parts of a table in a domain), and what ranks hold.

    evening  the state, the J resources in use, and the memory of a rank for rows and optimizer state
    squarings  how often loads are squared: the sharpness of the smooth maximum
    tables     that may move;  ranks  of a place: 1, or the ranks of a domain
    table, place  [N] where each thing is;  weight  [N] its memory on a rank [bytes]
    size   [N, J] its load of each resource, relative to the largest load of any rank
    load   [places, ranks, J] of each rank, as relative;  full  [places] objective of each place
    price  [J] change of the time per relative change of a load
    """

    def __init__(self, evening: Evening, squarings: int, tables: Ints, ranks: int) -> None:
        state = self.state = evening.state
        used = evening.used
        self.room = evening.room
        self.squarings = squarings
        self.ranks = ranks
        held = state.held[:, used].max(axis=0)
        self.price = self._price_loads(used, held)
        self.load = (state.held[:, used] / held).reshape(state.options.gpus // ranks, ranks, used.size)
        self.full = round_off(round_off(self._raise_power(self.load) @ self.price).sum(axis=1))
        places = [np.unique(state.ranks[t] // ranks) for t in tables]
        self.table = np.repeat(tables, [few.size for few in places])
        self.place = np.concatenate(places)
        option = state.option[self.table]
        self.size = state.options.shard[option][:, used] / held
        self.weight = state.options.shard_memory[option]

    def _price_loads(self, used: Ints, held: Array) -> Array:
        """``price``, as quotients on both sides of the present loads. held  [J] largest of a rank"""
        step = np.diag(held)
        changed = np.repeat(self.state.busiest[np.newaxis], 2 * used.size + 1, axis=0)
        changed[: used.size, used] -= _LOWER * step
        changed[used.size : -1, used] += _HIGHER * step
        time = self.state.evaluator.estimate_times(changed)
        price = (time[-1] - time[: used.size]) / _LOWER + (time[used.size : -1] - time[-1]) / _HIGHER
        return np.asarray(np.maximum(price, price.max() * 1e-4))

    def _raise_power(self, load: Array) -> Array:
        """Loads squared ``squarings`` times: in sums of them the largest count."""
        for _ in range(self.squarings):
            load = load * load
        return load

    def find_gains(self, leave: Ints, to: Ints, back: Ints | None) -> Array:
        """Changes that lower the objective, [4, n]: gain, thing that moves, its new place, thing back or -1.

        leave  things that may move;  to  places to move to
        back   for each of these, the thing there that comes back in a swap;  None: none does, as in a move
        """
        source = self.place[leave]
        change = self.size[leave][:, np.newaxis]
        heavier = self.weight[leave][:, np.newaxis]
        if back is not None:
            change = change - self.size[back]
            heavier = heavier - self.weight[back]
        change = change[:, :, np.newaxis]
        self.state.evaluator.work.add(effort.EVENED, change.size * self.price.size)
        left = self.load[source][:, np.newaxis] - change  # what the old place has then
        right = self.load[to][np.newaxis] + change  # what the new place has
        powers = self._raise_power(left) + self._raise_power(right)
        after = round_off((powers @ self.price).sum(axis=-1))
        gain = self.full[source][:, np.newaxis] + self.full[to] - after
        memory = self.state.memory.reshape(self.load.shape[:2]).max(axis=1)
        fits = (memory[to] + heavier <= self.room) & (memory[source][:, np.newaxis] - heavier <= self.room)
        good = fits & (gain > _LEAST * self.full.max()) & (source[:, np.newaxis] != to)
        i, j = np.nonzero(good)
        comes = np.full(i.size, -1) if back is None else back[j]
        return np.stack([gain[i, j], leave[i], to[j], comes])

    def apply(self, changes: Array) -> bool:
        """Make the changes with the largest gains (``find_gains``), at most one a place; whether any."""
        touched: set[int] = set()
        order = np.argsort(-changes[0], kind="stable")[:_CHANGES]
        for thing, to, back in changes[1:, order].T.astype(np.int64).tolist():
            source, table = int(self.place[thing]), int(self.table[thing])
            if source in touched or to in touched:
                continue
            moves = [(table, source, to)]
            if back >= 0:
                moves.append((int(self.table[back]), to, source))
                if moves[1][0] == table:
                    continue
            # A place holds one part of a table at most.
            if any((self.state.ranks[t] // self.ranks == target).any() for t, _, target in moves):  # type: ignore[operator]
                continue
            for t, start, target in moves:
                for rank in range(self.ranks):
                    self.state.move(t, start * self.ranks + rank, target * self.ranks + rank)
            touched |= {source, to}
        return bool(touched)
