"""A rank of a calibration: does what the coordinator asks, and ends when the coordinator is gone.

``python -m calibrate.ranks.rank`` is started by ``calibrate.ranks.start`` with these variables:

    PERFMODEL_TEAM_ADDRESS   host:port of the coordinator
    PERFMODEL_TEAM_KEY       key of the run, hexadecimal
    PERFMODEL_TEAM_RANK      number of this rank

The coordinator's messages, in the order of a run: ``welcome`` (the place of this rank), ``open`` (join the
job through a library), ``group`` (make a communicator), then for each visit ``prepare`` and ``time``; at
the end ``close``.

A provider opens with an ``address``, a mapping with these keys:

    host, port   on the node of rank 0, a free port where rank 0 may listen for the others
    run          a word that no other run on these nodes has
    gpus         on GPUs: the number of GPUs that the ranks of a node use together
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from calibrate.machine.libraries import install_torch
from calibrate.operations import Availability, Place, Provider, RankTimes
from calibrate.ranks import process
from calibrate.ranks.clocks import Cpu, Cuda, Timer
from calibrate.ranks.control import Desk, join
from calibrate.ranks.gpu_conditions import watch_gpu
from calibrate.running.versions import library_versions
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.runs import Point, PointKind

LEAVE_S = 10.0
"""Seconds after which a leaving rank that hangs in the shutdown of a library is ended."""

JOIN_S = 120.0
LOCAL_JOIN_S = 5.0
"""Seconds that a rank looks for the coordinator; on the same machine, it listens before its ranks start."""

Loader = Callable[[str], Provider]
Describer = Callable[[str], Availability]


class RankServer:
    """Answers the coordinator's messages on one rank.

    load      function that returns a provider by its name (calibrate.providers)
    describe  function that returns whether a provider can run here, by its name
    """

    def __init__(self, desk: Desk, load: Loader, describe: Describer) -> None:
        self._desk = desk
        self._load = load
        self._describe = describe
        self._place = Place(0, 1)
        self._bound: list[int] = []
        self._all: list[int] = []
        self._device = Cpu()
        self._open: dict[str, Provider] = {}
        self._timers: dict[str, Timer] = {}
        self._current: Timer | None = None
        self.leaving = False

    def serve(self) -> None:
        """Serve until the coordinator sends the message to leave, or is gone."""
        tasks: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "welcome": self._welcome,
            "open": self._open_provider,
            "group": self._open_group,
            "prepare": self._prepare,
            "time": self._time,
            "close": self._close,
        }
        while not self.leaving:
            message = self._desk.next()
            if message is None:
                return
            try:
                result = tasks[message["do"]](message)
            except Exception as error:  # the coordinator judges any error of a library
                self._device.require_alive(error)
                self._desk.refuse(message, error)
            else:
                self._desk.answer(message, result)
            self._desk.progress.enter("idle")

    def _welcome(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Take this rank's place, and describe its device, versions and libraries."""
        self._place = Place(**message["place"])
        self._bound, self._all = message["cpus"], sorted(cpu for core in process.cores() for cpu in core)
        process.bind(self._bound)
        described = {
            "device": "",
            "uuid": "",
            "memory_bytes": process.host_memory_bytes(self._place.local_ranks),
        }
        versions: dict[str, str] = {}
        if self._place.device == "cuda":
            described, versions = self._use_gpu()
        providers = {name: asdict(self._availability(name)) for name in message["providers"]}
        versions |= library_versions(self._place)
        return {**described, "versions": versions, "providers": providers}

    def _use_gpu(self) -> tuple[dict[str, Any], dict[str, str]]:
        try:
            import torch
        except ImportError as error:
            raise NoHardwareError(f"torch cannot be imported ({error}).", install_torch()) from error

        count = torch.cuda.device_count()
        if count == 0:
            raise NoHardwareError(
                f"torch {torch.__version__} sees no GPU on rank {self._place.rank}.",
                "install a torch with CUDA, or calibrate the CPUs with --device cpu.",
            )
        torch.cuda.set_device(self._place.local_rank % count)
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        uuid = f"GPU-{found.uuid}"
        self._device = Cuda(torch, watch_gpu(uuid))
        free, _ = torch.cuda.mem_get_info()
        versions = {"cuda": str(torch.version.cuda), "gpu": str(found.name)}
        return {"device": found.name, "uuid": uuid, "memory_bytes": 0.8 * free}, versions

    def _availability(self, name: str) -> Availability:
        found, device = self._describe(name), self._place.device
        if found.usable and device not in found.devices:
            return Availability(False, f"it has nothing for ranks on {device}", found.install, found.version)
        return found

    def _open_provider(self, message: Mapping[str, Any]) -> None:
        self._desk.progress.enter("open")
        name = message["provider"]
        provider = self._load(name)
        use = getattr(provider, "use", None)
        if use:  # a whole pass runs over the open libraries
            use(self._open)
        self._unbound(lambda: provider.open(self._place, message["address"]))
        self._open[name] = provider
        if self._place.device == "cpu" and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        gc.collect()
        gc.freeze()

    def _open_group(self, message: Mapping[str, Any]) -> None:
        self._desk.progress.enter("group")
        provider = self._open[message["provider"]]
        self._unbound(lambda: provider.open_group(message["ranks"]))

    def _unbound(self, start: Callable[[], None]) -> None:
        """Call ``start`` with all cores allowed, so that its threads do not disturb this rank's cores."""
        process.bind(self._all)
        try:
            start()
        finally:
            process.bind(self._bound)

    def _prepare(self, message: Mapping[str, Any]) -> float:
        """Make the operation unless it was kept, and fill its buffers; returns the bytes held then."""
        self._desk.progress.enter("build")
        self._current = None
        point = Point.model_validate(message["point"])
        ranks = tuple(message["ranks"])
        for name in message["drop"]:
            self._timers.pop(name, None)
        timer = self._timers.pop(message["name"], None) or self._timer(point, ranks, message["barrier"])
        timer.prepare(message["salt"], message["calls"])
        self._timers[message["name"]] = self._current = timer
        return self._device.held_bytes()

    def _timer(self, point: Point, ranks: tuple[int, ...], barrier_of: str) -> Timer:
        name = provider_name(point)
        if name not in self._open:
            raise BadInputError(f"{name} is not open on rank {self._place.rank}.")
        operation = self._open[name].operation(point, ranks)
        meet = self._open[barrier_of].barrier if len(ranks) > 1 and barrier_of else None
        barrier = (lambda: meet(ranks)) if meet else (lambda: None)
        return Timer(operation, point.clock, point.variant, self._device, barrier, point.payload_bytes)

    def _time(self, message: Mapping[str, Any]) -> dict[str, Any]:
        timer, self._current = self._current, None
        if timer is None:
            raise BadInputError("nothing is prepared.")
        return pack(timer.visit(message["calls"], self._desk.progress))

    def _close(self, message: Mapping[str, Any]) -> None:
        self._desk.progress.enter("close")
        self.leaving = True
        self._timers.clear()
        self._current = None
        for name in reversed(self._open):
            self._open[name].close()
        self._open.clear()


