"""Exchanges over pods, rails and spines, flow by flow, beside the law of ``perfmodel/model/fabric.py``.

Run:    python benchmarks/fabric_simulation.py [--quick] [--left-out]
A cluster is cards, leaf switches and the links between them, and nothing else: a card reaches its leaf at one
byte per second, a leaf the spine at what its cards bring over its ratio, and a spine the core likewise. Every
message is a flow over the links of its way. At any moment the flows have max-min fair rates (progressive
filling: all rates rise together, and the flows of the link that fills first are fixed), and when a flow ends
the next message of its sender starts. Only bytes are simulated: no latency, no protocol.

    rows          of host memory, over PCIe switches that GPUs share (``perfmodel/model/tiers.py``)
    all-to-all    NCCL's order of nodes (src/init.cc: deltas 1, 3, 6, 10 ...), 16 nodes in flight at once
    ring          a flow from each node to the next
    tree          NCCL's double binary tree (src/graph/trees.cc): half of the bytes up and down each edge
    PAT           all messages of a Bruck exchange, the far ones with few bytes

The law has none of this: it counts the bytes that leave a pod, and divides. The last column is the law over
the simulation. --left-out has what the law knows nothing of: flows that are hashed to one of the links of a
leaf (ECMP), which its band has, and nodes of a job at random places, which it does not have; and messages of
GPUDirect RDMA that come while rows are fetched ahead: they share the port of the GPU.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, product
from statistics import median

import numpy as np
import numpy.typing as npt
from scipy import sparse

from perfmodel.collectives.stored import step_constants
from perfmodel.model import laws, tiers
from perfmodel.model.collectives import bus_factor
from perfmodel.model.fabric import Fabric, Level
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]
Link = tuple[object, ...]
Card = tuple[int, int]
"""Node and index of a card."""

WINDOW = 16
"""Remote nodes that NCCL serves side by side (its channels for pairs)."""
_DONE = 1e-9


@dataclass(frozen=True)
class Cluster:
    """Nodes of some cards under leaves, spines and a core.

    pod_nodes, ratio      nodes under the leaves of one pod; rate of its cards over that of its links up
    rails                 leaves of a pod: a card is on that of its index, modulo rails
    spine_nodes, spine_ratio  the same of the switches above; 0: all pods are under one spine
    paths                 links of a leaf to the spine, to one of which each flow is hashed; 0: one thick link
    """

    nodes: int
    cards: int
    pod_nodes: int
    ratio: float
    rails: int = 1
    spine_nodes: int = 0
    spine_ratio: float = 1.0
    paths: int = 0

    def leaf(self, card: Card) -> tuple[int, int]:
        """Pod and rail of a card."""
        return card[0] // self.pod_nodes, card[1] % self.rails

    def way(self, source: Card, target: Card, path: int) -> list[Link]:
        """The links of a flow."""
        a, b = self.leaf(source), self.leaf(target)
        found: list[Link] = [("out", source), ("in", target)]
        if a != b:
            found += [("up", a, path), ("down", b, path)]
        if self.spine_nodes:
            c, d = source[0] // self.spine_nodes, target[0] // self.spine_nodes
            found += [("above", c), ("below", d)] if c != d else []
        return found

    def capacity(self, link: Link) -> float:
        """Bytes per second of a link, in those of a card."""
        if link[0] in ("out", "in"):
            return 1.0
        if link[0] in ("up", "down"):
            return self.pod_nodes * self.cards / self.rails / self.ratio / max(self.paths, 1)
        return self.spine_nodes * self.cards / self.spine_ratio


HOST, CARD = -1, -2
"""Where flows of a board start: in the host's memory, or at the card beside a GPU."""


