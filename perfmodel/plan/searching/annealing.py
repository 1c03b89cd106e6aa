"""Simulated annealing of a plan: shards move to other ranks and tables change schemes, at random.

Many random changes are evaluated together. If the fastest of them shortens the step, it is made. Otherwise
changes that keep the time are made, if they concern different ranks, so that a plan drifts between equally
fast plans. Otherwise a change that costs a little may be made; the cost allowed falls with time.
Source: Kirkpatrick, Gelatt and Vecchi, Science 220 (1983)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.bounding import StepCurves
from perfmodel.plan.choices.listing import Mask
from perfmodel.plan.choices.scheme_options import price_loads
from perfmodel.plan.searching.packing import Packing, Until, drop_dust, is_faster, list_all_ranks, list_ranks

_MOVES = 256  # that are evaluated together
_COOL_MOVES = 1024
_RECUTS = 24  # that are evaluated together, at most
_MOST_LOADS = 200_000  # of all recuts that are evaluated together
_SWAPS = 0.5  # of the moves
_BUSY = 0.5  # of the moves: of shards on ranks that a step waits for
_COOL_BUSY = 0.9
_EVERY = 4  # rounds: one of them recuts tables
_PRICED = 64  # rounds between two updates of the prices of schemes
_SHARP = 3  # squarings of a time: the fullest resource of a rank counts most
_NOISE = 0.3  # of a rank's score, so that equal tables do not always go to the same ranks


@dataclass(eq=False)
class Annealing:
    """Changes a plan under search (``Packing``) by annealing.

    curves   times of the steps;  mask  options that tables may change to
    domains  True: only tables whose row parts fill domains move, by whole domains; False: shards of all
             other tables move, each to another rank. A *place* here is a rank, or a domain of ``width`` ranks
    cool     whether there are many tables: more moves are evaluated together, most of them of busy ranks
    base, held, memory  as of ``Packing``;  holds  [T, G] whether a rank holds a part of a table that may move
    Loads are those of the J pairs of a step and a resource that these options use, as ``StepCurves``.
    """

    state: Packing
    curves: StepCurves
    random: np.random.Generator
    mask: Mask
    domains: bool = False
    cool: bool = False

    def __post_init__(self) -> None:
        """Copy the state, with loads of the J pairs in use alone, in bytes of each step's first resource."""
        state = self.state
        curves = self.curves
        o = self.options = state.options
        self.width = o.domain if self.domains else 1
        self.moves, self.busy = (_COOL_MOVES, _COOL_BUSY) if self.cool else (_MOVES, _BUSY)
        self.option = state.option.copy()
        self.ranks = [np.asarray(ranks) for ranks in state.ranks]
        possible = np.concatenate([np.flatnonzero(self.mask), self.option])
        used = (o.shard[possible] + o.everywhere[possible]).any(axis=0)[curves.resource]
        order = np.flatnonzero(used & curves.times[curves.step].any(axis=1))
        resource, scale = curves.resource[order], curves.scale[order]
        self.steps, self.starts = np.unique(curves.step[order], return_index=True)
        self.shard = o.shard[:, resource] / scale
        self.everywhere = o.everywhere[:, resource] / scale
        self.average = o.average[:, resource] / scale
        self.base = state.base[resource] / scale
        self.held = state.held[:, resource] / scale
        self.memory = state.memory.copy()
        self.room = state.limit_bytes - float((state.needs - state.memory).max())
        self.holds = np.zeros((self.option.size, o.gpus), dtype=bool)
        for table in np.flatnonzero(~o.everywhere_held[self.option]):
            self.holds[table, self.ranks[table]] = True
        places = [self._find_places(table) for table in range(self.option.size)]
        tables = np.repeat(np.arange(self.option.size), [few.size for few in places])
        self._list_movable(tables, np.concatenate(places))

    def _find_places(self, table: int) -> Ints:
        """Places of a table's parts that may move."""
        option = self.option[table]
        movable = not self.options.everywhere_held[option] and self.options.by_domain[option] == self.domains
        return np.unique(self.ranks[table] // self.width) if movable else np.zeros(0, dtype=np.int64)

    def _list_movable(self, table: Ints, place: Ints) -> None:
        """Set the table, the place, the loads (size) and the memory (weight) of each shard that may move."""
        self.table, self.place = table, place
        self.size = self.shard[self.option[table]]
        self.weight = self.options.shard_memory[self.option[table]]

    def run(self, rounds: int, until: Until, heat: float) -> bool:
        """Anneal in so many rounds; returns whether the plan became faster. If not, it is unchanged.

        heat  slowdown that is allowed at first, as a share of the time; it falls to 0
        """
        before = best = now = self.time_s
        # The fastest state up to now, as ``place_shards`` takes it.
        snapshot: tuple[Ints, list[Ints], Ints, Ints] | None = None
        for turn in range(rounds):
            if not turn % _PRICED:
                if until():
                    break
                self._price_schemes()
            warm = heat * before * (1 - turn / rounds) ** 2  # slowdown that is allowed [s]
            now = self._move_shards(now, warm) if turn % _EVERY else self._recut_table(now, warm)
            if is_faster(now, best):
                best = now
                snapshot = self.option.copy(), self.ranks, self.table, self.place.copy()
        return snapshot is not None and self._apply(snapshot[0], self.place_shards(*snapshot))

    def place_shards(self, option: Ints, ranks: list[Ints], table: Ints, place: Ints) -> list[Ints]:
        """Ranks of every table, in the order of ``Placement.ranks``.

        option, ranks  of each table, before its shards moved;  table, place  of each shard that may move
        """
        ranks = list(ranks)
        order = np.argsort(table, kind="stable")
        tables, begin = np.unique(table[order], return_index=True)
        for t, places in zip(tables.tolist(), np.split(place[order], begin[1:]), strict=False):
            ranks[t] = list_ranks(self.options, int(option[t]), np.sort(places)) if self.domains else places
        return ranks

    @property
    def time_s(self) -> float:
        """Time of the current state [s], only of the steps whose loads these changes affect."""
        return float(self.time_loads(self.base + self.held.max(axis=0)))

    def time_loads(self, busiest: Array) -> Array:
        """Times of a pass with these largest loads of any rank, [..., J] [s]."""
        u = np.maximum.reduceat(busiest, self.starts, axis=-1)
        return round_off(self.curves.interpolate(self.steps, u).sum(axis=-1))

    def _price_schemes(self) -> None:
        """Update the present prices of loads, and so the cheap options of each kind of table.

        full, price  [J] loads of the busiest rank, and the time that they cost;  cheap, begin  cheap options,
        and where those of each kind begin among them
        """
        o = self.options
        busiest = self.base + self.held.max(axis=0)
        slope = price_loads(self.time_loads, busiest)
        self.full = np.maximum(busiest, 1e-9)
        self.price = slope * busiest
        price = round_off(self.average @ slope)
        self.cheap = o.select_least(price, self.mask)
        self.begin = np.searchsorted(o.group[self.cheap], np.arange(o.count.size + 1))

    def _move_shards(self, now: float, warm: float) -> float:
        """Try random moves of shards to other places, and swaps of two; returns the new time of the plan [s].

        now  the present time [s];  warm  slowdown that is allowed [s]
        """
        random = self.random
        shards = self.table.size
        places = len(self.held) // self.width
        if not shards:
            return now
        goes = random.integers(shards, size=self.moves)  # the shard that each move takes away
        full = np.zeros(places, dtype=bool)
        full[self.held.argmax(axis=0) // self.width] = True
        busy = np.flatnonzero(full[self.place])  # on a place with the largest load of some resource
        if busy.size:
            often = busy[random.integers(busy.size, size=self.moves)]
            goes = np.where(random.random(self.moves) < self.busy, often, goes)
        swapped = random.random(self.moves) < _SWAPS
        comes = random.integers(shards, size=self.moves)  # the shard that comes in its stead, if swapped
        source = self.place[goes]
        target = np.where(swapped, self.place[comes], random.integers(places, size=self.moves))
        possible = (source != target) & ~self.holds[self.table[goes], target * self.width]
        possible &= ~(swapped & self.holds[self.table[comes], source * self.width])  # one part a place
        if not possible.any():
            return now
        goes, comes, swapped, source, target = np.stack((goes, comes, swapped, source, target))[:, possible]
        change = self.size[goes] - self.size[comes] * swapped[:, np.newaxis]
        weight = self.weight[goes] - self.weight[comes] * swapped
        held = self.held.reshape(places, self.width, self.base.size).max(axis=1)
        memory = self.memory.reshape(places, self.width).max(axis=1)
        room = np.maximum(memory, self.room)  # or no more than before
        fits = (memory[target] + weight <= room[target]) & (memory[source] - weight <= room[source])
        changed = np.maximum(held[source] - change, held[target] + change)  # the larger of both places
        busiest = self.base + np.maximum(find_most_beside(held, source, target), changed)
        time = np.where(fits, self.time_loads(busiest), np.inf)
        chosen = self._choose_moves(time, now, warm, source, target)
        for i in chosen:
            self._shift(int(goes[i]), int(source[i]), int(target[i]))
            if swapped[i]:
                self._shift(int(comes[i]), int(target[i]), int(source[i]))
        return float(time[chosen[0]]) if chosen.size == 1 else self.time_s  # several may be faster together

    def _choose_moves(self, time: Array, now: float, warm: float, source: Ints, target: Ints) -> Ints:
        """Indices of the moves to make, among moves in random order whose times are in ``time`` [s].

        now, warm  as in ``_move_shards`` [s];  source, target  rank or domain that each leaves and reaches
        """
        best = int(np.argmin(time))
        if is_faster(time[best], now):
            return np.array([best])
        free = np.flatnonzero(~is_faster(now, time))  # of these at most one a place
        places = np.stack([source[free], target[free]], axis=1)
        alone = np.zeros(places.size, dtype=bool)
        alone[np.unique(places, return_index=True)[1]] = True
        free = free[alone.reshape(places.shape).all(axis=1)]
        if free.size:
            return free
        return np.flatnonzero(~is_faster(now + warm * self.random.exponential(size=time.size), time))[:1]

    def _shift(self, shard: int, source: int, target: int) -> None:
        """Move a shard to another place."""
        table = self.table[shard]
        self.place[shard] = target
        for place, sign in ((source, -1), (target, 1)):
            ranks = slice(place * self.width, (place + 1) * self.width)
            self.holds[table, ranks] = ~self.holds[table, ranks]
            self.held[ranks] += sign * self.size[shard]
            self.memory[ranks] += sign * self.weight[shard]

    def _recut_table(self, now: float, warm: float) -> float:
        """Try cheap schemes for random tables, on ranks with least load; returns the new time [s].

        now, warm  as in ``_move_shards``
        """
        o = self.options
        recuts = int(np.clip(_MOST_LOADS // self.held.size, 2, _RECUTS))
        table = self.random.integers(self.option.size, size=recuts)
        count = np.diff(self.begin)[o.kind_of[table]]
        some = np.flatnonzero(count)
        table = table[some]
        if not table.size:
            return now
        option = self.cheap[self.begin[o.kind_of[table]] + self.random.integers(count[some])]
        # Each of the tables with another option, in a trial of its own.
        base, held, memory = self._take_off(table)
        base = base + self.everywhere[option]
        memory += o.everywhere_memory[option][:, np.newaxis]
        taken = self._take_ranks(option, base, held, memory)
        fixed = o.everywhere_held[option]
        base = base + self.shard[option] * fixed[:, np.newaxis]
        held += taken[:, :, np.newaxis] * self.shard[option][:, np.newaxis]
        memory += (taken | fixed[:, np.newaxis]) * o.shard_memory[option][:, np.newaxis]
        time = self.time_loads(base + held.max(axis=1))
        time[memory.max(axis=1) > np.maximum(self.room, self.memory.max())] = np.inf
        best = int(np.argmin(time))
        if not is_faster(time[best], now):
            most_s = now + warm * self.random.exponential(size=time.size)
            accepted = np.flatnonzero(~is_faster(most_s, time))
            if not accepted.size:
                return now
            best = int(accepted[0])
        self.base = base[best]
        self.held = held[best]
        self.memory = memory[best]
        self._cut(int(table[best]), int(option[best]), taken[best])
        return float(time[best])

    def _cut(self, table: int, option: int, taken: Mask) -> None:
        """Give a table another option. taken  [G] mask of its shards' ranks; unused if every rank has one"""
        o = self.options
        self.option[table] = option
        self.holds[table] = taken
        if o.everywhere_held[option]:
            ranks = list_all_ranks(o, option)
        else:
            ranks = np.flatnonzero(taken)
            ranks = list_ranks(o, option, np.unique(ranks // o.domain)) if o.by_domain[option] else ranks
        self.ranks = [*self.ranks[:table], ranks, *self.ranks[table + 1 :]]
        places = self._find_places(table)
        others = self.table != table
        tables = np.append(self.table[others], np.full(places.size, table))
        self._list_movable(tables, np.append(self.place[others], places))

    def _take_ranks(self, option: Ints, base: Array, held: Array, memory: Array) -> Mask:
        """Mask [n, G] of the ranks that get the shards in each of n trials: mostly the least loaded ranks.

        option  [n] option to place;  base [n, J], held [n, G, J], memory [n, G]  loads and memory without the
                table
        Limits: a replica, or a shard on every rank -> none;  row parts that fill domains -> whole domains
        """
        o = self.options
        score = (held + (base + self.shard[option])[:, np.newaxis]) / self.full
        for _ in range(_SHARP):
            score = score * score
        score = round_off(score @ self.price) * (1 + _NOISE * self.random.random(held.shape[:2]))
        score[memory + o.shard_memory[option][:, np.newaxis] > self.room] = np.inf  # no room: taken last
        parts = o.parts[option] * ~o.everywhere_held[option]
        taken = _find_smallest(score, parts)
        inside = o.by_domain[option]
        if inside.any():
            domains = score[inside].reshape(int(inside.sum()), o.gpus // o.domain, o.domain).sum(axis=2)
            taken[inside] = np.repeat(_find_smallest(domains, parts[inside] // o.domain), o.domain, axis=1)
        return taken

    def _take_off(self, table: Ints) -> tuple[Array, Array, Array]:
        """Loads and memory in n trials, each without one of the tables.

        Returns (loads that every rank has [n, J], other loads of each rank [n, G, J], memory [n, G]).
        """
        o = self.options
        option = self.option[table]
        holds = self.holds[table]
        fixed = o.everywhere_held[option][:, np.newaxis]
        base = self.base - self.everywhere[option] - self.shard[option] * fixed
        held = self.held - holds[:, :, np.newaxis] * self.shard[option][:, np.newaxis]
        shard_bytes = o.shard_memory[option][:, np.newaxis] * (holds | fixed)
        memory = self.memory - o.everywhere_memory[option][:, np.newaxis] - shard_bytes
        return drop_dust(base), drop_dust(held), memory

    def _apply(self, option: Ints, ranks: list[Ints]) -> bool:
        """Give the state's tables these options and ranks, if it fits then and is faster; returns whether."""
        state = self.state
        before = state.time_s
        changed = [
            (t, int(state.option[t]), np.asarray(state.ranks[t]))
            for t in range(option.size)
            if state.option[t] != option[t] or not np.array_equal(np.asarray(state.ranks[t]), ranks[t])
        ]
        for t, _, _ in changed:
            state.clear(t)
            state.put_back(t, int(option[t]), ranks[t])
        if state.fits and is_faster(state.time_s, before):
            return True
        for t, old_option, old_ranks in changed:
            state.clear(t)
            state.put_back(t, old_option, old_ranks)
        return False


def find_most_beside(held: Array, source: Ints, target: Ints) -> Array:
    """For n pairs of places, the largest load of each resource over all places except the pair, [n, J].

    held  [places, J] loads, of which at most the three largest matter;  source, target  [n] the pair
    Limits: no other place -> 0
    """
    count = min(3, len(held))
    top = np.argpartition(-held, count - 1, axis=0)[:count]
    values = np.take_along_axis(held, top, axis=0)
    taken = (top == source[:, np.newaxis, np.newaxis]) | (top == target[:, np.newaxis, np.newaxis])
    return np.asarray((values * ~taken).max(axis=1))


def _find_smallest(score: Array, count: Ints) -> Mask:
    """Mask over ``score`` [n, m]: in row i, the count[i] smallest entries."""
    place = np.argsort(np.argsort(score, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(place < count[:, np.newaxis])
