"""The search behind an answer: mappings made for several ids, tried on whole batches, and changed at random.

The mapper takes what is spread as spread evenly; dealt to cores as slices of whole bags it takes longer,
because each slice waits for its first row. So mappings whose batch is far from the bound go on: those made
for other ids, and for the worst of all, are tried as well, and each is changed table by table, where a change
is kept if a whole batch takes less. A mapping is a mapping, whichever ids it was made for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.onechip.bound import lower_bound
from perfmodel.onechip.choices import Choices, never, worst_of
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cuts, cuts_of
from perfmodel.onechip.groups import alike
from perfmodel.onechip.mapper import Mapped, Mapper, likely
from perfmodel.onechip.mapping import Mapping, mapping_of
from perfmodel.onechip.packing import MappingState, place
from perfmodel.onechip.reasons import MappingReason, others, reason

_GOOD_GAP = 5e-3
_OWN_SHARE = 0.5  # of the time, for the mapper's first search
_STEPS, _PATIENCE = 60, 25  # random changes, and of these in a row that do not help
_LEAST_GAIN = 1e-4
_CHANGED = 0.7  # of the time: until then mappings are changed at random
_POLISHED = 0.8  # of the time: until then mappings made for other ids are polished for them
_TRIED = 3  # other ways of a table
_MOST_REASONS = 60  # groups of equal tables that are cut alike
_SLICING = 4  # times as long as cuts are costed, times of slices are
_BOUNDED = 0.6  # of the time: until then the bound is sought
_CUTTING = 0.4  # of the time, for the costs of all choices
_TOGETHER = 2  # tables of a change, at most
_NEAR = 3  # choices beside one: as cuts are listed, fewer or more slices
_WORST = -1


@dataclass(frozen=True, eq=False)
class Searched:
    """What was found.

    cuts    by the ids that count;  mapped  the search, its state by them (robust: by the worst of all)
    mapping the pieces;  bound_s of ``mapped`` is that of these ids, of the worst ones if robust
    reasons by the first one of equal tables that are cut alike: of those that there was time for
    stopped what ended it: no improvement, time, or interrupt
    """

    cuts: Cuts
    mapped: Mapped
    mapping: Mapping
    reasons: dict[int, MappingReason]
    stopped: str


class _Tried:
    """A mapping, with the time of a batch of any of the ids once it is asked for [s]."""

    def __init__(self, state: MappingState, mapping: Mapping, costs: Sequence[ChipCost]) -> None:
        self.state, self.mapping, self.costs = state, mapping, costs
        self.seconds: dict[int, float] = {}

    def value(self, goal: int) -> float:
        """Time of a batch of the ids that count [s]."""
        if goal == _WORST:
            return max(self.value(at) for at in range(len(self.costs)))
        if goal not in self.seconds:
            self.seconds[goal] = self.mapping.batch(self.costs[goal]).seconds
        return self.seconds[goal]


def search(
    costs: Sequence[ChipCost],
    *,
    robust: bool,
    time_limit_s: float,
    seed: int,
    of: int = 0,
    stop: Callable[[], bool] = never,
) -> Searched:
    """The mapping that is fastest with some ids, or (robust) with the worst ones.

    costs  of the same tables, by ids;  of  which ids count, and (robust) are told of
    stop  whether to end it now, with the best so far
    Limits: no mapping has room for all tables -> BadInputError;  time enough -> the mappings that are
            compared are the same whichever of the ids come first
    """
    return _Search(costs, time_limit_s, seed, of, stop).run(_WORST if robust else of)


class _Search:
    """Mappings for each of some ids, and for the worst of them (``_WORST``), until it is late."""

    def __init__(
        self, costs: Sequence[ChipCost], time_limit_s: float, seed: int, of: int, stop: Callable[[], bool]
    ) -> None:
        self.costs, self.seed, self.of, self.stop = costs, seed, of, stop
        self.began, self.limit_s = time.monotonic(), time_limit_s
        self.cut_short = False
        self.cuts: dict[int, Cuts] = {}
        self.tried, self.deal_s, self.cut_s = 0, 0.0, 0.0
        self.cutting = _CUTTING

    def _late(self, share: float = 1.0, more_s: float = 0.0) -> bool:
        """Whether a share of the time is over after ``more_s``, or it is to stop; that it was is kept."""
        left_s = self.began + share * self.limit_s - time.monotonic()
        late = self.stop() or left_s <= more_s
        self.cut_short = self.cut_short or late
        return late

    def run(self, goal: int) -> Searched:
        """The best for ``goal`` of the mappings made for it; where it is far from the bound, for others."""
        self.cutting = _CUTTING / (len(self.costs) if goal == _WORST else 1)
        first = self._mapped(goal, _OWN_SHARE)
        pool = [self._dealt(first.state, goal)]
        first = replace(first, bound_s=self._bound(goal, pool[0].value(goal), first.bound_s))
        bound = 0.0 if goal == _WORST else first.bound_s * (1 + _GOOD_GAP)
        every = [_WORST, *range(len(self.costs))] if len(self.costs) > 1 else [goal]
        if pool[0].value(goal) > bound:
            goals = list(dict.fromkeys([goal, *every]))
            pool += self._starts(goals[1:])
            pool += self._climbed_for(goals, pool, bound)
            pool += self._polished_for(goals, pool)
        found, reasons = self._polished(self._best(pool, goal), goal)
        state = _by(self._choices(goal), found.state)
        first = replace(first, state=state, tried=self.tried, seconds=time.monotonic() - self.began)
        stopped = "interrupt" if self.stop() else "time" if self.cut_short else "no improvement"
        return Searched(self._cuts(self.of), first, found.mapping, reasons, stopped)

    def _bound(self, goal: int, upper_s: float, known_s: float) -> float:
        """No mapping is faster, slices of what is spread counted; of the worst of several ids as it was.

        Limits: no time for slices, which take as long as cuts do several times -> as it was
        """
        if goal == _WORST or self._late(more_s=_SLICING * self.cut_s):
            return known_s
        found = lower_bound(self._choices(goal), upper_s, late=lambda: self._late(_BOUNDED))
        return max(known_s, found)

    def _polished(self, found: _Tried, goal: int) -> tuple[_Tried, dict[int, MappingReason]]:
        """The same after tables took other ways with which a batch is faster, and why the rest did not.

        One table of each group of equal ones that are cut alike is tried, those that take most first.
        """
        cuts, choices = self._cuts(self.of), self._choices(goal)
        reasons: dict[int, MappingReason] = {}
        again = True
        while again:
            again, state, now_s = False, _by(choices, found.state), found.value(goal)
            groups = alike(choices.kind_of, state.choice)
            largest = sorted(groups.items(), key=lambda group: -choices.total_s[group[0][1]] * len(group[1]))
            reasons = {}
            for (_, own), tables in largest[:_MOST_REASONS]:
                changed = list(others(cuts, state, tables[0]))
                tried = [(choice, other.time_s) for choice, other in changed]
                whole = not self._late(more_s=_TRIED * self.deal_s)
                if whole:
                    made = [(at, self._dealt(one, goal)) for at, one in changed]
                    tried = [(at, one.value(goal)) for at, one in made]
                    faster = min((one for _, one in made), key=lambda one: one.value(goal), default=found)
                    if faster.value(goal) < now_s * (1 - _LEAST_GAIN):
                        found, again = faster, True
                        break
                best, least_s = min(tried, key=lambda pair: pair[1], default=(None, 0.0))
                more_s = max(0.0, least_s - now_s) if whole else least_s - state.time_s
                if more_s >= 0 or best is None:
                    reasons[tables[0]] = reason(cuts, own, tables[0], best, more_s, whole=whole)
        return found, reasons

    def _starts(self, goals: list[int]) -> Iterator[_Tried]:
        """Mappings made for other ids, as long as there is time for one more."""
        for number, goal in enumerate(goals):
            new = [at for at in range(len(self.costs)) if at not in self.cuts and goal in (at, _WORST)]
            if self._late(more_s=self.cut_s * len(new) + 2 * self.deal_s):
                continue
            yield self._dealt(self._mapped(goal, _OWN_SHARE / (len(goals) - number)).state, goal)

    def _climbed_for(self, goals: list[int], starts: list[_Tried], bound_s: float) -> Iterator[_Tried]:
        """From the best start for each of some goals; no more where the first one is so near the bound."""
        starts = list(starts)
        for goal in goals:
            found = self._climbed(self._best(starts, goal), goal, bound_s if goal == goals[0] else 0.0)
            yield found
            if found.value(goals[0]) <= bound_s:
                return

    def _best(self, tried: Sequence[_Tried], goal: int) -> _Tried:
        """The fastest for a goal; of equal ones that for all ids together."""
        least = min(each.value(goal) for each in tried)
        equal = [each for each in tried if each.value(goal) == least]
        if len(equal) == 1:
            return equal[0]
        return min(equal, key=lambda each: math.fsum(each.value(at) for at in range(len(self.costs))))

    def _polished_for(self, goals: list[int], pool: list[_Tried]) -> Iterator[_Tried]:
        """The best for each goal, polished for it, again and again until none changes or it is late.

        Limits: time enough -> none that is made for another goal is faster
        """
        done: set[tuple[int, int]] = set()  # (mapping, goal) that no other way of a table helps
        found = list(pool)
        while True:
            before = len(found)
            best = [(goal, self._best(found, goal)) for goal in goals]
            for goal, each in best:
                if self._late(_POLISHED):
                    return
                if (id(each), goal) in done:
                    continue
                other = self._polished(each, goal)[0]
                done.add((id(other), goal))
                if other is not each:
                    found.append(other)
                    yield other
            if len(found) == before:
                return

    def _cuts(self, at: int) -> Cuts:
        """Cuts by these ids; those that are asked for first are of as many kinds as time allows."""
        began = time.monotonic()
        if not self.cuts:
            self.cuts[at] = cuts_of(self.costs[at], late=lambda: self._late(self.cutting))
            self.cut_s = time.monotonic() - began
        elif at not in self.cuts:
            kinds = next(iter(self.cuts.values())).looked_at
            self.cuts[at] = cuts_of(self.costs[at], kinds=kinds)
        return self.cuts[at]

    def _choices(self, goal: int) -> Choices:
        if goal != _WORST:
            return self._cuts(goal).choices
        return worst_of([self._cuts(at).choices for at in range(len(self.costs))])

    def _mapped(self, goal: int, share: float) -> Mapped:
        """The mapper's own, in a share of the time that is left once choices are there."""
        choices = self._choices(goal)
        limit_s = max(0.0, self.began + self.limit_s - time.monotonic()) * share
        found = Mapper(choices, time_limit_s=limit_s, seed=self.seed, stop=self.stop).run()
        self.tried, self.cut_short = self.tried + found.tried, self.cut_short or found.seconds > limit_s
        return found

    def _dealt(self, state: MappingState, goal: int) -> _Tried:
        """A whole mapping: what is spread dealt as these ids have it, or the slowest to gather it."""
        cuts = self._cuts(max(goal, 0))
        if goal == _WORST:
            every = [self._cuts(at) for at in range(len(self.costs))]
            cuts = max(every, key=lambda each: float(each.choices.spread_s[state.choice].sum()))
        began = time.monotonic()
        self.tried += 1
        found = _Tried(state, mapping_of(cuts, _by(cuts.choices, state)), self.costs)
        found.value(goal)
        self.deal_s = time.monotonic() - began
        return found

    def _climbed(self, found: _Tried, goal: int, enough_s: float) -> _Tried:
        """The same after random changes of a table or two, each kept if a whole batch is no slower."""
        random, idle = np.random.default_rng(self.seed), 0
        for _ in range(_STEPS):
            if found.value(goal) <= enough_s or idle > _PATIENCE or self._late(_CHANGED, self.deal_s):
                break
            state = _changed(_by(self._choices(goal), found.state), random)
            if state is None:
                continue
            other = self._dealt(state, goal)
            idle = 0 if other.value(goal) < found.value(goal) * (1 - _LEAST_GAIN) else idle + 1
            found = min(found, other, key=lambda each: each.value(goal))
        return found


def _changed(state: MappingState, random: np.random.Generator) -> MappingState | None:
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


def _by(choices: Choices, state: MappingState) -> MappingState:
    """The same mapping by the costs of other ids: choices are numbered alike."""
    again = MappingState(choices)
    for table, choice in enumerate(state.choice.tolist()):
        again.put(table, choice, state.where[table])
    return again
