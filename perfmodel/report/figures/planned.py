"""A sharding of its own for every table of a model, beside all tables sharded alike."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.errors import PerfmodelError
from perfmodel.plan.as_projection import Compared, evaluator_of
from perfmodel.plan.outcome import given_outcome
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.plan.searching.search import Search
from perfmodel.project import Projection
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.gpu_columns import Shown
from perfmodel.report.figures.plan_tables import tables
from perfmodel.units import counted, format_ratio, format_time

NAME = "per-table"
MOST_PARTS = 300_000
"""Tables times GPUs of a plan that a page makes."""
_SAME = 0.005  # of a time: no difference


def per_table(base: Projection, best: Compared, line: str) -> Block | Missing:
    """The plan that a search begins with: built without chance or clock, so it is the same every time.

    base  a row-wise projection of a model;  best  the fastest of its tables sharded alike
    line  the command that searches on
    Limits: one GPU, more than ``MOST_PARTS``, or no plan that fits -> Missing
    """
    model = base.question.model if base.question else None
    if model is None or base.gpus == 1:
        return Missing(NAME, "on one GPU nothing is sharded: ask for more with --gpus.")
    known = PlanTables.load(model, base.forward.ids)
    if len(known) * base.gpus > MOST_PARTS:
        return Missing(NAME, f"planning {counted(len(known), 'table')} takes too long for a page: {line}")
    evaluator = evaluator_of(base, known)
    room = base.gpu_count.usable_bytes
    try:
        plan = Search(evaluator, room, time_limit_s=float("inf")).constructed()
        found = given_outcome(evaluator, plan, room)
    except PerfmodelError as error:
        return Missing(NAME, f"{error.message.rstrip('.')}; {line}")
    shown = tables(Shown.of(found))
    return replace(
        shown,
        name=NAME,
        title=_title(base.gpus, found.found.cost.time_s, best),
        how_to_read=f"{shown.title} {shown.how_to_read} This is the plan from which a search starts; "
        f"to search further: {line}",
    )


def _title(gpus: int, time_s: float, best: Compared) -> str:
    """Whether tables of their own shardings are faster than all alike, and by how much."""
    where, own = counted(gpus, "GPU"), format_time(time_s)
    if best.answer is None:
        return f"With a separate sharding for each table, a batch takes {own} on {where}."
    alike = best.answer.time_s
    if abs(time_s / alike - 1) < _SAME:
        return f"On {where} a separate sharding for each table is no faster than {best.way} for all: {own}."
    words = f"With a separate sharding for each table, a batch takes {own} on {where}"
    if time_s > alike:
        return (
            f"{words}, more than the {format_time(alike)} of {best.way} for all: a longer search is needed."
        )
    return f"{words}, {format_ratio(alike / time_s)} as fast as {best.way} for all ({format_time(alike)})."
