"""A machine: values of one GPU, one node and one fabric, each with its source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from perfmodel import resources, units
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import RING_BACKENDS, Backend, Clock, Evidence
from perfmodel.schema.fields import Name, Quantity, Strict, Text, ValueKey, limits_of, validated
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml

OVERRIDE_SOURCE = "--set"
FOLLOW_MEMORY = ("gather_bytes_per_s", "bucketize_bytes_per_s", "local_sum_bytes_per_s")
"""Kernel rates that are a share of the memory's rate."""
_FOLDER = "machines"
_SUFFIX = ".toml"
_SAME = 1e-9
_NOT_VALUES = ("name", "title", "notes", "defaults", "links", "accepted", "successors")

KEYS: dict[str, ValueKey] = {
    "hbm_bytes": ValueKey("byte", False, "memory of one GPU"),
    "hbm_bytes_per_s": ValueKey("byte/s", False, "datasheet memory bandwidth of one GPU"),
    "l2_bytes": ValueKey("byte", False, "L2 cache of one GPU"),
    "l2_bytes_per_s": ValueKey("byte/s", False, "L2 read bandwidth of one GPU"),
    "sm_count": ValueKey("count", False, "streaming multiprocessors of one GPU"),
    "gpus_per_node": ValueKey("count", False, "GPUs of one node (one operating system)"),
    "nvlink_domain_gpus": ValueKey("count", False, "GPUs that scale-up links (NVLink, xGMI) join; 1 = none"),
    "nvlink_bytes_per_s": ValueKey("byte/s", True, "scale-up links of one GPU, one direction; 0 = none"),
    "pcie_bytes_per_s": ValueKey("byte/s", False, "PCIe of one GPU, one direction, datasheet"),
    "nic_bytes_per_s": ValueKey("byte/s", False, "network line rate per GPU, one direction"),
    "nics_per_node": ValueKey("count", False, "network interfaces of one node"),
    "gather_bytes_per_s": ValueKey("byte/s", False, "memory bandwidth that a gather of long rows reaches"),
    "launch_floor_s": ValueKey("s", False, "time of a gather kernel with almost nothing to do"),
    "sector_bytes": ValueKey("byte", False, "smallest read from memory"),
    "row_access_bytes": ValueKey("byte", False, "what reading a short row takes: a line of the cache"),
    "bag_factor": ValueKey("ratio", False, "a byte of a bag that is written over one that is read"),
    "bucketize_floor_s": ValueKey("s", False, "time to sort almost no ids by owner"),
    "bucketize_bytes_per_s": ValueKey("byte/s", False, "bytes of ids sorted by owner per second"),
    "local_sum_bytes_per_s": ValueKey(
        "byte/s", False, "bytes read and written per second by a sum of buffers"
    ),
    "host_bytes": ValueKey("byte", False, "memory of one node's hosts", False),
    "host_link_bytes_per_s": ValueKey(
        "byte/s", False, "link from a GPU to its host (PCIe, C2C), one direction, datasheet", False
    ),
}
"""Values of a machine; a file gives all that are required."""


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


