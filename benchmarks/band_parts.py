"""Estimates errors that a fit does not show, for its 95 % band, from samples that no fit used.

The parts: differences between clusters of the same kind, GPUs beyond the measured number, and groups without
similar measurements. Points are rows of ``left_out``. log_sd is a standard deviation of ln t. A cell is a
measured curve: a collective on one group of ranks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq

from perfmodel.collectives.spreads import growth_log_sd, law_log_sd
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors
from perfmodel.validate import measured

Floats = npt.NDArray[np.float64]

_INSIDE, _Z95 = 0.95, 1.96
_LARGEST = 10.0


def spread_of_clusters(points: pd.DataFrame) -> pd.DataFrame:
    """Difference between clusters of one kind: root mean square of ln(predicted / measured) over clusters.

    points  of ``clusters_left_out``; only cells that the calibration has measured count, because elsewhere
            the law errs too. A known cluster with another version of the library is not another cluster
    One row for "in" a domain and "across" domains and each class of sizes: clusters, cells, log_sd. Errors at
    the sizes of a cell are correlated, so a cell counts as one number, its median |ln|. Errors of cells of
    one cluster are correlated too: a cluster counts once, however many cells it has.
    """
    known = points[points["known"] & (points["how"] != "version")]
    cell = ["where", "size", "machine", "cluster", "collective", "gpus"]
    medians = known.assign(far=known["log_error"].abs()).groupby(cell, observed=True)["far"].median()
    squares = (medians**2).reset_index().groupby(["where", "size", "cluster"], observed=True)
    each = squares.agg(square=("far", "mean"), cells=("far", "size")).reset_index()
    groups = each.groupby(["where", "size"], observed=True)
    found = groups.agg(clusters=("cluster", "nunique"), cells=("cells", "sum"), log_sd=("square", "mean"))
    return _by_size(found.assign(log_sd=np.sqrt(found["log_sd"])).reset_index(), ["where"])


def growth_with_gpus(points: pd.DataFrame) -> pd.DataFrame:
    """Uncertainty per doubling of GPUs beyond the measured number, besides the fit's (``needed_log_sd``).

    points  of ``large_left_out``
    One row for Slingshot and one for all other networks, per class of sizes: clusters, cells, log_sd.
    """
    far = points[points["doublings"] > 0]
    network = {name: str(load_machine(name).links.network) for name in far["machine"].unique()}
    has_own = {name for name, known in load_priors().network.items() if known.growth_log_sd is not None}
    stored = np.concatenate(
        [
            growth_log_sd(load_machine(name), np.array([size]))
            for name, size in zip(far["machine"], far["payload_bytes"], strict=True)
        ]
    )
    far = far.assign(
        where=[network[name] if network[name] in has_own else "others" for name in far["machine"]],
        rest=_without(far, stored**2 * far["doublings"].to_numpy(float)),
        cluster=far["machine"],
    )
    return _needed(far, "doublings")


def alone(points: pd.DataFrame) -> pd.DataFrame:
    """Additional uncertainty for ranks in one domain, if no similar group was measured (``needed_log_sd``).

    points  of ``clusters_left_out``
    One row per class of sizes: clusters, cells, log_sd.
    """
    own = load_priors().uncertainty.no_group_inside_log_sd
    rows = points[points["doublings"].isna() & (points["where"] == "in")]
    return _needed(rows.assign(rest=_without(rows, np.full(len(rows), own**2)), once=1.0), "once")


def law_itself(points: pd.DataFrame) -> pd.DataFrame:
    """Error of the law across domains for a cluster, besides the uncertainty of its parameters.

    It is the root mean square over clusters; each cluster gives the value that it needs (``needed_log_sd``).
    points  of ``clusters_left_out``
    One row per class of sizes for all networks except networks with a spread of their own: clusters, cells,
    log_sd.
    """
    rows = _by_the_law(points)
    each = pd.concat(
        [_needed(own, "once").assign(cluster=name) for name, own in rows.groupby("cluster", observed=True)]
    )
    groups = each.assign(square=each["log_sd"] ** 2).groupby(["where", "size"], observed=True)
    found = groups.agg(clusters=("cluster", "nunique"), cells=("cells", "sum"), log_sd=("square", "mean"))
    return _by_size(found.assign(log_sd=np.sqrt(found["log_sd"])).reset_index(), ["where"])


def halves(points: pd.DataFrame) -> pd.DataFrame:
    """Cross-validation of ``law_itself``: estimated on half of the clusters, tested on the other half.

    points  of ``clusters_left_out``
    One row for each half used and each class of sizes: fixed_on (the half used), size, log_sd; clusters and
    points of the other half, and inside, the share of them in their band. Networks with a spread of their own
    have too few clusters to halve.
    """
    rows = _by_the_law(points)
    rows = rows[rows["where"] == "others"]
    names, found = sorted(rows["cluster"].unique()), []
    for half, fixing in (("first", names[::2]), ("second", names[1::2])):
        mine = rows["cluster"].isin(fixing)
        fixed = law_itself(points[points["cluster"].isin(fixing)]).query("where == 'others'")
        for row in fixed.to_dict("records"):
            others = rows[~mine & (rows["size"] == row["size"])]
            wide = _Z95 * np.hypot(others["rest"].to_numpy(float), row["log_sd"])
            inside = float((others["log_error"].abs().to_numpy(float) <= wide).mean())
            counts = {"clusters": others["cluster"].nunique(), "points": len(others)}
            found.append(
                {"fixed_on": half, "size": row["size"], "log_sd": row["log_sd"], **counts, "inside": inside}
            )
    return pd.DataFrame(found)


def _by_the_law(points: pd.DataFrame) -> pd.DataFrame:
    """Points across domains that a law predicts without their cluster; column rest: log_sd of other parts."""
    rows = points[(points["where"] == "across") & ~points["known"] & (points["how"] == "refitted")]
    network = {name: str(load_machine(name).links.network) for name in rows["machine"].unique()}
    has_own = {name for name, known in load_priors().network.items() if known.law_log_sd is not None}
    kinds = [network[name] if network[name] in has_own else "others" for name in rows["machine"]]
    sizes = rows["payload_bytes"].to_numpy(float)
    stored = np.array(
        [
            float(law_log_sd(load_machine(name), size))
            for name, size in zip(rows["machine"], sizes, strict=True)
        ]
    )
    return rows.assign(where=kinds, rest=_without(rows, stored**2), once=1.0)


def needed_log_sd(log_error: Floats, rest_log_sd: Floats, times: Floats) -> float:
    """The s with which 95 % of the points are inside their band: |ln error| <= 1.96 sqrt(rest^2 + s^2 times).

    log_error    ln(predicted / measured) of each point;  rest_log_sd  its other uncertainty, rest
    times        factor on s^2 for each point, such as doublings of GPUs
    Source: definition of a 95 % band
    Limits: rest enough -> 0;  rest = 0, times = 1 -> the 95 % quantile of |ln error| over 1.96
    """

    def excess(s: float) -> float:
        wide = np.sqrt(rest_log_sd**2 + s**2 * times)
        return float(np.quantile(np.abs(log_error) / np.maximum(wide, 1e-9), _INSIDE)) - _Z95

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, _LARGEST, xtol=1e-6))


def _without(points: pd.DataFrame, variance: Floats) -> Floats:
    """Standard deviation of ln t by the points' bands, after a part with this variance is subtracted."""
    whole = np.log((points["high_s"] / points["low_s"]).to_numpy(float)) / (2 * _Z95)
    return np.asarray(np.sqrt(np.maximum(whole**2 - variance, 0.0)))


def _needed(points: pd.DataFrame, times: str) -> pd.DataFrame:
    cell = ["cluster", "collective", "gpus", "gpus_per_node"]
    rows = []
    for (where, size), group in points.groupby(["where", "size"], observed=True):
        columns = (group[name].to_numpy(float) for name in ("log_error", "rest", times))
        counts = {"clusters": group["cluster"].nunique(), "cells": len(group[cell].drop_duplicates())}
        rows.append({"where": where, "size": size, **counts, "log_sd": needed_log_sd(*columns)})
    return _by_size(pd.DataFrame(rows), ["where"])


def _by_size(rows: pd.DataFrame, first: list[str]) -> pd.DataFrame:
    """The rows sorted by the columns ``first``, then by class of sizes, smallest sizes first."""
    order = [measured.SIZES.index(size) for size in rows["size"]]
    return rows.assign(_order=order).sort_values([*first, "_order"]).drop(columns="_order")
