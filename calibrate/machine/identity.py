"""Identity of this machine: the shipped machine with its GPUs, or a name made from its processor.

Reads files of the kernel and asks the driver; starts no CUDA context and measures nothing.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.machine.node import ROOT, LocalGpu, find_gpus, get_output, group_cores, read_fact
from perfmodel.errors import BadInputError
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.machine import list_machines, load_machine

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_NOISE_WORDS = re.compile(
    r"\(r\)|\(tm\)|\(c\)|@.*$|with .* graphics|\b\d+(st|nd|rd|th) gen\b|\b\d+-core\b|\b(cpu|processor)\b",
    re.IGNORECASE,
)
_LONGEST_CPU_NAME = 48


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
    cpu, network = read_cpu_name(root), name_network(root)
    cores, online = count_usable_cores(root), count_node_cores(root)
    if machine is not None:
        name, shipped = _resolve_name(machine)
        note = ""
        if not gpus and name in list_machines():
            raise BadInputError(
                f"--machine {name}: there is no GPU here, and times of CPUs say nothing about one.",
                "leave --machine out, or give a name of your own.",
            )
    elif gpus:
        name, note = match_machine([gpu.name for gpu in gpus], network)
        shipped = name in list_machines()
    else:
        name, shipped, note = f"cpu-{make_slug(cpu)}-{online}", False, ""
    return Host(name, shipped, cpu, cores, online, read_cache_sizes(root), gpus, network, note)


def _resolve_name(machine: str) -> tuple[str, bool]:
    """(name of the machine that the user gave, whether its values are known: shipped, or in a file)."""
    if looks_like_path(machine, [".toml"]):
        return load_machine(machine).name, True
    if machine in list_machines():
        return machine, True
    if not _NAME.fullmatch(machine):
        raise BadInputError(
            f"--machine {machine!r} is neither a shipped machine nor a name of your own.",
            "a name is of lower-case letters, digits, dots and dashes, such as my-box-2; "
            "perfmodel show machines lists the shipped ones.",
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
    name = kinds[0]
    fitting = list_machines_with(name)
    if not fitting:
        return f"gpu-{make_slug(name)}", f"no shipped machine has the GPU {name}: values come from this run"
    chosen = min(fitting, key=lambda machine: _order_network(machine, network))
    alternatives = [machine for machine in fitting if machine != chosen]
    return chosen, f"also possible: --machine {' or '.join(alternatives)}" if alternatives else ""


def list_machines_with(gpu: str) -> list[str]:
    """The shipped machines with this GPU.

    Limits: an unknown GPU, or a PCIe card if the machine has a scale-up domain -> none;  machines that
    nobody makes -> left out
    """
    words = split_words(gpu)
    card = bool(words & {"pcie", "nvl"})
    machines = [load_machine(name) for name in list_machines() if name_gpu_words(name) <= words]
    return [
        machine.name
        for machine in machines
        if not machine.hypothetical and not (card and machine.nvlink_domain_gpus > 1)
    ]


def _order_network(machine: str, network: str) -> tuple[bool, bool, str]:
    network_there = load_machine(machine).links.network
    return network_there != network, network_there != "infiniband", machine


def split_words(text: str) -> set[str]:
    """The lower-case words of a text: ``NVIDIA H100 80GB HBM3`` -> nvidia, h100, 80gb, hbm3."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def name_gpu_words(machine: str) -> set[str]:
    """Words of a shipped machine's name that the name of its GPU must contain: h100; rtx, pro, 6000."""
    family, *words = machine.split("-")
    return (
        {family} if any(c.isdigit() for c in family) else {family, *itertools.takewhile("pcie".__ne__, words)}
    )


def make_slug(text: str) -> str:
    """Lower-case words joined by ``-``: ``Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz`` ->
    ``intel-xeon-platinum-8375c``. Limits: no words -> ``unknown``"""
    words = re.findall(r"[a-z0-9]+", _NOISE_WORDS.sub(" ", text).lower())
    return "-".join(words)[:_LONGEST_CPU_NAME].strip("-") or "unknown"


def read_cpu_name(root: Path = ROOT) -> str:
    """The processor's name, as the system reports it."""
    pairs = (line.partition(":") for line in read_fact(root / "proc/cpuinfo").splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}  # of the last core
    for key in ("model name", "cpu model", "Model", "Hardware"):
        if fields.get(key):
            return fields[key]
    if platform.system() == "Darwin":
        return (get_output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()).strip()
    return platform.processor() or platform.machine() or "unknown"


def list_cpus() -> list[int]:
    """Logical processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def count_usable_cores(root: Path = ROOT) -> int:
    """Physical cores that this process may use, at least 1: its affinity, with two threads of a core counted
    once, and within a container's share of processor time."""
    return _count_cores(list_cpus(), root)


def count_node_cores(root: Path = ROOT) -> int:
    """Physical cores of this node, or of this container if it has fewer; at least 1."""
    cpuset = read_fact(root / "sys/fs/cgroup/cpuset.cpus.effective")
    parts = [span.partition("-") for span in cpuset.split(",")] if re.fullmatch(r"[\d,-]*\d", cpuset) else []
    cpus = [cpu for low, _, high in parts for cpu in range(int(low), int(high or low) + 1)]
    return _count_cores(cpus or list(range(os.cpu_count() or 1)), root)


def _count_cores(cpus: Iterable[int], root: Path) -> int:
    cores, share = len(group_cores(cpus, root)), read_cpu_share(root)
    return max(1, cores if share is None else min(cores, int(share)))


def read_cpu_share(root: Path = ROOT) -> float | None:
    """Number of processors whose time a container may use; None without a limit."""
    quota, _, period = read_fact(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None
    return int(quota) / int(period)


def read_cache_sizes(root: Path = ROOT) -> dict[str, int]:
    """Bytes of the data caches of the first core: ``{"L1": 49152, "L2": …, "L3": …}``."""
    sizes = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size, kind = read_fact(index / "size"), read_fact(index / "type")
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if match and kind != "Instruction":
            sizes[f"L{read_fact(index / 'level')}"] = int(match[1]) * _UNITS.get(match[2], 1)
    return sizes


def name_network(root: Path = ROOT) -> str:
    """Kind of the fast network cards: efa, slingshot, roce or infiniband. Limits: none is seen -> empty"""
    cards = [path.name for path in sorted((root / "sys/class/infiniband").glob("*"))]
    drivers = {
        os.path.basename(os.path.realpath(root / f"sys/class/infiniband/{c}/device/driver")) for c in cards
    }
    if "efa" in drivers or any(card.startswith(("efa", "rdmap")) for card in cards):
        return "efa"
    if list((root / "sys/class/cxi").glob("*")):
        return "slingshot"
    layers = {read_fact(path) for path in (root / "sys/class/infiniband").glob("*/ports/*/link_layer")}
    if any(layer == "Ethernet" for layer in layers):
        return "roce"
    return "infiniband" if cards else ""
