"""What figures say about the paper's claims: which hold, by ``validate``'s own rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perfmodel.units import counted
from perfmodel.validate.questions import find_answer
from perfmodel.validate.verdicts import Finding, Outcome, Verdict, load_claims

_WORDS = {Outcome.HOLDS: "it holds", Outcome.FAILS: "it fails", Outcome.CANNOT_SAY: "cannot be said"}
_COUNTED = (
    (Outcome.HOLDS, ("holds", "hold")),
    (Outcome.CANNOT_SAY, ("cannot be said",) * 2),
    (Outcome.FAILS, ("fails", "fail")),
)


def judge(claims: Iterable[str], findings: Mapping[str, Finding] | None = None) -> list[Verdict]:
    """The verdicts on claims, by their ids. findings  that the figure has already; else they are computed"""
    rows = {claim.id: claim for claim in load_claims()}
    computed = findings or {}
    return [rows[name].verdict(computed.get(name) or find_answer(rows[name].ask)) for name in claims]


def count_verdicts(verdicts: Sequence[Verdict]) -> str:
    """``of 8 claims 1 holds, 4 cannot be said, 3 fail``."""
    counts = [(sum(verdict.verdict is kind for verdict in verdicts), words) for kind, words in _COUNTED]
    parts = [f"{count} {words[count > 1]}" for count, words in counts if count]
    return f"of {counted(len(verdicts), 'claim')} {', '.join(parts)}"


def describe_verdicts(verdicts: Iterable[Verdict]) -> str:
    """A line for each claim: what the paper says, what is found here, and whether it holds."""
    lines = []
    for verdict in verdicts:
        value_words = verdict.got.partition(",")[0].partition(";")[0].rpartition(": ")[2]
        lines.append(f"\nThe paper says: {verdict.claim}. Here: {value_words}; {_WORDS[verdict.verdict]}.")
    return "".join(lines)
