"""Predicts whole clusters, or large groups of nodes, by fits that did not use their samples.

Data frames of points with predictions (``measured.judged``); ``band_parts`` estimates the parts of a band in
``data/priors/collectives.toml`` from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.fit.build import FORCED, usable_samples
from perfmodel.fit.links import fit_law
from perfmodel.fit.shipped import Entry, fit_entry
from perfmodel.resources import data_path
from perfmodel.schema.calibration import Calibration, shipped_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.validate import accuracy, measured
from perfmodel.validate.without import priors_without, sources_of

OPERATORS = {"aic_": "aic", "xxrjun_c01_": "xxrjun_c01"}
"""Prefixes of sources that are one cluster; any other source is a cluster of its own."""
FAMILIES = {"all_gather": "ring", "reduce_scatter": "ring"}
"""Collectives with one law are judged together; all others by name."""


@dataclass(frozen=True)
class NodesLeftOut:
    """A test: groups with ``without_nodes`` nodes or more are predicted by a fit to groups with fewer."""

    machine: str
    without_nodes: int


LARGE_LEFT_OUT = (
    NodesLeftOut("h100-sxm-ib", 3),
    NodesLeftOut("h100-sxm-efa", 3),
    NodesLeftOut("h100-sxm-efa", 5),
    NodesLeftOut("gh200-slingshot", 3),
    NodesLeftOut("gh200-slingshot", 9),
    NodesLeftOut("gh200-slingshot", 65),
    NodesLeftOut("a100-slingshot", 3),
    NodesLeftOut("a100-slingshot", 9),
    NodesLeftOut("gb200-nvl72", 5),
)
"""Nine nodes of four GPUs: a fit to 32 GPUs predicts 64 and more. 65: a fit to 256 predicts 512 to 2 048.

On GB200 NVL72 nodes are trays of four GPUs in one domain: 16 GPUs are fitted, 32 to 64 predicted.
"""
LAUNCH_BOUND = "single-process"
"""Variant of runs in which one process launched all GPUs: launches dominate small messages."""


def cluster_of(source_id: str) -> str:
    """Name of the cluster on which a source's samples were measured."""
    return next((name for start, name in OPERATORS.items() if source_id.startswith(start)), source_id)


def clusters_left_out(machines: Collection[str] = ()) -> pd.DataFrame:
    """Every cluster of the shipped samples, predicted by a calibration of its kind without its samples.

    Its samples are removed from the curves, the laws, and the learned priors of its network.
    machines   only these (empty: all)
    Columns of ``told``, and machine, cluster, how: "refitted"; "shipped" if no fit used the cluster anyway;
    "version" for a cluster that the calibration knows with another version of the library.
    """
    parts: list[pd.DataFrame] = []
    for name, entry in measured.preferred_entries().items():
        if not machines or name in machines:
            parts += _left_out_of(entry)
    return pd.concat(parts, ignore_index=True)


def _left_out_of(entry: Entry) -> Iterator[pd.DataFrame]:
    """The points of each cluster of one machine."""
    samples = measured.shipped_samples()
    nccl = samples[samples["backend"] == str(Backend.NCCL)]
    known = sources_of(entry)
    rows = nccl[
        (nccl["machine"] == entry.machine)
        & (nccl["clock"] == str(entry.clock))
        & nccl["flag"].isin(["", "ok"])
        & (nccl["variant"] != LAUNCH_BOUND)
        & ~nccl["source_id"].isin(known | _of_clusters())
    ]
    mine = {cluster_of(source) for source in known}
    for source, own in rows.groupby("source_id", observed=True):
        how = "version" if cluster_of(str(source)) in mine else "shipped"
        yield from _predicted(entry, load_machine(entry.machine), str(source), set(), own, how)
    selected = entry.rows(nccl)
    for name in sorted(mine - {cluster_of(source) for source in _of_clusters()}):
        sources = {source for source in known if cluster_of(source) == name}
        own = selected[selected["source_id"].isin(sources)]
        yield from _predicted(entry, load_machine(entry.machine), name, sources, own, "refitted")
    for cluster in measured.shipped_clusters():
        if cluster.machine == entry.machine and not cluster.network:
            sources = cluster.sources | {s for s in known if cluster_of(s) == cluster.name}
            own = pd.concat(
                [s.rows(nccl) for s in cluster.cells] + [selected[selected["source_id"].isin(sources)]]
            )
            own = own[~own.index.duplicated() & ~own["variant"].isin(FORCED)]
            yield from _predicted(entry, cluster.built(), cluster.name, sources, own, "refitted")


