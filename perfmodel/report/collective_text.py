"""Text of ``perfmodel collective``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import paragraph
from perfmodel.schema.machine import Machine
from perfmodel.units import format_bytes, format_count, format_rate, format_time

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.validate.gates import Gate

_PROGRAMS = {"all_to_all": "alltoall"}
"""Names of nccl-tests where they are not those of the collectives."""


def collective_text(answers: pd.DataFrame, calibration_id: str, machine: Machine) -> str:
    """A line for each question: time, band, bandwidths, clock and evidence."""
    changed = ", ".join(f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides))
    columns = (*_COLUMNS[:6], *_COLUMNS[7:], _LIBRARY) if "library" in answers else _COLUMNS
    clocks = ", ".join(sorted({str(clock) for clock in answers["clock"]}))
    origin = f"Machine {machine.name}" + (f" · assumed: {changed}" if changed else "") + f" · clock {clocks}"
    return "\n\n".join(
        [
            columns_text(columns, answers.to_dict(orient="records")),
            paragraph(f"{origin} · calibration {calibration_id}"),
        ]
    )


def gates_text(gates: Sequence[Gate], calibration_id: str, machine: Machine) -> str:
    """A line for each gate, and for each collective and ranks the call of nccl-tests that judges by them.

    nccl-tests fails a run whose mean bus bandwidth over its sizes is more than 10 % below NCCL_TESTS_MIN_BW.
    """
    calls = []
    for (name, ranks), rows in groupby(gates, key=lambda gate: (gate.collective, gate.gpus)):
        some = list(rows)
        mean = sum(gate.lowest_busbw_bytes_per_s for gate in some) / len(some) / 0.9
        sizes = f"-b {some[0].payload_bytes:.0f} -e {some[-1].payload_bytes:.0f} -f 2 -g 1"
        program = f"{_PROGRAMS.get(name, name)}_perf"
        calls.append(f"NCCL_TESTS_MIN_BW={mean / 1e9:.3g} mpirun -np {ranks} {program} {sizes}")
    basis = "; ".join(dict.fromkeys(gate.basis for gate in gates))
    return "\n\n".join(
        [
            columns_text(_GATES, gates),
            "\n".join(calls),
            paragraph(
                f"Machine {machine.name} · calibration {calibration_id} · slow end of the 95 % band: {basis}"
            ),
        ]
    )


def _evidence(found: object) -> str:
    """The evidence of the time as text; "-" for a single GPU, which sends nothing."""
    return found if isinstance(found, str) else "-"


def _rate(bytes_per_s: float) -> str:
    """A rate as text; "-" where nothing is sent."""
    return "-" if math.isnan(bytes_per_s) else format_rate(bytes_per_s)


_COLUMNS = (
    Column("collective", lambda row: str(row["collective"]), left=True),
    Column("GPUs", lambda row: format_count(int(row["gpus"]))),
    Column("/node", lambda row: str(int(row["gpus_per_node"])), goes=2),
    Column("size", lambda row: format_bytes(float(row["payload_bytes"]))),
    Column("time", lambda row: format_time(float(row["time_s"]))),
    Column("95 % band", lambda row: band(float(row["low_s"]), float(row["high_s"])), goes=1),
    Column("algbw", lambda row: _rate(float(row["algbw_bytes_per_s"])), goes=3),
    Column("busbw", lambda row: _rate(float(row["busbw_bytes_per_s"])), goes=4),
    Column("evidence", lambda row: _evidence(row["evidence"]), left=True),
)
_LIBRARY = Column("library", lambda row: str(row["library"]), left=True)
_GATES = (
    Column("collective", lambda gate: gate.collective, left=True),
    Column("GPUs", lambda gate: format_count(gate.gpus)),
    Column("/node", lambda gate: str(gate.gpus_per_node), goes=1),
    Column("size", lambda gate: format_bytes(gate.payload_bytes)),
    Column("time at most", lambda gate: format_time(gate.longest_time_s)),
    Column("busbw at least", lambda gate: format_rate(gate.lowest_busbw_bytes_per_s)),
    Column("evidence", lambda gate: gate.evidence, left=True),
)
