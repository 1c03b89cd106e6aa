"""Words for steps that run beside other steps of a plan."""

from __future__ import annotations

from perfmodel.passes.steps import StepCost, StepRow
from perfmodel.units import format_time


def ahead_words(cost: StepCost) -> str:
    """Time to fetch rows for the next batch: ``rows for the next batch 187 µs, beside all steps (prefetch)``.

    Limits: the plan prefetches nothing -> ""
    """
    return (
        f"rows for the next batch {format_time(cost.ahead_s)}, beside all steps (prefetch)"
        if cost.ahead_s
        else ""
    )


def beside_words(row: StepRow) -> str:
    """A step that another hides: ``HBM gather 2.50 ms, hidden behind gather (host)``; "" if there is none."""
    return f"{row.beside} {format_time(row.beside_s)}, hidden behind {row.label}" if row.beside else ""
