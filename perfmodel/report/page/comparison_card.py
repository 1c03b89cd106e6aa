"""The headline of a comparison: which side is faster, by how much, and a table of the steps."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.projections import Projection
from perfmodel.projections.comparison import (
    Difference,
    DifferenceVerdict,
    differences,
    largest,
    whole,
)
from perfmodel.report.figures.compare import Pair
from perfmodel.report.figures.words import interval_end
from perfmodel.report.page.parts import Card
from perfmodel.report.page.question_card import question_card
from perfmodel.report.projection_text import band
from perfmodel.units import counted, format_fraction, format_per_second, format_ratio, format_time

_ALIKE = 1.005
"""Times with a smaller ratio are equal in three digits."""


def finding(pair: Pair) -> str:
    """A sentence: which side is faster and by how much, or that the band of the ratio leaves it open."""
    batch = whole(pair.a, pair.b)
    ratio = batch.ratio[1]
    size = pair.size
    if max(ratio, 1 / ratio) < _ALIKE:
        return f"A and B take the same time for {size}: {format_time(pair.a.time_s)}."
    (fast, _, winner), (slow, _, loser) = sorted(pair.sides, key=lambda side: side[2].time_s)
    faster = format_ratio(max(ratio, 1 / ratio))
    spent = f"{format_time(winner.time_s)} instead of {format_time(loser.time_s)}"
    step, share = largest(differences(pair.a, pair.b), batch.saved_s)
    name = step.label
    what = "all of it" if share >= 1 else f"{format_fraction(share)} of it"
    if batch.verdict is DifferenceVerdict.CANNOT_SAY:
        parts = " and ".join(f"{letter} {format_time(answer.time_s)}" for letter, _, answer in pair.sides)
        what = what.replace(" it", " the difference")
        return (
            f"Cannot say which is faster for {size}: {parts} ({faster}), and the interval of their ratio "
            f"includes 1; the {name} accounts for {what}."
        )
    return f"{fast} is {faster} as fast as {slow} for {size}: {spent}; the {name} accounts for {what}."


def comparison_card(pair: Pair) -> Card:
    """The headline of a comparison: finding, both times, their ratio with its band, GPUs, doubts, notes."""
    batch = whole(pair.a, pair.b)
    low, middle, high = batch.ratio
    times = "; ".join(f"{letter} {_time(answer)}" for letter, _, answer in pair.sides)
    sure = (
        f"A's time divided by B's: {format_ratio(middle)}, 95 % interval {interval_end(low)} – "
        f"{interval_end(high)} with independent errors"
    )
    alerts = [f"{letter}: {text}" for letter, _, p in pair.sides if (text := question_card(p).alert)]
    return Card(
        finding(pair),
        times,
        sure,
        gpus="; ".join(f"{letter} {answer.gpu_count}" for letter, _, answer in pair.sides),
        alert="\n".join(alerts),
        notes=_notes(pair),
    )


def step_table(pair: Pair) -> tuple[Sequence[str], ...]:
    """Head and rows of a table: for each step the times of A and B, A - B with its band, and the faster.

    The last row is for the whole batch.
    """
    head = ("step", "A", "B", "A − B", "95 % interval", "verdict")
    return (head, *map(_row, (*differences(pair.a, pair.b), whole(pair.a, pair.b))))


def _row(one: Difference) -> tuple[str, ...]:
    low, middle, high = one.band
    times = (format_time(span[1]) if span[1] else "–" for span in (one.a, one.b))
    if one.verdict is DifferenceVerdict.SAME:
        return (one.label, *times, "", "", str(one.verdict))
    return (one.label, *times, _signed(middle), f"{_signed(low)} to {_signed(high)}", str(one.verdict))


def _signed(value_s: float) -> str:
    return ("−" if value_s < 0 else "") + format_time(abs(value_s))


def _time(answer: Projection) -> str:
    low, high = answer.totals["low_s"], answer.totals["high_s"]
    slow = format_ratio(answer.slowdown)
    words = f"slowdown {slow}" if answer.gpus > 1 else "on one GPU"
    return f"{format_time(answer.time_s)} per batch (band {band(low, high)}, {words})"


def _notes(pair: Pair) -> list[str]:
    """Notes on both sides: names and evidence, clocks, and samples per second if they differ in GPUs."""
    notes = []
    for _, label, answer in pair.sides:
        shares = answer.evidence_shares().items()
        words = ", ".join(f"{format_fraction(share)} {kind}" for kind, share in shares)
        notes.append(f"{label}: evidence {words or answer.evidence}")
    batch = counted(int(pair.a.work.batch[0]), "sample")
    if pair.a.gpus != pair.b.gpus:
        many = [f"{letter} {format_per_second(p.samples_per_s, 'samples')}" for letter, _, p in pair.sides]
        notes.append(f"a batch is {batch} on each GPU; all GPUs together: {', '.join(many)}")
    clocks = [", ".join(map(str, answer.clocks)) for _, _, answer in pair.sides]
    if clocks[0] != clocks[1]:
        notes.append(f"the times have different clocks: A {clocks[0]}, B {clocks[1]}")
    for letter, _, answer in pair.sides:
        notes += [f"{letter}: {note}" for note in answer.every_note]
    return notes
