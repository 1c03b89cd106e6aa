"""Which option for which table, on which cores: longest first, then local moves and exchanges.

Times are whole picoseconds: their sums are exact, so that no choice among equals depends on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from perfmodel.chip.equations import lower_bound
from perfmodel.chip.look_up_options import LookUpOptions
from perfmodel.engine.tables import Array, Ints

_TARGETS = (1.0, 1.2, 1.5)  # longest piece of a start, in lower bounds
_LARGEST = (1.0, 0.5, 0.25)  # most bytes that a piece of a start keeps, in buffers
_WEIGHTS = (1.0, 1.0, 0.3, 0.1, 0.0)  # of work and bytes, beside the busiest core, in rounds of moves
_TOGETHER = 5  # tables that are taken off together, at most
_MOVES = 1_200  # tables put on cores, and exchanges looked for
_CLOSE = 1 + 1e-3  # to the bound: the search ends


@dataclass(eq=False)
class CoreMapping:
    """An option and cores for each table.

    choice, cores  of each table: index of its option; the cores of its pieces, none before it has an option
    load_ps     time that each core is busy [cores], then the global memory and the cache [ps]
    held_bytes  of each core's local buffer [cores]
    """

    tables: Sequence[LookUpOptions]
    choice: Ints
    cores: list[Ints]
    load_ps: Array
    held_bytes: Array

    @classmethod
    def empty(cls, tables: Sequence[LookUpOptions], cores: int) -> CoreMapping:
        """A mapping with no table on any core yet. tables  options of each;  cores  of the chip"""
        none: list[Ints] = [np.array([], dtype=np.int64)] * len(tables)
        return cls(tables, np.zeros(len(tables), dtype=np.int64), none, np.zeros(cores + 2), np.zeros(cores))

    @property
    def time_s(self) -> float:
        """Time of a batch: of the busiest core, the memory or the cache [s]."""
        return float(self.load_ps.max()) * 1e-12

    @property
    def score(self) -> float:
        """What moves lower: the largest load, and a little of all others, as their 24-norm [ps]."""
        top = float(self.load_ps.max())
        return float(top * _power(self.load_ps / top).sum() ** (1 / 24))

    def copy(self) -> CoreMapping:
        """A mapping that changes apart from this one."""
        state = self.choice.copy(), list(self.cores), self.load_ps.copy(), self.held_bytes.copy()
        return CoreMapping(self.tables, *state)

    def put(self, table: int, option: int, cores: Ints) -> None:
        """Give a table without cores its option of this number, a piece on each of these cores."""
        self.choice[table], self.cores[table] = option, cores
        self._add(table, 1)

    def remove(self, table: int) -> None:
        """Take a table off its cores, until it is put on others."""
        self._add(table, -1)

    def move(self, table: int, source: int, target: int) -> None:
        """Move the table's piece on core ``source`` to core ``target``."""
        option, cores = int(self.choice[table]), self.cores[table]
        self.remove(table)
        self.put(table, option, np.where(cores == source, target, cores))

    def renumber(self) -> CoreMapping:
        """The same mapping with cores in the order of tables: 0 to 5 for the one with most time, 6 to 9, …"""
        pairs = zip(self.tables, self.choice.tolist(), strict=True)
        work = [-o.piece_ps[option] * o.pieces[option] for o, option in pairs]
        used = np.concatenate([np.sort(self.cores[table]) for table in np.argsort(work, kind="stable")])
        order = list(dict.fromkeys([*used.tolist(), *range(self.held_bytes.size)]))
        number = np.argsort(order)
        load_ps = np.append(self.load_ps[order], self.load_ps[-2:])
        cores = [np.sort(number[cores]) for cores in self.cores]
        return CoreMapping(self.tables, self.choice, cores, load_ps, self.held_bytes[order])

    def _add(self, table: int, sign: int) -> None:
        """Add (sign 1) or take off (-1) what a table needs of its cores, of memory, cache and buffers."""
        options = self.tables[table]
        option, cores = self.choice[table], self.cores[table]
        self.load_ps[cores] += sign * options.piece_ps[option]
        self.load_ps[-2:] += sign * options.shared_ps[option]
        self.held_bytes[cores] += sign * options.held_bytes[option]


