"""From measured cells of one machine to the unknowns of a law: least squares under a prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_VARIANCE_DECIMALS = 5
_CARD = "nic_bytes_per_s"
_STEP = 1e-5
"""Step of a logarithm, up and down, in the difference quotient of a law: exact to about 1e-10."""


@dataclass(frozen=True)
class Cell:
    """A measured cell: median times of one collective on one group of ranks.

    algorithm  the only algorithm that the library was allowed ("ring", "tree"); "" if it chose by itself
    payload_bytes, time_s  sizes and median times;  source_ids  sources of the samples
    """

    collective: str
    group: Group
    payload_bytes: Floats
    time_s: Floats
    source_ids: tuple[str, ...]
    algorithm: str = ""


@dataclass(frozen=True)
class Believed:
    """Prior of the logarithms of a law's unknowns: mean (``centre``) and standard deviation of each."""

    centre: Floats
    log_sd: Floats


def prior_of(law: str, machine: Machine, priors: Priors) -> Believed:
    """Prior of a law's unknowns on a machine; its network unknowns were learned from other clusters.

    Limits: no cluster on its network is known -> NCCL's own constants, and the line rate of the network card
    """
    return believed(law, machine, priors.known_of(law, machine.network_priors))


def believed(law: str, machine: Machine, beliefs: Mapping[str, Belief]) -> Believed:
    """Prior of a law's unknowns on a machine.

    beliefs  prior of each unknown by name; a prior may be relative to a rate of the machine"""
    ordered = [beliefs[name] for name in LINK_LAWS[law].names]
    centre = [np.log(belief.value * _scale(belief, machine)) for belief in ordered]
    return Believed(np.array(centre), np.array([belief.log_sd for belief in ordered]))


def like_cluster(law: str, like: Law, prior: Believed) -> Believed:
    """Prior for a further cluster of the machine that ``like`` was fitted on, at the same clock.

    Its mean is the values of ``like``. Network unknowns vary as between clusters on one kind of network; all
    others keep the wider spread of ``prior``, because they change with the library's version.
    """
    network = np.array([unknown.network for unknown in LINK_LAWS[law].unknowns])
    own = np.sqrt(np.diag(np.array(like.log_covariance)))
    log_sd = np.where(network, np.minimum(own, prior.log_sd), prior.log_sd)
    return Believed(np.log(np.array(like.values)), log_sd)


@dataclass(frozen=True)
class Fitted:
    """The most probable logarithms of a law's unknowns, with their covariance, and ln(law / measured).

    logs  ln of the unknowns;  residuals  ln(law / measured) of every point"""

    logs: Floats
    covariance: Floats
    residuals: Floats


def fit_logs(
    law: str,
    cells: Sequence[Cell],
    machine: Machine,
    priors: Priors,
    prior: Believed,
    start: Floats | None = None,
) -> Fitted:
    """The unknowns of a law from measured cells: their most probable values under the prior.

    Residuals are relative (ln t), robust (soft l1) and weighted so that a curve counts as
    ``effective_points`` points however many sizes it has. One evaluation of the law per measured cell gives
    all derivatives: the unknowns vary along its columns.
    Limits: no measured cells -> the prior itself
    """
    steps, noise = step_constants(machine, priors), priors.uncertainty
    count = prior.centre.size
    weight = np.concatenate(
        [
            np.full(
                cell.time_s.size,
                np.sqrt(noise.effective_points / max(cell.time_s.size, noise.effective_points))
                / noise.sample_log_sd,
            )
            for cell in cells
        ]
        or [np.empty(0)]
    )

    def raw(logs: Floats) -> Floats:
        """Unknowns from their logarithms: one row per set of unknowns, one column per point."""
        parts = [np.empty((logs.shape[0], 0))]
        for cell in cells:
            time_s = LINK_LAWS[law].time_at(
                logs, steps, cell.collective, cell.group, cell.payload_bytes, cell.algorithm
            )
            parts.append(np.log(time_s / cell.time_s))
        return np.concatenate(parts, axis=1)

    def robust(logs: Floats) -> Floats:
        r = raw(logs) * weight
        return np.asarray(np.sign(r) * np.sqrt(2 * (np.sqrt(1 + r**2) - 1)))

    def residual(q: Floats) -> Floats:
        return np.concatenate([robust(q[np.newaxis])[0], (q - prior.centre) / prior.log_sd])

    def jacobian(q: Floats) -> Floats:
        steps_both = _STEP * np.eye(count)
        up, down = np.split(robust(np.concatenate([q + steps_both, q - steps_both])), 2)
        return np.concatenate([(up - down).T / (2 * _STEP), np.diag(1 / prior.log_sd)])

    first = prior.centre if start is None else start
    best = least_squares(
        residual, first, jac=jacobian, x_scale=prior.log_sd, xtol=1e-10, ftol=1e-10, gtol=1e-10
    )
    slopes = np.asarray(best.jac, float)
    return Fitted(best.x, np.linalg.inv(slopes.T @ slopes), raw(best.x[np.newaxis])[0])


