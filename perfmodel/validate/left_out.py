"""Bands on clusters and node counts that no fit saw: whole clusters left out, and large groups left out.

Both return data frames of points with predictions (``measured.judged``); ``band_parts`` reads from them what
``data/priors/collectives.toml`` says of the parts of a band.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfmodel import resources
from perfmodel.fit.build import usable_samples
from perfmodel.fit.shipped import Entry, fit_entry
from perfmodel.schema.calibration import Calibration, shipped_calibration
from perfmodel.schema.evidence import COLLECTIVES, Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.validate import measured
from perfmodel.validate.accuracy import OTHER_CLUSTERS, identity

if TYPE_CHECKING:
    import pandas as pd

OPERATORS = {"aic_": "aic", "xxrjun_c01_": "xxrjun_c01"}
"""Sources of one cluster, by how they begin; any other source is a cluster of its own."""
FAMILIES = {"all_gather": "ring", "reduce_scatter": "ring"}
"""Collectives that one law describes are judged together; all others by name."""


@dataclass(frozen=True)
class NodesLeftOut:
    """A fit that sees ``machine`` on fewer than ``without_nodes`` nodes; the others are predicted."""

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

On GB200 NVL72 nodes are trays of four GPUs in one domain: 16 GPUs are seen, 32 to 64 predicted.
"""
LAUNCH_BOUND = "single-process"
"""The variant of runs in which one process launched all GPUs: small messages take as long as its launches."""


def cluster_of(source_id: str) -> str:
    """The cluster that a source was measured on."""
    return next((name for start, name in OPERATORS.items() if source_id.startswith(start)), source_id)


def clusters_left_out(machines: Collection[str] = ()) -> pd.DataFrame:
    """Every cluster of the shipped samples, predicted by a calibration of its kind that did not see it.

    Sources of a machine that its preferred NCCL calibration does not know (``how`` "shipped"; another version
    of the library on a cluster that it knows: "version"), and each of the clusters that it knows, by a fit
    without it ("refitted"). Columns of ``measured.judged`` and machine, cluster, how, and those of ``told``.
    machines   only these (none: all)
    """
    import pandas as pd

    parts: list[pd.DataFrame] = []
    for name, entry in measured.preferred_entries().items():
        if not machines or name in machines:
            parts += _not_known(entry)
            parts += _refitted(entry)
    return pd.concat(parts, ignore_index=True)


def _not_known(entry: Entry) -> Iterator[pd.DataFrame]:
    """Sources that a shipped calibration has not seen, predicted with it."""
    samples, machine = measured.shipped_samples(), load_machine(entry.machine)
    known = _sources(entry)
    operators = {cluster_of(source) for source in known}
    others = {other.source_id: dict(other.overrides) for other in OTHER_CLUSTERS}
    mine = {other.source_id for other in OTHER_CLUSTERS if other.machine == entry.machine}
    rows = samples[
        (samples["backend"] == str(Backend.NCCL))
        & ((samples["machine"] == entry.machine) | samples["source_id"].isin(mine))
        & (samples["clock"] == str(entry.clock))
        & samples["flag"].isin(["", "ok"])
        & (samples["variant"] != LAUNCH_BOUND)
        & ~samples["source_id"].isin(known)
    ]
    calibration = shipped_calibration(identity(entry))
    for source, own in rows.groupby("source_id", observed=True):
        usable = usable_samples(own)
        if usable.empty:
            continue
        like_it = machine.with_overrides(others.get(str(source), {}))
        cluster = cluster_of(str(source))
        how = "version" if cluster in operators else "shipped"
        points = told(usable, like_it, calibration)
        yield points.assign(machine=entry.machine, cluster=str(source), how=how)


def _refitted(entry: Entry) -> Iterator[pd.DataFrame]:
    """Each cluster of a calibration, predicted by a fit of the others."""
    import pandas as pd

    samples, machine = measured.shipped_samples(), load_machine(entry.machine)
    own = samples[samples["backend"] == str(entry.backend)]
    rows = pd.concat([s.rows(own) for s in entry.cells])
    rows = rows[~rows.index.duplicated()]
    names = {source: cluster_of(source) for source in _sources(entry)}
    for cluster in sorted(set(names.values())):
        rest = without_sources(entry, {source for source, name in names.items() if name == cluster})
        held_out = usable_samples(rows[rows["source_id"].map(names) == cluster])
        if not rest.cells or held_out.empty:
            continue
        calibration = fit_entry(rest, samples, siblings=siblings_on_its_network(machine))
        points = told(held_out, machine, calibration)
        yield points.assign(machine=entry.machine, cluster=cluster, how="refitted")


