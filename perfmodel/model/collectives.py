"""Collectives at any scale: steps times constants per step, bytes times link rates.

Two laws. **Ring and tree** (NCCL's all-gather, reduce-scatter, all-reduce, broadcast): NCCL's own tuning
model, whose constants are refitted per machine. **Pairwise** (all-to-all of any library, and every
NVSHMEM collective, which are one-sided puts to each peer).

A *domain* is a group of GPUs that reach each other without a network card (8 in a DGX, 72 in an NVL72).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from perfmodel.model.curves import join_power, take_larger, take_smaller
from perfmodel.model.recording import Number, equation

Floats = npt.NDArray[np.float64]

PROTOCOLS = ("LL", "LL128", "Simple")


def compute_bus_factor(collective: str, gpus: Number) -> Number:
    """Bytes on the wire per payload byte: the factor from algorithm bandwidth to bus bandwidth.

        all_reduce 2 (G-1)/G;   all_gather, reduce_scatter, all_to_all (G-1)/G;   broadcast 1        [-]

    G      gpus, ranks >= 1, any shape
    Source: NVIDIA/nccl-tests doc/PERFORMANCE.md
    Limits: G = 1 -> 0 (broadcast 1);  G = 2 -> 1/2 (all_reduce 1);  G -> inf -> 1 (all_reduce 2)
    """
    ranks = np.asarray(gpus, float)
    if collective == "broadcast":
        return ranks / ranks
    share = (ranks - 1) / ranks
    return 2 * share if collective == "all_reduce" else share


def count_domains(gpus: int, domain_gpus: int) -> int:
    """Number of domains that G ranks fill, N = ceil(G / g). Limits: G <= g -> 1;  G = g + 1 -> 2."""
    return -(-gpus // domain_gpus)  # the ceiling, in integers


def count_ring_steps(collective: str, gpus: int, domains: int) -> tuple[int, int]:
    """Steps of a ring: (steps inside domains, steps across domains).

        inside = k (G - N),   across = k (N - 1) ;   k = 2 for all_reduce, else 1
        one domain: inside = k (G - 1), across = 0

    G      gpus;  N  domains (a ring leaves each domain once, and the last step needs no crossing)
    Source: NVIDIA/nccl src/graph/tuning.cc (nsteps, nInterSteps)
    Limits: N = 1 -> (k (G-1), 0);  N = G -> (0, k (G-1));  inside + across = k (G-1)
    """
    inside, across = gpus - domains, domains - 1
    return (2 * inside, 2 * across) if collective == "all_reduce" else (inside, across)


def count_tree_levels(domains: int) -> int:
    """Levels between the root and the deepest domain of NCCL's binary tree, ceil(log2 N).

    Source: NVIDIA/nccl src/graph/trees.cc (ncclGetBtree: the root has one child, the others two)
    Limits: N = 1 -> 0;  N = 2 -> 1;  N = 3, 4 -> 2;  N = 512 -> 9
    """
    return (int(domains) - 1).bit_length()


def count_tree_copies(domains: int) -> float:
    """Payload copies that the busiest domain sends over its network cards in a double binary tree.

    domains  N [-]
    Each of the two trees carries half of the payload up and down. With two domains, each sends half up
    and half down: 1. With three, the middle of one tree is a leaf of the other: 3/2. From four on, an
    inner domain (parent and two children) is a leaf of the other tree: (3 + 1)/2 = 2.
    Source: derived from NVIDIA/nccl src/graph/trees.cc; seen as the fall of the all-reduce bus bandwidth
            by up to two between two domains and more (docs/model.md#all-reduce-across-domains)
    Limits: N = 2 -> 1;  N = 3 -> 3/2;  N >= 4 -> 2
    """
    return min(domains, 2 + 2) / 2


def join_rates(first: Number, second: Number, sharpness: float) -> Number:
    """Rate of two links in a row: the slower one, with a smooth corner.

        (first^-sharpness + second^-sharpness)^(-1/sharpness)

    first, second  rates in one unit, > 0
    Source: definition (sharpness 1 is two links used one after the other, -> inf is the smaller rate)
    Limits: one -> inf -> the other;  sharpness -> inf -> the smaller
    """
    low = take_smaller(first, second)
    high = take_larger(first, second)
    return low * (1 + (low / high) ** sharpness) ** (-1 / sharpness)


@equation
def wire_bytes(S: Number, f: Number) -> Number:
    """Bytes that a collective sends over the wire.

        S f                                                                                  [bytes]

    S  payload, as nccl-tests has it [bytes];  f  bus factor [-]: ``compute_bus_factor``
    Source: NVIDIA/nccl-tests doc/PERFORMANCE.md
    Limits: one rank -> 0
    """
    return S * f


@equation
def pipelined_time(base: Number, hops: Number, wire: Number, bandwidth: Number, q: Number) -> Number:
    """Launch, then the hops of a chunk and the bytes of all chunks, which overlap.

        t = base + (hops^q + (wire / bandwidth)^q)^(1/q)                                     [s]

    base   launch and first step [s];  hops   dependent hops of one chunk together [s]
    wire   bytes on the wire [bytes];  bandwidth  bus bandwidth [bytes/s]
    q      overlap of hops and bytes [-]: 1 where a slice is received whole before it is sent on (Simple,
           trees), and the two add up; larger where lines are sent on as they come (LL128): the longer counts
    Source: NVIDIA/nccl src/device/prims_simple.h, prims_ll128.h
    Limits: wire = 0 -> base + hops;  hops = 0 -> base + wire / bandwidth;  q = 1 -> the sum of the three
    """
    moved = wire / bandwidth
    if q == 1:
        return base + hops + moved
    return base + join_power(hops, moved, q)


@equation
def in_switch_time(
    base: Number, channels: Number, wire: Number, n_half: Number, n_grow: Number, bandwidth: Number
) -> Number:
    """Time of NVLS inside one domain: launch, the channels in use, and the bytes in their chunks.

        t = base + channels wire / (wire + n_half) + wire / bandwidth (1 + (1 + wire / n_grow)^(-3/7)) [s]

    base   launch and first step [s];  channels  time that all channels add together [s]
    wire   bytes on the wire [bytes];  bandwidth  bus bandwidth [bytes/s]
    n_half  bytes on the wire at which half of the channels are in use (``compute_channel_share``) [bytes]
    n_grow  bytes on the wire from which chunks grow (``compute_chunk_cost``) [bytes]
    Source: NVIDIA/nccl src/enqueue.cc; docs/model.md#all-reduce-across-domains
    Limits: wire = 0 -> base;  wire -> inf -> bandwidth
    """
    used = compute_channel_share(wire, n_half)
    small = compute_chunk_cost(wire, n_grow)
    return base + channels * used + wire / bandwidth * (1 + small)


def compute_choice_shares(expected_s: Sequence[Number], sharpness: Number) -> list[Number]:
    """Weight of each candidate in the time: 1 for the least expected time, blended near ties.

        share_k = e_k^-n_choice / sum_j e_j^-n_choice                                         [-]

    expected_s  e_k > 0, one for each candidate, of any shape;  sharpness  n_choice [-]
    Source: definition; smooth, so that a fit can follow it
    Limits: one e far below the others -> 1 for it;  all equal -> equal shares;  n_choice -> inf -> 1
            for the least
    """
    shortest = reduce(np.minimum, expected_s)
    weights = [(time_s / shortest) ** -sharpness for time_s in expected_s]
    total = sum(weights[1:], weights[0])
    return [weight / total for weight in weights]


def compute_ring_bandwidth(
    link_bytes_per_s: Number, nic_bytes_per_s: Number, gpus_per_domain: int, domains: int, sharpness: Number
) -> Number:
    """Bus bandwidth of a ring: it crosses a domain's boundary once, over all its network cards.

        one domain: B_link;      several: min(B_link, g B_nic)                              [bytes/s]

    B_link  ring rate inside a domain;  B_nic  realised rate of one card, one direction;  g  GPUs per domain
    sharpness  of the corner of min (``join_rates``)
    Source: every byte enters and leaves a domain once, already gathered or reduced (docs/model.md#rings)
    Limits: N = 1 -> B_link;  g B_nic << B_link -> g B_nic;  B_nic -> inf -> B_link
    """
    if domains == 1:
        return link_bytes_per_s
    return join_rates(link_bytes_per_s, gpus_per_domain * nic_bytes_per_s, sharpness)


def compute_tree_bandwidth(
    link_bytes_per_s: Number,
    nic_bytes_per_s: Number,
    gpus: int,
    gpus_per_domain: int,
    domains: int,
    sharpness: Number,
) -> Number:
    """Bus bandwidth of NCCL's double tree (and of NVLS joined by such trees) for an all-reduce.

        one domain: B_link;   several: min(B_link, 2 (G-1)/G g B_nic / share(N))            [bytes/s]

    share(N)  ``count_tree_copies``: 1 for two domains, 2 from four on
    B_link, B_nic, g, sharpness  as in ``compute_ring_bandwidth``;  G  gpus, of the group
    Source: derived; NVIDIA/nccl src/graph/trees.cc
    Limits: N = 1 -> B_link;  N = 2, slow cards -> 2 (G-1)/G g B_nic, twice what a ring reaches;
            N >= 4, slow cards, G -> inf -> g B_nic, the same as a ring
    """
    if domains == 1:
        return link_bytes_per_s
    cards = 2 * (gpus - 1) / gpus * gpus_per_domain * nic_bytes_per_s / count_tree_copies(domains)
    return join_rates(link_bytes_per_s, cards, sharpness)


def compute_nvls_bandwidth(
    link_bytes_per_s: Number, bus_bytes_per_s: Number, gpus: int, sharpness: Number
) -> Number:
    """Bus bandwidth of an all-reduce in the switch (NVLS) inside one domain: the links', or the copies'.

        min( 2 (G-1)/G * B / (1 + 1/G),  B_bus )                                             [bytes/s]

    B      NVLink rate that NVLS reaches per GPU. In each direction a GPU moves the whole buffer once (the
           switch reads it to reduce; the multicast writes it back) and its own 1/G once more.
    B_bus  what the copies in and out of the switch's buffers allow: the same for any G
    G      gpus of the domain;  sharpness  of the corner of min (``join_rates``)
    Source: derived; NVIDIA/nccl src/device/all_reduce.h (NVLS: one reduce-scatter and one all-gather); bus
            bandwidth constant from 8 to 32 GPUs of one GB200 domain (docs/model.md#all-reduce-across-domains)
    Limits: B_bus -> inf: G = 2 -> 2/3 B, G -> inf -> 2 B;  B -> inf -> B_bus;  G = 1 as G = 2
    """
    ranks = max(gpus, 2)
    links = 2 * (ranks - 1) / ranks * link_bytes_per_s / (1 + 1 / ranks)
    return join_rates(links, bus_bytes_per_s, sharpness)


def compute_channel_share(wire_bytes: Number, half_bytes: Number) -> Number:
    """Share of NVLS' channels that take part: each has at least 16 KiB of the buffer.

        used = wire_bytes / (wire_bytes + half_bytes)                                        [-]

    half_bytes  bytes on the wire that give each channel 16 KiB
    Source: NVIDIA/nccl src/enqueue.cc (MinTrafficPerChannel); docs/model.md#all-reduce-across-domains
    Limits: no bytes -> 0;  half_bytes -> 1/2;  more and more -> 1
    """
    return wire_bytes / (wire_bytes + half_bytes)


def compute_chunk_cost(wire_bytes: Number, growing_bytes: Number) -> Number:
    """Extra time due to small chunks, relative to the time of NVLS' bytes.

        x = (1 + wire_bytes / growing_bytes)^(-3/7)                                          [-]

    growing_bytes  bytes on the wire at 64 KiB for each pair of a channel and a GPU
    A pair moves its bytes in chunks of 16 KiB up to 64 KiB, of 32 KiB up to 512 KiB, of 64 KiB up to 8 MiB,
    and of 128 KiB above: chunks grow eightfold while bytes grow 128-fold, hence 3/7. The overhead of a chunk
    is the time of 16 KiB.
    Source: NVIDIA/nccl src/enqueue.cc (chunks of NCCL_ALGO_NVLS); docs/model.md#all-reduce-across-domains
    Limits: no bytes -> 1, half the rate;  more and more -> 0;  wire_bytes (1 + x) increases with them
    """
    return (1 + wire_bytes / growing_bytes) ** (-3 / 7)


@equation
def pairwise_latency(
    a0: Number, a1: Number, c: Number, b: Number, a2: Number, G: int, g: int, N: int, C: Number, P: Number
) -> Number:
    """Floor of an exchange with every peer: a cost per peer, and one per round of remote domains.

        alpha = a0 + a1 (g - 1) + R (c + b min(g, P)) + a2 (G - g),
        R = max(min(1, N - 1), (N - 1) ceil(g / P) / C)                                     [s]

    a0  launch [s];  a1  for each peer inside the domain [s];  a2  for each post to a remote peer [s]
    c   once a round for leaving the domain [s];  b  for each peer of one batch, which share a channel [s]
    G   ranks [-];  g  ranks of one domain [-];  N  domains [-];  R  rounds of batches [-]
    P   peers of a batch: a remote domain has ceil(g / P) batches [-]
    C   channels: this many batches are served side by side, the others wait. Rounds are not whole, because no
        measurement shows the step that a second one would be [-]
    Source: docs/model.md#all-to-all; NVIDIA/nccl src/enqueue.cc (addP2pToPlan), src/include/channel.h
    (ncclP2pChannelBaseForRound), src/init.cc (NCCL_P2P_SCHEDULE_GROUP_SIZE)
    Limits: G = 1 -> a0;  N = 1 -> a0 + a1 (G-1);  g <= P, 2 <= N <= C + 1: slope a2 in G;
            b = 0, C -> inf: c once;  g a multiple of P: P of them cost b as P in a domain of P do
    """
    if N == 1:
        return a0 + a1 * (G - 1)
    alpha = a0 + a1 * (g - 1)
    rounds = max(1.0, (N - 1) * -(-g // P) / C)
    alpha = alpha + rounds * (c + b * min(g, P))
    return alpha + a2 * (G - g)


@equation
def rendezvous_share(S: Number, G: int, u_half: Number) -> Number:
    """Share of the rendezvous cost that a message to one peer pays: from 0 if tiny to 1 if large.

        rho = u / (u + u_half),   u = S / G                                                 [-]

    S       payload of one rank [bytes];  G  ranks [-];  u  bytes for one peer [bytes]
    u_half  bytes per peer at which half the cost shows [bytes]
    Source: seen on A100, H200 and B200 pairs; more channels a peer, more chunks, their clear-to-send: which
            of these it is is not known (docs/model.md#all-to-all)
    Limits: S = 0 -> 0;  S / G = u_half -> 1/2;  S -> inf -> 1
    """
    per_peer = S / G
    return per_peer / (per_peer + u_half)


@equation
def pairwise_transfer_time(
    S: Number,
    k: Number,
    B_link: Number,
    h: Number,
    B_nic: Number,
    B_peer: Number,
    G: int,
    g: int,
    N: int,
    n: Number,
) -> Number:
    """Time of the bytes of a pairwise exchange: the slower of the two link classes.

        t = k max(S (g - 1 + h max(0, 2 - N)) / G / B_link, S (G - g) / G / r),
        r = (B_nic^-n + ((G - g) B_peer)^-n)^(-1/n)                                         [s]

    S       payload of one rank [bytes];  G  ranks [-];  g  ranks of one domain [-];  N  domains [-]
    k       wire copies of the payload [-]: 1; 2 for an all-reduce made of puts
    B_link  rate inside the domain to many peers [bytes/s];  h  peers for half of it, in one domain [-]
    B_nic  realised rate of one network card [bytes/s]
    B_peer  rate towards a single remote peer (few peers cannot fill a card) [bytes/s]
    r       rate to remote peers (``join_rates``) [bytes/s];  n  sharpness of its corner [-]
    Source: hierarchical all-to-all, docs/model.md#all-to-all; B_peer seen on pairs of nodes with 1..8 GPUs,
            h on 2, 4 and 8 GPUs of one node
    Limits: N = 1, h = 0 -> k S (G-1)/G / B_link;  B_link -> inf, many peers -> k S (G-g)/G / B_nic
    """
    size = k * S
    if N == 1:
        return size * (G - 1 + h) / G / B_link
    remote = G - g
    card = join_rates(B_nic, remote * B_peer, n)
    return take_larger(size * (g - 1) / G / B_link, size * remote / G / card)


@equation
def exchange_time(alpha: Number, r: Number, rho: Number, moved: Number) -> Number:
    """Time of an exchange with every peer: the sum of floor, rendezvous and bytes.

        t = alpha + r rho + moved                                                            [s]

    alpha  time of an empty message (``pairwise_latency``) [s];  r  handshake of large messages [s]
    rho    part of r that these messages pay (``rendezvous_share``) [-]
    moved  time of the bytes on the slower kind of link (``pairwise_transfer_time``) [s]
    Source: docs/model.md#all-to-all
    Limits: rho = 0, moved = 0 -> alpha
    """
    return alpha + r * rho + moved


def compute_light_time(
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

    S, G, g  payload [bytes], ranks, ranks of a domain;  B_link, B_nic  rates of a GPU's links, of its card
    in_switch  whether the switch can add (NVLS): each GPU sends and receives all of S once, and 1/G again
    Source: bytes that must cross each boundary; ``compute_nvls_bandwidth``
    Limits: G = 1 -> 0;  both rates -> inf -> 0;  G = 8 in the switch -> a bus bandwidth of 14/9 B_link
    """
    size = np.asarray(payload_bytes, float)
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
