"""The outcome of a search as plain data: a plan, why it is so, and what it is compared with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bound import RELAXATION
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.files import plan_record
from perfmodel.plan.packing import State, pack
from perfmodel.plan.placement import SHARDINGS, Plan, Scheme, uniform_plan
from perfmodel.plan.reasons import Reason, reasons
from perfmodel.plan.search import Found, Search

_MOST_REASONS = 400


@dataclass(frozen=True)
class Baseline:
    """A plan that people have without a planner. time_s [s]; None where it does not fit in memory."""

    name: str
    time_s: float | None
    needs_bytes: float


@dataclass(frozen=True, eq=False)
class Group:
    """Equal tables that are sharded alike.

    tables  their indices;  sharding  a name of ``SHARDINGS``;  memory_bytes  on each GPU that holds a part
    reason  None where there are too many groups to try others for all
    """

    tables: tuple[int, ...]
    sharding: str
    scheme: Scheme
    memory_bytes: float
    reason: Reason | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """A plan, why it is so, and what it is compared with."""

    evaluator: Evaluator
    found: Found
    groups: tuple[Group, ...]
    baselines: tuple[Baseline, ...]

    @property
    def plan(self) -> Plan:
        """The plan that was found."""
        return self.found.plan

    @property
    def training(self) -> bool:
        """Whether a pass is forward and backward."""
        return self.evaluator.model.training is not None

    def ranks(self, group: Group) -> NDArray[np.int64]:
        """Ranks that hold parts of a group's tables; empty where all do."""
        held = [self.plan.placements[t].ranks for t in group.tables]
        return np.unique(np.concatenate(held)) if held[0].size else np.zeros(0, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The public schema of ``--json``: SI units."""
        e, found = self.evaluator, self.found
        cost, memory = found.cost, found.memory
        return {
            "model": e.tables.model,
            "machine": e.setting.machine.name,
            "backend": e.setting.backend,
            "scenario": e.setting.scenario,
            "calibrations": list(e.setting.links.calibrations),
            "objective": "throughput" if self.training else "latency",
            "batch": e.batch,
            "gpus": e.gpus,
            "domain_gpus": e.domain,
            "tables": len(e.tables),
            "table_bytes": e.tables.total_bytes,
            "optimizer": e.memories.optimizer,
            "time_s": cost.time_s,
            "low_s": cost.low_s,
            "high_s": cost.high_s,
            "evidence": str(cost.evidence),
            "bound_s": found.bound_s,
            "gap": found.gap,
            "relaxation": RELAXATION,
            "stopped": found.stopped,
            "plans_tried": found.tried,
            "search_s": found.seconds,
            "memory_limit_bytes": found.limit_bytes,
            "memory_bytes": memory.total_bytes.tolist(),
            "baselines": [asdict(item) for item in self.baselines],
            "steps": [
                {**asdict(row), "evidence": str(row.evidence), "imbalance": row.imbalance}
                for row in cost.rows
            ],
            "groups": [self._group(group) for group in self.groups],
            "plan": plan_record(self.plan),
        }

    def _group(self, group: Group) -> dict[str, Any]:
        names, reason = self.evaluator.tables.names, group.reason
        other = reason.scheme if reason else None
        return {
            "tables": [names[t] for t in group.tables],
            "sharding": group.sharding,
            **_scheme(group.scheme),
            "memory_bytes": group.memory_bytes,
            "next_best": {"sharding": reason.sharding, **_scheme(other), "more_s": reason.more_s}
            if reason and other
            else None,
        }


def _scheme(scheme: Scheme) -> dict[str, Any]:
    return {
        "exchange": scheme.kind.name.lower(),
        "row_parts": scheme.row_parts,
        "col_parts": scheme.col_parts,
    }


def outcome_of(search: Search, found: Found) -> Outcome:
    """What a search found, with reasons and comparisons."""
    assert search.best is not None
    return Outcome(search.evaluator, found, _groups(search.best, found.plan), _baselines(search))


def _groups(state: State, plan: Plan) -> tuple[Group, ...]:
    o = state.options
    keys: dict[tuple[str, int], list[int]] = {}
    for t, placement in enumerate(plan.placements):
        name = placement.sharding(o.gpus, o.domain)
        keys.setdefault((name, int(state.option[t])), []).append(t)
    samples = [tables[0] for tables in keys.values()]
    found: list[Reason | None] = [*reasons(state, samples[:_MOST_REASONS])]
    found += [None] * (len(samples) - len(found))
    order = list(SHARDINGS)
    size = state.evaluator.tables.rows * state.evaluator.tables.dim
    groups = [
        Group(tuple(tables), name, o.scheme(option), float(o.memory[option]), reason)
        for ((name, option), tables), reason in zip(keys.items(), found, strict=True)
    ]
    return tuple(sorted(groups, key=lambda g: (order.index(g.sharding), -size[g.tables[0]])))


def _baselines(search: Search) -> tuple[Baseline, ...]:
    """Row-wise as TorchRec does it, and whole tables packed as evenly as they go."""
    evaluator, limit, found = search.evaluator, search.limit_bytes, []
    row_wise = uniform_plan(evaluator.tables, "row-wise", evaluator.gpus, evaluator.domain)
    found.append(_baseline(evaluator, "row-wise", row_wise, limit))
    o = search.options
    whole = [o.find(t, Scheme(Exchange.RB)) for t in range(len(evaluator.tables))]
    options = np.array([at for at in whole if at is not None])
    state = pack(evaluator, o, options, limit) if options.size == len(whole) else None
    if state is not None:
        found.append(_baseline(evaluator, "table-wise", state.plan(), limit))
    else:
        dealt = uniform_plan(evaluator.tables, "table-wise", evaluator.gpus, evaluator.domain)
        needs = float(evaluator.memory(dealt).total_bytes.max())
        found.append(Baseline("table-wise", None, needs))
    return tuple(found)


def _baseline(evaluator: Evaluator, name: str, plan: Plan, limit_bytes: float) -> Baseline:
    loads = evaluator.loads(plan)
    needs = float(evaluator.memory(plan, loads).total_bytes.max())
    fits = needs <= limit_bytes
    return Baseline(name, evaluator.step(loads).time_s if fits else None, needs)
