"""Text of a run's own passes: projected against measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.engine.steps import label_step
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import paragraph
from perfmodel.report.validation_text import verdicts_text
from perfmodel.units import format_fraction, format_number, format_time
from perfmodel.validate import Verdict

if TYPE_CHECKING:
    import pandas as pd


def own_run_text(passes: pd.DataFrame, steps: pd.DataFrame, verdicts: Sequence[Verdict]) -> str:
    """The text of a run's check of itself: whole passes, their steps, and verdicts.

    passes, steps  frames with a row for each measured pass or kind of step, with its projection
    """
    parts = [
        paragraph("Whole passes: measured, and projected from this run's own calibration")
        + "\n"
        + columns_text(_PASSES, passes.to_dict("records"))
        + "\n"
        + paragraph("held out: not used in any fit · fitted: used to fit how a pass changes its steps")
    ]
    if len(steps):
        parts.append(
            paragraph("Steps of our own passes: share of the time, and error without the handover (medians)")
            + "\n"
            + columns_text(_STEPS, steps.to_dict("records"))
        )
    return "\n\n".join([*parts, verdicts_text(verdicts, "bands")])


def _describe_implementation(record: Mapping[Any, Any]) -> str:
    role = "held out" if record["held_out"] else "fitted"
    return role if record["implementation"] == "exchange" else str(record["implementation"])


def _write_error(value: float) -> str:
    return ("+" if value > 0 else "−" if value < 0 else "") + format_fraction(abs(value))


_PASSES = (
    Column("library", lambda record: str(record["backend"]), left=True, goes=4),
    Column("pass", _describe_implementation, left=True),
    Column("G", lambda record: str(record["gpus"]), goes=3),
    Column("B", lambda record: str(record["batch"])),
    Column("T", lambda record: str(record["tables"])),
    Column("L", lambda record: format_number(float(record["pooling"]))),
    Column("D", lambda record: str(record["dim"])),
    Column("type", lambda record: str(record["dtype"]), left=True, goes=1),
    Column("measured", lambda record: format_time(float(record["time_s"]))),
    Column("projected", lambda record: format_time(float(record["projected_s"])), goes=2),
    Column("error", lambda record: _write_error(float(record["error"]))),
    Column("band", lambda record: "inside" if record["inside"] else "outside", left=True),
)
_STEPS = (
    Column("step", lambda row: label_step(row["step"]), left=True),
    Column("n", lambda row: str(row["n"])),
    Column("share", lambda row: format_fraction(row["share"])),
    Column("error", lambda row: _write_error(row["error"])),
)
