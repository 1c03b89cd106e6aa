"""The blocks about the question as asked, which stay when the reader selects another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.errors import NoCalibrationError
from perfmodel.plan.leading import Leading
from perfmodel.plan.sizes import by_size
from perfmodel.projections import Projection
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import SHARDINGS, STAYING
from perfmodel.report.figures.sharding_winners import shardings
from perfmodel.report.page.lines import Lines, answerable
from perfmodel.report.page.parts import Selector
from perfmodel.report.page.views import Across, small_sizes, view_of
from perfmodel.units import counted, format_bytes, format_count


def across_sizes(sizes: Selector, selected: tuple[str, ...]) -> Across:
    """The settings of a page over table sizes. selected  options of its selectors"""
    return Across(max(sizes.values), Lines, view_of, fixed_blocks, len(STAYING), selected)


def fixed_blocks(
    asked: Projection, options: Mapping[str, Any], lead: Leading | None = None
) -> Iterator[Block | Missing]:
    """The blocks, in the order of the reader's questions.

    asked    the projection of the question;  lead  its fastest sharding, if shardings are compared
    options  of ``perfmodel.project`` for the question, without its table size
    """
    for figure in STAYING:
        yield figure.draw(asked=asked, options=options, lead=lead)


def question(asked: Projection, lead: Leading | None) -> str:
    """The question in words, for the blocks that stay. lead  None: shardings are not compared"""
    work, only, said = asked.work, asked.work.groups[0], asked.question
    counts = {"batch": work.batch, "tables": only.count, "dim": only.dim}
    words = [f"{name} {format_count(float(value.flat[0]))}" for name, value in counts.items()]
    words.append(f"pooling {float(only.pooling.flat[0]):g}")
    what = format_bytes(asked.gpu_count.table_bytes, binary=False)
    if said is not None and said.model is not None:
        what, words = f"{said.model} ({what})", words[:1]
    if said is not None and said.sharding is not None:
        words.append(f"sharded {said.sharding}")
    if lead is not None:
        words.append("sharded row-wise where a figure names no other sharding")
    where = f"{counted(asked.gpus, 'GPU')} of {asked.setting.machine.name}"
    return ", ".join([f"{what} on {where}", *words])


def not_compared(asked: Projection, options: Mapping[str, Any]) -> str:
    """Why shardings are not compared for this question; "" if they are."""
    if asked.forward.tier is not None:
        return "rows in a tier below the HBM are sharded row-wise: leave --tier out."
    if options.get("reduction", "auto") != "auto":
        return "an exchange was chosen with --reduction: leave it out to compare them."
    return ""


def every_sharding(asked: Projection, options: Mapping[str, Any]) -> Block | Missing:
    """All shardings of the question's tables; asked and options as in ``fixed_blocks``."""
    why = not_compared(asked, options)
    if why:
        return SHARDINGS.missing(why)
    machine, known = asked.setting.machine, {**options, "setting": asked.setting}
    sizes = sorted({*SIZES, *small_sizes(asked)})
    answers = {a.gpu_count.table_bytes: a for a in answerable(machine, known, sizes)}
    try:
        return shardings(list(by_size(answers.__getitem__, tuple(answers))))
    except NoCalibrationError as error:
        return SHARDINGS.missing(error.message)


SIZES = (160e9, 640e9, 1.28e12, 2.5e12, 10e12, 50e12, 100e12)
"""Table sizes at which every sharding is costed; each takes some hundredths of a second."""
