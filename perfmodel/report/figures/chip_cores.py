"""The figure of a chip's cores: how long each is busy with one batch, by way to look up."""

from __future__ import annotations

from perfmodel.chip.options import WAYS
from perfmodel.chip.plan import ChipPlan
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import levels, time_unit
from perfmodel.report.figures.marks import blocks
from perfmodel.report.figures.registry import CORES
from perfmodel.report.figures.stacked_bars import pattern
from perfmodel.report.figures.words import hover, safe
from perfmodel.units import counted, format_fraction, format_time


def cores(plan: ChipPlan) -> Block:
    """Bars of the time that each core is busy, stacked by way; a line at the bound."""
    factor, unit = time_unit(plan.time_s)
    ways = {way: [0.0] * plan.chip.cores for way in WAYS}
    names: dict[tuple[str, int], list[str]] = {}
    for placement in plan.placements:
        way = placement.way.removesuffix("+GM")
        for core in placement.cores:
            ways[way][core] += placement.piece_s
            names.setdefault((way, core), []).append(
                f"{safe(placement.name)} {format_time(placement.piece_s)}"
            )
    traces = []
    for number, (way, times_s) in enumerate(ways.items()):
        words = [
            hover([f"<b>{way}</b>, core {core}", *names.get((way, core), [])])
            for core in range(plan.chip.cores)
        ]
        look = {"color": style.colour(number), "pattern": pattern(number)}
        traces += [blocks(range(plan.chip.cores), [factor * t for t in times_s], words, way, **look)] * any(
            times_s
        )
    lines = levels([(factor * plan.bound_s, f"{format_time(plan.bound_s)}:<br>no mapping<br>is below")])
    axes = {"xaxis": style.axis("core"), "yaxis": style.axis(f"busy ({unit})", rangemode="tozero")}
    figure = style.new_figure(traces, barmode="stack", **lines, **axes)
    idle = format_fraction(1 - float(plan.core_s.mean()) / plan.time_s)
    title = (
        f"The busiest of {counted(plan.chip.cores, 'core')} of {plan.chip.name} works for "
        f"{format_time(plan.busy_s['core'])}; the mean core waits for {idle} of a batch."
    )
    data = [
        {"core": core, **{f"{way}_s": times_s[core] for way, times_s in ways.items()}}
        for core in range(plan.chip.cores)
    ]
    source = f"Modelled: chip {plan.chip.name}, {counted(plan.batch, 'sample')} a batch."
    how = "Each bar is a core; its blocks are the ways in which it looks up its tables."
    return CORES.block(title, how, figure, source, data)
