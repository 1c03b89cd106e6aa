"""Plans: which rank holds which part of which table, what a step of it costs, and what limits it."""

from perfmodel.passes.schemes import SHARDINGS
from perfmodel.plan.files import plan_from, plan_record, read_plan, write_plan
from perfmodel.plan.pricing.cost import Evaluator, StepCost
from perfmodel.plan.pricing.loads import RESOURCES, Loads, ShardLoads
from perfmodel.plan.pricing.memory import PlanMemory
from perfmodel.plan.pricing.placement import (
    Placement,
    Plan,
    Scheme,
    uniform_plan,
)
from perfmodel.plan.pricing.tables import PlanTables

__all__ = [
    "RESOURCES",
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
