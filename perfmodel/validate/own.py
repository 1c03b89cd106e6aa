"""Compares a user's own run with the model: whole passes as measured, and as projected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.answer import project_row_wise
from perfmodel.engine.settings import TORCH
from perfmodel.engine.tables import row_bytes
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.context import OWN_PASS, TIMED_AS
from perfmodel.schema.files import MACHINE_NAME
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.run_files import Run, calibrate_line, calibrations_of, no_machine_file, read_run
from perfmodel.schema.workload import DTYPES
from perfmodel.units import counted
from perfmodel.validate.accuracy import summarize
from perfmodel.validate.verdicts import Finding, Verdict, load_claims

if TYPE_CHECKING:
    import pandas as pd


def compare_run(folder: Path) -> pd.DataFrame:
    """Every whole pass of a run with its projection, one row per pass.

    Columns: as of ``Run.composed_samples``, calibration, projected_s with projected_low_s and
    projected_high_s (95 % band), error (projected over measured, minus 1), inside, and ``<step>_projected_s``
    of every step that was projected.
    Limits: no pass, or no calibration of its library -> NoCalibrationError
    """
    import pandas as pd

    run = read_run(folder)
    passes = run.composed_samples()
    if passes.empty:
        raise NoCalibrationError(
            f"run {run.run_id} holds no whole pass.",
            f"measure some, and what they consist of:\n  {calibrate_line(folder)}",
        )
    machine = machine_of_run(run, folder)
    parts = [
        _projected(rows, folder, machine)
        for _, rows in passes.reset_index(drop=True).groupby(["backend", "implementation"])
    ]
    return pd.concat(parts).sort_index().sort_values("backend", kind="stable", ignore_index=True)


def machine_of_run(run: Run, folder: Path) -> Machine:
    """The machine file in the folder of the run, else the shipped machine that the run names.

    Limits: neither -> BadInputError
    """
    own, name = folder / MACHINE_NAME, run.header.machine
    if not own.is_file() and name not in list_machines():
        raise no_machine_file(f"run {run.run_id}", name, folder)
    return load_machine(own if own.is_file() else name)


def _projected(passes: pd.DataFrame, folder: Path, machine: Machine) -> pd.DataFrame:
    """The passes with their projections by the run's calibration, at their clock if possible.

    passes  of one kind and one library. Kernels are the passes' own: torch's in this program's pass
    """
    backend = str(passes["backend"].iloc[0])
    found = {path: one for path, one in calibrations_of(folder).items() if str(one.backend) == backend}
    if not found:
        raise NoCalibrationError(
            f"run {folder.name} holds whole passes over {backend} and no calibration of {backend}.",
            f"measure its collectives:\n  {calibrate_line(folder, '--only', backend)}",
        )
    clock = str(passes["clock"].iloc[0])
    path = min(found, key=lambda p: str(found[p].clock) != clock)
    row = row_bytes([DTYPES.index(name) for name in passes["dtype"]], passes["dim"], training=False)
    columns = ("gpus", "batch", "pooling", "dim", "dtype", "id_bytes")
    asked: dict[str, Any] = {name: passes[name].to_numpy() for name in columns}
    asked["table_count"] = passes["tables"].to_numpy()
    asked["table_bytes"] = passes["tables"].to_numpy() * passes["rows"].to_numpy(float) * row
    own = passes["implementation"].iloc[0] == OWN_PASS and found[path].kernels_of(TORCH) is not None
    kernels = TORCH if own else None
    frame = project_row_wise(asked, machine, backend=backend, calibration=path, kernels=kernels)
    measured = passes["time_s"].to_numpy(float)
    projected, low, high = (frame[name].to_numpy(float) for name in ("time_s", "low_s", "high_s"))
    more = {
        "calibration": found[path].calibration_id,
        "projected_s": projected,
        "projected_low_s": low,
        "projected_high_s": high,
        "error": projected / measured - 1,
        "inside": (low <= measured) & (measured <= high),
    }
    steps = [name for name in (*TIMED_AS, "handover") if f"{name}_time_s" in frame.columns]
    more |= {f"{name}_projected_s": frame[f"{name}_time_s"].to_numpy(float) for name in steps}
    return passes.assign(**more)


def judged(passes: pd.DataFrame) -> pd.DataFrame:
    """The passes that judge the projection's error: our own, not used in the fit, GPUs not throttled."""
    own = passes["implementation"] == OWN_PASS
    return passes[own & passes["held_out"].astype(bool) & (passes["flag"] != "throttled")]


def judge_run(passes: pd.DataFrame) -> list[Verdict]:
    """Verdicts on ``compare_run`` by the bands of ``data/paper/run.toml``."""
    own = judged(passes)
    many = counted(len(own), "pass", "passes")
    verdicts = []
    for band in load_claims("run"):
        found = summarize(own, many=many, **band.ask) if len(own) else _NOTHING
        verdicts.append(band.verdict(found, own=True))
    return verdicts


_NOTHING = Finding(None, "no held-out pass was measured")


def step_errors(passes: pd.DataFrame) -> pd.DataFrame:
    """Answer errors of each step in our own passes: columns step, n (passes), share (of the time), error.

    Errors are medians. The hand-over between steps is listed too: the excess of a pass over the sum of its
    steps' own curves.
    """
    import pandas as pd

    own = passes[passes["implementation"] == OWN_PASS]
    rows = []
    for step, timed in TIMED_AS.items():
        columns = f"{timed}_time_s", f"{step}_projected_s"
        if own.empty or not set(columns) <= set(own.columns):
            continue
        both = own[[*columns, "time_s"]].dropna()
        if len(both):
            share = float((both[columns[0]] / both["time_s"]).median())
            error = float((both[columns[1]] / both[columns[0]] - 1).median())
            rows.append((step, len(both), share, error))
    return pd.DataFrame(rows, columns=["step", "n", "share", "error"])
