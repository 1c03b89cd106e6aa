"""Figures of alternatives to sharding: their times by step, their costs, and which wins where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.passes.steps import STEPS, StepRow
from perfmodel.plan.other_ways.alternatives import best_of, fastest_of
from perfmodel.plan.other_ways.map_cells import MapCell
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.report.alternatives_text import condition, is_global
from perfmodel.report.columns import Column
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.gpu_columns import time_unit
from perfmodel.report.figures.marks import heat_cells, scatter, whiskers
from perfmodel.report.figures.over_gpus import samples_tick
from perfmodel.report.figures.registry import ALTERNATIVES, COSTS, WINNERS
from perfmodel.report.figures.stacked_bars import Heights, stacked_bars
from perfmodel.report.figures.words import hover, safe, sentence, size_words
from perfmodel.report.winner_map_text import legend, map_title
from perfmodel.units import (
    format_count,
    format_number,
    format_per_second,
    format_ratio,
    format_time,
)

_IDS, _LOCAL, _BELOW, _BAGS = (
    "exchange of ids",
    "kernels in HBM",
    "host memory or SSDs",
    "exchange of bags or rows",
)
_PARTS = (_IDS, _LOCAL, _BELOW, _BAGS)
_ROOM = 1.5
"""Free space at the ends of a logarithmic axis, as a factor."""
_LIGHT = ("#63a9d2", "#f0a868", "#74c7a5", "#d9a3c4", "#d9bd6b", "#9fc1cf", "#b9a8e8", "#b5b5b5", "#e88f8f")


def steps(found: Sequence[Alternative]) -> Block:
    """Bars of the time of a batch, one for each alternative, stacked by step, with the 95 % band."""
    shown = [each for each in found if each.answer]
    factor, unit = time_unit(max(each.time_s for each in shown))
    bars = [(each.label, {part: (each, part) for part in _PARTS if _time(each, part)}) for each in shown]
    best = fastest_of(list(found))
    figure, _ = stacked_bars(
        bars,
        (Column(text=lambda cell: f"{safe(cell[0].label)}: {format_time(_time(*cell))}"),),
        lambda part, _: part,
        [Heights(unit, lambda cell: factor * _time(*cell), style.axis(f"time of a batch ({unit})"))],
        [part for part in _PARTS if any(part in parts for _, parts in bars)],
        flat=True,
        height=120 + 46 * len(shown),
        margin={"l": 170, "r": 24, "t": 64, "b": 56},
        meta={"min_width": 640},
    )
    figure.add_trace(_bands(shown, factor))
    title = (
        f"{sentence(best.label)[:-1]} is the fastest that one can buy: {format_time(best.time_s)} per batch."
    )
    what = "All have as many samples in it" if is_global(found) else "Each GPU has as many samples in it"
    how = (
        "Each bar is the time of one batch, and the line is its 95 % band. The numbers below list its steps. "
        f"{what}; which of them takes the fewest GPU-hours is in the next figure."
    )
    data = [row for each in shown for row in _step_rows(each)]
    return ALTERNATIVES.block(title, how, figure, _source(shown), data)


def _time(each: Alternative, part: str) -> float:
    assert each.answer is not None
    return sum(row.time_s for row in each.answer.steps if _part(row) == part)


def _part(row: StepRow) -> str:
    """The part of the bar (a key of ``_PARTS``) to which a step's time is added."""
    if STEPS[row.name].below_hbm:
        return _BELOW
    if not row.collective:
        return _LOCAL
    sent = ("splits", "lengths", "ids", "requests")
    return _IDS if any(word in row.name for word in sent) else _BAGS


def _bands(shown: Sequence[Alternative], factor: float) -> dict[str, Any]:
    """A plotly trace of 95 % bands as whiskers at the ends of bars. factor  units of the axis per second"""
    totals = [each.answer.totals for each in shown if each.answer]
    middle, low, high = ([factor * total[name] for total in totals] for name in ("time_s", "low_s", "high_s"))
    words = [
        hover([f"<b>{safe(each.label)}</b>", f"{format_time(t['low_s'])} – {format_time(t['high_s'])}"])
        for each, t in zip(shown, totals, strict=True)
    ]
    whole = whiskers(middle, low, high, color=style.RULE, thickness=1.5)
    marker = {"color": style.RULE, "size": 1}
    return scatter(middle, [each.label for each in shown], words, "95 % band", marker, error_x=whole)


def _step_rows(each: Alternative) -> list[dict[str, object]]:
    assert each.answer is not None
    return [
        {
            "alternative": each.label,
            "step": row.label,
            "part": _part(row),
            "time_s": row.time_s,
            "evidence": str(row.evidence),
        }
        for row in each.answer.steps
    ]


