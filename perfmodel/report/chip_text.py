"""Text and JSON of ``perfmodel chip plan``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.chip.chip_plan import ChipPlan
from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph, sides
from perfmodel.schema.evidence import Evidence
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_MOST_LINES = 10
_MOST_CORES = 3
_BUSIEST = {"core": "the busiest core", "memory": "global memory", "cache": "the cache"}
_TABLES = (
    Column("table", lambda p: p.name, left=True, data={"table": lambda p: p.name}),
    Column("rows", lambda p: format_count(p.rows), goes=2, data=attributes("rows")),
    Column("way", lambda p: p.way, left=True, data=attributes("way")),
    Column("kept rows", lambda p: format_count(p.kept_rows) if p.kept_rows else "-", goes=1),
    Column("row parts", lambda p: str(p.row_parts), goes=3),
    Column("batch slices", lambda p: str(p.batch_slices), goes=4),
    Column("cores", lambda p: cores_text(p.cores), left=True),
    Column("a core", lambda p: format_time(p.piece_s)),
    Column("all cores", lambda p: format_time(p.core_s)),
    Column(
        data=attributes("kept_rows", "row_parts", "batch_slices", "cores", "piece_s", "core_s", "held_bytes")
    ),
)


def cores_text(cores: Sequence[int]) -> str:
    """Numbers of cores in words: ``0-31``, or the first of them and how many there are."""
    if 1 < len(cores) == np.ptp(cores) + 1:
        return f"{min(cores)}-{max(cores)}"
    few = " ".join(map(str, cores[:_MOST_CORES]))
    return f"{few} … ({len(cores)})" if len(cores) > _MOST_CORES else few


def chip_plan_text(plan: ChipPlan) -> str:
    """The screen of a plan: time, baselines, bound; then a line for each of the tables that take most."""
    placements = plan.placements
    ratio = format_ratio(plan.speedup)
    headline_text = f"{format_time(plan.time_s)} a batch on {plan.chip.name}, {ratio} as fast as symmetric"
    lines = columns_text(_TABLES, placements[:_MOST_LINES])
    if shorter := placements[_MOST_LINES:]:
        ways = ", ".join(dict.fromkeys(placement.way for placement in shorter))
        share = sum(p.core_s for p in shorter) / sum(p.core_s for p in placements)
        words = f"and {counted(len(shorter), 'more table')}, {format_fraction(share)} of the cores' time"
        lines += "\n" + paragraph(f"{words}: {ways} (--json has all)", 1)
    per_s = format_per_second(plan.batch / plan.time_s, "samples")
    return "\n\n".join([sides(headline_text, per_s), _list_facts(plan), lines])


def _list_facts(plan: ChipPlan) -> str:
    """The lines below the time: batch, baselines, bound, what is busy, buffers, what is assumed."""
    busy = ", ".join(f"{name} {format_time(time_s)}" for name, time_s in plan.busy_s.items())
    mean = format_time(float(plan.core_s.mean()))
    room = plan.chip.value("local_bytes")
    size = format_bytes(plan.tables.total_bytes, binary=False)
    ids = plan.tables.distribution
    ids = f"ids {ids}" if isinstance(ids, str) else "each with its ids"
    buffers = "rows are copied again for every batch"
    if plan.chip.buffers.persist:
        filled = format_fraction(float(plan.mapping.held_bytes.mean()) / room)
        buffers = f"rows fill {filled} of {plan.chip.cores} × {format_bytes(room)}; they are copied once"
    values = plan.chip.values.values()
    assumed = sum(quantity.evidence is Evidence.ASSUMED for quantity in values)
    texts = {
        "batch": f"{counted(plan.batch, 'sample')}, {counted(len(plan.tables), 'table')} of {size}, {ids}",
        "symmetric": "every core has a slice of every table and gathers it (GM): "
        f"{format_time(plan.baseline_s)}; best ways: {format_time(plan.symmetric_s)}",
        "bound": f"no mapping of these options is below {format_time(plan.bound_s)}",
        "busy": f"{busy}; the mean core {mean}. A batch waits for {_BUSIEST[plan.busiest]}.",
        "buffers": buffers,
        "modelled": f"without launches; {assumed} of {len(values)} values of the chip are assumed",
    }
    return facts(list(texts.items()))


def chip_plan_record(plan: ChipPlan) -> dict[str, object]:
    """A plan as JSON has it, in SI units."""
    names = ("time_s", "baseline_s", "symmetric_s", "speedup", "bound_s", "busiest", "core_s")
    chip = {"chip": plan.chip.name, "cores": plan.chip.cores, "overrides": sorted(plan.chip.overrides)}
    busy = {f"{name}_s": plan.busy_s[name] for name in ("memory", "cache")}
    tables = [columns_record(_TABLES, placement) for placement in plan.placements]
    values = {name: getattr(plan, name) for name in names}
    return {**chip, **values, **busy, "held_bytes": plan.mapping.held_bytes, "tables": tables}
