"""A sharding of its own for every table of a model, beside all tables sharded alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.plan.as_projection import Compared, evaluator_of
from perfmodel.plan.choices.options import Options
from perfmodel.plan.outcome import given_outcome
from perfmodel.plan.pricing.cost import Evaluator
from perfmodel.plan.pricing.placement import Plan
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


@dataclass(frozen=True, eq=False)
class Begun:
    """The plan that a search begins with; options  that its tables may change to."""

    evaluator: Evaluator
    options: Options
    plan: Plan


def begun(base: Projection) -> Begun | None:
    """Built without chance or clock, so it is the same every time.

    base  a row-wise projection of a model
    Limits: no model, more than ``MOST_PARTS`` -> None;  none fits -> BadInputError
    """
    model = base.question.model if base.question else None
    if model is None:
        return None
    tables = PlanTables.load(model, base.forward.ids)
    if len(tables) * base.gpus > MOST_PARTS:
        return None
    search = Search(evaluator_of(base, tables), base.gpu_count.usable_bytes, effort_s=inf)
    return Begun(search.evaluator, search.options, search.constructed())


Begin = Callable[[Projection], Begun | None]
"""``begun``, or what remembers its answers."""


def per_table(base: Projection, best: Compared, line: str, begin: Begin = begun) -> Block | Missing:
    """The plan that a search begins with.

    base  a row-wise projection of a model;  best  the fastest of its tables sharded alike
    line  the command that searches on
    Limits: one GPU, more than ``MOST_PARTS``, or no plan that fits -> Missing
    """
    model = base.question.model if base.question else None
    if model is None or base.gpus == 1:
        return Missing(NAME, "on one GPU nothing is sharded: ask for more with --gpus.")
    try:
        known = begin(base)
        if known is None:
            many = int(base.work.table_count.flat[0])
            return Missing(NAME, f"planning {counted(many, 'table')} takes too long for a page: {line}")
        found = given_outcome(known.evaluator, known.plan, base.gpu_count.usable_bytes, known.options)
    except NoCalibrationError:
        raise
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
        return f"{words}, more than the {format_time(alike)} of {best.way} for all: a search is needed."
    return f"{words}, {format_ratio(alike / time_s)} as fast as {best.way} for all ({format_time(alike)})."
