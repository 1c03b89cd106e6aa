"""The mapper: selects how to cut each table (a choice), and its cores, so that a batch takes least time.

The relaxed problem (``bound``) of choices whose pieces are no longer than a target gives most tables one
choice; pieces are placed on cores, largest first; then tables choose again while that helps; then a few
random tables are taken off together and choose again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Budget
from perfmodel.errors import BadInputError
from perfmodel.onechip.bound import RelaxedMapping, lower_bound, relaxed
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.packing import MEAN_SHARE, MappingState, pack, place
from perfmodel.onechip.work_units import CHOICE, COMPARED, ranked, unlimited
from perfmodel.onechip.working import kept_for_work, pack_together

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_TARGETS = (1.0, 1.01, 1.03, 1.07, 1.15, 1.4, 2.0)  # of the bound
_LIKELY = 6
_GOOD_GAP = 2e-3
_LEAST_GAIN = 1e-9
_TOGETHER = 6  # tables of a random change, at most
_AT_RANDOM = 0.5  # share of these changes in which the first table takes any likely choice
_CHANGING = 0.5  # of the effort: until then tables change at random
_PATIENCE = 200  # random changes in a row that do not help


class Mapper:
    """Searches a fast mapping of tables to cores.

    budget  limits its work;  seed  of the random order in which tables are moved to better cores
    tried   number of mappings that were evaluated
    """

    def __init__(self, choices: Choices, budget: Budget | None = None, *, seed: int = 0) -> None:
        self.choices, self.random = choices, np.random.default_rng(seed)
        self.budget = budget or unlimited()
        self.works = bool(self.choices.vector.any())
        self.best: MappingState | None = None
        self.tried = 0

    def run(self) -> MappingState:
        """Search; returns the best mapping. Limits: no mapping fits all tables -> BadInputError"""
        everything = np.ones(self.choices.spread_s.size, dtype=bool)
        first = relaxed(self.choices, everything, budget=self.budget)
        for state in self._packed(first):
            if self.best is None or not (self._close(first.bound_s) or self.budget.over()):
                self._keep(self._improved(state))
        if self.best is None:
            raise BadInputError("no mapping has room for all tables.", "use a chip with larger buffers.")
        if np.isfinite(self.choices.capacity) and not self._close(first.bound_s):
            self._pack_near(lower_bound(self.choices, self.best.time_s, first, self.budget), first)
        self._change(first.bound_s)
        return self.best

    def _close(self, bound_s: float) -> bool:
        assert self.best is not None
        return self.best.time_s <= bound_s * (1 + _GOOD_GAP)

    def _keep(self, state: MappingState) -> None:
        self.tried += 1
        if self.best is None or state.score < self.best.score * (1 - _LEAST_GAIN):
            self.best = state

    def _packed(self, first: RelaxedMapping) -> list[MappingState]:
        """Mappings from relaxed problems with several limits on the longest piece, best first."""
        found: list[MappingState] = []
        near = first
        for factor in (*_TARGETS, np.inf):
            if found and self.budget.over():
                break
            target = first.bound_s * factor
            some = first
            if np.isfinite(factor):
                c = kept_for_work(self.choices, target) if self.works else self.choices
                some = relaxed(c, self.choices.longest_s <= target, near, self.budget)
            if not np.isfinite(some.bound_s):
                continue
            near = some
            target = max(some.bound_s, target if np.isfinite(factor) else 0.0)
            state = self._pack(some, target)
            self.tried += state is not None
            if state is not None and not any(np.array_equal(state.choice, one.choice) for one in found):
                found.append(state)
            if found and found[-1].time_s <= first.bound_s * (1 + _GOOD_GAP):
                break
        return sorted(found, key=lambda state: ranked(state.score))

    def _pack_near(self, bound_s: float, first: RelaxedMapping) -> None:
        """Make mappings from relaxed problems with limits slightly above the bound ``bound_s``.

        Equal tables that are slow together become faster together: changing one alone would not help.
        first  solution of the relaxed problem without a limit
        """
        assert self.best is not None
        for factor in _TARGETS:
            target = bound_s * factor
            if self._close(bound_s) or self.budget.over() or target >= self.best.time_s:
                break
            some = relaxed(self.choices, self.choices.longest_s <= target, first, self.budget)
            if np.isfinite(some.bound_s):
                state = self._pack(some, target)
                if state is not None:
                    self._keep(self._improved(state))

    def _pack(self, found: RelaxedMapping, target_s: float) -> MappingState | None:
        packed = pack_together if self.works else pack
        return packed(self.choices, self._rounded(found, target_s), target_s, self.budget.work)

    def _rounded(self, found: RelaxedMapping, target_s: float) -> list[list[int]]:
        """Choices to try for each table in order: the relaxed problem's, then cheap, ever smaller choices.

        found  the solution;  target_s  intended time of the cores [s]
        """
        c = self.choices
        options: list[list[int]] = [[] for _ in range(c.kind_of.size)]
        late = np.maximum(c.longest_s - target_s, 0)
        price, pieces = found.price_s + late, np.diff(c.parts)
        for kind in range(c.count.size):
            tables = np.flatnonzero(c.kind_of == kind)
            own = slice(int(c.first[kind]), int(c.first[kind + 1]))
            others = _leaner(own.start + np.argsort(ranked(price[own]), kind="stable"), c.total_local, pieces)
            mine = np.flatnonzero(c.kind[found.chosen] == kind)
            for table, choice in zip(tables, _dealt(found.chosen[mine], found.share[mine]), strict=False):
                options[table] = [choice, *others]
            for table in tables:
                options[table] = options[table] or others
        return options

    def _improved(self, state: MappingState) -> MappingState:
        """The mapping after each table in turn has chosen again, until nothing helps."""
        while not self.budget.over():
            before = state.score
            for table in self.random.permutation(self.choices.kind_of.size):
                self._choose(state, int(table))
                if self.budget.over():
                    break
            if state.score >= before * (1 - 1e-4):
                break
        return state

    def _change(self, bound_s: float) -> None:
        """Change the best mapping at random, until many changes in a row do not help.

        bound_s  lower bound: close to it the search stops [s]
        """
        assert self.best is not None
        idle = 0
        while not (idle >= _PATIENCE or self._close(bound_s) or self.budget.over(_CHANGING)):
            before = self.best
            after = self._changed(before)
            if np.all(after.choice >= 0):
                self._keep(after)
            idle = idle + 1 if self.best is before else 0

    def _changed(self, state: MappingState) -> MappingState:
        """The mapping after some tables lost their choice and chose again; sometimes one takes any choice."""
        state = state.copy()
        number = min(int(self.random.integers(1, _TOGETHER + 1)), state.choice.size)
        tables = self.random.choice(state.choice.size, number, replace=False).tolist()
        for table in tables:
            state.clear(table)
        if self.random.random() < _AT_RANDOM:
            self._choose_any(state, tables.pop(0))
        for table in tables:
            self._choose(state, table)
        return state

    def _choose_any(self, state: MappingState, table: int) -> None:
        options = likely(state, table, np.inf)
        choice = int(self.random.choice(options)) if options else self.choices.of(table).start
        where = place(state, choice, state.time_s)
        if where is not None:
            state.put(table, choice, where)

    def _choose(self, state: MappingState, table: int) -> None:
        """Give a table the choice that makes the mapping fastest,
        with all other tables left where they are.
        """
        now, choice, where = state.score, int(state.choice[table]), state.where[table]
        if choice >= 0:
            state.clear(table)
        best = (now, choice, where) if choice >= 0 else (np.inf, -1, where)
        for other in likely(state, table, best[0]):
            found = place(state, other, state.time_s)
            if found is None:
                continue
            state.put(table, other, found)
            if state.score < best[0] * (1 - _LEAST_GAIN):
                best = state.score, other, found
            state.clear(table)
        if best[1] >= 0:
            state.put(table, best[1], best[2])


def _leaner(order: Ints, local: Array, pieces: Ints) -> list[int]:
    """The choices, in order, that keep fewer bytes than all before, and the leanest with few pieces.

    local, pieces  bytes that each choice keeps, and its number of pieces
    """
    least = np.minimum.accumulate(local[order])
    fewer = order[np.flatnonzero(np.append(np.inf, least[:-1]) > local[order])]
    leanest = order[local[order] == least[-1]]
    return [*fewer.tolist(), int(leanest[np.argmin(pieces[leanest])])]


def _dealt(chosen: Ints, share: Array) -> list[int]:
    """Choices, each repeated in proportion to its share, largest shares first."""
    whole = np.floor(share + 1e-6).astype(np.int64)
    left = round(float(share.sum())) - int(whole.sum())
    more = np.argsort(ranked(whole - share), kind="stable")[: max(left, 0)]
    whole[more] += 1
    return [int(choice) for choice, number in zip(chosen, whole, strict=True) for _ in range(number)]


def likely(state: MappingState, table: int, below_s: float) -> list[int]:
    """Choices to try for a table that has none, most promising first.

    below_s  time of the best mapping: choices that cannot be faster are left out [s]
    """
    c = state.choices
    at = c.of(table)
    level = (state.core_s.sum() + state.spread_s) / c.cores
    hot = c.hot_s[state.choice[state.choice >= 0]].max(axis=0, initial=0.0)
    loads = np.append(level, state.shared_s) + c.loads[at]
    loads[:, 1:] += np.maximum(hot, c.hot_s[at])
    least = np.maximum(np.maximum(loads.max(axis=1), c.longest_s[at]), state.core_s.max())
    work = (loads * loads).sum(axis=1) + c.squares[at] + state.core_s @ state.core_s / c.cores
    least = least + MEAN_SHARE * work / np.maximum(least, 1e-300)
    if np.isfinite(c.capacity):
        free = float(np.maximum(c.capacity - state.local, 0).sum())
        least = np.where(c.total_local[at] > free * (1 + 1e-9), np.inf, least)
    state.work.add(COMPARED)
    state.work.add(CHOICE, least.size)
    order = np.argsort(ranked(least), kind="stable")[:_LIKELY]
    return [at.start + int(k) for k in order if least[k] < below_s]
