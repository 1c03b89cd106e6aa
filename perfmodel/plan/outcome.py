"""The result of a search as plain data: a plan, the next best of its tables, and plans to compare it with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Budget
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import WHOLE, Plan, Scheme, uniform_plan
from perfmodel.engine.schemes import ROW_WISE, SHARDINGS, TABLE_WISE
from perfmodel.engine.steps import StepCost, StepRow
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.constraints import Constraints
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.files import MadeFor, plan_record, scheme_record
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.searching.local_search import find_next_best
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.search import Found, Search
from perfmodel.plan.searching.uniform import packed_as, schemes_by_kind
from perfmodel.units import format_bytes

NEAR = 0.3
"""Share of a plan's time: a bound further below says little, and is not printed."""
_MOST_COMPARED = 400  # groups of tables, the heaviest, whose next best schemes are looked for
_LEAST_COMPARED = 40  # of them, unless they take as much work as the search
_COMPARING = 0.1  # of the work of the search, in addition: for the other groups
_LEAST = 1e-300  # avoids division by 0
_SIMPLE = (ROW_WISE, TABLE_WISE)
_OF_STEP = {
    name: name
    for name in ("name", "collective", "time_s", "low_s", "high_s", "floor_s", "evidence", "limit", "library")
} | {"bytes": "payload_bytes", "mean_bytes": "mean_bytes", "rank": "rank", "imbalance": "imbalance"}
"""Keys of a step in the public schema, and the fields of the row."""


