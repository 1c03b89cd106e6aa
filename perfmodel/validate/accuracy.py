"""Errors of predicted collectives on points that the fit did not use.

Each function returns a data frame of points with predictions; nothing here prints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.time_tables import find_curve_errors
from perfmodel.fit.curve_fits import fit_curve, local_spread
from perfmodel.fit.law_fits import learn_networks
from perfmodel.fit.shipped import Entry, Selection, find_cluster_cells, fit_entry, load_plan
from perfmodel.schema.calibration import Calibration, shipped_calibration
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import Priors, load_priors
from perfmodel.units import counted, format_fraction, format_ratio
from perfmodel.validate import medians
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

IN_NODE_MACHINES = ("h100-sxm-ib", "h200-sxm-ib", "b200-sxm-ib", "a100-sxm-ib")
IN_NODE_GPUS = (2, 4, 8)


def predict_left_out_sizes(gpus: Collection[int] = IN_NODE_GPUS) -> pd.DataFrame:
    """Every size of every one-node cell, predicted by a curve that is fitted without that size.

    A cell is a collective on a number of GPUs; its curve is its time against size. The preferred NCCL
    calibration of each machine is used.
    gpus  numbers of ranks of the cells
    Columns of ``judged``, and machine
    """
    import pandas as pd

    parts = []
    for name in IN_NODE_MACHINES:
        entry = medians.list_preferred_entries()[name]
        points = medians.list_measured_points(entry, medians.load_shipped_samples())
        points = points[(points["nodes"] == 1) & points["gpus"].isin(list(gpus))]
        cells = points.groupby(["collective", "gpus"])
        parts += [_predict_left_out(cell).assign(machine=name) for _, cell in cells]
    return medians.judge_points(pd.concat(parts))


def _predict_left_out(cell: pd.DataFrame) -> pd.DataFrame:
    """The points of a measured curve, each size predicted by a curve of the other sizes.

    A point does not affect its own interval: the errors in it are those of the other sizes.
    """
    sizes = cell["payload_bytes"].to_numpy(float)
    times = cell["time_s"].to_numpy(float)
    remaining = [np.arange(sizes.size) != i for i in range(sizes.size)]
    fits = [fit_curve(sizes[others], times[others]) for others in remaining]
    errors = np.array([float(fit.time(size)) for fit, size in zip(fits, sizes, strict=True)]) / times - 1
    columns = np.empty((3, sizes.size))
    for i, (fit, others) in enumerate(zip(fits, remaining, strict=True)):
        wide = find_curve_errors(fit.anchor_bytes, local_spread(errors[others]), fit.anchor_log_sd, sizes)
        logs = np.log(fit.time(sizes)) + np.multiply.outer([0, -1, 1], wide)
        columns[:, i] = np.exp(np.maximum.accumulate(logs, axis=1))[:, i]  # no size is faster than a smaller
    return cell.assign(predicted_s=columns[0], low_s=columns[1], high_s=columns[2])


def predict_two_nodes(with_clusters: bool = True) -> pd.DataFrame:
    """Two-node measurements of the preferred calibrations, predicted by a fit to one-node measurements only.

    Measurements on more nodes are neither used nor predicted.
    with_clusters  whether clusters of other machines inform the network constants; if not, these are NCCL's
                   own and the datasheet's
    Columns of ``judged``, and machine, clock. On an NVL72 the second tray is in the same domain.
    """
    import pandas as pd

    samples = medians.load_shipped_samples()
    parts = []
    for name, entry in medians.list_preferred_entries().items():
        points = medians.list_measured_points(entry, samples)
        if {1, 2}.issubset(points["nodes"]):
            model = CollectiveModel(load_machine(name), fit_one_node(entry, with_clusters))
            predicted = medians.predict_points(points[points["nodes"] == 2], model)
            parts.append(predicted.assign(machine=name, clock=str(entry.clock)))
    return pd.concat(parts)


def fit_one_node(entry: Entry, with_clusters: bool = True) -> Calibration:
    """A calibration fitted to an entry's one-node measurements; as ``predict_two_nodes`` says."""
    priors = (
        learn_priors_without(entry.sources)
        if with_clusters
        else load_priors().model_copy(update={"learned": {}})
    )
    samples = medians.load_shipped_samples()
    return fit_entry(entry, samples[samples["nodes"] == 1], priors=priors)


OTHER_CLUSTERS = {
    "nccltests_issue309_aion": "h100-sxm-ib",  # 8 H100 a node, 400G
    "azure_aks_ib": "a100-sxm-ib",  # 8 A100 a node, HDR
    "aws_readme_p5_2.18": "h100-sxm-efa",  # p5, NCCL 2.18
}
"""Machine of each healthy cluster whose samples inform no fit, by source."""


def predict_other_clusters() -> pd.DataFrame:
    """Samples of several nodes that inform no fit, predicted by the shipped calibration of their machine.

    A row for each sample: its own columns, predicted_s with low_s and high_s, machine, source_id.
    """
    import pandas as pd

    parts = []
    for source, name in OTHER_CLUSTERS.items():
        entry = medians.list_preferred_entries()[name]
        selected = entry.model_copy(update={"cells": [Selection(sources=[source])]})
        points = medians.list_measured_points(selected, medians.load_shipped_samples())
        model = CollectiveModel(load_machine(name), shipped_calibration(entry.calibration_id))
        across = points[points["nodes"] >= 2]
        parts.append(medians.predict_points(across, model).assign(machine=name, source_id=source))
    return pd.concat(parts)


@lru_cache(maxsize=64)
def learn_priors_without(sources: frozenset[str]) -> Priors:
    """The prior knowledge (priors) learned without the samples of some sources."""
    priors = load_priors()
    if not any(cluster.sources & sources for cluster in load_plan().cluster):
        return priors
    clusters = find_cluster_cells(medians.load_shipped_samples(), sources)
    learned = learn_networks(clusters, priors.model_copy(update={"learned": {}}))
    return priors.model_copy(update={"learned": learned})


_FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "in_node": cache(predict_left_out_sizes),
    "other_clusters": cache(predict_other_clusters),
    "two_nodes": cache(predict_two_nodes),
}
"""Points that no fit used, by their name in a row."""


def judge_left_out(of: str, answer: str, share: float = 0.5, **only: Sequence[str | bool]) -> Finding:
    """A summary of the errors of points that no fit used.

    of  which points;  answer, share  as in ``summarize``;  only  values allowed in columns, by column
    """
    points = _FRAMES[of]()
    for column, wanted in only.items():
        points = points[points[column].isin(wanted)]
    return summarize(points, answer, counted(len(points), "point"), share)


def summarize(points: pd.DataFrame, answer: str, many: str, share: float = 0.5) -> Finding:
    """A summary of the errors of points.

    answer  "inside": share of the points in their bands; "error": the error that a share ``share`` of the
            points does not exceed; "ratio": median of predicted over measured time
    many    number of points, in words
    """
    if answer == "ratio":
        ratio = 1 + float(points["error"].median())
        return Finding(ratio, f"{format_ratio(ratio)}, {many}")
    value = float(points["inside"].mean() if answer == "inside" else points["error"].abs().quantile(share))
    return Finding(value, f"{format_fraction(value)}, {many}")
