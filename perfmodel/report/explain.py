"""Text of ``perfmodel explain``."""

from __future__ import annotations

from collections import Counter

from perfmodel.passes.equations import Equation
from perfmodel.passes.explanation import Explanation
from perfmodel.passes.terms import Term
from perfmodel.report.projection import band
from perfmodel.report.terminal import facts, paragraph, sides, table
from perfmodel.units import format_fraction, format_time

_INDENT = 4
_SHARED = 3


def explanation_text(found: Explanation) -> str:
    """Title and time, the two equations, the terms with their sources, the working."""
    step = found.step
    first = sides(
        f"{found.title}: {format_time(step.time_s)}",
        f"95 % band {band(step.low_s, step.high_s)}",
    )
    second = f"{format_fraction(step.share)} of the step time, clock {step.clock}, evidence {step.evidence}"
    equation = paragraph(found.equation, indent=_INDENT)
    payload = paragraph(found.payload_equation, indent=_INDENT)
    source = facts([("source", found.reference)], indent=_INDENT)
    computed = "\n".join(["", *where(found.payload)])
    notes = _footnotes(found)
    parts = [
        f"{first}\n{paragraph(second)}",
        "\n".join([f"Time\n{equation}\n{source}", *where(*found.time.equations)]),
        f"Bytes S\n{payload}{computed}",
        _terms(found, notes),
        "Working\n" + "\n".join(paragraph(line, indent=_INDENT) for line in found.working),
    ]
    return "\n\n".join(parts)


def where(*equations: Equation) -> list[str]:
    """Two lines: the functions that compute some equations, and the section of the first."""
    known = [each for each in equations if each.function]
    if not known:
        return []
    names = ", ".join(dict.fromkeys(each.function for each in known))
    return [facts([("function", names), ("section", known[0].section)], indent=_INDENT)]


def _origin(term: Term) -> str:
    return "; ".join(text for text in (term.meaning, term.source) if text)


def _footnotes(found: Explanation) -> list[str]:
    """Origins that many terms share: said once, under the table."""
    counts = Counter(_origin(term) for term in found.terms)
    return [text for text, count in counts.items() if count >= _SHARED]


def _terms(found: Explanation, notes: list[str]) -> str:
    rows = []
    for term in found.terms:
        origin = _origin(term)
        shown = f"[{notes.index(origin) + 1}]" if origin in notes else origin
        rows.append([term.symbol, term.text, term.evidence, shown])
    lines = [table(["term", "value (95 %)", "evidence", "meaning and source"], rows, left=(0, 1, 2, 3))]
    lines += [facts([(f"[{i}]", text)], indent=1) for i, text in enumerate(notes, start=1)]
    return "\n".join(lines)
