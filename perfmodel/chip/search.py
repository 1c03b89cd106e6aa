"""The search behind an answer: mappings made for several ids, tried on whole batches, and changed at random.

The mapper takes what is spread as spread evenly; dealt to cores as slices of whole bags it takes longer,
because each slice waits for its first row. So mappings whose batch is far from the bound go on: those made
for other ids, and for the worst of all, are tried as well, and each is changed table by table, where a change
is kept if a whole batch takes less. A mapping is a mapping, whichever ids it was made for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.chip.choices import Choices, worst_of
from perfmodel.chip.cost import ChipCost
from perfmodel.chip.cuts import Cuts, cuts_of
from perfmodel.chip.mapper import Mapped, Mapper, likely
from perfmodel.chip.mapping import Mapping, mapping_of
from perfmodel.chip.packing import State, place

_GOOD_GAP = 5e-3
_OWN_SHARE = 0.5  # of the time, for the mapper's first search
_STEPS = 60
_TOGETHER = 2  # tables of a change, at most
_NEAR = 3  # choices beside one: as cuts are listed, fewer or more slices
_WORST = -1


@dataclass(frozen=True, eq=False)
class Searched:
    """What was found.

    cuts    by the first ids;  mapped  the search, its state by them (robust: by the worst of all)
    mapping the pieces;  bound_s of ``mapped`` is that of the first ids, of the worst ones if robust
    """

    cuts: Cuts
    mapped: Mapped
    mapping: Mapping


@dataclass(frozen=True, eq=False)
class _Tried:
    """A mapping, with the time of a batch of each of the ids [s]."""

    state: State
    mapping: Mapping
    seconds: tuple[float, ...]


def search(costs: Sequence[ChipCost], *, robust: bool, time_limit_s: float, seed: int) -> Searched:
    """The mapping that is fastest with the first ids, or (robust) with the worst ones.

    costs  of the same tables, by ids
    Limits: no mapping has room for all tables -> BadInputError;  time enough -> the mappings that are
            compared are the same whichever of the ids come first
    """
    return _Search(costs, time_limit_s, seed).run(_WORST if robust else 0)


class _Search:
    """Mappings for each of some ids, and for the worst of them (``_WORST``), until it is late."""

    def __init__(self, costs: Sequence[ChipCost], time_limit_s: float, seed: int) -> None:
        self.costs, self.seed = costs, seed
        self.began = time.monotonic()
        self.until = self.began + time_limit_s
        self.cuts: dict[int, Cuts] = {}
        self.tried = 0

    def run(self, goal: int) -> Searched:
        """The best for ``goal`` of the mappings made for it; where it is far from the bound, for others."""
        first = self._mapped(goal, (self.until - self.began) * _OWN_SHARE)
        bound = 0.0 if goal == _WORST else first.bound_s * (1 + _GOOD_GAP)
        pool = [self._dealt(first.state, goal)]
        every = [_WORST, *range(len(self.costs))] if len(self.costs) > 1 else [goal]
        if _value(pool[0], goal) > bound:
            goals = list(dict.fromkeys([goal, *every]))
            pool += self._starts(goals[1:])
            pool += self._climbed_for(goals, pool, bound)
        found = min(pool, key=lambda each: _value(each, goal))
        state = _by(self._choices(goal), found.state)
        seconds = time.monotonic() - self.began
        return Searched(
            self._cuts(0), replace(first, state=state, tried=self.tried, seconds=seconds), found.mapping
        )

    def _starts(self, goals: list[int]) -> Iterator[_Tried]:
        """Mappings made for other ids."""
        for number, goal in enumerate(goals):
            left = self.until - time.monotonic()
            if left <= 0:
                return
            limit_s = left * _OWN_SHARE / (len(goals) - number)
            yield self._dealt(self._mapped(goal, limit_s).state, goal)

    def _climbed_for(self, goals: list[int], starts: list[_Tried], bound_s: float) -> Iterator[_Tried]:
        """From the best start for each of some goals; no more where the first one is so near the bound."""
        starts = list(starts)
        for goal in goals:
            best = min(starts, key=lambda each, goal=goal: _value(each, goal))  # type: ignore[misc]
            found = self._climbed(best, goal, bound_s if goal == goals[0] else 0.0)
            yield found
            if _value(found, goals[0]) <= bound_s:
                return

    def _cuts(self, at: int) -> Cuts:
        if at not in self.cuts:
            self.cuts[at] = cuts_of(self.costs[at])
        return self.cuts[at]

    def _choices(self, goal: int) -> Choices:
        if goal != _WORST:
            return self._cuts(goal).choices
        return worst_of([self._cuts(at).choices for at in range(len(self.costs))])

    def _mapped(self, goal: int, limit_s: float) -> Mapped:
        found = Mapper(self._choices(goal), time_limit_s=limit_s, seed=self.seed).run()
        self.tried += found.tried
        return found

    def _dealt(self, state: State, goal: int) -> _Tried:
        """A whole mapping: what is spread dealt as these ids have it, or the slowest to gather it."""
        cuts = self._cuts(max(goal, 0))
        if goal == _WORST:
            every = [self._cuts(at) for at in range(len(self.costs))]
            cuts = max(every, key=lambda each: float(each.choices.spread_s[state.choice].sum()))
        mapping = mapping_of(cuts, _by(cuts.choices, state))
        self.tried += 1
        return _Tried(state, mapping, tuple(mapping.batch(each).seconds for each in self.costs))

    def _climbed(self, found: _Tried, goal: int, enough_s: float) -> _Tried:
        """The same after random changes of a table or two, each kept if a whole batch is no slower."""
        random = np.random.default_rng(self.seed)
        for _ in range(_STEPS):
            if _value(found, goal) <= enough_s or time.monotonic() > self.until:
                break
            state = _changed(found.state, random)
            if state is not None:
                found = min(found, self._dealt(state, goal), key=lambda each: _value(each, goal))
        return found


def _value(tried: _Tried, goal: int) -> float:
    """Time of a batch of the ids that count [s]."""
    return max(tried.seconds) if goal == _WORST else tried.seconds[goal]


def _changed(state: State, random: np.random.Generator) -> State | None:
    """A table or two take other choices: any of those that are likely, or as many slices more or less.

    Limits: none has room -> None
    """
    state = state.copy()
    number = min(state.choice.size, int(random.integers(1, _TOGETHER + 1)))
    tables = random.choice(state.choice.size, number, False)
    for table in tables.tolist():
        own = int(state.choice[table])
        state.clear(table)
        at = state.choices.of(table)
        near = [each for each in range(own - _NEAR, own + _NEAR + 1) if at.start <= each < at.stop]
        options = [*likely(state, table, np.inf), *near, at.start]
        choice = int(random.choice([each for each in options if each != own] or [own]))
        where = place(state, choice, state.time_s)
        if where is None:
            return None
        state.put(table, choice, where)
    return state


def _by(choices: Choices, state: State) -> State:
    """The same mapping by the costs of other ids: choices are numbered alike."""
    again = State(choices)
    for table, choice in enumerate(state.choice.tolist()):
        again.put(table, choice, state.where[table])
    return again
