"""Hardware as data: machines (GPU, node and fabric) and chips of many cores, each value with its source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import RING_BACKENDS, Backend, Clock, Evidence
from perfmodel.schema.fields import (
    OVERRIDE_SOURCE,
    Hardware,
    Name,
    Quantity,
    Strict,
    Text,
    limits_of,
    read_as,
)
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml

FOLLOW_MEMORY = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")
"""Kernel rates that are a share of the memory's rate."""
_SUFFIX = ".toml"
_SAME = 1e-9
_LATENCIES = ("core_cache_latency_s", "cache_latency_s", "row_latency_s")  # from near to far

KEYS = limits_of("machine")
"""Values of a machine, what each is and its range; a file gives all that are required."""

CHIP_KEYS = limits_of("chip")
"""Values of a chip, all of them required."""


class Defaults(Strict):
    """Defaults of this machine."""

    backend: Backend = Backend.NCCL
    clock: Clock | None = None


class Links(Strict):
    """What connects the GPUs: it selects the initial constants, and calibrations to borrow.

    scale_up   name of a domain's link: NVLink, xGMI;  network  kind of network
    nvls       whether the switch of a domain reduces;  like  machine whose calibrations are borrowed
    """

    scale_up: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 -]{0,19}$")] = "NVLink"
    network: Literal["infiniband", "efa", "slingshot", "roce", "ethernet", "none"] = "infiniband"
    nvls: bool = Field(default=False, strict=True)
    like: str = ""


class Machine(Hardware):
    """A machine: one GPU, one node and one fabric.

    accepted   keys of values that are correct although far from every product on the market
    successors  shipped machines that a buyer would compare with it
    originals  values before overrides, by key
    """

    kind = "machine"
    keys = KEYS

    defaults: Defaults = Defaults()
    links: Links = Links()
    accepted: tuple[str, ...] = ()
    successors: tuple[Name, ...] = ()
    originals: Mapping[str, Quantity] = Field(default={}, exclude=True)

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        if unknown := [key for key in self.accepted if key not in KEYS]:
            raise ValueError(f"accepted: {', '.join(unknown)}: not a machine value")
        link, domain, node = self.links.scale_up, self.nvlink_domain_gpus, self.gpus_per_node
        if domain > 1 and self.value("nvlink_bytes_per_s") == 0:
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
        doubts = {
            key: self.keys[key].doubt(quantity.value)
            for key, quantity in self.values.items()
            if quantity.value and key not in self.accepted
        }
        return {key: text for key, text in doubts.items() if text}

    def knows(self, *keys: str) -> bool:
        """Whether the machine has all of these values."""
        return all(key in self.values for key in keys)

    def original(self, key: str) -> float:
        """The SI value of ``key`` before overrides: the value when the shipped measurements were taken."""
        return self.originals[key].value if key in self.originals else self.value(key)

    def unchanged(self) -> Machine:
        """This machine before all overrides."""
        if not (self.originals or self.overrides):
            return self
        values = {
            key: self.originals.get(key, now)
            for key, now in self.values.items()
            if key in self.originals or key not in self.overrides
        }
        return self.model_copy(update={"values": values, "overrides": frozenset(), "originals": {}})

    @property
    def what_ifs(self) -> list[str]:
        """Keys of overrides that the user set, sorted."""
        return sorted(key for key in self.overrides if self.quantity(key).source == OVERRIDE_SOURCE)

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
        """GPUs that reach each other without a network card if ``gpus_per_node`` GPUs of each node are used.

        In a DGX: GPUs of the node. In an NVL72 (18 trays of 4): 18 times ``gpus_per_node``, at most the
        domain.
        """
        if gpus_per_node > self.gpus_per_node:
            return gpus_per_node
        return gpus_per_node * max(1, self.nvlink_domain_gpus // self.gpus_per_node)

    @property
    def network_priors(self) -> str:
        """Name of the section of the priors for its collectives: its network, or RCCL if it has no NCCL."""
        return str(self.links.network if self.ring_backend is Backend.NCCL else Backend.RCCL)

    @property
    def ring_backend(self) -> Backend:
        """The library of its vendor, with rings: its default library if that is NCCL or RCCL, else NCCL."""
        return self.defaults.backend if self.defaults.backend in RING_BACKENDS else Backend.NCCL

    def _replace(self, replaced: Mapping[str, Quantity]) -> dict[str, Any]:
        """A domain that ends at the node still ends there if only ``gpus_per_node`` is replaced."""
        values = {**self.values, **replaced}
        ends_at_node = 1 < self.nvlink_domain_gpus == self.gpus_per_node
        if ends_at_node and "gpus_per_node" in replaced and "nvlink_domain_gpus" not in replaced:
            why = f"the {self.links.scale_up} domain of this machine is one node"
            values["nvlink_domain_gpus"] = replaced["gpus_per_node"].model_copy(update={"why": why})
        before = {
            key: quantity
            for key, quantity in self.values.items()
            if values[key] is not quantity and key not in self.overrides  # else an earlier override added it
        }
        return {"values": values, "originals": {**before, **self.originals}}


class Buffers(Strict):
    """persist  rows stay from one batch to the next: they are copied once, which a batch's time does not
    include
    """

    persist: bool = Field(strict=True)
    source: Text


class Chip(Hardware):
    """A chip of many cores: memory and rates of one core, and what all cores share."""

    kind = "chip"
    keys = CHIP_KEYS

    buffers: Buffers

    @model_validator(mode="after")
    def _check_latencies(self) -> Self:
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
    """Text of a shipped machine's file as a template for a user's own, which borrows the shipped collectives.

    Limits: unknown name -> BadInputError listing the known ones;  ``links.like`` -> the shipped machine
    """
    text = _find_shipped(Machine.kind, name).read_text(encoding="utf-8")
    alone = re.sub(r"^like = .*\n", "", text, flags=re.MULTILINE)
    return alone.replace("[links]\n", f'[links]\nlike = "{name}"\n', 1)


def chip_file(name: str) -> str:
    """The TOML of a shipped chip. Limits: unknown name -> BadInputError listing the known ones"""
    return _find_shipped(Chip.kind, name).read_text(encoding="utf-8")


def _find_shipped(kind: str, name: str) -> Path:
    shipped = resources.data_names(f"{kind}s", _SUFFIX)
    if name in shipped:
        return resources.data_path(f"{kind}s", name + _SUFFIX)
    gpus = read_toml(resources.data_path("limits", "not_modelled.toml"), "GPUs that are not modelled")
    if gpu := gpus.get(name.casefold().partition("-")[0]):
        values = " ".join(f"--set {value}" for value in gpu["values"])
        raise BadInputError(
            f"machine {name} is known and not modelled: nobody has published its collectives.",
            f"the nearest, as assumed: --machine {gpu['nearest']} {values}",
        )
    raise unknown_name(kind, name, shipped, resources.DEFAULT_MACHINE)


def load_machine(name_or_path: str | Path) -> Machine:
    """A shipped machine by name, or a user's own TOML file by path.

    Limits: unknown name -> BadInputError listing the known ones; a GPU that is not modelled -> with the
    nearest; a bad file -> with its field
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX]):
        return read_machine(Path(text))
    return _load_shipped(text)


def load_chip(name_or_path: str | Path) -> Chip:
    """A shipped chip by name, or a user's own TOML file by path. Limits: as ``load_machine``"""
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX])
    return read_as(Chip, Path(text) if is_path else _find_shipped(Chip.kind, text), "chip file")


