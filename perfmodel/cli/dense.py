"""``--dense``: the time of the dense layers, added to a plan's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.passes.dense import Dense, DenseTime, dense_of
from perfmodel.passes.training import CostedPlan, WholeStep

if TYPE_CHECKING:
    from perfmodel.plan.outcome import Planned
    from perfmodel.schema.machine import Machine


def layers_of(dense: str | None, machine: Machine) -> Dense | DenseTime | None:
    """The dense layers that the option ``--dense`` describes, on this machine's GPU; None without it."""
    if dense is None:
        return None

    return dense_of(dense, machine.name)


def whole_of(answer: Planned, layers: Dense | DenseTime | None) -> WholeStep | None:
    """The plan's time together with the time of dense layers; None if there are no dense layers."""
    if layers is None:
        return None

    return WholeStep.of(CostedPlan.of(answer.evaluator, answer.plan), layers)
