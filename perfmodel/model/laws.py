"""The two laws of collectives as functions of their unknowns, which a fit adjusts and a prediction reads.

Both are made of equations that explain themselves (``recording``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.model import collectives as parts
from perfmodel.model.collectives import PROTOCOLS
from perfmodel.model.curves import join_power, take_larger
from perfmodel.model.recording import Number, equation
from perfmodel.model.unknowns import PAIRWISE, RING_TREE, Group, StepConstants, Unknown, Unknowns

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """An (algorithm, protocol) pair that NCCL could choose.

    base_s, hops_s      launch time; time of the dependent steps of one chunk together [s]
    bus_bytes_per_s     bus bandwidth [bytes/s]
    sharpness           how far hops and bytes overlap (``collectives.pipelined_time``)
    choice              time that NCCL expects over the real time [-]: it chooses the least expected time
    """

    name: str
    base_s: Number
    hops_s: Number
    bus_bytes_per_s: Number
    sharpness: Number
    choice: Number

    def time_s(self, wire_bytes: Number) -> Number:
        """Time with this many bytes on the wire (S f), by ``collectives.pipelined_time`` [s]."""
        at_rate = wire_bytes, self.bus_bytes_per_s
        return parts.pipelined_time(self.base_s, self.hops_s, *at_rate, self.sharpness)


@dataclass(frozen=True)
class InSwitch(Candidate):
    """NVLS inside one domain: more bytes use more channels, each at a cost, and larger chunks.

    Small chunks cost time: in the smallest, as much as the transfer of their bytes.
    channels_s           time that all channels add, of which a share is in use [s]
    channels_half_bytes  bytes on the wire at which half of the channels are in use [bytes]
    growing_bytes        bytes on the wire above which chunks grow [bytes]
    """

    channels_s: Number
    channels_half_bytes: Number
    growing_bytes: Number

    def time_s(self, wire_bytes: Number) -> Number:
        """Time with this many bytes on the wire, by ``collectives.in_switch_time`` [s]."""
        sizes = wire_bytes, self.channels_half_bytes, self.growing_bytes
        return parts.in_switch_time(self.base_s, self.channels_s, *sizes, self.bus_bytes_per_s)


@dataclass(frozen=True)
class LibraryChoice:
    """NCCL's candidates at some sizes.

    times_s  real time of each candidate;  expected_s  the time that NCCL's table expects [s]
    shares   weight of each candidate in the mean: 1 for the chosen candidate, except near a tie [-]
    """

    candidates: tuple[Candidate, ...]
    times_s: Sequence[Number]
    expected_s: Sequence[Number]
    shares: Sequence[Number]

    @property
    def time_s(self) -> Number:
        """The weighted mean: the time of the candidate with the least expectation, except near a tie [s]."""
        products = [share * time for share, time in zip(self.shares, self.times_s, strict=True)]
        return sum(products[1:], products[0])


@equation
def ring_hops(m: Number, inside: Number, n: Number, network: Number) -> Number:
    """Time of the dependent steps of one chunk in a ring.

        m inside + n network                                                                 [s]

    m  steps inside domains (``collectives.count_ring_steps``) [-];  inside  one of them [s]
    n  steps across domains [-];  network  one of them [s]
    Source: NVIDIA/nccl src/graph/tuning.cc
    Limits: n = 0 -> m inside
    """
    return m * inside + n * network


@equation
def tree_hops(g: Number, inside: Number, depth: Number, network: Number) -> Number:
    """Time of the dependent steps of one chunk in a double binary tree, up and down.

        2 ((g - 1) inside + depth network)                                                   [s]

    g  ranks of a domain, a chain [-];  inside  a step inside a domain [s]
    depth  levels of the tree between domains, ceil(log2 N) [-];  network  a step across domains [s]
    Source: NVIDIA/nccl src/graph/tuning.cc, src/graph/trees.cc
    Limits: depth = 0 -> no network term;  g = 1 -> no inside term
    """
    return 2 * ((g - 1) * inside + depth * network)


@equation
def pat_hops(
    depth: Number, network: Number, overlap: Number, N: Number, rank: Number, ratio: Number
) -> Number:
    """Time of the dependent steps of PAT (parallel aggregated trees, a Bruck exchange) with one rank per
    node.

        (depth network / overlap + N rank) ratio                                             [s]

    depth  rounds, ceil(log2 N) [-];  network  one step across [s];  N  nodes [-]
    overlap  how many chunks' steps run at the same time [-];  rank  time that each rank adds [s]
    ratio  fitted step over NCCL's step [-]
    Source: NVIDIA/nccl src/graph/tuning.cc (NCCL_ALGO_PAT: log2(nNodes) interLat / 3.5 + 2.8 us nRanks)
    Limits: N = 1 -> rank ratio;  large N -> N rank ratio, where a ring takes (N - 1) network
    """
    return (depth * network / overlap + N * rank) * ratio


def compute_ring_rate(u: Unknowns, nccl: StepConstants, group: Group) -> Number:
    """Bus bandwidth of a ring [bytes/s]: the domain that is filled last, with the fewest cards, limits it."""
    shape = (group.smallest_domain_gpus, group.domains, nccl.rate_sharpness)
    return parts.compute_ring_bandwidth(u["link_bytes_per_s"], u["nic_bytes_per_s"], *shape)


def find_share(u: Unknowns, nccl: StepConstants, group: Group, protocol: str, ring_rate: Number) -> Number:
    """Fraction of the link rate that a protocol reaches [-]: LL and LL128 send flags, Simple does not.

    u, nccl  as in ``build_ring``;  ring_rate  bus bandwidth of Simple [bytes/s]
    Across domains LL has its own rate, whatever the cards: it waits for each line of 8 bytes.
    Source: NVIDIA/nccl src/graph/tuning.cc (busBw per protocol)
    Limits: Simple -> 1;  LL, one domain -> ``ll_fraction``
    """
    if protocol != "LL":
        return nccl.ll128_fraction if protocol == "LL128" else 1.0
    if group.domains == 1:
        return u["ll_fraction"]
    return parts.join_rates(u["ll_fraction"], nccl.ll_bytes_per_s / ring_rate, nccl.rate_sharpness)


def build_ring(
    u: Unknowns, nccl: StepConstants, collective: str, group: Group, protocol: str = "Simple"
) -> Candidate:
    """A ring: a launch, then dependent steps from rank to rank.

        hops_k = m inside_k + n network_k                                                    [s]

    k     the protocol;  m, n  ``collectives.count_ring_steps`` inside the N domains of G ranks, and across
    u     values of the unknowns, by name;  nccl  NCCL's constants of each protocol
    base, inside and network are NCCL's constants, times their ratios (``*_ratio``) where the law has these.
    In a ring over several domains a step inside takes the larger of its time and the network's overhead,
    with a rounded corner: the ring runs at the pace of its network proxies. With one rank per node, a step
    across costs as in a tree.
    Source: NVIDIA/nccl src/graph/tuning.cc, src/device/all_gather.h; docs/model.md#rings
    Limits: N = 1 -> no network term;  G = 2, one domain -> base + inside (all_reduce 2 inside)
    """
    key = protocol.lower()
    inside_steps, network_steps = parts.count_ring_steps(collective, group.gpus, group.domains)
    inside = u[f"{key}_inside_ratio"] * nccl.ring_inside_s[protocol]
    if group.domains > 1:
        proxies = u.get(f"{key}_overhead_ratio", 1.0) * nccl.network_overhead_s[protocol]
        inside = join_power(inside, proxies, nccl.choice_sharpness)
    rate = compute_ring_rate(u, nccl, group)
    constant = nccl.ring_network_s if group.domain_gpus > 1 else nccl.tree_network_s
    network = u.get(f"{key}_network_ratio", 1.0) * constant[protocol]
    return Candidate(
        f"ring {protocol}",
        u.get(f"{key}_base_ratio", 1.0) * nccl.ring_base_s[protocol],
        ring_hops(inside_steps, inside, network_steps, network),
        rate * find_share(u, nccl, group, protocol, rate),
        nccl.ring_sharpness[protocol],
        u.get(f"{key}_choice_ratio", 1.0),
    )


def build_tree(
    u: Unknowns, nccl: StepConstants, collective: str, group: Group, protocol: str = "Simple"
) -> Candidate:
    """NCCL's double binary tree, up and down: a chain inside each domain, a tree between domains.

        hops_k = 2 ( (g - 1) inside_k + depth(N) network_k )                                 [s]

    k     the protocol;  depth(N)  levels of a tree of N domains;  u, nccl  as in ``build_ring``
    Over libfabric, hops and bytes are joined with q = 1/2 in Simple, (sqrt(hops) + sqrt(bytes))^2: a rank
    forwards a chunk only after it has received all of it; the time assumes chunks of the best size.
    Source: NVIDIA/nccl src/graph/tuning.cc, src/device/all_reduce.h, src/enqueue.cc (calcCollChunking);
            docs/model.md#trees-forward-chunks
    Limits: N = 1 -> no network term;  g = 1 -> no inside term
    """
    key = protocol.lower()
    inside = u[f"{key}_inside_ratio"] * nccl.tree_inside_s[protocol]
    network = u.get(f"{key}_network_ratio", 1.0) * nccl.tree_network_s[protocol]
    shape = (group.gpus, group.smallest_domain_gpus, group.domains, nccl.rate_sharpness)
    rate = parts.compute_tree_bandwidth(u["link_bytes_per_s"], u["nic_bytes_per_s"], *shape)
    rate = rate * nccl.tree_fraction
    return Candidate(
        f"tree {protocol}",
        u.get(f"{key}_base_ratio", 1.0) * nccl.tree_base_s[protocol],
        tree_hops(group.domain_gpus, inside, parts.count_tree_levels(group.domains), network),
        rate * find_share(u, nccl, group, protocol, compute_ring_rate(u, nccl, group)),
        nccl.tree_sharpness[protocol],
        u.get(f"{key}_choice_ratio", 1.0) * u["tree_choice_ratio"],
    )


def build_nvls(u: Unknowns, nccl: StepConstants, collective: str, group: Group) -> Candidate:
    """An all-reduce in the switch inside a domain, and a tree between the switches of several domains.

        hops_k = 2 depth(N) network_k                                                        [s]

    depth(N)  levels of a tree of N domains;  u, nccl  as in ``build_ring``
    The floor inside one domain is the same for any number of GPUs; above it see ``InSwitch``. From three
    domains on, trees between switches reach a fraction of their rate (NCCL's table); chunks as in trees.
    Source: NVIDIA/nccl src/graph/tuning.cc (perChMaxNVLSTree), src/device/all_reduce.h; docs/model.md#rings
    Limits: N = 1 -> no network term, and the bandwidth is ``collectives.compute_nvls_bandwidth``
    """
    sharp = nccl.rate_sharpness
    rate = parts.compute_nvls_bandwidth(
        u["nvls_bytes_per_s"], u["nvls_bus_bytes_per_s"], group.domain_gpus, sharp
    )
    base = u["nvls_ratio"] * nccl.nvls_s
    if group.domains == 1:
        half = parts.compute_bus_factor(collective, group.gpus) * nccl.nvls_channels * nccl.nvls_channel_bytes
        channels = nccl.nvls_channel_s * nccl.nvls_channels * group.gpus
        choice = u["nvls_choice_ratio"]
        # Chunks grow from four times 16 KiB for each pair of a channel and a GPU (``compute_chunk_cost``).
        return InSwitch("NVLS", base, 0.0, rate, 1.0, choice, channels, half, 4 * group.gpus * half)
    network = u["nvls_tree_ratio"] * nccl.nvls_tree_step_s
    of_chunk = nccl.nvls_channel_bytes / nccl.nvls_tree_chunk_bytes  # overhead of a chunk over its time
    rate = rate / (1 + of_chunk)
    shape = (group.gpus, group.smallest_domain_gpus, group.domains, sharp)
    rate = parts.compute_tree_bandwidth(rate, u["nic_bytes_per_s"], *shape)
    if group.domains > 2:
        rate = rate * nccl.nvls_tree_fraction
    return Candidate(
        "NVLS",
        base,
        tree_hops(1, 0.0, parts.count_tree_levels(group.domains), network),
        rate,
        nccl.tree_sharpness["Simple"],
        u["nvls_choice_ratio"],
    )


def build_pat(u: Unknowns, nccl: StepConstants, collective: str, group: Group) -> Candidate:
    """PAT, with one rank per node (``pat_hops``); its step is a ring's across domains, in Simple."""
    step = nccl.ring_network_s["Simple"]
    ratio = u["simple_network_ratio"]
    depth = parts.count_tree_levels(group.domains)
    return Candidate(
        "PAT",
        nccl.pat_base_s,
        pat_hops(depth, step, nccl.pat_overlap, group.domains, nccl.pat_rank_s, ratio),
        compute_ring_rate(u, nccl, group) * nccl.pat_fraction,
        1.0,
        u["simple_choice_ratio"],
    )


def list_candidates(
    u: Unknowns, nccl: StepConstants, collective: str, group: Group, algorithm: str = ""
) -> tuple[Candidate, ...]:
    """The candidates of a group of ranks, one per (algorithm, protocol), in the order of NCCL's table.

    algorithm  pattern of the names that are allowed: "ring" as by NCCL_ALGO, " LL$" as by NCCL_PROTO; "": all
    Source: NVIDIA/nccl src/graph/tuning.cc (PAT: from 2.23, only with one rank per node)
    Limits: broadcast -> rings;  N = G -> PAT for all_gather and reduce_scatter;  all_reduce -> trees, and
            NVLS where the switch has it
    """
    arguments = (u, nccl, collective, group)
    candidates = [build_ring(*arguments, protocol) for protocol in PROTOCOLS]
    if collective == "all_reduce":
        candidates += [build_tree(*arguments, protocol) for protocol in PROTOCOLS]
        candidates += [build_nvls(*arguments)] if nccl.has_nvls else []
    elif collective != "broadcast" and 1 < group.gpus == group.domains:
        candidates.append(build_pat(*arguments))
    return tuple(candidate for candidate in candidates if re.search(algorithm, candidate.name))


def choose_candidates(
    u: Unknowns,
    nccl: StepConstants,
    collective: str,
    group: Group,
    payload_bytes: Number,
    algorithm: str = "",
) -> LibraryChoice:
    """NCCL's candidates at some sizes, with their weights in the law's time.

    payload_bytes  sizes, any shape;  algorithm  which may be chosen, and all others as in ``list_candidates``
    """
    candidates = list_candidates(u, nccl, collective, group, algorithm)
    wire = parts.wire_bytes(payload_bytes, parts.compute_bus_factor(collective, group.gpus))
    times = [candidate.time_s(wire) for candidate in candidates]
    expected = [candidate.choice * time_s for candidate, time_s in zip(candidates, times, strict=True)]
    shares = parts.compute_choice_shares(expected, nccl.choice_sharpness)
    return LibraryChoice(candidates, times, expected, shares)


def compute_ring_tree_time(
    u: Unknowns,
    nccl: StepConstants,
    collective: str,
    group: Group,
    payload_bytes: Number,
    algorithm: str = "",
) -> Number:
    """Time of a ring-or-tree collective: the time of the (algorithm, protocol) that NCCL chooses.

        t(S) = base_k + ( hops_k^q + (S f / bandwidth_k)^q )^(1/q)                           [s]

    S  payload_bytes [bytes], any shape;  f  ``compute_bus_factor``;  q  how far hops and bytes overlap
    k  the candidate with the least c_k t_k: NCCL chooses the fastest by its own table; c_k is the time that
       the table expects over the real time. Choices blend near a tie (``collectives.compute_choice_shares``)
    Source: NVIDIA/nccl src/graph/tuning.cc (ncclTopoGetAlgoTime); docs/model.md#rings
    Limits: S = 0 -> base + hops of one candidate;  S -> inf -> its bus bandwidth;  all c = 1 -> the cheapest
    """
    return choose_candidates(u, nccl, collective, group, payload_bytes, algorithm).time_s


def compute_pairwise_time(
    u: Unknowns, nccl: StepConstants, collective: str, group: Group, payload_bytes: Number
) -> Number:
    """Time of a pairwise exchange: the sum of floor, rendezvous and bytes.

        t(S) = alpha(G, g) + r rho(S/G) + bytes(S, G, g)                                     [s]

    alpha  ``pairwise_latency``;  rho  ``rendezvous_share``;  bytes  ``pairwise_transfer_time``
    r      rendezvous cost, one constant inside a domain and one across
    A last domain with fewer ranks has more remote peers, so the larger of both domains' bytes counts
    Source: docs/model.md#all-to-all
    Limits: S = 0 -> alpha;  S -> inf -> slope of the bytes term;  increasing in S
    """
    shape = (group.gpus, group.domain_gpus, group.domains)
    per_peer = (u["launch_s"], u["peer_s"], nccl.p2p_round_s, u["node_peer_s"], u["remote_peer_s"])
    alpha = parts.pairwise_latency(*per_peer, *shape, nccl.p2p_channels, nccl.p2p_batch)
    cost = u["link_rendezvous_s"] if group.domains == 1 else u["rendezvous_s"]
    share = parts.rendezvous_share(payload_bytes, group.gpus, nccl.rendezvous_half_bytes)
    copies = 2.0 if collective == "all_reduce" else 1.0  # of puts: what is reduced is sent once more
    inside = (u["link_bytes_per_s"], u["link_half_peers"])
    rates = (*inside, u["nic_bytes_per_s"], u["remote_peer_bytes_per_s"])
    moved = parts.pairwise_transfer_time(payload_bytes, copies, *rates, *shape, nccl.rate_sharpness)
    if group.smallest_domain_gpus != group.domain_gpus:
        small = (group.gpus, group.smallest_domain_gpus, group.domains)
        lonely = parts.pairwise_transfer_time(payload_bytes, copies, *rates, *small, nccl.rate_sharpness)
        moved = take_larger(moved, lonely)
    return parts.exchange_time(alpha, cost, share, moved)


@dataclass(frozen=True)
class LinkLaw:
    """A law: its unknowns in the order of a calibration, and its time [s]."""

    unknowns: tuple[Unknown, ...]
    time: Callable[..., Number]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its unknowns."""
        return tuple(unknown.name for unknown in self.unknowns)

    def time_at(
        self,
        logs: Floats,
        nccl: StepConstants,
        collective: str,
        group: Group,
        payload_bytes: Floats,
        algorithm: str = "",
    ) -> Floats:
        """Time as a function of the unknowns' logarithms, which keep unknowns positive and errors relative.

        logs       one set of unknowns, or one set per row; then the times have one row per set [s]
        algorithm  pattern of what the ring and tree law may choose (``list_candidates``); "": all
        """
        only = (algorithm,) if algorithm else ()
        columns = np.exp(logs).tolist() if logs.ndim == 1 else np.exp(logs.T)[:, :, np.newaxis]
        unknowns = dict(zip(self.names, columns, strict=True))
        return np.asarray(self.time(unknowns, nccl, collective, group, payload_bytes, *only))


LINK_LAWS = {
    "ring_tree": LinkLaw(RING_TREE, compute_ring_tree_time),
    "pairwise": LinkLaw(PAIRWISE, compute_pairwise_time),
}
"""The laws by their names in calibrations."""
