"""Plans: which rank holds which part of which table, the time of a step, and the resource that limits it."""

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.loads import Loads, ShardLoads
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.placement import (
    Placement,
    Plan,
    Scheme,
    uniform_plan,
)
from perfmodel.engine.schemes import SHARDINGS
from perfmodel.engine.steps import StepCost
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.files import plan_from, plan_record, read_plan, write_plan

__all__ = [
    "SHARDINGS",
    "Evaluator",
    "GpuMemory",
    "Loads",
    "Placement",
    "Plan",
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
