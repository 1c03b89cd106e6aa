"""Results that every page shows and that follow from shipped data, kept in ``data/validation`` to save time.

``python benchmarks/accuracy.py --write`` writes the files, and tests compare them with a new computation.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from perfmodel import resources
from perfmodel.validate import accuracy, dlrm, judged_claims, measured
from perfmodel.validate.verdicts import Finding, Judged, load_claims

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

GPUS = 8
"""Number of GPUs for which curves with left-out sizes are stored."""
_PREDICTED = ("time_s", "predicted_s", "low_s", "high_s")
_SIZES = ("machine", "collective", "gpus", "payload_bytes", "sources", *_PREDICTED)
_STEPS = ("system", "gpus", *_PREDICTED)


def fresh_sizes_left_out() -> pd.DataFrame:
    """Computes ``accuracy.leave_one_size_out`` on ``GPUS`` GPUs (0.6 s per machine)."""
    points = accuracy.leave_one_size_out(alpha_beta=False, gpus=(GPUS,))
    return points[list(_SIZES)].reset_index(drop=True)


def fresh_steps_left_out() -> pd.DataFrame:
    """Computes MLPerf's training steps, each predicted with a share fitted without its machine (2 s)."""
    return dlrm.unseen_frame().rename(columns={"measured_s": "time_s"})[list(_STEPS)]


def sizes_left_out(machine: str) -> pd.DataFrame:
    """The stored result of ``fresh_sizes_left_out`` for one machine, with columns error, inside and size.

    Limits: a machine without such curves -> no row
    """
    points = measured.judged(_read("sizes_left_out.csv"))
    return points[points["machine"] == machine].reset_index(drop=True)


def steps_left_out() -> pd.DataFrame:
    """The stored result of ``fresh_steps_left_out``, with columns error and inside."""
    points = _read("steps_left_out.csv")
    time = points["time_s"]
    inside = (points["low_s"] <= time) & (time <= points["high_s"])
    return points.assign(error=points["predicted_s"] / time - 1, inside=inside)


def claims_found() -> list[Judged]:
    """``judged_claims`` with stored values, because computing them takes 15 s."""
    found: dict[str, Finding] = {}
    for row in _read("claims_found.csv").to_dict("records"):
        value, low, high = (None if isnan(row[name]) else row[name] for name in ("value", "low", "high"))
        found[row["check"]] = Finding(value, row["words"], low, high)
    return [Judged.of(claim, found[claim.check]) for claim in load_claims().claim]


def save() -> None:
    """Compute and write all three files."""
    import pandas as pd

    found = {one.claim.check: one.found for one in judged_claims()}
    rows = [{"check": check, **vars(one)} for check, one in found.items()]
    _write(pd.DataFrame(rows), "claims_found.csv")
    _write(fresh_sizes_left_out(), "sizes_left_out.csv")
    _write(fresh_steps_left_out(), "steps_left_out.csv")


def _write(frame: pd.DataFrame, name: str) -> None:
    frame.to_csv(_path(name), index=False, lineterminator="\n")


def _read(name: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(_path(name))


def _path(name: str) -> Path:
    return resources.data_path("validation", name)
