"""The ranks as a calibration sees them: a description of all, and visits that succeed or name a lost rank."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calibrate.machine.identity import count_node_cores, count_usable_cores
from calibrate.machine.node import find_gpus
from calibrate.operations import Availability, Place, RankTimes
from calibrate.planning.measurement_plan import DEFAULT_BACKENDS, refuse_turns
from calibrate.planning.world import World
from calibrate.providers import COLLECTIVE_PROVIDERS, PROVIDERS
from calibrate.ranks.launch import JOIN_S, Launcher, detect_launcher
from calibrate.ranks.leader import Leader
from calibrate.ranks.rank import Message, follow, name_provider
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError, RankLostError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind

OPEN_S = 180.0
"""Seconds that the ranks may take to import a library and to join the job through it."""

LEAST_S = 1.0
ONE_A_GPU = "start one rank per GPU (--ranks 1 if there is one GPU)."
RANK_PROGRAM = (sys.executable, "-P", "-m", "calibrate.ranks.rank")


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


def open_team(request: TeamRequest, environ: Mapping[str, str]) -> RankTeam | None:
    """The ranks that a calibration measures with; None on a process that only served as a rank.

    Under torchrun, srun or mpirun each process calls this: rank 0 gets the team, the others do what it asks
    until it closes, then get None and should end without a message.
    Raises NoHardwareError if the ranks cannot start or meet, BadInputError for more ranks than cores or GPUs.
    """
    launcher = detect_launcher(environ)
    if launcher is not None and launcher.rank > 0:
        follow(launcher)
        return None
    return RankTeam(start_ranks(request, launcher), request)


def start_ranks(
    request: TeamRequest, launcher: Launcher | None = None, program: Sequence[str] = RANK_PROGRAM
) -> Leader:
    """Start the ranks of this process: one per GPU or core if ``request`` names no number.

    launcher  who started the others; rank 0 is a process of its own here;  program  command of a rank
    """
    device = choose_device(request)
    gpus = device == "cuda"
    places = len(find_gpus()) if gpus else count_usable_cores()
    ranks = request.ranks or places
    if launcher is None:
        noun = "GPU" if gpus else "core"
        refuse_turns(ranks, places, noun, oversubscribe=request.oversubscribe or gpus)
    if not ranks:
        raise NoHardwareError("there is no GPU here.", "leave --device out to measure the CPUs.")
    return Leader(launcher, program, ranks, device)


def choose_device(request: TeamRequest) -> str:
    """``cuda`` or ``cpu``. Limits: auto -> cuda if a driver names a GPU"""
    if request.device != "auto":
        return request.device
    return "cuda" if find_gpus() else "cpu"


class RankTeam:
    """Ranks that have come to a leader; it times operations on them."""

    def __init__(self, leader: Leader, request: TeamRequest) -> None:
        """Wait for the ranks, tell each its place, and open the libraries that ``request`` names."""
        self.leader = leader
        self._collectives = request.collectives
        self._open: set[str] = set()
        self._groups: set[tuple[str, tuple[int, ...]]] = set()
        try:
            self.hellos = leader.gather()
            self.places = place_ranks(self.hellos, choose_device(request))
            leader.names = [name_place(place) for place in self.places]
            self._world = self._describe_world(self.hellos, request.providers)
            self._open_backends(request.backends)
        except BaseException:
            leader.abandon()
            raise

    def world(self) -> World:
        """The ranks, and what they can measure."""
        return self._world

    def visit(
        self, point: Point, ranks: Sequence[int], calls: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Time ``calls`` calls of a point on ``ranks``; returns the times of each rank, in their order.

        salt         selects the contents of the buffers
        deadline_s   for building, filling, warming up, timing and checking; opening a library comes on top
        Raises RankLostError for a rank that died or hangs; BadInputError for a point that a library refuses;
        another PerfmodelError for an error that a rank raised. After RankLostError the team cannot be used.
        """
        ask = self.leader.ask
        ends = time.monotonic() + deadline_s
        fields = {
            "point": point.model_dump(mode="json"),
            "group": list(ranks),
            "salt": salt,
            "barrier": self._open_needed(point, ranks, deadline_s),
        }
        ask("prepare", deadline_s, ranks, **fields)
        answers = ask("time", max(ends - time.monotonic(), LEAST_S), ranks, calls=calls)
        return [RankTimes(**answer) for answer in answers]

    def close(self) -> None:
        """End the ranks; may be called again."""
        self.leader.close()

    def _describe_world(self, hellos: Sequence[Message], providers: Sequence[str]) -> World:
        """Tell every rank its place; returns the description of all ranks."""
        places = [asdict(place) for place in self.places]
        answers = self.leader.ask("welcome", JOIN_S, places=places, providers=list(providers))
        uuids = [answer["uuid"] for answer in answers]
        self._gpus = count_gpus(self.places, uuids)
        versions: dict[str, dict[str, None]] = {}  # by library: different ones, in order
        for answer in answers:
            for name, version in answer["versions"].items():
                versions.setdefault(name, {})[version] = None
        return World(
            ranks=len(places),
            nodes=len({place.node for place in self.places}),
            device=next(place.device for place in self.places),
            providers=read_availabilities(next(iter(answers))["providers"], uuids),
            memory_bytes=min(answer["memory_bytes"] for answer in answers),
            cores_per_node=count_node_cores(),
            hosts=tuple(hellos[place.rank]["host"] for place in self.places if not place.local_rank),
            versions={name: " | ".join(values) for name, values in sorted(versions.items())},
        )

    def _open_backends(self, backends: Sequence[str]) -> None:
        """Open the libraries that can be timed here; a library that does not open is marked as not usable."""
        providers = dict(self._world.providers)
        for name in backends or DEFAULT_BACKENDS[self._world.device]:
            library = providers.get(name)
            if self.places[1:] and library and library.usable and not library.functional_only:
                try:
                    self._open_provider(name)
                except RankLostError:
                    raise
                except PerfmodelError as error:
                    providers[name] = Availability(False, error.message.removesuffix("."), error.next_step)
        self._world = replace(self._world, providers=providers)

    def _open_provider(self, name: str) -> None:
        """Join the job through a provider, on all ranks. Limits: a rank fails -> its error"""
        address = {"run": self.leader.run, "gpus": str(self._gpus)}
        self.leader.ask("open", OPEN_S, provider=name, address=address)
        self._open.add(name)

    def _open_needed(self, point: Point, ranks: Sequence[int], deadline_s: float) -> str:
        """Open what the point needs on all ranks; returns the provider of the barrier, "" for one rank.

        The barrier is that of the point's library, else of any that is open: it starts the calls together.
        """
        alone = len(ranks) == 1
        provider = name_provider(point)
        meets = point.backend or next((name for name in self._collectives if name in self._open), "")
        if not meets and point.kind is PointKind.LOOKUP:
            meets = provider  # one-sided look-ups have a barrier of their own
        if not meets and not alone:
            raise BadInputError(
                "no library of collectives is open: the ranks cannot start a kernel together.",
                "measure kernels with one rank, or install a library that --plan-only names.",
            )
        barrier = "" if alone else meets
        for name in dict.fromkeys(filter(None, (barrier, point.backend, provider))):
            if name not in self._open:
                self._open_provider(name)
            grouped = not alone or point.kind is PointKind.LOOKUP
            if grouped and (name, tuple(ranks)) not in self._groups:
                self.leader.ask("group", deadline_s, provider=name, group=list(ranks))
                self._groups.add((name, tuple(ranks)))
        return barrier


