"""Rebuild every shipped calibration from the shipped samples, as ``data/calibrations/plan.toml`` says."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from perfmodel import resources
from perfmodel.fit.build import Identity, find_cells, fit_calibration, split_by_law
from perfmodel.fit.law_fits import Cell, ClusterCells, learn_networks
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import LEARNED, Priors, load_priors, save_learned
from perfmodel.schema.samples import load_samples

if TYPE_CHECKING:
    import pandas as pd


class Selection(Strict):
    """A selection of samples: by source, and optionally by variant, collective, nodes and smallest size.

    rank  if several selections have a cell, the lowest rank is used
    variants, collectives  allowed values; empty: all.  nodes  exact number; None: any
    """

    sources: list[str]
    variants: list[str] = []
    collectives: list[str] = []
    nodes: int | None = None
    smallest_nodes: int = 1
    smallest_bytes: int = 0
    rank: Annotated[int, Field(ge=0)] = 0

    def rows(self, samples: pd.DataFrame) -> pd.DataFrame:
        """The rows that it selects."""
        keep = samples["source_id"].isin(self.sources) & (samples["payload_bytes"] >= self.smallest_bytes)
        keep &= samples["nodes"] >= self.smallest_nodes
        for column, allowed in (("variant", self.variants), ("collective", self.collectives)):
            keep &= samples[column].isin(allowed) | (not allowed)
        return samples[keep & ((samples["nodes"] == self.nodes) | (self.nodes is None))]


class Chosen(Strict):
    """Samples of one machine. cells  selections; each cell comes from the lowest-ranked one that has any"""

    machine: str
    cells: list[Selection]

    @property
    def sources(self) -> frozenset[str]:
        """Sources of its samples."""
        return frozenset(source for selection in self.cells for source in selection.sources)

    def rows(self, samples: pd.DataFrame) -> pd.DataFrame:
        """The samples of its cells: of each (collective, gpus, GPUs per node)."""
        import pandas as pd

        frame = pd.concat([s.rows(samples).assign(_rank=s.rank) for s in self.cells])
        cells = frame.groupby(["collective", "gpus", "gpus_per_node"])
        return frame[frame["_rank"] == cells["_rank"].transform("min")].drop(columns="_rank")


class Entry(Chosen):
    """One calibration in the plan of shipped calibrations. preferred  used unless another is named"""

    backend: Backend
    library_version: str
    clock: Clock
    preferred: bool = False
    note: str = ""

    @property
    def is_first(self) -> bool:
        """Whether it is fitted first of its machine: laws of the other calibrations start from its laws."""
        return self.preferred and self.backend is Backend.NCCL

    @property
    def calibration_id(self) -> str:
        """Name of the shipped calibration that it makes."""
        return f"{self.machine}/{self.backend}-{self.library_version}-{self.clock}"


class ClusterEntry(Chosen):
    """A measured cluster from which the prior of its kind of network is learned.

    values  values that replace the machine's;  network  its kind of network, if it is not the machine's
    """

    name: str
    network: str = ""
    values: Mapping[str, float] = {}

    def built(self) -> Machine:
        """The machine of this cluster."""
        machine = load_machine(self.machine).with_overrides(dict(self.values))
        links = {"network": self.network or machine.links.network}
        return machine.model_copy(update={"links": machine.links.model_copy(update=links)})


class ShippedFits(Strict):
    """The whole plan of shipped calibrations: each calibration, and each cluster to learn a prior from."""

    calibration: list[Entry]
    cluster: list[ClusterEntry]


@lru_cache(maxsize=1)
def load_plan() -> ShippedFits:
    """The shipped plan, read from its file."""
    return read_as(ShippedFits, resources.data_path("calibrations", "plan.toml"), "calibration plan")


def find_cluster_cells(samples: pd.DataFrame, without: Collection[str] = ()) -> list[ClusterCells]:
    """Every cluster of the plan with its cells, and with cells inside a domain from the same kind of GPU.

    without  sources to leave out; clusters with no other source are left out too
    """
    rows = samples[(samples["backend"] == str(Backend.NCCL)) & ~samples["source_id"].isin(list(without))]
    inside: dict[str, list[Cell]] = {}
    clusters = []
    for entry in load_plan().cluster:
        machine = entry.built()
        if entry.machine not in inside:
            (gpus,) = [e for e in load_plan().calibration if e.machine == entry.machine and e.is_first]
            cells = find_cells(gpus.rows(rows), machine)
            inside[entry.machine] = [cell for cell in cells if cell.group.domains == 1]
        cells_of = find_cells(entry.rows(rows), machine)
        groups = {(cell.collective, cell.group) for cell in cells_of}
        borrowed = [cell for cell in inside[entry.machine] if (cell.collective, cell.group) not in groups]
        laws = split_by_law([*borrowed, *cells_of])
        across = {law: cells for law, cells in laws.items() if any(c.group.domains > 1 for c in cells)}
        if across:
            clusters.append(ClusterCells(entry.name, machine, across))
    return clusters


def fit_entry(
    entry: Entry,
    samples: pd.DataFrame,
    like: Calibration | None = None,
    priors: Priors | None = None,
    this_cluster: bool = False,
) -> Calibration:
    """Fit one entry of the plan.

    samples       of all clusters, without those that are to be predicted
    like          another calibration of this machine, whose laws this fit starts from
    priors        prior knowledge, instead of the shipped priors
    this_cluster  fits as the operator of this very cluster would
    """
    rows = entry.rows(samples[samples["backend"] == str(entry.backend)])
    named = {name: getattr(entry, name) for name in ("machine", "backend", "library_version", "clock")}
    identity = Identity(**named, preferred=entry.preferred, this_cluster=this_cluster, note=entry.note)
    return fit_calibration(rows, load_machine(entry.machine), identity, like, priors)


def rebuild(folder: Path) -> Iterator[tuple[str, Calibration]]:
    """Learn from all clusters, fit and write every shipped calibration below ``folder``.

    Yields each calibration as it is written; what was learned of networks is written first.
    """
    samples = load_samples()
    learned = learn_networks(find_cluster_cells(samples), load_priors().model_copy(update={"learned": {}}))
    save_learned(learned, folder.parent.joinpath("priors", LEARNED))
    priors = load_priors().model_copy(update={"learned": learned})
    starts: dict[str, Calibration] = {}
    for entry in load_plan().calibration:
        calibration = fit_entry(entry, samples, like=starts.get(entry.machine), priors=priors)
        if entry.is_first:
            starts[entry.machine] = calibration
        save_calibration(calibration, folder.joinpath(f"{calibration.calibration_id}.json"))
        yield calibration.calibration_id, calibration


if __name__ == "__main__":  # python -m perfmodel.fit.shipped data/calibrations
    for calibration_id, _ in rebuild(Path(sys.argv[1])):
        print(calibration_id)
