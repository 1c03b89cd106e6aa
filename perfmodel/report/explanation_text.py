"""Text of ``perfmodel explain``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from perfmodel.collectives.time_tables import build_table
from perfmodel.model.bands import quadrature
from perfmodel.model.differences import log_span
from perfmodel.passes.equations import Equation, ExplainedNumber, documented, section_of
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.one_collective import CollectiveExplanation
from perfmodel.passes.terms import Term
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, sides, table
from perfmodel.units import format_fraction, format_rate, format_ratio, format_time

_INDENT = 4
_SHARED = 3


def explanation_text(found: Explanation) -> str:
    """The step and its time, the equations of time and bytes, the terms with their sources, the working."""
    step = found.step
    first = sides(
        f"{found.title}: {format_time(step.time_s)}",
        f"95 % band {band(step.low_s, step.high_s)}",
    )
    second = f"{format_fraction(step.share)} of the step time, clock {step.clock}, evidence {step.evidence}"
    equation = paragraph(found.equation, indent=_INDENT)
    payload = paragraph(found.payload_equation, indent=_INDENT)
    source = facts([("source", documented(found.reference))], indent=_INDENT)
    computed = "\n".join(["", *where(found.payload)])
    notes = _footnotes(found.terms)
    parts = [
        f"{first}\n{paragraph(second)}",
        "\n".join([f"Time\n{equation}\n{source}", *where(*found.time.equations)]),
        f"Bytes S\n{payload}{computed}",
        _terms(found.terms, notes),
        "Working\n" + "\n".join(paragraph(line, indent=_INDENT) for line in found.working),
    ]
    if found.time.doubts:
        parts.append(f"Band\n{_band(found.time.doubts, step.time_s, step.low_s, step.high_s)}")
    return "\n\n".join(parts)


def number_text(each: ExplainedNumber) -> str:
    """A number with its equation, the values in it, and the function that computes it."""
    lines = [sides(each.name, each.text)]
    lines.append(paragraph(each.equation.text, indent=_INDENT))
    lines += [paragraph(line, indent=_INDENT) for line in each.working]
    return "\n".join([*lines, *where(each.equation)])


def where(*equations: Equation) -> list[str]:
    """Lines with the functions that compute the equations, and the section of docs for the first equation.

    Limits: no function is known for them -> none
    """
    known = [each for each in equations if each.function]
    if not known:
        return []
    names = ", ".join(dict.fromkeys(each.function for each in known))
    return [facts([("function", names), ("section", documented(known[0].section))], indent=_INDENT)]


def _origin(term: Term) -> str:
    return documented("; ".join(text for text in (term.meaning, term.source) if text))


def _footnotes(terms: tuple[Term, ...]) -> list[str]:
    """Meanings and sources that three or more terms share: the table shows numbers that refer to them."""
    counts = Counter(_origin(term) for term in terms)
    return [text for text, count in counts.items() if count >= _SHARED]


def _terms(terms: tuple[Term, ...], notes: list[str]) -> str:
    rows = []
    for term in terms:
        origin = _origin(term)
        shown = f"[{notes.index(origin) + 1}]" if origin in notes else origin
        rows.append([term.symbol, term.text, term.evidence, shown])
    lines = [table(["term", "value (95 %)", "evidence", "meaning and source"], rows, left=(0, 1, 2, 3))]
    lines += [facts([(f"[{i}]", text)], indent=1) for i, text in enumerate(notes, start=1)]
    return "\n".join(lines)


def collective_explanation_text(found: CollectiveExplanation, origin: str) -> str:
    """The time of a collective, its equation with the terms, the stages of the computation, the band.

    origin  the calibration in words, as ``projection_text.origin`` writes it
    """
    first = sides(
        f"{found.title}: {format_time(found.time_s)}", f"95 % band {band(found.low_s, found.high_s)}"
    )
    model, group = found.model, found.group
    domains = f"{group.domains} of {group.domain_gpus}" if group.domains > 1 else "one"
    second = f"bus bandwidth {format_rate(found.busbw_bytes_per_s)}, clock {model.clock}, evidence "
    second += f"{found.evidence}, domains: {domains}; it depends most on: {found.limit}"
    equation = "\n".join(each.text for each in found.time.equations if each.text)
    notes = _footnotes(found.time.terms)
    source = facts([("source", documented(found.reference))], indent=_INDENT)
    time = [paragraph(equation, indent=_INDENT), source, *where(*found.time.equations)]
    working = "\n".join(paragraph(line, indent=_INDENT) for line in found.time.working)
    return "\n\n".join(
        [
            f"{first}\n{paragraph(second)}\n{paragraph(f'calibration {origin}')}",
            "\n".join(["Time", *time]),
            _terms(found.time.terms, notes),
            f"Working\n{working}",
            f"How the time came about\n{_stages(found)}",
            f"Band\n{_band(found.doubts, found.time_s, found.low_s, found.high_s)}",
            f"{paragraph('Speed of light: the lower bound at datasheet rates')}\n{_light(found)}",
        ]
    )


def _stages(found: CollectiveExplanation) -> str:
    """A table of the stages that changed the time, with the time after each; the last time is the answer."""
    shown = [stage for stage in found.stages if stage.changed]
    rows = [[each.what, format_time(each.time_s), each.equation.function] for each in shown]
    idle = ", ".join(stage.what for stage in found.stages if not stage.changed)
    section = facts([("section", documented(section_of(build_table)))], indent=_INDENT)
    lines = [table(["stage", "time", "function"], rows, left=(0, 2)), section]
    lines += [paragraph(f"without effect here: {idle}", indent=_INDENT)] if idle else []
    if not found.on_grid:
        words = "between two sizes of the grid, eight to an octave, ln t is linear in ln S"
        lines.append(paragraph(words, indent=_INDENT))
    lines.append(paragraph(f"t = {format_time(found.stages[-1].time_s)}: {found.basis}", indent=_INDENT))
    return "\n".join(lines)


def _band(doubts: Sequence[tuple[str, float]], time_s: float, low_s: float, high_s: float) -> str:
    """A table of the standard deviations of ln t by cause, and the 95 % band that follows from their sum.

    doubts  each cause with its standard deviation;  low_s, high_s  the band that the answer prints [s]
    """
    rows = [[what, format_fraction(log_sd)] for what, log_sd in doubts]
    total = math.sqrt(sum(log_sd**2 for _, log_sd in doubts))
    rows.append(["all, in quadrature", format_fraction(total)])
    low, _, high = log_span(time_s, total)
    made = band(float(low), float(high))
    line = f"95 %: {format_time(time_s)} × e^(±1.96 × {format_fraction(total)}) = {made}"
    line += f" ({documented(section_of(quadrature))})"
    if (ends := band(low_s, high_s)) != made:
        line += f"; here {ends}: no end is below that of a smaller message or the speed of light, and both "
        line += "are read between two sizes of the grid"
    return f"{table(['standard deviation of ln t', ''], rows, left=(0,))}\n{paragraph(line, indent=_INDENT)}"


def _light(found: CollectiveExplanation) -> str:
    ratio = format_ratio(found.time_s / found.speed_of_light_s)
    lines = [paragraph(found.light.text, indent=_INDENT), *where(found.light)]
    line = f"{format_time(found.speed_of_light_s)}, of which the time is {ratio}"
    return "\n".join([*lines, paragraph(line, indent=_INDENT)])
