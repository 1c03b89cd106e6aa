"""A quick plan for the tables of a projection: a sharding for each table, as TorchRec can run it."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.answer.uniform_plans import MOST_COMPARED
from perfmodel.effort import EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.plan.question import PlanQuestion


def plan_quickly(ranking: Ranking) -> Answer | None:
    """The answer of a quick search, in which each of several tables may have its own sharding.

    The plan is one that TorchRec can run: ``perfmodel plan --format torchrec`` searches longer for it.
    Limits: no plan is faster than the best of the ranking, equal tables, too many tables, nothing fits, rows
    in host memory or unpooled rows, which plans do not have -> None;  Ctrl-C -> KeyboardInterrupt
    """
    base = ranking.base
    unplanned = base.basis.rows or base.basis.unpooled or base.question.table_set is None
    if unplanned or base.table_count > MOST_COMPARED or len(base.work.tables) < 2:
        return None
    question = replace(base.question, gpus=base.gpus, batch=int(base.work.batch[0]))
    planned = PlanQuestion(question=question, effort_s=EFFORTS["quick"], for_torchrec=True)
    try:
        result = planned.search().run()
    except BadInputError:
        return None
    if result.stopped == "interrupt":
        raise KeyboardInterrupt  # the search returns its best plan, but the user wants to stop
    if ranking.best and result.cost.time_s >= ranking.answer.time_s:
        return None
    return replace(planned.build_answer(result.plan, result.cost, result.memory), question=base.question)
