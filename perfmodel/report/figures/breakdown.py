"""Figure of where the time of a batch goes: its steps one after another, with their bands."""

from __future__ import annotations

from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.marks import scatter, whiskers
from perfmodel.report.figures.registry import BREAKDOWN
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.words import hover
from perfmodel.report.projection_text import band
from perfmodel.units import format_bytes, format_fraction, format_time

_DATA = ("time_s", "low_s", "high_s", "share", "payload_bytes", "library", "clock", "evidence")


def draw_breakdown(subject: Subject) -> Block | Missing:
    """The steps as one stacked bar, and below it each step where it begins and ends, with its band."""
    answer = subject.answer
    factor, unit = style.time_unit(answer.time_s)
    names = [f"<b>one batch</b><br>{format_time(answer.time_s)}"]
    traces, start_s, ends = [], 0.0, [(answer.time_s, answer.totals["low_s"], answer.totals["high_s"])]
    for place, step in enumerate(answer.steps):
        time = f"{format_time(step.time_s)}, {format_fraction(step.share)}"
        names.append(f"{step.label}<br>{time}")
        words = [
            step.label,
            f"{time}, band {band(step.low_s, step.high_s)}",
            f"{format_bytes(step.payload_bytes)} per GPU, {step.library}, {step.clock} clock",
            f"evidence: {step.evidence}",
        ]
        traces.append(
            {
                "type": "bar", "orientation": "h", "name": step.label, "y": [names[0], names[-1]],
                "x": [factor * step.time_s] * 2, "base": [factor * start_s] * 2, "hoverinfo": "text",
                "hovertext": hover(words), "marker": {"color": style.colour(place)},
            }
        )  # fmt: skip
        ends.append((start_s + step.time_s, start_s + step.low_s, start_s + step.high_s))
        start_s += step.time_s
    middle, low, high = ([factor * value for value in values] for values in zip(*ends, strict=True))
    bars = whiskers(middle, low, high, thickness=1.5, width=5, color=style.RULE)
    marker = {"color": style.RULE, "size": 4}
    traces.append(scatter(middle, names, "", "95 % band", marker, error_x=bars, hoverinfo="skip"))
    figure = style.new_figure(
        traces,
        barmode="overlay",
        bargap=0.35,
        height=style.FIRST_HEIGHT,
        showlegend=False,
        margin={"l": 24, "r": 16, "t": 16, "b": 56},
        xaxis=style.axis(f"time ({unit})", rangemode="tozero"),
        yaxis=style.axis(autorange="reversed", showgrid=False, tickfont={"size": 12}),
    )
    longest = answer.longest_step
    share, time_words = format_fraction(longest.share), format_time(answer.time_s)
    title = f"Where the time goes: the {longest.label} takes {share} of {time_words}."
    how = "Steps one after another, all of them in the bar on top. Whiskers are 95 % bands."
    shares = ", ".join(
        f"{format_fraction(portion)} {kind}" for kind, portion in answer.evidence_shares().items()
    )
    rows = [
        {"sharding": answer.sharding, "step": step.name, **{name: getattr(step, name) for name in _DATA}}
        for step in answer.steps
    ]
    return BREAKDOWN.block(title, how, figure, f"{subject.source} Evidence: {shares}.", rows)
