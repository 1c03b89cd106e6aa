"""Text of an explained step: its time, its bytes, the equations with their letters, the sources, the band."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from perfmodel.engine.explained import Explanation
from perfmodel.model.recording import Evaluation, Number, read_formula, to_float
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, sides, table
from perfmodel.units import (
    format_amount,
    format_bytes,
    format_fraction,
    format_rate,
    format_time,
)

_FORMATS: dict[str, Callable[[float], str]] = {
    "s": format_time,
    "bytes": format_bytes,
    "bytes/s": format_rate,
}
_LEAST_LOG, _INDENT, _MOST_TABLES = 1e-6, 4, 5
_LEAST_FACTOR = 5e-4  # relative change of a time that is printed


def explanation_text(explanation: Explanation) -> str:
    """The step and its time, its bytes, the equations of both, the sources, and the band by cause."""
    step, time = explanation.step, format_time(explanation.step.time_s)
    ends = f"95 % band {band(step.low_s, step.high_s)}"
    share = f"{format_fraction(step.share)} of the pass, " if step.share < 1 else ""
    words = paragraph(f"{share}clock {step.clock}, evidence {step.evidence}")
    parts = [f"{sides(f'{step.label} on {explanation.where}: {time}', ends)}\n{words}"]
    if explanation.load:
        several = sum(count for _, count, _ in explanation.tables) > 1
        symbol = (
            f"S ({explanation.tables[0][0]})" if several else "S"
        )  # of one of the tables that add up to S
        equations = [replace(x, symbol=symbol) if x.symbol == "S" else x for x in explanation.load]
        parts.append(f"{paragraph(_load_words(explanation))}\n{_equation_table(equations)}")
    notes = list(explanation.notes)
    if factors := _factor_words(explanation):
        notes.insert(0, factors)
    lines = [paragraph(note, indent=_INDENT) for note in notes]
    parts.append("\n".join(["Time t", _equation_table(explanation.time), *lines]))
    sources = table(["constant", "value", "evidence", "source"], explanation.sources, left=(0, 1, 2, 3))
    return "\n\n".join([*parts, *([sources] if explanation.sources else []), _band_text(explanation)])


def _factor_words(explanation: Explanation) -> str:
    """``730 µs of the equation × 1.005 (between sizes …) × 1.028 (at least …) = 753 µs``; "" if it is t."""
    time_s = to_float(explanation.time[0].value)
    parts = [f"{format_time(time_s)} of the equation"]
    of_equation = "the library's choice near a tie, and times between the sizes of a grid"
    stages = (
        [(of_equation, *explanation.stages[0][1:]), *explanation.stages[1:]] if explanation.stages else []
    )
    for what, after_s in stages:
        if abs(after_s / time_s - 1) >= _LEAST_FACTOR:
            parts.append(f"{after_s / time_s:.4g} ({what})")
            time_s = after_s
    return f"{' × '.join(parts)} = {format_time(explanation.step.time_s)}" if len(parts) > 1 else ""


def _load_words(explanation: Explanation) -> str:
    """``Bytes S: 104 MiB on GPU 3, the busiest: c 60 MiB, b 44 MiB; the equation is that of c``."""
    where = "every GPU" if explanation.rank is None else f"GPU {explanation.rank}, the busiest"
    words = f"Bytes S: {format_bytes(explanation.step.payload_bytes)} on {where}"
    if sum(count for _, count, _ in explanation.tables) <= 1:
        return words
    tables = [
        f"{f'{count} tables like ' if count > 1 else ''}{name} {format_bytes(size)}"
        for name, count, size in explanation.tables
    ]
    more = f" and {len(tables) - _MOST_TABLES} more" if len(tables) > _MOST_TABLES else ""
    named = ", ".join(tables[:_MOST_TABLES])
    return f"{words}: {named}{more}; the equation is that of {explanation.tables[0][0]}"


def _equation_table(equations: Iterable[Evaluation]) -> str:
    """A row for each equation, and below it one for each of its letters and one for its source."""
    rows = []
    for part in equations:
        formula, times = read_formula(part.function), f"{part.times:g} × " if part.times != 1 else ""
        rows.append([part.symbol, f"{times}{_format(part.value, formula.unit)}", f"= {formula.text}"])
        for letter, number in part.letters.items():
            bound = formula.letters[letter]
            rows.append([f"   {letter}", _format(number, bound["unit"]), bound["meaning"]])
        rows += [["", "", f"source: {formula.source}"]] if formula.source else []
    return table(["", "value", "formula, or meaning"], rows, left=(0, 1, 2))


def _format(number: Number, unit: str) -> str:
    return _FORMATS.get(unit, format_amount)(to_float(number))


def _band_text(explanation: Explanation) -> str:
    """A table of the parts of the 95 % band by cause, and the band itself."""
    step = explanation.step
    rows = [
        [what, *(format_fraction(math.expm1(sign * log)) for sign, log in ((-1, below), (1, above)))]
        for what, below, above in explanation.band
        if max(below, above) > _LEAST_LOG
    ]
    ends = (format_fraction(end / step.time_s - 1) for end in (step.low_s, step.high_s))
    rows.append([f"together: {band(step.low_s, step.high_s)}", *ends])
    return table(["95 % band", "below", "above"], rows, left=(0,))
