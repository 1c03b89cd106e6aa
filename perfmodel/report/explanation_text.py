"""Text of an explained step: its time, its bytes, the equations with their letters, the sources, the band."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from perfmodel.engine.explained import Explanation
from perfmodel.model.recording import Evaluation, Number, read_formula, to_float
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, sides, table
from perfmodel.units import format_amount, format_bytes, format_fraction, format_rate, format_time

_FORMATS: dict[str, Callable[[float], str]] = {
    "s": format_time,
    "bytes": format_bytes,
    "bytes/s": format_rate,
}
_LEAST_LOG = 1e-6
_INDENT = 4
_MOST_TABLES = 5
_LEAST_FACTOR = 5e-4  # relative change of a time that is printed


def explanation_text(explanation: Explanation) -> str:
    """The step and its time, its bytes, the equations of both, the sources, and the band by cause."""
    step = explanation.step
    title = f"{step.label} on {explanation.where}: {format_time(step.time_s)}"
    share = f"{format_fraction(step.share)} of the pass, " if step.share < 1 else ""
    evidence = paragraph(f"{share}clock {step.clock}, evidence {step.evidence}")
    parts = [f"{sides(title, f'95 % band {band(step.low_s, step.high_s)}')}\n{evidence}"]
    if explanation.load:
        several = sum(count for _, count, _ in explanation.tables) > 1  # S is of one of them
        symbol = f"S ({explanation.tables[0][0]})" if several else "S"
        equations = [replace(x, symbol=symbol) if x.symbol == "S" else x for x in explanation.load]
        parts.append(f"{paragraph(_describe_load(explanation))}\n{_list_equations(equations)}")
    notes = [*_list_stages(explanation), *explanation.notes]
    lines = [paragraph(note, indent=_INDENT) for note in notes]
    parts.append("\n".join(["Time t", _list_equations(explanation.time), *lines]))
    if explanation.sources:
        headers = ["constant", "value", "evidence", "source"]
        parts.append(table(headers, explanation.sources, left=(0, 1, 2, 3)))
    return "\n\n".join([*parts, _list_causes(explanation)])


def _list_stages(explanation: Explanation) -> list[str]:
    """``730 µs of the equation × 1.005 (between sizes …) × 1.028 (at least …) = 753 µs``; [] if alone."""
    time_s = to_float(explanation.time[0].value)
    factors = [f"{format_time(time_s)} of the equation"]
    of_equation = "the library's choice near a tie, and times between the sizes of a grid"
    for place, (cause, after_s) in enumerate(explanation.stages):
        if abs(after_s / time_s - 1) >= _LEAST_FACTOR:
            factors.append(f"{after_s / time_s:.4g} ({cause if place else of_equation})")
            time_s = after_s
    product = f"{' × '.join(factors)} = {format_time(explanation.step.time_s)}"
    return [product] if factors[1:] else []


def _describe_load(explanation: Explanation) -> str:
    """``Bytes S: 104 MiB on GPU 3, the busiest: c 60 MiB, b 44 MiB; the equation is that of c``."""
    where = "every GPU" if explanation.rank is None else f"GPU {explanation.rank}, the busiest"
    total = f"Bytes S: {format_bytes(explanation.step.payload_bytes)} on {where}"
    if sum(count for _, count, _ in explanation.tables) <= 1:
        return total
    tables = [
        f"{f'{count} tables like ' if count > 1 else ''}{name} {format_bytes(size)}"
        for name, count, size in explanation.tables
    ]
    left = len(tables[_MOST_TABLES:])
    named = ", ".join(tables[:_MOST_TABLES]) + (f" and {left} more" if left else "")
    return f"{total}: {named}; the equation is that of {explanation.tables[0][0]}"


def _list_equations(equations: Iterable[Evaluation]) -> str:
    """A row for each equation, and below it one for each of its letters and one for its source."""
    rows = []
    for equation in equations:
        formula = read_formula(equation.function)
        times = f"{equation.times:g} × " if equation.times != 1 else ""
        value = f"{times}{_format(equation.value, formula.unit)}"
        rows.append([equation.symbol, value, f"= {formula.text}"])
        for letter, number in equation.letters.items():
            bound = formula.letters[letter]
            rows.append([f"   {letter}", _format(number, bound["unit"]), bound["meaning"]])
        rows += [["", "", f"source: {formula.source}"]] if formula.source else []
    return table(["", "value", "formula, or meaning"], rows, left=(0, 1, 2))


def _format(number: Number, unit: str) -> str:
    return _FORMATS.get(unit, format_amount)(to_float(number))


def _list_causes(explanation: Explanation) -> str:
    """A table of the parts of the 95 % band by cause, what cuts it off, and the band itself."""
    step = explanation.step
    rows = [
        [cause, *(format_fraction(math.expm1(log)) for log in (-below, above))]
        for cause, below, above in explanation.band
        if math.hypot(below, above) > _LEAST_LOG
    ]
    parts = [below for _, below, _ in explanation.band]  # of a collective they add up
    cut_log = (sum(parts) if step.collective else math.hypot(*parts)) - math.log(step.time_s / step.low_s)
    if cut_log > _LEAST_FACTOR:
        rate = "links" if step.collective else "memory"
        cut = f"+{format_fraction(math.expm1(cut_log))}"
        rows.append([f"cut off: no faster than the machine's rate of its {rate}", cut, ""])
    ends = (format_fraction(end / step.time_s - 1) for end in (step.low_s, step.high_s))
    rows.append([f"together: {band(step.low_s, step.high_s)}", *ends])
    return table(["95 % band", "below", "above"], rows, left=(0,))
