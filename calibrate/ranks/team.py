"""The ranks as a calibration sees them: a description of all, and visits that succeed or name a lost rank."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from calibrate.machine.identity import node_cores
from calibrate.operations import Availability, Place, RankTimes
from calibrate.planning.measurement_plan import DEFAULT_BACKENDS
from calibrate.planning.world import World
from calibrate.providers import COLLECTIVE_PROVIDERS, PROVIDERS
from calibrate.ranks import process
from calibrate.ranks.control import Coordinator, Message, say_nothing
from calibrate.ranks.rank import provider_name
from calibrate.ranks.ready_operations import KEPT_SHARE, ReadyOperations
from perfmodel.errors import BadInputError, PerfmodelError, RankLostError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import DeviceConditions, Point

WELCOME_S = 120.0
OPEN_S = 180.0
"""Seconds that the ranks may take to import a library and to join the job through it."""

ONE_A_GPU = "start one rank per GPU (--ranks 1 if there is one GPU)."

CLOSE_S = 5.0
_LEAST_S = 1.0


@dataclass(frozen=True)
class TeamRequest:
    """Which ranks a calibration wants.

    ranks      how many to start here; None: one per GPU or core. Under a launcher it has no effect
    device     cpu, cuda, or auto: GPUs if there are any
    backends   libraries of collectives to open; empty: all for the device that can run here
    oversubscribe  whether more CPU ranks than cores may be started here
    providers, collectives  names of everything that can be timed, and of libraries among them
    """

    ranks: int | None = None
    device: str = "auto"
    backends: tuple[str, ...] = ()
    oversubscribe: bool = False
    providers: Sequence[str] = tuple(PROVIDERS)
    collectives: Sequence[str] = tuple(COLLECTIVE_PROVIDERS)


class RankTeam:
    """Ranks that have joined a coordinator; it times operations on them.

    host    address of rank 0's node for the others
    failed  function that returns why a rank will never come, "" while it still may
    say     called with the missing ranks when they are late
    """

    def __init__(
        self,
        coordinator: Coordinator,
        ranks: int,
        device: str,
        request: TeamRequest,
        *,
        host: str = "127.0.0.1",
        failed: Callable[[], str] = lambda: "",
        say: Callable[[str], None] = say_nothing,
    ) -> None:
        self._coordinator = coordinator
        self._host = host
        self._run = secrets.token_hex(4)
        self._collectives = request.collectives
        self._open: set[str] = set()
        self._groups: set[tuple[str, tuple[int, ...]]] = set()
        self._versions: dict[str, list[str]] = {}
        self._gpus = 0  # on the node with the fewest, if the ranks name their GPUs
        self.lost = False
        hellos = coordinator.gather(ranks, WELCOME_S, failed, say)
        self.places = places_of(hellos, device)
        self._world = self._welcome(hellos, request.providers)
        self._kept = ReadyOperations(self._world.memory_bytes * KEPT_SHARE)
        self._open_backends(request.backends)

    def world(self) -> World:
        """The ranks, and what they can measure."""
        versions = {name: " | ".join(values) for name, values in sorted(self._versions.items())}
        return replace(self._world, versions=versions)

    def visit(
        self, point: Point, ranks: Sequence[int], calls: int, round: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Time ``calls`` calls of a point on ``ranks``; returns the times of each rank, in their order.

        salt         selects the contents of the buffers
        deadline_s   for building, filling, warming up, timing and checking; opening a library comes on top
        Raises RankLostError for a rank that died or hangs; BadInputError for a point that a library refuses;
        another PerfmodelError for an error that a rank raised. After RankLostError the team cannot be used.
        """
        barrier = self._ready(point, ranks, deadline_s)
        ends = time.monotonic() + deadline_s
        name = f"{list(ranks)} {point.key}"
        prepare = {
            "do": "prepare",
            "name": name,
            "point": point.model_dump(mode="json"),
            "ranks": list(ranks),
            "calls": calls,
            "salt": salt,
            "barrier": barrier,
        }
        drops = self._kept.visit(name, ranks)
        held = self._ask({rank: {**prepare, "drop": drops[rank]} for rank in ranks}, deadline_s)
        self._kept.weigh(max(held.values()))
        left_s = max(ends - time.monotonic(), _LEAST_S)
        timing = {"do": "time", "calls": calls}
        answers = self._ask(dict.fromkeys(ranks, timing), left_s)
        return [unpack(answers[rank]) for rank in ranks]

    def close(self) -> None:
        """End the ranks; kill ranks that do not end. May be called again."""
        if self._coordinator.peers and not self.lost:
            try:
                self._ask_all({"do": "close"}, CLOSE_S)
            except PerfmodelError:
                self.lost = True
        self._coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _explain(self, error: RankLostError) -> RankLostError:
        """The error with further details that a subclass knows, such as how the rank ended."""
        return error

    def _ask(self, messages: Mapping[int, Message], deadline_s: float) -> dict[int, Any]:
        try:
            return self._coordinator.ask(messages, deadline_s)
        except RankLostError as error:
            self.lost = True
            raise self._explain(error) from error

    def _ask_all(self, message: Message, deadline_s: float) -> dict[int, Any]:
        return self._ask(dict.fromkeys(range(len(self.places)), message), deadline_s)

    def _welcome(self, hellos: Sequence[Message], providers: Sequence[str]) -> World:
        """Tell every rank its place; returns the description of all ranks."""
        nodes = {place.node for place in self.places}
        cpus: list[list[int]] = []
        for node in sorted(nodes):
            local = [
                hello["cores"] for hello, place in zip(hellos, self.places, strict=True) if place.node == node
            ]
            cpus += process.share_out(local)
        messages = {
            place.rank: {
                "do": "welcome",
                "place": asdict(place),
                "cpus": cpus[place.rank] if place.device == "cpu" else [],
                "providers": list(providers) if place.rank == 0 else [],
            }
            for place in self.places
        }
        for place in self.places:
            self._coordinator.peers[place.rank].name = name_of(place)
        answers = self._ask(messages, WELCOME_S)
        for answer in answers.values():
            self._remember(answer["versions"])
        self._gpus = min(gpus_used(self.places, [answer["uuid"] for answer in answers.values()]))
        first = [place.rank for place in self.places if place.local_rank == 0]
        distinct = {
            tuple(core) for hello in hellos if hello["node"] == hellos[0]["node"] for core in hello["cores"]
        }
        return World(
            ranks=len(self.places),
            nodes=len(nodes),
            device=self.places[0].device,
            providers=availabilities(
                answers[0]["providers"], [answer["uuid"] for answer in answers.values()]
            ),
            memory_bytes=min(answer["memory_bytes"] for answer in answers.values()),
            cores_per_node=min(len(distinct) or node_cores(), node_cores()),
            hosts=tuple(hellos[rank]["host"] for rank in first),
        )

    def _open_backends(self, backends: Sequence[str]) -> None:
        """Open the libraries that can be timed here; a library that does not open is marked as not usable."""
        found = dict(self._world.providers)
        device = self._world.device
        for name in backends or DEFAULT_BACKENDS[device]:
            known = found.get(name)
            if len(self.places) > 1 and known and known.usable and not known.functional_only:
                try:
                    self._open_provider(name)
                except RankLostError:
                    raise
                except PerfmodelError as error:
                    found[name] = Availability(False, error.message.removesuffix("."), error.next_step)
        self._world = replace(self._world, providers=found)

    def _open_provider(self, name: str) -> None:
        host = self._host if self._world.nodes > 1 else "127.0.0.1"
        address = {"host": host, "port": str(free_port()), "run": self._run}
        if self._gpus:
            address["gpus"] = str(self._gpus)
        self._ask_all({"do": "open", "provider": name, "address": address}, OPEN_S)
        self._open.add(name)

    def _remember(self, versions: Mapping[str, str]) -> None:
        """Add versions that a rank reported; different versions of the same library are all kept."""
        for name, value in versions.items():
            known = self._versions.setdefault(name, [])
            if value not in known:
                known.append(value)

    def _ready(self, point: Point, ranks: Sequence[int], deadline_s: float) -> str:
        """Open what the point needs on all ranks; returns the library of the barrier, "" for one rank."""
        alone = len(ranks) == 1
        barrier = "" if alone else point.backend or self._first_open()
        needed = [name for name in (barrier, point.backend, provider_name(point)) if name]
        for name in dict.fromkeys(needed):
            if name not in self._open:
                self._open_provider(name)
            group = (name, tuple(ranks))
            if not alone and group not in self._groups:
                self._ask_all({"do": "group", "provider": name, "ranks": list(ranks)}, deadline_s)
                self._groups.add(group)
        return barrier

    def _first_open(self) -> str:
        """Name of an open library of collectives, whose barrier is used when kernels are timed."""
        for name in self._collectives:
            if name in self._open:
                return name
        raise BadInputError(
            "no library of collectives is open: the ranks cannot start a kernel together.",
            "measure kernels with one rank, or install a library that --plan-only names.",
        )


