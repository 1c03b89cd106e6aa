"""The result of a search as plain data: a plan, the reasons for it, and plans to compare it with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
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
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.files import plan_record
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.made_for import MadeFor
from perfmodel.plan.searching import effort_shares as shares
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.reasons import PlanReason, reasons
from perfmodel.plan.searching.search import Search
from perfmodel.units import format_bytes

LISTED = "plans of the listed schemes"
"""Plans that the bound covers, in words."""
LISTED_SCHEMES = (
    "row parts in powers of two, whole scale-up domains or all GPUs; column parts of 4 columns or more, "
    "equal ones or a power of two of them; hot rows that get 50, 75, 90 or 97 % of the look-ups, where they "
    "save time; each part on a GPU of its own"
)
"""Schemes that are listed (``options_of``), in words for an answer."""
OF_TORCHREC = "plans of TorchRec's shardings"
TORCHREC_SCHEMES = (
    "whole tables, equal column parts of a multiple of 4 columns, row parts over one scale-up domain or all "
    "GPUs, both over whole domains, and copies; each part on a GPU of its own"
)
"""Schemes that are listed for TorchRec (``runnable``), in words for an answer."""
NEAR = 0.3
"""Share of a plan's time: a bound further below says little, and is not printed."""
_MOST_REASONS = 400
_LEAST_REASONS = 40  # of the heaviest tables, unless they take as much work as the search
_LEAST = 1e-300  # avoids division by 0
_OF_STEP = {
    name: name
    for name in ("name", "collective", "time_s", "low_s", "high_s", "floor_s", "evidence", "limit", "library")
} | {"bytes": "payload_bytes", "mean_bytes": "mean_bytes", "rank": "rank", "imbalance": "imbalance"}
"""Keys of a step in the public schema, and the fields of the row."""


@dataclass(frozen=True)
class Baseline:
    """A plan made by a simple rule, to compare with.

    time_s, cost  time of a pass [s], and its cost by step; both None if the plan does not fit in memory
    needs_bytes   memory that the plan needs on the fullest GPU
    """

    name: str
    time_s: float | None
    needs_bytes: float
    cost: StepCost | None = None


@dataclass(frozen=True, eq=False)
class AlikeTables:
    """Equal tables that have the same sharding.

    tables  their indices;  sharding  a name of ``SHARDINGS``;  memory_bytes  on each GPU that holds a part
    scheme  the sharding with its numbers of row and column parts
    reason  why they have it; None: the plan has too many groups of equal tables to compare schemes for each
    """

    tables: tuple[int, ...]
    sharding: str
    scheme: Scheme
    memory_bytes: float
    reason: PlanReason | None


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, the reasons for it, and plans to compare it with.

    evaluator    computes costs of plans;  found  the plan with its cost, and a lower bound on other plans
    groups       sets of equal tables with equal shardings, each with the reason for its sharding
    baselines    plans made without a planner
    constrained  whether rules limit the tables; the bound then holds only for plans that the rules allow
    asked        the question, as stored in a plan file; None: the evaluator's part of it
    """

    evaluator: Evaluator
    found: Found
    groups: tuple[AlikeTables, ...]
    baselines: tuple[Baseline, ...]
    constrained: bool = False
    asked: MadeFor | None = None

    @property
    def made_for(self) -> MadeFor:
        """The question that the plan answers."""
        return self.asked or MadeFor.of(self.evaluator)

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.found.plan

    @property
    def training(self) -> bool:
        """Whether a pass is forward and backward."""
        return self.evaluator.model.training is not None

    @property
    def bound_over(self) -> str:
        """Words for the plans that ``found.bound_s`` is a bound on."""
        plans = OF_TORCHREC if self.found.restricted else LISTED
        return f"{plans} that the constraints allow" if self.constrained else plans

    @property
    def listed_schemes(self) -> str:
        """Words for the schemes of tables in the plans of ``bound_over``."""
        return TORCHREC_SCHEMES if self.found.restricted else LISTED_SCHEMES

    @property
    def given(self) -> bool:
        """Whether the plan was given by the user, not searched."""
        return self.found.stopped == "given"

    @property
    def bounded(self) -> bool:
        """Whether the plan was searched, and the bound is near enough to its time to be printed."""
        return not self.given and self.found.gap < NEAR

    @cached_property
    def by_weight(self) -> tuple[AlikeTables, ...]:
        """The groups, sorted by the larger of their share of the time and of the bytes, largest first.

        The time of a group is what a second copy of its loads adds to a pass with its tables alone, spread
        evenly.
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
        weight = np.maximum(time / max(time.sum(), _LEAST), held / max(held.sum(), _LEAST))
        return tuple(self.groups[at] for at in np.argsort(-weight, kind="stable"))

    def ranks(self, group: AlikeTables) -> NDArray[np.int64]:
        """Ranks that hold parts of a group's tables; empty if every rank does."""
        held = [self.plan.placements[t].ranks for t in group.tables]
        return np.unique(np.concatenate(held)) if held[0].size else np.zeros(0, dtype=np.int64)

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
            "optimizer": e.memories.optimizer,
            "time_s": cost.time_s,
            "low_s": cost.low_s,
            "high_s": cost.high_s,
            "evidence": str(cost.evidence),
            "bound_s": None if self.given else found.bound_s,
            "gap": None if self.given else found.gap,
            "bound_over": None if self.given else self.bound_over,
            "listed_schemes": None if self.given else self.listed_schemes,
            "stopped": found.stopped,
            "restricted": found.restricted,
            "constrained": self.constrained,
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
        names, reason = self.evaluator.tables.names, group.reason
        other = reason.scheme if reason else None
        return {
            "tables": [names[t] for t in group.tables],
            "sharding": group.sharding,
            **_scheme(group.scheme),
            "hot_share": self.evaluator.hot_share(group.tables[0], group.scheme.hot_rows),
            "fullest_part": self.evaluator.fullest_part(group.tables[0], group.scheme),
            "memory_bytes": group.memory_bytes,
            "next_best": {"sharding": reason.sharding, **_scheme(other), "more_s": reason.more_s}
            if reason and other
            else None,
        }


