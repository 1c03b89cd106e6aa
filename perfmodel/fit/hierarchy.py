"""What clusters on one kind of network have in common: mean and spread of each network unknown.

A hierarchical model: each cluster's unknowns are drawn around the mean of its kind of network. A cluster
that nobody has measured is another draw: its prior is that mean with that spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from perfmodel.fit.links import Believed, Cell, Fitted, believed, fit_logs, rounded
from perfmodel.model.laws import LINK_LAWS
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import BEST_KNOWN, Belief, Learned, LearnedUnknown, Priors

Floats = npt.NDArray[np.float64]

ROUNDS = 24
ROUNDS_FROM_NEAR = 6
"""Rounds of the fit from no earlier result, and from the result with one more cluster."""
_OF_BELIEF, _OF_BEST_KNOWN = 1.0, 3.0
"""Weight of the prior spread, in clusters: of the belief, and of InfiniBand's spread for another network."""
_UPPER = 0.975


@dataclass(frozen=True)
class ClusterCells:
    """A cluster with its machine.

    cells  by law: its own measured cells, and cells inside a domain from clusters with the same GPUs
    """

    name: str
    machine: Machine
    cells: Mapping[str, Sequence[Cell]]

    @property
    def network(self) -> str:
        """Name of its kind of network."""
        return self.machine.network_priors


def learn(
    clusters: Sequence[ClusterCells], priors: Priors, near: Mapping[str, Mapping[str, Learned]] | None = None
) -> dict[str, dict[str, Learned]]:
    """Priors of a law's unknowns for a further cluster, by network and law, learned from measured clusters.

        ln x_c ~ N(mu, tau^2),   mu ~ N(mu_0, s_0^2),   tau^2 ~ scaled inverse chi^2(nu, tau_0^2)

    x_c   an unknown of cluster c, relative to a rate of its machine if the prior is relative
    mu_0, s_0  the prior in data/priors/collectives.toml; for networks other than InfiniBand, mu_0 is what was
               learned of InfiniBand, unless the network has a prior of its own
    tau_0, nu  s_0 and 1; for a network other than InfiniBand, the spread of InfiniBand's clusters and 3
    near  result for one more cluster than ``clusters``: the iteration starts from it, and networks without a
          cluster in ``clusters`` are copied from it
    Source: D. V. Lindley, A. F. M. Smith, Bayes estimates for the linear model (1972), by the EM algorithm:
            each cluster is fitted under the prior of the others (``links.fit_logs``), then mu and tau follow
    Another cluster is within 1.96 log_sd of the mean in 95 of 100 cases: few clusters say little about
    their spread, so log_sd is wider by the quantile of Student's t with n + nu degrees of freedom.
    Limits: one cluster, s_0 -> 0 -> the prior;  many -> their mean and standard deviation
    """
    found = {name: dict(laws) for name, laws in (near or {}).items()}
    networks = sorted({one.network for one in clusters}, key=lambda name: (name != BEST_KNOWN, name))
    for network, law in product(networks, LINK_LAWS):
        own = [one for one in clusters if one.network == network and law in one.cells]
        known = (near or {}).get(network, {}).get(law)
        first = found.get(BEST_KNOWN, {}).get(law) if network != BEST_KNOWN else None
        if own:
            found.setdefault(network, {})[law] = _learned(law, own, priors, first, known)
        elif known is not None:
            del found[network][law]
    return found


def _learned(
    law: str, clusters: Sequence[ClusterCells], priors: Priors, first: Learned | None, near: Learned | None
) -> Learned:
    """Priors of one law's unknowns, learned from the clusters on one network.

    first  priors learned on InfiniBand, for other networks
    near   an earlier result with one more cluster, from which the iteration starts
    """
    network = clusters[0].network
    beliefs, of_all = priors.beliefs(law, network), priors.beliefs(law, BEST_KNOWN)
    own = {one.name: believed(law, one.machine, beliefs) for one in clusters}
    believed_sd = own[clusters[0].name].log_sd
    centre, wide, weight = np.zeros(believed_sd.size), believed_sd, _OF_BELIEF
    if first is not None:
        weight = _OF_BEST_KNOWN
        shift, wide = _stored(law, first, of_all, believed_sd)
        same = [beliefs[name] is of_all[name] for name in LINK_LAWS[law].names]
        centre = np.where(same, shift, 0.0)
    shift, log_sd = (centre, wide) if near is None else _stored(law, near, beliefs, believed_sd)
    fits: dict[str, Fitted] = {}
    shift_log_sd = believed_sd
    for _ in range(ROUNDS if near is None else ROUNDS_FROM_NEAR):
        for one in clusters:
            start = fits[one.name].logs if one.name in fits else None
            prior = _prior(law, own[one.name], shift, log_sd)
            fits[one.name] = fit_logs(law, one.cells[law], one.machine, priors, prior, start)
        apart = np.array([fits[one.name].logs - own[one.name].centre for one in clusters])
        doubt = np.array([np.diag(fits[one.name].covariance) for one in clusters])
        precision = len(apart) / log_sd**2 + 1 / believed_sd**2
        shift = (apart.sum(axis=0) / log_sd**2 + centre / believed_sd**2) / precision
        shift_log_sd = np.sqrt(1 / precision)
        squares = ((apart - shift) ** 2 + doubt).sum(axis=0) + weight * wide**2
        log_sd = np.sqrt(squares / (len(apart) + weight))
    few = float(stdtrit(len(clusters) + weight, _UPPER)) / float(ndtri(_UPPER))
    return Learned(
        clusters=sorted(one.name for one in clusters),
        domains=[_most_domains(law, clusters, *ends) for ends in priors.bands.classes],
        unknowns={
            unknown.name: LearnedUnknown(
                value=rounded(beliefs[unknown.name].value * float(np.exp(shift[i]))),
                log_sd=rounded(few * float(np.hypot(log_sd[i], shift_log_sd[i])), 3),
            )
            for i, unknown in enumerate(LINK_LAWS[law].unknowns)
            if unknown.network
        },
    )


def _prior(law: str, own: Believed, shift: Floats, log_sd: Floats) -> Believed:
    """The prior of a cluster: the clusters' common mean for unknowns across domains, else its own prior.

    own  its own prior;  shift, log_sd  common mean relative to ``own``, and spread
    """
    network = np.array([unknown.network for unknown in LINK_LAWS[law].unknowns])
    return Believed(own.centre + np.where(network, shift, 0.0), np.where(network, log_sd, own.log_sd))


def _stored(
    law: str, known: Learned, beliefs: Mapping[str, Belief], believed_sd: Floats
) -> tuple[Floats, Floats]:
    """(mean relative to ``beliefs``, spread) of each unknown, read back from ``known``.

    beliefs  priors before any cluster was measured, for unknowns that were not learned
    believed_sd  their standard deviations
    """
    shift, log_sd = np.zeros(believed_sd.size), believed_sd.copy()
    for i, unknown in enumerate(LINK_LAWS[law].unknowns):
        if unknown.network:
            shift[i] = np.log(known.unknowns[unknown.name].value / beliefs[unknown.name].value)
            log_sd[i] = known.unknowns[unknown.name].log_sd
    return shift, log_sd


def _most_domains(law: str, clusters: Sequence[ClusterCells], low_bytes: float, high_bytes: float) -> int:
    """The most domains that were measured at sizes from ``low_bytes`` to below ``high_bytes``; none -> 1"""
    counts = [
        cell.group.domains
        for one in clusters
        for cell in one.cells[law]
        if np.any((low_bytes <= cell.payload_bytes) & (cell.payload_bytes < high_bytes))
    ]
    return max(counts, default=1)
