"""Plans: which rank holds which part of which table, the time of a step, and the resource that limits it."""

from perfmodel.passes.cost import Evaluator
from perfmodel.passes.loads import Loads, ShardLoads
from perfmodel.passes.memory import PlanMemory
from perfmodel.passes.placement import (
    Placement,
    Plan,
    Scheme,
    uniform_plan,
)
from perfmodel.passes.schemes import SHARDINGS
from perfmodel.passes.steps import StepCost
from perfmodel.passes.tables import PlanTables
from perfmodel.plan.files import plan_from, plan_record, read_plan, write_plan

__all__ = [
    "SHARDINGS",
    "Evaluator",
    "Loads",
    "Placement",
    "Plan",
    "PlanMemory",
    "PlanTables",
    "Scheme",
    "ShardLoads",
    "StepCost",
    "plan_from",
    "plan_record",
    "read_plan",
    "uniform_plan",
    "write_plan",
]
