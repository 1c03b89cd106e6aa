"""Simulated annealing of a plan: shards move to other ranks and tables change schemes, at random.

Many random changes are evaluated together. If the fastest of them shortens the step, it is made. Otherwise
changes that keep the time are made, if they concern different ranks, so that a plan drifts between equally
fast plans. Otherwise a change that costs a little may be made; the cost allowed falls with time.
Source: Kirkpatrick, Gelatt and Vecchi, Science 220 (1983)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import Exchange
from perfmodel.engine.timing import round_off
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.searching.coordinate_descent import least_few
from perfmodel.plan.searching.local_search import others, put_back
from perfmodel.plan.searching.packing import Packing, in_domains, on_all

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOVES, _COOL_MOVES, _RECUTS = 256, 1024, 24  # changes that are evaluated together
_MOST_LOADS = 200_000  # of all recuts that are evaluated together
_SWAPS = 0.5  # of the moves
_BUSY, _COOL_BUSY = 0.5, 0.9  # of the moves: of shards on ranks that a step waits for
_EVERY = 4  # rounds: one of them recuts tables
_PRICED = 64  # rounds between two updates of the prices of schemes
_LESS = 1e-9
_SLOPE = 0.05  # of a load: step of the difference quotient
_SHARP = 3  # squarings of a time: the fullest resource of a rank counts most
_NOISE = 0.3  # of a rank's score, so that equal tables do not always go to the same ranks
_DUST = 1e-3  # bytes that rounding leaves of loads that were added and removed


class Annealing:
    """Changes a plan under search (``Packing``) by annealing.

    curves   times of the steps;  mask  options that tables may change to
    domains  True: only tables whose row parts fill domains move, by whole domains; False: all other shards
             move, rank by rank. A *place* in this class is a domain, or a rank
    cool     whether there are many tables: more moves are evaluated together, most of them of busy ranks
    """

    def __init__(
        self,
        state: Packing,
        curves: StepCurves,
        random: np.random.Generator,
        mask: Mask,
        *,
        domains: bool = False,
        cool: bool = False,
    ) -> None:
        o = self.options = state.options
        self.each = o.domain if domains else 1  # ranks of a place
        self.domains = domains
        self.moves, self.busy = (_COOL_MOVES, _COOL_BUSY) if cool else (_MOVES, _BUSY)
        self.state, self.curves, self.random = state, curves, random
        self.mask = mask
        self.option = state.option.copy()
        self.ranks = [np.asarray(of) for of in state.ranks]
        some = np.concatenate([np.flatnonzero(self.mask), self.option])
        used = (o.own[some] + o.everywhere[some]).any(axis=0)[curves.resource]
        used &= curves.times[curves.step, -1] > 0
        order = np.flatnonzero(used)
        self.resource, self.scale = curves.resource[order], curves.scale[order]
        self.steps, self.starts = np.unique(curves.step[order], return_index=True)
        self.own = o.own[:, self.resource] / self.scale
        self.everywhere = o.everywhere[:, self.resource] / self.scale
        self.average = o.average[:, self.resource] / self.scale
        self.base = state.base[self.resource] / self.scale
        self.held = state.held[:, self.resource] / self.scale
        self.memory = state.memory.copy()
        self.room = state.limit_bytes - float((state.needs() - state.memory).max())
        self.holds = np.zeros((self.option.size, o.gpus), dtype=bool)
        self._index()

    def _index(self) -> None:
        """List the table and the place of each shard that may move, or of each table's parts in a domain."""
        o = self.options
        held = ~o.everywhere_held[self.option]
        together = o.by_domain[self.option]
        tables = np.flatnonzero(held & (together == self.domains))
        places = [np.unique(self.ranks[table] // self.each) for table in tables]
        self.table = np.repeat(tables, [of.size for of in places])
        self.place = np.concatenate([*places, np.zeros(0, dtype=np.int64)])
        self.size, self.weight = self.own[self.option[self.table]], o.own_memory[self.option[self.table]]
        for table in np.flatnonzero(held):
            self.holds[table, self.ranks[table]] = True

    def _cut(self, table: int, option: int, ranks: Ints) -> None:
        """Give a table another option and other ranks, and update the lists of ``_index``."""
        o = self.options
        self.option[table] = option
        self.ranks = [*self.ranks[:table], ranks, *self.ranks[table + 1 :]]
        self.holds[table] = False
        places = np.zeros(0, dtype=np.int64)
        if not o.everywhere_held[option]:
            self.holds[table, ranks] = True
            if o.by_domain[option] == self.domains:
                places = np.unique(ranks // self.each)
        kept = self.table != table
        self.table = np.append(self.table[kept], np.full(places.size, table))
        self.place = np.append(self.place[kept], places)
        self.size, self.weight = self.own[self.option[self.table]], o.own_memory[self.option[self.table]]

    def run(self, rounds: int, until: Callable[[], bool], heat: float) -> bool:
        """Anneal in so many rounds; returns whether the plan became faster. If not, it is restored.

        heat  slowdown that is allowed at first, as a share of the time; it falls to 0;  until  whether to
              stop
        """
        now = self.time()
        first = best = now
        kept = self._state()
        for at in range(rounds):
            if at % _PRICED == 0:
                if until():
                    break
                self._price()
            warm = heat * first * (1 - at / rounds) ** 2
            now = self._recut(now, warm) if at % _EVERY == 0 else self._move(now, warm)
            if now < best * (1 - _LESS):
                best = now
                kept = self._state()
        return best < first * (1 - _LESS) and self._made(kept[0], self._placed(*kept))

    def _state(self) -> tuple[Ints, list[Ints], Ints, Ints]:
        """A copy of the plan: (option of each table, its ranks, table and place of each movable shard)."""
        return self.option.copy(), self.ranks, self.table, self.place.copy()

    def _placed(self, option: Ints, ranks: list[Ints], table: Ints, place: Ints) -> list[Ints]:
        """Ranks of every table, in the order of ``Placement.ranks``; arguments as returned by ``_state``."""
        ranks, order = list(ranks), np.argsort(table, kind="stable")
        tables, first = np.unique(table[order], return_index=True)
        for own, at in zip(tables.tolist(), np.split(place[order], first[1:]), strict=False):
            ranks[own] = in_domains(np.sort(at), self.options, int(option[own])) if self.domains else at
        return ranks

    def time(self) -> float:
        """Time of the current state [s], only of the steps whose loads these changes affect."""
        return float(self.times(self.base + self.held.max(axis=0)))

    def times(self, most: Array) -> Array:
        """Times of a pass with the largest loads ``most`` on any rank (last axis: step and resource) [s]."""
        u = np.maximum.reduceat(most, self.starts, axis=-1)
        return round_off(self.curves.between(self.steps, u).sum(axis=-1))

    def _price(self) -> None:
        """Update the present prices of loads, and so the list of cheap schemes of each kind of table."""
        o = self.options
        most = self.base + self.held.max(axis=0)
        each = np.repeat(most[np.newaxis], most.size + 1, axis=0)
        step = np.maximum(most, most.max() * 1e-6) * _SLOPE
        each[np.arange(most.size), np.arange(most.size)] += step
        time = self.times(each)
        slope = (time[:-1] - time[-1]) / step
        self.most, self.dear = np.maximum(most, 1e-9), slope * most
        price = round_off(self.average @ slope)
        allowed = np.flatnonzero(self.mask)
        segment = o.group[allowed] * len(Exchange) + o.exchange[allowed]
        self.few = allowed[least_few(segment, price[allowed])]
        self.begin = np.searchsorted(o.group[self.few], np.arange(o.count.size + 1))

    def _move(self, now: float, warm: float) -> float:
        """Try random moves of shards to other places, and swaps of two; returns the new time of the plan [s].

        now  the present time [s];  warm  slowdown that is allowed [s]
        """
        random, shards, places = self.random, self.table.size, len(self.held) // self.each
        if not shards or places < 2:
            return now
        one, busy = random.integers(shards, size=self.moves), self._busy(places)
        if busy.size:
            often = busy[random.integers(busy.size, size=self.moves)]
            one = np.where(random.random(self.moves) < self.busy, often, one)
        other = np.where(random.random(self.moves) < _SWAPS, random.integers(shards, size=self.moves), -1)
        source = self.place[one]
        target = np.where(other >= 0, self.place[other], random.integers(places, size=self.moves))
        possible = (source != target) & ~self.holds[self.table[one], target * self.each]
        possible &= (other < 0) | ~self.holds[self.table[other], source * self.each]
        one, other, source, target = (x[possible] for x in (one, other, source, target))
        if not one.size:
            return now
        swapped = (other >= 0)[:, np.newaxis]
        change = self.size[one] - self.size[other] * swapped
        held = self.held.reshape(places, self.each, -1).max(axis=1)
        memory = self.memory.reshape(places, self.each).max(axis=1)
        left, right = held[source] - change, held[target] + change
        weight = self.weight[one] - self.weight[other] * swapped[:, 0]
        fits = (memory[target] + weight <= self.room) | (weight <= 0)
        fits &= (memory[source] - weight <= self.room) | (weight >= 0)
        most = self.base + np.maximum(others(held, source, target), np.maximum(left, right))
        time = np.where(fits, self.times(most), np.inf)
        chosen = self._chosen(time, now, warm, source, target)
        for i in chosen:
            self._shift(int(one[i]), int(source[i]), int(target[i]))
            if other[i] >= 0:
                self._shift(int(other[i]), int(target[i]), int(source[i]))
        return float(time[chosen[0]]) if chosen.size == 1 else self.time()  # several may be faster together

    def _busy(self, places: int) -> Ints:
        """Indices of the shards on a place that has the largest load of some resource.

        places  number of places
        """
        full = np.zeros(places, dtype=bool)
        full[self.held.argmax(axis=0) // self.each] = True
        return np.flatnonzero(full[self.place])

    def _chosen(self, time: Array, now: float, warm: float, source: Ints, target: Ints) -> Ints:
        """Indices of the moves to make, among the moves whose times are in ``time``.

        now, warm  as in ``_move``;  source, target  place that each move leaves and reaches
        """
        best = int(np.argmin(time))
        if time[best] < now * (1 - _LESS):
            return np.array([best])
        free = self._apart(time <= now * (1 + _LESS), source, target)
        if free.size:
            return free
        return np.flatnonzero(time <= now + warm * self.random.exponential(size=time.size))[:1]

    def _apart(self, free: Mask, source: Ints, target: Ints) -> Ints:
        """Indices of moves in the mask ``free``, at most one per place."""
        at = np.flatnonzero(free)
        places = np.stack([source[at], target[at]], axis=1).reshape(-1)
        _, first = np.unique(places, return_index=True)
        alone = np.zeros(places.size, dtype=bool)
        alone[first] = True
        return at[alone.reshape(-1, 2).all(axis=1)]

    def _shift(self, shard: int, source: int, target: int) -> None:
        table = self.table[shard]
        self.place[shard] = target
        for place, sign in ((source, -1), (target, 1)):
            ranks = slice(place * self.each, (place + 1) * self.each)
            self.holds[table, ranks] = sign > 0
            self.held[ranks] += sign * self.size[shard]
            self.memory[ranks] += sign * self.weight[shard]

    def _recut(self, now: float, warm: float) -> float:
        """Try cheap schemes for random tables, on ranks with least load; returns the new time [s].

        now, warm  as in ``_move``
        """
        table, option = self._cheap_schemes()
        if not table.size:
            return now
        base, held, memory = self._without(table)
        base = base + self.everywhere[option]
        memory += self.options.everywhere_memory[option][:, np.newaxis]
        taken = self._ranks_for(option, base, held, memory)
        whole = self.options.everywhere_held[option] & (self.options.parts[option] > 0)
        base = base + self.own[option] * whole[:, np.newaxis]
        held += taken[:, :, np.newaxis] * self.own[option][:, np.newaxis]
        memory += (taken | whole[:, np.newaxis]) * self.options.own_memory[option][:, np.newaxis]
        time = self.times(base + held.max(axis=1))
        time[memory.max(axis=1) > np.maximum(self.room, self.memory.max())] = np.inf
        best = int(np.argmin(time))
        if time[best] >= now * (1 - _LESS):
            accepted = np.flatnonzero(time <= now + warm * self.random.exponential(size=time.size))
            if not accepted.size:
                return now
            best = int(accepted[0])
        self.base, self.held, self.memory = base[best], held[best], memory[best]
        ranks = self._places(int(option[best]), np.flatnonzero(taken[best]))
        self._cut(int(table[best]), int(option[best]), ranks)
        return float(time[best])

    def _cheap_schemes(self) -> tuple[Ints, Ints]:
        """(random tables, a cheap option for each), at the prices of ``_price``."""
        recuts = int(np.clip(_MOST_LOADS // self.held.size, 2, _RECUTS))
        table = self.random.integers(self.option.size, size=recuts)
        kind = self.options.kind_of[table]
        many = self.begin[kind + 1] - self.begin[kind]
        table, kind, many = (x[many > 0] for x in (table, kind, many))
        return table, self.few[self.begin[kind] + self.random.integers(many)]

    def _ranks_for(self, option: Ints, base: Array, held: Array, memory: Array) -> Mask:
        """Mask [n, G] of the ranks that get the shards in each of n trials: mostly the least loaded ranks.

        option  [n] option to place;  base [n, J], held [n, G, J], memory [n, G]  loads and memory without the
                table
        Limits: a replica, or a shard on every rank -> none;  row parts that fill domains -> whole domains
        """
        o = self.options
        loads = held + (base + self.own[option])[:, np.newaxis]
        score = loads / self.most
        for _ in range(_SHARP):
            score = score * score
        score = round_off(score @ self.dear) * (1 + _NOISE * self.random.random(held.shape[:2]))
        score[memory + o.own_memory[option][:, np.newaxis] > self.room] = np.inf
        parts = np.where(o.everywhere_held[option], 0, o.parts[option])
        taken = _least(score, parts)
        two = o.by_domain[option]
        if two.any():
            domains = score[two].reshape(int(two.sum()), -1, o.domain).sum(axis=2)
            taken[two] = np.repeat(_least(domains, parts[two] // o.domain), o.domain, axis=1)
        return taken

    def _places(self, option: int, ranks: Ints) -> Ints:
        """Ranks of the parts of a table, in the order of a placement."""
        o = self.options
        if o.everywhere_held[option]:
            return on_all(o, option)
        if o.by_domain[option]:
            return in_domains(np.unique(ranks // o.domain), o, option)
        return ranks

    def _without(self, table: Ints) -> tuple[Array, Array, Array]:
        """Loads and memory in n trials, each without one of the tables.

        Returns (loads that every rank has [n, J], other loads of each rank [n, G, J], memory [n, G]).
        """
        o, option = self.options, self.option[table]
        whole = (o.everywhere_held[option] & (o.parts[option] > 0))[:, np.newaxis]
        at, own = self.holds[table], o.own_memory[option][:, np.newaxis]
        base = self.base - self.everywhere[option] - self.own[option] * whole
        held = self.held - at[:, :, np.newaxis] * self.own[option][:, np.newaxis]
        memory = self.memory - o.everywhere_memory[option][:, np.newaxis] - own * (at | whole)
        return np.where(base > _DUST, base, 0), np.where(held > _DUST, held, 0), memory

    def _made(self, option: Ints, ranks: list[Ints]) -> bool:
        """Give all tables these options and ranks if the plan fits and is faster; returns whether it is."""
        state, before = self.state, self.state.time_s
        old = [(t, int(state.option[t]), np.asarray(state.ranks[t])) for t in range(option.size)]
        changed = [x for x in old if x[1] != option[x[0]] or not np.array_equal(x[2], ranks[x[0]])]
        for t, _, _ in changed:
            state.clear(t)
            put_back(state, t, int(option[t]), ranks[t])
        if state.fits and state.time_s < before * (1 - _LESS):
            return True
        for t, own, at in changed:
            state.clear(t)
            put_back(state, t, own, at)
        return False


def _least(score: Array, count: Ints) -> Mask:
    """Mask over ``score`` [n, m]: in row i, the count[i] smallest entries."""
    place = np.argsort(np.argsort(score, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(place < count[:, np.newaxis])