def _step(row: StepRow) -> dict[str, Any]:
    """A step as plain values, with its busiest rank."""
    found = {key: getattr(row, name) for key, name in _OF_STEP.items()}
    return {**found, "evidence": str(row.evidence)}


def _scheme(scheme: Scheme) -> dict[str, Any]:
    return {
        "exchange": scheme.kind.name.lower(),
        "row_parts": scheme.row_parts,
        "col_parts": scheme.col_parts,
        "hot_rows": scheme.hot_rows,
    }


def outcome_of(search: Search, found: Found) -> Planned:
    """The plan that a search found, with the reasons for its shardings and with baselines beside it.

    search  the search, at its end;  found  its result: the plan, its cost and a bound
    Limits: the search was interrupted, or its effort is spent -> reasons for the heaviest tables only
    """
    assert search.best is not None
    spare = Budget(search.budget.work, search.budget.effort_s, stop=search.budget.cut_short)
    share = 0.0 if found.stopped == "interrupt" else shares.REASONS

    def enough(done: int) -> bool:
        return spare.over(share if done >= _LEAST_REASONS else 1.0)

    return _outcome(search.best, found, enough)


def given_outcome(
    evaluator: Evaluator, plan: Plan, limit_bytes: float, options: Options | None = None
) -> Planned:
    """The cost of a plan that the user gives, with reasons for its shardings and with baselines beside it.

    limit_bytes  memory of a GPU that tables may use
    options      shardings with which its tables are compared, including their own; None: all
    Limits: a plan for other GPUs or domains, or above ``limit_bytes`` on a GPU -> BadInputError
    """
    loads = evaluator.loads(plan)
    memory = evaluator.memory(plan, loads)
    at = int(np.argmax(memory.total_bytes))
    if memory.total_bytes[at] > limit_bytes:
        most = float(memory.total_bytes[at])
        needs, room, more = (format_bytes(x, binary=False) for x in (most, limit_bytes, most - limit_bytes))
        raise BadInputError(
            f"the plan needs {needs} on rank {at}, {more} more than the {room} of a GPU.",
            "plan anew (without --plan), or allow more memory (--max-hbm, --reserve).",
        )
    schemes = [placement.scheme for placement in plan.placements]
    others = of_other_plans(evaluator)
    if options is None:
        options = options_of(others, limit_bytes, schemes)
    if evaluator.model.sets is not None:
        options = options.kept(torchrec.runnable(options, others))
    state = Packing(others, options, limit_bytes)
    for t, placement in enumerate(plan.placements):
        option = state.options.find(t, placement.scheme)
        assert option is not None
        state.choose([t], np.array([option]))
        if state.ranks[t] is None:
            state.put(t, placement.ranks)
    found = Found(plan, evaluator.step(loads), memory, limit_bytes, 0.0, "given")
    return replace(_outcome(state, found), evaluator=evaluator)


