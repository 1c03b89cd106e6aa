"""Text of a plan's step with dense layers: its time, exposed communication, and assumptions."""

from __future__ import annotations

from perfmodel.model.dense import DenseModel
from perfmodel.passes.dense import Dense, DenseTime
from perfmodel.passes.training import WholeStep
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, sides, table
from perfmodel.units import (
    format_bytes,
    format_flops,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)


def whole_text(whole: WholeStep, samples: float) -> str:
    """The time of a step with dense layers, overlapped and in sequence, and a table of its tasks.

    samples  in a batch of all GPUs together
    """
    return "\n".join([_headline(whole, samples), "", _tasks(whole), "", _dense(whole)])


def _headline(whole: WholeStep, samples: float) -> str:
    found = whole.found
    what = "a training step" if whole.training else "a batch alone"
    first = f"With dense layers: {format_time(found.step_s)} {what}, kernels and communication overlapped."
    gain = (
        f"{format_time(found.serial_s)} one after the other: overlap makes it "
        f"{format_ratio(found.serial_s / found.step_s)} as fast."
    )
    share = (
        f"Embedding communication {format_time(whole.communication_s)} "
        f"({format_fraction(whole.communication_s / found.serial_s)} of all, one after the other), "
        f"{format_time(whole.exposed_s)} of it exposed "
        f"({format_fraction(whole.exposed_s / found.step_s)} of the overlapped step)."
    )
    per_s = format_per_second(samples / found.step_s, "samples")
    return "\n".join(
        [
            sides(first, f"band {band(whole.low_s, whole.high_s)}"),
            sides(paragraph(f"     {gain}"), per_s),
            paragraph(f"     {share}"),
        ]
    )


def _tasks(whole: WholeStep) -> str:
    """A table of the tasks that take time; its last column adds up to the time of the step."""
    tasks, found = whole.tasks(), whole.found
    rows = [
        [
            str(task["task"]),
            str(task["stream"]),
            str(task["device"]),
            format_time(task["time_s"]),
            "" if task["exposed_s"] is None else format_time(task["exposed_s"]),
            format_time(task["path_s"]) if task["path_s"] > 0 else "-",
        ]
        for task in tasks
    ]
    sums = (found.serial_s, found.exposed_s, found.step_s)
    rows.append(["", "", "", *(format_time(value) for value in sums)])
    headers = ["task", "stream", "on", "time", "exposed", "critical path"]
    return table(headers, rows, left=(0, 1, 2), drop=(2, 1))


def _dense(whole: WholeStep) -> str:
    """The lines on dense layers: the source of their time, and the assumptions."""
    text = f"{format_time(whole.dense_s)} per batch on each GPU, {_origin(whole.dense, whole)}"
    if whole.reduced_bytes:
        text += f"; their gradients, {format_bytes(whole.reduced_bytes, binary=False)}, are all-reduced"
    return facts([("Dense", text + _error(whole.dense))])


def _error(dense: Dense | DenseTime) -> str:
    """A sentence: whether the band includes the error of the dense layers' time."""
    if not dense.error:
        return ". The band leaves its error out: give it, e.g. --dense 3ms±10%."
    return f". The band has an error of {format_fraction(dense.error)} of it."


def _origin(dense: Dense | DenseTime, whole: WholeStep) -> str:
    """Where the time of the dense layers comes from: it was typed, or follows from their operations."""
    if isinstance(dense, DenseTime):
        if not whole.training:
            return "as given: forward, all of it after the embeddings"
        less = "gradients are neither reduced nor applied, because their size is unknown"
        return f"as given: forward and backward, all of it after the embeddings; {less}"
    assert whole.forward_flops is not None
    backward = ", twice that backward" if whole.training else ""
    what = f"{dense.name}: " if dense.name else ""
    after = "" if dense.name else ", all after the embeddings"
    known = isinstance(dense.model, DenseModel)
    return (
        f"{what}{format_flops(whole.forward_flops)} per sample forward{backward}{after}, "
        f"{'products ' if known else ''}at {format_fraction(dense.efficiency)} of "
        f"{format_flops(dense.flops_per_s)}/s (datasheet; the share is {dense.evidence}, "
        "from MLPerf's training steps)"
    )
