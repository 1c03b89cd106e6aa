"""A rank of a calibration: does what the store of rank 0 tells it, and ends when the store is gone.

``python -m calibrate.ranks.rank`` is started by ``calibrate.ranks.leader`` with these variables:

    PERFMODEL_TEAM   port of the store on this machine, and the name of the job in it
    PERFMODEL_RANK   number of this rank

A rank waits for the key ``ask/RANK``, does what it says, and sets ``NUMBER/RANK``, with that message's
number; its first answer, number 0, says where it runs. It is told ``welcome`` (the places of all ranks),
``open`` (join the job through a library), ``group`` (make a communicator), for each visit ``prepare`` and
``time``; at the end ``close``. A thread that sleeps while calls are timed waits for the key ``where``, which
rank 0 sets when it has waited too long; the answer is the number of calls timed so far.

A provider opens with an ``address``, a mapping with these keys:

    host, port   of the store of rank 0
    run          a word that no other run on these nodes has; it begins the keys of providers in the store
    gpus         the number of GPUs that the ranks of a node use together; 0: unknown
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from calibrate.machine.libraries import format_torch_command, list_versions
from calibrate.machine.node import ROOT, read_fact
from calibrate.operations import Availability, Place, Provider
from calibrate.planning.pass_cells import PROVIDER_OF
from calibrate.ranks import process
from calibrate.ranks.clocks import Cpu, Cuda, Timer, watch_gpu
from calibrate.ranks.launch import LOCALHOST, Launcher, join_store
from perfmodel.errors import BadInputError, NoHardwareError, PerfmodelError
from perfmodel.resources import out_of_memory
from perfmodel.schema.calibration import GPU_L2
from perfmodel.schema.runs import Point, PointKind

LEAVE_S = 10.0
"""Seconds after which a leaving rank that hangs in the shutdown of a library is ended."""

KEPT_SHARE = 0.5
"""Share of this rank's memory for buffers of operations that it keeps ready; beyond it, it drops all."""

THREADS = 1  # of torch on this rank: each core has one
FOREVER = timedelta(days=20)
"""A wait for what rank 0 says next: poll() counts its milliseconds in 32 bits."""

Message = Mapping[str, Any]
"""What rank 0 says, or a rank answers, as JSON has it."""

Loader = Callable[[str], Provider]
Describer = Callable[[str], Availability]


class RankServer:
    """Does on one rank what the store says."""

    def __init__(
        self,
        store: Any,
        rank: int,
        load: Loader,
        describe: Describer,
        meeting: tuple[str, int] = (LOCALHOST, 0),
    ) -> None:
        """store     connection to the store of rank 0;  rank  number of this rank
        load      function that returns a provider by its name (calibrate.providers)
        describe  function that returns whether a provider can run here, by its name
        meeting   host and port of the store, for the libraries that meet there too
        """
        self._store = store
        host, port = meeting
        self._meeting = {"host": host, "port": str(port)}
        self._rank = rank
        self._load = load
        self._describe = describe
        self._place: Place
        self._device = Cpu()
        self._open: dict[str, Provider] = {}
        self._timers: dict[str, Timer] = {}
        self._current: Timer | None = None
        self._memory_bytes = 0.0
        self.timed: list[float] = []  # one entry for each call of this visit
        self.leaving = False

    def serve(self) -> None:
        """Do what rank 0 says, message by message, and answer each, until it says ``close``."""
        tasks: dict[str, Callable[[Message], object]] = {
            "welcome": self._take_place,
            "open": self._open_provider,
            "group": lambda message: self._open[message["provider"]].open_group(message["group"]),
            "prepare": self._prepare,
            "time": self._time,
            "close": self._close,
        }
        key = f"ask/{self._rank}"
        while not self.leaving:
            self._store.wait([key], FOREVER)
            message = json.loads(self._store.get(key))
            self._store.delete_key(key)
            try:
                answer = {"ok": tasks[message["do"]](message)}
            except Exception as error:  # the leader judges any error of a library
                self._device.require_alive(error)
                answer = {"error": describe_error(error)}
            self._store.set(f"{message['number']}/{self._rank}", json.dumps(answer))
            self.timed = []

    def _take_place(self, message: Message) -> dict[str, object]:
        """Take this rank's place, and describe its device, versions and libraries."""
        self._place = Place(**message["places"][self._rank])
        uuid = ""
        versions: dict[str, str] = {}
        self._memory_bytes = process.estimate_memory_bytes(self._place.local_ranks)
        if self._place.device == "cuda":
            uuid, versions = self._use_gpu()
        providers = {}
        for name in () if self._rank else message["providers"]:
            offered = self._describe(name)
            if offered.usable and self._place.device not in offered.devices:
                why = f"it has nothing for ranks on {self._place.device}"
                offered = Availability(False, why, offered.install, offered.version)
            providers[name] = asdict(offered)
        return {
            "uuid": uuid,
            "versions": versions | list_versions(self._place.device),
            "providers": providers,
            "memory_bytes": self._memory_bytes,
        }

    def _use_gpu(self) -> tuple[str, dict[str, str]]:
        """Take the GPU of this rank's place; returns its UUID, and versions."""
        try:
            import torch
        except ImportError as error:
            raise NoHardwareError(f"torch cannot be imported ({error}).", format_torch_command()) from error

        count = torch.cuda.device_count()
        if not count:
            raise NoHardwareError(
                f"torch {torch.__version__} sees no GPU on rank {self._place.rank}.",
                "install a torch with CUDA, or calibrate the CPUs with --device cpu.",
            )
        torch.cuda.set_device(self._place.local_rank % count)
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        uuid = f"GPU-{gpu.uuid}"
        self._device = Cuda(torch, watch_gpu(uuid))
        free_bytes, _ = torch.cuda.mem_get_info()
        self._memory_bytes = 0.8 * free_bytes
        versions = {"cuda": str(torch.version.cuda), "gpu": str(gpu.name)}
        return uuid, versions if self._place.rank else {**versions, GPU_L2: str(gpu.L2_cache_size)}

    def _open_provider(self, message: Message) -> None:
        """Join the job through the provider that the message names."""
        name = message["provider"]
        provider = self._load(name)
        provider.open(self._place, {**message["address"], **self._meeting})
        self._open[name] = provider
        gc.collect()
        gc.freeze()  # collections skip what exists now: short pauses

    def _prepare(self, message: Message) -> None:
        """Make the operation of a point unless it was kept from an earlier visit, and fill its buffers."""
        self._current = None
        if self._device.count_held_bytes() > KEPT_SHARE * self._memory_bytes:
            self._timers.clear()
        point = Point.model_validate(message["point"])
        ranks = tuple(message["group"])
        key = f"{ranks} {point.key}"
        timer = self._timers.pop(key, None)
        if timer is None:
            name = name_provider(point)
            if name not in self._open:
                raise BadInputError(f"{name} is not open on rank {self._place.rank}.")
            operation = self._open[name].operation(point, ranks)
            meet = self._open[message["barrier"]].barrier if message["barrier"] else None
            barrier = (lambda: meet(ranks)) if meet else (lambda: None)
            timer = Timer(operation, point.clock, self._device, barrier, point.payload_bytes)
        timer.operation.prepare(message["salt"])
        self._timers[key] = self._current = timer

    def _time(self, message: Message) -> dict[str, object]:
        """Time the calls of the operation that was prepared last; the answer is its RankTimes."""
        timer, self._current = self._current, None
        if timer is None:
            raise BadInputError("nothing is prepared.")
        times = timer.visit(int(message["calls"]), self.timed)
        return {**asdict(times), "steps_s": dict(times.steps_s)}

    def _close(self, message: Message) -> None:
        """Leave the job through every provider, the last that was opened first, and stop serving."""
        self.leaving = True
        self._timers.clear()
        self._current = None
        for name in reversed(self._open):
            self._open[name].close()
        self._open.clear()


