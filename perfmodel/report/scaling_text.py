"""Text and CSV of how a plan scales with the number of GPUs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from perfmodel.engine.steps import label_step
from perfmodel.plan.scaling import HALF, NEARLY_ALL, ScalePoint, Scaling
from perfmodel.plan.searching.found import Found
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import command_lines, paragraph, unbroken
from perfmodel.report.what_if_text import pass_line
from perfmodel.schema.files import cell
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)


def scaling_text(found: Scaling, other_pass: str, one: Callable[[int], str]) -> str:
    """The text of ``perfmodel plan`` for several numbers of GPUs: a table, the knee, a batch to start with.

    other_pass  the command for the other pass (forward, or a training step)
    one         returns the command that plans for a single number of GPUs
    """
    first = found.planned[0].answer
    assert first is not None
    e = first.evaluator
    size = format_bytes(e.memories.table_bytes, binary=False)
    head = f"{counted(len(e.tables), 'table')} of {size} on {e.setting.machine.name}"
    held = f"{format_count(e.batch)} samples on each GPU"
    if found.total is not None:
        held = f"{format_count(found.total)} samples on all GPUs together"
    title = paragraph(f"{head}, {held}")
    words = [pass_line(first.training, other_pass), title, scaling_table(found)]
    refused = [paragraph(f"{counted(each.gpus, 'GPU')}: {each.why}") for each in found.points if each.why]
    words += [*(["\n".join(refused)] if refused else []), sentences(found)]
    last = found.planned[-1].gpus if found.knee is None else found.knee
    words.append(f"One of these plans in full:\n{command_lines(one(last))}")
    return "\n\n".join(words)


def scaling_table(found: Scaling) -> str:
    """A table of the plans: time, samples per second, memory, longest step, for each number of GPUs."""
    batch = Column("batch", lambda each: "" if each.batch is None else format_count(each.batch), goes=2)
    return columns_text((*_COLUMNS, *([batch] if found.total is None else [])), found.points)


def _of_plan(text: Callable[[ScalePoint, Found], str], without: str = "") -> Callable[[ScalePoint], str]:
    """What a point with a plan shows, from the point and what was found; ``without`` a plan"""
    return lambda point: without if point.answer is None else text(point, point.answer.found)


_COLUMNS = (
    Column("GPUs", lambda point: format_count(point.gpus)),
    Column("time", _of_plan(lambda _, at: format_time(at.cost.time_s), "no plan")),
    Column("samples/s", _of_plan(lambda each, at: _rate(each.samples_per_s))),
    Column("per GPU", _of_plan(lambda each, at: _rate(each.samples_per_s / each.gpus)), goes=1),
    Column("added", lambda each: "" if each.added is None else f"{each.added:.2f}".replace("-", "−")),
    Column("memory", _of_plan(lambda _, at: format_bytes(float(at.memory.total_bytes.max()), binary=False))),
    Column("longest step", _of_plan(lambda _, at: unbroken(label_step(at.cost.limiting.name))), left=True),
    Column("", _of_plan(lambda _, at: format_fraction(at.cost.limiting.time_s / at.cost.time_s)), goes=3),
)


def _rate(samples_per_s: float) -> str:
    return format_per_second(samples_per_s, "samples").removesuffix(" samples/s").removesuffix("samples/s")


def sentences(found: Scaling) -> str:
    """The meaning of the columns of the table, the knee, and a batch to start with."""
    each = (
        "Added: samples per second that each GPU added since the row above brings, divided by the "
        "average per GPU in that row. Memory is that of the fullest GPU."
    )
    batch = (
        f"Batch: the least power of two with which this plan reaches {format_fraction(NEARLY_ALL)} of its "
        "highest samples per second with any batch that fits."
    )
    each = " ".join([each, *([batch] if found.total is None else [])])
    words = [knee_words(found), batch_words(found), each]
    return "\n".join(paragraph(text) for text in words if text)


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


def batch_words(found: Scaling) -> str:
    """A batch to start with, on the GPUs of the knee or else on the most GPUs; "" if none was tried."""
    tried = [each for each in found.planned if each.batch is not None]
    if not tried:
        return ""
    point = next((each for each in tried if each.gpus == found.knee), tried[-1])
    assert point.answer is not None and point.batch is not None and point.batch_samples_per_s is not None
    now = point.answer.evaluator.batch
    gain = format_ratio(point.batch_samples_per_s / point.samples_per_s)
    where = f"on {counted(point.gpus, 'GPU')}"
    if point.batch == now:
        return f"Batch: {format_count(now)} samples per GPU are enough {where}."
    return (
        f"Batch: start with {format_count(point.batch)} samples per GPU {where}: {gain} the samples per "
        f"second of {format_count(now)} (--batch {point.batch})."
    )


def scaling_csv(found: Scaling) -> str:
    """CSV with a line for each number of GPUs, in SI units."""
    rows = found.to_dict()["scaling"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([[_plain(value) for value in row.values()] for row in rows])
    return out.getvalue()


def _plain(value: object) -> object:
    return "" if value is None else cell(value) if isinstance(value, str) else value
