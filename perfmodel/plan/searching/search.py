"""The search for a plan: good constructions, then changes, until bound, effort or no improvement ends it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS, Budget
from perfmodel.errors import BadInputError
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.loads import Loads
from perfmodel.passes.placement import Plan, Scheme
from perfmodel.passes.steps import StepCost
from perfmodel.plan.bounding.at_once import at_once
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching import effort_shares as shares
from perfmodel.plan.searching.carried import repaired
from perfmodel.plan.searching.changing import Changing
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.improve import improve
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.rounding import leanest, roundings
from perfmodel.plan.searching.schemes import Descent
from perfmodel.plan.searching.starts import Starts
from perfmodel.plan.searching.uniform import packed_as, schemes_by_kind, uniform_plans

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TOLERANCE = 0.01
_SMALL = 30_000  # tables times GPUs: up to here, every plan near the best is improved; above, only the best
_FEW = 4_000  # and up to here schemes are improved one by one before they are chosen at prices
_WORTH_A_FAMILY = 1.3  # of the best plan's time: a slower kind of exchange alone is not pursued
_VALLEYS = 4  # of such plans are changed at random besides the best plan
_WORTH_A_TRY = 1.02  # of the best plan's time: slower plans are not improved
_ALIKE = 1.002  # of the best plan's time: quick times differ from exact times by less
_LESS = 1e-9  # of a time: a plan must be faster by this to replace the best
_ROOMS = (1.0, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
"""Shares of the memory for which schemes are chosen: shards of unequal size do not fill all of it."""

Watch = Callable[[float, float], None]
Restriction = Callable[[Options, Evaluator], Mask]
"""Mask [O] of the options that a plan may use; every table must keep one."""
Until = Callable[[], bool]


class Listed(Protocol):
    """Lists the options of a search."""

    def __call__(self, *, named: Sequence[Collection[Scheme]]) -> Options:
        """The options. named  for each kind of equal tables, further schemes to list"""


class Search:
    """A search; ``run`` returns the best plan, or the best so far when it is interrupted.

    options  that plans may use, or a function that lists them; None: all that fit (``options_of``)
    restrict  returns a mask of the options to keep;  ruled  whether ``options`` leave out what rules forbid
    effort_s counted work of the search [s];  time_limit_s  by the clock, ends it early; None: no limit
    watch    is called with (best time [s], bound [s]) as they improve
    Another ``evaluator`` needs: ``step_times``, ``tables``, the exchanges with buffers of ``times`` (search);
    ``parts``, ``steps`` (bound); ``loads``, ``step``, ``memory`` (answer); ``work``, which counts operations.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limit_bytes: float,
        *,
        effort_s: float = EFFORTS[DEFAULT_EFFORT],
        time_limit_s: float | None = None,
        seed: int = 0,
        restrict: Restriction | None = None,
        options: Options | Listed | None = None,
        ruled: bool = False,
        watch: Watch = lambda best_s, bound_s: None,
    ) -> None:
        self.evaluator, self.limit_bytes, self.watch = evaluator, limit_bytes, watch
        uniform = uniform_plans(evaluator, limit_bytes, ruled=ruled or restrict is not None)
        self.budget = Budget(evaluator.work, effort_s, time_limit_s)
        self.random = np.random.default_rng(seed)
        self.best: Packing | None = None
        self.best_s = np.inf
        self.bounds: Bounding | None = None
        self.curves: StepCurves | None = None
        self.kinds: list[int] = []
        self.families: list[Packing] = []
        self.better: dict[tuple[float, bytes, bytes], Ints] = {}  # improved schemes, by memory and mask
        self.first: Ints | None = None  # schemes [T] to try in addition
        self.tried = 0  # plans that were packed
        self.bounds_began_s = self.near_s = 0.0  # work before bounds; work for plans near their optima
        self.packed: dict[bytes, bool] = {}  # whether schemes could be packed
        schemes = schemes_by_kind(evaluator.tables, uniform)
        if options is None:
            options = partial(options_of, evaluator, limit_bytes)
        self.options = options(named=schemes) if callable(options) else options
        self.restricted = restrict is not None
        if restrict is not None:
            self.options = self.options.kept(restrict(self.options, evaluator))
        self.bounded_enough: Until = self.late
        size = self.options.kind_of.size * self.options.gpus
        self.few, self.small = size <= _FEW, size <= _SMALL
        states = (packed_as(plan, evaluator, self.options, limit_bytes) for plan in uniform)
        self.uniform = [state for state in states if state is not None]
        self.starts = Starts(evaluator, self.options, limit_bytes, self._keep, self.late)

    def late(self) -> bool:
        """Whether the effort is spent, or the search is ended early."""
        return self.budget.over()

    def _after(self, share: float) -> Until:
        """A function that returns whether this share of the effort is spent."""
        return partial(self.budget.over, share)

    def _soon(self, share: float, least: float) -> Until:
        """A function that returns whether ``share`` of the effort is spent, and ``least`` from now on."""
        return self._after(min(max(share, self.budget.share + least), 1.0))

    def _bound(self, share: float, least: float) -> None:
        """Raise the bound while it rises, until ``_soon`` with the same arguments."""
        assert self.bounds is not None
        self.bounded_enough = self._soon(share, least)
        self.bounds.run(self.bounded_enough)

    def run(self) -> Found:
        """Run the search; returns the best plan.

        Limits: no plan fits in memory -> BadInputError;  Ctrl-C -> the best so far, KeyboardInterrupt
                before there is one
        """
        stopped = "no improvement"
        try:
            self._begin()
            self.bounds_began_s = self.budget.spent_s
            if self.best is not None:
                self._begin_bounds(self.best)
                if self.few:
                    self._bound(shares.GLANCE, 0.0)
                    if self._open():
                        self._start(shares.STARTING)
                self._rest()
            if not self._open():
                stopped = "bound"
        except KeyboardInterrupt:
            if self.best is None:
                raise
            stopped = "interrupt"
        if stopped == "no improvement" and self.late():
            stopped = "time-limit" if self.budget.cut else "effort"
        return self._answer(stopped)

    def _rest(self) -> None:
        """Raise the bounds and change plans in turn, until the gap is closed or the effort is spent."""
        if not self.small:  # for many tables the bound takes long, and shows few plans
            self._anneal(self._soon(shares.EARLY, shares.EARLY_LEAST))
        self._bound(shares.BOUNDING, shares.BOUNDING_LEAST)
        if self._open():
            enough = self._soon(shares.CHANGING, shares.CHANGING_LEAST)
            self._anneal(enough)
            unsettled = enough()
            self._bound(1.0, 0.0)
            if unsettled and self._open():  # no bound can rise: the rest is for plans
                self._anneal(self.late)

    def _open(self) -> bool:
        """Whether there may be a plan that is better than the best by more than the tolerance."""
        return self.bounds is None or self.bounds.bound_s < self.best_s * (1 - _TOLERANCE)

    def _begin_bounds(self, best: Packing) -> None:
        """Compute an immediate bound, from the loads of a plan."""
        e = self.evaluator
        self.curves = StepCurves.of(e)
        problem = Problem(self.options, self.curves, self.limit_bytes, self.best_s)
        self.bounds = Bounding(problem, self._near, _TOLERANCE, self.kinds)
        self.bounds.begin(at_once(problem, self.curves.units(e.loads(best.plan()).most)))

    def _answer(self, stopped: str) -> Found:
        if self.best is None:
            raise BadInputError(
                f"no plan was found that fits the memory of {self.options.gpus} GPUs.",
                "use more GPUs (--gpus), more memory (--max-hbm, --reserve), or --effort thorough.",
            )
        near = [state for state in self.uniform if state.time_s < self.best_s * _ALIKE]
        plan, loads, cost = min(map(self._costed, [self.best, *near]), key=lambda costed: costed[2].time_s)
        return Found(
            *(plan, cost, self.evaluator.memory(plan, loads), self.limit_bytes),
            bound_s=min(self.bounds.bound_s if self.bounds else 0.0, cost.time_s),
            stopped=stopped,
            tried=self.tried + self.starts.tried,
            restricted=self.restricted,
            done=self.budget.share,
        )

    def _costed(self, state: Packing) -> tuple[Plan, Loads, StepCost]:
        """The plan of a state, its loads, and its cost as precisely as in an answer."""
        plan = state.plan()
        loads = self.evaluator.loads(plan)
        return plan, loads, self.evaluator.step(loads)

    def _begin(self) -> None:
        """Plans with one sharding for all tables, quick plans, then one kind of exchange, then several.

        The quick plans come first because bounds, listings and improvements may take all the time.
        """
        o = self.options
        kinds = o.kinds
        self.starts.uniform(self.uniform)
        self.starts.quick(self.late if self.few else self._after(shares.QUICK))
        self._try_first()
        times = self.starts.families() if self.few else self._start(shares.STARTING)
        early = self._after(shares.DESCENDING)
        for some in ([], *([kind] for kind in kinds), kinds):
            if self.best is not None and (not self.small or early()):
                break
            mask = o.exchanged_by(some)
            start = leanest(o, mask)
            state = None if start is None else self._try(start, mask)
            if state is not None:
                kind = some[0] if len(some) == 1 else -1
                times[kind] = min(state.time_s, times.get(kind, np.inf))
                self.families.append(state.copy())
        self.kinds = sorted(kinds, key=lambda kind: times.get(kind, np.inf))

    def _try_first(self) -> None:
        """Try the options in ``first``, with less memory if they do not fit, and with shards moved."""
        if self.first is None:
            return
        self.tried += 1
        state = repaired(self.evaluator, self.options, self.first, self.limit_bytes, self.late)
        if state is not None:
            self._keep(improve(state, self._any(), self._after(shares.GLANCE)))

    def _start(self, share: float) -> dict[int, float]:
        """Make plans by Lagrangian prices; returns the fastest time with each kind of exchange alone [s].

        share  of the effort that this may take
        """
        starts = self.starts
        long = shares.STARTING_S / max(share * self.budget.effort_s, shares.STARTING_S)
        share *= max(long, shares.STARTING_LEAST)
        starts.until, starts.until_even = self._after(share), self._after(share * (1 + shares.EVENING))
        starts.run()
        self.families += [] if self.few else starts.states()
        return starts.families()

    def _near(self, part: Subspace, relaxed: Relaxation) -> float:
        """Try plans near the relaxed optimum of a part of all plans; returns the best known time [s].

        Limits: many tables -> none is tried
        """
        o = self.options
        assert self.bounds is not None and self.curves is not None
        began_s = self.budget.spent_s
        busy = self.near_s > shares.NEAR * (began_s - self.bounds_began_s) and not self.few
        mask = part.among(o, self.curves.units(o.own))
        for option in roundings(o, relaxed) if self.small and not busy else ():
            if self.bounded_enough():
                break
            self._try(option, mask)
        self.near_s += self.budget.spent_s - began_s
        self.watch(self.best_s, self.bounds.bound_s)
        return self.best_s

    def _try(self, option: Ints, mask: Mask) -> Packing | None:
        """Improve these options of all tables within ``mask`` and place them on ranks.

        If they do not fit, they are improved again for less and less memory.
        Limits: they never fit, or give only plans that were placed before -> None
        """
        for room in _ROOMS:
            descent = Descent(self.evaluator, self.options, self.limit_bytes * room)
            start = room, option.tobytes(), mask.tobytes()
            if start not in self.better:
                self.better[start] = descent.run(option, mask, self.bounded_enough)
            better = self.better[start]
            packed = self.packed.get(better.tobytes())
            if packed:
                return None
            if packed is None:
                self.tried += 1
                state = pack(self.evaluator, self.options, better, self.limit_bytes)
                self.packed[better.tobytes()] = state is not None
                if state is not None:
                    if self.bounds and self.small and state.time_s < self.best_s * _WORTH_A_TRY:
                        state = improve(state, mask, self.bounded_enough)
                    self._keep(state)
                    return state
        return None

    def _anneal(self, until: Until) -> None:
        """Change the best plan at random, and the best plans with few kinds of exchange: other local optima.

        until  returns whether to stop
        """
        assert self.curves is not None
        states = [] if self.best is None else [self.best.copy()]
        if self.small:
            near = [state for state in self.families if state.time_s < _WORTH_A_FAMILY * self.best_s]
            states += sorted(near, key=lambda state: state.time_s)[:_VALLEYS]
        Changing(self.curves, self.random, self._keep, until, cool=not self.small).run(states)

    def _any(self) -> Mask:
        return np.ones(self.options.group.size, dtype=bool)  # every option is allowed

    def _keep(self, state: Packing) -> None:
        time_s = state.time_s
        if time_s < self.best_s * (1 - _LESS):
            self.best, self.best_s = state.copy(), time_s
            if self.bounds is not None:
                self.bounds.best_s = min(self.bounds.best_s, time_s)
            self.watch(time_s, self.bounds.bound_s if self.bounds else 0.0)
