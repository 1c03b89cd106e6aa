"""Plans that a search begins with: chosen at prices, packed, made even; by families of exchanges.

A kind of exchange in use costs the latency of its collectives, so plans with one kind beside copies are tried
first, then pairs of the best kinds, then all. How large a shard may be decides how even ranks can be, and
how much room is left aside whether shards fit: several of both are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.choosing import Choice, Choosing
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.evening import Evening
from perfmodel.plan.options import Options
from perfmodel.plan.packing import Packing, pack

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Until = Callable[[], bool]
Keep = Callable[[Packing], None]

_FIRST = (0.7, 0.35)  # largest shards of each family, over what a rank holds in balance
_MORE = (0.5, 1.0, 0.25, 2.0, 0.12)  # of the best families
_ROOMS = (0.985, 0.95, 0.9, 0.8)
"""Shares of the memory that schemes are chosen for, until their shards can be packed."""
_WORTH = 1.25  # of the best plan's time: slower families are not tried further
_FAMILIES = 3  # that are tried further, and of whose kinds pairs are made
_MIXED = 2  # sizes of shards that are tried for families of several kinds
_EVENED, _WORTH_EVENING = 5, 1.05  # packed plans that are made even: how many, and how far from the best


class Starts:
    """All starts of one search.

    keep   is told of every plan;  until  whether to end
    tried  plans that were packed
    """

    def __init__(
        self, evaluator: Evaluator, options: Options, limit_bytes: float, keep: Keep, until: Until
    ) -> None:
        self.evaluator, self.options, self.limit_bytes = evaluator, options, limit_bytes
        self.keep, self.until = keep, until
        self.tried = 0
        self.choosing: dict[tuple[int, ...], Choosing | None] = {}
        self.start: dict[tuple[int, ...], Choice] = {}
        self.found: list[tuple[float, tuple[int, ...], float, Packing]] = []
        self.evened: set[int] = set()
        self.seen: set[bytes] = set()
        self.random = np.random.default_rng(0)

    def run(self) -> None:
        """Try families of exchanges, the best of them in more ways, and make the best plans even."""
        kinds = [int(kind) for kind in np.unique(self.options.exchange) if kind != Exchange.DP]
        singles: list[tuple[int, ...]] = [(kind,) for kind in kinds] or [()]
        self._families(singles, _FIRST)
        best = self._best(singles)
        self._families(best, _MORE)
        self._even(1)
        order = [family[0] for family in best if family]
        mixed: list[tuple[int, ...]] = [tuple(sorted(pair)) for pair in combinations(order, 2)]
        mixed += [tuple(kinds)] if len(kinds) > 2 else []
        self._families(mixed, self._shards())
        self._even(_EVENED)

    def families(self) -> dict[int, float]:
        """Kinds of exchange that were tried alone, and the time of the fastest plan of each [s]."""
        found: dict[int, float] = {}
        for time_s, of, _, _ in self.found:
            if len(of) == 1:
                found[of[0]] = min(time_s, found.get(of[0], np.inf))
        return found

    def _families(self, families: Sequence[tuple[int, ...]], shards: Sequence[float]) -> None:
        for shard in shards:
            for family in families:
                if self.found and self.until():
                    return
                self._try(family, shard)

    def _best(self, families: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """The families with the fastest plans, best first; those far behind are left out."""
        time = {
            family: min((t for t, of, _, _ in self.found if of == family), default=np.inf)
            for family in families
        }
        order = sorted(families, key=lambda family: time[family])[:_FAMILIES]
        return [family for family in order if time[family] < _WORTH * time[order[0]]]

    def _shards(self) -> list[float]:
        """Largest shards that are worth trying for mixed families: those of the fastest plans."""
        return list(dict.fromkeys(shard for _, _, shard, _ in sorted(self.found, key=_time)))[:_MIXED]

    def _try(self, family: tuple[int, ...], shard: float) -> None:
        """One plan of a family, in less and less of the memory until its shards can be packed."""
        choosing = self._choosing(family)
        if choosing is None:
            return
        for room in _ROOMS:
            before = self.start.get(family)
            choice = choosing.run(
                room * self.limit_bytes, shard, None if before is None else before.loads, self.until
            )
            if choice is None or choice.time_s > _WORTH * self._best_s():
                return
            self.start[family] = choice
            key = choice.option.tobytes()
            if key in self.seen:
                return
            self.seen.add(key)
            self.tried += 1
            state = pack(self.evaluator, self.options, choice.option, self.limit_bytes)
            if state is not None:
                self.found.append((state.time_s, family, shard, state))
                self.keep(state)
                return
            if self.until():
                return

    def _choosing(self, family: tuple[int, ...]) -> Choosing | None:
        """Limits: a kind of table that cannot be exchanged so, nor copied -> None"""
        if family not in self.choosing:
            o = self.options
            mask = np.isin(o.exchange, [Exchange.DP, *family])
            every = np.bincount(o.group[mask], minlength=o.count.size).all()
            self.choosing[family] = Choosing(self.evaluator, o, mask) if every else None
        return self.choosing[family]

    def _best_s(self) -> float:
        return min((found[0] for found in self.found), default=np.inf)

    def _even(self, count: int) -> None:
        """The fastest plans that were packed, made even where that was not done before."""
        for time_s, _, _, state in sorted(self.found, key=_time)[:count]:
            if self.until() or time_s > _WORTH_EVENING * self._best_s():
                return
            if id(state) not in self.evened:
                self.evened.add(id(state))
                if Evening(state, self.random).run(self.until):
                    self.keep(state)


def _time(found: tuple[float, tuple[int, ...], float, Packing]) -> float:
    return found[0]
