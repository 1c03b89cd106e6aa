"""From measured cells to the unknowns of a law, of one machine and of all clusters on a kind of network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from perfmodel.collectives.link_laws import inside_rate, step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Law
from perfmodel.schema.fields import Interval
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import BEST_KNOWN, Learned, Priors

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

RING_TREE_COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
_CARD = "nic_bytes_per_s"
_FEWEST_OF_MEDIAN = 3
_LEAST_WEIGHT = 0.05
_STEP = 1e-5
"""Step of a logarithm, up and down, in the difference quotient of a law: exact to about 1e-10."""


@dataclass(frozen=True)
class Cell:
    """A measured cell: median times of one collective on one group of ranks.

    algorithm  the only algorithm that the library was allowed ("ring", "tree"); "" if it chose by itself
    payload_bytes, time_s  sizes and median times;  source_ids  sources of the samples;  rows  the samples
    """

    collective: str
    group: Group
    payload_bytes: Floats
    time_s: Floats
    source_ids: tuple[str, ...]
    algorithm: str = ""
    rows: pd.DataFrame | None = None


class Believed(NamedTuple):
    """The logarithms of a law's unknowns: mean (``centre``) and standard deviation of each.

    residuals  of a fit: ln(law / measured) of every point"""

    centre: Floats
    log_sd: Floats
    residuals: Floats = np.empty(0)


@dataclass(frozen=True)
class ClusterCells:
    """A cluster with its machine.

    cells  by law: its own measured cells, and cells inside a domain from clusters with the same GPUs
    """

    name: str
    machine: Machine
    cells: Mapping[str, Sequence[Cell]]


def prior_of(
    law: str, machine: Machine, priors: Priors, like: Law | None = None, other: Law | None = None
) -> Believed:
    """Prior of a law's unknowns on a machine; its network unknowns were learned from other clusters.

    like   the law of another cluster of the same machine, at the same clock: the mean of the prior
    other  the other law of this cluster, fitted before (``correct_card``)
    Limits: no cluster on its network is known -> NCCL's own constants, and the line rate of the network card
    """
    beliefs = priors.known_of(law, machine.network_priors)
    ordered = [beliefs[name] for name in LINK_LAWS[law].names]
    rates = {"nvlink_bytes_per_s": inside_rate(machine)}
    keys = [belief.relative_to for belief in ordered]
    scales = [(rates.get(key) or machine.value(key)) if key else 1.0 for key in keys]
    centre = [np.log(belief.value * scale) for belief, scale in zip(ordered, scales, strict=True)]
    log_sd = np.array([belief.log_sd for belief in ordered])
    prior = Believed(np.log(np.array(like.values)) if like else np.array(centre), log_sd)
    return correct_card(law, prior, other, machine, priors) if other else prior


def fit_logs(law: str, cells: Sequence[Cell], machine: Machine, priors: Priors, prior: Believed) -> Believed:
    """The unknowns of a law from measured cells: their most probable values under the prior.

    Residuals are relative (ln t), robust (soft l1) and weighted so that a curve counts as
    ``effective_points`` points however many sizes it has. One evaluation of the law per measured cell gives
    all derivatives: the unknowns vary along its columns.
    Limits: no measured cells -> the prior itself
    """
    steps = step_constants(machine, priors)
    noise = priors.uncertainty
    sizes = np.array([cell.time_s.size for cell in cells for _ in cell.time_s])
    weight = np.sqrt(noise.effective_points / np.maximum(sizes, noise.effective_points)) / noise.sample_log_sd

    def compare(logs: Floats) -> Floats:
        """ln(law / measured): one row per set of unknowns, one column per point."""
        parts = [np.empty((len(logs), 0))]
        for cell in cells:
            question = cell.collective, cell.group, cell.payload_bytes, cell.algorithm
            parts.append(np.log(LINK_LAWS[law].time_at(logs, steps, *question) / cell.time_s))
        return np.hstack(parts)

    def dampen(logs: Floats) -> Floats:
        """Signed roots of the soft-l1 loss of each point: least squares of these minimises that loss."""
        r = compare(logs) * weight
        return np.asarray(np.sign(r) * np.sqrt(2 * (np.sqrt(1 + r**2) - 1)))

    def residual(q: Floats) -> Floats:
        """What least squares squares: the points, then how far each unknown is off the prior."""
        return np.concatenate([dampen(q[np.newaxis])[0], (q - prior.centre) / prior.log_sd])

    def jacobian(q: Floats) -> Floats:
        """Derivatives of ``residual`` by each unknown's logarithm, by difference quotients."""
        moves = _STEP * np.eye(q.size)
        up, down = np.split(dampen(np.concatenate([q + moves, q - moves])), 2)
        return np.concatenate([(up - down).T / (2 * _STEP), np.diag(1 / prior.log_sd)])

    best = least_squares(
        residual, prior.centre, jac=jacobian, x_scale=prior.log_sd, xtol=1e-10, ftol=1e-10, gtol=1e-10
    )
    slopes = np.asarray(best.jac, float)
    log_sd = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    return Believed(best.x, log_sd, compare(best.x[np.newaxis])[0])


def correct_card(law: str, prior: Believed, other: Law, machine: Machine, priors: Priors) -> Believed:
    """The prior of a law, with the rate of the network cards corrected by another law of the same cluster.

    law    the law whose unknowns have the ``prior``;  other  the law that was fitted before
    The rate in ``prior`` is multiplied by (rate fitted in ``other``) / (rate expected by its own prior). The
    fitted rate itself is not used: an exchange among many peers reaches less of a network card.
    Limits: ``other`` was fitted to ranks of one domain only, so to no network card -> prior
    """
    if other.fitted_domains == 1:
        return prior
    i = LINK_LAWS[law].names.index(_CARD)
    j = LINK_LAWS[other.law].names.index(_CARD)
    centre = prior.centre.copy()
    centre[i] += np.log(other.values[j]) - prior_of(other.law, machine, priors).centre[j]
    log_sd = prior.log_sd.copy()
    log_sd[i] = min(log_sd[i], priors.uncertainty.card_log_sd)
    return Believed(centre, log_sd)


