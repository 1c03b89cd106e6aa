"""``perfmodel chip plan``: which way to look up which table, and which core of one chip owns it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.effort import limit_of
from perfmodel.cli.ids import ids_of
from perfmodel.cli.onechip.options import chip_of
from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_json,
    note,
    warn_all,
    warn_stopped,
)
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.stopping import ctrl_c, end_softly
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.question.chips import ChipPlanOptions

if TYPE_CHECKING:
    from perfmodel.onechip.answer import ChipAnswer

_MOST_SAMPLES = 2**31


def plan(context: typer.Context, options: ChipPlanOptions) -> None:
    """Search which core of a chip looks up which table in which way, and print it or write a page."""
    check_page(options.report, None, force=options.force)
    if options.model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel models lists them)"
        )
    from perfmodel.onechip.answer import answer_on
    from perfmodel.passes.tables import PlanTables
    from perfmodel.units import parse_count

    samples = parse_count(options.batch, "--batch")
    if samples > _MOST_SAMPLES:
        raise BadInputError(f"--batch {samples} is more than one chip is given.", f"at most {_MOST_SAMPLES}.")
    ids = ids_of(options.alpha, options.distribution)
    limit_s = limit_of(options.time_limit)
    box = chip_of(options.chip, options.settings, "local_bytes=1MiB")
    tables = PlanTables.load(options.model, ids)
    with ctrl_c(end_softly) as stop:
        answer = answer_on(
            box,
            tables,
            samples,
            ids,
            effort=options.effort,
            time_limit_s=limit_s,
            seed=options.seed,
            stop=stop,
        )
        _deliver(answer, options.report, TypedLine.of(context), as_json=options.as_json)
    if answer.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def _deliver(answer: ChipAnswer, page: Path | None, typed: TypedLine, *, as_json: bool) -> None:
    """Write the page if ``page`` names one, then print the answer as text or JSON.

    typed  the command line, for the command in the page that makes it again
    """
    from perfmodel.onechip.answer import too_large
    from perfmodel.report.onechip.mapping_text import mapping_text

    large = too_large(answer.cost.chip, answer.tables.total_bytes)
    warn_all(large)
    if page is not None:
        from perfmodel.report.onechip.mapping_page import chip_page

        command = typed.text(without=("report", "force", "as_json"), more=["--report", page.name, "--force"])
        write(chip_page(answer, command), page, "html")
    if as_json:
        emit_json("plan", **answer.to_dict(), notes=large)
    else:
        emit(mapping_text(answer))
    if page is not None:
        note(f"wrote {page}")
