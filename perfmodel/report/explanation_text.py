"""Text of an explained step: its time, its bytes, the equations with their letters, the sources, the band."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from perfmodel.model.differences import log_span
from perfmodel.model.recording import Evaluation, Number, first, formula_of
from perfmodel.passes.explained import Explanation
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, sides, table
from perfmodel.units import (
    format_amount,
    format_bytes,
    format_fraction,
    format_number,
    format_rate,
    format_time,
)

_FORMATS: dict[str, Callable[[float], str]] = {
    "s": format_time,
    "bytes": format_bytes,
    "bytes/s": format_rate,
}
_FACTOR, _LEAST = 5e-4, 1e-6
_INDENT, _MOST_TABLES = 4, 5


def explanation_text(found: Explanation) -> str:
    """The step and its time, its bytes, the equations of both, the sources, and the band by cause."""
    step, time = found.step, format_time(found.step.time_s)
    first_line = sides(f"{step.label} on {found.where}: {time}", f"95 % band {band(step.low_s, step.high_s)}")
    share = f"{format_fraction(step.share)} of the pass, " if step.share < 1 else ""
    parts = [f"{first_line}\n{paragraph(f'{share}clock {step.clock}, evidence {step.evidence}')}"]
    if found.load:
        parts.append(f"{paragraph(_load_words(found))}\n{_equation_table(found.load)}")
    lines = list(found.notes)
    if abs(found.factor - 1) >= _FACTOR:
        stages = "; ".join(f"{what} {format_time(time_s)}" for what, time_s in found.stages)
        lines.insert(0, f"t × {format_number(found.factor)} = {time}, in these steps: {stages}")
    below = [paragraph(line, indent=_INDENT) for line in lines]
    parts.append("\n".join(["Time t", _equation_table(found.time), *below]))
    if found.sources:
        parts.append(table(["constant", "value", "evidence", "source"], found.sources, left=(0, 1, 2, 3)))
    return "\n\n".join([*parts, _band_text(found)])


def _load_words(found: Explanation) -> str:
    """``Bytes S: 104 MiB on GPU 3, the busiest: c 60 MiB, b 44 MiB; the equation is that of c``."""
    where = "every GPU" if found.rank is None else f"GPU {found.rank}, the busiest"
    words = f"Bytes S: {format_bytes(found.step.payload_bytes)} on {where}"
    if sum(count for _, count, _ in found.tables) <= 1:
        return words
    named = [
        f"{f'{count} tables like ' if count > 1 else ''}{name} {format_bytes(size)}"
        for name, count, size in found.tables[:_MOST_TABLES]
    ]
    more = f" and {len(found.tables) - _MOST_TABLES} more" if len(found.tables) > _MOST_TABLES else ""
    return f"{words}: {', '.join(named)}{more}; the equation is that of {found.tables[0][0]}"


def _equation_table(equations: Iterable[Evaluation]) -> str:
    """A row for each equation, and below it one for each of its letters and one for its source."""
    rows = []
    for each in equations:
        formula, times = formula_of(each.function), f"{each.times:g} × " if each.times != 1 else ""
        rows.append([each.symbol, f"{times}{_text(each.value, formula.unit)}", f"= {formula.text}"])
        for letter, number in each.letters.items():
            meaning, unit = formula.letters[letter]
            rows.append([f"   {letter}", _text(number, unit), meaning])
        rows += [["", "", f"source: {formula.source}"]] if formula.source else []
    return table(["", "value", "formula, or meaning"], rows, left=(0, 1, 2))


def _text(number: Number, unit: str) -> str:
    return _FORMATS.get(unit, format_amount)(first(number))


def _band_text(found: Explanation) -> str:
    """A table of the standard deviations of ln t by cause, and the 95 % band that follows from their sum."""
    step, total = found.step, math.sqrt(sum(log_sd**2 for _, log_sd in found.band))
    rows = [[what, format_fraction(log_sd)] for what, log_sd in found.band if log_sd > _LEAST]
    low, _, high = log_span(step.time_s, total)
    made, ends = band(float(low), float(high)), band(step.low_s, step.high_s)
    line = f"95 %: {format_time(step.time_s)} × e^(±1.96 × {format_fraction(total)}) = {made}"
    if ends != made:
        line += f"; here {ends}: no end is below the speed of light, or that of a smaller message"
    rows.append(["all, in quadrature", format_fraction(total)])
    return f"{table(['standard deviation of ln t', ''], rows, left=(0,))}\n{paragraph(line, indent=_INDENT)}"
