"""``perfmodel chip plan``: tables on the cores of a chip."""

from __future__ import annotations

import typer

from perfmodel.chip.plan import plan_chip
from perfmodel.cli.options import check_distinct, settings_of, split_values
from perfmodel.cli.output import Reply
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.question.plans import CHIP_EXAMPLE, ChipPlanOptions
from perfmodel.report.chip_text import chip_plan_record, chip_plan_text, chips_compared_text
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import parse_distribution
from perfmodel.units import parse_count


def plan(context: typer.Context, options: ChipPlanOptions) -> Reply:
    """Search which core of a chip looks up which table in which way."""
    if options.model is None:
        step = "give --model, e.g. --model criteo-kaggle (perfmodel show models)"
        raise BadInputError("which tables?", step)
    batch = parse_count(options.batch, "--batch")
    settings = dict(settings_of(options.settings, CHIP_EXAMPLE))
    names = split_values([options.chip], "--chip")
    chips = [load_chip(name).with_overrides(settings) for name in names]
    check_distinct([chip.name for chip in chips], "--chip")
    tables = PlanTables.load(options.model, parse_distribution(options.distribution))
    plans = [plan_chip(chip, tables, batch) for chip in chips]
    record = {
        "model": tables.model,
        "batch": batch,
        "distribution": tables.distribution,
        "table_bytes": tables.total_bytes,
    }
    return Reply(
        lambda: record | {"chips": [chip_plan_record(plan) for plan in plans]},
        lambda: chips_compared_text(plans) if plans[1:] else chip_plan_text(plans[0]),
    )
