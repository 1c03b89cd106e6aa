"""Who started this process, and where the ranks of its job meet."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from calibrate.machine.libraries import format_torch_command
from calibrate.machine.node import find_gpus
from perfmodel.errors import BadInputError, NoHardwareError

JOIN_S = 120.0
"""Seconds that ranks have to come, and to find rank 0."""

LOCALHOST = "127.0.0.1"
_FIRST_PORT = 20000
_PORTS = 12000
"""Ports where ranks may meet: below 32768, where Linux begins to give ports to clients."""

_STARTED_BY = (
    ("torchrun", "RANK", "WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("mpirun", "PMI_RANK", "PMI_SIZE", ()),
)
"""Launchers, the innermost first, with their variables: the rank, the number of ranks, the name of the job.

A batch script of SLURM has SLURM_PROCID too, but no SLURM_STEP_NUM_TASKS."""

_LAUNCHED = re.compile(
    r"(SLURM|PMIX|PMI|PRTE|OMPI_COMM_WORLD|TORCHELASTIC)_.*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT"
)


class LeaderMissingError(NoHardwareError):
    """Raised by a rank that waited for rank 0 in vain."""


@dataclass(frozen=True)
class Launcher:
    """One process of a job that a launcher started.

    name         torchrun, srun or mpirun; "" for ranks that rank 0 starts
    ranks, rank  number of all processes, and of this one
    host, port   where rank 0 waits for the others; port 0: one that is free
    job          name of the job, which keeps jobs apart that meet at one port
    """

    name: str
    ranks: int
    host: str
    job: str
    port: int = 0
    rank: int = 0


def detect_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """The launcher that started this process, or None.

    Limits: a single process -> None; a batch script or shell of SLURM that is no step of srun -> None;
    torchrun inside srun or mpirun -> torchrun; mpirun inside SLURM -> mpirun
    Raises BadInputError if a variable is not a number, or if nothing says where the ranks of mpirun meet.
    """
    for name, rank, ranks, of_job in _STARTED_BY:
        needed = {rank, ranks, *(of_job[1:] if name == "torchrun" else ())}  # RANK may be of others
        if needed <= environ.keys():
            count = _read_number(environ, ranks)
            if count == 1:
                return None
            job = " ".join([name, *(environ.get(variable, "") for variable in of_job)])
            # a port that every rank of the job computes alike, and another job most likely does not
            derived = _FIRST_PORT + int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") % _PORTS
            usual = _read_number(environ, "MASTER_PORT") + 1 if name == "torchrun" else derived
            port = _read_number(environ, "PERFMODEL_PORT", usual)
            host = _find_host(name, environ)
            return Launcher(name, count, host, job, port, _read_number(environ, rank))
    return None


def _find_host(launcher: str, environ: Mapping[str, str]) -> str:
    """The host of rank 0, as the launcher says it. Limits: mpirun over nodes says none -> BadInputError"""
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    if launcher == "srun":
        return pick_first_host(environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", "")))
    ranks = environ.get("OMPI_COMM_WORLD_SIZE", "")
    local_ranks = environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "")
    if environ.get("PMIX_NAMESPACE") and local_ranks == ranks:
        return LOCALHOST
    raise BadInputError("mpirun does not say where its ranks meet.", "mpirun -x MASTER_ADDR=HOST-OF-RANK-0 …")


def pick_first_host(nodes: str) -> str:
    """First name of a SLURM node list. Limits: ``node[03-05,9],b1`` -> node03; ``a[1-2]b[7-8]`` -> a1b7"""
    plain = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", nodes)
    return plain.split(",")[0]


def _read_number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A variable of the environment as a number; ``default`` if unset. Limits: else -> BadInputError"""
    text = environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise BadInputError(f"{name}={text!r} in the environment is not a number.") from None


def import_store() -> Any:
    """torch.distributed, whose TCPStore carries the messages; without its notes on waits that time out.

    Limits: torch cannot be imported -> NoHardwareError
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import torch.distributed
    except ImportError as error:
        extra = "gpu" if find_gpus() else "cpu"
        raise NoHardwareError(
            f"calibrate measures with PyTorch, which cannot be imported ({error}).",
            f"{format_torch_command()}\nor with all that is measured here: pip install 'perfmodel[{extra}]'",
        ) from error
    return torch.distributed


def listen(host: str, port: int) -> socket.socket:
    """A socket for the store of rank 0. host  LOCALHOST, or any other word for all addresses of this node

    Limits: port 0 -> a free one; a port that is taken -> NoHardwareError
    """
    try:
        if host != LOCALHOST and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((LOCALHOST if host == LOCALHOST else "", port))
    except OSError as error:
        raise NoHardwareError(
            f"the ranks cannot meet on port {port} of {host}: {error.strerror or error}.",
            "choose a free one: PERFMODEL_PORT=29655 (the same on every rank).",
        ) from error


def serve_store(listening: socket.socket, job: str) -> Any:
    """The store of rank 0 on this socket, which it takes over. job  its name, which keeps jobs apart"""
    dist = import_store()
    port = listening.getsockname()[1]
    store = dist.TCPStore(LOCALHOST, port, is_master=True, master_listen_fd=listening.detach())
    return dist.PrefixStore(job, store)


def join_store(host: str, port: int, job: str) -> Any:
    """A connection of a rank to the store of rank 0, which may start later than the rank.

    Raises LeaderMissingError if no store answers there within JOIN_S.
    """
    dist = import_store()
    try:
        store = dist.TCPStore(host, port, timeout=timedelta(seconds=JOIN_S))
    except dist.DistError as error:
        raise LeaderMissingError(
            f"rank 0 did not start: no store on {host}:{port} within {JOIN_S:.0f} s."
        ) from error
    return dist.PrefixStore(job, store)


def rank_environment(environ: Mapping[str, str], device: str, *, alone: bool = True) -> dict[str, str]:
    """The environment of ranks that are started here: without a launcher's variables; one thread on CPUs.

    alone   whether all ranks run on this node
    """
    variables = {name: value for name, value in environ.items() if not _LAUNCHED.fullmatch(name)}
    if device == "cpu":
        variables |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if alone:
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform.startswith("linux") else "lo0")
    return variables
