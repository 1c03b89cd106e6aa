"""Switches above the cards: which bytes of an exchange leave a pod, and what the links up leave of a rate.

A *pod* is the nodes under one leaf switch, or under leaves that are joined without loss; with *rails* the
cards of one index have a leaf of their own in each pod. The links of a pod to the spine carry ``1/o`` of what
its cards do (o: oversubscription), and a spine may have the same above it. Ranks fill pods in their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.model.recording import Number, Recorded, named, operation, smaller


@dataclass(frozen=True)
class Level:
    """Switches that join some domains, and the links up from them.

    name     pod or spine; card, where others take a part of the cards themselves
    domains  that lie under it
    wired    rate of the cards under it over that of its links up [-]
    taken    part of the links up that other jobs take [-]
    """

    name: str
    domains: Number
    wired: Number
    taken: Number = 0.0

    @property
    def ratio(self) -> Number:
        """Rate of the cards over what the links up leave to this job [-]. Limits: none taken -> ``wired``"""
        if not self.taken > 0:
            return self.wired
        words = f"rate of a {self.name}'s cards over what its links up leave to this job"
        return named(f"o_{self.name}", self.wired / (1 - self.taken), words)


@dataclass(frozen=True)
class Fabric:
    """The levels above the cards, the lowest first; none: every card reaches every other at its own rate.

    hop_s  what a switch more on the way takes [s]
    rails  leaves of a pod between which messages cross the spine; 1: one leaf, or each message is handed to
           the card of its rail inside its node (PXN)
    """

    levels: tuple[Level, ...] = ()
    hop_s: Number = 0.0
    rails: Number = 1

    def crossed(self, domains: Number) -> tuple[Level, ...]:
        """Levels that a group of so many domains does not fit under."""
        return tuple(level for level in self.levels if domains > level.domains)

    def crossed_by_pairs(self, domains: Number) -> tuple[Level, ...]:
        """The same of an exchange with every peer, which also changes rails."""
        rails = self.rails > 1 and domains > 1
        return self.crossed(domains) or (self.levels[:1] if rails else ())

    def narrow(self, domains: Number) -> tuple[Level, ...]:
        """Of these, in an exchange with every peer, the levels whose links up are less than the cards."""
        return tuple(level for level in self.crossed_by_pairs(domains) if level.ratio > 1)


def leaving_share(gpus: Number, gpus_per_domain: Number, pod_gpus: Number, rails: Number) -> Number:
    """Part of a rank's buffer that leaves its leaf in an exchange with every peer.

        x = ( (G - q) + (q - g) (1 - 1/R) ) / G,   q = min(p, G)                             [-]

    G  gpus;  g  in a domain;  p  under a pod
    R  rails that messages change;  1: one leaf, or PXN: only what leaves the pod crosses the spine
    Source: counted; docs/model.md#pods-rails-and-spines; benchmarks/fabric_simulation.py
    Limits: R = 1, G <= p -> 0;  R = 1, G > p -> (G - p)/G;  R -> inf -> (G - g)/G, all but the own domain
    """
    inside = smaller(pod_gpus, gpus)
    away = gpus - inside
    if rails > 1:
        away = away + (inside - gpus_per_domain) * (1 - 1 / rails)
    return away / gpus


def crossing_time(
    payload_bytes: Number,
    wire_copies: Number,
    nic_bytes_per_s: Number,
    gpus: Number,
    gpus_per_domain: Number,
    pod_gpus: Number,
    ratio: Number,
    rails: Number,
) -> Number:
    """Time of the bytes of an exchange with every peer on the links above a full pod.

        t = k S x o (q/p) / B_nic,   q = min(p, G)                                           [s]

    S  payload of one rank [bytes];  k  wire copies;  x  ``leaving_share``;  o  oversubscription [-]
    q/p  of a pod that the ranks do not fill, its links up serve fewer
    Among pods of any fill the full one has the most to send for each link: n (N - n) grows up to N/2.
    Source: counted; docs/model.md#pods-rails-and-spines
    Limits: G <= p, no rails to change -> 0;  o = 1 -> at most S (G-g)/G / B_nic, the cards' own time;
            o -> inf -> proportional to o
    """
    size = payload_bytes if wire_copies == 1 else wire_copies * payload_bytes
    share = leaving_share(gpus, gpus_per_domain, pod_gpus, rails)
    fill = smaller(pod_gpus, gpus) / pod_gpus
    return size * share * fill * ratio / nic_bytes_per_s


def pod_payload(sent_bytes: Number, pod_gpus: Number, full_gpus: Number, gpus: Number) -> Number:
    """Payload S of each rank of a full pod that would load the links up as the ranks of a pod together do.

        S_pod = X (G - q) / ((G - p) p)                                                  [bytes]

    X  what the ranks of the pod send to all, or receive from all, together [bytes];  q  their number
    p  GPUs under a full pod;  G  gpus, > p
    Each rank has samples, so what a holder of tables sends is for all pods alike, wherever the holder is: a
    pod sends (G - q)/G of it up.
    Source: counted; docs/model.md#pods-rails-and-spines; benchmarks/fabric_simulation.py
    Limits: q = p, all ranks send S -> S;  one rank of p sends S -> S/p
    """
    return sent_bytes * (gpus - pod_gpus) / ((gpus - full_gpus) * full_gpus)


def uplink_rate(
    nic_bytes_per_s: Number, gpus_per_domain: Number, pod_domains: Number, ratio: Number
) -> Number:
    """Rate of all links of a pod to the switches above.

        B_up = P g B_nic / o                                                            [bytes/s]

    P  domains under the pod;  g  GPUs of each;  B_nic  realised rate of a card
    A ring leaves each pod once, with all its bytes: this is its bus bandwidth there.
    Source: definition of o; docs/model.md#pods-rails-and-spines
    Limits: o = 1 -> what the cards have;  o = P -> g B_nic, those of one domain, where a ring feels it
    """
    return pod_domains * gpus_per_domain * nic_bytes_per_s / ratio


def tree_crossings(domains: Number, pod_domains: Number) -> Number:
    """Payload copies that the busiest pod sends up in a double binary tree.

        c = 1/2 (edges of both trees between the pod and others), the largest of all pods     [-]

    Each edge carries half of the payload up and half down. The second tree is the first one mirrored, of an
    odd number of domains shifted by one.
    Source: NVIDIA/nccl src/graph/trees.cc (ncclGetBtree, ncclGetDtree), counted
    Limits: one pod -> 0;  P = 1 -> ``tree_network_share``;  P, N powers of two, N >= 4 P >= 8 -> 3
    """
    counted = _crossings(int(float(domains)), int(float(pod_domains)))
    if not isinstance(domains, Recorded):
        return counted
    words = "copies of S that the busiest pod sends up in both trees"
    return Recorded(counted, symbol="c", meaning=words, source="NVIDIA/nccl src/graph/trees.cc, counted")


def _crossings(domains: int, pod_domains: int) -> float:
    nodes = np.arange(1, domains)
    lowest = nodes & -nodes
    up = (nodes ^ lowest) | (lowest << 1)
    up = np.where(up < domains, up, nodes ^ lowest)
    edges = np.stack([nodes, up])
    other = (edges + 1) % domains if domains % 2 else domains - 1 - edges
    pods = np.concatenate([edges, other], axis=1) // pod_domains
    leaving = pods[:, pods[0] != pods[1]]
    return float(np.bincount(leaving.ravel(), minlength=1).max()) / 2


@operation("(log2({1}) / 2 + 1 - {1} / {0})")
def pat_crossings(domains: Number, pod_domains: Number) -> float:
    """Payload copies that a pod sends up in PAT, for each of its domains times their number.

        c = log2(P) / 2 + 1 - P/N                                                             [-]

    A message over 2^k domains has S/2^(k+1): the far ones are small. Of distance 2^k < P a part 2^k/P leaves
    the pod, S/(2 P) of each domain for each k; of the far ones all, S/P (1 - P/N) together.
    Source: arXiv 2506.20252 (PAT: Bruck's exchange with its distances reversed); counted
    Limits: P = 1 -> 1 - 1/N;  N = P -> log2(P)/2, but nothing is left to cross: only asked for N > P
    """
    return float(math.log2(pod_domains) / 2 + 1 - pod_domains / domains)
