"""One question to the planner: tables, machine, GPUs, batch, memory and rules; and its answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.settings import Setting, load_setting
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.plan.choices.constraints import Constraints, TableRule
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.files import MadeFor
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.for_torchrec.files import plan_of
from perfmodel.plan.outcome import Planned, given_outcome, of_other_plans, outcome_of
from perfmodel.plan.searching.search import Search, Watch
from perfmodel.question.groups import choose_optimizer
from perfmodel.schema.gate import MOST_PLANNED_GPUS
from perfmodel.schema.machine import Machine
from perfmodel.units import format_count

_OF_SETTING = ("backend", "clock", "calibration", "kernels")
COST_OPTIONS = (*_OF_SETTING, "gpus_per_node", "id_dtype", "payload", "optimizer", "sets")
"""Options that affect the cost of a plan, by their names in ``Evaluator.on``."""

RESERVE = 0.15
"""Default share of the memory that tables may not use; with an explicit limit, 0 for GPU memory."""


def costs_of(given: Mapping[str, Any], *, training: bool) -> dict[str, Any]:
    """The given options that affect costs (``COST_OPTIONS``); training defaults to row-wise Adagrad."""
    asked = {name: given[name] for name in COST_OPTIONS if given.get(name) is not None}
    return {"optimizer": choose_optimizer(training=training), **asked}


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanQuestion:
    """A question to the planner.

    batch       samples per GPU;  total  samples of all GPUs, if constant over numbers of GPUs
    training    whether a pass is forward and backward
    reserve     share of each GPU's memory that tables may not use;  most_bytes  usable bytes of each GPU
    rules       constraints on tables;  for_torchrec  whether TorchRec must be able to run the plan
    costs       options that affect the cost of a plan (``costs_of``)
    effort_s    counted work of a search [s];  time_limit_s  time by the clock that ends it early [s]; None:
                no
                limit;  seed  of the search's random numbers
    """

    tables: PlanTables
    machine: Machine
    gpus: int
    batch: int
    total: int | None = None
    training: bool = False
    reserve: float = 0.0
    most_bytes: float | None = None
    rules: tuple[TableRule, ...] = ()
    for_torchrec: bool = False
    effort_s: float = EFFORTS[DEFAULT_EFFORT]
    time_limit_s: float | None = None
    seed: int = 0
    costs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the number of GPUs. Limits: more than a plan can list one by one -> BadInputError"""
        if self.gpus > MOST_PLANNED_GPUS:
            raise BadInputError(
                f"a plan for {format_count(self.gpus)} GPUs is more than this model covers.",
                f"at most {format_count(MOST_PLANNED_GPUS)}.",
            )

    def on(self, gpus: int, time_limit_s: float | None = None) -> PlanQuestion:
        """The same question on another number of GPUs."""
        batch = self.batch if self.total is None else self.total // gpus
        return replace(self, gpus=gpus, batch=batch, time_limit_s=time_limit_s)

    @property
    def limit_bytes(self) -> float:
        """Memory of each GPU that tables may use [bytes]."""
        whole = self.machine.value("hbm_bytes")
        left = float(capacity.usable_bytes(whole, self.reserve))
        return left if self.most_bytes is None else min(self.most_bytes, left)

    @cached_property
    def setting(self) -> Setting:
        """The machine with its measured times (calibration). Limits: none -> NoCalibrationError"""
        asked = {name: self.costs.get(name) for name in _OF_SETTING}
        return load_setting(
            self.machine,
            asked["backend"] or str(self.machine.defaults.backend),
            asked["clock"],
            asked["calibration"],
            kernels=asked["kernels"],
        )

    @property
    def basis(self) -> PassBasis:
        """The setting with the options that affect the cost of a plan."""
        node, payload, optimizer = map(self.costs.get, ("gpus_per_node", "payload", "optimizer"))
        return PassBasis(self.setting, node, payload, self.training, optimizer or "none")

    @cached_property
    def constraints(self) -> Constraints | None:
        """The rules for these tables on these GPUs; None without rules."""
        if not self.rules:
            return None
        domain = int(self.basis.domain(np.asarray(float(self.gpus))))
        return Constraints.of(self.rules, self.tables, self.gpus, domain)

    @cached_property
    def evaluator(self) -> Evaluator:
        """An evaluator for the tables. Limits: as ``Evaluator``"""
        tables = self.constraints.tables if self.constraints else self.tables
        sets = self.costs.get("sets") or (ExchangeSets() if self.for_torchrec else None)
        id_dtype = self.costs.get("id_dtype") or "int64"
        return Evaluator(self.basis, tables, self.batch, self.gpus, id_dtype=id_dtype, sets=sets)

    @property
    def made_for(self) -> MadeFor:
        """The question, as stored in the file of a plan that answers it."""
        usual = RESERVE if self.most_bytes is None else 0.0
        reserve = None if self.reserve == usual else float(self.reserve)
        most = None if self.most_bytes is None else float(self.most_bytes)
        return MadeFor.of(self.evaluator, reserve=reserve, max_hbm_bytes=most)

    def options(self, *, more: Sequence[Collection[Scheme]] = ()) -> Options:
        """Options of the tables: the schemes that fit and that the rules allow.

        more  for each kind of equal tables, further schemes, which are listed where they are allowed
        Sharding types of a TorchRec file are ignored.
        Limits: tables that do not fit, or have no allowed option -> BadInputError
        """
        listed = options_of(of_other_plans(self.evaluator), self.limit_bytes, more)
        return listed if self.constraints is None else self.constraints.restrict(listed, self.limit_bytes)

    def search(self, watch: Watch = lambda best_s: None) -> Search:
        """A search that is not yet started. Limits: as ``options``

        watch  is called with the best time [s]
        """
        return Search(
            self.evaluator,
            self.limit_bytes,
            effort_s=self.effort_s,
            time_limit_s=self.time_limit_s,
            seed=self.seed,
            restrict=torchrec.runnable if self.for_torchrec else None,
            options=self.options,
            ruled=self.constraints is not None,
            watch=watch,
        )

    def answer(self, watch: Watch = lambda best_s: None) -> Planned:
        """The best plan of a search. watch  is called with the best time [s]

        Limits: none fits -> BadInputError
        """
        search = self.search(watch)
        return replace(outcome_of(search, search.run()), asked=self.made_for)

    def given(self, plan: Plan) -> Planned:
        """The outcome of a given plan.

        Limits: a plan for other tables or GPUs, too large, or against the rules -> BadInputError
        """
        if self.evaluator.model.sets is not None:  # as TorchRec runs it, if it can
            plan = plan_of(torchrec.torchrec_plan(self.evaluator, plan), self.tables)
        outcome = given_outcome(self.evaluator, plan, self.limit_bytes, self.constraints)
        return replace(outcome, asked=self.made_for)

    def recosted(self, plan: Plan) -> float | None:
        """Time of a pass with a given plan on this question's machine [s].

        Limits: it does not fit, or is for another number of GPUs -> None
        """
        e = self.evaluator
        if (plan.gpus, plan.domain) != (e.gpus, e.domain):
            return None
        loads = e.loads(plan)
        if float(e.memory(plan, loads).total_bytes.max()) > self.limit_bytes:
            return None
        return float(e.time_passes(loads.most[np.newaxis])[0])
