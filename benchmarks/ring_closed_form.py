"""Time of one ring of NCCL from its parts: hops that add, servers that set a pace, chunks in a row.

A channel is one thread block a rank, and runs its steps in order: step j + 1 passes on what the rank before
sent in step j. So a chunk goes from rank to rank, J hops, one after the other; on each rank it is cut into
units. Every event waits for one of two: the unit before it on the same server, or the same unit a hop
earlier. The time is the longest chain of such waits. A chain of J links may stay where it is (a turn of a
server) or go on (a hop); the longest one only hops, or only stays at the busiest server. Hence

    time of J steps = max( sum of the hops,  J turns of the busiest server ) + first and last

and nothing smoother: sum *or* pace. ``benchmarks/ring_simulation.py`` follows each unit and checks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RingLinks:
    """What a ring runs on. Seconds and bytes per second.

    inside_s     a   from one rank of a node to the next, beside the copy: fence, flag, poll
    network_s    n   from a card to a rank of another node that may read it, without post and transfer
    return_s         from the copy out of a place in a buffer until the sender on another node may fill it
    post_s       o   turn of a proxy for one message
    channel_bytes_per_s   beta   copy rate of one channel in a rank, its share of the links inside
    nic_bytes_per_s       B      rate of a network card
    channels_per_nic      m      channels that leave a node through one card and one proxy
    """

    inside_s: float
    network_s: float
    return_s: float
    post_s: float
    channel_bytes_per_s: float
    nic_bytes_per_s: float
    channels_per_nic: int


@dataclass(frozen=True)
class ChunkRules:
    """How a protocol cuts what a channel has to send.

    chunk_bytes  most bytes of one step;  unit_bytes  least bytes of a unit;  units  most units of a chunk
    posts        messages of a chunk across nodes, empty ones counted
    slots        messages that fit the buffer of the next rank
    whole        a message is the whole chunk (LL, LL128), else one unit (Simple)
    """

    chunk_bytes: int
    unit_bytes: int
    units: int
    posts: int
    slots: int
    whole: bool


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of a chunk, arrays of one shape.

    kernel_s  copies of a step, s x;  first_s  copies before its first message
    hop_s     a unit to the next rank inside a node and its copy there;  cross_s  the same across nodes
    turn_s    a step on the busier of card and proxy, all channels that share them
    lag_s     a message of each of the other channels;  end_s  messages of the last step after the first
    posts     messages of a step, empty ones counted
    trip_s    from a message's copy until its place in the buffer is free again
    """

    kernel_s: Floats
    first_s: Floats
    hop_s: Floats
    cross_s: Floats
    turn_s: Floats
    lag_s: Floats
    end_s: Floats
    posts: Floats
    trip_s: Floats


def ring_hops(collective: str, ranks: npt.ArrayLike) -> Floats:
    """Hops of a chunk, J = G - 1, or 2 (G - 1) in an all-reduce.

    Source: NVIDIA/nccl src/device/all_gather.h, reduce_scatter.h, all_reduce.h, broadcast.h
    Limits: G = 1 -> 0;  G = 2 -> 1 (all_reduce 2)
    """
    return np.asarray((2 if collective == "all_reduce" else 1) * (np.asarray(ranks, float) - 1))


