"""From samples of one machine, library and clock to a Calibration: curves and laws.

A *cell* is one collective on one group of ranks (``laws.Cell``): each gets a curve."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pydantic import ValidationError

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.fit.curve_fits import fit_curve, leave_one_out, local_spread
from perfmodel.fit.law_fits import RING_TREE_COLLECTIVES, Cell, fit_law, make_interval, prior_of, rounded
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import UNKNOWN_VERSION, Calibration, Curve, Law
from perfmodel.schema.evidence import COLLECTIVES, LAW_BACKENDS, RING_BACKENDS, Backend, Clock
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Priors, load_priors

if TYPE_CHECKING:
    import pandas as pd

_FEWEST_SIZES = 3
_INTEGER_TYPES = ("int8", "uint8")
_IDENTIFYING = ["source_id", "collective", "payload_bytes", "gpus", "gpus_per_node", "datatype", "time_s"]
FORCED = {"forced_ring": "ring", "forced_tree": "tree"}
"""Variants of runs in which NCCL_ALGO allowed one algorithm only."""


@dataclass(frozen=True)
class Identity:
    """Name of a calibration, and how it was measured.

    checked  whether all results were right;  complete  whether all points were measured
    this_cluster  whether the samples are the user's own cluster's
    preferred  whether a projection uses it by default;  environment  variables of the runs"""

    machine: str
    backend: Backend
    library_version: str
    clock: Clock
    preferred: bool = False
    this_cluster: bool = True
    complete: bool = True
    checked: bool = False
    note: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def calibration_id(self) -> str:
        """``machine/backend-version-clock``, also the path of a shipped file below data/calibrations."""
        return f"{self.machine}/{self.backend}-{self.library_version or UNKNOWN_VERSION}-{self.clock}"


def fit_calibration(
    samples: pd.DataFrame,
    machine: Machine,
    identity: Identity,
    like: Calibration | None = None,
    priors: Priors | None = None,
) -> Calibration:
    """Fit one calibration.

    samples  columns of ``schema.samples``; each cell (collective, gpus, domain) becomes a curve
    machine  where they were measured: its domains, the rates of its links;  identity  name and origin
    like     calibration of another cluster of the same machine, whose laws this fit starts from
    priors   prior knowledge, instead of the shipped priors
    Limits: no sample is of a known collective -> NoCalibrationError;  impossible times -> BadInputError
    """
    cells = find_cells(samples, machine)
    if not cells:
        raise NoCalibrationError(
            f"no sample of a collective for {identity.calibration_id}.",
            f"known collectives: {', '.join(COLLECTIVES)}.",
        )
    usable = select_usable(samples)
    text = usable[_IDENTIFYING].sort_values(_IDENTIFYING, kind="stable").to_csv(index=False)
    identifiers = {name: value for name, value in vars(identity).items() if name != "environment"}
    try:
        return Calibration(
            schema_version=2,
            calibration_id=identity.calibration_id,
            domain_gpus=machine.domain_gpus_of(machine.gpus_per_node),
            sample_count=len(usable),
            samples_sha256=hashlib.sha256(text.encode()).hexdigest(),
            environment=dict(identity.environment),
            curves=[fit_cell(cell, identity) for cell in cells if not cell.algorithm],
            laws=_fit_laws(cells, machine, identity, like, priors or load_priors()),
            **identifiers,
        )
    except ValidationError as error:
        raise BadInputError(
            f"no curve or law fits these samples: {invalid_fields(error, 'fit', 'of them').message}",
            "look for impossible times: too long, too short, or in another unit.",
        ) from None


def select_usable(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples that a fit may use: known collectives, good flags, floating-point reductions, out of place.

    In-place samples count where a cell has no others (the all-reduce of PyTorch). Noisy points count too:
    their times were measured, with a wider spread.
    """
    reduction = samples["collective"].isin(["all_reduce", "reduce_scatter"])
    integer = samples["datatype"].isin(_INTEGER_TYPES)
    floating = bool((reduction & ~integer).any())
    keep = samples["collective"].isin(COLLECTIVES) & samples["flag"].isin(["", "ok", "noisy"])
    usable = samples[keep & ~(reduction & integer)] if floating else samples[keep]
    in_place = usable["in_place"].astype(bool)
    cells = [usable[name] for name in ("collective", "gpus", "gpus_per_node")]
    return usable[~in_place | in_place.groupby(cells).transform("all")]


