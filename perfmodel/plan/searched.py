"""A planner's search for the tables of a projection, on its machine, batch and GPUs."""

from __future__ import annotations

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.answer.uniform_plans import MOST_COMPARED, list_tables
from perfmodel.effort import EFFORTS
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion, costs_of
from perfmodel.question.groups import choose_optimizer

_ID_DTYPES = {4: "int32", 8: "int64"}


def plan_beside(lead: Ranking) -> Planned | None:
    """The best plan of a quick search, in which each of several tables may have its own sharding.

    Limits: no plan is faster, equal tables, too many tables, nothing fits, rows in host memory or unpooled
    rows, which plans do not have -> None
    """
    base = lead.base
    unplanned = base.basis.rows or base.basis.unpooled
    if unplanned or base.table_count > MOST_COMPARED or len(base.work.groups) < 2:
        return None
    tables = list_tables(base.work, "the tables")
    try:
        best = searched_plan(base, tables)
    except BadInputError:
        return None
    return best if best.found.cost.time_s < lead.answer.time_s or not lead.best else None


def searched_plan(base: Answer, tables: PlanTables) -> Planned:
    """The best plan of a quick search, with its cost and memory, for the question of a projection.

    base  gives machine, GPUs, batch, ids and curves;  tables  of the projection, each with a name
    Limits: none fits -> BadInputError;  Ctrl-C -> KeyboardInterrupt, even if there is a plan
    """
    asked, basis, work = base.question, base.basis, base.work
    setting = basis.setting
    costs = {
        "backend": setting.backend,
        "clock": asked.clock,
        "calibration": asked.calibration,
        "kernels": setting.asked_kernels,
        "gpus_per_node": basis.gpus_per_node,
        "payload": basis.payload,
        "id_dtype": _ID_DTYPES[int(work.id_bytes[0])],
    }
    training = basis.training
    if training or basis.optimizer != choose_optimizer(training=False):
        costs["optimizer"] = basis.optimizer
    found = PlanQuestion(
        tables=tables,
        machine=asked.machine,
        gpus=base.gpus,
        batch=int(work.batch[0]),
        reserve=asked.reserve,
        effort_s=EFFORTS["quick"],
        training=training,
        costs=costs_of(costs, training=training),
    )
    planned = found.answer()
    if planned.found.stopped == "interrupt":
        raise KeyboardInterrupt  # the search returns its best plan, but the user wants to stop
    return planned
