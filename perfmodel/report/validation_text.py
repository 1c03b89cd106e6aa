"""Text of verdicts: a table for each, with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfmodel.report.terminal import facts, paragraph
from perfmodel.units import format_bytes, format_fraction, format_number, format_ratio
from perfmodel.validate import Kind, Outcome, Verdict


def verdicts_text(verdicts: Sequence[Verdict], *, paper: bool, what: str = "") -> str:
    """A paragraph for each verdict: claim, expected value, band, result, reason; then how many hold or fail.

    paper  whether the last line calls them claims of papers, else bands;  what  another name for them
    """
    parts = [_block(verdict) for verdict in verdicts]
    parts.append(_count(verdicts, what or ("claims of papers" if paper else "bands")))
    return "\n\n".join(parts)


def _block(verdict: Verdict) -> str:
    mark = "! " if verdict.regression else ""
    kind = "" if verdict.kind is Kind.CLAIM else f" ({verdict.kind})"
    said = verdict.kind if verdict.verdict is Outcome.COMPARED else f"{verdict.verdict}{kind}"
    title = f"{mark}{verdict.identifier}: {said}\n" + paragraph(verdict.claim, indent=3)
    expected = "" if verdict.expected == verdict.band else verdict.expected
    rows = [
        ("expected", expected),
        ("band", in_unit_of(verdict.band, verdict.got)),
        ("got", verdict.got),
        ("why", verdict.why),
    ]
    return title + "\n" + facts(rows, indent=3)


_SEVERAL = {Outcome.HOLDS: "hold", Outcome.FAILS: "fail"}


def _count(verdicts: Sequence[Verdict], what: str) -> str:
    claims = [verdict for verdict in verdicts if verdict.kind is Kind.CLAIM]
    what = what.replace("s", "", 1) if len(claims) == 1 else what
    parts = [f"{len(claims)} {what}: {', '.join(_outcomes(claims, _JUDGED))}"]
    for kind in (Kind.COMPARISON, Kind.SELF_CHECK):
        rows = [verdict for verdict in verdicts if verdict.kind is kind]
        if rows:
            words = _outcomes(rows, [each for each in _JUDGED if any(v.verdict is each for v in rows)])
            said = f": {', '.join(words)}" if words else ", not judged"
            parts.append(f"{len(rows)} {kind}{'s' if len(rows) > 1 else ''}{said}")
    return paragraph("; ".join(parts))


_JUDGED = (Outcome.HOLDS, Outcome.FAILS, Outcome.CANNOT_SAY)


def _outcomes(verdicts: Sequence[Verdict], kinds: Sequence[Outcome]) -> list[str]:
    counted = {kind: sum(v.verdict is kind for v in verdicts) for kind in kinds}
    return [f"{count} {kind if count == 1 else _SEVERAL.get(kind, kind)}" for kind, count in counted.items()]


_NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")
_UNIT = re.compile(r"[\d. ]*\d ?(%|×|[KMGT]?i?B\b)?")
_WRITERS = {"%": format_fraction, "×": format_ratio, "B": format_bytes, "": format_number}


def in_unit_of(band: str, got: str) -> str:
    """``band`` with its numbers in the unit of ``got``: ``0.035`` beside ``2.2 %`` becomes ``3.5 %``."""
    found = _UNIT.match(got)
    unit = (found.group(1) or "") if found else ""
    write = _WRITERS["B" if unit.endswith("B") else unit]
    return _NUMBER.sub(lambda number: write(float(number.group())), band)
