"""One ring of NCCL, event by event, beside the closed form of ``ring_closed_form.py``.

Run:    python benchmarks/ring_simulation.py [--quick]
A ring of G ranks on N nodes: channels, chunks, slices, slots, proxies and cards. No constant of the
simulation is fitted to the closed form, and both take the same latencies and rates. Prints how far the closed
form is from the simulation: by collective, protocol, ranks on a node and size. Then the same of the law that
the product predicts with, which is simpler: its hops and bytes, joined with the shipped exponents.

What is simulated (NVIDIA/nccl v2.30, src/device/*.h, src/transport/net.cc). A channel is one thread block a
rank. It runs its steps in order: send a chunk of its own, then receive, copy and send on, at last receive.
A chunk is cut into units, a message into one unit or all of a chunk:

    Simple      a unit is a slice; each is copied, fenced and posted; over the network each is one message
    LL, LL128   a unit is what the threads of a block hold at once; inside a node it goes on as soon as it is
                there; over the network a proxy waits for the whole chunk, and the receiver sees units arrive

A unit starts when the block is free, its data are there, and a slot of the next rank's buffer is. A message
across nodes then waits for the proxy of its GPU (one at a time, all channels that leave there) and for the
card. All events of one rank are in order, so times follow a recurrence of maxima and sums: no event queue.
Channels that share a proxy and a card take turns. A short chunk of Simple has an empty second slice: it takes
a slot and a post.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from ring_closed_form import ChunkRules, RingLinks, ring_hops, ring_time

from perfmodel.model.collectives import pipelined_time, ring_steps
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
KIB, MIB, GIB = 2**10, 2**20, 2**30


PROTOCOLS = {
    "Simple": ChunkRules(2 * MIB, 32 * KIB, 2, 2, 4, False),
    "LL128": ChunkRules(576_000, 38_400, 15, 1, 8, True),
    "LL": ChunkRules(32 * KIB, 4 * KIB, 8, 1, 8, True),
}
CHAIN = ChunkRules(512 * KIB, 512 * KIB, 1, 1, 8, False)
"""Simple in a broadcast: a chunk is one slice."""


class Exits:
    """The way of a message from a rank to the next: wires of the node, or a proxy and a card.

    links    latencies and rates;  leaves  for each rank, whether the next one is on another node
    Times have the shape (channels of a card, ranks).
    """

    def __init__(self, links: RingLinks, leaves: npt.NDArray[np.bool_]) -> None:
        self.links, self.leaves = links, leaves
        self.return_s = np.where(leaves, links.return_s, links.inside_s)
        self.proxy_free_s = np.zeros(len(leaves))
        self.card_free_s = np.zeros(len(leaves))

    def message(self, ready_s: Floats, message_bytes: float, units: int) -> Floats:
        """When each unit of a message is at the next rank, shape (units, channels, ranks)."""
        inside = ready_s + self.links.inside_s
        there = np.broadcast_to(inside, (units, *ready_s.shape)).copy()
        if not self.leaves.any():
            return there
        whole = message_bytes / self.links.nic_bytes_per_s
        share = np.arange(1, units + 1) / units
        for channel, ready in enumerate(ready_s):
            post = np.maximum(self.proxy_free_s, ready) + self.links.post_s
            start = np.maximum(self.card_free_s, post)
            self.proxy_free_s, self.card_free_s = post, start + whole
            late = start + self.links.network_s + whole * share[:, None]
            there[:, channel] = np.where(self.leaves, late, there[:, channel])
        return there


def lock_step(
    rules: ChunkRules, links: RingLinks, chunks: Sequence[float], steps: int, leaves: npt.NDArray[np.bool_]
) -> list[float]:
    """Times at which each chunk of an all-gather, reduce-scatter or all-reduce is with the last rank [s].

    chunks  bytes of each chunk, in order;  steps  hops of a chunk, G-1 or 2(G-1)
    leaves  whether the next rank is on another node, for the ranks of one node or all (nodes are alike)
    """
    ways = Exits(links, leaves)
    shape = links.channels_per_nic, len(leaves)
    free, ends = np.zeros(shape), list[float]()
    slots = [np.full(shape, -np.inf) for _ in range(rules.slots)]
    enters = np.roll(leaves, 1)
    sent = received = 0
    for chunk in chunks:
        units = int(np.clip(np.ceil(chunk / rules.unit_bytes), 1, rules.units))
        sizes = [chunk / units] * units
        if not rules.whole:  # a short chunk has an empty slice: it takes a slot, is posted, and waited for
            sizes += [0.0] * (rules.posts - units)
            units = len(sizes)
        arrived = np.zeros((units, *shape))
        for step, unit in product(range(steps + 1), range(units)):
            ready = np.maximum(free, arrived[unit]) if step else free
            if step < steps and not (rules.whole and unit):
                back = np.roll(slots[sent % rules.slots], -1, axis=1) + ways.return_s
                ready, sent = np.maximum(ready, back), sent + 1
            free = ready + sizes[unit] / links.channel_bytes_per_s
            if step and (not rules.whole or unit == units - 1):
                slots[received % rules.slots], received = free, received + 1
            if step == steps:
                continue
            if not rules.whole:
                arrived[unit] = np.roll(ways.message(free, sizes[unit], 1)[0], 1, axis=1)
                continue
            inside = np.roll(free + links.inside_s, 1, axis=1)
            arrived[unit] = np.where(enters, arrived[unit], inside)
            if unit == units - 1 and leaves.any():
                across = np.roll(ways.message(free, chunk, units), 1, axis=2)
                arrived = np.where(enters, across, arrived)
        ends.append(float(free.max()))
    return ends


def chain(
    rules: ChunkRules, links: RingLinks, chunk: float, chunks: int, leaves: npt.NDArray[np.bool_]
) -> float:
    """Time of a broadcast: every chunk goes down the ranks, and follows the one before [s].

    leaves  for every rank of the chain but the last, whether the next one is on another node
    Rank r works on chunk t - r at tick t, so all ranks of a tick are one vector. A chunk is one unit.
    """
    busy_s = chunk / links.channel_bytes_per_s
    ways = Exits(links, np.append(leaves, False))
    ranks = len(leaves) + 1
    shape = links.channels_per_nic, ranks
    free, arrived = np.zeros(shape), np.zeros(shape)
    taken = [np.full(shape, -np.inf) for _ in range(rules.slots)]
    number = np.arange(ranks)
    for tick in range(chunks + ranks - 1):
        active = (tick - number >= 0) & (tick - number < chunks)
        back = np.roll(taken[(tick + 1) % rules.slots], -1, axis=1) + ways.return_s
        ready = np.maximum(np.maximum(free, arrived), np.where(number < ranks - 1, back, -np.inf))
        free = np.where(active, ready + busy_s, free)
        taken[tick % rules.slots] = np.where(active, free, -np.inf)
        before = ways.proxy_free_s, ways.card_free_s
        there = np.roll(ways.message(free, chunk, 1)[0], 1, axis=1)
        ways.proxy_free_s = np.where(active, ways.proxy_free_s, before[0])
        ways.card_free_s = np.where(active, ways.card_free_s, before[1])
        arrived = np.where(number > 0, there, 0)
    return float(free.max())


def leaving(ranks: int, nodes: int) -> npt.NDArray[np.bool_]:
    """For each rank of a ring, whether the next one is on another node."""
    per_node = ranks // nodes
    return (np.arange(ranks) % per_node == per_node - 1) & (nodes > 1)


def simulated(
    collective: str,
    share: float,
    ranks: int,
    nodes: int,
    rules: ChunkRules,
    links: RingLinks,
    calls: int = 1,
    every_rank: bool = False,
) -> float:
    """Time of one collective on channels that carry ``share`` bytes per step each; mean of later calls [s].

    share       all-gather, reduce-scatter, all-reduce S/(G C); broadcast S/C
    calls       how many calls follow each other; 1: the time of the first; else of one of the last of g calls
    every_rank  all ranks are followed, not those of one node: the same times, for a test
    """
    full = int(share // rules.chunk_bytes)
    rest = share - full * rules.chunk_bytes
    if collective == "broadcast":
        chunks = max(full + (rest > 0), 1)
        return chain(rules, links, share / chunks, chunks, leaving(ranks, nodes)[:-1])
    steps = (ranks - 1) * (2 if collective == "all_reduce" else 1)
    per_node = ranks // nodes if nodes > 1 else 1
    chunks_of_call = [float(rules.chunk_bytes)] * full + [rest] * (rest > 0 or not full)
    leaves = leaving(ranks, nodes)[: ranks if every_rank else per_node]
    ends = lock_step(rules, links, chunks_of_call * calls, steps, leaves)[
        len(chunks_of_call) - 1 :: len(chunks_of_call)
    ]
    return ends[0] if calls == 1 else (ends[-1] - ends[-1 - per_node]) / per_node


FABRICS = {
    "verbs": (1.9e-6, 5e-6, 4e-6, 0.6e-6, 20e9, 48e9),
    "plugin": (1.9e-6, 20e-6, 15e-6, 1e-6, 20e9, 24e9),
    "busy proxy": (0.6e-6, 4e-6, 3e-6, 3e-6, 20e9, 48e9),
}
"""Made up, of the order of InfiniBand, a slow plugin and a slow host: both sides take the same values."""
RINGS = ((2, 1), (8, 1), (64, 1), (2, 2), (16, 2), (8, 8), (64, 8), (64, 64), (256, 32), (2048, 256))
QUICK_RINGS = ((8, 1), (2, 2), (16, 2), (64, 8))
KINDS = [(rules, kind) for rules in PROTOCOLS for kind in ("all_gather", "all_reduce")] + [
    ("Simple", "broadcast")
]
CHANNELS, CHANNEL_BYTES = 16, 32 * KIB
SHARPNESS = dict(zip(("LL", "LL128", "Simple"), load_priors().shape.ring_sharpness, strict=True))
OTHER_SHARPNESS = (1.0, 1.2, 1.5, 2.0, 3.0)
SIZES = (("to 64 KiB", 64 * KIB), ("to 16 MiB", 16 * MIB), ("to 4 GiB", 4 * GIB))


@dataclass(frozen=True)
class Compared:
    """One point: what was run, and the two times [s].

    hops_s, paced_s, bytes_s  parts of the law (``law_parts``): hops, the same at the pace, and bytes
    """

    rules: str
    collective: str
    ranks: int
    nodes: int
    size: float
    simulated_s: float
    closed_s: float
    hops_s: float
    paced_s: float
    bytes_s: float

    @property
    def error(self) -> float:
        """Closed form over simulation, less 1."""
        return self.closed_s / self.simulated_s - 1

    def law_error(self, *, pace: bool = True, sharpness: float | None = None) -> float:
        """The product's law over simulation, less 1; with its shipped exponent, or another one."""
        q = SHARPNESS[self.rules] if sharpness is None else sharpness
        law = pipelined_time(0.0, self.paced_s if pace else self.hops_s, self.bytes_s, q)
        return float(law) / self.simulated_s - 1


