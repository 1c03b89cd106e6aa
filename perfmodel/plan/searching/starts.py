"""Starting plans of a search: chosen at Lagrangian prices, placed on ranks and rebalanced.

A kind of exchange in use costs the latency of its collectives. So plans with a single kind besides
replication are tried first, then pairs of the best kinds, then all; such a set of kinds is a family. The
limit on shards decides how well ranks can be balanced, and the memory left free whether shards fit: several
values of both are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import Ints
from perfmodel.plan.choices.scheme_options import Options
from perfmodel.plan.searching.choosing import Choice, Choosing
from perfmodel.plan.searching.coordinate_descent import Descent
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.packing import Packing, Until, is_faster, pack

Family = tuple[int, ...]  # codes of kinds of exchange, ascending

_FIRST = (0.7, 0.35)  # limits on shards for each family, over a balanced rank's load
_SOON = (0.35, 0.25, 0.12, 1.0, 2.0)  # limits that are tried whatever the effort
_SOON_BEST = 2  # families for which they are tried
_MORE = (0.5, 1.0, 0.25, 2.0, 0.12)  # for the best families
_ROOMS = (0.985, 0.95, 0.9, 0.8)  # of the memory, for which schemes are chosen until shards can be packed
_WORTH = 1.25  # of the best plan's time: slower families are not pursued
_FAMILIES = 3  # families that are pursued, and paired
_IMPROVED = 256  # kinds of table, up to which schemes are also improved one by one
_QUICK = 1_000  # tables, up to which limits on shards are tried, and plans rebalanced, whatever the effort
_EVENED_SOON = 2  # quick plans that are rebalanced
_EVENED = 5  # packed plans that are rebalanced
_WORTH_EVENING = 1.05  # of the best plan's time: slower plans are not rebalanced


class Start(NamedTuple):
    """A plan on ranks, its time, and the kinds of exchange that it was chosen from."""

    time_s: float
    family: Family
    state: Packing


@dataclass(eq=False)
class Starts:
    """Makes all starting plans of a search.

    keep    is called with every plan, to remember the best;  until  returns whether to stop making plans
    until_even, is_over  the same of rebalancing, and of the whole search
    """

    evaluator: Evaluator
    options: Options
    limit_bytes: float
    keep: Callable[[Packing], None]
    until: Until

    def __post_init__(self) -> None:
        """Begin without a plan; what was tried is remembered, by family, so that it is tried once."""
        self.until_even = self.is_over = self.until
        self.singles: list[Family] = [(kind,) for kind in self.options.kinds] or [()]  # (): copies alone
        self.many_kinds = bool(self.options.count[_IMPROVED:].size)  # of table: too many to improve
        self.choosing: dict[Family, Choosing | None] = {}
        self.choice: dict[Family, Choice] = {}  # the last, from whose loads the next begins
        self.starts: list[Start] = []
        self.evened: set[int] = set()  # ids of plans that were rebalanced
        self.done: set[tuple[Family, float]] = set()  # with which limit on shards it was tried
        self.packed: dict[bytes, bool] = {}  # whether schemes could be packed
        self.random = np.random.default_rng(0)

    def add_uniform(self, states: Sequence[Packing]) -> None:
        """Begin with plans in which all tables have one sharding; each is of the family that it uses."""
        o = self.options
        for state in states:
            kinds = np.unique(o.exchange[state.option[~o.copied[state.option]]])
            self._add(tuple(int(kind) for kind in kinds), state)

    def run_quick(self, soon: Until) -> None:
        """Make a plan with each kind of exchange besides replication.

        They are made whatever the effort: a plan is no slower than the first of a part of its schemes. The
        best are rebalanced until ``soon``.  Limits: very many tables -> fewer plans, and none is rebalanced
        """
        over = self.is_over()
        fitting = [self._try(family, _FIRST[0], _never, improved=False) for family in self.singles]
        if self.many_kinds:  # it would give the same plan again
            self.done |= {(family, _FIRST[0]) for family in self.singles}
        if not all(fitting) or not self.starts:  # memory or rules may want several exchanges, smaller shards
            for shard in (_FIRST[0], *_SOON):
                self._try(tuple(self.options.kinds), shard, _never, improved=False)
        if self.options.kind_of[_QUICK:].size:
            if self.until() and not over:  # of fewer kinds of exchange there would be effort left
                for family in self._find_best(self.singles)[:1]:
                    self._try(family, _MORE[0], _never, improved=False)
            return
        for shard, family in product(_SOON, self._find_best(self.singles)[:_SOON_BEST]):
            if self.many_kinds and self.is_over():
                break
            self.done.add((family, shard))
            self._try(family, shard, _never, improved=False)
        if self.starts:  # whatever the effort
            state = min(self.starts, key=attrgetter("time_s")).state.copy()
            if Evening(state, self.random, quick=self.many_kinds).run(_never):
                self.keep(state)
        self._even(_EVENED_SOON, soon)

    def run(self) -> None:
        """Try families of exchanges, more variants of the best families, and rebalance the best plans."""
        self._try_families(self.singles, _FIRST)
        order = sorted(family[0] for family in self._find_best(self.singles) if family)
        mixed = [kinds for count in (2, 3) for kinds in combinations(order, count)]
        self._try_families(mixed, _FIRST[::-1])
        best = self._find_best([*self.singles, *mixed])
        self._try_families(best[:1], _MORE[:2])
        self._even(1, self.until_even)
        self._try_families(best, _MORE)
        self._even(_EVENED, self.until_even)

    def list_best_states(self) -> list[Packing]:
        """The fastest plan of each family, the fastest first."""
        best: dict[Family, Packing] = {}
        for start in sorted(self.starts, key=attrgetter("time_s")):
            best.setdefault(start.family, start.state)
        return list(best.values())

    def _try_families(self, families: Sequence[Family], shards: Sequence[float]) -> None:
        """``_try`` each family with each limit on shards once, until ``until``, but one plan at least."""
        for shard, family in product(shards, families):
            if self.starts and self.until():
                return
            if (family, shard) not in self.done:
                self.done.add((family, shard))
                self._try(family, shard, self.until, improved=not self.many_kinds)

    def _find_best(self, families: Sequence[Family]) -> list[Family]:
        """The families with the fastest plans, best first; families that are far behind are left out."""
        time = {
            family: min((start.time_s for start in self.starts if start.family == family), default=np.inf)
            for family in families
        }
        order = sorted(families, key=lambda family: time[family])[:_FAMILIES]
        return [family for family in order if is_faster(time[family], _WORTH * time[order[0]])]

    def _try(self, family: Family, shard: float, until: Until, *, improved: bool) -> bool:
        """Try a plan of a family; while its shards cannot be placed, again with less. False: none fits.

        shard  largest load of a shard, relative to a balanced rank [-];  until  returns whether to stop
        improved  whether the options are also improved table by table
        """
        o = self.options
        mask = o.select_exchanges(family)
        if family not in self.choosing:  # a kind of table may have no option in it
            self.choosing[family] = None if o.find_empty(mask).size else Choosing(self.evaluator, o, mask)
        choosing = self.choosing[family]
        if choosing is None:
            return True
        for room in _ROOMS if o.gpus > 1 else (1.0,):  # on one GPU all shards have their place
            before = self.choice.get(family)
            room_bytes = room * self.limit_bytes
            choice = choosing.run(room_bytes, shard, None if before is None else before.loads, until)
            if choice is None:
                return False
            self.choice[family] = choice
            packed = self._pack(choice.option, choice.time_s, family)
            if improved:
                descent = Descent(self.evaluator, o, room_bytes)
                option = descent.run(choice.option, mask, self.until)
                packed |= self._pack(option, descent.rate(option), family)
            if packed or until():
                return True
        return False

    def _pack(self, option: Ints, time_s: float, family: Family) -> bool:
        """Place tables with these options on ranks; returns False if it is worth to try with less memory.

        time_s  of a pass if shards are spread evenly
        """
        if is_faster(_WORTH * self._best_s, time_s):  # it is too slow, with less memory as well
            return True
        key = option.tobytes()
        if key not in self.packed:
            state = pack(self.evaluator, self.options, option, self.limit_bytes)
            self.packed[key] = state is not None
            if state is not None:
                self._add(family, state)
        return self.packed[key]

    def _add(self, family: Family, state: Packing) -> None:
        """Remember a starting plan of a family, and tell the search of it."""
        self.starts.append(Start(state.time_s, family, state))
        self.keep(state)

    @property
    def _best_s(self) -> float:
        """Time of the fastest starting plan; infinite before there is one [s]."""
        return min((start.time_s for start in self.starts), default=np.inf)

    def _even(self, count: int, until: Until) -> None:
        """Rebalance the ``count`` fastest plans among all that are not rebalanced yet."""
        for start in sorted(self.starts, key=attrgetter("time_s"))[:count]:
            if until() or is_faster(_WORTH_EVENING * self._best_s, start.time_s):
                return
            if id(start.state) not in self.evened:
                even = start.state.copy()  # the unbalanced plan may be improved in other ways
                if Evening(even, self.random).run(until):
                    self.keep(even)
                if not until():  # otherwise more may be gained later
                    self.evened.add(id(start.state))


def _never() -> bool:
    """The ``Until`` of what is done whatever the effort."""
    return False
