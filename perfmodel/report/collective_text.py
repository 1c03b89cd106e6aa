"""Text of ``perfmodel collective``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING

from perfmodel.collectives.estimate import Gate
from perfmodel.model.unknowns import Group
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import command_lines, paragraph
from perfmodel.schema.machine import Machine
from perfmodel.units import counted, format_bytes, format_count, format_rate, format_time

if TYPE_CHECKING:
    import pandas as pd


def collective_text(answers: pd.DataFrame, calibration: str, machine: Machine, *, binary: bool) -> str:
    """A line for each question: time, band, bandwidths, clock and evidence.

    calibration  in words;  binary  sizes in MiB, not MB
    """
    columns = (
        Column("collective", lambda row: str(row["collective"]), left=True),
        Column("GPUs", lambda row: format_count(int(row["gpus"]))),
        Column("/node", lambda row: str(int(row["gpus_per_node"])), goes=2),
        Column("size", lambda row: format_bytes(float(row["payload_bytes"]), binary=binary)),
        Column("time", lambda row: format_time(float(row["time_s"]))),
        Column("95 % band", lambda row: band(float(row["low_s"]), float(row["high_s"]))),
        Column("algbw", lambda row: format_rate(row["algbw_bytes_per_s"]).replace("unknown", "-"), goes=1),
        Column("busbw", lambda row: format_rate(row["busbw_bytes_per_s"]).replace("unknown", "-"), goes=3),
        Column("evidence", lambda row: row["evidence"] or "-", left=True),
    )
    changed = ", ".join(f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides))
    clocks = ", ".join(sorted({str(clock) for clock in answers["clock"]}))
    origin = f"Machine {machine.name}" + (f" · assumed: {changed}" if changed else "") + f" · clock {clocks}"
    parts = [columns_text(columns, answers.to_dict(orient="records"))]
    for gpus, node in dict.fromkeys(zip(answers["gpus"], answers["gpus_per_node"], strict=True)):
        group = Group.of(int(gpus), machine.domain_gpus_of(int(node)))
        if (last := group.smallest_domain_gpus) < group.domain_gpus:  # why more GPUs may be faster
            where = f"{counted(int(gpus), 'GPU')}: the last domain has {last} of them"
            parts.append(paragraph(f"{where}, whose network cards limit all."))
    return "\n\n".join([*parts, paragraph(f"{origin} · calibration {calibration}")])


def gates_text(gates: Sequence[Gate], *, binary: bool) -> str:
    """A line for each gate, and calls of nccl-tests, which fails a run 10 % below NCCL_TESTS_MIN_BW.

    binary  sizes in MiB, not MB
    """
    columns = (
        Column("collective", lambda gate: gate.collective, left=True),
        Column("GPUs", lambda gate: format_count(gate.gpus)),
        Column("size", lambda gate: format_bytes(gate.payload_bytes, binary=binary)),
        Column("time at most", lambda gate: format_time(gate.longest_time_s)),
        Column("busbw at least", lambda gate: format_rate(gate.lowest_busbw_bytes_per_s)),
        Column("evidence", lambda gate: gate.evidence, left=True),
    )
    ((machine, calibration),) = {(gate.machine, gate.calibration) for gate in gates}
    parts = [columns_text(columns, gates), paragraph(f"Machine {machine} · calibration {calibration}")]
    if "nvshmem" in calibration:  # nccl-tests times NCCL and RCCL
        return "\n\n".join(parts)
    calls = []
    for (name, ranks), rows in groupby(gates, key=lambda gate: (gate.collective, gate.gpus)):
        sizes = list(rows)
        least = fmean(gate.lowest_busbw_bytes_per_s for gate in sizes)
        call = f"NCCL_TESTS_MIN_BW={least / 0.9e9:.3g} mpirun -np {ranks} "
        ends = f"-b {sizes[0].payload_bytes:.0f} -e {sizes[-1].payload_bytes:.0f} -f 2"
        calls.append(command_lines(f"{call}{name.replace('all_to_all', 'alltoall')}_perf {ends}"))
    why = (
        "nccl-tests fails a run 10 % below NCCL_TESTS_MIN_BW, the mean of all sizes, so that is higher here:"
    )
    return "\n\n".join([*parts, "\n".join([paragraph(why), *calls])])
