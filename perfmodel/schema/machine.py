"""Hardware as data: machines (GPU, node and fabric) and chips of many cores, each value with its source."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, StringConstraints, model_validator

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import RING_BACKENDS, Backend, Clock, Evidence
from perfmodel.schema.fields import OVERRIDE_SOURCE, Hardware, Name, Strict, Text, limits_of, read_as
from perfmodel.schema.files import find_file, find_shipped, looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml

FOLLOW_MEMORY = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")
"""Kernel rates that are a share of the memory's rate."""

KEYS = limits_of("machine")
CHIP_KEYS = limits_of("chip")
"""Values of a machine and of a chip, what each is and its range; a file gives all that are required."""

_SUFFIX = ".toml"
_LATENCIES = ("core_cache_latency_s", "cache_latency_s", "row_latency_s")  # from near to far


class Defaults(Strict):
    """Defaults of this machine."""

    backend: Backend = Backend.NCCL
    clock: Clock | None = None


class Links(Strict):
    """What connects the GPUs (``scale_up``: in a domain): it selects constants, and what is borrowed."""

    scale_up: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 -]{0,19}$")] = "NVLink"
    network: Literal["infiniband", "efa", "slingshot", "roce", "ethernet", "none"] = "infiniband"
    nvls: bool = Field(default=False, strict=True)  # the switch of a domain reduces
    like: str = ""  # machine whose calibrations are borrowed


class Machine(Hardware):
    """A machine: one GPU, one node and one fabric."""

    kind = "machine"
    keys = KEYS

    defaults: Defaults = Defaults()
    links: Links = Links()
    accepted: tuple[str, ...] = ()  # keys of values that are right although far from every product
    successors: tuple[Name, ...] = ()  # shipped machines that a buyer would compare with it
    _before: Machine | None = PrivateAttr(default=None)  # the first override

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        """Raise ValueError for domains without a link or that fit no node, and for unknown ``accepted``."""
        if unknown := [key for key in self.accepted if key not in KEYS]:
            raise ValueError(f"accepted: {', '.join(unknown)}: not a machine value")
        link = self.links.scale_up
        domain = self.nvlink_domain_gpus
        node = self.gpus_per_node
        if domain != 1 and not self.value("nvlink_bytes_per_s"):
            raise ValueError(f"an {link} domain of {domain} GPUs needs nvlink_bytes_per_s above 0")
        if 1 < domain < node:
            raise ValueError(
                f"an {link} domain of {domain} GPUs inside nodes of {node} is not modelled: give "
                f"gpus_per_node {domain} as well, or nvlink_domain_gpus 1 for no {link}"
            )
        if domain % node and node % domain:
            raise ValueError(f"nvlink_domain_gpus {domain} does not fit nodes of {node} GPUs")
        return self

    def doubts(self) -> dict[str, str]:
        """Values more than ten times off every product: reason by key; ``accepted`` keys are left out."""
        values = {key: item.value for key, item in self.values.items() if key not in self.accepted}
        doubts = {key: KEYS[key].doubt(value) for key, value in values.items() if value}
        return {key: text for key, text in doubts.items() if text}

    def original(self, key: str) -> float:
        """The SI value of ``key`` before overrides: the value when the shipped measurements were taken."""
        return (self.unchanged() if key in self.overrides else self).value(key)

    def unchanged(self) -> Machine:
        """This machine before all overrides."""
        return self._before or self

    def with_overrides(self, values: Mapping[str, float | str], source: str = OVERRIDE_SOURCE) -> Machine:
        """As ``Hardware``; a domain that ends at the node still ends there if its GPUs alone are replaced."""
        domain: dict[str, float | str] = {}
        if "gpus_per_node" in values and 1 < self.nvlink_domain_gpus == self.gpus_per_node:
            domain = {"nvlink_domain_gpus": values["gpus_per_node"]}
        machine = super().with_overrides({**domain, **values}, source)
        if machine is self:
            return self
        machine = machine.model_copy(update={"overrides": self.overrides | frozenset(values)})
        machine._before = self.unchanged()
        return machine

    @property
    def gpus_per_node(self) -> int:
        """GPUs per node."""
        return int(self.value("gpus_per_node"))

    @property
    def nvlink_domain_gpus(self) -> int:
        """GPUs that reach each other over a scale-up link (NVLink, xGMI); 1 without such a link."""
        return int(self.value("nvlink_domain_gpus"))

    @property
    def hypothetical(self) -> bool:
        """Whether nobody makes it: its scale-up domain is assumed."""
        return self.quantity("nvlink_domain_gpus").evidence is Evidence.ASSUMED

    def domain_gpus_of(self, gpus_per_node: int) -> int:
        """GPUs that reach each other without a network card if so many GPUs of each node are used."""
        trays = self.nvlink_domain_gpus // self.gpus_per_node if gpus_per_node <= self.gpus_per_node else 1
        return gpus_per_node * max(1, trays)

    @property
    def network_priors(self) -> str:
        """Name of the section of the priors for its collectives: its network, or RCCL if it has no NCCL."""
        return str(self.links.network if self.ring_backend is Backend.NCCL else Backend.RCCL)

    @property
    def ring_backend(self) -> Backend:
        """The library of its vendor, with rings: its default library if that is NCCL or RCCL, else NCCL."""
        return self.defaults.backend if self.defaults.backend in RING_BACKENDS else Backend.NCCL


class Buffers(Strict):
    """The local buffers of a chip. persist  rows stay from batch to batch: no batch's time includes a copy"""

    persist: bool = Field(strict=True)
    source: Text


