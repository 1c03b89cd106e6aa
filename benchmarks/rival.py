"""A rival of the collective model in a hundred lines: what cannot beat it on operators left out goes.

Per family of collectives, inside a domain and across one kind of network, four constants: a floor that grows
with the ranks, and bytes at a share of the datasheet's rate, joined by a p-norm. Groups that another operator
measured are interpolated instead. Points are rows of ``left_out.operators_left_out``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares

from perfmodel.collectives.link_laws import inside_rate
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.curves import join_power
from perfmodel.schema.machine import load_machine

Floats = npt.NDArray[np.float64]

_START = np.log([8e-6, 8e-7, 0.7, 1.0])
"""Floor [s], floor of each further step [s], share of the link's rate [-], sharpness of the knee [-]."""
_POINT_LOG_SD, _EFFECTIVE_POINTS = 0.1, 50.0
_CELL = ["machine", "collective", "gpus", "domain_gpus"]


def rival_left_out(points: pd.DataFrame) -> pd.DataFrame:
    """The points, with predicted_s, error and log_error of the rival, fitted to all other operators."""
    parts = []
    for operator, group in points.groupby("operator", observed=True):
        others_known = points[points["operator"] != operator]
        groups = [family for _, family in group.groupby(["family", "where", "links"], observed=True)]
        predicted = np.concatenate([_predict(others_known, family) for family in groups])
        order = np.concatenate([family.index.to_numpy() for family in groups])
        parts.append(group.assign(predicted_s=pd.Series(predicted, order)))
    judged = pd.concat(parts).sort_index()
    return judged.assign(
        error=judged["predicted_s"] / judged["time_s"] - 1,
        log_error=np.log(judged["predicted_s"] / judged["time_s"]),
    )


def _predict(rest: pd.DataFrame, own: pd.DataFrame) -> Floats:
    """Times of points of one family on one kind of links [s]: of measured groups by interpolation."""
    like = rest[(rest["family"] == own["family"].iloc[0]) & (rest["where"] == own["where"].iloc[0])]
    alike = like[like["links"] == own["links"].iloc[0]]
    like = alike if len(alike) else like
    law, seen = find_shape(like), np.log(like["time_s"].to_numpy(float))
    counts = like.groupby("operator")["time_s"].transform("size").to_numpy(float)
    weight = np.sqrt(np.minimum(_EFFECTIVE_POINTS / counts, 1)) / _POINT_LOG_SD

    def residual(q: Floats) -> Floats:
        misses = (np.log(_time(q, *law)) - seen) * weight
        return np.concatenate([np.sign(misses) * np.sqrt(2 * (np.hypot(1, misses) - 1)), q - _START])

    times = _time(least_squares(residual, _START).x, *find_shape(own))
    cells: dict[object, pd.DataFrame] = {key: cell for key, cell in rest.groupby(_CELL, observed=True)}
    keys = list(own[_CELL].itertuples(index=False, name=None))
    sizes = own["payload_bytes"].to_numpy(float)
    return np.array(
        [interpolate_groups(cells.get(k), s, t) for k, s, t in zip(keys, sizes, times, strict=True)]
    )


def interpolate_groups(cell: pd.DataFrame | None, size: float, otherwise: float) -> float:
    """Time between the sizes of a measured group, ln t linear in ln S. Limits: outside -> ``otherwise``"""
    if cell is None or not cell["payload_bytes"].min() <= size <= cell["payload_bytes"].max():
        return otherwise
    medians = cell.groupby("payload_bytes")["time_s"].median()
    return float(np.exp(np.interp(np.log(size), np.log(medians.index), np.log(medians))))


def find_shape(rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """(steps [-], time of the bytes at the datasheet's rate [s]) of each point."""
    G, g = rows["gpus"].to_numpy(float), rows["domain_gpus"].to_numpy(float)
    N, S = np.ceil(G / g), rows["payload_bytes"].to_numpy(float)
    machines = {name: load_machine(str(name)) for name in rows["machine"].unique()}
    link = rows["machine"].map({name: inside_rate(m) for name, m in machines.items()}).to_numpy(float)
    card = rows["card_bytes_per_s"].to_numpy(float)
    names = rows["collective"].to_numpy(str)
    wire = S * np.array([compute_bus_factor(name, ranks) for name, ranks in zip(names, G, strict=True)])
    paired = names == "all_to_all"
    tree = np.where(names == "all_reduce", np.minimum(N, 4) / 4, 1.0)
    remote = np.where(paired, S * (G - g) / G / card, wire * tree / (g * card))
    moved = np.where(N > 1, np.maximum(wire / link, remote), wire / link)
    hops = np.where(N > 1, np.log2(N) + g, np.log2(G))
    steps = np.where(names == "all_reduce", hops, np.where(paired, G - g * (N > 1), G - 1))
    return steps, moved


def _time(q: Floats, steps: Floats, moved: Floats) -> Floats:
    a, b, share, p = np.exp(q)
    return np.asarray(join_power(a + b * steps, moved / share, p))
