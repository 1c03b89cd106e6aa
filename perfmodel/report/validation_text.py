"""Text of verdicts: a table for each, with the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from perfmodel.report.terminal import facts, paragraph
from perfmodel.units import counted, format_bytes, format_fraction, format_number, format_ratio
from perfmodel.validate import Outcome, Verdict

_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
_UNIT = re.compile(r"[\d. ]*\d ?(%|×|[KMGT]?i?B\b)?")
_WRITERS = {"%": format_fraction, "×": format_ratio, "B": format_bytes, "": format_number}
_WORDS = {
    Outcome.HOLDS: ("holds", "hold"),
    Outcome.FAILS: ("fails", "fail"),
    Outcome.CANNOT_SAY: ("cannot say", "cannot say"),
}
"""Each outcome in words, of one and of several."""


def verdicts_text(verdicts: Sequence[Verdict], what: str) -> str:
    """How many hold or fail; then each verdict: claim, expected value, band, result, reason.

    what  what is judged, in words: "bands", "claims of papers"
    """
    counts = Counter(verdict.verdict for verdict in verdicts)
    judged = ", ".join(f"{counts[kind]} {words[counts[kind] != 1]}" for kind, words in _WORDS.items())
    number = len(verdicts) - counts[Outcome.COMPARED]
    head = f"{number} {what.replace('s', '', 1) if number == 1 else what}: {judged}"
    if compared := counts[Outcome.COMPARED]:
        head += f"; {counted(compared, 'comparison')}, not judged"
    parts = [paragraph(head)]
    for verdict in verdicts:
        rows = [
            ("expected", "" if verdict.expected == verdict.band else verdict.expected),
            ("band", in_unit_of(verdict.band, verdict.got)),
            ("got", verdict.got),
            ("why", verdict.why),
        ]
        title = f"{'! ' * verdict.regression}{verdict.identifier}: {verdict.verdict}"
        parts.append("\n".join([title, paragraph(verdict.claim, indent=3), facts(rows, indent=3)]))
    return "\n\n".join(parts)


def in_unit_of(band: str, got: str) -> str:
    """``band`` with its numbers in the unit of ``got``: ``0.035`` beside ``2.2 %`` becomes ``3.5 %``."""
    match = _UNIT.match(got)
    unit = (match.group(1) or "") if match else ""
    write = _WRITERS["B" if unit.endswith("B") else unit]
    return _NUMBER.sub(lambda number: write(float(number.group())), band)
