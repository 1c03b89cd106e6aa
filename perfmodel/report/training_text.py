"""Text of a plan's step with dense layers: its time, exposed communication, source of the layers' time."""

from __future__ import annotations

from perfmodel.engine.training import WholeStep
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, sides
from perfmodel.units import (
    format_bytes,
    format_flops,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)


def whole_text(whole: WholeStep, samples: float) -> str:
    """The time of a step with dense layers, overlapped and in sequence.

    samples  in a batch of all GPUs together
    """
    what = "a training step" if whole.training else "a batch alone"
    step_s, serial_s = whole.step_s, whole.parts.serial_time
    first = f"With dense layers: {format_time(step_s)} {what}, kernels and communication overlapped."
    gain = (
        f"{format_time(serial_s)} one after the other: overlap makes it "
        f"{format_ratio(serial_s / step_s)} as fast."
    )
    share = (
        f"Embedding communication {format_time(whole.communication_s)} "
        f"({format_fraction(whole.communication_s / serial_s)} of all, one after the other), "
        f"{format_time(whole.exposed_s)} of it exposed "
        f"({format_fraction(whole.exposed_s / step_s)} of the overlapped step)."
    )
    return "\n".join(
        [
            sides(first, f"band {band(whole.low_s, whole.high_s)}"),
            sides(paragraph(f"     {gain}"), format_per_second(samples / step_s, "samples")),
            paragraph(f"     {share}"),
            "",
            facts([("Dense", _dense(whole))]),
        ]
    )


def _dense(whole: WholeStep) -> str:
    """The dense layers' time, where it comes from, and whether the band has its error."""
    dense = whole.dense
    text = f"{format_time(dense.time_s)} per batch on each GPU, "
    if dense.name:
        text += (
            f"{dense.name}: products at {format_fraction(dense.share)} of {format_flops(dense.rate)}/s "
            "(datasheet; the share is transferred, from MLPerf's training steps)"
        )
    else:
        which = "forward and backward" if whole.training else "forward"
        text += f"as given: {which}, all of it after the embeddings"
    if whole.parts.dense_reduce:
        reduced = format_bytes(dense.reduced_bytes, binary=False)
        text += f"; their gradients, {reduced}, are all-reduced"
    elif whole.training and not dense.name:
        text += "; gradients are neither reduced nor applied, because their size is unknown"
    if dense.error:
        return f"{text}. The band has an error of {format_fraction(dense.error)} of it."
    return f"{text}. The band leaves its error out: give it, e.g. --dense 3ms±10%."
