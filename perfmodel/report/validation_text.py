"""Text of verdicts, each with the reason; and of a run's own passes: projected against measured times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.engine.steps import label_step
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.units import counted, format_bytes, format_fraction, format_number, format_ratio, format_time
from perfmodel.validate import Outcome, Verdict

if TYPE_CHECKING:
    import pandas as pd

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


def own_run_text(passes: pd.DataFrame, steps: pd.DataFrame, verdicts: Sequence[Verdict]) -> str:
    """The text of a run's check of itself: whole passes, their steps, and verdicts.

    passes, steps  frames with a row for each measured pass or kind of step, with its projection
    """
    parts = [
        paragraph("Whole passes: measured, and projected from this run's own calibration"),
        columns_text(_PASSES, passes.to_dict("records")),
        paragraph("held out: not used in any fit · fitted: used to fit how a pass changes its steps"),
    ]
    if len(steps):
        words = "\nSteps of our own passes: share of the time, and error without the handover (medians)"
        parts += [paragraph(words), columns_text(_STEPS, steps.to_dict("records"))]
    return "\n".join([*parts, "", verdicts_text(verdicts, "bands")])


def _write_error(value: float) -> str:
    sign = {1.0: "+", -1.0: "−"}.get(float(np.sign(value)), "")
    return f"{sign}{format_fraction(abs(value))}"


_ROLES = {True: "held out", False: "fitted"}
_PASSES = (
    Column("library", lambda row: str(row["backend"]), left=True, goes=4),
    Column(
        "pass",
        lambda row: (
            _ROLES[bool(row["held_out"])]
            if row["implementation"] == "exchange"
            else str(row["implementation"])
        ),
        left=True,
    ),
    Column("G", lambda row: str(row["gpus"]), goes=3),
    Column("B", lambda row: str(row["batch"])),
    Column("T", lambda row: str(row["tables"])),
    Column("L", lambda row: format_number(float(row["pooling"]))),
    Column("D", lambda row: str(row["dim"])),
    Column("type", lambda row: str(row["dtype"]), left=True, goes=1),
    Column("measured", lambda row: format_time(float(row["time_s"]))),
    Column("projected", lambda row: format_time(float(row["projected_s"])), goes=2),
    Column("error", lambda row: _write_error(float(row["error"]))),
    Column("band", lambda row: "inside" if row["inside"] else "outside", left=True),
)
_STEPS = (
    Column("step", lambda row: label_step(row["step"]), left=True),
    Column("n", lambda row: str(row["n"])),
    Column("share", lambda row: format_fraction(row["share"])),
    Column("error", lambda row: _write_error(row["error"])),
)