def name_provider(point: Point) -> str:
    """Name of the provider of a point's operation: its library, or who implements the kernel or pass."""
    if point.kind is PointKind.COLLECTIVE:
        return point.backend
    return PROVIDER_OF.get(point.implementation, point.implementation)


def describe_error(error: BaseException) -> dict[str, str]:
    """An error as JSON: its kind if it is one of this program's, message and next step."""
    said = error if isinstance(error, PerfmodelError) else out_of_memory(error)
    text, step = (said.message, said.next_step) if said else (f"{type(error).__name__}: {error}", "")
    kind = type(error).__name__ if isinstance(error, PerfmodelError) else ""
    return {"kind": kind, "message": text, "next_step": step}


def serve(
    meeting: tuple[str, int],
    job: str,
    rank: int,
    load: Loader | None = None,
    describe: Describer | None = None,
) -> None:
    """Join the store of rank 0, and do what it says until the end.

    meeting  host and port of the store;  job  its name there;  load, describe  as in RankServer
    Raises LeaderMissingError if there is no store in time.
    """
    from calibrate import providers

    process.keep_freed_memory()
    store = join_store(*meeting, job)
    sys.modules["torch"].set_num_threads(THREADS)
    server = RankServer(store, rank, load or providers.load, describe or providers.describe, meeting)
    threading.Thread(target=_watch, args=(join_store(*meeting, job), server, rank), daemon=True).start()
    host_name = socket.gethostname()
    node = read_fact(ROOT / "proc/sys/kernel/random/boot_id")  # shared by all ranks of a node
    store.set(f"0/{rank}", json.dumps({"node": node, "host": host_name, "pid": os.getpid()}))
    server.serve()


def _watch(store: Any, server: RankServer, rank: int) -> None:
    """Say where this rank is when rank 0 asks; end the process, even a stuck one, when the store is gone."""
    try:
        store.wait(["where"], FOREVER)
        store.set(f"where/{rank}", str(len(server.timed)))
        store.wait(["the end"], FOREVER)
    except RuntimeError:
        if server.leaving:
            time.sleep(LEAVE_S)
        os._exit(os.EX_OK)


def follow(launcher: Launcher) -> None:
    """On a rank other than 0 of a launcher: do what rank 0 says until it is done; print nothing.

    Launchers send signals to all ranks; rank 0 decides what they mean.
    """
    process.end_with_launcher(launcher.name, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    serve((launcher.host, launcher.port), launcher.job, launcher.rank)
    end_process()


def end_process() -> None:
    """End without Python's own end, which aborts while a thread waits in the store's C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(os.EX_OK)


def main(load: Loader | None = None, describe: Describer | None = None) -> None:
    """Run a rank in its own process until the team ends. load, describe  as of ``serve``"""
    process.die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    port, _, job = os.environ["PERFMODEL_TEAM"].partition(" ")
    serve((LOCALHOST, int(port)), job, int(os.environ["PERFMODEL_RANK"]), load, describe)
    end_process()


if __name__ == "__main__":
    main()
