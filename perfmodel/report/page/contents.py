"""The figures of a page that are about the question as it was typed, whatever the reader selects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking, compare_sizes
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import SHARDINGS, STAYING
from perfmodel.report.figures.sharding_winners import shardings
from perfmodel.report.page.lines import Lines, answerable
from perfmodel.report.page.parts import Selector
from perfmodel.report.page.views import Across, small_sizes, view_of
from perfmodel.units import counted, format_bytes, format_count


def across_sizes(sizes: Selector, selected: tuple[str, ...]) -> Across:
    """How a page over table sizes is made. selected  options for which it has selectors"""
    return Across(max(sizes.values), Lines, view_of, fixed_blocks, len(STAYING), selected)


def fixed_blocks(
    asked: Answer, options: Mapping[str, Any], lead: Ranking | None = None
) -> Iterator[Block | Missing]:
    """Draw the figures about the question as it was typed, in the order of the reader's questions.

    asked    the projection of the question
    options  of ``perfmodel.project`` for the question, without its table size
    lead     its fastest sharding; None: shardings are not compared
    """
    for figure in STAYING:
        yield figure.draw(asked=asked, options=options, lead=lead)


def question(asked: Answer, lead: Ranking | None) -> str:
    """The question in words, above its figures. lead  the fastest sharding; None: not compared"""
    work, only, said = asked.work, asked.work.groups[0], asked.question
    counts = {"batch": work.batch, "tables": only.count, "dim": only.dim}
    words = [f"{name} {format_count(float(value.flat[0]))}" for name, value in counts.items()]
    words.append(f"pooling {float(only.pooling.flat[0]):g}")
    what = format_bytes(asked.gpu_count.table_bytes, binary=False)
    if said.model is not None:
        what, words = f"{said.model} ({what})", words[:1]
    if asked.sharding != ROW_WISE or said.sharding is not None:
        words.append(f"sharded {asked.sharding}")
    if lead is not None:
        words.append("sharded row-wise where a figure names no other sharding")
    where = f"{counted(asked.gpus, 'GPU')} of {asked.setting.machine.name}"
    return ", ".join([f"{what} on {where}", *words])


def every_sharding(asked: Answer, options: Mapping[str, Any]) -> Block | Missing:
    """The figure of all shardings over table sizes. asked, options  as in ``fixed_blocks``"""
    machine, known = asked.setting.machine, {**options, "setting": asked.setting}
    sizes = sorted({*SIZES, *small_sizes(asked)})
    answers = {a.gpu_count.table_bytes: a for a in answerable(machine, known, sizes)}
    try:
        return shardings(list(compare_sizes(answers.__getitem__, tuple(answers))))
    except NoCalibrationError as error:
        return SHARDINGS.missing(error.message)


SIZES = (160e9, 640e9, 1.28e12, 2.5e12, 10e12, 50e12, 100e12)
"""Table sizes at which every sharding is costed; each takes some hundredths of a second."""
