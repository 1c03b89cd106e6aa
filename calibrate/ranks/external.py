"""Ranks that torchrun, srun or mpirun started: how many there are, where they meet, how rank 0 leads them."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calibrate.ranks import process
from calibrate.ranks.control import Coordinator, say_nothing
from calibrate.ranks.rank import JOIN_S, serve
from calibrate.ranks.team import RankTeam, TeamRequest
from perfmodel.errors import BadInputError, PerfmodelError

_FIRST_PORT, _PORTS = 20000, 12000
"""First port, and number of ports, where ranks may meet: below 32768, where Linux begins to give ports to
clients."""

_LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class Launcher:
    """One process of a job that a launcher started.

    name         torchrun, srun or mpirun
    rank, ranks  number of this process, and of all
    host, port   where rank 0 waits for the others
    key          bytes that all processes of the job know, to keep jobs apart; no secret from users of the
                 same machine
    """

    name: str
    rank: int
    ranks: int
    host: str
    port: int
    key: bytes


def detect_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """The launcher that started this process, or None.

    Limits: a single process -> None; a batch script or shell of SLURM that is no step of srun -> None;
    torchrun inside srun or mpirun -> torchrun; mpirun inside SLURM -> mpirun
    Raises BadInputError if a variable is not a number.
    """
    for find in (_torchrun, _mpirun, _srun):
        launcher = find(environ)
        if launcher is not None:
            return launcher if launcher.ranks > 1 else None
    return None


def _torchrun(environ: Mapping[str, str]) -> Launcher | None:
    if not all(name in environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    port = _number(environ, "PERFMODEL_PORT", _number(environ, "MASTER_PORT") + 1)
    job = (
        f"torchrun {environ.get('TORCHELASTIC_RUN_ID', '')} {environ['MASTER_ADDR']} {environ['MASTER_PORT']}"
    )
    ranks = _number(environ, "WORLD_SIZE")
    return Launcher("torchrun", _number(environ, "RANK"), ranks, environ["MASTER_ADDR"], port, _key(job))


def _mpirun(environ: Mapping[str, str]) -> Launcher | None:
    """The process of mpirun, or None. On one node, ranks meet at a port that the name of the job gives.

    Raises BadInputError for ranks of several nodes, or of a job without a name, that know no MASTER_ADDR.
    """
    for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")):
        if rank in environ and size in environ and (rank[0] == "O" or "SLURM_STEP_NUM_TASKS" not in environ):
            job = environ.get("PMIX_NAMESPACE", "")
            one_node = job and environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == environ[size]
            host = environ.get("MASTER_ADDR", _LOCALHOST if one_node else "")
            ranks = _number(environ, size)
            if not host and ranks > 1:
                raise BadInputError(
                    "mpirun does not say where its ranks meet.", "mpirun -x MASTER_ADDR=HOST-OF-RANK-0 …"
                )
            key = _key(f"mpirun {job} {host}")
            return Launcher("mpirun", _number(environ, rank), ranks, host, _port(environ, job), key)
    return None


def _srun(environ: Mapping[str, str]) -> Launcher | None:
    """The process of srun, or None. A batch script has SLURM_NTASKS too, but no SLURM_STEP_NUM_TASKS."""
    if "SLURM_PROCID" not in environ or "SLURM_STEP_NUM_TASKS" not in environ:
        return None
    nodes = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", ""))
    host = environ.get("MASTER_ADDR") or first_host(nodes)
    job = f"{environ.get('SLURM_JOB_ID', '0')}.{environ.get('SLURM_STEP_ID', '0')}"
    rank, ranks = _number(environ, "SLURM_PROCID"), _number(environ, "SLURM_STEP_NUM_TASKS")
    return Launcher("srun", rank, ranks, host, _port(environ, job), _key(f"srun {job}"))


def first_host(nodes: str) -> str:
    """First name of a SLURM node list. Limits: ``node[03-05,9],b1`` -> node03; ``a[1-2]b[7-8]`` -> a1b7"""
    plain = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", nodes)
    return plain.split(",")[0]


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise BadInputError(f"{name}={text!r} in the environment is not a number.") from None


def _port(environ: Mapping[str, str], job: str) -> int:
    """The port in PERFMODEL_PORT, else a port computed from the name of the job."""
    derived = _FIRST_PORT + int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") % _PORTS
    return _number(environ, "PERFMODEL_PORT", derived)


def _key(job: str) -> bytes:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return hashlib.sha256(f"perfmodel {user} {job}".encode()).digest()


class ExternalTeam(RankTeam):
    """A launcher's ranks, led by rank 0: its main thread sends requests, another thread answers them."""

    def __init__(
        self,
        launcher: Launcher,
        request: TeamRequest,
        device: str,
        say: Callable[[str], None] = say_nothing,
    ) -> None:
        _end_with(launcher, signal.SIGTERM)
        key, host = launcher.key, launcher.host
        coordinator = Coordinator(key, host=host if host == _LOCALHOST else "", port=launcher.port)
        self._trouble = ""
        self._own = threading.Thread(
            target=self._serve_own, args=(coordinator.port, key), name="perfmodel-rank-0", daemon=True
        )
        self._own.start()
        try:
            failed = lambda: self._trouble  # noqa: E731
            super().__init__(coordinator, launcher.ranks, device, request, host=host, failed=failed, say=say)
        except BaseException:
            coordinator.close()
            raise

    def close(self) -> None:
        """End the ranks."""
        super().close()
        self._own.join(JOIN_S if not self.lost else 1.0)

    def _serve_own(self, port: int, key: bytes) -> None:
        try:
            serve(_LOCALHOST, port, key, 0, own_process=False)
        except PerfmodelError as error:
            self._trouble = error.message


def follow(launcher: Launcher, say: Callable[[str], None] = say_nothing) -> None:
    """On a rank other than 0: do what rank 0 asks until it is done; print nothing.

    say   called once if rank 0 is late, on rank 1 only
    Raises LeaderMissingError if rank 0 does not come.
    """

    def late() -> None:
        if launcher.rank == 1:
            say(f"waiting for rank 0; it has {JOIN_S:.0f} s to start")

    _end_with(launcher, signal.SIGKILL)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # launchers send these to all ranks; rank 0 decides
        signal.signal(number, signal.SIG_IGN)
    serve(launcher.host, launcher.port, launcher.key, launcher.rank, late=late)


def _end_with(launcher: Launcher, number: int) -> None:
    """Make the kernel send this process signal ``number`` when its launcher dies; SLURM does so itself."""
    if launcher.name != "srun":
        process.die_with_parent(os.getppid(), number)
