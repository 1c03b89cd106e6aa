"""Predicts whole operators, or large groups of nodes, by fits that did not use their samples.

Data frames of points with predictions (``medians.judge_points``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import across_rate
from perfmodel.collectives.time_tables import name_links
from perfmodel.fit.build import FORCED, select_usable
from perfmodel.fit.law_fits import fit_law
from perfmodel.fit.shipped import Entry, fit_entry, load_plan
from perfmodel.resources import data_path
from perfmodel.schema.calibration import Calibration, shipped_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.validate import accuracy, medians

OPERATORS = {
    **{f"{name}_": name for name in ("aic", "alcf", "aws", "cscs", "ctc", "gcp", "xxrjun")},
    "clariden_": "cscs",
    "pico_mn5_": "mn5",
}
"""Prefixes of the sources of one operator; any other source is an operator of its own."""
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
"""Nine nodes of four GPUs: a fit to 32 GPUs predicts 64 and more. 65: a fit to 256 predicts 512 to 2 048."""
LAUNCH_BOUND = "single-process"
"""Variant of runs in which one process launched all GPUs: launches dominate small messages."""


def operator_of(source_id: str) -> str:
    """Who measured a source: whoever runs a cluster, or publishes runs on clusters of others."""
    return next((name for start, name in OPERATORS.items() if source_id.startswith(start)), source_id)


@dataclass(frozen=True)
class LeftOut:
    """One source on one machine, and the calibration of its kind that never saw the operator's sources."""

    operator: str
    machine: Machine
    rows: pd.DataFrame
    calibration: Calibration


@lru_cache(maxsize=1)
def operators() -> tuple[LeftOut, ...]:
    """Every operator of the shipped samples with every machine of it, fitted once."""
    nccl = medians.load_shipped_samples().query(f"backend == '{Backend.NCCL}'")
    sources: dict[str, set[str]] = {}
    for source in nccl["source_id"].unique():
        sources.setdefault(operator_of(str(source)), set()).add(str(source))
    parts = []
    for entry in medians.list_preferred_entries().values():
        fits: dict[str, Calibration] = {}
        for machine, rows in find_machines(entry, nccl):
            for source, group in select_usable(rows).groupby("source_id", observed=True):
                name = operator_of(str(source))
                if name not in fits:
                    fits[name] = fit_without(entry, frozenset(sources[name]))
                parts.append(LeftOut(name, machine, group, fits[name]))
    return tuple(parts)


def find_machines(entry: Entry, nccl: pd.DataFrame) -> Iterator[tuple[Machine, pd.DataFrame]]:
    """(machine, its samples) of the machine of an entry, and of each cluster that has other cards.

    Of the operators that a calibration knows, its cells: other versions of a library are no other operator.
    Samples that a machine has of another with the same node count there.
    """
    clusters = [c for c in load_plan().cluster if c.machine == entry.machine and not c.network]
    of_clusters = {source for cluster in clusters for source in cluster.sources}
    cells = pd.concat([entry.rows(nccl)] + [s.rows(nccl) for c in clusters if not c.values for s in c.cells])
    sources_seen = {operator_of(source) for source in (*entry.sources, *of_clusters)}
    points_left = nccl[
        (nccl["machine"] == entry.machine)
        & (nccl["clock"] == str(entry.clock))
        & nccl["flag"].isin(["", "ok"])
        & (nccl["variant"] != LAUNCH_BOUND)
        & ~nccl["source_id"].astype(str).map(operator_of).isin(sources_seen)
    ]
    rows = pd.concat([cells[cells["machine"].isin(["", entry.machine])], points_left])
    yield load_machine(entry.machine), rows[~rows.index.duplicated() & ~rows["variant"].isin(FORCED)]
    for cluster in clusters:
        if cluster.values:
            rows = pd.concat([s.rows(nccl) for s in cluster.cells])
            yield cluster.built(), rows[~rows["variant"].isin(FORCED)]


@lru_cache(maxsize=2)
def operators_left_out(*, law_alone: bool = False) -> pd.DataFrame:
    """Every operator, predicted by calibrations that never saw it.

    law_alone  without measured cells
    Columns of ``told``, and machine, operator, network, card_bytes_per_s.
    """
    parts = []
    for operator in operators():
        fewer: dict[str, list[object]] = {"curves": []} if law_alone else {}
        points = told(operator.rows, operator.machine, operator.calibration.model_copy(update=fewer))
        links = {"network": operator.machine.links.network, "card_bytes_per_s": across_rate(operator.machine)}
        parts.append(points.assign(machine=operator.machine.name, operator=operator.operator, **links))
    return pd.concat(parts, ignore_index=True)


def large_left_out(cases: Collection[NodesLeftOut] = LARGE_LEFT_OUT) -> pd.DataFrame:
    """Groups with many nodes of a cluster, predicted by a fit to fewer nodes of the same cluster.

    Columns of ``told``, and machine, seen_nodes (most nodes in the fit).
    """
    samples, parts = medians.load_shipped_samples(), []
    for case in cases:
        entry, machine = medians.list_preferred_entries()[case.machine], load_machine(case.machine)
        rows = medians.select_measured_rows(entry, samples)
        priors = accuracy.learn_priors_without(entry.sources)
        fewer = samples[samples["nodes"] < case.without_nodes]
        fitted = fit_entry(entry, fewer, priors=priors, this_cluster=True)
        points = told(rows[rows["nodes"] >= case.without_nodes], machine, fitted)
        seen = int(rows.loc[rows["nodes"] < case.without_nodes, "nodes"].max())
        parts.append(points.assign(machine=case.machine, seen_nodes=seen))
    return pd.concat(parts, ignore_index=True)


