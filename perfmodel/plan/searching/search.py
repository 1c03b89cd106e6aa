"""The search for a plan: good constructions, then changes, until effort, bound or no improvement ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.uniform_plans import UniformPlan, UniformPlans
from perfmodel.effort import DEFAULT_EFFORT, EFFORTS, Budget
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import WAYS
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.bounding import StepCurves, compute_lower_bound
from perfmodel.plan.choices.scheme_options import MORE_MEMORY, Options, check_kinds, list_options
from perfmodel.plan.searching.annealing import Annealing
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.local_search import improve
from perfmodel.plan.searching.packing import Packing, is_faster, pack_as
from perfmodel.plan.searching.starts import Starts
from perfmodel.units import counted

GIVEN = "given"  # why no search ended: the plan was given
_TOLERANCE = 0.99  # of the best plan's time: a bound from there on ends the search
_SMALL = 30_000  # tables times GPUs: up to here, every plan near the best is improved; above, only the best
_WORTH_A_FAMILY = 1.3  # of the best plan's time: a slower kind of exchange alone is not pursued
_VALLEYS = 4  # of such plans are changed at random besides the best plan
_ALIKE = 1.002  # of the best plan's time: quick times differ from exact times by less
_QUICK = 0.3  # of the work, at most, for quick plans
_STARTING = 0.6  # of the work, at most, for all starting plans
_STARTING_S = 1.5  # for them with more effort
_STARTING_LEAST = 0.3  # of their share of the work, whatever the effort
_EVENING = 0.25  # of that work in addition, until which they are rebalanced
_PATIENCE = 3  # turns of each plan in a row that do not help
_ROUNDS = 300  # of a turn of annealing
_HEATS_LOG10 = ((-3.0, -2.4), (-1.7, -0.9), (-3.6, -3.0), (-2.4, -1.8))
"""Initial heats of annealing, by turn, as shares of the step's time: little heat moves shards to better
ranks, much heat leaves a local optimum."""
_HOT_FEW = 12  # most tables of which each is a large share of the time: every other turn has these heats
_HOT_LOG10 = (-1.2, -0.5)
_COOL_LOG10 = (-4.5, -4.0)  # range of heats for many tables, each a small share of the step's time
_OTHERS = 3  # turns, of which one also tries exchanges that a plan does not have

Watch = Callable[[float], None]
ListOptions = Callable[..., Options]
"""Lists options; ``more``: for each kind of equal tables, further schemes to list."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The result of a search: a plan with its cost and memory, and a bound on all plans.

    bound_s     no plan of the listed schemes takes less (``list_options``) [s]
    stopped     why it ended: bound, no improvement, effort, interrupt; ``GIVEN``: not searched, bound 0
    done        share of the effort that was spent [-]
    limit_bytes  memory of a rank that tables may use
    """

    costed: CostedPlan
    limit_bytes: float
    bound_s: float
    stopped: str
    done: float = 1.0

    @property
    def gap(self) -> float:
        """Gap between the plan's time and the bound, as a share of the plan's time."""
        return 1 - self.bound_s / self.costed.time_s


class Search:
    """A search; ``run`` returns the best plan, or the best so far when it is interrupted.

    options  lists what plans may use; None: all that fits (``list_options``)
    ruled    whether ``options`` leaves out what rules, or TorchRec, do not allow
    effort_s counted work of the search [s]
    """

    def __init__(
        self,
        evaluator: Evaluator,
        limit_bytes: float,
        *,
        effort_s: float = EFFORTS[DEFAULT_EFFORT],
        options: ListOptions | None = None,
        ruled: bool = False,
    ) -> None:
        self.evaluator = evaluator
        self.limit_bytes = limit_bytes
        check_kinds(evaluator.tables)
        uniform = find_uniform_plans(evaluator, limit_bytes, ruled=ruled)
        self.budget = Budget(evaluator.work, effort_s)
        self.random = np.random.default_rng(0)
        self.best: Packing | None = None
        self.best_s = np.inf
        self.bound_s = 0.0
        options = options or partial(list_options, evaluator, limit_bytes)
        self.options = options(more=collect_schemes(evaluator.tables, uniform))
        self.small = self.options.kind_of.size * self.options.gpus <= _SMALL
        states = (pack_as(plan, evaluator, self.options, limit_bytes) for plan in uniform)
        self.uniform = [state for state in states if state is not None and state.fits]
        self.starts = Starts(evaluator, self.options, limit_bytes, self._keep, self.budget.over)

    def run(self, watch: Watch = lambda best_s: None) -> SearchResult:
        """Run the search; returns the best plan. watch  is called with the best time [s] as it improves

        Limits: no plan fits in memory -> BadInputError;  Ctrl-C -> the best so far, KeyboardInterrupt
                before there is one
        """
        self.watch = watch
        stopped = "no improvement"
        try:
            self._start()
            if self.best is not None:
                curves = StepCurves.build(self.evaluator)
                loads = curves.convert(self.evaluator.loads(self.best.build_plan()).max(axis=1))
                self.bound_s = compute_lower_bound(self.options, curves, self.limit_bytes, loads, self.best_s)
                if self._is_open:
                    self._anneal(self.best.copy(), curves)
            stopped = stopped if self._is_open else "bound"
        except KeyboardInterrupt:
            if self.best is None:
                raise
            stopped = "interrupt"
        if stopped == "no improvement" and self.budget.over():
            stopped = "effort"
        result = self._build_result(stopped)
        del self.starts  # it calls this search: in a circle, the arrays of both outlive the result
        return result

    @property
    def _is_open(self) -> bool:
        """Whether the bound allows a plan that is faster than the best by 1 %."""
        return bool(is_faster(self.bound_s, self.best_s * _TOLERANCE))

    def _build_result(self, stopped: str) -> SearchResult:
        """The best plan by exact times. stopped  why the search ended"""
        if self.best is None:
            gpus = counted(self.options.gpus, "GPU")
            raise TooFewGpusError(f"no plan was found that fits the memory of {gpus}.", MORE_MEMORY)
        near = [state for state in self.uniform if is_faster(state.time_s, self.best_s * _ALIKE)]
        plans = [self.evaluator.cost(state.build_plan()) for state in (self.best, *near)]
        best = min(plans, key=lambda plan: plan.time_s)
        return SearchResult(
            costed=best,
            limit_bytes=self.limit_bytes,
            bound_s=min(self.bound_s, best.time_s),
            stopped=stopped,
            done=self.budget.share,
        )

    def _start(self) -> None:
        """Plans with one sharding for all tables, quick plans, then plans by Lagrangian prices.

        The quick plans come first because listings and improvements may take all the time.
        """
        starts = self.starts
        over = self.budget.over
        starts.add_uniform(self.uniform)
        # Of more effort starting plans take a smaller share, down to a least one.
        long = _STARTING_S / max(_STARTING * self.budget.effort_s, _STARTING_S)
        share = _STARTING * max(long, _STARTING_LEAST)
        starts.until = partial(over, share)
        starts.until_even = partial(over, share * (1 + _EVENING))
        starts.run_quick(partial(over, _QUICK))
        starts.run()

    def _anneal(self, best: Packing, curves: StepCurves) -> None:
        """Change the best plan, and the best with few kinds of exchange, at random: other local optima.

        In turn, until none has improved for long: every other turn the fastest, else another. The slowdown
        that annealing allows alternates between small and large from turn to turn of a plan.
        """
        states = [best]
        if self.small:
            worth_s = _WORTH_A_FAMILY * self.best_s
            near = [state for state in self.starts.list_best_states() if is_faster(state.time_s, worth_s)]
            states += near[:_VALLEYS]
        turns = [0] * len(states)
        idle = turn = 0
        while idle < _PATIENCE * len(states) * len(_HEATS_LOG10) and not self.budget.over():
            place = min(range(len(states)), key=lambda index: states[index].time_s)
            if turn % 2 and states[1:]:
                place = 1 + turn // 2 % (len(states) - 1)
            if not turns[place] and self.small:  # of many tables this would take all the work
                self._improve(states[place])
            idle = 0 if self._run_turn(states[place], turns[place], curves) else idle + 1
            turns[place] += 1
            turn += 1

    def _run_turn(self, state: Packing, turn: int, curves: StepCurves) -> bool:
        """Anneal in a plan's turn with this number; returns whether the plan became faster.

        Shards move between domains where some tables' row parts fill domains, else between ranks; by turns if
        a plan has both.
        """
        o = state.options
        by_domain = o.by_domain[state.option[~o.everywhere_held[state.option]]]
        ways = np.unique(by_domain).tolist() or [False]  # of moving: by domain or not, or both
        again = turn // len(ways)
        hot = not state.option[_HOT_FEW:].size and not again % 2
        heats = _HEATS_LOG10 if self.small else (_COOL_LOG10,)
        heat = 10 ** self.random.uniform(*(_HOT_LOG10 if hot else heats[again % len(heats)]))
        any_kind = hot or again % _OTHERS == _OTHERS - 1
        kinds = o.kinds if any_kind else np.unique(o.exchange[state.option]).tolist()
        mask = o.select_exchanges(kinds)
        domains = ways[turn % len(ways)]
        annealing = Annealing(state, curves, self.random, mask, domains, cool=not self.small)
        better = annealing.run(3 * _ROUNDS if hot else _ROUNDS, self.budget.over, heat)
        if better:
            self._improve(state)
        return better

    def _improve(self, state: Packing) -> None:
        """Rebalance a plan's ranks, improve its schemes, and repeat while rebalancing helps; keep the best.

        Better schemes may unbalance the ranks, and balanced ranks leave room for other schemes.
        """
        better = True
        while better and not self.budget.over():
            better = Evening(state, self.random).run(self.budget.over)
            improve(state, self.budget.over)
            self._keep(state)

    def _keep(self, state: Packing) -> None:
        """Copy a plan as the best, and tell of its time, if it is faster than the best so far."""
        time_s = state.time_s
        if is_faster(time_s, self.best_s):
            self.best, self.best_s = state.copy(), time_s
            self.watch(time_s)


def find_uniform_plans(evaluator: Evaluator, limit_bytes: float, *, ruled: bool) -> list[Plan]:
    """The fastest plan of each sharding option that fits: those that ``project`` compares.

    ruled  whether rules may exclude an option, even the fastest; without rules, options that cannot be the
           fastest are left out
    Limits: one GPU -> none
    """
    if evaluator.gpus == 1:
        return []
    uniform = UniformPlans(evaluator, limit_bytes)
    run = [name for name, way in WAYS.items() if way.torchrec or evaluator.model.sets is None]
    bounds, _ = uniform.bound_times(run)
    plans: list[Plan] = []
    best_s = np.inf
    for way in sorted(bounds, key=lambda way: bounds[way]):
        if not ruled and not is_faster(bounds[way], best_s):
            break
        best = uniform.find_best(way)
        if isinstance(best, UniformPlan):
            plans.append(best.costed.plan)
            best_s = min(best_s, best.costed.time_s)
    return plans


def collect_schemes(tables: PlanTables, plans: Sequence[Plan]) -> list[set[Scheme]]:
    """For each kind of equal tables, its schemes in some plans."""
    sample, kind_of, _ = tables.kinds
    schemes = [set[Scheme]() for _ in sample]
    for plan in plans:
        for kind, placement in zip(kind_of.tolist(), plan.placements, strict=True):
            schemes[kind].add(placement.scheme)
    return schemes
