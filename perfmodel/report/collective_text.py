"""Text of ``perfmodel collective``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph, table
from perfmodel.schema.machine import Machine
from perfmodel.units import format_bytes, format_count, format_rate, format_time

if TYPE_CHECKING:
    import pandas as pd


def collective_text(answers: pd.DataFrame, calibration_id: str, machine: Machine) -> str:
    """One line a question: time, band, bandwidths, clock and evidence."""
    rows = []
    for record in answers.to_dict(orient="records"):
        rows.append(
            [
                str(record["collective"]),
                format_count(int(record["gpus"])),
                str(int(record["gpus_per_node"])),
                format_bytes(float(record["payload_bytes"])),
                format_time(float(record["time_s"])),
                band(float(record["low_s"]), float(record["high_s"])),
                *(_rate(float(record[f"{kind}_bytes_per_s"])) for kind in ("algbw", "busbw")),
                _evidence(record["evidence"]),
            ]
        )
    headers = ["collective", "GPUs", "/node", "size", "time", "95 % band", "algbw", "busbw", "evidence"]
    changed = ", ".join(f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides))
    clocks = ", ".join(sorted({str(clock) for clock in answers["clock"]}))
    origin = f"Machine {machine.name}" + (f" · assumed: {changed}" if changed else "") + f" · clock {clocks}"
    return "\n\n".join(
        [
            table(headers, rows, left=(0, 8), drop=(5, 2, 6)),
            paragraph(f"{origin} · calibration {calibration_id}"),
        ]
    )


def _evidence(found: object) -> str:
    """Its word; "-" for one GPU, where nothing is sent and nothing was measured."""
    return found if isinstance(found, str) else "-"


def _rate(bytes_per_s: float) -> str:
    """A rate; "-" where nothing is sent."""
    return "-" if math.isnan(bytes_per_s) else format_rate(bytes_per_s)
