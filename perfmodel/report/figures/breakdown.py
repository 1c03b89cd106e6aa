"""Figure of where the time of a batch goes: a bar for each table size, with its steps stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.answer import Answer
from perfmodel.engine.steps import StepRow
from perfmodel.report.columns import Column, attributes, columns_record
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing, Switch
from perfmodel.report.figures.registry import BREAKDOWN
from perfmodel.report.figures.stacked_bars import in_shares, in_time, stacked_bars
from perfmodel.report.figures.words import size_words
from perfmodel.report.projection_text import band
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_time


def breakdown(answers: Sequence[Answer]) -> Block | Missing:
    """Bars of the time of a batch at each table size, stacked by step, in time or in shares.

    answers   projections of the same question at increasing table sizes, each with its sharding
    Limits: all tables fit on one GPU -> Missing
    """
    shown = [answer for answer in answers if answer.gpus > 1]
    if not shown:
        return BREAKDOWN.missing("every size here fits on one GPU: ask for larger tables with --table-size.")
    several = len({answer.sharding for answer in shown}) > 1
    labels = [f"{_lines(answer)}{f'<br>{answer.sharding}' if several else ''}" for answer in shown]
    axis = "bytes of all tables, GPUs, and time of a batch"
    figure, switches = stacked(shown, labels, axis, in_shares_first=True)
    how = (
        "Each bar is one batch at one size of the tables; its segments are the steps, the first at the "
        "bottom."
    )
    rows = [row for answer in shown for row in step_rows(answer)]
    return BREAKDOWN.block(_title(shown), how, figure, _source(shown), rows, switches)


def stacked(
    shown: Sequence[Answer], labels: Sequence[str], title: str, *, in_shares_first: bool
) -> tuple[Any, tuple[Switch, ...]]:
    """A figure with a bar for each projection, stacked by step, and buttons for shares and for time.

    labels           a label for each bar;  title  of the axis below the bars
    in_shares_first  whether the figure opens with shares
    """
    time = in_time(max(answer.time_s for answer in shown), lambda cell: cell.step.time_s, "time of a batch")
    views = [in_shares(lambda cell: cell.step.share), time]
    return stacked_bars(
        [(label, cells(answer)) for label, answer in zip(labels, shown, strict=True)],
        COLUMNS,
        lambda _, cell: cell.step.label,
        views if in_shares_first else views[::-1],
        bargap=0.25,
        meta={"min_width": 680},
        xaxis=style.axis(title, type="category", tickangle=0),
    )


@dataclass(frozen=True)
class _Cell:
    """A step, with the projection that it belongs to."""

    answer: Answer
    step: StepRow

    @property
    def time_words(self) -> str:
        """The step's time, share and band in words."""
        step = self.step
        share, ends = format_fraction(step.share), band(step.low_s, step.high_s)
        return f"{format_time(step.time_s)} ({share}), band {ends}"

    @property
    def bytes_words(self) -> str:
        """The step's bytes, library and clock in words."""
        size = format_bytes(self.step.payload_bytes)
        return f"{size} per GPU, {self.step.library}, {self.step.clock} clock"


COLUMNS = (
    Column(
        text=lambda cell: (
            f"{size_words(cell.answer.gpu_count.table_bytes)} on {counted(cell.answer.gpus, 'GPU')}"
        ),
        data={"table_bytes": lambda cell: cell.answer.gpu_count.table_bytes}
        | attributes("gpus", "sharding", of="answer"),
    ),
    Column(
        text=lambda cell: cell.time_words,
        data={"step": lambda cell: cell.step.name}
        | attributes("time_s", "low_s", "high_s", "share", of="step"),
    ),
    Column(
        text=lambda cell: cell.bytes_words,
        data=attributes("payload_bytes", "library", "clock", of="step"),
    ),
    Column(text=lambda cell: f"evidence: {cell.step.evidence}", data=attributes("evidence", of="step")),
)
"""What the hover text and the data of the figure have for each step."""


def cells(answer: Answer) -> dict[str, _Cell]:
    """By name of a step, the step together with its projection."""
    return {step.name: _Cell(answer, step) for step in answer.steps}


def step_rows(answer: Answer) -> list[dict[str, Any]]:
    """For each step of a projection, the values in the figure's data: name, times, share, bytes, evidence."""
    return [columns_record(COLUMNS, cell) for cell in cells(answer).values()]


def _title(shown: Sequence[Answer]) -> str:
    """The title: which step is longest at the largest size, from which size on, and its share of the time."""
    last = shown[-1]
    longest = _longest(last)
    first = last
    for answer in reversed(shown):
        if _longest(answer).name != longest.name:
            break
        first = answer
    step, share = longest.label, format_fraction(longest.share)
    if first is not shown[0]:
        where = f"From {format_count(first.gpus)} GPUs on,"
    elif len(shown) > 1:
        where = "At every size here"
    else:
        where = f"At {size_words(last.gpu_count.table_bytes)}"
    of = f"on {counted(last.gpus, 'GPU')} ({size_words(last.gpu_count.table_bytes)})"
    whose = f"of {last.sharding} " if last.gpus > 1 else ""
    return f"{where} the longest step {whose}is the {step}: {share} of the time {of}."


def _longest(answer: Answer) -> StepRow:
    return max(answer.steps, key=lambda step: step.time_s)


def _lines(answer: Answer) -> str:
    """The label of a bar: table size, GPUs and time."""
    return "<br>".join(
        [size_words(answer.gpu_count.table_bytes), counted(answer.gpus, "GPU"), format_time(answer.time_s)]
    )


def _source(shown: Sequence[Answer]) -> str:
    shares: Mapping[Evidence, float] = shown[-1].evidence_shares()
    words = ", ".join(f"{format_fraction(share)} {kind}" for kind, share in shares.items())
    names = ", ".join(dict.fromkeys(name for answer in shown for name in answer.calibrations))
    return f"Calibration {names}; of the last bar's time: {words}."
