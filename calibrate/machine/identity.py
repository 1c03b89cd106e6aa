"""Identity of this machine: the shipped machine with its GPUs, or a name made from its processor.

Reads files of the kernel and asks the driver; starts no CUDA context and measures nothing.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.machine.node import ROOT, LocalGpu, find_gpus, read_fact
from perfmodel.errors import BadInputError
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.machine import list_machines, load_machine

_NOISE_WORDS = re.compile(
    r"\(r\)|\(tm\)|\(c\)|@.*$|with .* graphics|\b\d+(st|nd|rd|th) gen\b|\b\d+-core\b|\b(cpu|processor)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Host:
    """This node, and the name of its machine in calibrations.

    machine  name of a shipped machine, or a generated name (``cpu-amd-epyc-2``)
    shipped  whether ``machine`` is shipped (or a file given by ``--machine``)
    cpu      name of the processor
    cores    physical cores that this process may use, within limits of containers
    cores_online  cores of the node, or of the container, even if a launcher binds this process to fewer
    caches   bytes of a cache by level (``L2``: of one core; ``L3``: of the cores that share it)
    """

    machine: str
    shipped: bool
    cpu: str
    cores: int
    cores_online: int
    caches: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[LocalGpu, ...] = ()
    network: str = ""  # infiniband, roce, efa, slingshot, or unknown
    note: str = ""  # the choice among several machines, or why no shipped machine fits


def describe_host(machine: str | None = None, root: Path = ROOT, device: str = "auto") -> Host:
    """Describe this node and decide which machine it is.

    machine  the user's name for the machine; None: by its GPUs, else its processor
    device   ``cpu``: ignore the GPUs
    Limits: ``machine`` is no shipped machine, no file and no plain name -> BadInputError
    """
    gpus = () if device == "cpu" else find_gpus()
    cpu = read_cpu_name(root)
    network = name_network(root)
    cores = count_usable_cores(root)
    online = count_node_cores(root)
    shipped = False
    note = ""
    if machine is not None:
        name, shipped = _resolve_name(machine)
        if not gpus and name in list_machines():
            raise BadInputError(
                f"--machine {name}: there is no GPU here, and times of CPUs say nothing about one.",
                "leave --machine out, or give a name of your own.",
            )
    elif gpus:
        name, note = match_machine([gpu.name for gpu in gpus], network)
        shipped = name in list_machines()
    else:
        name = f"cpu-{make_slug(cpu)}-{online}"
    return Host(name, shipped, cpu, cores, online, read_cache_sizes(root), gpus, network, note)


def _resolve_name(machine: str) -> tuple[str, bool]:
    """(name of the machine that the user gave, whether its values are known: shipped, or in a file)."""
    if looks_like_path(machine, [".toml"]):
        return load_machine(machine).name, True
    if machine in list_machines():
        return machine, True
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", machine):
        raise BadInputError(
            f"--machine {machine!r} is neither a shipped machine nor a name of your own.",
            "a name of your own has lower-case letters, digits, dots and dashes, such as my-box-2.",
        )
    if machine.split("-")[0] in {name.split("-")[0] for name in list_machines()}:
        raise unknown_name("--machine", machine, list_machines())
    return machine, False


def match_machine(names: Iterable[str], network: str = "") -> tuple[str, str]:
    """(name of the machine with these GPUs, remark on the choice): a shipped machine, else a made-up name.

    Several shipped machines with the same GPU differ in their network: the machine with ``network`` is
    chosen, and without ``network`` the machine with InfiniBand.
    Limits: GPUs of several kinds -> BadInputError; a PCIe card matches no machine with a scale-up domain
    """
    kinds = sorted(set(names))
    if len(kinds) > 1:
        raise BadInputError(
            f"GPUs of {len(kinds)} kinds here: {', '.join(kinds)}: one calibration is of one kind.",
            "choose with CUDA_VISIBLE_DEVICES, for example CUDA_VISIBLE_DEVICES=0,1",
        )
    fitting = list_machines_with(kinds[0])
    if not fitting:
        remark = f"no shipped machine has the GPU {kinds[0]}: values come from this run"
        return f"gpu-{make_slug(kinds[0])}", remark
    networks = {machine: load_machine(machine).links.network for machine in fitting}
    first, *others = sorted(fitting, key=lambda m: (networks[m] != network, networks[m] != "infiniband", m))
    return first, f"also possible: --machine {' or '.join(others)}" if others else ""


def list_machines_with(gpu: str) -> list[str]:
    """The shipped machines with this GPU: its name has all words of theirs (h100; rtx, pro, 6000).

    Limits: an unknown GPU, or a PCIe card if the machine has a scale-up domain -> none;  machines that
    nobody makes -> left out
    """
    words = set(re.findall(r"[a-z0-9]+", gpu.lower()))
    fitting = []
    for name in list_machines():
        family, *others = name.split("-")
        # h100-sxm-ib: the first word names the GPU; rtx-pro-6000-pcie: all words before the bus do
        model = () if any(c.isdigit() for c in family) else itertools.takewhile("pcie".__ne__, others)
        if words.issuperset((family, *model)):
            machine = load_machine(name)
            in_domain = machine.nvlink_domain_gpus != 1 and words & {"pcie", "nvl"}
            fitting += [] if machine.hypothetical or in_domain else [name]
    return fitting


def make_slug(text: str) -> str:
    """Lower-case words joined by ``-``: ``Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz`` ->
    ``intel-xeon-platinum-8375c``. Limits: no words -> ``unknown``"""
    words = re.findall(r"[a-z0-9]+", _NOISE_WORDS.sub(" ", text).lower())
    return "-".join(words)[:48].strip("-") or "unknown"


def read_cpu_name(root: Path = ROOT) -> str:
    """The processor's name, as the system reports it."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", read_fact(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.machine()


