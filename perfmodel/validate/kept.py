"""Results that every page shows and that follow from shipped data, kept in ``data/validation`` to save time.

``python benchmarks/accuracy.py --write`` writes the files, and tests compare them with a new computation.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from perfmodel import resources
from perfmodel.validate import measured
from perfmodel.validate.verdicts import Finding, Judged, load_claims

if TYPE_CHECKING:
    import pandas as pd


def sizes_left_out(machine: str) -> pd.DataFrame:
    """``accuracy.leave_one_size_out`` on 8 GPUs of one machine.

    Columns machine, collective, gpus, payload_bytes, sources, time_s (measured), predicted_s, low_s, high_s,
    error, inside, size
    Limits: a machine without such cells -> no row
    """
    points = measured.judged(_read("sizes_left_out.csv"))
    return points[points["machine"] == machine].reset_index(drop=True)


def steps_left_out() -> pd.DataFrame:
    """MLPerf's training steps, each predicted with a share fitted without its machine.

    Columns system, gpus, time_s (measured), predicted_s, low_s, high_s, error, inside
    """
    points = _read("steps_left_out.csv")
    time = points["time_s"]
    inside = (points["low_s"] <= time) & (time <= points["high_s"])
    return points.assign(error=points["predicted_s"] / time - 1, inside=inside)


def nodes_left_out() -> pd.DataFrame:
    """Groups with many nodes, predicted by a fit to the fewest nodes of the same cluster (``seen_nodes``)."""
    points = measured.judged(_read("nodes_left_out.csv"))
    fewest = points.groupby("machine")["seen_nodes"].transform("min")
    return points[points["seen_nodes"] == fewest].reset_index(drop=True)


def claims_found() -> list[Judged]:
    """``judged_claims`` with stored values, because computing them takes 15 s."""
    found: dict[str, Finding] = {}
    for row in _read("claims_found.csv").to_dict("records"):
        value, low, high = (None if isnan(row[name]) else row[name] for name in ("value", "low", "high"))
        found[row["check"]] = Finding(value, row["words"], low, high)
    return [Judged.of(claim, found[claim.check]) for claim in load_claims().claim]


def _read(name: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(resources.data_path("validation", name))