def of_other_plans(evaluator: Evaluator) -> Evaluator:
    """The evaluator without the sharding types that a TorchRec file fixes, to evaluate other plans."""
    sets = evaluator.model.sets
    return evaluator if sets is None or sets.types is None else evaluator.exchange_by(ExchangeSets())


def _outcome(state: Packing, found: Found, enough: Callable[[int], bool] = lambda done: False) -> Planned:
    least_s = -np.inf if found.stopped == "given" else 0.0
    groups, whole = _groups(state, found.plan, least_s, enough)
    if not whole and found.stopped != "given":
        found = replace(found, stopped="interrupt")
    return Planned(state.evaluator, found, groups, _baselines(state))


def _groups(
    state: Packing, plan: Plan, least_s: float, enough: Callable[[int], bool]
) -> tuple[tuple[AlikeTables, ...], bool]:
    """(groups of equal tables with reasons, whether all groups that need a reason have one).

    least_s  least extra time of a reason [s];  enough  returns whether to stop after so many groups
    Limits: Ctrl-C -> the reasons so far, False
    """
    o = state.options
    keys: dict[tuple[str, int], list[int]] = {}
    for t, placement in enumerate(plan.placements):
        name = placement.sharding(o.gpus, o.domain)
        keys.setdefault((name, int(state.option[t])), []).append(t)
    size = state.evaluator.tables.rows * state.evaluator.tables.dim
    read = state.evaluator.tables.pooling * state.evaluator.tables.dim
    share = size / size.sum() + read / max(read.sum(), _LEAST)
    heaviest = np.argsort([-share[tables].sum() for tables in keys.values()], kind="stable")[:_MOST_REASONS]
    samples = [tables[0] for tables in keys.values()]
    found: list[PlanReason | None] = [None] * len(samples)
    tried = reasons(state, [samples[at] for at in heaviest], least_s)
    whole = False
    with suppress(KeyboardInterrupt):  # the plan is worth more than the reasons
        for done, (at, reason) in enumerate(zip(heaviest, tried, strict=True)):
            found[at] = reason
            if enough(done):
                break
        whole = True
    order = list(SHARDINGS)
    groups = [
        AlikeTables(tuple(tables), name, o.scheme(option), float(o.memory[option]), reason)
        for ((name, option), tables), reason in zip(keys.items(), found, strict=True)
    ]
    return tuple(sorted(groups, key=lambda g: (order.index(g.sharding), -size[g.tables[0]]))), whole


def _baselines(state: Packing) -> tuple[Baseline, ...]:
    """Plans to compare with: row-wise as TorchRec does it, and whole tables dealt evenly to ranks."""
    evaluator, limit, found = state.evaluator, state.limit_bytes, []
    row_wise = uniform_plan(evaluator.tables, ROW_WISE, evaluator.gpus, evaluator.domain)
    found.append(_baseline(evaluator, ROW_WISE, row_wise, limit))
    o = state.options
    whole = o.of_each(WHOLE)
    packed = None if whole is None else pack(evaluator, o, whole[o.kind_of], limit)
    if packed is not None:
        found.append(_baseline(evaluator, TABLE_WISE, packed.plan(), limit))
    else:
        dealt = uniform_plan(evaluator.tables, TABLE_WISE, evaluator.gpus, evaluator.domain)
        found.append(_baseline(evaluator, TABLE_WISE, dealt, limit))
    return tuple(found)


def _baseline(evaluator: Evaluator, name: str, plan: Plan, limit_bytes: float) -> Baseline:
    loads = evaluator.loads(plan)
    needs = float(evaluator.memory(plan, loads).total_bytes.max())
    if needs > limit_bytes:
        return Baseline(name, None, needs)
    cost = evaluator.step(loads)
    return Baseline(name, cost.time_s, needs, cost)