def fit_law(
    law: str, cells: Sequence[Cell], machine: Machine, priors: Priors, prior: Believed | None = None
) -> Law:
    """A law fitted to cells of a machine, as a calibration stores it. prior  None: by ``prior_of``"""
    fitted = fit_logs(law, cells, machine, priors, prior or prior_of(law, machine, priors))
    scatter = fitted.residuals if cells else np.array([priors.uncertainty.unseen_log_sd])
    return Law(
        law="ring_tree" if law == "ring_tree" else "pairwise",
        collectives=sorted({cell.collective for cell in cells}),
        names=list(LINK_LAWS[law].names),
        values=[rounded(v) for v in np.exp(fitted.centre)],
        log_sd=[rounded(v, 3) for v in fitted.log_sd],
        residual_log_sd=rounded(float(1.4826 * np.median(np.abs(scatter))), 3),
        fitted_domains=max((cell.group.domains for cell in cells), default=1),
        fitted_gpus=max((cell.group.gpus for cell in cells), default=1),
        sources=sorted({source for cell in cells for source in cell.source_ids}),
    )


def learn_networks(clusters: Sequence[ClusterCells], priors: Priors) -> dict[str, dict[str, Learned]]:
    """A law's unknowns across domains for a further cluster, by network and law, from measured clusters.

        ln x = median of 0 with weight w_0 and of all ln x_c with weights w_c
        ln x_c = ln y_c / w_c,   w_c = 1 - (s_c / s_0)^2

    y_c   an unknown of cluster c, fitted alone under the prior, over it;  x_c  by its samples alone [-]
    s_c   standard deviation of ln y_c;  s_0  of the prior: a cluster that does not determine x has no weight
    w_0   clusters that the prior counts as. It is in data/priors/collectives.toml; for networks other than
          InfiniBand it is what was learned of InfiniBand, but for priors of the network's own.
    A median leaves out what one odd cluster says; of fewer than three clusters it is their mean.
    Limits: no cluster -> the prior;  one that determines it, w_0 = 1 -> halfway to it
    """
    learned: dict[str, dict[str, Learned]] = {}
    names = {cluster.machine.network_priors for cluster in clusters}
    for network, law in product(sorted(names, key=lambda name: (name != BEST_KNOWN, name)), LINK_LAWS):
        believed = priors.model_copy(update={"learned": learned})
        measured = [c for c in clusters if c.machine.network_priors == network and law in c.cells]
        if not measured:
            continue
        section = priors.network.get(network)
        unknowns = LINK_LAWS[law].unknowns
        logs, weights = np.zeros((2, len(measured) + 1, len(unknowns)))
        weights[0] = section.prior_weight if section else 1.0
        for row, cluster in enumerate(measured, start=1):
            prior = prior_of(law, cluster.machine, believed)
            fitted = fit_logs(law, cluster.cells[law], cluster.machine, priors, prior)
            weights[row] = np.clip(1 - (fitted.log_sd / prior.log_sd) ** 2, 0, 1)
            logs[row] = (fitted.centre - prior.centre) / np.maximum(weights[row], _LEAST_WEIGHT)
        mean = np.sum(weights * logs, axis=0) / np.sum(weights, axis=0)
        factors = np.exp(mean if len(measured) < _FEWEST_OF_MEDIAN else find_weighted_median(logs, weights))
        beliefs = believed.known_of(law, network)
        learned.setdefault(network, {})[law] = Learned(
            clusters=sorted(cluster.name for cluster in measured),
            domains=[_count_domains(law, measured, *ends) for ends in priors.bands.classes],
            unknowns={
                unknown.name: rounded(beliefs[unknown.name].value * float(factor))
                for unknown, factor in zip(unknowns, factors, strict=True)
                if unknown.network
            },
        )
    return learned


def find_weighted_median(values: Floats, weights: Floats) -> Floats:
    """Weighted median of each column, linear between two values.

    values, weights  arrays [values, columns];  weights  0 or more, not all 0
    Limits: equal weights of three -> the middle value;  of two -> their mean
    """
    order = np.argsort(values, axis=0, kind="stable")
    values = np.take_along_axis(values, order, axis=0)
    weights = np.take_along_axis(weights, order, axis=0)
    places = (np.cumsum(weights, axis=0) - weights / 2) / np.sum(weights, axis=0)
    return np.array([np.interp(0.5, *column) for column in zip(places.T, values.T, strict=True)])


def _count_domains(law: str, clusters: Sequence[ClusterCells], low_bytes: float, high_bytes: float) -> int:
    """The most domains that were measured at sizes from ``low_bytes`` to below ``high_bytes``; none -> 1"""
    counts = [
        cell.group.domains
        for cluster in clusters
        for cell in cluster.cells[law]
        if np.any((low_bytes <= cell.payload_bytes) & (cell.payload_bytes < high_bytes))
    ]
    return max(counts, default=1)


def rounded(value: float, digits: int = 4) -> float:
    """A number rounded to significant digits, so that files are the same on every machine."""
    return float(f"{value:.{digits}g}")


def make_interval(value: float, low: float, high: float) -> Interval:
    """A fitted value with its 95 % interval, rounded as in files: the value stays inside."""
    centre = rounded(value)
    return Interval(value=centre, low=min(rounded(low, 3), centre), high=max(rounded(high, 3), centre))
