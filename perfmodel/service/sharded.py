"""The pass of a service whose tables have another sharding than row-wise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.placement import Plan
from perfmodel.passes.schemes import WAYS
from perfmodel.plan.as_projection import compared, evaluator_for, tables_of
from perfmodel.plan.for_torchrec.runnable import why_not
from perfmodel.plan.leading import Leading
from perfmodel.projections import Projection
from perfmodel.service.served import TORCHREC, ServedPass, planned_pass
from perfmodel.units import counted

PLANNED = "planned table by table"
BATCHES: tuple[int, ...] = tuple(2**power for power in range(17))
"""Samples per GPU at which a plan is timed."""


def sharded_pass(base: Projection, way: str) -> ServedPass:
    """The pass with one sharding of all tables, for every batch.

    base  the row-wise projection: machine, GPUs, and the batch for which the sharding's details are chosen
    way   the sharding option: a name of ``schemes.WAYS`` except row-wise
    Limits: a sharding that these tables, GPUs or their memory do not allow -> BadInputError
    """
    (one,) = compared(base, [way])
    if one.alike is None:
        raise BadInputError(
            f"--sharding {way} is not possible on {base.gpus} GPUs: {one.why}.",
            "take another sharding (best takes the fastest that fits) or another number of --gpus.",
        )
    return _served(base, one.alike.plan, way)


def leading_pass(found: Leading, *, planned: bool) -> ServedPass:
    """The pass of the best uniform sharding (not row-wise); with ``planned``, of the plan by table."""
    if planned:
        assert found.planned is not None
        return _served(found.base, found.planned.found.plan, "")
    alike = found.best[0].alike
    assert alike is not None
    return _served(found.base, alike.plan, found.way)


def runs(plan: Plan) -> str:
    """Name of the program that runs every table of a plan: ``TorchRec``, or "" if none is known."""
    parts = zip(plan.placements, plan.tables.dim, strict=True)
    none = any(why_not(part.scheme, int(dim), plan.gpus, plan.domain) for part, dim in parts)
    return "" if none else TORCHREC


def _served(base: Projection, plan: Plan, way: str) -> ServedPass:
    """The forward pass of a plan, for every batch. way  sharding of all tables; "": each table has its own"""
    model = (base.question.model if base.question else None) or "the tables"
    tables = tables_of(base.work, model, base.forward.ids)

    def evaluator(batch: int) -> Evaluator:
        work = replace(base.work, batch=np.array([float(batch)]))
        return evaluator_for(base.forward, work, 0, tables)

    served = planned_pass(evaluator, plan, base.gpu_count.usable_bytes, BATCHES)
    name, size = way or PLANNED, counted(int(base.work.batch[0]), "sample")
    who = WAYS[way].runs if way else runs(plan)
    return replace(served, way=way, runs=who, sharding=f"{name}, the fastest for a batch of {size} per GPU")