def chunk_times(chunk_bytes: npt.ArrayLike, rules: ChunkRules, links: RingLinks) -> ChunkTimes:
    """Copies, hops and turns of a chunk of c bytes.

        s = clip(ceil(c / unit), 1, units),  x = c / (s beta),  hop = a + x  [s]
        Simple:      y = c / (s B),  cross = o + y + n + x
        LL, LL128:   y = c / B,      cross = o + max(y, y/s + (s-1) x) + n + x
        turn = m max(p o, messages y)

    Simple stores and forwards every slice, twice where it crosses (copy, card). LL and LL128 pass units on as
    they come, but a proxy waits for the whole chunk, so a crossing costs the chunk once.
    Source: NVIDIA/nccl src/device/prims_*.h, src/transport/net.cc, src/proxy.cc (docs/model.md#rings)
    Limits: c = 0 -> hop a, cross o + n;  c -> inf -> turn m c / B
    """
    size = np.asarray(chunk_bytes, float)
    units = np.clip(np.ceil(size / rules.unit_bytes), 1, rules.units)
    unit_s = size / units / links.channel_bytes_per_s
    messages = np.ones_like(units) if rules.whole else units
    posts = np.ones_like(units) if rules.whole else np.maximum(rules.posts, units)
    card_s = size / messages / links.nic_bytes_per_s
    late_s = (
        np.maximum(card_s / units + (units - 1) * unit_s - card_s, 0) if rules.whole else np.zeros_like(units)
    )
    first_s = units / messages * unit_s
    cross_s = links.post_s + card_s + late_s + links.network_s + unit_s
    slices_s = (messages - 1) * np.maximum(unit_s, links.channels_per_nic * np.maximum(links.post_s, card_s))
    empty_s = (posts - messages) * links.channels_per_nic * links.post_s - card_s - unit_s
    end_s = slices_s + np.where(posts > messages, np.maximum(empty_s, 0), 0)
    return ChunkTimes(
        units * unit_s, first_s, links.inside_s + unit_s, cross_s,
        turn_s=links.channels_per_nic * np.maximum(posts * links.post_s, messages * card_s),
        lag_s=(links.channels_per_nic - 1) * np.maximum(links.post_s, card_s),
        end_s=end_s,
        posts=posts, trip_s=first_s + cross_s + links.return_s,
    )  # fmt: skip


def loop_time(times: ChunkTimes, hops: npt.ArrayLike, per_node: npt.ArrayLike, rules: ChunkRules) -> Floats:
    """Time of one chunk of every rank among others before and after it: sum of the hops, or pace.

        t = max( own + (J - J/g) hop + J/g cross,    (J + 1) s x,    J turn,
                 own + (J - g) turn + (g - 1) hop + cross )  [s]

    J  hops;  g  ranks of a node, inf where no hop crosses;  own = first + end, the chunk of the rank itself
    turn  the larger of a turn of card or proxy and of p/slots trip
    The last term: a chain that stays at a card, and goes round one node while the thread block begins anew.
    J/g crossings, not N - 1: the J = G - 1 hops leave one hop out. For most ranks that is a hop inside, and
    N crossings decide. The next call begins where the chain ended, a rank further back: N - 1/g in the mean.
    Source: derived; NVIDIA/nccl src/graph/tuning.cc has N - 1 (nInterSteps)
    Limits: g = inf -> s x + J max(a + x, s x);  c = 0, o = 0 -> (J - J/g) a + J/g n
    """
    steps, node = np.asarray(hops, float), np.asarray(per_node, float)
    over = steps / node
    own_s = np.where(over > 0, times.first_s + times.end_s, times.kernel_s)
    sum_s = own_s + (steps - over) * times.hop_s + over * times.cross_s
    stay_s = np.maximum(times.turn_s, times.posts / rules.slots * times.trip_s)
    around = np.where(np.isfinite(node), node, 0)
    mixed_s = own_s + (steps - around) * stay_s + (around - 1) * times.hop_s + times.cross_s
    longest = np.maximum(sum_s, (steps + 1) * times.kernel_s)
    paced = np.maximum(steps * stay_s, np.where(steps >= node, mixed_s, 0))
    return np.asarray(np.maximum(longest, np.where(over > 0, paced, 0)))


