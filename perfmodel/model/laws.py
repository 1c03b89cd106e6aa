"""The two laws of ``collectives`` as functions of their unknowns: what a fit adjusts and a prediction reads.

Unknowns travel as a vector of logarithms in the order of ``RING_TREE`` or ``PAIRWISE``, so that they stay
positive and their errors are relative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.model import collectives as laws
from perfmodel.model.curves import join_power

Floats = npt.NDArray[np.float64]

RING_TREE = (
    "ll_base_ratio",
    "ll128_base_ratio",
    "simple_base_ratio",
    "ll_inside_ratio",
    "ll128_inside_ratio",
    "simple_inside_ratio",
    "ll_network_ratio",
    "ll128_network_ratio",
    "simple_network_ratio",
    "nvls_ratio",
    "nvls_tree_ratio",
    "link_bytes_per_s",
    "nic_bytes_per_s",
    "nvls_bytes_per_s",
    "ll_fraction",
    "ll_network_bytes_per_s",
    "ll128_fraction",
    "tree_fraction",
    "ll_overhead_ratio",
    "ll128_overhead_ratio",
    "simple_overhead_ratio",
    "nvls_head_s",
    "nvls_bus_bytes_per_s",
    "nvls_tree_fraction",
    "ll128_choice_ratio",
    "simple_choice_ratio",
    "tree_choice_ratio",
    "nvls_choice_ratio",
)
"""Unknowns of the ring and tree law."""

PAIRWISE = (
    "launch_s",
    "peer_s",
    "network_s",
    "node_peer_s",
    "remote_peer_s",
    "rendezvous_s",
    "link_rendezvous_s",
    "link_bytes_per_s",
    "nic_bytes_per_s",
    "remote_peer_bytes_per_s",
)
"""Unknowns of the pairwise law."""

LAW_UNKNOWNS = {"ring_tree": RING_TREE, "pairwise": PAIRWISE}
"""Unknowns of each law by its name, in their order."""

NETWORK_UNKNOWNS = (
    "ll_network_ratio",
    "ll128_network_ratio",
    "simple_network_ratio",
    "nvls_tree_ratio",
    "nic_bytes_per_s",
    "ll_network_bytes_per_s",
    "ll_overhead_ratio",
    "ll128_overhead_ratio",
    "simple_overhead_ratio",
    "nvls_tree_fraction",
    "ll128_choice_ratio",
    "simple_choice_ratio",
    "tree_choice_ratio",
    "nvls_choice_ratio",
    "network_s",
    "node_peer_s",
    "remote_peer_s",
    "rendezvous_s",
    "remote_peer_bytes_per_s",
)
"""Those that only samples of several domains tell."""


@dataclass(frozen=True)
class StepConstants:
    """NCCL's constants for one class of links, seconds, one value per protocol (LL, LL128, Simple)."""

    ring_base_s: Floats
    tree_base_s: Floats
    ring_inside_s: Floats
    tree_inside_s: Floats
    ring_network_s: Floats
    tree_network_s: Floats
    network_overhead_s: Floats
    nvls_s: float
    nvls_tree_step_s: float
    pat_base_s: float
    pat_rank_s: float
    pat_overlap: float
    pat_fraction: float
    has_nvls: bool
    ring_sharpness: Floats
    rate_sharpness: float
    choice_sharpness: float
    rendezvous_half_bytes: float
    p2p_channels: int


@dataclass(frozen=True)
class Group:
    """The ranks of one communicator: how many, how many share a domain, how many domains."""

    gpus: int
    domain_gpus: int
    domains: int

    @staticmethod
    def of(gpus: int, domain_gpus: int) -> Group:
        """Ranks packed into domains of at most ``domain_gpus``. Limits: G <= g -> one domain of G."""
        return Group(gpus, min(gpus, domain_gpus), laws.domains_of(gpus, domain_gpus))

    @property
    def smallest_domain_gpus(self) -> int:
        """Ranks of the domain that is filled last: its few cards carry what comes from all the others."""
        return self.gpus - self.domain_gpus * (self.domains - 1)


@dataclass(frozen=True)
class Candidates:
    """All (algorithm, protocol) that NCCL could choose, ``collectives.algorithms_of``, arrays [k].

    base_s, hops_s      launch, and what the dependent steps of one chunk take together [s]
    bus_bytes_per_s     bus bandwidth [bytes/s]
    sharpness           how far hops and bytes overlap (``collectives.pipelined_time``)
    choice              time that NCCL expects over the one it gets [-]: it takes the least expected
    """

    base_s: Floats
    hops_s: Floats
    bus_bytes_per_s: Floats
    sharpness: Floats
    choice: Floats


