"""The blocks of a page over numbers of GPUs that stay: those of the question as it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from perfmodel.collectives.estimate import LARGEST_GPUS
from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.plan.as_projection import compared, winner
from perfmodel.plan.sizes import Size
from perfmodel.project import Projection, project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.evidence_figures import EVIDENCE
from perfmodel.report.figures.over import GPUS
from perfmodel.report.figures.plan_scaling import NAME as PLAN_SCALING
from perfmodel.report.figures.plan_scaling import plan_scaling
from perfmodel.report.figures.planned import NAME as PER_TABLE
from perfmodel.report.figures.planned import Begun, begun, per_table
from perfmodel.report.figures.sharding_winners import NAME as SHARDINGS
from perfmodel.report.figures.sharding_winners import shardings
from perfmodel.report.figures.what_if import CHANGES, HEAT_MAP, TORNADO
from perfmodel.report.page.contents import not_compared
from perfmodel.report.page.gpu_views import FixedTables, GpuLines, GpuViewsAsked, bar_numbers, gpu_view
from perfmodel.report.page.parts import Selector
from perfmodel.report.page.views import Across

_OF_ROW_WISE = (CHANGES, TORNADO, HEAT_MAP)
BLOCKS = len(EVIDENCE) + 3
"""How many blocks ``fixed_gpu_blocks`` gives of a model."""


def across_gpus(
    first: Projection, numbers: Selector, way: str | None, line: str, selected: tuple[str, ...]
) -> Across:
    """A page over numbers of GPUs.

    first  the row-wise answer of the question;  way  another sharding
    line   the command that plans each table;  selected  options of its selectors
    """
    size, node = first.gpu_count.table_bytes, first.gpu_count.gpus_per_node
    model = first.question is not None and first.question.model is not None
    rows = min(float(group.rows.min()) for group in first.work.groups)
    tables = FixedTables(size, LARGEST_GPUS if model else min(rows, LARGEST_GPUS))
    compared = bar_numbers(first.gpu_count.needed, node, numbers.values, tables.most_gpus)

    def fixed(asked: Projection, options: Mapping[str, Any]) -> Iterator[Block | Missing]:
        return fixed_gpu_blocks(asked, options, compared, line)

    lines, asked = partial(GpuLines, tables=tables), partial(GpuViewsAsked, tables=tables, sharding=way)
    return Across(size, lines, asked, gpu_view, fixed, BLOCKS, selected)


def fixed_gpu_blocks(
    asked: Projection, options: Mapping[str, Any], numbers: Sequence[int], line: str
) -> Iterator[Block | Missing]:
    """Blocks in the order of the reader's questions.

    asked    the projection of the question
    options  of ``perfmodel.project`` that it was asked with, without its number of GPUs
    numbers  of GPUs that shardings are compared on;  line  the command that plans each table
    """
    for name, build in EVIDENCE.items():
        if name in _OF_ROW_WISE and asked.question and asked.question.sharding:
            yield Missing(name, "it is drawn for row-wise sharding only: leave --sharding out.")
        else:
            yield build(asked)
    why = not_compared(asked, options)
    if why:
        yield from (Missing(name, why) for name in (SHARDINGS, PER_TABLE, PLAN_SCALING))
        return
    machine, known = asked.setting.machine, {**options, "setting": asked.setting}
    found: dict[int, Size] = {}
    for gpus in sorted({*numbers, asked.gpus}):
        try:
            base = project_one(machine=machine, gpus=gpus, **known)
            found[gpus] = Size(base.gpu_count.table_bytes, base, tuple(compared(base)))
        except PerfmodelError as error:
            if gpus == asked.gpus:
                yield Missing(SHARDINGS, error.message)
                return
    yield shardings(list(found.values()), GPUS)
    if options.get("tables") is None:
        return
    own = found[asked.gpus]
    once = cache(lambda: begun(own.base))  # both blocks show this plan

    def begin(base: Projection) -> Begun | None:
        return once() if base is own.base else begun(base)

    try:
        yield per_table(own.base, winner(own.found), line, begin)
        yield plan_scaling(list(found.values()), line, begin)
    except NoCalibrationError as error:
        yield from (Missing(name, error.message) for name in (PER_TABLE, PLAN_SCALING))