class Machine(Strict):
    """A validated, immutable machine; ``machine.value("nic_bytes_per_s")`` is in SI units.

    accepted   keys of values that are correct although far from every product on the market
    successors  shipped machines that a buyer would compare with it
    originals  values before overrides, by key
    """

    name: Name
    title: Text
    notes: str = ""
    defaults: Defaults = Defaults()
    links: Links = Links()
    accepted: tuple[str, ...] = ()
    successors: tuple[Name, ...] = ()
    values: Mapping[str, Quantity]
    overrides: frozenset[str] = Field(default=frozenset(), exclude=True)
    originals: Mapping[str, Quantity] = Field(default={}, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [key for key in KEYS if KEYS[key].required and key not in self.values]
        if missing:
            raise ValueError(f"values: missing {', '.join(missing)}")
        for key, quantity in self.values.items():
            if key not in KEYS:
                raise ValueError(f"values.{key}: not a machine value; known: {', '.join(KEYS)}")
            KEYS[key].check(key, quantity)
            if outside := limits_of("machine")[key].refusal(quantity.value, zero=KEYS[key].zero):
                raise ValueError(f"values.{key}.value: {outside}")
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
        found = {
            key: limits_of("machine")[key].doubt(quantity.value)
            for key, quantity in self.values.items()
            if quantity.value and key not in self.accepted
        }
        return {key: text for key, text in found.items() if text}

    def quantity(self, key: str) -> Quantity:
        """The value ``key`` with its source and evidence."""
        if key not in KEYS:
            raise unknown_name("machine value", key, KEYS)
        if key not in self.values:
            raise BadInputError(
                f"machine {self.name} does not say its {key}: {KEYS[key].meaning}.",
                f"give it: --set {key}=…, or in a machine file.",
            )
        return self.values[key]

    def knows(self, *keys: str) -> bool:
        """Whether the machine has all of these values."""
        return all(key in self.values for key in keys)

    def value(self, key: str) -> float:
        """The SI value of ``key``."""
        return self.quantity(key).value

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
        """Keys of overrides that the user set, sorted; a changed file with a shipped name adds none."""
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

    def values_of_node(self, gpus_per_node: int) -> dict[str, float]:
        """The machine values with which only ``gpus_per_node`` GPUs of each node are used."""
        values = {"gpus_per_node": float(gpus_per_node)}
        if self.nvlink_domain_gpus != self.gpus_per_node:  # else the domain follows the node
            values["nvlink_domain_gpus"] = float(self.domain_gpus_of(gpus_per_node))
        return values

    def with_overrides(self, values: Mapping[str, float | str], source: str = OVERRIDE_SOURCE) -> Machine:
        """This machine with some values replaced: evidence ``assumed``, listed in ``overrides``.

        values  SI numbers, or text with a unit (``"100GB/s"``)
        A domain that ends at the node still ends there if only ``gpus_per_node`` is replaced.
        Limits: unknown key, impossible value -> BadInputError; nothing replaced -> this machine
        """
        if not values:
            return self
        given = {key: self._given(key, value, source) for key, value in values.items()}
        replaced: dict[str, Quantity] = {**self.values, **given}
        ends_at_node = 1 < self.nvlink_domain_gpus == self.gpus_per_node
        if ends_at_node and "gpus_per_node" in given and "nvlink_domain_gpus" not in given:
            why = f"the {self.links.scale_up} domain of this machine is one node"
            replaced["nvlink_domain_gpus"] = given["gpus_per_node"].model_copy(update={"why": why})
        changed = [key for key in self.values if replaced[key] is not self.values[key]]
        own = [key for key in changed if key not in self.overrides]  # else an earlier override added it
        before = {**{key: self.values[key] for key in own}, **self.originals}
        fields = {name: getattr(self, name) for name in _NOT_VALUES}
        fields |= {"values": replaced, "overrides": self.overrides | set(given), "originals": before}
        return validated(Machine, fields, source, " ".join(f"{k}={v}" for k, v in values.items()))

    def _given(self, key: str, value: float | str, source: str) -> Quantity:
        if key not in KEYS:
            raise unknown_name("machine value", key, KEYS)
        unit, meaning = KEYS[key].unit, KEYS[key].meaning
        number = units.parse_quantity(value, unit, f"{source} {key}") if isinstance(value, str) else value
        outside = limits_of("machine")[key].refusal(number, zero=KEYS[key].zero) if number else ""
        if number == 0 and not KEYS[key].zero:
            outside = "must be more than 0"
        if outside:
            here = f"; here {self.values[key]}" if key in self.values else ""
            raise BadInputError(f"{source} {key}={value}: it {outside}.", f"{meaning}{here}.")
        return Quantity.what_if(number, unit, source, f"{key}={value}")


def doubted_values(where: str, doubted: Mapping[str, str], how: str) -> BadInputError:
    """The error that asks about values far from every product on the market; ``how`` accepts them."""
    lines = "\n".join(f"{where}{key}: {text}" for key, text in doubted.items())
    return BadInputError(lines, f"check the unit and the number; if it is correct: {how}")


def list_machines() -> list[str]:
    """Names of the shipped machines."""
    return resources.data_names(_FOLDER, _SUFFIX)


def machine_file(name: str) -> str:
    """Text of a shipped machine's file as a template for a user's own, which borrows the shipped collectives.

    Limits: unknown name -> BadInputError listing the known ones;  ``links.like`` -> the shipped machine
    """
    if name not in list_machines():
        raise unknown_name("machine", name, list_machines())
    text = resources.data_path(_FOLDER, name + _SUFFIX).read_text(encoding="utf-8")
    alone = re.sub(r"^like = .*\n", "", text, flags=re.MULTILINE)
    return alone.replace("[links]\n", f'[links]\nlike = "{name}"\n', 1)


def load_machine(name_or_path: str | Path) -> Machine:
    """A shipped machine by name, or a user's own TOML file by path.

    Limits: unknown name -> BadInputError listing the known ones; a bad file -> BadInputError with its field
    """
    text = str(name_or_path)
    if isinstance(name_or_path, str) and (found := _shipped(text)) is not None:
        return found
    if isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX]):
        return read_machine(Path(text))
    raise unknown_name("machine", text, list_machines(), resources.DEFAULT_MACHINE)


