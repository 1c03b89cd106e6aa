"""Text of ``perfmodel plan`` with several numbers of GPUs or of copies: plans side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.plan.scaling import Scaling
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import command_lines, paragraph, unbroken
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_time,
)


def scaling_text(scaling: Scaling, command: str) -> str:
    """The text of ``perfmodel plan`` for several plans: a table, and which of them is worth its GPUs.

    command  plans the best of them
    """
    answer = scaling.planned[0].answer
    assert answer is not None
    e = answer.evaluator
    copies = any(point.replicas > 1 for point in scaling.points)
    size = format_bytes(e.memories.table_bytes, binary=False)
    what = "training step" if answer.training else "forward pass"
    held = f"{format_count(e.batch)} samples on each GPU"
    if scaling.total is not None:
        held = f"{format_count(scaling.total)} samples on all GPUs together"
    title = f"{counted(len(e.tables), 'table')} of {size} on {e.setting.machine.name}, {what}, {held}"
    gains = {gpus: f"{gain:.2f}".replace("-", "−") for gpus, gain in scaling.added.items()}
    labels = {point: point.answer.costed.cost.limiting.label for point in scaling.points if point.answer}
    rows = [{**point.to_dict(), "label": labels.get(point)} for point in scaling.points]
    columns = (
        Column("GPUs", _show("gpus", format_count)),
        *([Column("copies", _show("replicas", format_count))] if copies else []),
        Column("time", lambda row: format_time(row["time_s"]) if row["time_s"] else "no plan"),
        *([Column("all-reduce", _show("sync_s", format_time))] if copies else []),
        Column("samples/s", _show("samples_per_s", _format_rate)),
        Column("per GPU", _show("gpu_samples_per_s", _format_rate), goes=1),
        *([] if copies else [Column("added", lambda row: gains.get(row["gpus"], ""))]),
        Column("memory", _show("memory_bytes", lambda size: format_bytes(size, binary=False))),
        Column("longest step", _show("label", unbroken), left=True),
        Column("", _show("longest_share", format_fraction), goes=3),
    )
    failed = [point for point in scaling.points if point.why]
    refused = [paragraph(f"{counted(x.gpus // x.replicas, 'GPU')}: {x.why}") for x in failed]
    parts = [paragraph(title), columns_text(columns, rows), "\n".join(refused)]
    words = copy_words(scaling) if copies else knee_words(scaling)
    memory = "Memory is that of the fullest GPU; the share beside the longest step is of the time."
    parts.append(f"{paragraph(words)}\n{paragraph(memory)}")
    parts.append(f"The plan{' of one copy' * copies} in full:\n{command_lines(command)}")
    return "\n\n".join(part for part in parts if part)


def _show(name: str, write: Callable[[Any], str]) -> Callable[[Mapping[str, object]], str]:
    """A column's text: the value ``name`` of a point, as ``write`` formats it; "" without a plan."""
    return lambda row: "" if row[name] is None else write(row[name])


def _format_rate(samples_per_s: float) -> str:
    return format_per_second(samples_per_s, "samples").removesuffix("samples/s").rstrip()


def copy_words(scaling: Scaling) -> str:
    """A sentence on the fastest number of copies, and what copies are."""
    words = f"Fastest with {counted(scaling.best.replicas, 'copy', 'copies')} of the sharded tables."
    if any(point.answer.training for point in scaling.planned if point.answer):
        words += " The time includes an all-reduce of rows and optimizer state among the copies."
    return f"{words} Each copy has the samples of its own GPUs."


def knee_words(scaling: Scaling) -> str:
    """Sentences on the knee: the number of GPUs beyond which another GPU brings little."""
    rates = scaling.rates
    gpus = list(rates)
    knee = scaling.knee
    if not gpus[1:]:
        return "Knee: this needs plans on at least two numbers of GPUs."
    added = "Added: what each GPU brings that the row above has not, over the average of that row's GPUs."
    if knee is None:
        most = f"No knee up to {format_count(gpus[-1])} GPUs"
        return f"{most}: each added GPU brings at least half of the average before it. {added}"
    after = next(count for count in gpus if count > knee)
    words = f"from there to {format_count(after)}, each added GPU brings less than half of the average."
    if rates[after] < rates[knee]:
        words = f"the plan on {format_count(after)} GPUs is slower in all: {_format_rate(rates[after])}/s."
    return f"Knee at {counted(knee, 'GPU')}: {words} {added}"