def known_card(law: str, prior: Believed, other: Law, machine: Machine, priors: Priors) -> Believed:
    """The prior of a law, with the rate of the network cards corrected by another law of the same cluster.

    law    the law whose unknowns have the ``prior``;  other  the law that was fitted before
    The rate in ``prior`` is multiplied by (rate fitted in ``other``) / (rate expected by its own prior). The
    fitted rate itself is not used: an exchange among many peers reaches less of a network card.
    Limits: ``other`` was fitted to ranks of one domain only, so to no network card -> prior
    """
    if other.fitted_domains == 1:
        return prior
    i, j = (LINK_LAWS[name].names.index(_CARD) for name in (law, other.law))
    faster = np.log(other.values[j]) - prior_of(other.law, machine, priors).centre[j]
    own = np.arange(prior.centre.size) == i
    known = np.minimum(prior.log_sd, priors.uncertainty.card_log_sd)
    return Believed(prior.centre + own * faster, np.where(own, known, prior.log_sd))


def fit_law(
    law: str,
    cells: Sequence[Cell],
    machine: Machine,
    priors: Priors,
    like: Law | None = None,
    other: Law | None = None,
) -> Law:
    """A fitted law of a machine, as a calibration stores it (``fit_logs``).

    like   the law of another cluster of the same machine, at the same clock (``like_cluster``)
    other  the other law of this cluster, fitted before (``known_card``)
    """
    prior = prior_of(law, machine, priors)
    if like is not None:
        prior = like_cluster(law, like, prior)
    if other is not None:
        prior = known_card(law, prior, other, machine, priors)
    found = fit_logs(law, cells, machine, priors, prior)
    scatter = found.residuals if cells else np.array([priors.uncertainty.unseen_log_sd])
    return Law(
        law="ring_tree" if law == "ring_tree" else "pairwise",
        collectives=sorted({cell.collective for cell in cells}),
        names=list(LINK_LAWS[law].names),
        values=[rounded(v) for v in np.exp(found.logs)],
        log_covariance=[[round(float(v), _VARIANCE_DECIMALS) + 0.0 for v in row] for row in found.covariance],
        residual_log_sd=rounded(float(1.4826 * np.median(np.abs(scatter))), 3),
        fitted_domains=max((cell.group.domains for cell in cells), default=1),
        fitted_gpus=max((cell.group.gpus for cell in cells), default=1),
        sources=sorted({source for cell in cells for source in cell.source_ids}),
    )


def rounded(value: float, digits: int = 4) -> float:
    """A number rounded to significant digits, so that files are the same on every machine."""
    return float(f"{value:.{digits}g}")


def _scale(belief: Belief, machine: Machine) -> float:
    if not belief.relative_to:
        return 1.0
    if belief.relative_to == "nvlink_bytes_per_s" and machine.nvlink_domain_gpus <= 1:
        return machine.value("pcie_bytes_per_s")
    return machine.value(belief.relative_to)