def costs(found: Sequence[Alternative], currency: str) -> Block:
    """GPU-hours per 10⁹ samples against samples per second of all GPUs, a point for each alternative."""
    shown, best = [each for each in found if each.answer], best_of(list(found))
    rates, hours = [each.samples_per_s for each in shown], [each.gpu_hours for each in shown]
    looks = [{"size": 12, "color": style.colour(at), "symbol": style.symbol(at)} for at in range(len(shown))]
    figure = style.new_figure(
        [
            scatter([rate], [hour], [hover(_cost_words(each, best, currency))], each.label, look)
            for rate, hour, each, look in zip(rates, hours, shown, looks, strict=True)
        ],
        height=430,
        meta={"min_width": 560},
        xaxis=_around(rates, samples_tick, "samples per second, all GPUs"),
        yaxis=_around(hours, "{:g}".format, "GPU-hours of 10⁹ samples"),
    )
    rows = [{**_numbers(each), "needed": condition(each, best)} for each in shown]
    least = format_number(best.gpu_hours)
    title = f"10⁹ samples take at least {least} GPU-hours on what one can buy: {best.label}."
    how = (
        "Points further down need fewer GPU-hours; points further right process more samples per second. "
        "Hover for GPUs, maximum energy, cost (if prices were given), and what would make it take as few "
        "GPU-hours as the best."
    )
    return COSTS.block(title, how, figure, _source(shown), rows)


def _around(values: Sequence[float], form: Callable[[float], str], title: str) -> dict[str, Any]:
    """A logarithmic axis that reaches beyond all values on both sides. form  writes a tick as text"""
    return style.log_axis(min(values) / _ROOM, max(values) * _ROOM, form, title)


def _cost_words(each: Alternative, best: Alternative, currency: str) -> list[str]:
    energy = each.energy_kwh
    return [
        f"<b>{safe(each.label)}</b>: {safe(each.what)}",
        f"{format_count(each.gpus)} GPUs ({format_count(each.gpus_paid)} paid)",
        f"{format_time(each.time_s)} per batch of {format_count(each.samples)}",
        f"{format_per_second(each.samples_per_s, 'samples')}, {format_number(each.gpu_hours)} GPU-hours",
        f"at most {format_number(energy)} kWh" if energy is not None else "",
        f"{format_number(each.cost)} {currency}" if each.cost is not None else "",
        condition(each, best),
    ]


def _numbers(each: Alternative) -> dict[str, object]:
    found = each.to_dict()
    return {key: found[key] for key in _KEPT}


_KEPT = (
    "label", "machine", "what", "gpus", "gpus_paid", "time_s", "low_s", "high_s", "samples_per_s",
    "gpu_hours", "energy_kwh_at_most", "cost",
)  # fmt: skip


def winners(cells: Sequence[MapCell], found: Sequence[Alternative]) -> Block | Missing:
    """A map of the alternative with the fewest GPU-hours, for each batch, table size and kind of ids."""
    if not cells:
        return WINNERS.missing("--no-map left it out.")
    of_all = is_global(found)
    keys = sorted(dict.fromkeys((c.table_bytes, c.ids) for c in cells), key=lambda key: key[0])
    batches = sorted({c.batch for c in cells})
    of = {(c.table_bytes, c.ids, c.batch): c for c in cells}
    ways = list(dict.fromkeys(c.shown for c in cells if c.winner))
    count = len(ways)
    scale = [
        [edge, _LIGHT[at % len(_LIGHT)]] for at in range(count) for edge in (at / count, (at + 1) / count)
    ]
    drawn = heat_cells(
        [format_count(batch) for batch in batches],
        [f"{size_words(size)}, {ids}" if size else ids for size, ids in keys],
        [[of[*key, batch] for batch in batches] for key in keys],
        lambda cell: ways.index(cell.shown) if cell.winner else None,
        lambda cell: cell.shown,
        _cell_words,
        colorscale=scale,
        zmin=-0.5,
        zmax=count - 0.5,
    )
    figure = style.new_figure(
        [drawn],
        height=120 + 34 * len(keys),
        margin={"l": 150, "r": 24, "t": 24, "b": 64},
        showlegend=False,
        meta={"min_width": 640},
        xaxis=style.axis(
            f"samples {'' if of_all else 'of a GPU '}in a batch", type="category", showgrid=False
        ),
        yaxis=style.axis(autorange="reversed", type="category", showgrid=False),
    )
    rows = tuple(
        {"ids": c.ids, "table_bytes": c.table_bytes, "batch": c.batch, "winner": c.shown, **c.times}
        for c in cells
    )
    decided = sum(bool(c.winner) and not c.as_good for c in cells)
    most = max(ways, key=lambda way: sum(c.shown == way for c in cells))
    won = sum(c.shown == most for c in cells)
    title = f"“{most}” takes the fewest GPU-hours in {won} of {len(cells)} cells; one way wins in {decided}."
    how = (
        f"{map_title(of_all)}. Hover for the GPU-hours and the times of all, and their GPUs. {legend(cells)} "
        "The single large memory is not part of the map."
    )
    return WINNERS.block(title, how, figure, "Modelled with the machines' values below; not measured.", rows)


def _cell_words(cell: MapCell) -> str:
    ranked = sorted(cell.cost, key=lambda way: cell.cost[way])
    least = cell.cost[ranked[0]] if ranked else 1.0
    return hover(
        f"{way}: {format_ratio(cell.cost[way] / least)} the GPU-hours, {format_time(cell.times[way])}, "
        f"{format_count(cell.gpus[way])} GPUs"
        for way in ranked
    )


def _source(shown: Sequence[Alternative]) -> str:
    kinds = sorted({str(each.answer.main_evidence) for each in shown if each.answer})
    return f"Projections with shipped or given values; most of each time is {', '.join(kinds)}."
