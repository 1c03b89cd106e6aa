"""The last lines of ``import`` and ``calibrate``: the new calibration compared with the shipped one."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.question import Question
from perfmodel.collectives.choose import choose_calibration
from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.projections import Projection
from perfmodel.report.terminal import facts
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.units import counted, format_bytes, format_fraction, format_time

if TYPE_CHECKING:
    import pandas as pd

_TABLE_BYTES = 10e12


def beside_shipped(
    samples: pd.DataFrame, machine: Machine, own: Calibration, shipped: Calibration | None
) -> dict[str, Any]:
    """Compare a new calibration with the shipped one, as numbers for JSON and for the lines that are printed.

    samples  that ``own`` was fitted to;  shipped  for this machine and library, or None
    Keys: shipped (its errors on the samples), default_answer (a large table's answer by both), left_out
    (errors on groups left out of the fit). Keys that cannot be computed are missing.
    """
    from perfmodel.validate.beside_shipped import largest_left_out, told_by

    found: dict[str, Any] = {}
    told = told_by(shipped, samples, machine) if shipped is not None else None
    if shipped is not None and told is not None:
        found["shipped"] = {"calibration_id": shipped.calibration_id, **vars(told)}
        found |= _answers(machine, own)
    left_out = largest_left_out(samples, machine, own, shipped)
    if left_out is not None:
        found["left_out"] = {**vars(left_out), "told": vars(left_out.told)}
    return found


def shipped_like(machine: Machine, backend: Backend) -> Calibration | None:
    """The shipped calibration of exactly this machine and library, where a fit begins, or None."""
    if machine.name not in list_machines():
        return None
    try:
        found = choose_calibration(machine, backend, None)
    except NoCalibrationError:
        return None
    return found if found.machine == machine.name else None


def _answers(machine: Machine, own: Calibration) -> dict[str, Any]:
    """The default question's time, GPUs and sharding by the shipped and by the new calibration.

    Limits: a calibration without an answer -> {}
    """
    if machine.name not in list_machines():
        return {}
    question = Question(machine=machine, table_bytes=_TABLE_BYTES, backend=str(own.backend))
    with tempfile.TemporaryDirectory() as folder:
        save_calibration(own, path := Path(folder) / "own.json")
        try:
            both = [_answer(question), _answer(replace(question, calibration=str(path)))]
        except PerfmodelError:
            return {}
    sides = [
        {"time_s": one.time_s, "gpus": one.gpus, "sharding": one.question.sharding if one.question else None}
        for one in both
    ]
    return {"default_answer": dict(zip(("shipped", "own"), sides, strict=True))}


def _answer(question: Question) -> Projection:
    from perfmodel.plan.leading import leading_on_enough

    return leading_on_enough(question.answer(), question.on_gpus).answer


def beside_shipped_text(found: dict[str, Any]) -> str:
    """The lines that compare the calibrations, from the numbers of ``beside_shipped``; "" without numbers."""
    lines = []
    if "shipped" in found:
        told = found["shipped"]
        words = f"{told['calibration_id']} would have said your samples with {_errors(told)}"
        lines.append(("Shipped", words))
    if "default_answer" in found:
        sides = found["default_answer"]
        times = " → ".join(format_time(sides[name]["time_s"]) for name in ("shipped", "own"))
        size = format_bytes(_TABLE_BYTES, binary=False)
        lines.append(("Your answer", f"{size} on {sides['own']['gpus']} GPUs: {times} per batch"))
    if "left_out" in found:
        part = found["left_out"]
        nouns = {"nodes": "node", "gpus": "GPU"}[part["by"]]
        groups = f"{counted(part['left_out'], nouns)} left out of the fit"
        words = f"{groups} and predicted from up to {part['seen']}: {_errors(part['told'])}"
        lines.append(("Left out", words))
    return facts(lines) if lines else ""


def _errors(told: dict[str, Any]) -> str:
    inside = f"{told['inside']} of {counted(told['points'], 'point')} inside the 95 % band"
    return f"a median error of {format_fraction(told['error'])}, {inside}"
