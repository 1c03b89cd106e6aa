"""The stack of a run, which must be equal to merge samples: versions, devices, topology, settings, code."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from calibrate.machine.identity import Host, describe_host
from calibrate.machine.libraries import find_version
from calibrate.machine.node import get_output
from calibrate.planning.world import World, describe_turns
from perfmodel.schema.runs import REHEARSAL, RunHeader

_ALLOWED = re.compile(r"(NCCL|NVSHMEM|TORCH|GLOO|MALLOC|FI|UCX)_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES", re.I)
_OF_A_LAUNCH = re.compile(r"OMP_NUM_THREADS|TORCH_(NCCL_ASYNC_ERROR_HANDLING|CPP_LOG_LEVEL)", re.I)
"""Variables that a launcher, or this program, sets for every run.

torchrun sets the first two; a CPU rank has one thread with any launcher; the last changes only messages."""

_LOOPBACK = ("lo", "lo0")
_PRIVATE = re.compile(
    r"HOST|ADDR|COMM_ID|SOCK_IF|NODELIST|URI|JOBID|TOKEN|SECRET|PASSW|KEY|CRED|USER|SESSION|PLUGIN_PATH",
    re.IGNORECASE,
)
_USER_OF_URL = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s]*@", re.IGNORECASE)

TURNS = "turns"
"""Key in the stack of a functional check: how many ranks took turns on how many cores."""

_GIT_SECONDS = 5.0


def make_header(world: World, *, machine: str, seed: int) -> RunHeader:
    """First line of the file of a run by these ranks on this machine.

    seed     seed of the random order, stored with the run
    """
    environment = filter_environment(os.environ)
    stack = describe(world)
    turns = describe_turns(world)
    if REHEARSAL in stack.get("gpu", ""):  # a simulated GPU (tests/rehearsal)
        turns = turns or "a rehearsal without a GPU, its times are made up"
    if turns:  # never in the same folder as a calibration
        stack[TURNS] = turns
    # hashes distinguish the nodes of a run; as the salt is kept nowhere, they reveal no names
    salt = secrets.token_bytes(32)
    return RunHeader(
        fingerprint=fingerprint(stack, environment),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine,
        stack=stack,
        environment=environment,
        host=",".join(hashlib.sha256(salt + name.encode()).hexdigest()[:8] for name in world.hosts),
        seed=seed,
        ranks=world.ranks,
        nodes=world.nodes,
        functional_only=bool(turns),
    )


def describe(world: World, host: Host | None = None) -> dict[str, str]:
    """Versions and topology of what measures, sorted by name; unknown values are left out.

    host  this node; None: it is described now
    A library's version has the library's name (``gloo``, ``torch``), whether it is measured or not; ``gpu``
    is the GPUs' name. The number of ranks is not part of it: every point has its own.
    """
    host = host or describe_host()
    facts = {
        "perfmodel": find_version(("perfmodel",)),
        "git": read_revision(Path(__file__).resolve().parents[2]),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release().split('.')[0]}",
        "cpu": host.cpu,
        "cores": str(host.cores_online),
        "caches": ", ".join(f"{level} {size}" for level, size in sorted(host.caches.items())),
        "network": host.network,
        "topology": f"{world.nodes} node{'s' * (world.nodes > 1)}, {world.device}",
    }
    if host.gpus:
        facts["gpu"] = ", ".join(dict.fromkeys(gpu.name for gpu in host.gpus))
        facts["gpus"] = str(len(host.gpus))
        facts["driver"] = ", ".join(dict.fromkeys(gpu.driver for gpu in host.gpus))
    facts |= world.versions
    return {name: value for name, value in sorted(facts.items()) if value}


def fingerprint(stack: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Hash of a stack and its settings, 64 hexadecimal digits, whatever their order."""
    return hashlib.sha256(json.dumps([dict(stack), dict(environment)], sort_keys=True).encode()).hexdigest()


def filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that affect timings and reveal nothing private.

    In values, the home folder is replaced by ``~``, user and password of a URL by ``***``.

    Limits: names of hosts, addresses, keys, identifiers of one job, what a launcher sets -> left out
    """
    home = environ.get("HOME", "").rstrip("/")
    return {
        name: _USER_OF_URL.sub(r"\1***@", value.replace(home, "~") if home else value)
        for name, value in sorted(environ.items())
        if _ALLOWED.fullmatch(name) and not _PRIVATE.search(name) and not _OF_A_LAUNCH.fullmatch(name)
        if not (name == "GLOO_SOCKET_IFNAME" and value in _LOOPBACK)  # of ranks on one machine
    }


def read_revision(folder: Path) -> str:
    """Revision of the program: ``4f1c2ab9d3c1``, with changes ``-dirty``; "" outside a checkout.

    Never fails: without git, or if git fails or is slow, it is "".
    """
    if not (folder / ".git").exists():
        return ""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {"GIT_OPTIONAL_LOCKS": "0"}
    line = ("git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    return get_output(*line, timeout_s=_GIT_SECONDS, environ=environ).strip()