def place_ranks(hellos: Sequence[Message], device: str) -> list[Place]:
    """The place of every rank, from the first answers of all ranks, which say on which node each runs.

    Limits: ranks that do not fill the nodes one after the other -> BadInputError
    """
    nodes: dict[str, list[int]] = {}
    for rank, hello in enumerate(hellos):
        nodes.setdefault(hello["node"], []).append(rank)
    if [rank for ranks in nodes.values() for rank in ranks] != list(range(len(hellos))):
        raise BadInputError(
            "the ranks do not fill the nodes one after the other.",
            "number them by node: srun --distribution=block, mpirun --map-by slot.",
        )
    return [
        Place(rank, len(hellos), node, local, len(ranks), device)
        for node, ranks in enumerate(nodes.values())
        for local, rank in enumerate(ranks)
    ]


def count_gpus(places: Sequence[Place], uuids: Sequence[str]) -> int:
    """Fewest different GPUs that the ranks of a node use; 0 if a rank's UUID is unknown ("")."""
    used: dict[int, set[str]] = {}
    for place, uuid in zip(places, uuids, strict=True):
        used.setdefault(place.node, set()).add(uuid)
    return min(0 if "" in names else len(names) for names in used.values())


def name_place(place: Place) -> str:
    """A rank in words: ``rank 3 (node 0, GPU 3)``, on CPUs ``rank 3 (node 0)``."""
    gpu = f", GPU {place.local_rank}" if place.device == "cuda" else ""
    return f"rank {place.rank} (node {place.node}{gpu})"


def read_availabilities(described: Mapping[str, Message], uuids: Sequence[str]) -> dict[str, Availability]:
    """Availabilities that rank 0 described; if ranks share a GPU (equal ``uuids``), functional only."""
    named = [uuid for uuid in uuids if uuid]
    gpus = len(set(named))
    shared = f"{len(named)} ranks share {gpus} GPU{'s' if gpus > 1 else ''}" if gpus < len(named) else ""
    availabilities = {}
    for name, fields in described.items():
        plain: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()
        }
        plain["clocks"] = tuple(Clock(clock) for clock in fields["clocks"])
        if shared:
            plain |= {"functional_only": shared, "install": ONE_A_GPU}
        availabilities[name] = Availability(**plain)
    return availabilities