def _sources(entry: Entry) -> set[str]:
    return {source for selection in (*entry.cells, *entry.links) for source in selection.sources}


def without_sources(entry: Entry, sources: Collection[str]) -> Entry:
    """An entry of the plan that never saw some sources. Limits: none is left -> no cells"""
    kept = {}
    for name in ("cells", "links"):
        fewer = [
            s.model_copy(update={"sources": [one for one in s.sources if one not in sources]})
            for s in getattr(entry, name)
        ]
        kept[name] = [s for s in fewer if s.sources]
    return entry.model_copy(update=kept)


def siblings_on_its_network(machine: Machine) -> Mapping[str, Calibration]:
    """What a fit of this machine starts from: the one that it is like, on the same network, fitted alone."""
    like = machine.links.like
    if like not in measured.preferred_entries() or load_machine(like).links.network != machine.links.network:
        return {}
    return {like: measured.fitted_alone(like)}


def large_left_out(cases: Collection[NodesLeftOut] = LARGE_LEFT_OUT) -> pd.DataFrame:
    """Many nodes of a cluster, predicted by a fit that saw fewer of the same cluster.

    Columns of ``measured.judged`` and machine, seen_nodes (the most that the fit saw), and those of ``told``.
    """
    import pandas as pd

    samples, parts = measured.shipped_samples(), []
    for case in cases:
        entry, machine = measured.preferred_entries()[case.machine], load_machine(case.machine)
        rows = measured.measured_rows(entry, samples)
        siblings = siblings_on_its_network(machine)
        fewer = fit_entry(entry, samples, without_nodes=case.without_nodes, siblings=siblings)
        own = fewer.model_copy(update={"this_cluster": True})
        points = told(rows[rows["nodes"] >= case.without_nodes], machine, own)
        seen = int(rows.loc[rows["nodes"] < case.without_nodes, "nodes"].max())
        parts.append(points.assign(machine=case.machine, seen_nodes=seen))
    return pd.concat(parts, ignore_index=True)


def told(rows: pd.DataFrame, machine: Machine, calibration: Calibration) -> pd.DataFrame:
    """Medians of samples with their predictions, and what sets them apart.

    Columns of ``measured.judged`` and family (``FAMILIES``), where ("in" one NVLink domain or "across"),
    known (this very cell was measured at such sizes), doublings (of GPUs beyond those measured), log_error.
    """
    rows = rows[rows["collective"].isin(COLLECTIVES)]
    points = measured.predicted(measured.medians(rows, machine), measured.model_of(machine, calibration))
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
    """Whether the calibration has measured this cell, at such sizes."""
    curve = calibration.curve(collective, gpus, domain_gpus)
    return curve is not None and curve.anchor_bytes[0] <= size <= curve.anchor_bytes[-1]


def _doublings(calibration: Calibration, collective: str, gpus: int, domain_gpus: int) -> float:
    """Octaves of GPUs beyond the most that were measured, inside domains or across. Limits: fewer -> 0"""
    across = gpus > domain_gpus
    seen = [
        c.gpus
        for c in calibration.curves
        if c.collective == collective and (c.gpus > c.domain_gpus) == across and c.gpus > 1
    ]
    return float(np.log2(max(gpus / max(seen), 1.0))) if seen else float("nan")


_COLUMNS = (
    "machine", "seen_nodes", "collective", "gpus", "gpus_per_node", "nodes", "payload_bytes", "time_s",
    "predicted_s", "low_s", "high_s",
)  # fmt: skip
_DIGITS = "%.5g"


def save_large_left_out(points: pd.DataFrame) -> None:
    """Keep what ``large_left_out`` found, for pages that cannot wait for its fits."""
    points[list(_COLUMNS)].to_csv(_stored(), index=False, float_format=_DIGITS, lineterminator="\n")


def stored_large_left_out() -> pd.DataFrame:
    """Points of ``large_left_out`` as they were kept, of each machine by the fit that saw fewest nodes."""
    import pandas as pd

    points = measured.judged(pd.read_csv(_stored()))
    fewest = points.groupby("machine")["seen_nodes"].transform("min")
    return points[points["seen_nodes"] == fewest].reset_index(drop=True)


def _stored() -> Path:
    return resources.data_path("validation", "nodes_left_out.csv")