def ring_tree_candidates(
    log_unknowns: Floats, steps: StepConstants, collective: str, group: Group
) -> Candidates:
    """What each (algorithm, protocol) takes on a group of ranks.

    Source: NVIDIA/nccl src/graph/tuning.cc; ``ring_tree_latencies``, ``ring_tree_bandwidths``
    Limits: all_gather, several ranks per node -> three rings;  no NVLS -> no last candidate of all_reduce
    """
    base, hops = ring_tree_latencies(log_unknowns, steps, collective, group)
    wide = ring_tree_bandwidths(log_unknowns, steps, collective, group)
    value = np.exp(log_unknowns)
    protocol = np.array([1.0, value[24], value[25]])
    sharp = np.concatenate([steps.ring_sharpness, np.ones(wide.size - 3)])
    simple = protocol[-1:]
    more = [protocol * value[26], [value[27]]] if collective == "all_reduce" else [simple]
    choice = np.concatenate([protocol, *more])[: wide.size]
    return Candidates(base, hops, wide, sharp, choice)


def ring_tree_latencies(
    log_unknowns: Floats, steps: StepConstants, collective: str, group: Group
) -> tuple[Floats, Floats]:
    """Launch, and all dependent steps together, of each candidate (``collectives.algorithms_of``) [s].

        ring:  b_k base_k,   m inside_k + n network_k,   (m, n) = ring_steps(collective, G, N)
        tree:  b_k base_k,   2 [(g - 1) inside_k + depth(N) network_k]         all_reduce only
        NVLS:  v nvls,       h g  (+ 2 depth(N) w nvls_step across domains)    all_reduce only
        PAT:   b pat_base,   ``collectives.pat_hops`` with Simple's ratios     one rank per node     [s]

    b_k and the ratios on inside_k and network_k are unknowns; in a ring over several domains a step inside
    costs at least the network overhead, o_k overhead_k, because the ring turns at the pace of its proxies;
    with one rank per node a crossing of a ring costs what one of a tree does, as NCCL's table has it;
    h is what one more GPU in the switch's domain adds, where each is the head of a part
    Source: NVIDIA/nccl src/graph/tuning.cc, src/device/all_reduce.h; docs/model.md#rings
    Limits: N = 1 -> no network term;  G = 2, one domain, ring -> base + inside (all_reduce 2 inside)
    """
    value = np.exp(log_unknowns)
    base, inside, network = value[0:3], value[3:6], value[6:9]
    across = group.domains > 1
    steps_inside, steps_across = laws.ring_steps(collective, group.gpus, group.domains)
    step = steps.ring_inside_s * inside
    if across:
        step = join_power(step, steps.network_overhead_s * value[18:21], steps.choice_sharpness)
    first = steps.ring_base_s * base
    crossing = steps.ring_network_s if group.domain_gpus > 1 else steps.tree_network_s
    ring = steps_inside * step + steps_across * crossing * network
    if "PAT" in laws.algorithms_of(collective, group.gpus, group.domains):
        simple = float(steps.ring_network_s[-1])
        pat = laws.pat_hops(group.domains, simple, steps.pat_overlap, steps.pat_rank_s) * network[-1]
        return np.append(first, steps.pat_base_s * base[-1]), np.append(ring, pat)
    if collective != "all_reduce":
        return first, ring
    depth = laws.tree_depth(group.domains)
    levels = (group.domain_gpus - 1) * steps.tree_inside_s * inside + depth * steps.tree_network_s * network
    firsts, hops = [first, steps.tree_base_s * base], [ring, 2 * levels]
    if steps.has_nvls:
        firsts.append(np.array([steps.nvls_s * value[9]]))
        heads = value[21] * group.domain_gpus
        hops.append(np.array([heads + 2 * depth * steps.nvls_tree_step_s * value[10]]))
    return np.concatenate(firsts), np.concatenate(hops)


