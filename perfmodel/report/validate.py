"""Verdicts as a table, and why each is what it is."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.report.terminal import facts, paragraph
from perfmodel.validate import Outcome, Verdict


def verdicts_text(verdicts: Sequence[Verdict], *, paper: bool) -> str:
    """Each claim with what was expected, what came out, the band and the verdict; a count at the end."""
    parts = [_block(verdict) for verdict in verdicts]
    parts.append(_count(verdicts, paper=paper))
    return "\n\n".join(parts)


def _block(verdict: Verdict) -> str:
    mark = "! " if verdict.regression else ""
    title = f"{mark}{verdict.identifier}: {verdict.verdict}\n" + paragraph(verdict.claim, indent=3)
    expected = "" if verdict.expected == verdict.band else verdict.expected
    rows = [("expected", expected), ("band", verdict.band), ("got", verdict.got), ("why", verdict.why)]
    return title + "\n" + facts(rows, indent=3)


def _count(verdicts: Sequence[Verdict], *, paper: bool) -> str:
    counts = [f"{sum(v.verdict is kind for v in verdicts)} {kind}" for kind in Outcome]
    what = "claims of the paper" if paper else "bands"
    return f"{len(verdicts)} {what}: {', '.join(counts)}"
