"""Text of a run's own passes: projected against measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.passes.steps import step_label
from perfmodel.report.terminal import paragraph, table
from perfmodel.report.validation_text import verdicts_text
from perfmodel.units import format_fraction, format_number, format_time
from perfmodel.validate import Verdict

if TYPE_CHECKING:
    import pandas as pd

_HEADERS = ["library", "pass", "G", "B", "T", "L", "D", "type", "measured", "projected", "error", "band"]


def own_run_text(passes: pd.DataFrame, steps: pd.DataFrame, verdicts: Sequence[Verdict]) -> str:
    """The text of a run's check of itself: whole passes, their steps, and verdicts.

    passes, steps  frames with a row for each measured pass or kind of step, with its projection
    """
    rows = [_row(record) for record in passes.to_dict("records")]
    parts = [
        paragraph("Whole passes: measured, and projected from this run's own calibration")
        + "\n"
        + table(_HEADERS, rows, left=(0, 1, 7, 11), drop=(7, 9, 2, 0))
        + "\n"
        + paragraph("held out: not used in any fit · fitted: used to fit how a pass changes its steps")
    ]
    if len(steps):
        named = [
            [step_label(row["step"]), str(row["n"]), format_fraction(row["share"]), _signed(row["error"])]
            for row in steps.to_dict("records")
        ]
        parts.append(
            paragraph("Steps of our own passes: share of the time, and error without the handover (medians)")
            + "\n"
            + table(["step", "n", "share", "error"], named)
        )
    return "\n\n".join([*parts, verdicts_text(verdicts, paper=False)])


def _row(record: Mapping[Any, Any]) -> list[str]:
    part = "held out" if record["held_out"] else "fitted"
    part = part if record["implementation"] == "exchange" else str(record["implementation"])
    return [
        str(record["backend"]),
        part,
        *(str(record[name]) for name in ("gpus", "batch", "tables")),
        format_number(float(record["pooling"])),
        str(record["dim"]),
        str(record["dtype"]),
        format_time(float(record["time_s"])),
        format_time(float(record["projected_s"])),
        _signed(float(record["error"])),
        "inside" if record["inside"] else "outside",
    ]


def _signed(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + format_fraction(abs(value))
