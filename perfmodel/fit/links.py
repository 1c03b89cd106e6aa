"""Measured cells of one machine to the unknowns of a law: least squares, NCCL's constants as the prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from perfmodel.collectives.stored import step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Belief, Priors

Floats = npt.NDArray[np.float64]

RING_TREE_COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
_SEVERAL = 2
_VARIANCE_DECIMALS = 5


@dataclass(frozen=True)
class Cell:
    """Medians of one collective on one group of ranks."""

    collective: str
    group: Group
    payload_bytes: Floats
    time_s: Floats
    source_ids: tuple[str, ...]


def prior_of(law: str, machine: Machine, priors: Priors) -> tuple[Floats, Floats]:
    """Centre and standard deviation of the logarithms of a law's unknowns, before any sample."""
    network = priors.network.get(str(machine.links.network))
    beliefs = {**priors.ring_tree} if law == "ring_tree" else {**priors.pairwise}
    if law != "ring_tree" and network is not None:
        beliefs |= network.pairwise
    ordered = [beliefs[name] for name in LINK_LAWS[law].names]
    centre = [np.log(belief.value * _scale(belief, machine)) for belief in ordered]
    return np.array(centre), np.array([belief.log_sd for belief in ordered])


def sibling_prior(
    law: str,
    machine: Machine,
    priors: Priors,
    like: Law | None,
    like_machine: Machine | None,
    whole: bool,
) -> tuple[Floats, Floats]:
    """The prior with unknowns replaced by those of a law fitted elsewhere.

    Of a machine on the same kind of network, or at another clock: the unknowns of the network. Of another
    cluster of this very machine at this clock (``whole``): all of them. Its fitted values become the centre
    (rates relative to the line rate). Those of the network get a standard deviation of at least
    ``sibling_log_sd``: two clusters of one kind are alike, not the same; the others keep their own spread,
    because a library's version changes them.
    Limits: no such law -> prior_of
    """
    centre, spread = prior_of(law, machine, priors)
    if like is None or like_machine is None:
        return centre, spread
    base, _ = prior_of(law, like_machine, priors)
    for i, unknown in enumerate(LINK_LAWS[law].unknowns):
        network = unknown.network and (whole or like.fitted_domains >= _SEVERAL)
        if whole or network:
            centre[i] += np.log(like.values[i]) - base[i]
        if network:
            own = max(np.sqrt(like.log_covariance[i][i]), priors.uncertainty.sibling_log_sd)
            spread[i] = min(spread[i], own)
    return centre, spread


def _share_cards(law: str, centre: Floats, spread: Floats, fitted: Sequence[Law], priors: Priors) -> None:
    """A network card has one realised rate: take it from a law of this machine that has seen it saturated."""
    name = "nic_bytes_per_s"
    for other in fitted:
        if other.fitted_domains >= _SEVERAL:
            i = LINK_LAWS[law].names.index(name)
            centre[i] = np.log(other.values[other.names.index(name)])
            spread[i] = priors.uncertainty.card_log_sd


def fit_law(
    law: str,
    cells: Sequence[Cell],
    machine: Machine,
    priors: Priors,
    like: Law | None = None,
    like_machine: Machine | None = None,
    same_machine: Sequence[Law] = (),
    whole: bool = False,
) -> Law:
    """Unknowns of a law from cells, as the most probable values under the prior, with their covariance.

    like, like_machine   the law of a machine on the same kind of network (``sibling_prior``)
    whole                it is this very machine at this clock
    same_machine         laws of this machine fitted before: they know its network cards

    Residuals are relative (ln t), robust (soft l1) and weighted so that a curve counts as
    ``effective_points`` points however many sizes it has. Limits: no cells -> the prior itself
    """
    steps, time_at = step_constants(machine, priors), LINK_LAWS[law].time_at
    centre, spread = sibling_prior(law, machine, priors, like, like_machine, whole)
    _share_cards(law, centre, spread, same_machine, priors)
    noise = priors.uncertainty
    weights = [
        np.sqrt(noise.effective_points / max(cell.time_s.size, noise.effective_points)) / noise.sample_log_sd
        for cell in cells
    ]

    def raw(q: Floats) -> list[Floats]:
        return [
            np.log(time_at(q, steps, cell.collective, cell.group, cell.payload_bytes) / cell.time_s)
            for cell in cells
        ]

    def residual(q: Floats) -> Floats:
        data = [r * w for r, w in zip(raw(q), weights, strict=True)]
        robust = [np.sign(r) * np.sqrt(2 * (np.sqrt(1 + r**2) - 1)) for r in data]
        return np.concatenate([*robust, (q - centre) / spread])

    best = least_squares(residual, centre, jac="3-point", x_scale=spread, xtol=1e-10, ftol=1e-10, gtol=1e-10)
    jacobian = np.asarray(best.jac, float)
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    scatter = np.concatenate(raw(best.x)) if cells else np.array([noise.unseen_log_sd])
    return Law(
        law="ring_tree" if law == "ring_tree" else "pairwise",
        collectives=sorted({cell.collective for cell in cells}),
        names=list(LINK_LAWS[law].names),
        values=[rounded(v) for v in np.exp(best.x)],
        log_covariance=[[round(float(v), _VARIANCE_DECIMALS) + 0.0 for v in row] for row in covariance],
        residual_log_sd=rounded(float(1.4826 * np.median(np.abs(scatter))), 3),
        fitted_domains=max((cell.group.domains for cell in cells), default=1),
        fitted_gpus=max((cell.group.gpus for cell in cells), default=1),
        sources=sorted({source for cell in cells for source in cell.source_ids}),
    )


def rounded(value: float, digits: int = 4) -> float:
    """A number cut to significant digits, so that files are the same on every machine."""
    return float(f"{value:.{digits}g}")


def _scale(belief: Belief, machine: Machine) -> float:
    if not belief.relative_to:
        return 1.0
    if belief.relative_to == "nvlink_bytes_per_s" and machine.nvlink_domain_gpus <= 1:
        return machine.value("pcie_bytes_per_s")
    return machine.value(belief.relative_to)