@dataclass(frozen=True)
class Baseline:
    """A plan made by a simple rule, to compare with.

    needs_bytes  memory that the plan needs on the fullest GPU;  cost  None if it does not fit
    """

    name: str
    needs_bytes: float
    cost: StepCost | None

    @property
    def time_s(self) -> float | None:
        """Time of a pass [s]; None if the plan does not fit in memory."""
        return self.cost.time_s if self.cost else None


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

    evaluator    computes costs of plans;  found  the plan with its cost, and a lower bound on other plans
    groups       sets of equal tables with equal shardings
    baselines    plans made without a planner
    made_for     the options of the question as typed
    """

    evaluator: Evaluator
    found: Found
    groups: tuple[AlikeTables, ...]
    baselines: tuple[Baseline, ...]
    made_for: MadeFor = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.found.plan

    @property
    def training(self) -> bool:
        """Whether a pass is forward and backward."""
        return self.evaluator.model.training is not None

    @property
    def given(self) -> bool:
        """Whether the plan was given by the user, not searched."""
        return self.found.stopped == "given"

    @property
    def bounded(self) -> bool:
        """Whether the plan was searched, and the bound is near enough to its time to be printed."""
        return not self.given and self.found.gap < NEAR

    @cached_property
    def by_share(self) -> tuple[tuple[AlikeTables, float], ...]:
        """The groups, each with its share of the time [-], sorted by the larger of this and of their bytes.

        The time of a group is what a second copy of its loads adds to a pass with its tables alone, spread
        evenly; shares add up to 1.
        """
        plan, e, tables = self.plan, self.evaluator, np.arange(len(self.plan.tables))
        shards = np.array([p.ranks.size for p in plan.placements], dtype=np.float64)
        each = e.count_shards(tables, *plan.schemes)
        own = each.own * (shards / plan.gpus)[:, np.newaxis] + each.everywhere
        loads = np.stack([own[list(group.tables)].sum(axis=0) for group in self.groups])
        time = e.time_passes(2 * loads) - e.time_passes(loads)
        held = np.array(
            [g.memory_bytes * len(g.tables) * (shards[g.tables[0]] or plan.gpus) for g in self.groups]
        )
        share = time / max(time.sum(), _LEAST)
        weight = np.maximum(share, held / max(held.sum(), _LEAST))
        return tuple((self.groups[at], float(share[at])) for at in np.argsort(-weight, kind="stable"))

    def ranks(self, group: AlikeTables) -> NDArray[np.int64]:
        """Ranks that hold parts of a group's tables; empty if every rank does."""
        held = [self.plan.placements[t].ranks for t in group.tables]
        return np.unique(np.concatenate(held)) if held[0].size else np.zeros(0, dtype=np.int64)

    def table_records(self) -> list[dict[str, Any]]:
        """One record per table, in the order of the model.

        Keys: table, rows, dim, sharding, exchange, row_parts, col_parts, hot_rows, shard_bytes (in HBM, on
        each GPU that holds a part), ranks (a list; empty: all)
        """
        e = self.evaluator
        memory = {t: group.memory_bytes for group in self.groups for t in group.tables}
        shardings = {t: group.sharding for group in self.groups for t in group.tables}
        return [
            {
                "table": e.tables.names[t],
                "rows": int(e.tables.rows[t]),
                "dim": int(e.tables.dim[t]),
                "sharding": shardings[t],
                **scheme_record(placement.scheme),
                "shard_bytes": round(memory[t]),
                "ranks": placement.ranks.tolist(),
            }
            for t, placement in enumerate(self.plan.placements)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values in SI units, in the public schema of ``--json``."""
        e, found = self.evaluator, self.found
        cost, memory = found.cost, found.memory
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
            "evidence": str(cost.evidence),
            "bound_s": None if self.given else found.bound_s,
            "gap": None if self.given else found.gap,
            "stopped": found.stopped,
            "restricted": found.restricted,
            "plans_tried": found.tried,
            "effort_done": None if self.given else found.done,
            "memory_limit_bytes": found.limit_bytes,
            "memory_bytes": memory.total_bytes.tolist(),
            "baselines": [
                {"name": item.name, "time_s": item.time_s, "needs_bytes": item.needs_bytes}
                for item in self.baselines
            ],
            "steps": [_step(row) for row in cost.rows],
            "groups": [self._group(group) for group in self.groups],
            "plan": plan_record(self.plan, self.made_for),
        }

    def _group(self, group: AlikeTables) -> dict[str, Any]:
        names, other = self.evaluator.tables.names, group.next_best
        return {
            "tables": [names[t] for t in group.tables],
            "sharding": group.sharding,
            **scheme_record(group.scheme),
            "hot_share": self.evaluator.hot_share(group.tables[0], group.scheme.hot_rows),
            "fullest_part": self.evaluator.fullest_part(group.tables[0], group.scheme),
            "memory_bytes": group.memory_bytes,
            "next_best": other
            and {"sharding": other.sharding, **scheme_record(other.scheme), "more_s": other.more_s},
        }


def _step(row: StepRow) -> dict[str, Any]:
    """A step as plain values, with its busiest rank."""
    found = {key: getattr(row, name) for key, name in _OF_STEP.items()}
    return {**found, "evidence": str(row.evidence)}


def outcome_of(search: Search, found: Found) -> Planned:
    """The plan that a search found, with the next best schemes of its tables, and with baselines beside it.

    search  the search, at its end;  found  its result: the plan, its cost and a bound
    Limits: the search was interrupted, or its effort is spent -> next best schemes of the heaviest tables
    """
    assert search.best is not None
    spare = Budget(search.budget.work, search.budget.effort_s)
    share = 0.0 if found.stopped == "interrupt" else _COMPARING

    def enough(done: int) -> bool:
        return spare.over(share if done >= _LEAST_COMPARED else 1.0)

    return _outcome(search.best, found, enough)


def given_outcome(
    evaluator: Evaluator, plan: Plan, limit_bytes: float, constraints: Constraints | None = None
) -> Planned:
    """The cost of a plan that the user gives, with next best schemes, and with baselines beside it.

    limit_bytes  memory of a GPU that tables may use;  constraints  on its tables
    Limits: a plan for other GPUs or domains, above ``limit_bytes`` on a GPU, or against the constraints
            -> BadInputError
    """
    if constraints is not None:
        constraints.check(plan)
    loads = evaluator.loads(plan)
    memory = evaluator.memory(plan, loads)
    at = int(np.argmax(memory.total_bytes))
    if memory.total_bytes[at] > limit_bytes:
        most = float(memory.total_bytes[at])
        needs, room, more = (format_bytes(x, binary=False) for x in (most, limit_bytes, most - limit_bytes))
        raise BadInputError(
            f"the plan needs {needs} on rank {at}, {more} more than the {room} of a GPU.",
            "plan anew (without --plan), or allow more memory (--set max_hbm=…, --set reserve=…).",
        )
    others = of_other_plans(evaluator)
    options = options_of(others, limit_bytes, schemes_by_kind(evaluator.tables, [plan]))
    if constraints is not None:
        options = constraints.restrict(options, limit_bytes)
    if evaluator.model.sets is not None:
        options = options.kept(torchrec.runnable(options, others))
    state = packed_as(plan, others, options, limit_bytes)
    assert state is not None
    found = Found(plan, evaluator.step(loads), memory, limit_bytes, 0.0, "given")
    return replace(_outcome(state, found), evaluator=evaluator)


def of_other_plans(evaluator: Evaluator) -> Evaluator:
    """The evaluator without the sharding types that a TorchRec file fixes, to evaluate other plans."""
    sets = evaluator.model.sets
    return evaluator if sets is None or sets.types is None else evaluator.exchange_by(ExchangeSets())


def _outcome(state: Packing, found: Found, enough: Callable[[int], bool] = lambda done: False) -> Planned:
    groups, whole = _groups(state, found, enough)
    if not whole and found.stopped != "given":
        found = replace(found, stopped="interrupt")
    return Planned(state.evaluator, found, groups, _baselines(state))


def _groups(
    state: Packing, found: Found, enough: Callable[[int], bool]
) -> tuple[tuple[AlikeTables, ...], bool]:
    """(groups of equal tables with next best schemes, whether all that need one were looked for).

    enough  returns whether to stop after so many groups. A searched plan is no slower than others nearby.
    Limits: Ctrl-C -> those up to then, False
    """
    o, plan = state.options, found.plan
    keys: dict[tuple[str, int], list[int]] = {}
    for t, placement in enumerate(plan.placements):
        name = placement.sharding(o.gpus, o.domain)
        keys.setdefault((name, int(state.option[t])), []).append(t)
    tables = state.evaluator.tables
    size, read = tables.rows * tables.dim, tables.features * tables.pooling * tables.dim
    share = size / size.sum() + read / max(read.sum(), _LEAST)
    heaviest = np.argsort([-share[tables].sum() for tables in keys.values()], kind="stable")
    samples = [tables[0] for tables in keys.values()]
    others: list[NextBest | None] = [None] * len(samples)
    now_s, least_s = state.time_s, -np.inf if found.stopped == "given" else 0.0
    whole = False
    with suppress(KeyboardInterrupt):  # the plan is worth more than what else its tables could be
        for done, at in enumerate(heaviest[:_MOST_COMPARED].tolist()):
            best = find_next_best(state, samples[at])
            if best is not None:
                time_s, placement = best
                name = placement.sharding(o.gpus, o.domain)
                others[at] = NextBest(placement.scheme, name, max(time_s - now_s, least_s))
            if enough(done):
                break
        whole = True
    order = list(SHARDINGS)
    groups = [
        AlikeTables(tuple(tables), name, o.scheme(option), float(o.memory[option]), other)
        for ((name, option), tables), other in zip(keys.items(), others, strict=True)
    ]
    return tuple(sorted(groups, key=lambda g: (order.index(g.sharding), -size[g.tables[0]]))), whole


def _baselines(state: Packing) -> tuple[Baseline, ...]:
    """Plans to compare with: row-wise as TorchRec does it, and whole tables dealt evenly to ranks."""
    evaluator, o, limit_bytes = state.evaluator, state.options, state.limit_bytes
    plans = {name: uniform_plan(evaluator.tables, name, evaluator.gpus, evaluator.domain) for name in _SIMPLE}
    whole = o.of_each(WHOLE)
    packed = None if whole is None else pack(evaluator, o, whole[o.kind_of], limit_bytes)
    if packed is not None:
        plans[TABLE_WISE] = packed.plan()
    baselines = []
    for name, plan in plans.items():
        loads = evaluator.loads(plan)
        needs_bytes = float(evaluator.memory(plan, loads).total_bytes.max())
        cost = evaluator.step(loads) if needs_bytes <= limit_bytes else None
        baselines.append(Baseline(name, needs_bytes, cost))
    return tuple(baselines)
