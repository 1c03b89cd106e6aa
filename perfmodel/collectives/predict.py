"""The door of the room: a table of questions about collectives, answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.model.collectives import bus_factor
from perfmodel.schema.evidence import COLLECTIVES, Evidence
from perfmodel.schema.machine import Machine, load_machine

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_PER_PEER = ("all_to_all", "reduce_scatter", "all_gather")


def predict_collectives(
    frame: pd.DataFrame | Mapping[str, Any],
    machine: str | Path | Machine = "h100-sxm-ib",
    backend: str = "nccl",
    clock: str | None = None,
    calibration: str | Path | None = None,
    overrides: Mapping[str, float | str] | None = None,
) -> pd.DataFrame:
    """Predict many collectives at once.

    frame    columns collective, payload_bytes, gpus and optionally gpus_per_node (default: the machine's)
    machine  a shipped name, the path of a TOML file, or a Machine
    Returns the frame with time_s, low_s, high_s (95 % interval), algbw_bytes_per_s, busbw_bytes_per_s,
    evidence and clock added; same rows, same order. Raises BadInputError for a missing column, an unknown
    collective, a size below one byte a peer; NoCalibrationError where nothing is known.
    """
    frame = _frame(frame)
    missing = [c for c in ("collective", "payload_bytes", "gpus") if c not in frame.columns]
    if missing:
        raise BadInputError(
            f"the frame lacks the column {missing[0]!r}.",
            "it needs collective, payload_bytes and gpus; gpus_per_node is optional.",
        )
    where = machine if isinstance(machine, Machine) else load_machine(machine)
    where = where.with_overrides(overrides or {})
    model = CollectiveModel.load(where, backend, clock, calibration)
    result = frame.copy()
    if frame["collective"].isna().any():
        raise BadInputError(
            f"row {int(np.argmax(frame['collective'].isna()))} names no collective.",
            f"known collectives: {', '.join(COLLECTIVES)}.",
        )
    names = frame["collective"].astype(str).to_numpy()
    size = _numbers(frame["payload_bytes"], "payload_bytes")
    ranks = _numbers(frame["gpus"], "gpus")
    node = (
        _numbers(frame["gpus_per_node"].fillna(where.gpus_per_node), "gpus_per_node")
        if "gpus_per_node" in frame.columns
        else np.full(len(frame), float(where.gpus_per_node))
    )
    columns: dict[str, Floats] = {name: np.zeros(len(frame)) for name in ("time_s", "low_s", "high_s")}
    ratio, ranked = np.ones(len(frame)), np.zeros(len(frame), np.int8)
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(names == name)
        estimate = model.estimate(name, size[rows], ranks[rows], node[rows])
        _check_per_peer(name, size[rows], ranks[rows])
        for column in columns:
            columns[column][rows] = getattr(estimate, column)
        ratio[rows], ranked[rows] = bus_factor(name, ranks[rows]), estimate.evidence
    for column, values in columns.items():
        result[column] = values
    with np.errstate(divide="ignore"):
        result["algbw_bytes_per_s"] = np.where(columns["time_s"] > 0, size / columns["time_s"], np.inf)
        result["busbw_bytes_per_s"] = result["algbw_bytes_per_s"] * ratio
    result["evidence"] = np.array([str(e) for e in Evidence])[ranked]
    result["clock"] = str(model.clock)
    return result


def _frame(given: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(given, pd.DataFrame):
        return given
    try:
        return pd.DataFrame(given)
    except (TypeError, ValueError) as error:
        raise BadInputError(
            f"the questions are not a table: {error}.", "give a DataFrame, or columns of one length."
        ) from None


def _numbers(column: pd.Series[Any], name: str) -> Floats:
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").to_numpy(float)
    if np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        raise BadInputError(f"{name} of row {row} is not a number: {column.iloc[row]!r}.", "give a number.")
    return np.asarray(values, float)


def _check_per_peer(collective: str, size: Floats, ranks: Floats) -> None:
    """A payload that leaves less than one byte a peer would time an empty call."""
    short = (size < ranks) & (ranks > 1) & (collective in _PER_PEER)
    if short.any():
        i = int(np.argmax(short))
        raise BadInputError(
            f"{size[i]:g} B of {collective} over {ranks[i]:g} ranks is less than one byte a peer: "
            "it would time an empty call.",
            f"the smallest size here is {ranks[i]:g} B.",
        )
