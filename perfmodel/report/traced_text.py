"""Text of ``perfmodel compare``: verdict, steps, reasons, and parts that were not compared."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.passes.steps import step_label
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, sides, table
from perfmodel.units import counted, format_bytes, format_fraction, format_ratio, format_time
from perfmodel.validate.traced.causes import Cause, Reason
from perfmodel.validate.traced.results import CALIBRATED, FAR, STEPS_ALONE, ComparedRun, ComparedStep

_HEADERS = ["step", "planned", "sent", "predicted", "95 % band", "measured", "ratio", "waits", "in band"]
_MOST_LEFT, _MOST_REASONS = 6, 5


def traced_text(run: ComparedRun, calibration_file: str | None = None) -> str:
    """The text of ``perfmodel compare`` for traces: verdict, steps, reasons, parts that were not compared."""
    parts = [
        headline(run),
        _ranks(run),
        _steps(run),
        _whole(run),
        why(run),
        "\n".join(map(paragraph, left_out(run))),
    ]
    names = ", ".join(run.run.plan.evaluator.setting.links.calibrations)
    machine = run.run.plan.evaluator.setting.machine.name
    where = f" · {calibration_file}" if calibration_file else ""
    parts.append(paragraph(f"Machine {machine} · calibration {names}{where}"))
    return "\n\n".join(part for part in parts if part)


def headline(run: ComparedRun) -> str:
    """Measured against predicted time, and whether it is in the band."""
    ratio = format_ratio(run.measured_s / run.predicted.time_s)
    return sides(headline_words(run), f"{ratio}, band {band(run.predicted.low_s, run.predicted.high_s)}")


def headline_words(run: ComparedRun) -> str:
    """A sentence: the measured and the predicted time, and whether it is inside the band."""
    what = (
        "the pass" if run.run.plan.evaluator.model.training is None else "the embeddings of a training step"
    )
    words = {STEPS_ALONE: ", its steps' own times", CALIBRATED: ", its calibrated steps alone"}
    judged = words.get(run.judged, "")
    measured, predicted = format_time(run.measured_s), format_time(run.predicted.time_s)
    verdict = "inside its band" if run.inside else "outside its band"
    if run.inside and run.far:
        alone = len(run.far) == 1
        steps = f"{run.far[0].label} takes" if alone else f"{len(run.far)} steps take"
        verdict += f", but {steps} more than {format_ratio(FAR)} {'its' if alone else 'their'} prediction"
    elif run.inside and not run.agrees:
        verdict = "cannot tell, the band is too wide"
    source = " by a calibration made from these very traces" if run.of_these else ""
    return f"{measured} for {what}{judged}, predicted {predicted}{source}: {verdict}."


def outside_line(run: ComparedRun) -> str:
    """The error message (exit code 6): the pass is outside its band, or steps are far from predictions."""
    if run.inside:
        named = ", ".join(
            f"{line.label} ({format_ratio(line.own_s / line.predicted.time_s)})" for line in run.far
        )
        return f"more than {format_ratio(FAR)} the prediction, and above it in nine of ten repeats: {named}."
    return (
        f"{format_time(run.measured_s)} is outside the band "
        f"{band(run.predicted.low_s, run.predicted.high_s)} of the prediction."
    )


def _ranks(run: ComparedRun) -> str:
    trace = run.run.trace
    ranks = f"{len(trace.ranks)} of {counted(trace.world_size, 'rank')}"
    steps = counted(len(trace.steps), "step") + " of the profiler; times are medians over them"
    if trace.skipped:
        steps += f"; the first {trace.skipped if trace.skipped > 1 else 'one'} left out as warm-up"
    rows = [("Traces", f"{ranks}; {steps}")]
    if not trace.complete:
        rows.append(("", "ranks are missing: times include the waits for them"))
    return facts(rows)


def _steps(run: ComparedRun) -> str:
    rows = [_row(line) for line in run.lines]
    sums = [("sum of the steps", run.of_steps, run.steps_s)]
    if run.judged == CALIBRATED:
        sums.append(("of those calibrated", run.predicted, run.calibrated_s))
    for name, known, measured in sums:
        rows.append(
            [name, "", "", format_time(known.time_s), band(known.low_s, known.high_s), format_time(measured),
             format_ratio(measured / known.time_s), "", _in_band(known.holds(measured))]
        )  # fmt: skip
    return (
        table(_HEADERS, rows, left=(0, 8), drop=(1, 4, 6))
        + "\n"
        + paragraph(
            "planned, sent: bytes of the busiest rank. measured: after the last rank arrived; of kernels the "
            "slowest rank. waits: for the last rank, the mean of all ranks"
            + (f". far: in the band, but more than {format_ratio(FAR)} the prediction" if run.far else "")
        )
    )


def _row(line: ComparedStep) -> list[str]:
    sizes = ["", ""]
    if line.collective:
        sizes = [format_bytes(line.planned_bytes), format_bytes(line.seen_bytes)]
    return [
        line.label, *sizes, format_time(line.predicted.time_s),
        band(line.predicted.low_s, line.predicted.high_s), format_time(line.own_s),
        format_ratio(line.own_s / line.predicted.time_s) if line.predicted.time_s > 0 else "",
        format_time(line.wait_s) if line.collective else "",
        "far" if line.far and line.predicted.holds(line.own_s) else _in_band(line.inside),
    ]  # fmt: skip


def _in_band(inside: bool) -> str:
    return "yes" if inside else "no !"


def _whole(run: ComparedRun) -> str:
    """The line on the parts of a pass's measured time: steps, waits, and time outside all steps."""
    whole = max(run.whole_s, 1e-12)
    rows = [
        ("Whole", f"{format_time(run.whole_s)} on the mean rank: forward and backward pass of the tables"),
        (
            "steps",
            f"{format_time(run.own_s)} in the steps of the mean rank (the sum above is of the slowest)",
        ),
        ("waiting", f"{format_time(run.wait_s)} for other ranks ({format_fraction(run.wait_s / whole)})"),
        ("gaps", f"{format_time(run.idle_s)} in which nothing runs ({format_fraction(run.idle_s / whole)})"),
    ]
    if run.other_s > 0:
        rows.append(
            (
                "other",
                f"{format_time(run.other_s)} in kernels and collectives that are not in the plan and run "
                "between its steps",
            )
        )
    return facts(rows)


