"""A quick plan for the tables of a projection: a sharding for each table, as TorchRec can run it."""

from __future__ import annotations

from perfmodel.answer.answer import Answer, answer_plan
from perfmodel.answer.ranking import Ranking
from perfmodel.answer.uniform_plans import MOST_COMPARED, UniformPlan, list_tables
from perfmodel.effort import EFFORTS
from perfmodel.engine.placement import COPY
from perfmodel.errors import BadInputError
from perfmodel.plan.question import PlanQuestion, costs_of
from perfmodel.question.groups import choose_optimizer

PLANNED = "planned"
"""The ``sharding`` of an answer in which each table has its own."""
_ID_DTYPES = {4: "int32", 8: "int64"}


def plan_quickly(ranking: Ranking) -> Answer | None:
    """The answer of a quick search, in which each of several tables may have its own sharding.

    The plan is one that TorchRec can run: ``perfmodel plan --format torchrec`` searches longer for it.
    Limits: no plan is faster than the best of the ranking, equal tables, too many tables, nothing fits, rows
    in host memory or unpooled rows, which plans do not have -> None;  Ctrl-C -> KeyboardInterrupt
    """
    base = ranking.base
    question, basis, work = base.question, base.basis, base.work
    unplanned = basis.rows or basis.unpooled
    if unplanned or base.table_count > MOST_COMPARED or len(work.groups) < 2:
        return None
    setting, training = basis.setting, basis.training
    costs = {
        "backend": setting.backend,
        "clock": question.clock,
        "calibration": question.calibration,
        "kernels": setting.asked_kernels,
        "gpus_per_node": basis.gpus_per_node,
        "payload": basis.payload,
        "id_dtype": _ID_DTYPES[int(work.id_bytes[0])],
    }
    if training or basis.optimizer != choose_optimizer(training=False):
        costs["optimizer"] = basis.optimizer
    planned = PlanQuestion(
        tables=list_tables(work, "the tables"),
        machine=question.machine,
        gpus=base.gpus,
        batch=int(work.batch[0]),
        reserve=question.reserve,
        effort_s=EFFORTS["quick"],
        training=training,
        for_torchrec=True,
        costs=costs_of(costs, training=training),
    )
    try:
        result = planned.search().run()
    except BadInputError:
        return None
    if result.stopped == "interrupt":
        raise KeyboardInterrupt  # the search returns its best plan, but the user wants to stop
    if ranking.best and result.cost.time_s >= ranking.answer.time_s:
        return None
    plan = UniformPlan(PLANNED, COPY, result.plan, result.cost, result.memory)
    return answer_plan(base, planned.evaluator, plan)