def _predicted(
    entry: Entry, machine: Machine, name: str, sources: set[str], rows: pd.DataFrame, how: str
) -> Iterator[pd.DataFrame]:
    """The rows of a cluster, predicted by the entry's calibration without the cluster's sources.

    how  value of the column ``how``
    """
    usable = usable_samples(rows)
    if not usable.empty:
        points = told(usable, machine, calibration_without(entry, frozenset(sources)))
        yield points.assign(machine=entry.machine, cluster=name, how=how)


def _of_clusters() -> set[str]:
    return {source for cluster in measured.shipped_clusters() for source in cluster.sources}


def large_left_out(cases: Collection[NodesLeftOut] = LARGE_LEFT_OUT) -> pd.DataFrame:
    """Groups with many nodes of a cluster, predicted by a fit to fewer nodes of the same cluster.

    Columns of ``told``, and machine, seen_nodes (most nodes in the fit).
    """
    samples, parts = measured.shipped_samples(), []
    for case in cases:
        entry, machine = measured.preferred_entries()[case.machine], load_machine(case.machine)
        rows = measured.measured_rows(entry, samples)
        priors = priors_without(sources_of(entry))
        own = fit_entry(entry, samples, case.without_nodes, priors=priors, this_cluster=True)
        points = told(rows[rows["nodes"] >= case.without_nodes], machine, own)
        seen = int(rows.loc[rows["nodes"] < case.without_nodes, "nodes"].max())
        parts.append(points.assign(machine=case.machine, seen_nodes=seen))
    return pd.concat(parts, ignore_index=True)


def told(rows: pd.DataFrame, machine: Machine, calibration: Calibration) -> pd.DataFrame:
    """Medians of samples with their predictions, and columns that classify them.

    Columns of ``measured.judged``, and family (``FAMILIES``), where ("in" a scale-up domain or "across"
    several), known (whether the fit has this collective, these GPUs and such sizes), doublings (of GPUs
    beyond the measured number), log_error = ln(predicted / measured).
    """
    rows = rows[rows["collective"].isin(COLLECTIVES)]
    points = measured.predicted(measured.medians(rows, machine), CollectiveModel(machine, calibration))
    across = points["gpus"] > points["domain_gpus"]
    collectives = points["collective"].astype(str)
    cells = list(
        zip(collectives, points["gpus"], points["domain_gpus"], points["payload_bytes"], strict=True)
    )
    return points.assign(
        family=[FAMILIES.get(name, name) for name in collectives],
        where=np.where(across, "across", "in"),
        known=[_known(calibration, name, int(g), int(d), float(size)) for name, g, d, size in cells],
        doublings=[_doublings(calibration, name, int(g), int(d)) for name, g, d, _ in cells],
        log_error=np.log(points["predicted_s"] / points["time_s"]),
    )


def _known(calibration: Calibration, collective: str, gpus: int, domain_gpus: int, size: float) -> bool:
    """Whether the calibration has measured this collective on these GPUs, at such sizes."""
    curve = calibration.curve(collective, gpus, domain_gpus)
    return curve is not None and curve.anchor_bytes[0] <= size <= curve.anchor_bytes[-1]


def _doublings(calibration: Calibration, collective: str, gpus: int, domain_gpus: int) -> float:
    """log2 of the GPUs over the most on which the collective was measured, in a domain or across several.

    Limits: at most the measured number -> 0
    """
    across = gpus > domain_gpus
    seen = [
        c.gpus
        for c in calibration.curves
        if c.collective == collective and (c.gpus > c.domain_gpus) == across and c.gpus > 1
    ]
    return float(np.log2(max(gpus / max(seen), 1.0))) if seen else float("nan")


