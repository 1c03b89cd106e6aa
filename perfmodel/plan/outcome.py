"""The result of a search as plain data: a plan, the next best of its tables, and plans to compare it with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.inputs import write
from perfmodel.answer.uniform_plans import Impossible, UniformPlans
from perfmodel.effort import Budget
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import ROW_WISE, SHARDINGS, TABLE_WISE
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.constraints import Constraints
from perfmodel.plan.choices.scheme_options import list_options
from perfmodel.plan.plan_files import MadeFor, plan_record, record_scheme
from perfmodel.plan.searching.local_search import find_next_best
from perfmodel.plan.searching.packing import Packing, pack_as
from perfmodel.plan.searching.search import GIVEN, Search, SearchResult, collect_schemes
from perfmodel.plan.torchrec import restrict_to_torchrec

NEAR = 0.3  # share of a plan's time: a bound further below says little, and is not printed
_MOST_COMPARED = 400  # groups of tables, the heaviest, whose next best schemes are looked for
_LEAST_COMPARED = 40  # of them, unless they take as much work as the search
_COMPARING = 0.1  # of the work of the search, in addition: for the other groups


@dataclass(frozen=True)
class Baseline:
    """The best plan with one sharding for all tables. time_s  of a pass; None: none fits, and ``why``"""

    name: str
    time_s: float | None
    why: str = ""


@dataclass(frozen=True)
class NextBest:
    """The next best scheme of some equal tables, with all other tables as they are.

    sharding  its name;  more_s  extra time of the plan if one of the tables has it [s]; below 0: faster
    """

    scheme: Scheme
    sharding: str
    more_s: float


@dataclass(frozen=True, eq=False)
class AlikeTables:
    """Equal tables that have the same sharding.

    tables  their indices;  sharding  a name of ``SHARDINGS``;  memory_bytes  on each GPU that holds a part
    scheme  the sharding with its numbers of row and column parts
    next_best  None: no other scheme fits in memory, or the plan has too many groups to compare all
    """

    tables: tuple[int, ...]
    sharding: str
    scheme: Scheme
    memory_bytes: float
    next_best: NextBest | None


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, and plans to compare it with.

    result       the plan with its cost, and a lower bound on other plans
    groups       sets of equal tables with equal shardings
    baselines    plans with one sharding for all tables; none on one GPU
    made_for     the options of the question as typed
    """

    result: SearchResult
    groups: tuple[AlikeTables, ...]
    baselines: tuple[Baseline, ...]
    made_for: MadeFor = field(default_factory=dict)

    @property
    def costed(self) -> CostedPlan:
        """The plan with its cost and memory."""
        return self.result.costed

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.costed.plan

    @property
    def evaluator(self) -> Evaluator:
        """What computed its cost."""
        return self.costed.evaluator

    @property
    def training(self) -> bool:
        """Whether a pass is forward and backward."""
        return self.evaluator.training

    @property
    def given(self) -> bool:
        """Whether the plan was given by the user, not searched."""
        return self.result.stopped == GIVEN

    @property
    def bounded(self) -> bool:
        """Whether the plan was searched, and the bound is near enough to its time to be printed."""
        return not self.given and self.result.gap < NEAR

    @cached_property
    def by_share(self) -> tuple[tuple[AlikeTables, float], ...]:
        """The groups, each with its share of the time [-], sorted by the larger of this and of their bytes.

        The time of a group is what a second copy of its loads adds to a pass with its tables alone, spread
        evenly; shares add up to 1.
        """
        plan = self.plan
        e = self.evaluator
        parts = np.array([placement.ranks.size for placement in plan.placements], dtype=np.float64)
        shards = e.count_shards(np.arange(len(plan.tables)), *plan.schemes)
        mean = shards.on_holder * (parts / plan.gpus)[:, np.newaxis] + shards.everywhere
        loads = np.stack([mean[list(group.tables)].sum(axis=0) for group in self.groups])
        time = e.time_passes(2 * loads) - e.time_passes(loads)
        held = np.array(
            [g.memory_bytes * len(g.tables) * (parts[g.tables[0]] or plan.gpus) for g in self.groups]
        )
        share = time / time.sum()
        weight = np.maximum(share, held / held.sum())
        return tuple((self.groups[i], float(share[i])) for i in np.argsort(-weight, kind="stable"))

    def list_ranks(self, group: AlikeTables) -> NDArray[np.int64]:
        """Ranks that hold parts of a group's tables; empty if every rank does."""
        ranks = [self.plan.placements[t].ranks for t in group.tables]
        return np.unique(np.concatenate(ranks)) if ranks[0].size else np.zeros(0, dtype=np.int64)

    def list_tables(self) -> list[dict[str, object]]:
        """One record per table, in the order of the model.

        Keys: table, rows, dim, sharding, exchange, row_parts, col_parts, hot_rows, shard_bytes (in HBM, on
        each GPU that holds a part), ranks (a list; empty: all)
        """
        tables = self.evaluator.tables
        group_of = {t: group for group in self.groups for t in group.tables}
        return [
            {
                "table": tables.names[t],
                "rows": int(tables.rows[t]),
                "dim": int(tables.dim[t]),
                "sharding": group_of[t].sharding,
                **record_scheme(placement.scheme),
                "shard_bytes": round(group_of[t].memory_bytes),
                "ranks": placement.ranks.tolist(),
            }
            for t, placement in enumerate(self.plan.placements)
        ]

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values in SI units, in the public schema of ``--json``."""
        e = self.evaluator
        result = self.result
        cost = self.costed.cost
        return {
            "model": e.tables.model,
            "machine": e.setting.machine.name,
            "backend": e.setting.backend,
            "calibrations": list(e.setting.links.calibrations),
            "objective": "throughput" if self.training else "latency",
            "batch": e.batch,
            "distribution": e.tables.distribution,
            "gpus": e.gpus,
            "domain_gpus": e.domain,
            "tables": len(e.tables),
            "table_bytes": e.memories.table_bytes,
            "optimizer": e.basis.optimizer,
            "time_s": cost.time_s,
            "low_s": cost.low_s,
            "high_s": cost.high_s,
            "samples_per_s": e.batch * e.gpus / cost.time_s,
            "evidence": str(cost.evidence),
            "bound_s": None if self.given else result.bound_s,
            "gap": None if self.given else result.gap,
            "stopped": result.stopped,
            "effort_done": None if self.given else result.done,
            "memory_limit_bytes": result.limit_bytes,
            "memory_bytes": self.costed.memory.total_bytes.tolist(),
            "baselines": [
                {"name": baseline.name, "time_s": baseline.time_s, "why_not": baseline.why or None}
                for baseline in self.baselines
            ],
            "steps": [
                row.to_dict() | {"mean_bytes": row.mean_bytes, "rank": row.rank, "imbalance": row.imbalance}
                for row in cost.rows
            ],
            "groups": [self._record_group(group) for group in self.groups],
            "plan": plan_record(self.plan, self.made_for),
        }

    def _record_group(self, group: AlikeTables) -> dict[str, object]:
        """A group as plain values for ``to_dict``."""
        e = self.evaluator
        best = group.next_best
        sample = group.tables[0]
        return {
            "tables": [e.tables.names[t] for t in group.tables],
            "sharding": group.sharding,
            **record_scheme(group.scheme),
            "hot_share": e.hot_share(sample, group.scheme.hot_rows),
            "fullest_part": e.fullest_part(sample, group.scheme),
            "memory_bytes": group.memory_bytes,
            "next_best": best
            and {"sharding": best.sharding, **record_scheme(best.scheme), "more_s": best.more_s},
        }


def build_outcome(search: Search, result: SearchResult) -> Planned:
    """The plan that a search found, with the next best schemes of its tables, and with baselines beside it.

    search  the search, at its end;  result  what it returned
    Limits: the search was interrupted, or its effort is spent -> next best schemes of the heaviest tables
    """
    assert search.best is not None
    spare = Budget(search.budget.work, search.budget.effort_s)
    share = 0.0 if result.stopped == "interrupt" else _COMPARING
    groups, complete = _group_tables(
        search.best, result, lambda done: spare.over(share if done >= _LEAST_COMPARED else 1.0)
    )
    if not complete:
        result = replace(result, stopped="interrupt")
    return Planned(result, groups, _list_baselines(search.evaluator, result.limit_bytes))


def price_plan(
    evaluator: Evaluator, plan: Plan, limit_bytes: float, constraints: Constraints | None = None
) -> Planned:
    """The cost of a plan that the user gives, with next best schemes, and with baselines beside it.

    limit_bytes  memory of a GPU that tables may use;  constraints  on its tables
    Limits: a plan for other GPUs or domains, above ``limit_bytes`` on a GPU, or against the constraints
            -> BadInputError
    """
    if constraints is not None:
        constraints.check(plan)
    result = SearchResult(evaluator.cost(plan), limit_bytes, 0.0, GIVEN)
    fullest = result.costed.fullest_bytes
    if fullest > limit_bytes:
        rank = int(np.argmax(result.costed.memory.total_bytes))
        needs, excess, room = map(write, (fullest, fullest - limit_bytes, limit_bytes))
        raise BadInputError(
            f"the plan needs {needs} on rank {rank}, {excess} more than the {room} of a GPU.",
            "plan anew (without --plan), or allow more memory (--set max_hbm=…, --set reserve=…).",
        )
    free = release_types(evaluator)
    options = list_options(free, limit_bytes, collect_schemes(evaluator.tables, [plan]))
    if constraints is not None:
        options = constraints.restrict(options, limit_bytes)
    if evaluator.model.sets is not None:
        options = restrict_to_torchrec(options, free)
    state = pack_as(plan, free, options, limit_bytes)
    assert state is not None
    groups, _ = _group_tables(state, result, lambda done: False)
    return Planned(result, groups, _list_baselines(free, limit_bytes))


def release_types(evaluator: Evaluator) -> Evaluator:
    """The evaluator without the sharding types that a TorchRec file fixes, to evaluate other plans."""
    sets = evaluator.model.sets
    return evaluator if sets is None or sets.types is None else evaluator.exchange_by(ExchangeSets())


def _group_tables(
    state: Packing, result: SearchResult, has_enough: Callable[[int], bool]
) -> tuple[tuple[AlikeTables, ...], bool]:
    """(groups of equal tables with next best schemes, whether all that need one were looked for).

    has_enough  returns whether to stop after so many groups
    Limits: Ctrl-C -> those up to then, False
    """
    o = state.options
    tables = state.evaluator.tables
    members: dict[tuple[str, int], list[int]] = {}
    for t, placement in enumerate(result.costed.plan.placements):
        key = placement.sharding(o.gpus, o.domain), int(state.option[t])
        members.setdefault(key, []).append(t)
    size = tables.rows * tables.dim
    reads = tables.features * tables.pooling * tables.dim
    weight = size / size.sum() + reads / reads.sum()
    heaviest = sorted(members, key=lambda key: -weight[members[key]].sum())
    next_best: dict[tuple[str, int], NextBest] = {}
    now_s = state.time_s
    least_s = -np.inf if result.stopped == GIVEN else 0.0  # a searched plan is no slower than its like
    complete = False
    with suppress(KeyboardInterrupt):  # the plan is worth more than what else its tables could be
        for done, key in enumerate(heaviest[:_MOST_COMPARED]):
            best = find_next_best(state, members[key][0])
            if best is not None:
                time_s, placement = best
                name = placement.sharding(o.gpus, o.domain)
                next_best[key] = NextBest(placement.scheme, name, max(time_s - now_s, least_s))
            if has_enough(done):
                break
        complete = True
    order = list(SHARDINGS)
    groups = [
        AlikeTables(tuple(few), key[0], o.build_scheme(key[1]), float(o.memory[key[1]]), next_best.get(key))
        for key, few in members.items()
    ]
    return tuple(sorted(groups, key=lambda g: (order.index(g.sharding), -size[g.tables[0]]))), complete


def _list_baselines(evaluator: Evaluator, limit_bytes: float) -> tuple[Baseline, ...]:
    """All tables row-wise, and table-wise, as ``project`` compares them."""
    if evaluator.gpus == 1:
        return ()
    return tuple(
        Baseline(best.sharding, None, best.explain())
        if isinstance(best, Impossible)
        else Baseline(best.sharding, best.costed.time_s)
        for best in map(UniformPlans(evaluator, limit_bytes).find_best, (ROW_WISE, TABLE_WISE))
    )
