"""Rebuild every shipped calibration from the shipped samples, as ``data/calibrations/plan.toml`` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfmodel import resources
from perfmodel.fit.build import Identity, fit_calibration, require_samples
from perfmodel.schema.calibration import Calibration, save_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.files import invalid_fields, read_toml
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.samples import load_samples

if TYPE_CHECKING:
    import pandas as pd

_STRICT = ConfigDict(frozen=True, extra="forbid")


class Selection(BaseModel):
    """Samples by source, and optionally by variant, collective, nodes and smallest size."""

    model_config = _STRICT

    sources: list[str]
    variants: list[str] = []
    collectives: list[str] = []
    nodes: int | None = None
    smallest_nodes: int = 1
    smallest_bytes: int = 0
    rank: Annotated[int, Field(ge=0)] = 0
    informs_laws: bool = True

    def rows(self, samples: pd.DataFrame) -> pd.DataFrame:
        """The selected rows."""
        keep = samples["source_id"].isin(self.sources) & (samples["payload_bytes"] >= self.smallest_bytes)
        keep &= samples["nodes"] >= self.smallest_nodes
        if self.variants:
            keep &= samples["variant"].isin(self.variants)
        if self.collectives:
            keep &= samples["collective"].isin(self.collectives)
        if self.nodes is not None:
            keep &= samples["nodes"] == self.nodes
        return samples[keep]


class Entry(BaseModel):
    """One calibration of the plan."""

    model_config = _STRICT

    machine: str
    backend: Backend
    library_version: str
    clock: Clock
    preferred: bool = False
    note: str = ""
    cells: list[Selection]
    links: list[Selection] = []


class ShippedFits(BaseModel):
    """The whole plan."""

    model_config = _STRICT

    calibration: list[Entry]


def load_plan() -> list[Entry]:
    """Entries of the shipped plan."""
    path = resources.data_path("calibrations", "plan.toml")
    try:
        return ShippedFits.model_validate(read_toml(path, "calibration plan")).calibration
    except ValidationError as error:
        raise invalid_fields(error, "calibration plan", str(path)) from None


def fit_entry(
    entry: Entry,
    samples: pd.DataFrame,
    without_nodes: int | None = None,
    siblings: Mapping[str, Calibration] | None = None,
) -> Calibration:
    """Fit one entry of the plan.

    without_nodes   leaves out samples of so many nodes or more, to predict them (held-out tests)
    siblings        fitted calibrations by machine, for the prior across nodes
    """
    import pandas as pd

    own = samples[samples["backend"] == str(entry.backend)]
    if without_nodes is not None:
        own = own[own["nodes"] < without_nodes]
    cells = _first_of_each_cell(
        [(s.rank, s.rows(own).assign(informs_laws=s.informs_laws)) for s in entry.cells]
    )
    require_samples(cells, f"calibration {entry.machine}/{entry.backend}-{entry.library_version}")
    links = [s.rows(own) for s in entry.links]
    identity = Identity(
        entry.machine,
        entry.backend,
        entry.library_version,
        entry.clock,
        entry.preferred,
        this_cluster=False,
        note=entry.note,
    )
    machine = load_machine(entry.machine)
    like = _sibling(machine, siblings or {}) if entry.backend is Backend.NCCL else None
    return fit_calibration(cells, machine, identity, pd.concat(links) if links else None, like)


def rebuild(folder: Path) -> Iterator[tuple[str, Calibration]]:
    """Fit and write every shipped calibration below ``folder``; yields each as it is written."""
    samples = load_samples(None)
    siblings: dict[str, Calibration] = {}
    for entry in load_plan():
        calibration = fit_entry(entry, samples, siblings=siblings)
        if entry.preferred and entry.backend is Backend.NCCL:
            siblings[entry.machine] = calibration
        save_calibration(calibration, folder / f"{calibration.calibration_id}.json")
        yield calibration.calibration_id, calibration


def _sibling(machine: Machine, siblings: Mapping[str, Calibration]) -> Calibration | None:
    """The calibration, fitted earlier, of this machine, else of the one that it is like (same network)."""
    like = siblings.get(machine.name) or siblings.get(machine.links.like)
    alike = like is not None and load_machine(like.machine).links.network == machine.links.network
    return like if alike else None


def _first_of_each_cell(selections: list[tuple[int, pd.DataFrame]]) -> pd.DataFrame:
    """Rows of each (collective, gpus, GPUs per node) from the selections of the lowest rank that has any."""
    import pandas as pd

    key = ["collective", "gpus", "gpus_per_node"]
    frame = pd.concat([rows.assign(_rank=rank) for rank, rows in selections])
    best = frame.groupby(key, observed=True)["_rank"].transform("min")
    return frame[frame["_rank"] == best].drop(columns="_rank")