def law_parts(
    collective: str, share: float, ranks: int, nodes: int, rules: ChunkRules, links: RingLinks
) -> tuple[float, float, float]:
    """What ``collectives.pipelined_time`` joins, from the same links: hops, hops at the pace, bytes [s].

        hops = m a + n (o + n_net),   (m, n) = ring_steps;   bytes = S f / rate = J b / min(beta, B/m)
        at the pace: a step across, or inside on several nodes, takes at least what proxy and buffer need
        for a chunk without bytes

    Source: perfmodel/model/laws.py (ring: its network overhead is such a pace)
    """
    inside, across = ring_steps(collective, ranks, nodes)
    cross_s = links.post_s + links.network_s
    channels = links.channels_per_nic
    rate = min(links.channel_bytes_per_s, links.nic_bytes_per_s / channels if nodes > 1 else np.inf)
    trip_s = rules.posts / rules.slots * (cross_s + links.return_s)
    pace_s = max(channels * rules.posts * links.post_s, trip_s) if nodes > 1 else 0.0
    hops_s = inside * links.inside_s + across * cross_s
    paced_s = inside * max(links.inside_s, pace_s) + across * max(cross_s, pace_s)
    return hops_s, paced_s, float(ring_hops(collective, ranks)) * share / rate


def compared(
    rings: Iterable[tuple[int, int]], sizes: Iterable[float], kinds: Iterable[tuple[str, str]]
) -> list[Compared]:
    """Both times of every protocol, collective, ring, fabric and size; channels as NCCL takes them."""
    points = []
    for (name, collective), (ranks, nodes), fabric, size in product(kinds, rings, FABRICS.values(), sizes):
        channels = int(np.clip(size // CHANNEL_BYTES, 1, CHANNELS))
        links = RingLinks(*fabric, channels_per_nic=min(channels, 2 if ranks // nodes >= 8 else 4))
        share = size / channels / (1 if collective == "broadcast" else ranks)
        rules = CHAIN if collective == "broadcast" else PROTOCOLS[name]
        closed = float(ring_time(collective, share, ranks, nodes, rules, links, one_call=True))
        exact = simulated(collective, share, ranks, nodes, rules, links)
        parts = law_parts(collective, share, ranks, nodes, rules, links)
        points.append(Compared(name, collective, ranks, nodes, size, exact, closed, *parts))
    return points


def line(name: str, points: Sequence[Compared]) -> str:
    """One row of a table: how many, median and largest error."""
    errors = 100 * np.array([point.error for point in points])
    median, least, most = np.median(abs(errors)), errors.min(), errors.max()
    return f" {name:28s} {len(errors):6d} {median:9.2f} {least:+8.1f} {most:+8.1f}"


def table(points: Sequence[Compared]) -> str:
    """Errors by protocol and collective, by ranks on a node, and by size."""
    rows = [f" {'ring':28s} {'points':>6s} {'median %':>9s} {'least':>8s} {'most':>8s}"]
    groups = [
        (f"{rules} {kind}", [p for p in points if (p.rules, p.collective) == (rules, kind)])
        for rules, kind in KINDS
    ]
    groups += [
        ("one node", [p for p in points if p.nodes == 1]),
        ("one rank per node", [p for p in points if p.nodes == p.ranks]),
        ("several, on several nodes", [p for p in points if 1 < p.nodes < p.ranks]),
    ]
    least = 0
    for name, most in SIZES:
        groups.append((name, [p for p in points if least < p.size <= most]))
        least = most
    return "\n".join(rows + [line(name, group) for name, group in groups if group])


def law_line(name: str, points: Sequence[Compared]) -> str:
    """One row of the law's table; the last column is the exponent with the least median error."""

    def errors(**options: Any) -> Floats:
        return 100 * np.array([point.law_error(**options) for point in points])

    def median(q: float) -> float:
        return float(np.median(abs(errors(sharpness=q))))

    own, best = errors(), min(OTHER_SHARPNESS, key=median)
    return (
        f" {name:42s} {len(own):6d} {np.median(abs(errors(pace=False))):10.1f} {np.median(abs(own)):9.1f} "
        f"{own.min():+8.1f} {own.max():+8.1f} {best:8.1f} {median(best):9.1f}"
    )


def law_table(points: Sequence[Compared]) -> str:
    """Errors of the product's law by protocol, one node or several, and size."""
    rows = [
        f" {'law of the product':42s} {'points':>6s} {'sum only %':>10s} {'median %':>9s} "
        f"{'least':>8s} {'most':>8s} {'best q':>8s} {'median %':>9s}"
    ]
    for rules, several in product(PROTOCOLS, (False, True)):
        least = 0
        for name, most in SIZES:
            group = [
                p
                for p in points
                if p.rules == rules
                and p.collective != "broadcast"
                and (p.nodes > 1) == several
                and least < p.size <= most
            ]
            where = "several nodes" if several else "one node"
            rows += [law_line(f"{rules} (q {SHARPNESS[rules]:g}), {where}, {name}", group)] if group else []
            least = most
    return "\n".join(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="four rings and half of the sizes")
    quick = parser.parse_args().quick
    sizes = [float(2**power) for power in range(10, 33, 4 if quick else 2)]
    points = compared(QUICK_RINGS if quick else RINGS, sizes, KINDS)
    print(table(points), law_table(points), sep="\n\n")


if __name__ == "__main__":
    main()