@dataclass(frozen=True)
class Board:
    """A node: GPUs, each with a card, under PCIe switches. All PCIe links carry one byte per second.

    switch_gpus  under one switch;  memory, card  bytes per second of the host's memory, and of a card
    """

    gpus: int
    switch_gpus: int
    memory: float
    card: float = 0.8
    paths: int = 0

    def way(self, source: Card, target: Card, path: int) -> list[Link]:
        """The links of a flow to a GPU: of GPUDirect RDMA the uplink is none."""
        at = target[1]
        first: list[Link] = [("memory",), ("uplink", at // self.switch_gpus)]
        return [*(first if source[0] == HOST else [("card", at)]), ("port", at)]

    def capacity(self, link: Link) -> float:
        """Bytes per second of a link, in those of a PCIe link."""
        return {"memory": self.memory, "card": self.card}.get(str(link[0]), 1.0)

    def __str__(self) -> str:
        words = f"{self.gpus} GPUs, {self.switch_gpus} a switch, memory {self.memory:g}"
        return f"{'rows':10s}  {words:39s}"


@dataclass(frozen=True)
class Rows:
    """Every GPU of a board reads a byte of rows, and gets ``messages`` bytes from its card meanwhile."""

    board: Board
    messages: float = 0.0
    kind: str = "rows"

    def simulated_s(self) -> float:
        """Time until the last byte has arrived [s]."""
        each = range(self.board.gpus)
        queues = [[Flow((HOST, 0), (0, at), 1.0)] for at in each]
        queues += [[Flow((CARD, at), (0, at), self.messages)] for at in each if self.messages]
        return finished(self.board, queues, 1)

    def law_s(self) -> float:
        """By the law of the product, of rows without headers [s]."""
        board = self.board
        rate = tiers.row_rate(1.0, 1.0, 1.0, 1.0, board.memory, board.gpus)
        beside = min(board.gpus, board.switch_gpus)
        return float(1.0 / min(rate, tiers.uplink_rate(1.0, 1.0, 1.0, 0.0, beside)))

    def __str__(self) -> str:
        return str(self.board)


@dataclass(frozen=True)
class Flow:
    """So many bytes from a card to another."""

    source: Card
    target: Card
    size: float


class Network:
    """The links of some flows, and fair rates on them."""

    def __init__(self, cluster: Cluster | Board, flows: Sequence[Flow], seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        paths = random.integers(0, max(cluster.paths, 1), len(flows))
        ways = [
            cluster.way(flow.source, flow.target, int(path)) for flow, path in zip(flows, paths, strict=True)
        ]
        number = {link: at for at, link in enumerate(dict.fromkeys(link for way in ways for link in way))}
        self.capacity = np.array([cluster.capacity(link) for link in number])
        links = [number[link] for way in ways for link in way]
        ends = np.cumsum([0, *(len(way) for way in ways)])
        self.uses = sparse.csr_array((np.ones(len(links)), links, ends), (len(flows), len(number)))

    def fair_rates(self, active: npt.NDArray[np.int64]) -> Floats:
        """Max-min fair rates of the active flows, by progressive filling."""
        uses = self.uses[active]
        back = uses.T.tocsr()
        rates, free = np.zeros(len(active)), self.capacity.copy()
        waiting = np.ones(len(active), bool)
        while waiting.any():
            count = back @ waiting.astype(float)
            share = np.divide(free, count, out=np.full(free.size, np.inf), where=count > 0)
            full = share <= share.min() * (1 + _DONE)
            fixed = waiting & ((uses @ full.astype(float)) > 0)
            rates[fixed] = share.min()
            free = np.maximum(free - back @ (fixed * share.min()), 0.0)
            waiting &= ~fixed
        return rates


def finished(cluster: Cluster | Board, queues: Sequence[Sequence[Flow]], window: int, seed: int = 0) -> float:
    """When the last message is there; each sender has ``window`` of its queue in flight [s]."""
    flows = [flow for queue in queues for flow in queue]
    network = Network(cluster, flows, seed)
    starts = np.cumsum([0, *(len(queue) for queue in queues)])
    waiting = [deque(range(a, b)) for a, b in pairwise(starts.tolist())]
    owner = np.repeat(np.arange(len(queues)), np.diff(starts))
    left, now = np.array([flow.size for flow in flows]), 0.0
    tiny = _DONE * left
    running = [queue.popleft() for queue in waiting for _ in range(min(window, len(queue)))]
    while running:
        active = np.array(running)
        rates = network.fair_rates(active)
        step = float((left[active] / rates).min())
        now += step
        left[active] -= rates * step
        done = left[active] <= tiny[active]
        running = active[~done].tolist()
        for sender in owner[active[done]]:
            if waiting[sender]:
                running.append(waiting[sender].popleft())
    return now


def node_order(nodes: int) -> list[int]:
    """Distances to the nodes that NCCL's pairs go to, one after the other (src/init.cc, p2pSchedule)."""
    power = 1 << max(nodes - 1, 0).bit_length()
    found, delta = [], 0
    for at in range(power):
        delta = (delta + at) & (power - 1)
        found += [delta] if 0 < delta < nodes else []
    return found


@dataclass(frozen=True)
class Case:
    """An exchange on a cluster; every rank has a buffer of one byte, and a GPU a card.

    forwards  whether a message first goes to the card of its target's index, inside the node (PXN)
    shuffled  whether the job's nodes lie at random places
    weights   of an all-to-all: what each node sends, over the buffer; empty: all send one
    """

    kind: str
    cluster: Cluster
    forwards: bool = True
    shuffled: bool = False
    weights: tuple[float, ...] = ()

    @property
    def gpus(self) -> int:
        """Ranks of the job."""
        return self.cluster.nodes * self.cluster.cards

    @cached_property
    def places(self) -> list[int]:
        """Where the nodes of the job are, in the order of their ranks."""
        nodes = np.arange(self.cluster.nodes)
        return (np.random.default_rng(1).permutation(nodes) if self.shuffled else nodes).tolist()

    def queues(self) -> Iterator[list[Flow]]:
        """What each sender has to send, in its order."""
        made = {"all-to-all": self._pairs, "ring": self._ring, "tree": self._tree, "PAT": self._bruck}
        yield from made[self.kind]()

    def simulated_s(self, seed: int = 0) -> float:
        """Time until the last byte has arrived [s]."""
        window = WINDOW if self.kind == "all-to-all" else self.cluster.nodes**2
        cards = 1 if self.forwards or self.kind != "all-to-all" else self.cluster.cards
        return finished(self.cluster, list(self.queues()), window * cards, seed)

    def law_s(self) -> float:
        """By the law of the product, with links inside a node that take no time and no latency [s]."""
        c, pairs = self.cluster, self.kind == "all-to-all"
        levels = [Level("pod", c.pod_nodes, c.ratio)]
        if c.spine_nodes:
            levels.append(Level("spine", c.spine_nodes, c.spine_ratio))
        fabric = Fabric(tuple(levels), 0.0, c.rails if pairs and not self.forwards else 1)
        plain = step_constants(load_machine("h100-sxm-ib"), load_priors())
        nccl = replace(plain, fabric=fabric, pat_fraction=1.0)
        group = Group(self.gpus, c.cards, c.nodes)
        law = LINK_LAWS["pairwise" if pairs else "ring_tree"]
        known = {name: 0.0 if name.endswith("_s") and "bytes" not in name else 1.0 for name in law.names}
        known |= {"link_bytes_per_s": 1e12, "remote_peer_bytes_per_s": 1e12}
        if pairs:
            return float(law.time(known, nccl, "all_to_all", group, 1.0))
        made = {"ring": laws.ring, "tree": laws.tree, "PAT": laws.pat}[self.kind]
        collective = "all_reduce" if self.kind == "tree" else "all_gather"
        rate = made(known, nccl, collective, group).bus_bytes_per_s
        return float(bus_factor(collective, self.gpus) / rate)

    def __str__(self) -> str:
        c = self.cluster
        words = f"{self.kind:10s}  {c.nodes:5d} × {c.cards}  {c.pod_nodes:5d}  {c.ratio:5g}"
        rails = "-" if c.rails == 1 else f"{c.rails}, PXN" if self.forwards else str(c.rails)
        spine = f"{c.spine_nodes} at {c.spine_ratio:g}" if c.spine_nodes else "-"
        return f"{words}  {rails:>6s}  {spine:>7s}"

    def _pairs(self) -> Iterator[list[Flow]]:
        c, nodes = self.cluster, self.cluster.nodes
        for rank, card in product(range(nodes), range(c.cards)):
            peers = [card] if self.forwards else [(card + d) % c.cards for d in range(c.cards)]
            size = (self.weights[rank] if self.weights else 1.0) / nodes / len(peers)
            yield [
                Flow((self.places[rank], card), (self.places[(rank + delta) % nodes], peer), size)
                for delta, peer in product(node_order(nodes), peers)
            ]

    def _between(self, rank: int, other: int, size: float) -> list[Flow]:
        a, b = self.places[rank], self.places[other]
        return [Flow((a, card), (b, card), size) for card in range(self.cluster.cards)]

    def _ring(self) -> Iterator[list[Flow]]:
        nodes = self.cluster.nodes
        for rank in range(nodes):
            yield self._between(rank, (rank + 1) % nodes, (self.gpus - 1) / self.gpus / self.cluster.cards)

    def _tree(self) -> Iterator[list[Flow]]:
        nodes = self.cluster.nodes
        for child, parent in edges_of_both_trees(nodes):
            yield self._between(child, parent, 0.5 / self.cluster.cards)
            yield self._between(parent, child, 0.5 / self.cluster.cards)

    def _bruck(self) -> Iterator[list[Flow]]:
        nodes, far = self.cluster.nodes, 1
        while far < nodes:
            for rank in range(nodes):
                yield self._between(rank, (rank + far) % nodes, 0.5 / far)
            far *= 2


def edges_of_both_trees(nodes: int) -> list[tuple[int, int]]:
    """Child and parent of every edge: the second tree is the first one mirrored, or shifted by one."""
    first = []
    for node in range(1, nodes):
        lowest = node & -node
        parent = (node ^ lowest) | (lowest << 1)
        first.append((node, parent if parent < nodes else node ^ lowest))
    if nodes % 2:
        return first + [((a + 1) % nodes, (b + 1) % nodes) for a, b in first]
    return first + [(nodes - 1 - a, nodes - 1 - b) for a, b in first]


def cases(quick: bool) -> Iterator[Case]:
    """What is compared: exchanges over pods that the nodes fill, and do not."""
    ratios = (1, 2, 4) if quick else (1, 1.5, 2, 3, 4, 7)
    shapes = ((8, 4), (12, 8)) if quick else ((8, 2), (8, 4), (12, 8), (24, 8), (32, 8), (24, 16), (40, 16))
    for (nodes, pod), ratio in product(shapes, ratios):
        yield Case("all-to-all", Cluster(nodes, 1, pod, ratio))
    railed = ((6, 4), (6, 8)) if quick else ((6, 4), (6, 8), (8, 4), (12, 4))
    for (nodes, pod), ratio, forwards in product(railed, ratios, (True, False)):
        yield Case("all-to-all", Cluster(nodes, 4, pod, ratio, rails=4), forwards)
    for ratio, spine in product(ratios, (2, 7)):
        yield Case("all-to-all", Cluster(16, 1, 2, ratio, spine_nodes=8, spine_ratio=spine))
    powers = ((8, 2), (16, 4)) if quick else ((8, 1), (8, 2), (16, 4), (32, 2), (32, 8), (64, 4))
    for kind, (nodes, pod), ratio in product(("ring", "tree", "PAT"), powers, ratios):
        yield Case(kind, Cluster(nodes, 1, pod, ratio))
    for kind, (nodes, pod), ratio in product(("ring", "tree"), ((7, 3), (13, 4), (30, 6), (41, 10)), ratios):
        yield Case(kind, Cluster(nodes, 2, pod, ratio))


def row_cases() -> Iterator[Rows]:
    """Rows over PCIe switches, with a slow memory behind them and a fast one."""
    for gpus, switch_gpus, memory in product((3, 4, 8), (1, 2, 4), (2.0, 9.6)):
        yield Rows(Board(gpus, switch_gpus, memory))


HEAD = "exchange      nodes    pod  ratio   rails    spine"


def compared(each: Sequence[Case | Rows]) -> Iterator[str]:
    """A line for each case, then how far the law is from the simulation, by exchange."""
    yield f"{HEAD}  simulated     law   error"
    errors: dict[str, list[float]] = {}
    for case in each:
        simulated, law = case.simulated_s(), case.law_s()
        errors.setdefault(case.kind, []).append(law / simulated - 1)
        yield f"{case}  {simulated:9.3f}  {law:6.3f}  {law / simulated - 1:+6.1%}"
    yield ""
    for kind, found in {**errors, "all": list(chain(*errors.values()))}.items():
        sizes = sorted(abs(error) for error in found)
        worst = max(found, key=abs)
        yield f"{kind:10s}  n {len(found):3d}   median {median(sizes):.1%}   worst {worst:+.1%}"


def beyond(each: Sequence[Case], seeds: int) -> Iterator[str]:
    """What the law leaves out, over the same case without it: hashed flows, and nodes at random places."""
    yield f"{HEAD}  hashed: least, median, most   random places"
    for case in each:
        even, c = case.simulated_s(), case.cluster
        paths = max(1, round(c.pod_nodes * c.cards / c.rails / c.ratio))
        hashed = replace(case, cluster=replace(c, paths=paths))
        times = sorted(hashed.simulated_s(seed) / even for seed in range(seeds))
        places = replace(case, shuffled=True).simulated_s() / even
        three = f"{times[0]:.2f}×, {median(times):.2f}×, {times[-1]:.2f}×"
        yield f"{case}  {three:>27s}  {places:13.2f}×"


def beside(boards: Sequence[Board], messages: Sequence[float]) -> Iterator[str]:
    """How much longer rows and messages take together than the longer of both alone."""
    yield ""
    yield "rows beside messages of a card, over the longer of both alone"
    for board, size in product(boards, messages):
        alone = max(Rows(board).simulated_s(), size / board.card)
        yield f"{board}  {size:4g} bytes  {Rows(board, size).simulated_s() / alone:5.2f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer clusters and ratios")
    parser.add_argument("--left-out", action="store_true", help="what the law leaves out: hashes and places")
    asked = parser.parse_args()
    if not asked.left_out:
        print("\n".join(compared([*cases(asked.quick), *row_cases()])))
        return
    shapes = ((16, 8, 2), (32, 8, 2)) if asked.quick else ((16, 8, 2), (32, 8, 2), (32, 16, 2), (32, 16, 4))
    each = [Case("all-to-all", Cluster(nodes, 1, pod, ratio)) for nodes, pod, ratio in shapes]
    each += [Case(kind, Cluster(32, 1, 8, 2)) for kind in ("ring", "tree")]
    print("\n".join(beyond(each, 4 if asked.quick else 10)))
    print("\n".join(beside([Board(8, switch, 9.6) for switch in (1, 2, 4)], (0.4, 0.8, 1.6, 3.2))))


if __name__ == "__main__":
    main()
