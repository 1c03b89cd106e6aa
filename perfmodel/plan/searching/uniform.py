"""Plans in which all tables have one sharding: a search begins with them, so its plan is never slower."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.answer.uniform_plans import MOST_COMPARED, UniformPlan, UniformPlans
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import ROW_WISE, WAYS
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.packing import Packing


def find_uniform_plans(evaluator: Evaluator, limit_bytes: float, *, ruled: bool) -> list[Plan]:
    """The fastest plan of each sharding option that fits: those that ``project`` compares.

    ruled  whether rules may exclude an option, even the fastest; without rules, options that cannot be the
           fastest are left out
    Limits: one GPU -> none;  more than ``MOST_COMPARED`` tables -> row-wise alone
    """
    if evaluator.gpus == 1:
        return []
    ways = list(WAYS) if len(evaluator.tables) <= MOST_COMPARED else [ROW_WISE]
    uniform = UniformPlans(evaluator, limit_bytes)
    bounds, _ = uniform.bound_times(ways)
    plans: list[Plan] = []
    best_s = np.inf
    for way in sorted(bounds, key=lambda way: bounds[way]):
        if bounds[way] >= best_s and not ruled:
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


def pack_as(plan: Plan, evaluator: Evaluator, options: Options, limit_bytes: float) -> Packing | None:
    """A plan as the state of a search. Limits: a table may not have its scheme -> None"""
    state, option_of = Packing(evaluator, options, limit_bytes), dict[tuple[int, Scheme], int | None]()
    for table, (kind, placement) in enumerate(zip(options.kind_of.tolist(), plan.placements, strict=True)):
        key = kind, placement.scheme
        if key not in option_of:
            option_of[key] = options.find(table, placement.scheme)
        option = option_of[key]
        if option is None:
            return None
        state.option[table] = option
    state.choose(range(state.option.size), state.option.copy())
    for table, placement in enumerate(plan.placements):
        if state.ranks[table] is None:
            state.put(table, placement.ranks)
    return state
