"""Collectives at any scale: steps times constants per step, bytes times link rates.

Two laws. **Ring and tree** (NCCL's all-gather, reduce-scatter, all-reduce, broadcast): NCCL's own tuning
model, whose constants are refitted per machine. **Pairwise** (all-to-all of any library, and every
NVSHMEM collective, which are one-sided puts to each peer).

A *domain* is a group of GPUs that reach each other without a network card (8 in a DGX, 72 in an NVL72).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfmodel.model.curves import join_power
from perfmodel.model.recording import (
    POWER,
    PRODUCT,
    Number,
    Recorded,
    ceil_ratio,
    larger,
    maximum,
    minimum,
    named,
    operation,
    smaller,
    smallest,
)

Floats = npt.NDArray[np.float64]

PROTOCOLS = ("LL", "LL128", "Simple")


def bus_factor(collective: str, gpus: Number) -> Number:
    """Bytes on the wire per payload byte: the factor from algorithm bandwidth to bus bandwidth.

        all_reduce 2 (G-1)/G;   all_gather, reduce_scatter, all_to_all (G-1)/G;   broadcast 1        [-]

    G      gpus, ranks >= 1, any shape
    Source: NVIDIA/nccl-tests doc/PERFORMANCE.md
    Limits: G = 1 -> 0 (broadcast 1);  G = 2 -> 1/2 (all_reduce 1);  G -> inf -> 1 (all_reduce 2)
    """
    ranks = gpus if isinstance(gpus, Recorded) else np.asarray(gpus, float)
    if collective == "broadcast":
        return ranks / ranks
    share = (ranks - 1) / ranks
    return 2 * share if collective == "all_reduce" else share


def domains_of(gpus: int, domain_gpus: int) -> int:
    """Number of domains that G ranks fill, N = ceil(G / g). Limits: G <= g -> 1;  G = g + 1 -> 2."""
    return -(-gpus // domain_gpus)


def ring_steps(collective: str, gpus: int, domains: int) -> tuple[int, int]:
    """Steps of a ring: (steps inside domains, steps across domains).

        inside = k (G - N),   across = k (N - 1) ;   k = 2 for all_reduce, else 1
        one domain: inside = k (G - 1), across = 0

    G      gpus;  N  domains (a ring leaves each domain once, and the last step needs no crossing)
    Source: NVIDIA/nccl src/graph/tuning.cc (nsteps, nInterSteps)
    Limits: N = 1 -> (k (G-1), 0);  N = G -> (0, k (G-1));  inside + across = k (G-1)
    """
    inside, across = gpus - domains, domains - 1
    return (2 * inside, 2 * across) if collective == "all_reduce" else (inside, across)


def pat_hops(domains: int, network_s: Number, overlap: Number, rank_s: Number) -> Number:
    """Time of the dependent steps of PAT (parallel aggregated trees, a Bruck exchange) with one rank per
    node.

        depth(N) network / o + N p                                                           [s]

    N  domains, nodes here;  depth  ``tree_depth``;  network  one step across [s]
    o  overlap: how many chunks' steps run at the same time [-];  p  time that each rank adds [s]
    Source: NVIDIA/nccl src/graph/tuning.cc (NCCL_ALGO_PAT: log2(nNodes) interLat / 3.5 + 2.8 us nRanks)
    Limits: N = 1 -> p;  large N -> N p, where a ring takes (N - 1) network
    """
    depth = named("depth", tree_depth(domains), "rounds of the exchange")
    return depth * network_s / overlap + domains * rank_s


@operation("ceil(log2 {0})")
def tree_depth(domains: int) -> int:
    """Levels between the root and the deepest domain of NCCL's binary tree, ceil(log2 N).

    Source: NVIDIA/nccl src/graph/trees.cc (ncclGetBtree: the root has one child, the others two)
    Limits: N = 1 -> 0;  N = 2 -> 1;  N = 3, 4 -> 2;  N = 512 -> 9
    """
    return max(int(domains) - 1, 0).bit_length()


@operation("min({0}, 4) / 2", tie=PRODUCT)
def tree_network_share(domains: int) -> float:
    """Payload copies that the busiest domain sends over its network cards in a double binary tree.

    Each of the two trees carries half of the payload up and down. With two domains, each sends half up
    and half down: 1. With three, the middle of one tree is a leaf of the other: 3/2. From four on, an
    inner domain (parent and two children) is a leaf of the other tree: (3 + 1)/2 = 2.

    Source: derived from NVIDIA/nccl src/graph/trees.cc; seen as the fall of the all-reduce bus bandwidth
            by up to two between two domains and more (docs/model.md#all-reduce-across-domains)
    Limits: N = 2 -> 1;  N = 3 -> 3/2;  N >= 4 -> 2
    """
    return min(domains, 2 + 2) / 2


@operation("({0}^-{2} + {1}^-{2})^(-1/{2})", alike=2, inner=POWER)
def join_rates(first: Number, second: Number, sharpness: float) -> Number:
    """Rate of two links in a row: the slower one, with a smooth corner.

        (a^-n + b^-n)^(-1/n)

    a, b   rates in one unit, > 0;  n  sharpness [-]
    Source: definition (n = 1 is two links used one after the other, n -> inf is min)
    Limits: b -> inf -> a;  n -> inf -> min(a, b)
    """
    low, high = minimum(first, second), maximum(first, second)
    return low * (1 + (low / high) ** sharpness) ** (-1 / sharpness)


def pipelined_time(base_s: Number, hops_s: Number, bytes_s: Number, sharpness: Number) -> Number:
    """Launch, then the hops of a chunk and the bytes of all chunks, which overlap.

        t = base + (hops^q + bytes^q)^(1/q)                                                  [s]

    hops   time of the dependent hops of one chunk together;  bytes  time of all bytes at full rate [s]
    q      1 where a slice is received whole before it is sent on (Simple, trees): the two add up;
           larger where lines are sent on as they come (LL128): the longer one counts
    Source: NVIDIA/nccl src/device/prims_simple.h, prims_ll128.h
    Limits: bytes = 0 -> base + hops;  hops = 0 -> base + bytes;  q = 1 -> base + hops + bytes
    """
    if sharpness == 1:
        return base_s + hops_s + bytes_s
    return base_s + join_power(hops_s, bytes_s, sharpness)


def chosen_shares(expected_s: Sequence[Number], sharpness: Number) -> list[Number]:
    """Weight of each candidate in the time: 1 for the least expected time, blended near ties.

        share_k = e_k^-n_choice / sum_j e_j^-n_choice                                         [-]

    expected_s  e_k > 0, one for each candidate, of any shape;  sharpness  n_choice [-]
    Source: definition; smooth, so that a fit can follow it
    Limits: one e far below the others -> 1 for it;  all equal -> equal shares;  n_choice -> inf -> 1
            for the least
    """
    least = smallest(expected_s)
    weights = [(each / least) ** -sharpness for each in expected_s]
    total = sum(weights[1:], weights[0])
    return [weight / total for weight in weights]


def ring_bus_bandwidth(
    link_bytes_per_s: Number, nic_bytes_per_s: Number, gpus_per_domain: int, domains: int, sharpness: Number
) -> Number:
    """Bus bandwidth of a ring: it crosses a domain's boundary once, over all its network cards.

        one domain: B_link;      several: min(B_link, g B_nic)                              [bytes/s]

    B_link  ring rate inside a domain;  B_nic  realised rate of one card, one direction;  g  GPUs per domain
    Source: every byte enters and leaves a domain once, already gathered or reduced (docs/model.md#rings)
    Limits: N = 1 -> B_link;  g B_nic << B_link -> g B_nic;  B_nic -> inf -> B_link
    """
    if domains == 1:
        return link_bytes_per_s
    return join_rates(link_bytes_per_s, gpus_per_domain * nic_bytes_per_s, sharpness)


def tree_bus_bandwidth(
    link_bytes_per_s: Number,
    nic_bytes_per_s: Number,
    gpus: int,
    gpus_per_domain: int,
    domains: int,
    sharpness: Number,
) -> Number:
    """Bus bandwidth of NCCL's double tree (and of NVLS joined by such trees) for an all-reduce.

        one domain: B_link;   several: min(B_link, 2 (G-1)/G g B_nic / share(N))            [bytes/s]

    share(N)  ``tree_network_share``: 1 for two domains, 2 from four on
    Source: tree_network_share; NVIDIA/nccl src/graph/trees.cc
    Limits: N = 1 -> B_link;  N = 2, slow cards -> 2 (G-1)/G g B_nic, twice what a ring reaches;
            N >= 4, slow cards, G -> inf -> g B_nic, the same as a ring
    """
    if domains == 1:
        return link_bytes_per_s
    share = named("share", tree_network_share(domains), "copies of S that the busiest domain sends")
    cards = 2 * (gpus - 1) / gpus * gpus_per_domain * nic_bytes_per_s / share
    return join_rates(link_bytes_per_s, cards, sharpness)


def nvls_bus_bandwidth(
    link_bytes_per_s: Number, bus_bytes_per_s: Number, gpus: int, sharpness: Number
) -> Number:
    """Bus bandwidth of an all-reduce in the switch (NVLS) inside one domain: the links', or the copies'.

        min( 2 (G-1)/G * B / (1 + 1/G),  B_bus )                                             [bytes/s]

    B      NVLink rate that NVLS reaches per GPU. In each direction a GPU moves the whole buffer once (the
           switch reads it to reduce; the multicast writes it back) and its own 1/G once more.
    B_bus  what the copies in and out of the switch's buffers allow: the same for any G
    Source: derived; NVIDIA/nccl src/device/all_reduce.h (NVLS: one reduce-scatter and one all-gather); bus
            bandwidth constant from 8 to 32 GPUs of one GB200 domain (docs/model.md#all-reduce-across-domains)
    Limits: B_bus -> inf: G = 2 -> 2/3 B, G -> inf -> 2 B;  B -> inf -> B_bus;  G = 1 as G = 2
    """
    ranks = gpus if gpus > 2 else 2
    links = 2 * (ranks - 1) / ranks * link_bytes_per_s / (1 + 1 / ranks)
    return join_rates(links, bus_bytes_per_s, sharpness)


def channels_in_use(wire_bytes: Number, half_bytes: Number) -> Number:
    """Share of NVLS' channels that take part: each has at least 16 KiB of the buffer.

        used = n / (n + n_half)                                                              [-]

    n  bytes on the wire;  n_half  bytes on the wire that give each channel 16 KiB
    Source: NVIDIA/nccl src/enqueue.cc (MinTrafficPerChannel); docs/model.md#all-reduce-across-domains
    Limits: n = 0 -> 0;  n = n_half -> 1/2;  n -> inf -> 1
    """
    return wire_bytes / (wire_bytes + half_bytes)


def small_chunks(wire_bytes: Number, growing_bytes: Number) -> Number:
    """Extra time due to small chunks, relative to the time of NVLS' bytes.

        x = (1 + n / n_grow)^(-3/7)                                                          [-]

    n       bytes on the wire;  n_grow  bytes on the wire at 64 KiB for each pair of a channel and a GPU
    A pair moves its bytes in chunks of 16 KiB up to 64 KiB, of 32 KiB up to 512 KiB, of 64 KiB up to 8 MiB,
    and of 128 KiB above: chunks grow eightfold while bytes grow 128-fold, hence 3/7. The overhead of a chunk
    is the time of 16 KiB.
    Source: NVIDIA/nccl src/enqueue.cc (chunks of NCCL_ALGO_NVLS); docs/model.md#all-reduce-across-domains
    Limits: n = 0 -> 1, half the rate;  n -> inf -> 0;  n (1 + x) increases with n
    """
    return (1 + wire_bytes / growing_bytes) ** (-3 / 7)


def pairwise_latency(
    launch_s: Number,
    peer_s: Number,
    network_s: Number,
    node_peer_s: Number,
    remote_peer_s: Number,
    gpus: int,
    gpus_per_domain: int,
    domains: int,
    channels: Number,
    batch: Number,
) -> Number:
    """Floor of an exchange with every peer: a cost per peer, and one per round of remote domains.

        alpha = a0 + a1 (g - 1)                                           one domain         [s]
        alpha = a0 + a1 (g - 1) + R (c + b min(g, P)) + a2 (G - g)        several
        R = ceil((N - 1) ceil(g / P) / C)

    a0  launch;  a1  per peer inside the domain;  a2  per post to a remote peer [s]
    c   paid once for leaving the domain;  b  per peer of one batch, which share a channel [s]
    P   peers of a batch: a remote domain has ceil(g / P) batches
    C   channels: this many batches are served side by side, the others wait for the next round
    g   GPUs per domain (G where one domain holds all)
    Source: docs/model.md#all-to-all; NVIDIA/nccl src/enqueue.cc (addP2pToPlan), src/include/channel.h
    (ncclP2pChannelBaseForRound), src/init.cc (NCCL_P2P_SCHEDULE_GROUP_SIZE)
    Limits: G = 1 -> a0;  N = 1 -> a0 + a1 (G-1);  g <= P, 2 <= N <= C + 1: slope a2 in G;
            b = 0, C -> inf: c once;  g a multiple of P: P of them cost b as P in a domain of P do
    """
    if domains == 1:
        return launch_s + peer_s * (gpus - 1)
    alpha = launch_s + peer_s * (gpus_per_domain - 1)
    batches = (domains - 1) * ceil_ratio(gpus_per_domain, batch)
    rounds = named("R", ceil_ratio(batches, channels), "rounds of batches of remote peers")
    alpha = alpha + rounds * (network_s + node_peer_s * smaller(gpus_per_domain, batch))
    return alpha + remote_peer_s * (gpus - gpus_per_domain)


def rendezvous_share(payload_bytes: Number, gpus: int, half_bytes: Number) -> Number:
    """Share of the rendezvous cost that a message to one peer pays: from 0 if tiny to 1 if large.

        rho = u / (u + u_half),    u = S / G                                                [-]

    S       payload of one rank [bytes];  u  bytes for one peer
    u_half  bytes per peer at which half the cost shows [bytes]
    Source: seen on A100, H200 and B200 pairs; more channels a peer, more chunks, their clear-to-send: which
            of these it is is not known (docs/model.md#all-to-all)
    Limits: S = 0 -> 0;  S / G = u_half -> 1/2;  S -> inf -> 1
    """
    per_peer = named("u", payload_bytes / gpus, "S/G: bytes for one peer")
    return per_peer / (per_peer + half_bytes)


def pairwise_transfer_time(
    payload_bytes: Number,
    wire_copies: Number,
    link_bytes_per_s: Number,
    nic_bytes_per_s: Number,
    remote_peer_bytes_per_s: Number,
    gpus: int,
    gpus_per_domain: int,
    domains: int,
    sharpness: Number,
) -> Number:
    """Time of the bytes of a pairwise exchange: the slower of the two link classes.

        t = k max( S (g-1)/G / B_link,   S (G-g)/G / min(B_nic, (G-g) B_peer) )              [s]

    S       payload of one rank [bytes];  g  GPUs per domain
    k       wire copies of the payload (1; 2 for an all-reduce made of puts)
    B_link  rate inside the domain;  B_nic  realised rate of one card;  B_peer  rate towards a single
            remote peer (few peers cannot fill a card)                                    [bytes/s]
    Source: hierarchical all-to-all, docs/model.md#all-to-all; B_peer seen on pairs of nodes with 1..8 GPUs
    Limits: N = 1 -> k S (G-1)/G / B_link;  B_link -> inf, many peers -> k S (G-g)/G / B_nic
    """
    size = payload_bytes if wire_copies == 1 else wire_copies * payload_bytes
    if domains == 1:
        return size * (gpus - 1) / gpus / link_bytes_per_s
    remote = gpus - gpus_per_domain
    card = join_rates(nic_bytes_per_s, remote * remote_peer_bytes_per_s, sharpness)
    inside = size * (gpus_per_domain - 1) / gpus / link_bytes_per_s
    return larger(inside, size * remote / gpus / card)


def speed_of_light_time(
    collective: str,
    payload_bytes: npt.ArrayLike,
    gpus: int,
    gpus_per_domain: int,
    domains: int,
    link_bytes_per_s: float,
    nic_bytes_per_s: float,
    *,
    in_switch: bool = False,
) -> Floats:
    """Least time that the datasheet rates of the links allow, with no latency at all.

        inside:  S (G-1)/G / B_link  (all-to-all, several domains: S (g-1)/G)
                 all_reduce in one domain: 2 S (G-1)/G / B_link, in the switch S (1 + 1/G) / B_link
        across:  all_to_all S (G-g)/G / B_nic;   others: S (G-g)/G / (g B_nic), what a domain of g ranks
                 must receive through its cards, of an all_reduce S;   the larger of both         [s]

    in_switch  whether the switch can add (NVLS): each GPU sends and receives all of S once, and 1/G again
    Source: bytes that must cross each boundary; ``nvls_bus_bandwidth``
    Limits: G = 1 -> 0;  both rates -> inf -> 0;  G = 8 in the switch -> a bus bandwidth of 14/9 B_link
    """
    size = np.asarray(payload_bytes, float)
    if gpus == 1:
        return np.zeros_like(size)
    share = (gpus - 1) / gpus
    reduced = collective == "all_reduce"
    if domains == 1:
        twice = 2 * share if reduced else share
        moved = min(twice, 1 + 1 / gpus) if in_switch and reduced else twice
        return np.asarray(size * moved / link_bytes_per_s)
    if collective == "all_to_all":
        inside = size * (gpus_per_domain - 1) / gpus / link_bytes_per_s
        return np.asarray(np.maximum(inside, size * (gpus - gpus_per_domain) / gpus / nic_bytes_per_s))
    missing = 1 if reduced else (gpus - gpus_per_domain) / gpus
    across = size * missing / (gpus_per_domain * nic_bytes_per_s)
    return np.asarray(np.maximum(size * share / link_bytes_per_s * (gpus_per_domain > 1), across))