def ring_tree_bandwidths(log_unknowns: Floats, steps: StepConstants, collective: str, group: Group) -> Floats:
    """Bus bandwidth of each (algorithm, protocol), in the order of ``ring_tree_latencies`` [bytes/s].

    A protocol reaches a fraction of its links' rate: LL and LL128 carry flags, Simple carries none. Across
    domains LL has a rate of its own, whatever the cards: it waits for each line of 8 bytes. Trees between
    switches reach a fraction of their rate from three domains on, as NCCL's own table has it.
    Source: NVIDIA/nccl src/graph/tuning.cc (busBw per protocol, perChMaxNVLSTree); ``*_bus_bandwidth``
    Limits: Simple, one domain -> link rate;  NVLS, one domain -> ``nvls_bus_bandwidth``
    """
    value = np.exp(log_unknowns)
    link, nic, nvls = value[11:14]
    sharp = steps.rate_sharpness
    cards = group.smallest_domain_gpus
    full = laws.ring_bus_bandwidth(link, nic, cards, group.domains, sharp)
    slow = value[14] if group.domains == 1 else laws.join_rates(value[14], value[15] / full, sharp)
    fraction = np.array([float(slow), value[16], 1.0])
    ring = full * fraction
    if "PAT" in laws.algorithms_of(collective, group.gpus, group.domains):
        return np.append(ring, full * steps.pat_fraction)
    if collective != "all_reduce":
        return np.asarray(ring)
    args = (group.gpus, cards, group.domains, sharp)
    tree = laws.tree_bus_bandwidth(link, nic, *args) * value[17] * fraction
    if not steps.has_nvls:
        return np.concatenate([ring, tree])
    switch = laws.nvls_bus_bandwidth(nvls, value[22], group.domain_gpus, sharp)
    across = value[23] if group.domains > 2 else 1.0
    return np.concatenate([ring, tree, [laws.tree_bus_bandwidth(switch, nic, *args) * across]])


def ring_tree_time(
    log_unknowns: Floats, steps: StepConstants, collective: str, group: Group, payload_bytes: Floats
) -> Floats:
    """Time of a ring-or-tree collective: that of the (algorithm, protocol) that NCCL takes.

        t(S) = b_k base_k + ( hops_k^q + (S f / bandwidth_k)^q )^(1/q)                       [s]

    S  payload_bytes [bytes], any shape;  f  ``bus_factor``;  q  how far hops and bytes overlap
    k  the candidate with the least c_k t_k: NCCL takes what its own table says is the fastest, and c_k is
       what that table expects over what it gets. The corners are rounded (``collectives.chosen_time``)
    Source: NVIDIA/nccl src/graph/tuning.cc (ncclTopoGetAlgoTime); docs/model.md#rings
    Limits: S = 0 -> base + hops of one candidate;  S -> inf -> its bus bandwidth;  all c = 1 -> the cheapest
    """
    each = ring_tree_candidates(log_unknowns, steps, collective, group)
    wire = np.asarray(payload_bytes, float).reshape(1, -1) * laws.bus_factor(collective, group.gpus)
    moved = wire / each.bus_bytes_per_s[:, None]
    times = laws.pipelined_time(each.base_s[:, None], each.hops_s[:, None], moved, each.sharpness[:, None])
    chosen = laws.chosen_time(times, each.choice[:, None], steps.choice_sharpness)
    return chosen.reshape(np.shape(payload_bytes))


def pairwise_time(
    log_unknowns: Floats, steps: StepConstants, collective: str, group: Group, payload_bytes: Floats
) -> Floats:
    """Time of a pairwise exchange: floor, rendezvous and bytes add up.

        t(S) = alpha(G, g) + r rho(S/G) + bytes(S, G, g)                                     [s]

    alpha  ``pairwise_latency``;  rho  ``rendezvous_share``;  bytes  ``pairwise_transfer_time``
    r      rendezvous cost, one constant inside a domain and one across
    A last domain with fewer ranks has more remote peers: the larger of both domains' bytes counts
    Source: docs/model.md#all-to-all
    Limits: S = 0 -> alpha;  S -> inf -> slope of the bytes term;  increasing in S
    """
    launch, peer, network, node_peer, remote, far, near, link, nic, single = np.exp(log_unknowns)
    shape = (group.gpus, group.domain_gpus, group.domains)
    alpha = laws.pairwise_latency(launch, peer, network, node_peer, remote, *shape, steps.p2p_channels)
    cost = near if group.domains == 1 else far
    handshake = cost * laws.rendezvous_share(payload_bytes, group.gpus, steps.rendezvous_half_bytes)
    copies = 2.0 if collective == "all_reduce" else 1.0
    moved = laws.pairwise_transfer_time(
        payload_bytes, copies, link, nic, single, *shape, steps.rate_sharpness
    )
    if group.smallest_domain_gpus < group.domain_gpus:
        small = (group.gpus, group.smallest_domain_gpus, group.domains)
        lonely = laws.pairwise_transfer_time(
            payload_bytes, copies, link, nic, single, *small, steps.rate_sharpness
        )
        moved = np.maximum(moved, lonely)
    return np.asarray(alpha + handshake + moved)