def provider_name(point: Point) -> str:
    """Name of the provider of a point's operation: its library, or who implements the kernel or pass."""
    return point.backend if point.kind is PointKind.COLLECTIVE else point.implementation


def pack(times: RankTimes) -> dict[str, Any]:
    """RankTimes as JSON."""
    conditions = times.conditions.model_dump() if times.conditions else None
    return {**asdict(times), "steps_s": dict(times.steps_s), "conditions": conditions}


def hello(rank: int) -> dict[str, Any]:
    """The first message that a rank sends: its number, process, node, host and cores."""
    return {
        "rank": rank,
        "pid": os.getpid(),
        "node": process.node_identity(),
        "host": socket.gethostname(),
        "cores": process.cores(),
    }


def serve(
    host: str,
    port: int,
    key: bytes,
    rank: int,
    load: Loader | None = None,
    describe: Describer | None = None,
    own_process: bool = True,
    timeout_s: float = JOIN_S,
    late: Callable[[], None] = lambda: None,
) -> None:
    """Join the coordinator at ``host`` and ``port``, and do what it asks until the end.

    key           key of the run;  rank  number of this rank
    load, describe  as in RankServer
    own_process   whether this process is only a rank: it exits when the coordinator goes, even if stuck
    late          called once if the coordinator is not there after some seconds
    Raises LeaderMissingError if there is no coordinator within ``timeout_s``.
    """
    from calibrate import providers

    process.keep_freed_memory()
    connection = join(host, port, key, hello(rank), timeout_s, late)
    server: RankServer | None = None

    def lost() -> None:
        if own_process:
            if server is not None and server.leaving:
                time.sleep(LEAVE_S)
            os._exit(0)

    desk = Desk(connection, lost)
    server = RankServer(desk, load or providers.load, describe or providers.availability)
    server.serve()


def main(load: Loader | None = None, describe: Describer | None = None) -> None:
    """Run a rank in its own process."""
    process.die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environ = os.environ
    host, _, port = environ["PERFMODEL_TEAM_ADDRESS"].rpartition(":")
    key = bytes.fromhex(environ["PERFMODEL_TEAM_KEY"])
    serve(host, int(port), key, int(environ["PERFMODEL_TEAM_RANK"]), load, describe, timeout_s=LOCAL_JOIN_S)


if __name__ == "__main__":
    main()
