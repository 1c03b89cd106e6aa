"""The search behind an answer: the mapper's mapping, then random changes that are evaluated on whole batches.

The mapper assumes that spread look-ups are divided evenly. In fact cores get slices of whole bags, and each
slice waits for its first row, which takes longer. So if a batch is far from the bound, one or two tables
change their choices at random; a change is kept if a whole batch takes less time, or initially a little more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from perfmodel.effort import Budget, Work
from perfmodel.onechip.bound import lower_bound
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cuts, cuts_of
from perfmodel.onechip.mapper import Mapper, likely
from perfmodel.onechip.mapping import Mapping, mapping_of
from perfmodel.onechip.packing import MappingState, place
from perfmodel.onechip.work_units import BATCH, KIND, PIECE, ranked

_GOOD_GAP = 5e-3
_MAPPER_SHARE = 0.5  # of the remaining effort, for the mapper
_PATIENCE = 1000  # random changes in a row that do not help
_LEAST_GAIN = 1e-4
_WORSE = 0.1  # of the best batch's time: excess that is accepted at first
_TOGETHER = 2  # tables of a change, at most
_NEAR = 3  # choices next to the present choice in the list of cuts: fewer or more slices


@dataclass(frozen=True, eq=False)
class Searched:
    """Result of the search.

    cuts    all choices;  state  the chosen ones;  mapping  their pieces;  seconds  time of a batch [s]
    bound_s lower bound over mappings of the cuts [s];  tried  number of mappings that were evaluated
    ended   whether the effort was spent before the search found no more improvement
    """

    cuts: Cuts
    state: MappingState
    mapping: Mapping
    seconds: float
    bound_s: float
    tried: int
    ended: bool


def search(cost: ChipCost, *, budget: Budget, seed: int) -> Searched:
    """Searches the mapping with the fastest batch.

    Limits: no mapping fits all tables -> BadInputError
    """
    return _Search(cost, budget, seed).run()


class _Search:
    """A search for one set of tables, until the effort is spent."""

    def __init__(self, cost: ChipCost, budget: Budget, seed: int) -> None:
        self.cost, self.budget, self.seed = cost, budget, seed
        self.ended, self.tried, self.deal_s, self.few = False, 0, 0.0, 0
        self.cuts = cuts_of(cost, work=budget.work)

    @contextmanager
    def _part(self, effort_s: float) -> Iterator[Budget]:
        """A context with the budget of a stage that may spend so much effort."""
        part = Budget(self.budget.work, effort_s, stop=self.budget.cut_short)
        yield part
        self.ended = self.ended or part.spent_s >= effort_s

    def run(self) -> Searched:
        """The mapper's mapping, improved by random changes if it is far from the bound."""
        with self._part(self.budget.left_s * _MAPPER_SHARE) as part:
            mapper = Mapper(self.cuts.choices, part, seed=self.seed)
            state = mapper.run()
        self.tried += mapper.tried
        mapping, seconds = self._dealt_best(state)
        bound_s = self._bound(seconds)
        state, mapping, seconds = self._changed((state, mapping, seconds), bound_s * (1 + _GOOD_GAP))
        return Searched(self.cuts, state, mapping, seconds, bound_s, self.tried, self.ended)

    def _bound(self, upper_s: float) -> float:
        """Lower bound on all mappings [s]. Its work comes in addition: at most as much work as the search.

        upper_s  time of a known mapping [s]
        """
        part = Budget(Work(), self.budget.effort_s, stop=self.budget.cut_short)
        found = lower_bound(self.cuts.choices, upper_s, budget=part)
        self.ended = self.ended or part.over()
        return found

    def _dealt_best(self, state: MappingState) -> tuple[Mapping, float]:
        """As ``_dealt``, with the better of two values of ``mapping_of``'s ``few``, which is then kept."""
        found = {}
        for few in (0, int(self.cost.batch) // 2):
            self.few = few
            found[few] = self._dealt(state)
        self.few = min(found, key=lambda few: float(ranked(found[few][1])))
        return found[self.few]

    def _dealt(self, state: MappingState) -> tuple[Mapping, float]:
        """(the mapping for a state, with spread look-ups assigned to cores, time of its batch [s])."""
        before_s, work = self.budget.spent_s, self.budget.work
        mapping = mapping_of(self.cuts, state, self.few)
        self.tried += 1
        work.add(BATCH)
        work.add(PIECE, len(mapping.pieces))
        work.add(KIND, self.cost.sample.size)
        seconds = mapping.batch(self.cost).seconds
        self.deal_s = self.budget.spent_s - before_s
        return mapping, seconds

    def _changed(
        self, first: tuple[MappingState, Mapping, float], enough_s: float
    ) -> tuple[MappingState, Mapping, float]:
        """The best (state, mapping, time) after random changes of one or two tables at a time.

        enough_s  time at which to stop [s]
        """
        random, idle, best, now = np.random.default_rng(self.seed), 0, first, first[0]
        seen = {now.choice.tobytes()}
        while best[2] > enough_s and idle <= _PATIENCE:
            if self.budget.over(more_s=self.deal_s):
                self.ended = True
                break
            state, idle = _with_others(now, random), idle + 1
            most_s = ranked(best[2]) * (1 + _WORSE * (1 - self.budget.share))
            if state is None or ranked(state.time_s) > most_s or state.choice.tobytes() in seen:
                continue
            seen.add(state.choice.tobytes())
            mapping, seconds = self._dealt(state)
            if seconds < best[2] * (1 - _LEAST_GAIN):
                best, idle = (state, mapping, seconds), 0
            if ranked(seconds) <= most_s:
                now = state
        return best


def _with_others(state: MappingState, random: np.random.Generator) -> MappingState | None:
    """The state after one or two random tables changed: to any likely choice, or to slightly other slices.

    Limits: no other choice fits -> None
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
