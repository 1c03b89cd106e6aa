"""Alternatives to sharding: where the time of each goes, what it costs, and which wins where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.passes.steps import STEPS, StepRow
from perfmodel.plan.other_ways.alternatives import best_of
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.plan.other_ways.winner_map import MapCell
from perfmodel.report.alternatives_text import condition, legend
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.over_gpus import samples_tick
from perfmodel.report.figures.words import hover, safe, sentence
from perfmodel.units import (
    format_bytes,
    format_count,
    format_number,
    format_per_second,
    format_ratio,
    format_time,
)

TIMES, COSTS, MAP = "alternatives", "costs", "winners"
_IDS, _LOCAL, _BELOW, _BAGS = (
    "exchange of ids",
    "kernels in HBM",
    "host memory or SSDs",
    "exchange of bags or rows",
)
_PARTS = (_IDS, _LOCAL, _BELOW, _BAGS)
_ROOM = 1.5
"""Free space on a logarithmic axis, as a factor."""
_LIGHT = ("#63a9d2", "#f0a868", "#74c7a5", "#d9a3c4", "#d9bd6b", "#9fc1cf", "#b9a8e8", "#b5b5b5", "#e88f8f")


def steps(found: Sequence[Alternative]) -> Block:
    """Time of a batch of each alternative, step by step, with its band."""
    import plotly.graph_objects as go

    shown = [each for each in found if each.answer]
    unit, name = _unit(max(each.time_s for each in shown))
    figure = style.new_figure(
        barmode="stack", height=120 + 46 * len(shown), margin={"l": 170, "r": 24, "t": 64, "b": 56}
    )
    figure.update_layout(meta={"min_width": 640})
    for at, part in enumerate(_PARTS):
        times = [_time(each, part) for each in shown]
        if not any(times):
            continue
        words = [
            hover([f"<b>{safe(each.label)}</b>", f"{part}: {format_time(time)}"])
            for each, time in zip(shown, times, strict=True)
        ]
        figure.add_trace(
            go.Bar(
                y=[each.label for each in shown],
                x=[time / unit for time in times],
                orientation="h",
                name=part,
                hovertext=words,
                hoverinfo="text",
                marker={"color": style.colour(at)},
            )
        )
    figure.add_trace(_bands(shown, unit))
    figure.update_xaxes(title={"text": f"time of a batch ({name})"})
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    best = best_of(list(found))
    rows = tuple(row for each in shown for row in _step_rows(each))
    title = (
        f"{sentence(best.label)[:-1]} is the fastest that one can buy: {format_time(best.time_s)} per batch."
    )
    how = (
        "Each bar is the time of one batch, and the line is its 95 % band. The numbers below list its steps. "
        "Each GPU processes its own batch, so the shortest bar needs the fewest GPU-hours."
    )
    return Block(TIMES, title, how, figure, _source(shown), rows)


def _time(each: Alternative, part: str) -> float:
    assert each.answer is not None
    return sum(row.time_s for row in each.answer.steps if _part(row) == part)


def _part(row: StepRow) -> str:
    """Which of ``_PARTS`` a step is of."""
    if STEPS[row.name].below_hbm:
        return _BELOW
    if not row.collective:
        return _LOCAL
    sent = ("splits", "lengths", "ids", "requests")
    return _IDS if any(word in row.name for word in sent) else _BAGS


def _unit(longest_s: float) -> tuple[float, str]:
    """In which the longest time is 1 to 1000: its seconds, its name."""
    units = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
    return next((pair for pair in units if longest_s < 1e3 * pair[0]), units[-1])


def _bands(shown: Sequence[Alternative], unit: float) -> object:
    """The band of each time, as a whisker at its end."""
    import plotly.graph_objects as go

    totals = [each.answer.totals for each in shown if each.answer]
    return go.Scatter(
        y=[each.label for each in shown],
        x=[total["time_s"] / unit for total in totals],
        mode="markers",
        name="95 % band",
        marker={"color": style.RULE, "size": 1},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(total["high_s"] - total["time_s"]) / unit for total in totals],
            "arrayminus": [(total["time_s"] - total["low_s"]) / unit for total in totals],
            "color": style.RULE,
            "thickness": 1.5,
        },
        hovertext=[
            hover([f"<b>{safe(each.label)}</b>", f"{format_time(t['low_s'])} – {format_time(t['high_s'])}"])
            for each, t in zip(shown, totals, strict=True)
        ],
        hoverinfo="text",
    )


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
    """GPU-hours of 10⁹ samples against the samples per second of all GPUs, by alternative."""
    import plotly.graph_objects as go

    shown = [each for each in found if each.answer]
    best = best_of(list(found))
    figure = style.new_figure(height=430, meta={"min_width": 560})
    for at, each in enumerate(shown):
        figure.add_trace(
            go.Scatter(
                x=[each.samples_per_s],
                y=[each.gpu_hours],
                mode="markers",
                marker={"size": 12, "color": style.colour(at), "symbol": style.symbol(at)},
                hovertext=[hover(_cost_words(each, best, currency))],
                hoverinfo="text",
                name=each.label,
            )
        )
    rates, hours = [each.samples_per_s for each in shown], [each.gpu_hours for each in shown]
    figure.update_xaxes(_around(rates, samples_tick, "samples per second, all GPUs"))
    figure.update_yaxes(_around(hours, "{:g}".format, "GPU-hours of 10⁹ samples"))
    rows = tuple({**_numbers(each), "needed": condition(each, best)} for each in shown)
    least = format_number(best.gpu_hours)
    title = f"10⁹ samples take at least {least} GPU-hours on what one can buy ({best.label})."
    how = (
        "Points further down need fewer GPU-hours; points further right process more samples per second. "
        "Hover for GPUs, maximum energy, cost (if prices were given), and what would make it as fast as "
        "the best."
    )
    return Block(COSTS, title, how, figure, _source(shown), rows)


def _around(values: Sequence[float], form: Callable[[float], str], title: str) -> dict[str, Any]:
    """A logarithmic axis with room on both sides of the values."""
    return style.log_axis(min(values) / _ROOM, max(values) * _ROOM, form, title)


def _cost_words(each: Alternative, best: Alternative, currency: str) -> list[str]:
    energy = each.energy_kwh
    return [
        f"<b>{safe(each.label)}</b>: {safe(each.what)}",
        f"{format_count(each.gpus)} GPUs, {format_time(each.time_s)} per batch",
        f"{format_per_second(each.samples_per_s, 'samples')}, {format_number(each.gpu_hours)} GPU-hours",
        f"at most {format_number(energy)} kWh" if energy is not None else "",
        f"{format_number(each.cost)} {currency}" if each.cost is not None else "",
        condition(each, best),
    ]


def _numbers(each: Alternative) -> dict[str, object]:
    found = each.to_dict()
    kept = ("label", "machine", "what", "gpus", "time_s", "low_s", "high_s", "samples_per_s", "gpu_hours")
    return {
        **{key: found[key] for key in kept},
        "energy_kwh_at_most": found["energy_kwh_at_most"],
        "cost": found["cost"],
    }


def winners(cells: Sequence[MapCell]) -> Block | Missing:
    """Which alternative takes the fewest GPU-hours at each batch, table size and skew."""
    import plotly.graph_objects as go

    if not cells:
        return Missing(MAP, "--no-map left it out.")
    keys = sorted(dict.fromkeys((c.table_bytes, c.ids) for c in cells), key=lambda key: key[0])
    batches = sorted({c.batch for c in cells})
    of = {(c.table_bytes, c.ids, c.batch): c for c in cells}
    ways = list(dict.fromkeys(c.winner for c in cells if c.winner))
    codes = [[ways.index(w) if (w := of[*key, b].winner) else None for b in batches] for key in keys]
    labels = [f"{format_bytes(s, binary=False)}, {ids}" if s else ids for s, ids in keys]
    count = len(ways)
    scale = [
        [edge, _LIGHT[at % len(_LIGHT)]] for at in range(count) for edge in (at / count, (at + 1) / count)
    ]
    figure = style.new_figure(height=120 + 34 * len(keys), margin={"l": 150, "r": 24, "t": 24, "b": 64})
    figure.add_trace(
        go.Heatmap(
            x=[format_count(b) for b in batches],
            y=labels,
            z=codes,
            zmin=-0.5,
            zmax=count - 0.5,
            colorscale=scale,
            showscale=False,
            text=[[of[*key, b].winner for b in batches] for key in keys],
            texttemplate="%{text}",
            textfont={"color": "#1a1a1a"},
            hovertext=[[_cell_words(of[*key, b]) for b in batches] for key in keys],
            hoverinfo="text",
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(showlegend=False, meta={"min_width": 640})
    figure.update_xaxes(title={"text": "samples of a GPU in a batch"}, type="category", showgrid=False)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    rows = tuple(
        {"ids": c.ids, "table_bytes": c.table_bytes, "batch": c.batch, "winner": c.winner, **c.times}
        for c in cells
    )
    most = max(ways, key=lambda way: sum(c.winner == way for c in cells))
    won = sum(c.winner == most for c in cells)
    title = f"“{most}” takes the fewest GPU-hours in {won} of {len(cells)} cells."
    how = (
        "Each cell names the alternative with the fewest GPU-hours, which is the one with the shortest "
        f"batch: each GPU processes its own. Hover for all times and GPUs. {legend(cells)} The single large "
        "memory is not part of the map."
    )
    return Block(MAP, title, how, figure, "Modelled with the machines' values below; not measured.", rows)


def _cell_words(cell: MapCell) -> str:
    ranked = sorted(cell.times, key=lambda way: cell.times[way])
    least = cell.times[ranked[0]] if ranked else 1.0
    return hover(
        f"{way}: {format_time(cell.times[way])} ({format_ratio(cell.times[way] / least)}), "
        f"{format_count(cell.gpus[way])} GPUs"
        for way in ranked
    )


def _source(shown: Sequence[Alternative]) -> str:
    kinds = sorted({str(each.answer.main_evidence) for each in shown if each.answer})
    return f"Projections with shipped or given values; most of each time is {', '.join(kinds)}."
