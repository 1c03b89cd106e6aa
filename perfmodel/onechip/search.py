"""The search behind an answer: mappings made for several ids, tried on whole batches, and changed at random.

The mapper takes what is spread as spread evenly; dealt to cores as slices of whole bags it takes longer,
because each slice waits for its first row. So mappings whose batch is far from the bound go on: those made
for other ids, and for the worst of all, are tried as well, and each is changed table by table, where a change
is kept if a whole batch takes less. A mapping is a mapping, whichever ids it was made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.effort import Budget, Work
from perfmodel.onechip.bound import lower_bound
from perfmodel.onechip.choices import Choices, worst_of
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cuts, cuts_of
from perfmodel.onechip.groups import alike
from perfmodel.onechip.mapper import Mapper, likely
from perfmodel.onechip.mapping import Mapping, mapping_of
from perfmodel.onechip.packing import MappingState, place
from perfmodel.onechip.reasons import MappingReason, others, reason
from perfmodel.onechip.work_units import BATCH, KIND, PIECE, ranked

_GOOD_GAP = 5e-3
_OWN_SHARE = 0.5  # of the effort that is left, for the mapper's first search
_PATIENCE = 50  # random changes in a row that do not help
_LEAST_GAIN = 1e-4
_CHANGED = 0.7  # of the effort: until then mappings are changed at random
_POLISHED = 0.8  # of the effort: until then mappings made for other ids are polished for them
_TRIED = 3  # other ways of a table
_MOST_REASONS = 60  # groups of equal tables that are cut alike
_CUTTING = 0.4  # of the effort, for the costs of all choices
_TOGETHER = 2  # tables of a change, at most
_NEAR = 3  # choices beside one: as cuts are listed, fewer or more slices
_WORST = -1


@dataclass(frozen=True, eq=False)
class Searched:
    """What was found.

    cuts    by the ids that count;  state  of the search by them (robust: by the worst of all)
    mapping the pieces;  tried  mappings that were looked at
    bound_s no mapping of the cuts is faster with the ids that count [s]
    reasons by the first one of equal tables that are cut alike: of those that the effort was enough for
    ended   whether the effort ended it, before nothing better was found
    """

    cuts: Cuts
    state: MappingState
    mapping: Mapping
    bound_s: float
    tried: int
    reasons: dict[int, MappingReason]
    ended: bool


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
            self.state.work.add(BATCH)
            self.state.work.add(PIECE, len(self.mapping.pieces))
            self.state.work.add(KIND, self.costs[goal].sample.size)
            self.seconds[goal] = self.mapping.batch(self.costs[goal]).seconds
        return self.seconds[goal]


def search(
    costs: Sequence[ChipCost],
    *,
    robust: bool,
    budget: Budget,
    seed: int,
    of: int = 0,
) -> Searched:
    """The mapping that is fastest with some ids, or (robust) with the worst ones.

    costs  of the same tables, by ids;  of  which ids count, and (robust) are told of
    Limits: no mapping has room for all tables -> BadInputError;  effort enough -> the mappings that are
            compared are the same whichever of the ids come first
    """
    return _Search(costs, budget, seed, of).run(_WORST if robust else of)


class _Search:
    """Mappings for each of some ids, and for the worst of them (``_WORST``), until the effort is spent."""

    def __init__(self, costs: Sequence[ChipCost], budget: Budget, seed: int, of: int) -> None:
        self.costs, self.budget, self.seed, self.of = costs, budget, seed, of
        self.ended = False
        self.cuts: dict[int, Cuts] = {}
        self.tried, self.deal_s, self.cut_s = 0, 0.0, 0.0
        self.cutting = _CUTTING

    def _late(self, share: float = 1.0, more_s: float = 0.0) -> bool:
        """Whether a share of the effort is spent after ``more_s``, or it is to stop; that it was is kept."""
        late = self.budget.over(share, more_s)
        self.ended = self.ended or late
        return late

    @contextmanager
    def _part(self, effort_s: float) -> Iterator[Budget]:
        """A stage that may spend so much."""
        part = Budget(self.budget.work, effort_s, stop=self.budget.cut_short)
        yield part
        self.ended = self.ended or part.spent_s >= effort_s

    def run(self, goal: int) -> Searched:
        """The best for ``goal`` of the mappings made for it; where it is far from the bound, for others."""
        self.cutting = _CUTTING / (len(self.costs) if goal == _WORST else 1)
        pool = [self._dealt(self._mapped(goal, _OWN_SHARE), goal)]
        bound_s = self._bound(pool[0].value(self.of))
        bound = 0.0 if goal == _WORST else bound_s * (1 + _GOOD_GAP)
        every = [_WORST, *range(len(self.costs))] if len(self.costs) > 1 else [goal]
        if pool[0].value(goal) > bound:
            goals = list(dict.fromkeys([goal, *every]))
            pool += self._starts(goals[1:])
            pool += self._climbed_for(goals, pool, bound)
            pool += self._polished_for(goals, pool)
        found, reasons = self._polished(self._best(pool, goal), goal)
        state = _by(self._choices(goal), found.state)
        cuts, tried = self._cuts(self.of), self.tried
        return Searched(cuts, state, found.mapping, bound_s, tried, reasons, self.ended)

    def _bound(self, upper_s: float) -> float:
        """No mapping is faster with the ids that count; it may take as much work as the search besides.

        Limits: that is not enough for slices of what is spread -> these do not count;  kinds of tables that
                have no choices -> 0
        """
        choices, part = (
            self._choices(self.of),
            Budget(Work(), self.budget.effort_s, stop=self.budget.cut_short),
        )
        if not self._cuts(self.of).complete:
            return 0.0
        sliced = not part.over(more_s=choices.slicing_s)
        part.work.add(1e9 * sliced, choices.slicing_s)
        found = lower_bound(choices if sliced else replace(choices, slicer=None), upper_s, budget=part)
        self.ended = self.ended or not sliced or part.over()
        return found

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
            largest = sorted(
                groups.items(), key=lambda group: -ranked(choices.total_s[group[0][1]] * len(group[1]))
            )
            reasons = {}
            for (_, own), tables in largest[:_MOST_REASONS]:
                changed = list(others(cuts, state, tables[0]))
                tried = [(choice, other.time_s) for choice, other in changed]
                whole = not self._late(more_s=_TRIED * self.deal_s)
                if whole:
                    made = [(at, self._dealt(one, goal)) for at, one in changed]
                    tried = [(at, one.value(goal)) for at, one in made]
                    faster = self._best([one for _, one in made] or [found], goal)
                    if faster.value(goal) < now_s * (1 - _LEAST_GAIN):
                        found, again = faster, True
                        break
                best, least_s = min(tried, key=lambda pair: ranked(pair[1]), default=(None, 0.0))
                more_s = max(0.0, least_s - now_s) if whole else least_s - state.time_s
                if more_s >= 0 or best is None:
                    reasons[tables[0]] = reason(cuts, own, tables[0], best, more_s, whole=whole)
        return found, reasons

    def _starts(self, goals: list[int]) -> Iterator[_Tried]:
        """Mappings made for other ids, as long as there is effort for one more."""
        for number, goal in enumerate(goals):
            new = [at for at in range(len(self.costs)) if at not in self.cuts and goal in (at, _WORST)]
            if self._late(more_s=self.cut_s * len(new) + 2 * self.deal_s):
                continue
            yield self._dealt(self._mapped(goal, _OWN_SHARE / (len(goals) - number)), goal)

    def _climbed_for(self, goals: list[int], starts: list[_Tried], bound_s: float) -> Iterator[_Tried]:
        """From the best start for each of some goals; no more where the first one is so near the bound."""
        starts = list(starts)
        for goal in goals:
            found = self._climbed(self._best(starts, goal), goal, bound_s if goal == goals[0] else 0.0)
            yield found
            if found.value(goals[0]) <= bound_s:
                return

    def _best(self, tried: Sequence[_Tried], goal: int) -> _Tried:
        """The fastest for a goal; of equal ones that for all ids together, the first of these."""
        least = min(ranked(each.value(goal)) for each in tried)
        equal = [each for each in tried if ranked(each.value(goal)) == least]
        if len(equal) == 1:
            return equal[0]
        every = range(len(self.costs))
        return min(equal, key=lambda each: ranked(math.fsum(each.value(at) for at in every)))

    def _polished_for(self, goals: list[int], pool: list[_Tried]) -> Iterator[_Tried]:
        """The best for each goal, polished for it, again and again until none changes or it is late.

        Limits: effort enough -> none that is made for another goal is faster
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
        """Cuts by these ids; those that are asked for first are of as many kinds as the effort allows."""
        if not self.cuts:
            with self._part(self.cutting * self.budget.effort_s) as part:
                self.cuts[at] = cuts_of(self.costs[at], budget=part)
            self.cut_s = part.spent_s
        elif at not in self.cuts:
            kinds = next(iter(self.cuts.values())).looked_at
            self.cuts[at] = cuts_of(self.costs[at], budget=self.budget, kinds=kinds)
        return self.cuts[at]

    def _choices(self, goal: int) -> Choices:
        if goal != _WORST:
            return self._cuts(goal).choices
        return worst_of([self._cuts(at).choices for at in range(len(self.costs))])

    def _mapped(self, goal: int, share: float) -> MappingState:
        """The mapper's own, with a share of the effort that is left once choices are there."""
        choices = self._choices(goal)
        with self._part(self.budget.left_s * share) as part:
            mapper = Mapper(choices, part, seed=self.seed)
            found = mapper.run()
        self.tried += mapper.tried
        return found

    def _dealt(self, state: MappingState, goal: int) -> _Tried:
        """A whole mapping: what is spread dealt as these ids have it, or the slowest to gather it."""
        cuts = self._cuts(max(goal, 0))
        if goal == _WORST:
            every = [self._cuts(at) for at in range(len(self.costs))]
            cuts = max(every, key=lambda each: ranked(each.choices.spread_s[state.choice].sum()))
        before_s = self.budget.spent_s
        self.tried += 1
        found = _Tried(state, mapping_of(cuts, _by(cuts.choices, state)), self.costs)
        found.value(goal)
        self.deal_s = self.budget.spent_s - before_s
        return found

    def _climbed(self, found: _Tried, goal: int, enough_s: float) -> _Tried:
        """The same after random changes of a table or two, each kept if a whole batch is no slower."""
        random, idle = np.random.default_rng(self.seed), 0
        while found.value(goal) > enough_s and idle <= _PATIENCE and not self._late(_CHANGED, self.deal_s):
            state, idle = _changed(_by(self._choices(goal), found.state), random), idle + 1
            if state is None:
                continue
            other = self._dealt(state, goal)
            idle = 0 if other.value(goal) < found.value(goal) * (1 - _LEAST_GAIN) else idle
            found = self._best([found, other], goal)
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
    again = MappingState(choices, state.work)
    for table, choice in enumerate(state.choice.tolist()):
        again.put(table, choice, state.where[table])
    return again