def list_cpus() -> list[int]:
    """Logical processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))
    return list(range(multiprocessing.cpu_count()))


def count_usable_cores(root: Path = ROOT) -> int:
    """Physical cores in this process's affinity and within a container's share of time; at least 1."""
    return _count_cores(list_cpus(), root)


def count_node_cores(root: Path = ROOT) -> int:
    """Physical cores of this node, or of this container if it has fewer; at least 1."""
    cpuset = read_fact(root / "sys/fs/cgroup/cpuset.cpus.effective")
    parts = [span.partition("-") for span in cpuset.split(",")] if re.fullmatch(r"[\d,-]*\d", cpuset) else []
    cpus = [cpu for low, _, high in parts for cpu in range(int(low), int(high or low) + 1)]
    return _count_cores(cpus or range(multiprocessing.cpu_count()), root)


def _count_cores(cpus: Iterable[int], root: Path) -> int:
    """Physical cores of these logical processors, at most a container's share of time; at least 1."""
    cores = set()
    for cpu in cpus:  # of an unknown topology, one processor is one core
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        core = read_fact(topology / "core_id") or f"cpu{cpu}"
        cores.add((read_fact(topology / "physical_package_id"), core))
    share = read_cpu_share(root)
    return max(1, len(cores) if share is None else min(len(cores), int(share)))


def read_cpu_share(root: Path = ROOT) -> float | None:
    """Number of processors whose time a container may use; None without a limit."""
    match = re.fullmatch(r"(\d+) ([1-9]\d*)", read_fact(root / "sys/fs/cgroup/cpu.max"))
    return int(match[1]) / int(match[2]) if match else None


def read_cache_sizes(root: Path = ROOT) -> dict[str, int]:
    """Bytes of the data caches of the first core: ``{"L1": 49152, "L2": …, "L3": …}``."""
    sizes = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        match = re.fullmatch(r"(\d+)([KM])", read_fact(index / "size"))
        if match and read_fact(index / "type") != "Instruction":
            sizes[f"L{read_fact(index / 'level')}"] = int(match[1]) << {"K": 10, "M": 20}[match[2]]
    return sizes


def name_network(root: Path = ROOT) -> str:
    """Kind of the fast network cards: efa, slingshot, roce or infiniband. Limits: none is seen -> empty"""
    cards = [path.name for path in (root / "sys/class/infiniband").glob("*")]
    if any(card.startswith(("efa", "rdmap")) for card in cards):
        return "efa"
    if list((root / "sys/class/cxi").glob("*")):
        return "slingshot"
    layers = [read_fact(path) for path in (root / "sys/class/infiniband").glob("*/ports/*/link_layer")]
    return "roce" if "Ethernet" in layers else "infiniband" if cards else ""
