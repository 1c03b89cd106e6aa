"""``perfmodel chip plan``: tables on the cores of a chip."""

from __future__ import annotations

import typer

from perfmodel.cli.options import check_distinct, settings_of, split_values
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import BadInputError
from perfmodel.question.plans import CHIP_EXAMPLE, ChipPlanOptions
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import parse_distribution
from perfmodel.units import parse_count


def plan(context: typer.Context, options: ChipPlanOptions) -> None:
    """Search which core of a chip looks up which table in which way, and print it."""
    if options.model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model criteo-kaggle (perfmodel show models)"
        )
    from perfmodel.chip.plan import plan_chip
    from perfmodel.engine.tables import PlanTables
    from perfmodel.report import chip_text

    batch, ids = parse_count(options.batch, "--batch"), parse_distribution(options.distribution)
    names = split_values([options.chip], "--chip")
    settings = dict(settings_of(options.settings, CHIP_EXAMPLE))
    chips = [load_chip(name).with_overrides(settings) for name in names]
    check_distinct([chip.name for chip in chips], "--chip")
    tables = PlanTables.load(options.model, ids)
    plans = [plan_chip(chip, tables, batch) for chip in chips]
    if options.as_json:
        about = {"model": tables.model, "batch": batch, "distribution": tables.distribution}
        about |= {"table_bytes": tables.total_bytes}
        emit_json("chip plan", **about, chips=[chip_text.chip_plan_record(plan) for plan in plans])
    else:
        emit(chip_text.chips_compared_text(plans) if plans[1:] else chip_text.chip_plan_text(plans[0]))