def calibration_without(entry: Entry, sources: frozenset[str]) -> Calibration:
    """The calibration of an entry, fitted without the samples of some sources."""
    priors = priors_without(sources)
    rest = without_sources(entry, sources)
    if rest.cells:
        return fit_entry(rest, measured.shipped_samples(), priors=priors)
    machine = load_machine(entry.machine)
    laws = [
        law.model_copy(update=dict(fit_law(law.law, [], machine, priors)) | {"collectives": law.collectives})
        for law in shipped_calibration(measured.identity(entry)).laws
    ]
    return shipped_calibration(measured.identity(entry)).model_copy(update={"curves": [], "laws": laws})


def without_sources(entry: Entry, sources: Collection[str]) -> Entry:
    """The entry without some sources. Limits: none is left -> an entry without cells"""
    fewer = [
        s.model_copy(update={"sources": [one for one in s.sources if one not in sources]})
        for s in entry.cells
    ]
    return entry.model_copy(update={"cells": [s for s in fewer if s.sources]})


def without_the_machine(machines: Collection[str] = ()) -> pd.DataFrame:
    """All cells of a machine that resembles another, predicted with the other's calibration,
    fitted without this one.

    Cells whose samples that fit used (an instance with the same node) are left out.
    machines   only these (empty: all)
    Columns of ``judged``, and machine, like (the other), where ("in" a scale-up domain or "across" several).
    """
    preferred, parts = measured.preferred_entries(), []
    for name, entry in preferred.items():
        machine = load_machine(name)
        like = machine.links.like
        if (machines and name not in machines) or like not in preferred:
            continue
        lender = _fitted(like)
        seen = {source for curve in lender.curves for source in curve.sources}
        points = measured.measured_points(entry, measured.shipped_samples())
        own = points[[not seen & set(text.split()) for text in points["sources"]]]
        if len(own):
            result = measured.predicted(own, CollectiveModel(machine, lender))
            inside = result["gpus"] <= result["domain_gpus"]
            where = np.where(inside, "in", "across")
            parts.append(result.assign(machine=name, like=like, where=where))
    return pd.concat(parts)


@lru_cache(maxsize=16)
def _fitted(machine: str) -> Calibration:
    """The preferred NCCL calibration of a machine, fitted again."""
    return fit_entry(measured.preferred_entries()[machine], measured.shipped_samples())


_PREDICTED = ["time_s", "predicted_s", "low_s", "high_s"]


def stored_sizes() -> pd.DataFrame:
    """What ``accuracy.sizes_left_out`` reads (0.6 s per machine)."""
    points = accuracy.leave_one_size_out(gpus=(8,))
    cell = ["machine", "collective", "gpus", "payload_bytes", "sources"]
    return points[cell + _PREDICTED].reset_index(drop=True)


def save(large: pd.DataFrame) -> None:
    """Write what pages show of points left out, which ``accuracy`` reads. large  of ``large_left_out``"""
    cell = ["machine", "seen_nodes", "collective", "gpus", "gpus_per_node", "nodes", "payload_bytes"]
    for name, frame, digits in (
        ("sizes_left_out", stored_sizes(), None),
        ("nodes_left_out", large[cell + _PREDICTED], "%.5g"),
    ):
        path = data_path("validation", f"{name}.csv")
        frame.to_csv(path, index=False, float_format=digits, lineterminator="\n")


def summary(points: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A row for each group of points with equal values in the columns ``by``.

    Columns: n (points), median and p90 of |error|, bias (median error), inside (share), width (median
    high/low).
    """
    rows = []
    ordered = points.assign(_order=[measured.SIZES.index(s) for s in points["size"]])
    ordered = ordered.sort_values([*(c for c in by if c != "size"), "_order"], kind="stable")
    for key, group in ordered.groupby(by, sort=False, observed=True):
        size = np.abs(group["error"])
        rows.append(
            dict(zip(by, key, strict=True))
            | {
                "n": len(group),
                "median": float(size.median()),
                "p90": float(size.quantile(0.9)),
                "bias": float(group["error"].median()),
                "inside": float(group["inside"].mean()),
                "width": float((group["high_s"] / group["low_s"]).median()),
            }
        )
    return pd.DataFrame(rows)
