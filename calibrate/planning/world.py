"""The ranks that measure, and the ranks that take part in a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calibrate.operations import Availability
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Point

_PER_NODE = (1, 2, 4, 8)


@dataclass(frozen=True)
class World:
    """The ranks that measure, as their team describes them: as many on every node.

    device          kind of the ranks: cpu or cuda
    providers       by name: whether each library, kernel set or pass can run here
    memory_bytes    memory that one rank may use for its buffers
    cores_per_node  physical cores of one node that ranks may use; 0: unknown
    versions        version of everything that the ranks can measure with, by name
    hosts           name of each node
    """

    ranks: int
    nodes: int = 1
    device: str = "cpu"
    providers: Mapping[str, Availability] = field(default_factory=dict)
    memory_bytes: float = 2.0**30
    cores_per_node: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ranks % self.nodes:
            raise BadInputError(
                f"{self.ranks} ranks on {self.nodes} nodes: not the same number on each node.",
                "start as many ranks on every node.",
            )

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes

    def runs(self, name: str) -> bool:
        """Whether a provider of this name is here and can run."""
        return name in self.providers and self.providers[name].usable


def describe_turns(world: World) -> str:
    """Words such as ``4 ranks on 2 cores``, if the ranks of a node share its cores or GPUs; else ""."""
    cores = world.cores_per_node
    if world.device == "cuda":
        return next(filter(None, (offered.functional_only for offered in world.providers.values())), "")
    if not cores or world.ranks_per_node <= cores:
        return ""
    return f"{world.ranks_per_node} ranks on {cores} core{'s' * (cores > 1)}"


def group_ranks(point: Point, world: World) -> list[int]:
    """Ranks that take part: the first ``gpus_per_node`` of each of the first ``nodes`` nodes.

    Limits: a point larger than the world -> BadInputError
    """
    if point.nodes > world.nodes or point.gpus_per_node > world.ranks_per_node:
        raise BadInputError(
            f"{point.gpus} ranks on {point.nodes} nodes do not fit "
            f"{world.nodes} nodes of {world.ranks_per_node} ranks.",
            "start more ranks, or measure this point elsewhere.",
        )
    ranks = [
        node * world.ranks_per_node + local
        for node in range(point.nodes)
        for local in range(point.gpus_per_node)
    ]
    return ranks[: point.gpus]  # the last node may take part with fewer


def list_shapes(world: World, preset: str, ranks: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Groups of ranks to measure, as (number of nodes, ranks on each node), smaller groups first.

    ranks    only groups with these total numbers of ranks, in every shape that the world allows
    Limits: quick -> 2 ranks, and all; standard -> powers of two, and all; one rank -> no groups
    """
    if ranks:
        inside = list(range(2, world.ranks_per_node + 1))
        across = [(n, g) for n in range(2, world.nodes + 1) for g in range(1, world.ranks_per_node + 1)]
    else:
        inside = _list_steps(world.ranks_per_node, preset)
        per_node = {1, world.ranks_per_node}
        if preset != "quick":
            per_node |= {*_PER_NODE}.intersection(range(world.ranks_per_node))
        nodes = [world.nodes] if preset == "quick" else _list_steps(world.nodes, preset)
        across = [(n, g) for n in nodes if n > 1 for g in sorted(per_node)]
    shapes = [(1, count) for count in inside] + across  # in one node, then across nodes
    return [(n, g) for n, g in shapes if not ranks or n * g in ranks]


def _list_steps(most: int, preset: str) -> list[int]:
    """The counts of nodes, or of ranks of a node, from 2 to ``most`` that a preset measures."""
    if most < 2:
        return []
    powers = [2**k for k in range(1, most.bit_length())]
    return sorted({2, most} if preset == "quick" else {*powers, most})