class Chip(Hardware):
    """A chip of many cores: memory and rates of one core, and what all cores share."""

    kind = "chip"
    keys = CHIP_KEYS

    buffers: Buffers

    @model_validator(mode="after")
    def _check_latencies(self) -> Self:
        """Raise ValueError for a cache that answers later than one behind it, or than the memory."""
        latencies = [self.value(key) for key in _LATENCIES]
        if latencies != sorted(latencies):
            raise ValueError(f"a cache answers no later than what it spares: {' <= '.join(_LATENCIES)}")
        return self

    @property
    def cores(self) -> int:
        """Number of cores of the chip."""
        return int(self.value("cores"))


def doubted_values(where: str, doubted: Mapping[str, str], how: str) -> BadInputError:
    """The error that asks about values far from every product on the market; ``how`` accepts them."""
    lines = "\n".join(f"{where}{key}: {text}" for key, text in doubted.items())
    return BadInputError(lines, f"check the unit and the number; if it is correct: {how}")


def list_machines() -> list[str]:
    """Names of the shipped machines."""
    return resources.data_names("machines", _SUFFIX)


def list_chips() -> list[str]:
    """Names of the shipped chips."""
    return resources.data_names("chips", _SUFFIX)


def machine_file(name: str) -> str:
    """Text of a shipped machine's file as a template for a user's own, which borrows its collectives."""
    text = _find_shipped(name).read_text(encoding="utf-8")
    alone = re.sub(r"^like = .*\n", "", text, flags=re.MULTILINE)
    return alone.replace("[links]\n", f'[links]\nlike = "{name}"\n')


def chip_file(name: str) -> str:
    """The TOML of a shipped chip. Limits: unknown name -> BadInputError listing the known ones"""
    return find_shipped("chip", name, "chips", _SUFFIX).read_text(encoding="utf-8")


def _find_shipped(name: str) -> Path:
    """Path of a shipped machine. Limits: unknown -> BadInputError, with the nearest for a known GPU"""
    try:
        return find_shipped("machine", name, "machines", _SUFFIX, resources.DEFAULT_MACHINE)
    except BadInputError as error:
        gpus = read_toml(resources.data_path("limits", "not_modelled.toml"), "GPUs that are not modelled")
        if gpu := gpus.get(name.casefold().partition("-")[0]):
            error.message = f"machine {name} is not modelled: nobody has published its collectives."
            values = " ".join(f"--set {value}" for value in gpu["values"])
            error.next_step = f"the nearest, as assumed: --machine {gpu['nearest']} {values}"
        raise


def load_machine(name_or_path: str | Path) -> Machine:
    """A shipped machine by name, or a user's own TOML file by path."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX]):
        return read_machine(Path(text))
    return _load_shipped(text)


def load_chip(name_or_path: str | Path) -> Chip:
    """A shipped chip by name, or a user's own TOML file by path. Limits: as ``load_machine``"""
    return read_as(Chip, find_file("chip", name_or_path, "chips", _SUFFIX), "chip file")


@lru_cache(maxsize=32)
def _load_shipped(name: str) -> Machine:
    """A shipped machine by name, read once."""
    return read_machine(_find_shipped(name))


def read_machine(path: Path) -> Machine:
    """A machine from a TOML file. Limits: fields, values, names or rates that cannot be -> BadInputError"""
    where = f"machine file {path}"
    shipped = list_machines()
    machine = read_as(Machine, path, "machine file")
    if doubts := machine.doubts():
        accepted = json.dumps([*machine.accepted, *doubts])
        raise doubted_values(f"{where}: ", doubts, f"write accepted = {accepted}")
    if machine.links.like and machine.links.like not in shipped:
        raise unknown_name(f"{where}: links.like", machine.links.like, shipped)
    if machine.name not in shipped:
        _check_kernel_rates(machine, where)
    elif path != _find_shipped(machine.name) and machine.values != _load_shipped(machine.name).values:
        raise BadInputError(
            f"{where}: the name is that of the shipped {machine.name}, the values are not.",
            f'give it a name of its own; links.like = "{machine.name}" borrows what was measured there.',
        )
    return machine


def _check_kernel_rates(machine: Machine, where: str) -> None:
    """Refuse kernel rates above the memory's, and those copied from a machine whose memory has another rate.

    Limits: like no machine, with a timed or assumed rate of the memory (the file of a run) -> accepted
    """
    memory = machine.quantity("hbm_bytes_per_s")
    like = _load_shipped(machine.links.like) if machine.links.like else None
    if like is None and memory.evidence is not Evidence.DATASHEET:
        return
    copied = list[str]()
    if like is not None and memory.value != like.value("hbm_bytes_per_s"):
        copied = [key for key in FOLLOW_MEMORY if machine.quantity(key) == like.quantity(key)]
    wrong = [key for key in FOLLOW_MEMORY if key in copied or machine.value(key) > memory.value]
    if wrong:
        step = "correct hbm_bytes_per_s, or write what the kernels reach of this memory."
        if like:
            ratio = memory.value / like.value("hbm_bytes_per_s")
            rates = [f"[values.{key}] value = {float(f'{like.value(key) * ratio:.4g}'):g}" for key in wrong]
            step = f"{step[:-1]}; the same part of it as on {like.name}: {'; '.join(rates)}"
        rates = [f"{key} {machine.quantity(key)}" for key in wrong]
        message = f"{where}: {', '.join(rates)}: not what a memory of hbm_bytes_per_s {memory} gives."
        raise BadInputError(message, step)
