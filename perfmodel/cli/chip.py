"""``perfmodel chip plan``: tables on the cores of a chip."""

from __future__ import annotations

import typer

from perfmodel.cli.options import check_distinct, one_output, settings_of, split_values
from perfmodel.cli.output import emit, emit_json, note
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.question.chips import EXAMPLE, ChipPlanOptions
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import parse_distribution
from perfmodel.units import parse_count


def plan(context: typer.Context, options: ChipPlanOptions) -> None:
    """Search which core of a chip looks up which table in which way, and print it."""
    one_output(json=options.as_json, csv=options.as_csv)
    check_page(options.report, None, force=options.force)
    if options.model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model criteo-kaggle (perfmodel show models)"
        )
    from perfmodel.chip.plan import plan_chip
    from perfmodel.engine.tables import PlanTables
    from perfmodel.report import chip_text

    batch, ids = parse_count(options.batch, "--batch"), parse_distribution(options.distribution)
    names = split_values([options.chip], "--chip")
    settings = dict(settings_of(options.settings, EXAMPLE))
    chips = [load_chip(name).with_overrides(settings) for name in names]
    check_distinct([chip.name for chip in chips], "--chip")
    tables = PlanTables.load(options.model, ids)
    plans = [plan_chip(chip, tables, batch) for chip in chips]
    if options.as_json:
        about = {"model": tables.model, "batch": batch, "distribution": tables.distribution}
        about |= {"table_bytes": tables.total_bytes}
        emit_json("chip plan", **about, chips=[chip_text.chip_plan_record(plan) for plan in plans])
    elif options.as_csv:
        emit(chip_text.chip_plan_csv(plans))
    else:
        emit(chip_text.chips_compared_text(plans) if plans[1:] else chip_text.chip_plan_text(plans[0]))
    if options.report is not None:
        from perfmodel.cli.page_file import write
        from perfmodel.report.page.chip_page import chip_page

        without = ["report", "force", "as_json", "as_csv"]
        command = TypedLine.of(context).text(without=without, more=["--report", options.report.name])
        write(chip_page(plans, command), options.report, "html")
        note(f"wrote {options.report}")
