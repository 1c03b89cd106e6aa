"""Switches above the network cards: which bytes of an exchange leave a pod, and how much that slows them.

A *pod* is the nodes under one leaf switch, or under leaves that are joined without loss; with *rails* the
cards of one index have a leaf of their own in each pod. The links of a pod to the spine carry ``1/o`` of the
rate of its cards (o: oversubscription), and a spine may have narrower links above it, too. Ranks fill pods in
their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.model.recording import Number, Recorded, named, operation, smaller


@dataclass(frozen=True)
class Level:
    """A level of switches: each joins some domains, and has uplinks to the level above.

    name     pod or spine; card, if other jobs take a share of the network cards themselves
    domains  scale-up domains under one switch of the level
    wired    oversubscription: rate of the cards under it over the rate of its uplinks [-]
    taken    share of the uplinks that other jobs take [-]
    """

    name: str
    domains: Number
    wired: Number
    taken: Number = 0.0

    @property
    def ratio(self) -> Number:
        """Rate of the cards over the rate that the uplinks leave to this job [-].

        Limits: none taken -> ``wired``
        """
        if not self.taken > 0:
            return self.wired
        words = f"rate of a {self.name}'s cards over what its links up leave to this job"
        return named(f"o_{self.name}", self.wired / (1 - self.taken), words)


@dataclass(frozen=True)
class Fabric:
    """The switch levels above the cards, the lowest first; without levels, all cards have full rate.

    hop_s  latency that each further switch adds to a message [s]
    rails  leaves of a pod between which messages cross the spine; 1: one leaf, or each message is handed to
           the card of its rail inside its node (PXN)
    """

    levels: tuple[Level, ...] = ()
    hop_s: Number = 0.0
    rails: Number = 1

    def crossed(self, domains: Number) -> tuple[Level, ...]:
        """Levels that a ring over so many domains crosses: one switch of the level has fewer domains."""
        return tuple(level for level in self.levels if domains > level.domains)

    def crossed_by_pairs(self, domains: Number) -> tuple[Level, ...]:
        """Levels that an exchange with every peer crosses; with several rails always the pod's switches."""
        rails = self.rails > 1 and domains > 1
        return self.crossed(domains) or (self.levels[:1] if rails else ())

    def narrow(self, domains: Number) -> tuple[Level, ...]:
        """Levels that slow an exchange with every peer: crossed, with uplinks slower than the cards below."""
        return tuple(level for level in self.crossed_by_pairs(domains) if level.ratio > 1)


def leaving_share(gpus: Number, gpus_per_domain: Number, pod_gpus: Number, rails: Number) -> Number:
    """Share of a rank's buffer that crosses the spine in an exchange with every peer.

        x = ( (G - q) + (q - g) (1 - 1/rails) ) / G,   q = min(p, G)                         [-]

    G  gpus;  g  GPUs of a domain;  p  GPUs under a pod
    rails  between which messages change; 1: one leaf, or PXN: only what leaves the pod crosses the spine
    Source: counted; docs/model.md#pods-rails-and-spines; benchmarks/fabric_simulation.py
    Limits: rails = 1, G <= p -> 0;  rails = 1, G > p -> (G - p)/G;  rails -> inf -> (G - g)/G: all but the
            own domain
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
    """Time of an exchange with every peer on the uplinks of a full pod.

        t = k S x o (q/p) / B_nic,   q = min(p, G)                                           [s]

    S  payload of one rank [bytes];  k  wire copies;  x  ``leaving_share``;  o  oversubscription [-]
    q/p  share of the pod that the ranks fill;  B_nic  realised rate of a card [bytes/s]
    Of partly and completely filled pods, the full pod sends most per link: n (N - n) grows up to N/2.
    Source: counted; docs/model.md#pods-rails-and-spines
    Limits: G <= p, no rails to change -> 0;  o = 1 -> at most S (G-g)/G / B_nic, the cards' own time;
            o -> inf -> proportional to o
    """
    size = payload_bytes if wire_copies == 1 else wire_copies * payload_bytes
    share = leaving_share(gpus, gpus_per_domain, pod_gpus, rails)
    fill = smaller(pod_gpus, gpus) / pod_gpus
    return size * share * fill * ratio / nic_bytes_per_s


def pod_payload(sent_bytes: Number, pod_gpus: Number, full_gpus: Number, gpus: Number) -> Number:
    """Equal payload per rank of a full pod that loads its uplinks as the actual payloads of a pod's ranks do.

        S_pod = X (G - q) / ((G - p) p)                                                  [bytes]

    X  bytes that the ranks of the pod send to all ranks, or receive from all, together
    q  number of its ranks
    p  GPUs under a full pod;  G  gpus, > p
    Every rank has samples, so a holder of tables sends equally to all ranks, wherever they are: a pod sends
    (G - q)/G of its bytes up.
    Source: counted; docs/model.md#pods-rails-and-spines; benchmarks/fabric_simulation.py
    Limits: q = p, all ranks send S -> S;  one rank of p sends S -> S/p
    """
    return sent_bytes * (gpus - pod_gpus) / ((gpus - full_gpus) * full_gpus)


def uplink_rate(
    nic_bytes_per_s: Number, gpus_per_domain: Number, pod_domains: Number, ratio: Number
) -> Number:
    """Rate of all uplinks of a pod together.

        B_up = P g B_nic / o                                                            [bytes/s]

    P  domains under the pod;  g  GPUs of a domain;  B_nic  realised rate of a card;  o  oversubscription
    A ring leaves each pod once, with all its bytes, so B_up limits the ring's bus bandwidth.
    Source: definition of o; docs/model.md#pods-rails-and-spines
    Limits: o = 1 -> rate of all cards together;  o = P -> g B_nic, the rate of one domain, which slows a ring
    """
    return pod_domains * gpus_per_domain * nic_bytes_per_s / ratio


def tree_crossings(domains: Number, pod_domains: Number) -> Number:
    """Copies of the payload that the busiest pod sends up in a double binary tree.

        c = 1/2 (edges of both trees between the pod and others), the largest of all pods     [-]

    Each edge carries half of the payload up and half down. The second tree is the first one mirrored, or
    shifted by one if the number of domains is odd.
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
    """Copies of the payload that a pod sends up in PAT.

        c = log2(P) / 2 + 1 - P/N                                                             [-]

    P  domains under the pod;  N  domains of the group
    A message over a distance of 2^k domains has S/2^(k+1): far messages are small. At a distance 2^k < P a
    part 2^k/P leaves the pod, S/(2 P) of each domain for each k; at larger distances all, S/P (1 - P/N)
    together.
    Source: arXiv 2506.20252 (PAT: Bruck's exchange with its distances reversed); counted
    Limits: P = 1 -> 1 - 1/N;  N = P -> log2(P)/2, but nothing is left to cross: only asked for N > P
    """
    return float(math.log2(pod_domains) / 2 + 1 - pod_domains / domains)
