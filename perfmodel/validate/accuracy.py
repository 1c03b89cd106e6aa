"""Errors of predicted collectives on points that the fit did not use.

Each function returns a data frame of points with predictions; nothing here prints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import NoCalibrationError
from perfmodel.fit.curves import CurveFit, fit_curve, local_spread
from perfmodel.fit.laws import learn_networks
from perfmodel.fit.shipped import Entry, Selection, find_cluster_cells, fit_entry, load_plan
from perfmodel.schema.calibration import Calibration, Curve, shipped_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import Priors, load_priors
from perfmodel.units import format_fraction, format_ratio
from perfmodel.validate import measured
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

IN_NODE_MACHINES = ("h100-sxm-ib", "h200-sxm-ib", "b200-sxm-ib", "a100-sxm-ib")
IN_NODE_GPUS = (2, 4, 8)
_TWO = 2
_FEWEST_SIZES = 4
"""Fewest sizes of a measured curve from which one size can be left out."""


def predict_left_out_sizes(gpus: Collection[int] = IN_NODE_GPUS) -> pd.DataFrame:
    """Every size of every one-node cell, predicted by the model with that size left out of its curve.

    A cell is a collective on a number of GPUs; its curve is its time against size. The preferred NCCL
    calibration of each machine is used.
    gpus  numbers of ranks of the cells
    Columns of ``judged``, and machine
    """
    import pandas as pd

    parts = []
    for name in IN_NODE_MACHINES:
        machine, entry = load_machine(name), measured.list_preferred_entries()[name]
        calibration = shipped_calibration(entry.calibration_id)
        points = measured.list_measured_points(entry, measured.load_shipped_samples())
        points = points[(points["nodes"] == 1) & points["gpus"].isin(list(gpus))]
        for _, cell in points.groupby(["collective", "gpus"], observed=True):
            if len(cell) >= _FEWEST_SIZES:
                parts.append(_predict_left_out(cell, machine, calibration).assign(machine=name))
    return measured.judge_points(pd.concat(parts))


def _predict_left_out(cell: pd.DataFrame, machine: Machine, calibration: Calibration) -> pd.DataFrame:
    """The points of a measured curve, each size predicted from the other sizes."""
    sizes, times = cell["payload_bytes"].to_numpy(float), cell["time_s"].to_numpy(float)
    collective, gpus = str(cell["collective"].iloc[0]), int(cell["gpus"].iloc[0])
    node = int(cell["gpus_per_node"].iloc[0])
    curve = calibration.curve(collective, gpus, int(cell["domain_gpus"].iloc[0]))
    if curve is None:
        raise NoCalibrationError(
            f"{calibration.calibration_id} has no curve for {collective} on {gpus} GPUs, but samples of it.",
            "rebuild the shipped calibrations.",
        )
    remaining = [np.arange(sizes.size) != i for i in range(sizes.size)]
    fits = [fit_curve(sizes[kept_rows], times[kept_rows]) for kept_rows in remaining]
    errors = np.array([float(f.time(s)) / t - 1 for f, s, t in zip(fits, sizes, times, strict=True)])
    columns = np.empty((3, sizes.size))
    for i, kept_rows in enumerate(remaining):
        alone = _replace_fit(curve, fits[i], errors[kept_rows])
        refitted = calibration.model_copy(update={"curves": [alone], "this_cluster": True})
        model = CollectiveModel(machine, refitted)
        estimate = model.estimate(collective, sizes[i], gpus, node)
        columns[:, i] = float(estimate.time_s), float(estimate.low_s), float(estimate.high_s)
    return cell.assign(predicted_s=columns[0], low_s=columns[1], high_s=columns[2])


def _replace_fit(curve: Curve, fit: CurveFit, errors: Floats) -> Curve:
    """The curve with the parameters, anchors and spread of a fit to fewer points.

    errors   leave-one-out errors of the remaining points, so that a point does not affect its own interval
    """

    def near(value: float) -> dict[str, float]:
        return {"value": value, "low": value, "high": value}

    fewer = {
        "alpha_s": near(fit.alpha_s),
        "beta_bytes_per_s": near(fit.beta_bytes_per_s),
        "p": near(fit.p),
        "anchor_bytes": fit.anchor_bytes.tolist(),
        "anchor_times_s": np.maximum.accumulate(fit.anchor_times_s).tolist(),
        "anchor_log_sd": fit.anchor_log_sd,
        "left_out_log_sd": local_spread(errors).tolist(),
    }
    return Curve.model_validate(curve.model_dump() | fewer)


def predict_two_nodes(
    with_clusters: bool = True, backend: Backend = Backend.NCCL, machines: Collection[str] = ()
) -> pd.DataFrame:
    """Two-node measurements of the preferred calibrations, predicted by a fit to one-node measurements only.

    Measurements on more nodes are neither used nor predicted.
    with_clusters  whether clusters of other machines inform the network constants; if not, these are NCCL's
                   own and the datasheet's
    machines       only these machines (empty: all)
    Columns of ``judged``, and machine, clock. On an NVL72 the second tray is in the same domain.
    """
    import pandas as pd

    samples, parts = measured.load_shipped_samples(), []
    for name, entry in measured.list_preferred_entries(backend).items():
        points = measured.list_measured_points(entry, samples)
        held_out = points[points["nodes"] == _TWO]
        if (machines and name not in machines) or held_out.empty or not (points["nodes"] == 1).any():
            continue
        model = CollectiveModel(load_machine(name), fit_one_node(entry, with_clusters))
        parts.append(measured.predict_points(held_out, model).assign(machine=name, clock=str(entry.clock)))
    return pd.concat(parts)


def fit_one_node(entry: Entry, with_clusters: bool = True) -> Calibration:
    """A calibration fitted to an entry's one-node measurements."""
    priors = (
        learn_priors_without(entry.sources)
        if with_clusters
        else load_priors().model_copy(update={"learned": {}})
    )
    return fit_entry(entry, measured.load_shipped_samples(), without_nodes=_TWO, priors=priors)


