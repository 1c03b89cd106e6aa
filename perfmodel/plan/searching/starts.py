"""Starting plans of a search: chosen at Lagrangian prices, placed on ranks and rebalanced.

A kind of exchange in use costs the latency of its collectives. So plans with a single kind besides
replication are tried first, then pairs of the best kinds, then all; such a set of kinds is a family. The
limit on shards decides how well ranks can be balanced, and the memory left free whether shards fit: several
values of both are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.choosing import Choice, Choosing
from perfmodel.plan.searching.coordinate_descent import Descent
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.packing import Packing, pack

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Until = Callable[[], bool]
Keep = Callable[[Packing], None]

_FIRST = (0.7, 0.35)  # limits on shards for each family, over a balanced rank's load
_SOON, _SOON_BEST = (
    (0.35, 0.25, 0.12, 1.0, 2.0),
    2,
)  # limits that are tried whatever the effort, and for how many families
_MORE = (0.5, 1.0, 0.25, 2.0, 0.12)  # for the best families
_ROOMS = (0.985, 0.95, 0.9, 0.8)
"""Shares of the memory for which schemes are chosen, until their shards can be packed."""
_WORTH = 1.25  # of the best plan's time: slower families are not pursued
_FAMILIES = 3  # families that are pursued, and paired
_IMPROVED = 256  # kinds of table, up to which schemes are also improved one by one
_QUICK = 1_000  # tables, up to which limits on shards are tried, and plans rebalanced, whatever the effort
_EVENED_SOON = 2  # quick plans that are rebalanced
_EVENED, _WORTH_EVENING = 5, 1.05  # packed plans that are rebalanced: how many, and how far from the best


class Starts:
    """Makes all starting plans of a search.

    keep   is called with every plan;  until  returns whether to stop
    tried  number of plans whose tables were placed on ranks
    """

    def __init__(
        self,
        evaluator: Evaluator,
        options: Options,
        limit_bytes: float,
        keep: Keep,
        until: Until,
    ) -> None:
        self.evaluator, self.options, self.limit_bytes = evaluator, options, limit_bytes
        self.keep, self.until, self.until_even = keep, until, until
        self.tried = 0
        self.choosing: dict[tuple[int, ...], Choosing | None] = {}
        self.start: dict[tuple[int, ...], Choice] = {}
        self.found: list[tuple[float, tuple[int, ...], Packing]] = []
        self.evened: set[int] = set()
        self.done: set[tuple[tuple[int, ...], float]] = set()
        self.seen: dict[bytes, bool] = {}  # whether schemes could be packed
        self.random = np.random.default_rng(0)

    def uniform(self, states: Sequence[Packing]) -> None:
        """Begin with plans in which all tables have one sharding."""
        self.tried += len(states)
        for state in states:
            self._found(state)

    def quick(self, soon: Until | None = None) -> None:
        """Make a plan with each kind of exchange besides replication.

        They are made whatever the effort: a plan is no slower than the first of a part of its schemes.
        The best are rebalanced until ``soon``; None: while there is time.
        Limits: very many tables -> fewer plans, and none is rebalanced
        """
        few = self.options.kind_of.size <= _QUICK
        for family in self._singles():
            self._try(family, _FIRST[0], _never, improved=False)
            if self.options.count.size > _IMPROVED:  # it would give the same plan again
                self.done.add((family, _FIRST[0]))
        if not self.found:  # rules may want another exchange for each table, and memory smaller shards
            for shard in (_FIRST[0], *_SOON):
                self._try(tuple(self.options.kinds), shard, _never, improved=False)
        if few:
            for shard, family in product(_SOON, self._best(self._singles())[:_SOON_BEST]):
                if self.options.count.size > _IMPROVED and self.until():
                    break
                self.done.add((family, shard))
                self._try(family, shard, _never, improved=False)
            if self.found:  # whatever the effort
                state = min(self.found, key=_time)[2].copy()
                if Evening(state, self.random, quick=self.options.count.size > _IMPROVED).run(_never):
                    self.keep(state)
            self._even(_EVENED_SOON, soon or self.until)

    def _found(self, state: Packing) -> None:
        o = self.options
        kinds = np.unique(o.exchange[state.option[~o.copied[state.option]]])
        family = tuple(int(kind) for kind in kinds)
        self.found.append((state.time_s, family, state))
        self.keep(state)

    def _singles(self) -> list[tuple[int, ...]]:
        return [(kind,) for kind in self.options.kinds] or [()]

    def run(self) -> None:
        """Try families of exchanges, more variants of the best families, and rebalance the best plans."""
        singles = self._singles()
        self._families(singles, _FIRST)
        order = sorted(family[0] for family in self._best(singles) if family)
        mixed = [some for count in (2, 3) for some in combinations(order, count)]
        self._families(mixed, _FIRST[::-1])
        best = self._best([*singles, *mixed])
        self._families(best[:1], _MORE[:2])
        self._even(1, self.until_even)
        self._families(best, _MORE)
        self._even(_EVENED, self.until_even)

    def states(self) -> list[Packing]:
        """The fastest plan of each family."""
        best: dict[tuple[int, ...], Packing] = {}
        for _, family, state in sorted(self.found, key=_time):
            best.setdefault(family, state)
        return list(best.values())

    def _families(self, families: Sequence[tuple[int, ...]], shards: Sequence[float]) -> None:
        for shard in shards:
            for family in families:
                if self.found and self.until():
                    return
                if (family, shard) not in self.done:
                    self.done.add((family, shard))
                    self._try(family, shard, self.until, improved=self.options.count.size <= _IMPROVED)

    def _best(self, families: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """The families with the fastest plans, best first; families that are far behind are left out."""
        time = {
            family: min((t for t, of, _ in self.found if of == family), default=np.inf) for family in families
        }
        order = sorted(families, key=lambda family: time[family])[:_FAMILIES]
        return [family for family in order if time[family] < _WORTH * time[order[0]]]

    def _try(self, family: tuple[int, ...], shard: float, until: Until, *, improved: bool) -> None:
        """Try a plan of a family; while its shards cannot be placed, again with less memory.

        shard  largest load of a shard, relative to a balanced rank [-];  until  returns whether to stop
        improved  whether the options are also improved table by table
        """
        choosing = self._choosing(family)
        if choosing is None:
            return
        for room in _ROOMS:
            before = self.start.get(family)
            room_bytes = room * self.limit_bytes
            choice = choosing.run(room_bytes, shard, None if before is None else before.loads, until)
            if choice is None:
                return
            self.start[family] = choice
            packed = self._pack(choice.option, choice.time_s, family)
            if improved:
                packed |= self._improved(choice.option, room_bytes, family)
            if packed or until():
                return

    def _improved(self, option: Ints, room_bytes: float, family: tuple[int, ...]) -> bool:
        """Improve options table by table and place them; returns whether they could be placed."""
        descent = Descent(self.evaluator, self.options, room_bytes)
        mask = self.options.exchanged_by(family)
        better = descent.run(option, mask, self.until)
        return self._pack(better, descent.value(better), family)

    def _pack(self, option: Ints, time_s: float, family: tuple[int, ...]) -> bool:
        """Place tables with these options on ranks; False if they do not fit and might have been worth it.

        time_s  of a pass if shards are spread evenly
        """
        key = option.tobytes()
        if time_s > _WORTH * self._best_s():
            return True
        if key in self.seen:
            return self.seen[key]
        self.tried += 1
        state = pack(self.evaluator, self.options, option, self.limit_bytes)
        self.seen[key] = state is not None
        if state is not None:
            self.found.append((state.time_s, family, state))
            self.keep(state)
        return state is not None

    def _choosing(self, family: tuple[int, ...]) -> Choosing | None:
        """The chooser of options within a family. Limits: a kind of table has no option in it -> None"""
        if family not in self.choosing:
            o = self.options
            mask = o.exchanged_by(family)
            every = np.bincount(o.group[mask], minlength=o.count.size).all()
            self.choosing[family] = Choosing(self.evaluator, o, mask) if every else None
        return self.choosing[family]

    def _best_s(self) -> float:
        return min((found[0] for found in self.found), default=np.inf)

    def _even(self, count: int, until: Until) -> None:
        """Rebalance the ``count`` fastest plans among all that are not rebalanced yet."""
        for time_s, _, state in sorted(self.found, key=_time)[:count]:
            if until() or time_s > _WORTH_EVENING * self._best_s():
                return
            if id(state) not in self.evened:
                even = state.copy()  # the unbalanced plan may be improved in other ways
                if Evening(even, self.random).run(until):
                    self.keep(even)
                if not until():  # otherwise more may be gained later
                    self.evened.add(id(state))


def _never() -> bool:
    return False


def _time(found: tuple[float, tuple[int, ...], Packing]) -> float:
    return found[0]
