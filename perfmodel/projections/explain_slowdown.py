"""The headline of a projection, explained: how the slowdown follows from the times of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perfmodel.model import bands
from perfmodel.passes.equations import Equation, ExplainedNumber
from perfmodel.passes.steps import StepRow, Times, by_cause
from perfmodel.projections.costs import Forward
from perfmodel.projections.grid import costed, totals
from perfmodel.projections.projection import Projection
from perfmodel.units import format_count, format_ratio, format_time

WHOLE = ("slowdown", "total")
"""What can be explained besides single steps: the slowdown, and the total."""


Function = Callable[..., Any]


def explain_slowdown(
    answer: Projection,
    whole: Function = totals,
    parts: Function = costed,
    light: Function = Forward.light_time,
) -> tuple[ExplainedNumber, ...]:
    """Each number of the headline, with its equation and operands.

    whole, parts, light  functions that each explanation names as the source of its number: they computed the
                         sums and their ratio, the parts of the ratio, and the least time
    Limits: one GPU -> t = b, a slowdown of 1
    """
    ratios = _ratio(answer, whole, parts)
    return (*ratios, *_times(answer, whole), *_parts(answer, parts), _light(answer, light), _band(answer))


def _ratio(answer: Projection, whole: Function, parts: Function) -> Iterator[ExplainedNumber]:
    """The slowdown, and the samples per second at that slowdown."""
    t, b = format_time(answer.time_s), format_time(answer.baseline_time_s)
    said = format_ratio(answer.slowdown)
    ratio = Equation.of(whole, "s = t / b                                             [-]")
    yield ExplainedNumber(
        "slowdown s", "slowdown", answer.slowdown, said, ratio, (f"s = {t} / {b} = {said}",)
    )
    rate = answer.totals["throughput_ratio"]
    yield ExplainedNumber(
        "samples per second, over those of one GPU",
        "throughput_ratio",
        rate,
        format_ratio(rate),
        Equation.of(parts, "G b / t = G / s                                       [-]"),
        (f"{format_count(answer.gpus)} × {b} / {t} = {format_ratio(rate)}",),
    )


def _times(answer: Projection, whole: Function) -> Iterator[ExplainedNumber]:
    """The two operands of the ratio."""
    total, base = answer.time_s, answer.baseline_time_s
    each = [f"{format_time(step.time_s)} {step.label}" for step in answer.steps]
    yield ExplainedNumber(
        "time per batch t",
        "time_s",
        total,
        format_time(total),
        Equation.of(whole, "t = sum of the steps, one after the other             [s]"),
        (f"t = {' + '.join(each) or '0 s'} = {format_time(total)}", *_further(answer.steps)),
    )
    work = "step gather-pool"
    if answer.forward.training:
        work = "steps gather-pool, sort-lookups and update-rows"
    yield ExplainedNumber(
        "time on one GPU b",
        "baseline_time_s",
        base,
        format_time(base),
        Equation.of(Forward.local_steps, "b = the same batch, all tables in local memory   [s]"),
        (f"the equation is that of the {work}, with L look-ups of every sample on one GPU",),
    )


def _further(steps: tuple[StepRow, ...]) -> Iterator[str]:
    """Lines that tell the user how to show the equation of each step."""
    if steps:
        longest = max(steps, key=lambda step: step.time_s).name.replace("_", "-")
        yield f"explain with the name of a step shows its equation, e.g. explain {longest}"


def _parts(answer: Projection, parts: Function) -> Iterator[ExplainedNumber]:
    """The parts of the slowdown: latency, which no faster link or memory would shorten, and bytes."""
    floor, b = answer.totals["floor_time_s"], format_time(answer.baseline_time_s)
    latency, data = (answer.totals[f"slowdown_{name}_part"] for name in ("floor", "bytes"))
    yield ExplainedNumber(
        "of it latency",
        "slowdown_floor_part",
        latency,
        format_ratio(latency),
        Equation.of(parts, "t0 / b,  t0 = sum of t (1 - sum of d ln t / d ln rate)   [-]"),
        (
            f"{format_time(floor)} / {b} = {format_ratio(latency)}",
            "what no faster link or memory would shorten; latency that bytes hide does not count",
        ),
    )
    rest = answer.time_s - floor
    yield ExplainedNumber(
        "of it bytes",
        "slowdown_bytes_part",
        data,
        format_ratio(data),
        Equation.of(parts, "(t - t0) / b                                          [-]"),
        (f"{format_time(rest)} / {b} = {format_ratio(data)}",),
    )


def _light(answer: Projection, function: Function) -> ExplainedNumber:
    """The slowdown with the least time that datasheet rates allow."""
    light, least = answer.totals["slowdown_light"], format_time(answer.totals["light_time_s"])
    return ExplainedNumber(
        "speed of light",
        "slowdown_light",
        light,
        format_ratio(light),
        Equation.of(
            Forward.light_time, "t_light / b,  t_light: all bytes at datasheet rates, no latency   [-]"
        ),
        (f"{least} / {format_time(answer.baseline_time_s)} = {format_ratio(light)}",),
    )


def _band(answer: Projection) -> ExplainedNumber:
    """The 95 % band of the slowdown: the equation of its upper end, with sums over the steps' bands."""
    low, high = map(format_ratio, answer.band)
    sums = [
        f"{cause if cause in _IN_FORMULA else f'{cause} (errs apart, counts in C)'} "
        f"{format_time(low_s)} – {format_time(high_s)}"
        for cause, (low_s, _, high_s) in sorted(by_cause(answer.steps).items(), key=_order)
    ]
    base = [format_time(answer.totals[f"baseline_{end}_s"]) for end in ("low", "high")]
    words = f"{', '.join(sums)}{', ' if sums else ''}b {base[0]} – {base[1]}"
    equation = Equation.of(bands.slowdown_band)
    return ExplainedNumber("band", "slowdown_high", answer.band[1], f"{low} – {high}", equation, (words,))


_IN_FORMULA = ("exchanges", "kernels")


def _order(each: tuple[str, Times]) -> tuple[bool, str]:
    return each[0] not in _IN_FORMULA, each[0]