OTHER_CLUSTERS = {
    "nccltests_issue309_aion": "h100-sxm-ib",  # 8 H100 a node, 400G
    "azure_aks_ib": "a100-sxm-ib",  # 8 A100 a node, HDR
    "aws_readme_p5_2.18": "h100-sxm-efa",  # p5, NCCL 2.18
}
"""Machine of each healthy cluster whose samples inform no fit, by source. ``bands`` checks the first two."""


def predict_other_clusters(sources: Iterable[str] = tuple(OTHER_CLUSTERS)) -> pd.DataFrame:
    """Samples of several nodes that inform no fit, predicted by the shipped calibration of their machine.

    Columns of ``judged`` and machine, source_id.
    """
    import pandas as pd

    parts = []
    for source in sources:
        name = OTHER_CLUSTERS[source]
        entry = measured.list_preferred_entries()[name]
        selected = entry.model_copy(update={"cells": [Selection(sources=[source])]})
        points = measured.list_measured_points(selected, measured.load_shipped_samples())
        model = CollectiveModel(load_machine(name), shipped_calibration(entry.calibration_id))
        across = points[points["nodes"] >= _TWO]
        parts.append(measured.predict_points(across, model).assign(machine=name, source_id=source))
    return pd.concat(parts)


@lru_cache(maxsize=64)
def learn_priors_without(sources: frozenset[str]) -> Priors:
    """The prior knowledge (priors) learned without the samples of some sources."""
    priors = load_priors()
    if not any(cluster.sources & sources for cluster in load_plan().cluster):
        return priors
    clusters = find_cluster_cells(measured.load_shipped_samples(), sources)
    learned = learn_networks(clusters, priors.model_copy(update={"learned": {}}))
    return priors.model_copy(update={"learned": learned})


_FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "in_node": predict_left_out_sizes,
    "other_cluster": lambda: predict_other_clusters(list(OTHER_CLUSTERS)[:2]),
    "two_nodes": predict_two_nodes,
}
"""Points that no fit used, by their name in a row."""


@lru_cache(maxsize=8)
def _read_points(of: str) -> pd.DataFrame:
    return _FRAMES[of]()


def judge_left_out(of: str, answer: str, share: float = 0.5, **only: Sequence[str | bool]) -> Finding:
    """A summary of the errors of points that no fit used.

    of  which points;  answer, share  as in ``summarize``;  only  values allowed in columns, by column
    """
    points = _read_points(of)
    for column, wanted in only.items():
        points = points[points[column].isin(wanted)]
    return summarize(points, answer, f"{len(points)} points", share)


def summarize(points: pd.DataFrame, answer: str, many: str, share: float = 0.5) -> Finding:
    """A summary of the errors of points.

    answer  "inside": share of the points in their bands; "error": the error that a share ``share`` of the
            points does not exceed; "ratio": median of predicted over measured time
    many    number of points, in words
    """
    if answer == "ratio":
        ratio = 1 + float(points["error"].median())
        return Finding(ratio, f"{format_ratio(ratio)} of {many}")
    value = float(points["inside"].mean() if answer == "inside" else points["error"].abs().quantile(share))
    return Finding(value, f"{format_fraction(value)} of {many}")
