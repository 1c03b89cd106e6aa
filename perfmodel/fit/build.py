"""From samples of one machine, library and clock to a Calibration: curves and laws.

A *cell* is one collective on one group of ranks (``links.Cell``): each gets a curve."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.fit.curves import CurveFit, fit_curve, leave_one_out, local_spread
from perfmodel.fit.links import RING_TREE_COLLECTIVES, Cell, fit_law, rounded
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import UNKNOWN_VERSION, Calibration, Curve, Law
from perfmodel.schema.evidence import COLLECTIVES, LAW_BACKENDS, RING_BACKENDS, Backend, Clock
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Priors, load_priors

if TYPE_CHECKING:
    import pandas as pd

_FEWEST_SIZES = 3
_INTEGER_TYPES = ("int8", "uint8")
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
    like     calibration of another cluster of the same machine, whose laws this fit starts from
    priors   prior knowledge, instead of the shipped priors
    Raises BadInputError when no sample is of a known collective.
    """
    usable = usable_samples(samples)
    if usable.empty:
        raise NoCalibrationError(
            f"no sample of a collective for {identity.calibration_id}.",
            f"known collectives: {', '.join(COLLECTIVES)}.",
        )
    cells = _cells(usable, machine)
    curves = [_curve(cell, rows, identity) for cell, rows in cells if not cell.algorithm]
    laws = _laws([cell for cell, _ in cells], machine, identity, like, priors or load_priors())
    return Calibration(
        schema_version=1,
        calibration_id=identity.calibration_id,
        machine=identity.machine,
        backend=identity.backend,
        library_version=identity.library_version,
        clock=identity.clock,
        domain_gpus=machine.domain_gpus_of(machine.gpus_per_node),
        complete=identity.complete,
        checked=identity.checked,
        preferred=identity.preferred,
        this_cluster=identity.this_cluster,
        note=identity.note,
        sample_count=len(usable),
        samples_sha256=_fingerprint(usable),
        environment=dict(identity.environment),
        curves=curves,
        laws=laws,
    )


def fit_curves(samples: pd.DataFrame, machine: Machine, identity: Identity) -> list[Curve]:
    """The curves of ``fit_calibration`` alone; an empty list if no sample is usable."""
    usable = usable_samples(samples)
    return [_curve(cell, rows, identity) for cell, rows in _cells(usable, machine)] if len(usable) else []