def places_of(hellos: Sequence[Message], device: str) -> list[Place]:
    """The place of every rank, from the first messages of all ranks, which say on which node each runs.

    Limits: ranks that do not fill the nodes one after the other -> BadInputError
    """
    nodes: dict[str, list[int]] = {}
    for rank, hello in enumerate(hellos):
        nodes.setdefault(hello["node"], []).append(rank)
    if sorted(rank for ranks in nodes.values() for rank in ranks) != [
        r for ranks in nodes.values() for r in ranks
    ]:
        raise BadInputError(
            "the ranks do not fill the nodes one after the other.",
            "number them by node: srun --distribution=block, mpirun --map-by slot.",
        )
    return [
        Place(rank, len(hellos), node, local, len(ranks), device)
        for node, ranks in enumerate(nodes.values())
        for local, rank in enumerate(ranks)
    ]


def gpus_used(places: Sequence[Place], uuids: Sequence[str]) -> list[int]:
    """Number of different GPUs that the ranks of each node use; 0 if a rank's UUID is unknown ("")."""
    used: dict[int, set[str]] = {}
    for place, uuid in zip(places, uuids, strict=True):
        used.setdefault(place.node, set()).add(uuid)
    return [0 if "" in names else len(names) for _, names in sorted(used.items())]


