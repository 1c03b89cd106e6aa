"""Text and CSV of how a plan scales with the number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.plan.replicas import ReplicatedPlan, find_fastest
from perfmodel.plan.scaling import HALF, ScalePoint, Scaling
from perfmodel.plan.searching.search import Found
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import command_lines, paragraph, unbroken
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)


def scaling_text(found: Scaling, one: Callable[[int], str]) -> str:
    """The text of ``perfmodel plan`` for several numbers of GPUs: a table, and the knee.

    one  returns the command that plans for a single number of GPUs
    """
    first = found.planned[0].answer
    assert first is not None
    e = first.evaluator
    size = format_bytes(e.memories.table_bytes, binary=False)
    what = "training step" if first.training else "forward pass"
    held = f"{format_count(e.batch)} samples on each GPU"
    if found.total is not None:
        held = f"{format_count(found.total)} samples on all GPUs together"
    title = f"{counted(len(e.tables), 'table')} of {size} on {e.setting.machine.name}, {what}, {held}"
    refused = [paragraph(f"{counted(each.gpus, 'GPU')}: {each.why}") for each in found.points if each.why]
    each = (
        "Added: samples per second that each GPU added since the row above brings, divided by the "
        "average per GPU in that row. Memory is that of the fullest GPU."
    )
    last = found.planned[-1].gpus if found.knee is None else found.knee
    words = [paragraph(title), columns_text(_COLUMNS, found.points), "\n".join(refused)]
    words += [f"{paragraph(knee_words(found))}\n{paragraph(each)}"]
    words += [f"One of these plans in full:\n{command_lines(one(last))}"]
    return "\n\n".join(text for text in words if text)


def _of_plan(text: Callable[[ScalePoint, Found], str], without: str = "") -> Callable[[ScalePoint], str]:
    """What a point with a plan shows, from the point and what was found; ``without`` a plan"""
    return lambda point: without if point.answer is None else text(point, point.answer.found)


_COLUMNS = (
    Column("GPUs", lambda point: format_count(point.gpus)),
    Column("time", _of_plan(lambda _, at: format_time(at.cost.time_s), "no plan")),
    Column("samples/s", _of_plan(lambda each, at: _rate(each.samples_per_s))),
    Column("per GPU", _of_plan(lambda each, at: _rate(each.samples_per_s / each.gpus)), goes=1),
    Column("added", lambda each: "" if each.added is None else f"{each.added:.2f}".replace("-", "−")),
    Column("memory", _of_plan(lambda _, at: _memory(at))),
    Column("longest step", _of_plan(lambda _, at: unbroken(at.cost.limiting.label)), left=True),
    Column("", _of_plan(lambda _, at: format_fraction(at.cost.limiting.time_s / at.cost.time_s)), goes=3),
)


def _rate(samples_per_s: float) -> str:
    return format_per_second(samples_per_s, "samples").removesuffix(" samples/s").removesuffix("samples/s")


def knee_words(found: Scaling) -> str:
    """A sentence on the knee: the number of GPUs beyond which another GPU brings little."""
    numbers = [point.gpus for point in found.planned]
    if len(numbers) < 2 and found.stopped:
        return "Knee: not known, because the search was stopped before it had plans on two numbers of GPUs."
    if len(numbers) < 2:
        return "Knee: this needs at least two numbers of GPUs on which the tables fit."
    half = "half" if HALF == 1 / 2 else format_fraction(HALF)
    if found.knee is None:
        most = format_count(numbers[-1])
        return f"No knee up to {most} GPUs: each added GPU brings at least {half} of the average before it."
    at = next(point for point in found.planned if point.gpus == found.knee)
    after = next(point for point in found.planned if point.gpus > found.knee)
    words = f"Knee at {counted(at.gpus, 'GPU')}: "
    if after.samples_per_s < at.samples_per_s:
        words += (
            f"the plan on {format_count(after.gpus)} GPUs is slower in all, "
            f"{_rate(after.samples_per_s)} samples/s instead of {_rate(at.samples_per_s)}."
        )
    else:
        words += (
            f"from there to {format_count(after.gpus)}, each added GPU brings "
            f"less than {half} of the average of the {format_count(at.gpus)}."
        )
    best = max(found.planned, key=lambda point: point.samples_per_s)
    if best.gpus > at.gpus and best.samples_per_s > at.samples_per_s:
        more = format_ratio(best.samples_per_s / at.samples_per_s)
        least = format_count(at.gpus)
        words += f" {format_count(best.gpus)} GPUs have {more} the samples per second of {least}."
    return words


def replicas_text(plans: Sequence[ReplicatedPlan], gpus: int, one: str) -> str:
    """The text of ``perfmodel plan --replicas``: a table, and the fastest number of copies.

    gpus  of all copies together;  one  the command that plans for one copy
    """
    best = find_fastest(plans)
    assert best.answer is not None
    what = "training step" if best.answer.training else "forward pass"
    columns = (
        Column("copies", lambda plan: format_count(plan.replicas)),
        Column("GPUs of one", lambda plan: format_count(gpus // plan.replicas)),
        Column("time", lambda plan: format_time(plan.time_s) if plan.answer else "no plan"),
        Column("pass", lambda plan: format_time(plan.answer.found.cost.time_s) if plan.answer else ""),
        Column("all-reduce", lambda plan: format_time(plan.sync_s) if plan.answer else ""),
        Column("samples/s", lambda plan: _rate(plan.to_dict()["samples_per_s"]) if plan.answer else ""),
        Column("memory", lambda plan: _memory(plan.answer.found) if plan.answer else ""),
    )
    sync = " Then an all-reduce of rows and optimizer state among the copies." if best.answer.training else ""
    words = f"Fastest with {counted(best.replicas, 'copy', 'copies')} of the sharded tables."
    why = [paragraph(f"{counted(plan.replicas, 'copy', 'copies')}: {plan.why}") for plan in plans if plan.why]
    return "\n\n".join(
        [
            paragraph(f"{counted(gpus, 'GPU')}, {what}: each copy has the samples of its own GPUs.{sync}"),
            columns_text(columns, plans),
            *why,
            f"{paragraph(words)}\nThe plan of one copy:\n{command_lines(one)}",
        ]
    )


def _memory(found: Found) -> str:
    return format_bytes(float(found.memory.total_bytes.max()), binary=False)
