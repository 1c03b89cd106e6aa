"""Text of verdicts: a table for each, with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfmodel.report.terminal import facts, paragraph
from perfmodel.units import counted, format_bytes, format_fraction, format_number, format_ratio
from perfmodel.validate import Outcome, Verdict


def verdicts_text(verdicts: Sequence[Verdict], what: str) -> str:
    """A paragraph for each verdict: claim, expected value, band, result, reason; then how many hold or fail.

    what  what is judged, in words: "bands", "claims of papers"
    """
    return "\n\n".join([*map(_block, verdicts), _count(verdicts, what)])


def _block(verdict: Verdict) -> str:
    mark = "! " if verdict.regression else ""
    title = f"{mark}{verdict.identifier}: {verdict.verdict}\n" + paragraph(verdict.claim, indent=3)
    rows = [
        ("expected", "" if verdict.expected == verdict.band else verdict.expected),
        ("band", in_unit_of(verdict.band, verdict.got)),
        ("got", verdict.got),
        ("why", verdict.why),
    ]
    return title + "\n" + facts(rows, indent=3)


_WORDS = {
    Outcome.HOLDS: ("holds", "hold"),
    Outcome.FAILS: ("fails", "fail"),
    Outcome.CANNOT_SAY: ("cannot say", "cannot say"),
}
"""Each outcome in words, of one and of several."""


def _count(verdicts: Sequence[Verdict], what: str) -> str:
    counts = {kind: sum(verdict.verdict is kind for verdict in verdicts) for kind in Outcome}
    said = ", ".join(f"{counts[kind]} {words[counts[kind] != 1]}" for kind, words in _WORDS.items())
    judged = len(verdicts) - counts[Outcome.COMPARED]
    what = what.replace("s", "", 1) if judged == 1 else what
    beside = counts[Outcome.COMPARED]
    more = f"; {counted(beside, 'comparison')}, not judged" if beside else ""
    return paragraph(f"{judged} {what}: {said}{more}")


_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
_UNIT = re.compile(r"[\d. ]*\d ?(%|×|[KMGT]?i?B\b)?")
_WRITERS = {"%": format_fraction, "×": format_ratio, "B": format_bytes, "": format_number}


def in_unit_of(band: str, got: str) -> str:
    """``band`` with its numbers in the unit of ``got``: ``0.035`` beside ``2.2 %`` becomes ``3.5 %``."""
    found = _UNIT.match(got)
    unit = (found.group(1) or "") if found else ""
    write = _WRITERS["B" if unit.endswith("B") else unit]
    return _NUMBER.sub(lambda number: write(float(number.group())), band)
