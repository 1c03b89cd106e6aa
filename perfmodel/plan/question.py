"""One question to the planner: tables, machine, GPUs, batch, memory and rules; and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.basis import PassBasis
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.placement import Plan, Scheme
from perfmodel.passes.settings import CLUSTER, Setting, load_setting
from perfmodel.passes.tables import PlanTables
from perfmodel.plan.choices.constraints import Constraints
from perfmodel.plan.choices.node_memory import below_fits, within_nodes
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.for_torchrec.files import plan_of
from perfmodel.plan.made_for import MadeFor
from perfmodel.plan.outcome import Planned, given_outcome, of_other_plans, outcome_of
from perfmodel.plan.searching.carried import as_option, carried
from perfmodel.plan.searching.search import Search, Watch
from perfmodel.plan.searching.tiered_search import TieredSearch
from perfmodel.question.groups import default_optimizer
from perfmodel.schema.constraint_files import TableRule
from perfmodel.schema.machine import Machine
from perfmodel.schema.ranges import MOST_PLANNED_GPUS
from perfmodel.units import format_count

_OF_SETTING = ("backend", "clock", "scenario", "calibration", "kernels")
COST_OPTIONS = (*_OF_SETTING, "gpus_per_node", "id_dtype", "payload", "optimizer", "sets")
"""Options that say what a plan costs, by the names that ``Evaluator.on`` has."""


RESERVE = 0.15
"""Share of the memory that tables may not use where nobody says it; with a limit, none of the GPU's."""


