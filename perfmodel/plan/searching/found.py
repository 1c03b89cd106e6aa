"""What a search found: a plan, what it costs, and how good it can be."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.plan.pricing.cost import StepCost
from perfmodel.plan.pricing.memory import PlanMemory
from perfmodel.plan.pricing.placement import Plan

STOPPED = ("bound", "no improvement", "time", "interrupt", "given")
"""Why a search ended; ``given``: there was none, and ``bound_s`` is 0."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan, what it costs, and how good it can be.

    bound_s      no plan of the listed schemes takes less (``options_of``) [s];  stopped  one of ``STOPPED``
    all_plans_s  no plan at all takes less [s]; 0: not known yet;  None: nobody asked
    restricted   whether they hold for the plans of a ``Restriction`` alone;  processes  that searched
    """

    plan: Plan
    cost: StepCost
    memory: PlanMemory
    limit_bytes: float
    bound_s: float
    stopped: str
    seconds: float
    tried: int
    restricted: bool = False
    all_plans_s: float | None = None
    processes: int = 1

    @property
    def gap(self) -> float:
        """How much longer the plan takes than the bound, as a share of the plan's time."""
        return max(1 - self.bound_s / self.cost.time_s, 0.0)

    @property
    def all_plans_gap(self) -> float | None:
        """The same of the bound over all plans."""
        return None if self.all_plans_s is None else max(1 - self.all_plans_s / self.cost.time_s, 0.0)
