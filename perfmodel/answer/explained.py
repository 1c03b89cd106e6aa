"""The pass of an answer, made once more so that its steps can be explained."""

from __future__ import annotations

import numpy as np

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import plan_shardings
from perfmodel.collectives.library import Timing
from perfmodel.engine.cut import TableCut
from perfmodel.engine.explained import ExplainedPass
from perfmodel.engine.loads import sum_even_loads
from perfmodel.engine.pass_cost import cost_passes
from perfmodel.engine.row_wise import build_times, choose_exchanges, count_loads, cut_group
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.engine.steps import Step


def build_explained_pass(answer: Answer) -> ExplainedPass:
    """The pass of an answer, to explain its steps."""
    if answer.sharding == ROW_WISE or answer.plan is None:
        return _build_row_wise_pass(answer)
    return ExplainedPass.from_plan(plan_shardings(answer).evaluator, answer.plan.plan, answer.steps)


def _build_row_wise_pass(answer: Answer) -> ExplainedPass:
    """The pass of a row-wise answer, in which all ranks have the same loads."""
    basis, work = answer.basis, answer.work
    kind, times = choose_exchanges(basis, work), build_times(basis, work)
    loads = count_loads(basis, work, kind)

    def cut(table: int) -> TableCut:
        return cut_group(basis, work, work.groups[table], kind)[0]

    def timing(step: Step) -> Timing:
        return next(timed.timing for timed in cost_passes(times, loads).steps if timed.name == step.name)

    cuts = [cut_group(basis, work, group, kind) for group in work.groups]
    counts = np.array([float(count.flat[0]) for _, count in cuts])
    names = [f"table_{begin:.0f}" for begin in np.cumsum(counts) - counts]
    by_table = np.concatenate([sum_even_loads(table, count) for table, count in cuts])
    tables = names, counts, cut, lambda _: (np.ones(counts.size), by_table)
    return ExplainedPass(times, answer.steps, timing, *tables)