def why(run: ComparedRun) -> str:
    """The likeliest reasons why the pass, and each step outside its band, differs from the prediction."""
    shown = enumerate(run.reasons[:_MOST_REASONS], 1)
    rows = [(f"{at}.", _reason(each)) for at, each in shown]
    parts = []
    if rows:
        parts.append(
            paragraph("Why it is outside, the largest contribution first") + "\n" + facts(rows, indent=1)
        )
    besides = findings_besides(run)
    if besides:
        lines = [(" ", _reason(each)) for each in besides]
        parts.append(paragraph("Also seen in the traces") + "\n" + facts(lines, indent=0))
    told = [line for line in run.outside if line.reasons and line.reasons[0].cause is not Cause.CURVE]
    if told:
        lines = [(line.label, line.reasons[0].words) for line in told]
        parts.append(paragraph("Steps outside their band") + "\n" + facts(lines, indent=1))
    bare = [line for line in run.outside if line.reasons and line.reasons[0].cause is Cause.CURVE]
    if bare:
        named = ", ".join(f"{line.label} {format_ratio(line.own_s / line.predicted.time_s)}" for line in bare)
        parts.append(
            paragraph(f"Outside, and the traces show no reason, so the prediction is wrong: {named}")
            + "\n"
            + paragraph(
                "To predict from these traces: perfmodel import TRACES --machine NAME --out mine.json"
            )
        )
    return "\n\n".join(parts)


def findings_besides(run: ComparedRun) -> list[Reason]:
    """Findings in the traces that are not among the reasons for the verdict."""
    return [each for each in run.findings if each not in run.reasons]


def _reason(reason: Reason) -> str:
    """A reason in words, with how much time it explains, if that is known: ``… [at most 12 µs]``."""
    if not reason.explains_s:
        return reason.words
    sign = "at most " * reason.at_most + "−" * (reason.explains_s < 0)
    return f"{reason.words} [{sign}{format_time(abs(reason.explains_s))}]"


def left_out(run: ComparedRun) -> Iterator[str]:
    """Lines that list planned steps without a trace, and traced collectives and kernels outside the plan."""
    if run.missing:
        names = ", ".join(f"{step_label(row.name)} ({format_time(row.time_s)})" for row in run.missing)
        yield (f"Not in the traces, and not compared: {names}")
    runs = max(len(run.run.trace.steps), 1)
    for what, count, time in run.run.left_over[:_MOST_LEFT]:
        size, name = format_bytes(what.payload_bytes), what.collective.replace("_", "-")
        kind = f"{name} of {size} over {what.ranks} ranks"
        each = f"{count / runs:.3g} in a step, {format_time(time / runs)}"
        yield (f"Not in the plan: {kind} ({each}): {what.why}")
    if len(run.run.left_over) > _MOST_LEFT:
        yield (f"and {len(run.run.left_over) - _MOST_LEFT} more kinds that are not in the plan (--json)")
    others = {name: time for name, time in run.run.other_kernels.items() if time > 0}
    if others:
        named = ", ".join(f"{step_label(name)} {format_time(time)}" for name, time in others.items())
        yield (f"Kernels that belong to no step of the plan, on the mean rank: {named}")
    if run.run.trace.unaligned:
        yield (f"{run.run.trace.unaligned} collectives are left out, because their ranks do not match")