def costs_of(given: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
    """Those of ``COST_OPTIONS`` that are given; unasked, training keeps the state of row-wise Adagrad."""
    asked = {name: given[name] for name in COST_OPTIONS if given.get(name) is not None}
    return {"optimizer": default_optimizer(training=training), **asked}


def _quiet(best_s: float, bound_s: float) -> None:
    """Nobody watches."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanQuestion:
    """What is planned, and with what.

    batch       samples of one GPU;  total  of all GPUs, where that stays on other numbers of GPUs
    training    whether a pass is forward and backward
    reserve     part of each GPU's memory that tables may not use;  most_bytes  the most that they may use
    host_reserve  the same of the host memory; None: as much as of the GPUs'
    rules       what tables must or may not be;  for_torchrec  whether TorchRec must run the plan
    costs       what a plan costs (``costs_of``)
    below       tiers that tables may be in beside the HBM
    effort_s    counted work of a search [s];  time_limit_s  by the clock, which cuts it short [s]; None: none
    """

    tables: PlanTables
    machine: Machine
    gpus: int
    batch: int
    total: int | None = None
    training: bool = False
    reserve: float = 0.0
    host_reserve: float | None = None
    most_bytes: float | None = None
    rules: tuple[TableRule, ...] = ()
    for_torchrec: bool = False
    effort_s: float = EFFORTS[DEFAULT_EFFORT]
    time_limit_s: float | None = None
    seed: int = 0
    costs: Mapping[str, Any] = field(default_factory=dict)
    below: Below | None = None

    def __post_init__(self) -> None:
        """Limits: more GPUs than a plan says of each what it holds -> BadInputError"""
        if self.gpus > MOST_PLANNED_GPUS:
            raise BadInputError(
                f"a plan for {format_count(self.gpus)} GPUs is more than this model covers.",
                f"at most {format_count(MOST_PLANNED_GPUS)}.",
            )

    def on(self, gpus: int, time_limit_s: float | None = None) -> PlanQuestion:
        """The same on another number of GPUs."""
        batch = self.batch if self.total is None else self.total // gpus
        return replace(self, gpus=gpus, batch=batch, time_limit_s=time_limit_s)

    @property
    def limit_bytes(self) -> float:
        """Memory of each GPU that tables may use."""
        whole = self.machine.value("hbm_bytes")
        left = float(capacity.usable_bytes(whole, self.reserve))
        return left if self.most_bytes is None else min(self.most_bytes, left)

    @cached_property
    def setting(self) -> Setting:
        """The machine with its curves. Limits: none are known -> NoCalibrationError"""
        asked = {name: self.costs.get(name) for name in _OF_SETTING}
        return load_setting(
            self.machine,
            asked["backend"] or self.machine.default_backend,
            asked["clock"],
            asked["scenario"] or CLUSTER,
            asked["calibration"],
            kernels=asked["kernels"],
        )

    @cached_property
    def constraints(self) -> Constraints | None:
        """The rules for these tables on these GPUs; None where there is none."""
        if not self.rules:
            return None
        basis = PassBasis(self.setting, self.costs.get("gpus_per_node"), self.costs.get("payload"))
        domain = int(basis.domain(np.asarray(float(self.gpus))))
        return Constraints.of(self.rules, self.tables, self.gpus, domain)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Costs plans of the tables. Limits: as ``Evaluator``"""
        tables = self.constraints.tables if self.constraints else self.tables
        rest = {name: value for name, value in self.costs.items() if name not in _OF_SETTING}
        rest.setdefault("sets", ExchangeSets() if self.for_torchrec else None)
        kept = self.reserve if self.host_reserve is None else self.host_reserve
        below = self.below and replace(self.below, host_reserve=kept)
        rest |= {"training": self.training, "below": below}
        return Evaluator(self.setting, tables, self.batch, self.gpus, **rest)

    @property
    def made_for(self) -> MadeFor:
        """What a plan that answers this was made for."""
        usual = RESERVE if self.most_bytes is None else 0.0
        unasked = self.reserve == usual and self.host_reserve == RESERVE
        reserve = None if unasked else float(self.reserve)
        most = None if self.most_bytes is None else float(self.most_bytes)
        return MadeFor.of(self.evaluator, reserve=reserve, max_hbm_bytes=most)

    def options(self, more: Sequence[Scheme] = ()) -> Options:
        """What the tables may be, with one scheme more of each that is allowed; whatever types a file has.

        Limits: tables that fit nowhere, or may be nothing -> BadInputError
        """
        named = self.constraints.named() if self.constraints else ()
        evaluator = of_other_plans(self.evaluator)
        listed = options_of(evaluator, self.limit_bytes, more, named)
        if self.constraints:
            listed = self.constraints.applied(listed)
            self.constraints.check_room(listed, self.limit_bytes)
        return within_nodes(listed, evaluator, self.limit_bytes)

    def search(self, watch: Watch = _quiet, more: Sequence[Scheme] = ()) -> Search:
        """A search that has not begun. Limits: as ``options``"""
        kind = Search if self.below is None else TieredSearch
        return kind(
            self.evaluator,
            self.limit_bytes,
            effort_s=self.effort_s,
            time_limit_s=self.time_limit_s,
            seed=self.seed,
            restrict=torchrec.runnable if self.for_torchrec else None,
            options=partial(self.options, more),
            watch=watch,
        )

    def search_like(self, plan: Plan, watch: Watch = _quiet) -> Search:
        """A search that has not begun, and tries the schemes of a plan of the same tables on any GPUs.

        Limits: as ``options``
        """
        schemes = carried(plan, self.evaluator.gpus, self.evaluator.domain)
        search = self.search(watch, schemes)
        search.first = as_option(search.options, schemes)
        return search

    def answer(self, watch: Watch = _quiet, like: Plan | None = None) -> Planned:
        """The best plan that a search finds.

        like  a plan of the same tables on other GPUs, whose schemes are tried here too
        Where none is found that fits, one that fits is looked for as for training, whose prices are others.
        Limits: none fits -> BadInputError
        """
        search = self.search(watch) if like is None else self.search_like(like, watch)
        try:
            ran = search.run()
        except BadInputError:
            if self.training:
                raise
            search = self.search_like(replace(self, training=True).search().run().plan, watch)
            ran = search.run()
        found = outcome_of(search, ran)
        return replace(found, constrained=self.constraints is not None, asked=self.made_for)

    def given(self, plan: Plan) -> Planned:
        """What a plan costs.

        Limits: of other tables or GPUs, too large, against the rules -> BadInputError
        """
        if self.evaluator.model.sets is not None:  # as TorchRec runs it, if it can
            plan = plan_of(torchrec.torchrec_plan(self.evaluator, plan), self.tables)
        if self.constraints is None:
            return replace(given_outcome(self.evaluator, plan, self.limit_bytes), asked=self.made_for)
        self.constraints.check(plan)
        schemes = [placement.scheme for placement in plan.placements]
        found = given_outcome(self.evaluator, plan, self.limit_bytes, self.options(schemes))
        return replace(found, constrained=True, asked=self.made_for)

    def recosted(self, plan: Plan) -> float | None:
        """Time of a plan of the same tables here [s]; None where it does not fit, or GPUs are others."""
        e = self.evaluator
        if (plan.gpus, plan.domain) != (e.gpus, e.domain):
            return None
        loads = e.loads(plan)
        memory = e.memory(plan, loads)
        if float(memory.total_bytes.max()) > self.limit_bytes or not below_fits(e, memory.below):
            return None
        return float(e.exact_times(loads.most[np.newaxis])[0])