def first_loop_time(
    times: ChunkTimes, hops: npt.ArrayLike, per_node: npt.ArrayLike, rules: ChunkRules
) -> Floats:
    """Time of the first chunk of every rank, from an idle ring to the last receive.

        walk(J, k) = k cross + (k - 1)(g - 1) hop + (J - k - (k - 1)(g - 1)) max(hop, turn, s x)
        t = first + lag + max( walk(J, 1), walk(J, ceil(J/g)) ) + end;     g = inf: s x + J max(hop, s x)
            and at least first + u trip + walk(J - u slots/p, ceil(...)) + end,  u = floor((J p - 1)/slots)

    A chain of waits crosses once at least and ceil(J/g) times at most; between two crossings it must hop, for
    the other steps it takes what lasts longest. ``lag``: all channels begin at once, and the last one of a
    card waits. The first messages find the buffer empty. ``end``: messages of the last step after the first.
    Source: derived, as above
    Limits: g = inf -> ``loop_time``;  J -> inf -> ``loop_time``
    """
    steps, node = np.asarray(hops, float), np.asarray(per_node, float)
    inside = np.where(np.isfinite(node), node, 1) - 1
    stay_s = np.maximum(np.maximum(times.hop_s, times.kernel_s), times.turn_s)

    def walk(left: Floats, crossings: Floats) -> Floats:
        between = (crossings - 1) * inside
        rest = np.maximum(left - crossings - between, 0)
        return np.asarray(crossings * times.cross_s + between * times.hop_s + rest * stay_s)

    one_node = times.kernel_s + steps * np.maximum(times.hop_s, times.kernel_s)
    trips = np.floor(np.maximum(steps * times.posts - 1, 0) / rules.slots)
    left = steps - trips * rules.slots / times.posts
    longest = np.maximum(walk(steps, np.minimum(steps, 1)), walk(steps, np.ceil(steps / node)))
    waits_s = np.maximum(times.lag_s + longest, trips * times.trip_s + walk(left, np.ceil(left / node)))
    several = np.maximum(times.first_s + waits_s + times.end_s, one_node)
    return np.asarray(np.where(np.isfinite(node), several, one_node))


def chain_time(
    times: ChunkTimes, hops: npt.ArrayLike, crossings: npt.ArrayLike, chunks: npt.ArrayLike, rules: ChunkRules
) -> Floats:
    """Time of a broadcast: chunks follow each other down a chain of ranks.

        t = s x + (J - K) hop + K cross + lag + max((chunks - 1) turn, floor((chunks - 1) / slots) trip)  [s]

    K  hops that cross;  turn  the busiest of thread block, card and proxy
    Source: NVIDIA/nccl src/device/broadcast.h
    Limits: one chunk, m = 1 -> s x + hops;  many chunks -> rate of the slowest link
    """
    steps, over = np.asarray(hops, float), np.asarray(crossings, float)
    more = np.asarray(chunks, float) - 1
    across = np.maximum(more * times.turn_s, np.floor(more / rules.slots) * times.trip_s)
    first = times.kernel_s + (steps - over) * times.hop_s + over * times.cross_s + (over > 0) * times.lag_s
    return np.asarray(first + np.maximum(more * times.kernel_s, np.where(over > 0, across, 0)))


def ring_time(
    collective: str,
    share_bytes: npt.ArrayLike,
    ranks: npt.ArrayLike,
    nodes: npt.ArrayLike,
    rules: ChunkRules,
    links: RingLinks,
    one_call: bool = False,
) -> Floats:
    """Time of a ring collective whose channels carry ``share_bytes`` a step each, chunk after chunk.

        t = floor(b / chunk) loop(chunk) + loop(rest)  [s]

    b      bytes of a channel and step: S / (G C); broadcast S / C.   C  channels of the ring
    ranks  G, nodes  N (equally many ranks each);  one_call  alone, else the mean of calls in a row
    A full chunk costs a whole loop: the ring does not begin the next chunk before the last step of this one.
    Source: the functions above; launch and synchronisation are not in it
    Limits: S -> 0 -> (J - K) a + K (n + o);  S -> inf -> S/C J/G / min(beta, B/m) where s x > a + x
    """
    share = np.asarray(share_bytes, float)
    hops = ring_hops(collective, ranks)
    full = np.floor(share / rules.chunk_bytes)
    rest = share - full * rules.chunk_bytes
    if collective == "broadcast":
        chunks = np.maximum(np.ceil(share / rules.chunk_bytes), 1)
        times = chunk_times(share / chunks, rules, links)
        return chain_time(times, hops, np.asarray(nodes, float) - 1, chunks, rules)
    per_node = np.where(np.asarray(nodes) > 1, np.asarray(ranks, float) / np.asarray(nodes, float), np.inf)
    parts = chunk_times(rules.chunk_bytes, rules, links), chunk_times(rest, rules, links)
    large, small = (loop_time(part, hops, per_node, rules) for part in parts)
    row_s = full * large + np.where((rest > 0) | (full == 0), small, 0)
    if not one_call:
        return np.asarray(row_s)
    begin_large, begin_small = (first_loop_time(part, hops, per_node, rules) for part in parts)
    return np.asarray(row_s + np.where(full > 0, begin_large - large, begin_small - small))