@lru_cache(maxsize=32)
def _load_shipped(name: str) -> Machine:
    return read_machine(_find_shipped(Machine.kind, name))


def read_machine(path: Path) -> Machine:
    """A machine from a TOML file, validated."""
    where, shipped = f"machine file {path}", list_machines()
    machine = read_as(Machine, path, "machine file")
    if doubts := machine.doubts():
        accepted = json.dumps([*machine.accepted, *doubts])
        raise doubted_values(f"{where}: ", doubts, f"write accepted = {accepted}")
    if machine.links.like and machine.links.like not in shipped:
        raise unknown_name(f"{where}: links.like", machine.links.like, shipped)
    if machine.name not in shipped:
        _check_kernel_rates(machine, where)
    elif path != resources.data_path("machines", machine.name + _SUFFIX):
        theirs = {key: quantity.value for key, quantity in _load_shipped(machine.name).values.items()}
        changed = [key for key, quantity in machine.values.items() if quantity.value != theirs.get(key)]
        if changed:
            raise BadInputError(
                f"{where}: the name is that of the shipped {machine.name}, the values are not: "
                f"{', '.join(changed)}.",
                f'give it a name of its own; links.like = "{machine.name}" borrows what was measured there.',
            )
    return machine


def _check_kernel_rates(machine: Machine, where: str) -> None:
    """Refuse kernel rates above the memory's, and those copied from a machine whose memory has another rate.

    Limits: like no machine, with a timed or assumed rate of the memory (the file of a run) -> accepted
    """
    memory, wrong = machine.quantity("hbm_bytes_per_s"), dict[str, float]()
    like = _load_shipped(machine.links.like) if machine.links.like else None
    if like is None and memory.evidence is not Evidence.DATASHEET:
        return
    ratio = memory.value / like.value("hbm_bytes_per_s") if like else 1.0
    for key in FOLLOW_MEMORY:
        mine, theirs = machine.quantity(key), like.quantity(key) if like else None
        copied = (
            theirs and mine.source == theirs.source and math.isclose(mine.value, theirs.value, rel_tol=_SAME)
        )
        if mine.value > memory.value * (1 + _SAME) or (copied and not math.isclose(ratio, 1, rel_tol=_SAME)):
            wrong[key] = theirs.value * ratio if copied and theirs else 0.0
    if not wrong:
        return
    rates = [f"[values.{key}] value = {float(f'{rate:.4g}'):g}" for key, rate in wrong.items() if rate]
    hint = "write what they reach of this memory."
    if like and rates:
        hint = f"the same part of it as on {like.name}: {'; '.join(rates)}"
    raise BadInputError(
        f"{where}: {', '.join(f'{key} {machine.quantity(key)}' for key in wrong)}: not what a memory of "
        f"hbm_bytes_per_s {memory} gives.",
        f"correct hbm_bytes_per_s, or the rates of the kernels: {hint}",
    )
