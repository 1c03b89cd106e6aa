"""The page of tables on the cores of chips: the loads of the cores of each chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfmodel.chip.plan import ChipPlan
from perfmodel.report.figures.chip_cores import cores
from perfmodel.report.page.parts import Card, Page
from perfmodel.report.page.provenance import code, versions
from perfmodel.units import counted, format_per_second, format_ratio, format_time


def chip_page(plans: Sequence[ChipPlan], command: str) -> Page:
    """The page of plans of the same tables. command  plans again and writes the page"""
    first = plans[0]
    sentence = "; ".join(
        f"{format_time(plan.time_s)} a batch on {plan.chip.name}, {format_ratio(plan.speedup)} as fast as a "
        "slice of every table on every core"
        for plan in plans
    )
    times = "; ".join(format_per_second(plan.batch / plan.time_s, "samples") for plan in plans)
    figures = tuple(replace(cores(plan), name=f"cores-{plan.chip.name}") for plan in plans)
    question = (
        f"{counted(len(first.tables), 'table')} of {first.tables.model}, {counted(first.batch, 'sample')}"
    )
    card = Card(f"{sentence}.", times, question=question)
    chips = " ".join(f"perfmodel show chips {plan.chip.name}" for plan in plans)
    sources = (
        f"<p>{versions()} Values of the chip:</p>{code(chips)}<p>To reproduce this page:</p>{code(command)}"
    )
    return Page(f"{first.tables.model}: {sentence}", sources, card, figures, command)