@dataclass(eq=False)
class Mapper:
    """Searches a mapping of least time.

    tables  options of each;  cores  of the chip
    room_bytes  of a core's local buffer for rows that stay, infinite if none do
    budget  tables put on cores, and exchanges looked for, before the search ends
    """

    tables: Sequence[LookUpOptions]
    cores: int
    room_bytes: float
    budget: int = _MOVES
    moves: int = field(default=0, init=False)

    def run(self, start: CoreMapping | None = None) -> CoreMapping:
        """The best mapping from ``start`` and from starts that are packed with several limits."""
        bound_ps = self.bound_s * 1e12
        pairs = product(_TARGETS, _LARGEST)
        limits = dict.fromkeys((bound_ps * target, self.room_bytes * share) for target, share in pairs)
        starts = [start, *(self._pack(*limit) for limit in limits)]
        packed = [mapping for mapping in starts if mapping is not None]
        fast = min(packed, key=lambda mapping: mapping.time_s)
        lean = min(packed, key=lambda mapping: float(mapping.load_ps.sum()))
        improved = [self._try_moves(mapping.copy()) for mapping in (fast, lean)]
        return self._search_further(min([fast, *improved], key=lambda mapping: mapping.time_s))

    @cached_property
    def bound_s(self) -> float:
        """Time that no mapping of these options is below [s]. Source: ``equations.lower_bound``"""
        shared_ps = float(sum(o.shared_ps.min(axis=0) for o in self.tables).max())
        return max(self._dual[0], shared_ps) * 1e-12  # bound by the cores, and by memory and cache

    @cached_property
    def _dual(self) -> tuple[float, float]:
        """(time that cores need at least [ps], price at that bound of a byte kept in a buffer [ps/byte])."""
        works = [o.pieces * o.piece_ps for o in self.tables]  # of all pieces, an entry for each option
        held = [o.pieces * o.held_bytes for o in self.tables]
        return lower_bound(works, held, [o.piece_ps for o in self.tables], self.cores, self.room_bytes)

    def _pack(self, target_ps: float, most_bytes: float) -> CoreMapping | None:
        """Tables on cores, longest or largest pieces first, each with the cheapest option that fits.

        An option costs the time of its pieces, and their bytes that stay, at the price of the bound.
        target_ps, most_bytes  limits of a piece if the table has such an option.  No option fits -> None
        """
        orders, size = [], []
        for o in self.tables:
            cost = o.pieces * (o.piece_ps + self._dual[1] * o.held_bytes) + o.shared_ps.sum(axis=1)
            late = np.maximum(o.piece_ps, target_ps)
            order = np.lexsort((cost, late, o.held_bytes > most_bytes))
            size.append(o.piece_ps[order[0]] / target_ps + o.held_bytes[order[0]] / self.room_bytes)
            orders.append(order.tolist())
        mapping = CoreMapping.empty(self.tables, self.cores)
        for table in np.argsort(-np.array(size), kind="stable").tolist():
            for option in orders[table]:
                cores = self._find_least_busy(mapping, self.tables[table], option)
                if cores.size:
                    mapping.put(table, option, cores)
                    break
            else:
                return None
        return mapping

    def _find_least_busy(self, mapping: CoreMapping, options: LookUpOptions, option: int) -> Ints:
        """The least busy cores that have room for the pieces of an option; none if there are too few."""
        free = np.flatnonzero(mapping.held_bytes + options.held_bytes[option] <= self.room_bytes)
        number = int(options.pieces[option])
        return free[np.argsort(mapping.load_ps[free], kind="stable")[: number if number <= free.size else 0]]

    def _try_moves(self, mapping: CoreMapping) -> CoreMapping:
        """The best mapping of several rounds in which tables move and pieces are exchanged."""
        best = mapping.copy()
        for weight in _WEIGHTS:
            longest = [mapping.load_ps[cores].max() for cores in mapping.cores]
            for table in np.argsort(-np.array(longest), kind="stable").tolist():
                mapping.remove(table)
                self._place(mapping, table, weight)
            self._exchange_all(mapping)
            best = min(best, mapping.copy(), key=lambda mapping: mapping.score)
        return best

    def _place(self, mapping: CoreMapping, table: int, weight: float) -> None:
        """Put a table without cores where the score rises least: an option, on the least busy cores.

        weight  of the option's work, and of the bytes that it keeps at their price, shared by all cores
        """
        self.moves += 1
        o = self.tables[table]
        held, group = np.unique(o.held_bytes, return_inverse=True)  # options that keep as much: one sort
        free = mapping.held_bytes + held[:, np.newaxis] <= self.room_bytes
        top = max(float(mapping.load_ps.max()), float(o.piece_ps.min()))
        # for each option the loads of cores with room, least first; its pieces go to the first of them
        loads = (np.sort(np.where(free, mapping.load_ps[:-2], np.inf), axis=1) / top)[group]
        with np.errstate(invalid="ignore", over="ignore"):
            rise = np.cumsum(_power(loads + o.piece_ps[:, np.newaxis] / top) - _power(loads), axis=1)
        score = rise[np.arange(group.size), o.pieces - 1]
        score += _power((mapping.load_ps[-2:] + o.shared_ps) / top).sum(axis=1)  # of memory and cache
        # work costs the tables to come, too: 24 / top is the slope of a 24th power where a load is top
        score += weight * 24 / top / self.cores * o.pieces * (o.piece_ps + self._dual[1] * o.held_bytes)
        option = int(np.nanargmin(score))
        mapping.put(table, option, self._find_least_busy(mapping, o, option))

    def _exchange_all(self, mapping: CoreMapping) -> None:
        """Exchange pieces of the busiest core with shorter ones, or none, of others, while that helps."""
        while (exchange := self._find_exchange(mapping)) is not None:
            table, partner, source, target = exchange
            mapping.move(table, source, target)
            if partner < len(self.tables):
                mapping.move(partner, target, source)

    def _find_exchange(self, mapping: CoreMapping) -> tuple[int, int, int, int] | None:
        """(table, other table or number of tables for none, their cores) that lower the largest load most.

        Limits: no exchange lowers it -> None
        """
        self.moves += 1
        source = int(np.argmax(mapping.load_ps[:-2]))
        room = self.room_bytes
        pairs = list(zip(self.tables, mapping.choice.tolist(), strict=True))
        piece_ps = np.array([*(o.piece_ps[option] for o, option in pairs), 0.0])
        held = np.array([*(o.held_bytes[option] for o, option in pairs), 0.0])
        placed = np.zeros((len(pairs) + 1, self.cores), dtype=bool)
        for table, cores in enumerate(mapping.cores):
            placed[table, cores] = True
        placed[-1] = True  # no partner: possible on every core
        best = float(mapping.load_ps[source])
        exchange = None
        for table in np.flatnonzero(placed[:-1, source]).tolist():
            gain = piece_ps[table] - piece_ps[:, np.newaxis]
            grown = held[table] - held[:, np.newaxis]
            # [partner, target]: the longer of both cores' times after the exchange
            worst = np.maximum(mapping.load_ps[source] - gain, mapping.load_ps[:-2] + gain)
            worst[~placed | placed[table]] = np.inf  # the partner is elsewhere, or the table is there too
            worst[:-1][placed[:-1, source]] = np.inf  # the partner is on the busiest core already
            worst[(mapping.held_bytes + grown > room) | (mapping.held_bytes[source] - grown > room)] = np.inf
            partner, target = divmod(int(np.argmin(worst)), self.cores)
            if worst[partner, target] < best:
                best, exchange = worst[partner, target], (table, partner, source, target)
        return exchange

    def _search_further(self, best: CoreMapping) -> CoreMapping:
        """The best mapping after random tables were taken off together and put back, many times."""
        random = np.random.default_rng(0)
        while self.moves < self.budget and best.time_s > self.bound_s * _CLOSE:
            mapping = best.copy()
            tables = random.permutation(len(self.tables))[: random.integers(2, _TOGETHER + 1)].tolist()
            for table in tables:
                mapping.remove(table)
            weight = 2 * float(random.random())
            for table in tables:
                self._place(mapping, table, weight)
            self._exchange_all(mapping)
            best = min(best, mapping, key=lambda mapping: mapping.score)
        return best


def _power(loads: Array) -> Array:
    """The 24th power, by products alone: equal on every CPU."""
    cube = loads * loads * loads
    sixth = cube * cube
    twelfth = sixth * sixth
    return twelfth * twelfth