def told(rows: pd.DataFrame, machine: Machine, calibration: Calibration) -> pd.DataFrame:
    """Medians of samples with their predictions, and columns that classify them.

    Columns of ``medians.judge_points``, and family (``FAMILIES``), where ("in" a scale-up domain or "across"
    several), known (whether the fit has this collective, these GPUs and such sizes), links (network, or
    inside a domain what it is made of), log_error = ln(predicted / measured).
    """
    rows = rows[rows["collective"].isin(COLLECTIVES)]
    points = medians.predict_points(
        medians.take_medians(rows, machine), CollectiveModel(machine, calibration)
    )
    across = points["gpus"] > points["domain_gpus"]
    collectives = points["collective"].astype(str)
    cells = list(
        zip(collectives, points["gpus"], points["domain_gpus"], points["payload_bytes"], strict=True)
    )
    return points.assign(
        family=[FAMILIES.get(name, name) for name in collectives],
        where=np.where(across, "across", "in"),
        known=[find_known(calibration, name, int(g), int(d), float(size)) for name, g, d, size in cells],
        links=np.where(across, machine.links.network, name_links(machine, across=False)),
        log_error=np.log(points["predicted_s"] / points["time_s"]),
    )


def find_known(calibration: Calibration, collective: str, gpus: int, domain_gpus: int, size: float) -> bool:
    """Whether the calibration has measured this collective on these GPUs, at such sizes."""
    curve = calibration.curve(collective, gpus, domain_gpus)
    return curve is not None and curve.anchor_bytes[0] <= size <= curve.anchor_bytes[-1]


def fit_without(entry: Entry, sources: frozenset[str]) -> Calibration:
    """The calibration of an entry, fitted without the samples of some sources."""
    priors = accuracy.learn_priors_without(sources)
    remaining = without_sources(entry, sources)
    if remaining.cells:
        return fit_entry(remaining, medians.load_shipped_samples(), priors=priors)
    machine = load_machine(entry.machine)
    laws = [
        law.model_copy(update=dict(fit_law(law.law, [], machine, priors)) | {"collectives": law.collectives})
        for law in shipped_calibration(entry.calibration_id).laws
    ]
    return shipped_calibration(entry.calibration_id).model_copy(update={"curves": [], "laws": laws})


def without_sources(entry: Entry, sources: Collection[str]) -> Entry:
    """The entry without some sources. Limits: none is left -> an entry without cells"""
    fewer = [
        s.model_copy(update={"sources": [source for source in s.sources if source not in sources]})
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
    preferred, parts = medians.list_preferred_entries(), []
    for name, entry in preferred.items():
        machine = load_machine(name)
        like = machine.links.like
        if (machines and name not in machines) or like not in preferred:
            continue
        lender = fit_stored(like)
        seen = {source for curve in lender.curves for source in curve.sources}
        points = medians.list_measured_points(entry, medians.load_shipped_samples())
        unseen = points[[not seen & set(text.split()) for text in points["sources"]]]
        if len(unseen):
            result = medians.predict_points(unseen, CollectiveModel(machine, lender))
            inside = result["gpus"] <= result["domain_gpus"]
            where = np.where(inside, "in", "across")
            parts.append(result.assign(machine=name, like=like, where=where))
    return pd.concat(parts)


@lru_cache(maxsize=16)
def fit_stored(machine: str) -> Calibration:
    """The preferred NCCL calibration of a machine, fitted again."""
    return fit_entry(medians.list_preferred_entries()[machine], medians.load_shipped_samples())


_PREDICTED = ["time_s", "predicted_s", "low_s", "high_s"]


def stored_sizes() -> pd.DataFrame:
    """Sizes of 8 GPUs left out, as pages show them (0.6 s per machine)."""
    points = accuracy.predict_left_out_sizes(gpus=(8,))
    cell = ["machine", "collective", "gpus", "payload_bytes", "sources"]
    return points[cell + _PREDICTED].reset_index(drop=True)


def save(large: pd.DataFrame) -> None:
    """Write what pages show of points left out. large  of ``large_left_out``"""
    cell = ["machine", "seen_nodes", "collective", "gpus", "gpus_per_node", "nodes", "payload_bytes"]
    fewest = large[large["seen_nodes"] == large.groupby("machine")["seen_nodes"].transform("min")]
    for name, frame, digits in (
        ("sizes_left_out", stored_sizes(), None),
        ("clusters_left_out", accuracy.predict_other_clusters()[[*cell[:1], *cell[2:], *_PREDICTED]], "%.5g"),
        ("nodes_left_out", fewest[cell + _PREDICTED], "%.5g"),
    ):
        path = data_path("validation", f"{name}.csv")
        frame.to_csv(path, index=False, float_format=digits, lineterminator="\n")


def summary(points: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A row for each group of points with equal values in the columns ``by``.

    Columns: n (points), median and p90 of |error|, bias (median error), inside (share), width (median
    high/low).
    """
    rows = []
    ordered = points.assign(_order=[medians.SIZES.index(s) for s in points["size"]])
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