@lru_cache(maxsize=32)
def _shipped(name: str) -> Machine | None:
    known = name in list_machines()
    return read_machine(resources.data_path(_FOLDER, name + _SUFFIX)) if known else None


def beside_shipped(machine: Machine) -> Machine:
    """A user's machine with a shipped name, as a change of that shipped machine, whose measurements it uses.

    Different values are in ``overrides``, with their own sources, and the shipped values are its
    ``originals``: the shipped measurements are then rescaled as for ``--set``.
    Limits: a name of its own, or no different value -> the machine itself
    """
    shipped = _shipped(machine.name)
    if shipped is None or machine.originals:
        return machine
    originals = {
        key: quantity
        for key, quantity in shipped.values.items()
        if machine.knows(key) and not math.isclose(quantity.value, machine.value(key), rel_tol=_SAME)
    }
    if not originals:
        return machine
    return machine.model_copy(update={"overrides": frozenset(originals), "originals": originals})


def read_machine(path: Path) -> Machine:
    """A machine from a TOML file, validated."""
    document = read_toml(path, "machine file")
    if "overrides" in document:
        raise BadInputError(
            f"machine file {path} has a field 'overrides'.", "overrides are given with --set."
        )
    machine = validated(Machine, document, "machine file", str(path))
    if doubted := machine.doubts():
        raise doubted_values(
            f"machine file {path}: ", doubted, f"write accepted = {json.dumps([*machine.accepted, *doubted])}"
        )
    if machine.links.like and machine.links.like not in list_machines():
        raise unknown_name(f"machine file {path}: links.like", machine.links.like, list_machines())
    if machine.name not in list_machines():  # else it is rescaled as a change of the shipped machine
        _check_memory_rates(machine, path)
    return machine


def _check_memory_rates(machine: Machine, path: Path) -> None:
    """Refuse kernel rates above the memory's rate.

    Limits: like no shipped machine, with timed or assumed memory rate (the file of a run) -> accepted
    """
    memory = machine.quantity("hbm_bytes_per_s")
    faster = [key for key in FOLLOW_MEMORY if machine.value(key) > memory.value * (1 + _SAME)]
    if not faster or not (memory.evidence is Evidence.DATASHEET or machine.links.like):
        return
    like = _shipped(machine.links.like)
    if like is None:
        hint = "write what the kernels reach of this memory."
    else:
        keys = dict.fromkeys((*faster, *_list_copied(machine, like)))
        rates = "; ".join(f"[values.{key}] value = {_scale_rate(key, machine, like):g}" for key in keys)
        hint = f"the same part of it as on {like.name}: {rates}"
    words = ", ".join(f"{key} {machine.quantity(key)}" for key in faster)
    raise BadInputError(
        f"machine file {path}: {words}: more than the memory gives, hbm_bytes_per_s {memory}.",
        f"correct hbm_bytes_per_s, or lower the rates of the kernels: {hint}",
    )


def _list_copied(machine: Machine, like: Machine) -> list[str]:
    """Kernel rates that equal another machine's, by value and source, although the memory's rate differs.

    Limits: the same memory rate -> none;  a rate with a different value or source -> left out
    """
    own, other = machine.values, like.values
    same = [
        key for key in own if key in other and math.isclose(own[key].value, other[key].value, rel_tol=_SAME)
    ]
    if "hbm_bytes_per_s" in same:
        return []
    return [key for key in FOLLOW_MEMORY if key in same and own[key].source == other[key].source]


def _scale_rate(key: str, machine: Machine, like: Machine) -> float:
    """A kernel rate for a machine: the same share of its memory rate as on ``like`` [bytes/s], 4 digits."""
    rate = like.value(key) / like.value("hbm_bytes_per_s") * machine.value("hbm_bytes_per_s")
    return float(f"{rate:.4g}")


def copied_rates(machine: Machine) -> tuple[str, dict[str, float]]:
    """(machine that a renamed copy is like, rates that it still shares with it).

    Each rate is rescaled to this machine's memory rate [bytes/s]; rates that the user set are left out.
    Limits: a shipped name, a machine like none, the same memory rate -> no rates
    """
    like = _shipped(machine.links.like)
    if like is None or machine.name in list_machines():
        return "", {}
    own = machine.unchanged()
    keys = [key for key in _list_copied(own, like) if key not in machine.overrides]
    return like.name, {key: _scale_rate(key, own, like) for key in keys}
