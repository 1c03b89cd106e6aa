"""``--dense``: the dense layers beside a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.passes.dense import Dense, DenseTime, dense_of
from perfmodel.passes.training import CostedPlan, WholeStep

if TYPE_CHECKING:
    from perfmodel.plan.outcome import Planned
    from perfmodel.schema.machine import Machine


def layers_of(dense: str | None, machine: Machine) -> Dense | DenseTime | None:
    """What was typed, on the machine's GPU; None: nothing was."""
    if dense is None:
        return None

    return dense_of(dense, machine.name)


def whole_of(answer: Planned, layers: Dense | DenseTime | None) -> WholeStep | None:
    """The step of the plan with its dense layers, where they are given."""
    if layers is None:
        return None

    return WholeStep.of(CostedPlan.of(answer.evaluator, answer.plan), layers)
