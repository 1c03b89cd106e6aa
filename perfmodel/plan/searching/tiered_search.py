"""The search for a plan whose tables may be below the HBM.

Moves use a separate cache for each table. Before the answer, the best plans and the greedy plans are
evaluated with the caches that tables on a rank share (``tier_loads.add_pooled``); cached shares are adjusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Budget
from perfmodel.plan.bounding.problem import Relaxation, Subspace
from perfmodel.plan.bounding.relaxed_caches import as_listed, relaxed_caches
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.greedy_tiers import greedy_plans
from perfmodel.plan.searching.improve import improve
from perfmodel.plan.searching.packing import Packing, Scale, pack, place
from perfmodel.plan.searching.search import Search

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_RIVALS = 12
"""Number of the last best plans that are evaluated with shared caches."""
_CHANGES = 1000
"""Most changes of one table, or of two, that are tried, about 5 ms each."""
_PAIRED = 4
"""Number of tables of which pairs are changed."""
_POLISHING = 0.25  # of the effort, in addition, for shared caches
_LESS = 1e-9


class TieredSearch(Search):
    """As ``Search``, for tables in several tiers. The bound holds for any caches (``relaxed_caches``)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.nearest: Ints | None = None
        self.greedy: list[Packing] = []
        self.rivals: list[Packing] = []
        self.last = Budget(self.budget.work, 0.0)

    def _begin(self) -> None:
        self.greedy = list(greedy_plans(self.evaluator, self.options, self.limit_bytes))
        for state in self.greedy:
            self._keep(state)
        super()._begin()

    def _keep(self, state: Packing) -> None:
        if not state.below_fits:
            return
        before = self.best
        super()._keep(state)
        if self.best is not before and self.best is not None:
            self.rivals = [*self.rivals, self.best][-_RIVALS:]

    def _bounded(self) -> Options:
        relaxed, self.nearest = relaxed_caches(self.options, self.evaluator)
        return relaxed

    def _near(self, part: Subspace, relaxed: Relaxation) -> float:
        return super()._near(part, relaxed if self.nearest is None else as_listed(relaxed, self.nearest))

    def _try(self, option: Ints, mask: Mask) -> Packing | None:
        """As ``Search._try``; if nodes may be full, also without ``Descent``, which ignores their memory."""
        if self.options.crowded and option.tobytes() not in self.packed:
            state = pack(self.evaluator, self.options, option, self.limit_bytes)
            self.packed[option.tobytes()] = state is not None
            self.tried += 1
            if state is not None:
                self._keep(improve(state, mask, self.bounded_enough))
        return super()._try(option, mask)

    def _answer(self, stopped: str) -> Found:
        rivals = [state for state in (*self.rivals, *self.greedy) if state.below_fits]
        rivals.sort(key=lambda state: state.time_s)
        self.last = Budget(self.budget.work, _POLISHING * self.budget.effort_s, stop=self.budget.cut_short)
        best_s, best = np.inf, self.best
        for at, state in enumerate(rivals):
            if at >= _RIVALS and self.last.over():
                break
            time_s = self._exact_s(state)
            if time_s < best_s:
                best_s, best = time_s, state
        if best is not None:
            self.best = self._polished(best.copy())
        return super()._answer(stopped)

    def _exact_s(self, state: Packing) -> float:
        """Time of a plan if the tables of a rank share their cache [s]; infinite if a rank lacks memory."""
        plan = state.plan()
        loads = self.evaluator.loads(plan)
        if float(self.evaluator.memory(plan, loads).total_bytes.max()) > self.limit_bytes:
            return np.inf
        return float(self.evaluator.exact_times(loads.most[np.newaxis])[0])

    def _polished(self, state: Packing) -> Packing:
        """The plan after tables changed tiers or schemes, as long as that makes it faster."""
        best_s, left = self._exact_s(state), _CHANGES
        better = True
        while better:
            better = False
            for change in _changes(state):
                left -= 1
                if left <= 0 or self.last.over():
                    return state
                other = _changed(state, change)
                if other is None or not (other.fits and other.below_fits):
                    continue
                time_s = self._exact_s(other)
                if time_s < best_s * (1 - _LESS):
                    state, best_s, better = other, time_s, True
        return state


Change = tuple[tuple[int, int], ...]
"""(table, option) pairs to change together."""


def _changes(state: Packing) -> Iterator[Change]:
    """Yields changes of tables, largest tables first: options that differ only in tier, then any others.

    For few tables also in pairs, because a table that joins a shared cache gains more if other shares change
    too.
    """
    o = state.options
    size = state.evaluator.tables.rows * state.evaluator.tables.dim
    alike: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for t in np.argsort(-size, kind="stable").tolist():
        own, at = int(state.option[t]), o.of(t)
        same = np.ones(at.stop - at.start, dtype=bool)
        for column in (o.exchange, o.r, o.c, o.hot):
            same &= column[at] == column[own]
        for option in range(at.start, at.stop):
            if option != own:
                (alike if same[option - at.start] else others).append((t, option))
    yield from ((one,) for one in (*alike, *others))
    if size.size <= _PAIRED:
        yield from ((one, two) for one, two in combinations((*alike, *others), 2) if one[0] != two[0])


def _changed(state: Packing, change: Change) -> Packing | None:
    """The plan after a change; None if a table does not fit. A table with the same cut keeps its ranks."""
    other, o = state.copy(), state.options
    for table, _ in change:
        other.clear(table)
    for table, option in change:
        own, ranks = int(state.option[table]), state.ranks[table]
        other.choose([table], np.array([option]))
        if other.ranks[table] is not None:
            continue
        if ranks is None or (o.exchange[own], o.parts[own]) != (o.exchange[option], o.parts[option]):
            ranks = place(other, option, Scale.of(other.evaluator, other.most + o.own[option]))
        if ranks is None:
            return None
        other.put(table, ranks)
    return other
