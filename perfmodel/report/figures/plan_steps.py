"""Where the time of a plan goes: its steps beside those of plans without a planner, and the bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.passes.steps import StepRow
from perfmodel.plan.pricing.cost import StepCost
from perfmodel.plan.pricing.training import is_communication
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.gpu_columns import Shown, levels, source, time_unit
from perfmodel.report.figures.gpu_loads import pattern, step_colour
from perfmodel.report.figures.words import hover
from perfmodel.report.plan_text import longest
from perfmodel.report.projection_text import band
from perfmodel.report.step_words import step_label
from perfmodel.units import format_bytes, format_fraction, format_time

STEPS = "steps"


def steps(shown: Shown) -> Block:
    """Steps of the plan, stacked, beside those of plans without a planner; in time and in shares."""
    import plotly.graph_objects as go

    answer = shown.answer
    plans: list[tuple[str, StepCost]] = [("this plan", answer.found.cost)]
    plans += [(item.name, item.cost) for item in answer.baselines if item.cost is not None]
    factor, unit = time_unit(max(cost.time_s for _, cost in plans))
    labels = [f"{name}<br>{format_time(cost.time_s)}" for name, cost in plans]
    names = list(shown.step_numbers)
    figure = style.new_figure(barmode="stack", bargap=0.35, height=460, meta={"min_width": 520})
    times, shares = [], []
    for at, name in enumerate(names):
        found = [next((row for row in cost.rows if row.name == name), None) for _, cost in plans]
        times.append([factor * row.time_s if row else 0.0 for row in found])
        shares.append(
            [
                100 * row.time_s / cost.time_s if row else 0.0
                for row, (_, cost) in zip(found, plans, strict=True)
            ]
        )
        figure.add_trace(
            go.Bar(
                x=labels,
                y=times[-1],
                name=step_label(name),
                hovertext=[
                    _step_hover(row, plan, cost) for row, (plan, cost) in zip(found, plans, strict=True)
                ],
                hoverinfo="text",
                marker={"color": step_colour(at), "pattern": pattern(at)},
            )
        )
    figure.update_xaxes(
        type="category", tickangle=0, title={"text": "plans of the same tables on the same GPUs"}
    )
    top = factor * max(cost.time_s for _, cost in plans)
    axes = [
        style.axis(f"time ({unit})", range=[0, 1.08 * top]),
        style.axis("share of the time (%)", range=[0, 100]),
    ]
    lines = levels(shown.bound_level(factor))
    shorter = 1.3 * factor * answer.found.cost.time_s
    closer = style.axis(f"time ({unit})", range=[0, shorter])
    figure.update_layout(yaxis=axes[0], **lines, legend={"traceorder": "normal"})
    switches = (
        Switch(unit, {"y": times}, {"yaxis": axes[0], **lines}),
        *([Switch("closer", {"y": times}, {"yaxis": closer, **lines})] if top > 2 * shorter else []),
        Switch("%", {"y": shares}, {"yaxis": axes[1], "shapes": [], "annotations": []}),
    )
    how = (
        f"Each bar is one {shown.step_words} with one plan; its segments are the steps, the first at the "
        "bottom. A step takes as long as its busiest GPU needs."
    )
    data = tuple(_step_row(row, plan, cost) for plan, cost in plans for row in cost.rows)
    return Block(STEPS, steps_title(shown), how, figure, source(shown), data, switches)


def steps_title(shown: Shown) -> str:
    """What takes the most time, here and with the fastest other plan."""
    cost = shown.answer.found.cost
    fast = min(
        (item for item in shown.answer.baselines if item.cost),
        key=lambda item: item.time_s or 0.0,
        default=None,
    )
    names, each = longest(cost)
    links = sum(row.time_s for row in cost.rows if is_communication(row))
    text = (
        f"{_capital(names)} take{'' if each else 's'} the largest part of the {format_time(cost.time_s)}, "
        f"{format_fraction(cost.limiting.time_s / cost.time_s)}{each}; "
        f"communication {format_fraction(links / cost.time_s)} in all"
    )
    if fast is None or fast.cost is None:
        return f"{text}."
    worst = fast.cost.limiting
    return (
        f"{text}. With all tables {fast.name} it is {step_label(worst.name)}, {format_time(worst.time_s)} of "
        f"{format_time(fast.cost.time_s)}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _step_hover(row: StepRow | None, plan: str, cost: StepCost) -> str:
    if row is None:
        return ""
    share = format_fraction(row.time_s / cost.time_s)
    library = f", {row.library}" if row.collective else ""
    return hover(
        [
            f"<b>{step_label(row.name)}</b>, {plan}",
            f"{format_time(row.time_s)} ({share}), band {band(row.low_s, row.high_s)}",
            f"{format_bytes(row.payload_bytes)} on the busiest GPU{library}",
            f"limit: {row.limit}; evidence: {row.evidence}",
        ]
    )


def _step_row(row: StepRow, plan: str, cost: StepCost) -> Mapping[str, Any]:
    return {
        "plan": plan,
        "step": row.name,
        "time_s": row.time_s,
        "low_s": row.low_s,
        "high_s": row.high_s,
        "share": row.time_s / cost.time_s,
        "bytes": row.payload_bytes,
        "mean_bytes": row.mean_bytes,
        "library": row.library if row.collective else "",
        "limit": row.limit,
        "evidence": str(row.evidence),
    }
