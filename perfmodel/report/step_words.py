"""Words for the steps of a plan: their labels, and what runs beside them."""

from __future__ import annotations

from perfmodel.passes.cost import StepCost
from perfmodel.passes.steps import LABELS, STEPS, StepRow
from perfmodel.units import format_time


def ahead_words(cost: StepCost) -> str:
    """``rows for the next batch 187 µs, beside all steps (prefetch)``; "" where none are brought ahead."""
    return (
        f"rows for the next batch {format_time(cost.ahead_s)}, beside all steps (prefetch)"
        if cost.ahead_s
        else ""
    )


def beside_words(row: StepRow) -> str:
    """``HBM gather 2.50 ms, hidden behind gather + pool (host memory)``; "" where nothing is."""
    return f"{row.beside} {format_time(row.beside_s)}, hidden behind {label(row)}" if row.beside else ""


def label(row: StepRow) -> str:
    """``all-to-all (bags)`` of ``all_to_all_bags``."""
    return step_label(row.name)


def step_label(name: str) -> str:
    """The same of the name of a step."""
    own = STEPS[name].sharding if name in STEPS else ""
    if own:
        return f"{step_label(STEPS[name].whole)[:-1]}, {own.replace('_', '-')})"
    for prefix, words in (
        ("all_to_all_", "all-to-all"),
        ("reduce_scatter_", "reduce-scatter"),
        ("all_gather_", "all-gather"),
        ("all_reduce_", "all-reduce"),
    ):
        if name.startswith(prefix):
            return f"{words} ({name.removeprefix(prefix).replace('_', ' ')})"
    if name in STEPS and STEPS[name].below_hbm:
        return str(LABELS[name])
    return {"gather_pool": "gather + pool", "bucketize": "bucketize indices"}.get(
        name, name.replace("_", " ")
    )