def usable_samples(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples that a fit may use: known collectives, good flags, floating-point reductions, out of place.

    In-place samples count where a cell has no others (the all-reduce of PyTorch). Noisy points count too:
    their times were measured, with a wider spread.
    """
    reduction = samples["collective"].isin(["all_reduce", "reduce_scatter"])
    whole = samples["datatype"].isin(_INTEGER_TYPES)
    floating = bool((reduction & ~whole).any())
    keep = samples["collective"].isin(COLLECTIVES) & samples["flag"].isin(["", "ok", "noisy"])
    usable = samples[keep & ~(reduction & whole)] if floating else samples[keep]
    in_place = usable["in_place"].astype(bool)
    cells = [usable[name] for name in ("collective", "gpus", "gpus_per_node")]
    return usable[~in_place | in_place.groupby(cells).transform("all")]


def cells_of(samples: pd.DataFrame, machine: Machine) -> list[Cell]:
    """The usable samples, grouped into cells."""
    usable = usable_samples(samples)
    return [cell for cell, _ in _cells(usable, machine)] if len(usable) else []


def _cells(samples: pd.DataFrame, machine: Machine) -> list[tuple[Cell, pd.DataFrame]]:
    variants = samples["variant"] if "variant" in samples.columns else [""] * len(samples)
    frame = samples.assign(
        domain=[
            min(int(g), machine.domain_gpus_of(int(n)))
            for g, n in zip(samples["gpus"], samples["gpus_per_node"], strict=True)
        ],
        algorithm=[FORCED.get(str(name), "") for name in variants],
    )
    found = []
    for key, rows in frame.groupby(["collective", "gpus", "domain", "algorithm"], observed=True):
        collective, gpus, domain, algorithm = (str(part) for part in key)
        medians = rows.groupby("payload_bytes")["time_s"].median()
        cell = Cell(
            collective,
            Group.of(int(gpus), int(domain)),
            medians.index.to_numpy(float),
            medians.to_numpy(float),
            tuple(sorted(rows["source_id"].astype(str).unique())),
            algorithm,
        )
        found.append((cell, rows))
    return found


def _curve(cell: Cell, rows: pd.DataFrame, identity: Identity) -> Curve:
    sizes, times = rows["payload_bytes"].to_numpy(float), rows["time_s"].to_numpy(float)
    fit = fit_curve(sizes, times)
    errors = leave_one_out(sizes, times)
    plain = leave_one_out(sizes, times, sharpness=1.0, anchored=False)
    versions = sorted(rows["library_version"].astype(str).unique())
    clocks = sorted(rows["clock"].astype(str).unique())
    return Curve(
        collective=cell.collective,
        gpus=cell.group.gpus,
        domain_gpus=cell.group.domain_gpus,
        alpha_s=_interval(fit.alpha_s, fit.alpha_interval),
        beta_bytes_per_s=_interval(fit.beta_bytes_per_s, fit.beta_interval),
        p=_interval(fit.p, fit.p_interval),
        anchor_bytes=[float(v) for v in fit.anchor_bytes],
        anchor_times_s=_non_decreasing(fit),
        anchor_log_sd=rounded(fit.anchor_log_sd, 3),
        left_out_log_sd=[rounded(float(v), 3) for v in local_spread(errors)],
        sample_count=len(rows),
        loo_median=_quantile(errors, 0.5),
        loo_p90=_quantile(errors, 0.9),
        alpha_beta_loo_median=_quantile(plain, 0.5),
        alpha_beta_loo_p90=_quantile(plain, 0.9),
        at_bound=list(fit.at_bound),
        sources=list(cell.source_ids),
        library_version=" and ".join(v or UNKNOWN_VERSION for v in versions),
        clock=Clock(clocks[0]) if len(clocks) == 1 else identity.clock,
    )


def by_law(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells that each law of NCCL is fitted to: a law for rings and trees, a law for the all-to-all."""
    return {
        "pairwise": [c for c in cells if c.collective == "all_to_all"],
        "ring_tree": [c for c in cells if c.collective in RING_TREE_COLLECTIVES and _informs(c, cells)],
    }


def _laws(
    cells: Sequence[Cell], machine: Machine, identity: Identity, like: Calibration | None, priors: Priors
) -> list[Law]:
    """The laws of a library. NCCL, RCCL: ring-and-tree law and all-to-all law; NVSHMEM: one per collective.

    Other libraries have no law: only their measured cells are known. For a shipped calibration, the network
    unknowns are the mean of all clusters on its kind of network, whatever was measured here. Only one cluster
    with RCCL is known, so its law is fitted to all of its cells.
    """
    if identity.backend not in LAW_BACKENDS:
        return []
    own = (machine.name, identity.backend, identity.clock)
    same = like if like and (like.machine, like.backend, like.clock) == own else None
    if identity.backend in RING_BACKENDS:
        rests_on_others = identity.backend is Backend.NCCL and not identity.this_cluster
        known = [c for c in cells if not rests_on_others or c.group.domains == 1]
        laws: list[Law] = []
        for law, names in (("pairwise", ["all_to_all"]), ("ring_tree", sorted(RING_TREE_COLLECTIVES))):
            start = same.law(names[0]) if same else None
            other = laws[0] if laws else None
            found = fit_law(law, by_law(known)[law], machine, priors, start, other)
            laws.append(found.model_copy(update={"collectives": names}))
        return laws
    unlike_nccl = priors.model_copy(update={"learned": {}})
    return [
        fit_law(
            "pairwise",
            [c for c in cells if c.collective == name],
            machine,
            unlike_nccl,
            same.law(name) if same else None,
        )
        for name in sorted({c.collective for c in cells})
    ]


def _informs(cell: Cell, cells: Sequence[Cell]) -> bool:
    """Whether a law is fitted to a cell: it has enough sizes, and more than two GPUs if any cell has more.

    A pair of GPUs uses fewer channels.
    """
    larger = any(c.collective == cell.collective and c.group.gpus > 2 for c in cells)
    return cell.time_s.size >= _FEWEST_SIZES and (cell.group.gpus > 2 or not larger)


def _interval(value: float, bounds: tuple[float, float]) -> Interval:
    low, high = (min(bounds[0], value), max(bounds[1], value))
    centre = rounded(value)
    return Interval(value=centre, low=min(rounded(low, 3), centre), high=max(rounded(high, 3), centre))


def _non_decreasing(fit: CurveFit) -> list[float]:
    return [float(v) for v in np.maximum.accumulate([rounded(float(t), 6) for t in fit.anchor_times_s])]


def _quantile(errors: np.ndarray, share: float) -> float | None:
    return rounded(float(np.quantile(errors, share)), 3) if errors.size else None


def _fingerprint(samples: pd.DataFrame) -> str:
    columns = ["source_id", "collective", "payload_bytes", "gpus", "gpus_per_node", "datatype", "time_s"]
    text = samples[columns].sort_values(columns, kind="stable").to_csv(index=False)
    return hashlib.sha256(text.encode()).hexdigest()


def require_samples(samples: pd.DataFrame, what: str) -> None:
    """Raise BadInputError when a selection of samples is empty."""
    if samples.empty:
        raise BadInputError(
            f"{what} selects no samples.", "perfmodel show FILE --samples lists what a calibration has."
        )