def find_cells(samples: pd.DataFrame, machine: Machine) -> list[Cell]:
    """The usable samples, grouped into cells. machine  says its domains. Limits: no usable sample -> none"""
    samples = select_usable(samples)
    if samples.empty:
        return []
    variants = samples["variant"] if "variant" in samples.columns else [""] * len(samples)
    ranks = zip(samples["gpus"], samples["gpus_per_node"], strict=True)
    frame = samples.assign(
        domain=[min(int(gpus), machine.domain_gpus_of(int(node))) for gpus, node in ranks],
        algorithm=[FORCED.get(str(name), "") for name in variants],
    )
    cells = []
    for key, rows in frame.groupby(["collective", "gpus", "domain", "algorithm"]):
        collective, gpus, domain, algorithm = map(str, key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        measured = medians.index.to_numpy(float), medians.to_numpy(float)
        sources = tuple(sorted(rows["source_id"].astype(str).unique()))
        cells.append(Cell(collective, Group.of(int(gpus), int(domain)), *measured, sources, algorithm, rows))
    return cells


def fit_cell(cell: Cell, identity: Identity) -> Curve:
    """The curve of a cell, from its samples. identity  says the clock if they were timed by several"""
    assert cell.rows is not None  # made by ``find_cells``
    rows = cell.rows
    sizes = rows["payload_bytes"].to_numpy(float)
    times = rows["time_s"].to_numpy(float)
    fit = fit_curve(sizes, times)
    errors = leave_one_out(sizes, times)
    versions = sorted(rows["library_version"].astype(str).unique())
    clocks = sorted(rows["clock"].astype(str).unique())
    quantiles = [rounded(float(np.quantile(errors, q)), 3) if errors.size else None for q in (0.5, 0.9)]
    return Curve(
        collective=cell.collective,
        gpus=cell.group.gpus,
        domain_gpus=cell.group.domain_gpus,
        alpha_s=make_interval(fit.alpha_s, *fit.alpha_interval),
        beta_bytes_per_s=make_interval(fit.beta_bytes_per_s, *fit.beta_interval),
        p=make_interval(fit.p, *fit.p_interval),
        anchor_bytes=fit.anchor_bytes.tolist(),
        anchor_times_s=np.maximum.accumulate([rounded(t, 6) for t in fit.anchor_times_s]).tolist(),
        anchor_log_sd=rounded(fit.anchor_log_sd, 3),
        left_out_log_sd=[rounded(v, 3) for v in local_spread(errors)],
        sample_count=len(rows),
        loo_median=quantiles[0],
        loo_p90=quantiles[1],
        at_bound=list(fit.at_bound),
        sources=list(cell.source_ids),
        library_version=" and ".join(v or UNKNOWN_VERSION for v in versions),
        clock=Clock(clocks[0]) if len(clocks) == 1 else identity.clock,
    )


def split_by_law(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells that each law of NCCL is fitted to: a law for rings and trees, a law for the all-to-all.

    A cell informs a law of rings if it has enough sizes, and more than two GPUs if any cell of its collective
    has more: a pair of GPUs uses fewer channels.
    """
    larger = {cell.collective for cell in cells if cell.group.gpus > 2}
    rings = [
        cell
        for cell in cells
        if cell.collective in RING_TREE_COLLECTIVES
        and cell.time_s.size >= _FEWEST_SIZES
        and (cell.group.gpus > 2 or cell.collective not in larger)
    ]
    return {"pairwise": [cell for cell in cells if cell.collective == "all_to_all"], "ring_tree": rings}


def _fit_laws(
    cells: Sequence[Cell], machine: Machine, identity: Identity, like: Calibration | None, priors: Priors
) -> list[Law]:
    """The laws of a library. NCCL, RCCL: ring-and-tree law and all-to-all law; NVSHMEM: one per collective.

    Other libraries have no law: only their measured cells are known. For a shipped calibration, the network
    unknowns are those that all clusters on its kind of network have in common, whatever was measured here.
    Only one cluster with RCCL is known, so its law is fitted to all of its cells.
    """
    if identity.backend not in LAW_BACKENDS:
        return []
    stack = (machine.name, identity.backend, identity.clock)
    like = like if like and (like.machine, like.backend, like.clock) == stack else None
    if identity.backend in RING_BACKENDS:
        rests_on_others = identity.backend is Backend.NCCL and not identity.this_cluster
        by_law = split_by_law([c for c in cells if not rests_on_others or c.group.domains == 1])
        prior = prior_of("pairwise", machine, priors, like.law("all_to_all") if like else None)
        pairwise = fit_law("pairwise", by_law["pairwise"], machine, priors, prior)
        prior = prior_of("ring_tree", machine, priors, like.law("all_gather") if like else None, pairwise)
        rings = fit_law("ring_tree", by_law["ring_tree"], machine, priors, prior)
        return [
            pairwise.model_copy(update={"collectives": ["all_to_all"]}),
            rings.model_copy(update={"collectives": sorted(RING_TREE_COLLECTIVES)}),
        ]
    unlike_nccl = priors.model_copy(update={"learned": {}})  # what was learned is of NCCL's clusters
    laws = []
    for name in sorted({cell.collective for cell in cells}):
        alike = [cell for cell in cells if cell.collective == name]
        prior = prior_of("pairwise", machine, unlike_nccl, like.law(name) if like else None)
        laws.append(fit_law("pairwise", alike, machine, unlike_nccl, prior))
    return laws
