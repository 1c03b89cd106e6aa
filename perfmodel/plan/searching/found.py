"""The result of a search: a plan, its cost, and a bound."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.placement import Plan
from perfmodel.engine.steps import StepCost

STOPPED = ("bound", "no improvement", "effort", "time-limit", "interrupt", "given")
"""Reasons why a search ended; ``given``: there was no search, and ``bound_s`` is 0."""


@dataclass(frozen=True, eq=False)
class Found:
    """The result of a search: a plan, its cost, and a bound on all plans.

    bound_s     no plan of the listed schemes takes less (``options_of``) [s]
    stopped     why the search ended, one of ``STOPPED``
    tried       number of plans whose tables were placed on ranks
    restricted  whether plan and bound are only for plans within a ``Restriction``
    done        share of the effort that was spent [-]
    memory  of every rank;  limit_bytes  memory of a rank that tables may use
    """

    plan: Plan
    cost: StepCost
    memory: GpuMemory
    limit_bytes: float
    bound_s: float
    stopped: str
    tried: int = 0
    restricted: bool = False
    done: float = 1.0

    @property
    def gap(self) -> float:
        """Gap between the plan's time and the bound, as a share of the plan's time."""
        return max(1 - self.bound_s / self.cost.time_s, 0.0)