def name_of(place: Place) -> str:
    """A rank in words: ``rank 3 (node 0, GPU 3)``, on CPUs ``rank 3 (node 0)``."""
    gpu = f", GPU {place.local_rank}" if place.device == "cuda" else ""
    return f"rank {place.rank} (node {place.node}{gpu})"


def availabilities(
    described: Mapping[str, Mapping[str, Any]], uuids: Sequence[str]
) -> dict[str, Availability]:
    """Availabilities that rank 0 described; if ranks share a GPU (equal ``uuids``), functional only."""
    known = [uuid for uuid in uuids if uuid]
    gpus = len(set(known))
    shared = f"{len(known)} ranks share {gpus} GPU{'s' if gpus > 1 else ''}" if gpus < len(known) else ""
    found = {}
    for name, fields in described.items():
        plain: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()
        }
        plain["clocks"] = tuple(Clock(clock) for clock in fields["clocks"])
        if shared:
            plain |= {"functional_only": shared, "install": ONE_A_GPU}
        found[name] = Availability(**plain)
    return found


def unpack(answer: Mapping[str, Any]) -> RankTimes:
    """The RankTimes that a rank sent as JSON with ``calibrate.ranks.rank.pack``."""
    conditions = answer["conditions"]
    return RankTimes(**{**answer, "conditions": DeviceConditions(**conditions) if conditions else None})


def free_port() -> int:
    """A free port of this node."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
