"""Compares a user's own run with the model: whole passes as measured, and as projected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.answer import project_row_wise
from perfmodel.engine.settings import TORCH
from perfmodel.engine.tables import row_bytes
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.context import OWN_PASS, TIMED_AS
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.run_files import calibrate_line, calibrations_of, find_machine_beside, read_run
from perfmodel.schema.runs import PointKind
from perfmodel.schema.workload import DTYPES
from perfmodel.units import counted
from perfmodel.validate.accuracy import summarize
from perfmodel.validate.verdicts import Finding, Verdict, load_claims

if TYPE_CHECKING:
    import pandas as pd


def compare_run(folder: Path) -> pd.DataFrame:
    """Every whole pass of a run with its projection, one row per pass.

    Columns: as of ``Run.work_samples``, calibration, projected_s with projected_low_s and
    projected_high_s (95 % band), error (projected over measured, minus 1), inside, and ``<step>_projected_s``
    of every step that was projected.
    Limits: no pass, or no calibration of its library -> NoCalibrationError;  no machine file in the folder,
    nor a shipped machine of the run's name -> BadInputError
    """
    import pandas as pd

    run = read_run(folder)
    passes = run.work_samples(PointKind.COMPOSED)
    if passes.empty:
        raise NoCalibrationError(
            f"run {run.run_id} holds no whole pass.",
            f"measure some, and what they consist of:\n  {calibrate_line(folder)}",
        )
    machine = load_machine(find_machine_beside(folder, run.header.machine, f"run {run.run_id}"))
    parts = [_project(rows, folder, machine) for _, rows in passes.groupby(["backend", "implementation"])]
    return pd.concat(parts).sort_index().sort_values("backend", kind="stable")


def _project(passes: pd.DataFrame, folder: Path, machine: Machine) -> pd.DataFrame:
    """The passes with their projections by the run's calibration, at their clock if possible.

    passes  of one kind and library, in the run ``folder``. Kernels: the passes' own, as torch's in ours
    """
    first = next(passes.itertuples())
    backend = str(first.backend)
    fits = {path: fit for path, fit in calibrations_of(folder).items() if str(fit.backend) == backend}
    if not fits:
        raise NoCalibrationError(
            f"run {folder.name} holds whole passes over {backend} and no calibration of {backend}.",
            f"measure its collectives:\n  {calibrate_line(folder, '--only', backend)}",
        )
    path = min(fits, key=lambda p: str(fits[p].clock) != first.clock)
    row = row_bytes([DTYPES.index(name) for name in passes["dtype"]], passes["dim"], training=False)
    columns = ("gpus", "batch", "pooling", "dim", "dtype", "id_bytes")
    question: dict[str, object] = {name: passes[name].to_numpy() for name in columns}
    question["table_count"] = passes["tables"].to_numpy()
    question["table_bytes"] = passes["tables"].to_numpy() * passes["rows"].to_numpy(float) * row
    uses_torch = first.implementation == OWN_PASS and fits[path].kernels_of(TORCH) is not None
    kernels = TORCH if uses_torch else None
    frame = project_row_wise(question, machine, backend=backend, calibration=path, kernels=kernels)
    measured = passes["time_s"].to_numpy(float)
    projected = frame["time_s"].to_numpy(float)
    low = frame["low_s"].to_numpy(float)
    high = frame["high_s"].to_numpy(float)
    added = {
        "calibration": fits[path].calibration_id,
        "projected_s": projected,
        "projected_low_s": low,
        "projected_high_s": high,
        "error": projected / measured - 1,
        "inside": measured == np.clip(measured, low, high),
    }
    steps = [name for name in (*TIMED_AS, "handover") if f"{name}_time_s" in frame.columns]
    added |= {f"{name}_projected_s": frame[f"{name}_time_s"].to_numpy(float) for name in steps}
    return passes.assign(**added)


def select_judged(passes: pd.DataFrame) -> pd.DataFrame:
    """The passes that judge the projection's error: our own, not used in the fit, GPUs not throttled."""
    ours = passes["implementation"] == OWN_PASS
    return passes[ours & passes["held_out"].astype(bool) & (passes["flag"] != "throttled")]


def judge_run(passes: pd.DataFrame) -> list[Verdict]:
    """Verdicts on ``compare_run`` by the bands of ``data/paper/run.toml``."""
    held_out = select_judged(passes)
    count = counted(len(held_out), "pass", "passes")
    verdicts = []
    for band in load_claims("run"):
        finding = summarize(held_out, many=count, **band.ask) if len(held_out) else _NOTHING
        verdicts.append(band.verdict(finding, own=True))
    return verdicts


_NOTHING = Finding(None, "no held-out pass was measured")


def compare_steps(passes: pd.DataFrame) -> pd.DataFrame:
    """Errors of projected steps in our own passes: columns step, n (passes), share (of the time), error.

    Errors are medians. The hand-over between steps is listed too: the excess of a pass over the sum of its
    steps' own curves.
    """
    import pandas as pd

    ours = passes[passes["implementation"] == OWN_PASS]
    rows = []
    for step, timed in TIMED_AS.items():
        columns = [f"{timed}_time_s", f"{step}_projected_s", "time_s"]
        measured, projected, whole = ours.reindex(columns=columns).dropna().to_numpy(float).T
        if measured.size:
            share = float(np.median(measured / whole))
            error = float(np.median(projected / measured - 1))
            rows.append((step, measured.size, share, error))
    return pd.DataFrame(rows, columns=["step", "n", "share", "error"])
