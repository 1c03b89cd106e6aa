"""What the card of a comparison says: which is faster, by how much, and because of which step."""

from __future__ import annotations

from perfmodel.project import Projection
from perfmodel.project.comparison import DifferenceVerdict, differences, largest, samples_per_s, whole
from perfmodel.report.figures.compare import Pair
from perfmodel.report.figures.words import interval_end
from perfmodel.report.page.parts import Card
from perfmodel.report.page.question_card import question_card
from perfmodel.report.projection_text import band
from perfmodel.units import (
    counted,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_ALIKE = 1.005
"""Times closer than this are alike in three digits."""


def finding(pair: Pair) -> str:
    """One sentence. Limits: the interval of their ratio holds 1 -> it says so;  the same times -> the same"""
    batch = whole(pair.a, pair.b)
    ratio = batch.ratio[1]
    size = pair.what
    if max(ratio, 1 / ratio) < _ALIKE:
        return f"A and B take the same time for {size}: {format_time(pair.a.time_s)}."
    (fast, _, winner), (slow, _, loser) = sorted(pair.sides, key=lambda side: side[2].time_s)
    faster = format_ratio(max(ratio, 1 / ratio))
    spent = f"{format_time(winner.time_s)} instead of {format_time(loser.time_s)}"
    step, share = largest(differences(pair.a, pair.b), batch.saved_s)
    name = step.label.replace(" a domain)", ")").replace(" domains)", ")")
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
    """The card of both."""
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


def cannot_say(size: str, why: str) -> Card:
    """The card where one side has no answer."""
    return Card(f"Cannot say for {size}: one of the two has no answer.", why)


def _time(answer: Projection) -> str:
    low, high = answer.totals["low_s"], answer.totals["high_s"]
    slow = format_ratio(answer.slowdown)
    words = f"slowdown {slow}" if answer.gpus > 1 else "on one GPU"
    return f"{format_time(answer.time_s)} per batch (band {band(low, high)}, {words})"


def _notes(pair: Pair) -> list[str]:
    """Both names with their evidence; what a batch is where the two have other numbers of GPUs; clocks."""
    notes = []
    for _, label, answer in pair.sides:
        shares = answer.evidence_shares()
        words = ", ".join(f"{format_fraction(share)} {kind}" for kind, share in shares.items())
        names = ", ".join(dict.fromkeys(answer.calibrations))
        machine = answer.setting.machine.name
        parts = [f"machine {machine}"] if machine not in label.split() else []
        parts += [f"calibration {names}"] if names not in label.split() else []
        notes.append(f"{label}: {', '.join(parts + [f'evidence {words}'] * bool(words))}")
    batch = counted(int(pair.a.work.batch[0]), "sample")
    if pair.a.gpus != pair.b.gpus:
        many = [f"{letter} {format_per_second(samples_per_s(p), 'samples')}" for letter, _, p in pair.sides]
        notes.append(f"a batch is {batch} on each GPU; all GPUs together: {', '.join(many)}")
    clocks = [", ".join(map(str, answer.clocks)) for _, _, answer in pair.sides]
    if clocks[0] != clocks[1]:
        notes.append(f"the times have different clocks: A {clocks[0]}, B {clocks[1]}")
    for letter, _, answer in pair.sides:
        notes += [f"{letter}: {note}" for note in answer.notes]
    return notes
