"""The pass of a service whose tables are sharded in another way than row-wise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.placement import Plan
from perfmodel.passes.schemes import ROW_WISE
from perfmodel.passes.tables import PlanTables
from perfmodel.plan.as_projection import Compared, compared, evaluator_for, tables_of, winner
from perfmodel.plan.searched import searched_plan
from perfmodel.projections import Projection
from perfmodel.service.served import ServedPass, planned_pass
from perfmodel.units import format_count

BEST = "best"
PLANNED = "planned table by table"
BATCHES = tuple(2**power for power in range(17))
"""Samples of a GPU at which a plan is timed."""


def sharded_pass(base: Projection, way: str, tables: str | None = None) -> ServedPass | None:
    """The pass of one way at every batch; None where row-wise is the best.

    base    the row-wise projection: machine, GPUs, and the batch that the way is chosen for
    way     one of ``alike.WAYS``, or ``BEST``: the fastest of them and, for a set of tables, of a search
    tables  that set, by name or file
    Limits: a way that these tables, GPUs or their memory do not allow -> BadInputError
    """
    named = PlanTables.load(tables, base.forward.ids) if tables else None
    if way == BEST:
        best = winner(compared(base))
        plan, name = _plan_of(best), best.way
        if named is not None:
            found = searched_plan(base, named, EFFORTS[DEFAULT_EFFORT]).found
            assert best.answer is not None
            if found.cost.time_s < best.answer.time_s or not best.fits:
                return _served(base, found.plan, named, PLANNED)
        if best.way == ROW_WISE:
            return None
    else:
        (one,) = compared(base, [way])
        if one.answer is None:
            raise BadInputError(
                f"--sharding {way} is not possible on {base.gpus} GPUs: {one.why}.",
                "take another sharding (best takes the fastest that fits) or another number of --gpus.",
            )
        plan, name = _plan_of(one), way
    return _served(base, plan, tables_of(base.work, _model(base), base.forward.ids), name)


def _plan_of(found: Compared) -> Plan | None:
    return found.alike.plan if found.alike else None


def _model(base: Projection) -> str:
    """As ``as_projection.evaluator_of`` names the tables, for a plan is of those."""
    return (base.question.model if base.question else None) or "the tables"


def _served(base: Projection, plan: Plan | None, tables: PlanTables, name: str) -> ServedPass:
    assert plan is not None

    def evaluator(batch: int) -> Evaluator:
        work = replace(base.work, batch=np.array([float(batch)]))
        return evaluator_for(base.forward, work, 0, tables)

    served = planned_pass(evaluator, plan, base.gpu_count.usable_bytes, BATCHES)
    size = int(base.work.batch[0])
    way = "" if name == PLANNED else name
    return replace(served, way=way, sharding=f"{name}, chosen for {format_count(size)} samples per GPU")
