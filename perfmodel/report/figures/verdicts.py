"""What figures say about the paper's claims: which hold, by ``validate``'s own rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfmodel.units import counted
from perfmodel.validate.questions import answer
from perfmodel.validate.verdicts import Finding, Outcome, Verdict, load_claims

_WORDS = {
    Outcome.HOLDS: "it holds",
    Outcome.FAILS: "it fails",
    Outcome.CANNOT_SAY: "cannot be said",
    Outcome.COMPARED: "compared",
}


def judge(claims: Iterable[str], findings: Mapping[str, Finding] | None = None) -> list[Verdict]:
    """The verdicts on claims, by their ids. findings  that the figure has already; else they are computed"""
    rows = {claim.id: claim for claim in load_claims()}
    computed = findings or {}
    return [rows[name].verdict(computed.get(name) or answer(rows[name].ask)) for name in claims]


def count_verdicts(verdicts: Sequence[Verdict]) -> str:
    """``of 8 claims 1 holds, 4 cannot be said, 3 fail``."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    holds, fails, unsaid = (counts[outcome] for outcome in (Outcome.HOLDS, Outcome.FAILS, Outcome.CANNOT_SAY))
    parts = [
        f"{holds} {'holds' if holds == 1 else 'hold'}" if holds else "",
        f"{unsaid} cannot be said" if unsaid else "",
        f"{fails} {'fails' if fails == 1 else 'fail'}" if fails else "",
    ]
    return f"of {counted(len(verdicts), 'claim')} {', '.join(filter(None, parts))}"


def describe_verdicts(verdicts: Iterable[Verdict]) -> str:
    """A line for each claim: what the paper says, what is found here, and whether it holds."""
    lines = []
    for verdict in verdicts:
        value_words = verdict.got.partition(",")[0].partition(";")[0].rpartition(": ")[2]
        lines.append(f"\nThe paper says: {verdict.claim}. Here: {value_words}; {_WORDS[verdict.verdict]}.")
    return "".join(lines)
