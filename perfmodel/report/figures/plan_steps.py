"""Figure of where the time of a plan goes: its steps, and the steps of simple plans."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.engine.steps import STEPS as ALL_STEPS
from perfmodel.engine.steps import StepCost, StepRow
from perfmodel.report.columns import Column, attributes
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block
from perfmodel.report.figures.gpu_columns import Shown, source, time_unit
from perfmodel.report.figures.stacked_bars import Heights, in_shares, part_rows, stacked_bars
from perfmodel.report.plan_text import longest
from perfmodel.report.projection_text import band
from perfmodel.units import format_bytes, format_fraction, format_time


def steps(shown: Shown) -> Block:
    """Bars of the plan's time and of simple plans' times, stacked by step, in time or in shares."""
    answer, cost = shown.answer, shown.answer.found.cost
    plans = {
        "this plan": cost,
        **{item.name: item.cost for item in answer.baselines if item.cost is not None},
    }
    bars = [
        (f"{name}<br>{format_time(each.time_s)}", {row.name: _Cell(name, row, each) for row in each.rows})
        for name, each in plans.items()
    ]
    top = max(each.time_s for each in plans.values())
    factor, unit = time_unit(top)
    shorter = 1.3 * factor * cost.time_s
    whole, closer = (
        Heights(
            label, lambda cell: factor * cell.row.time_s, style.axis(f"time ({unit})", range=[0, high]), {}
        )
        for label, high in ((unit, 1.08 * factor * top), ("closer", shorter))
    )
    shares = in_shares(lambda cell: cell.share, {})
    figure, switches = stacked_bars(
        bars,
        _COLUMNS,
        lambda name, _: ALL_STEPS[name].label,
        [whole, *([closer] if factor * top > 2 * shorter else []), shares],
        list(shown.step_numbers),
        bargap=0.35,
        meta={"min_width": 520},
        xaxis=style.axis("plans of the same tables on the same GPUs", type="category", tickangle=0),
    )
    how = (
        f"Each bar is one {shown.step_words} with one plan; its segments are the steps, the first at the "
        "bottom. A step takes as long as its busiest GPU needs."
    )
    return Block("steps", steps_title(shown), how, figure, source(shown), part_rows(bars, _COLUMNS), switches)


@dataclass(frozen=True)
class _Cell:
    """A step of a plan: the plan's name, the step, and the cost of the whole plan."""

    plan: str
    row: StepRow
    cost: StepCost

    @property
    def share(self) -> float:
        """The step's share of the plan's time [-]."""
        return self.row.time_s / self.cost.time_s

    @property
    def library(self) -> str:
        """The library of an exchange; "" for a kernel."""
        return self.row.library if self.row.collective else ""

    @property
    def time_words(self) -> str:
        """The step's time, share and band in words."""
        ends = band(self.row.low_s, self.row.high_s)
        return f"{format_time(self.row.time_s)} ({format_fraction(self.share)}), band {ends}"


_COLUMNS = (
    Column(text=lambda cell: cell.plan, data=attributes("plan") | {"step": lambda cell: cell.row.name}),
    Column(
        text=lambda cell: cell.time_words,
        data=attributes("time_s", "low_s", "high_s", of="row") | attributes("share"),
    ),
    Column(
        text=lambda cell: (
            f"{format_bytes(cell.row.payload_bytes)} on the busiest GPU"
            + (f", {cell.library}" if cell.library else "")
        ),
        data={"bytes": lambda cell: cell.row.payload_bytes}
        | attributes("mean_bytes", of="row")
        | attributes("library"),
    ),
    Column(
        text=lambda cell: f"limit: {cell.row.limit}; evidence: {cell.row.evidence}",
        data=attributes("limit", "evidence", of="row"),
    ),
)


def steps_title(shown: Shown) -> str:
    """The title: the longest steps of the plan, and the longest step of the fastest simple plan."""
    cost = shown.answer.found.cost
    fast = min(
        (item for item in shown.answer.baselines if item.cost),
        key=lambda item: item.time_s or 0.0,
        default=None,
    )
    names, each = longest(cost)
    links = sum(row.time_s for row in cost.rows if not row.is_kernel)
    text = (
        f"{_capital(names)} take{'' if each else 's'} the largest part of the {format_time(cost.time_s)}, "
        f"{format_fraction(cost.limiting.time_s / cost.time_s)}{each}; "
        f"communication {format_fraction(links / cost.time_s)} in all"
    )
    if fast is None or fast.cost is None:
        return f"{text}."
    worst = fast.cost.limiting
    return (
        f"{text}. With all tables {fast.name} it is {worst.label}, {format_time(worst.time_s)} of "
        f"{format_time(fast.cost.time_s)}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
