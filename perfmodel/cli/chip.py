"""``perfmodel chip plan``: tables on the cores of a chip."""

from __future__ import annotations

import typer

from perfmodel.chip.chip_plan import plan_chip
from perfmodel.cli.options import settings_of
from perfmodel.cli.output import CommandReply
from perfmodel.engine.tables import PlanTables
from perfmodel.question.plans import CHIP_EXAMPLE, ChipPlanOptions
from perfmodel.report.chip_text import chip_plan_record, chip_plan_text
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import parse_distribution
from perfmodel.units import parse_count


def plan(context: typer.Context, options: ChipPlanOptions) -> CommandReply:
    """Search which core of a chip looks up which table in which way."""
    batch = parse_count(options.batch, "--batch")
    chip = load_chip(options.chip).with_overrides(dict(settings_of(options.settings, CHIP_EXAMPLE)))
    tables = PlanTables.load(str(options.model), parse_distribution(options.distribution))
    plan = plan_chip(chip, tables, batch)
    record = {
        "model": tables.model,
        "batch": batch,
        "distribution": tables.distribution,
        "table_bytes": tables.total_bytes,
        "chips": [chip_plan_record(plan)],
    }
    return CommandReply(lambda: record, lambda: chip_plan_text(plan))
