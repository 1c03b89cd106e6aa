"""A machine: values of one GPU, one node and one fabric, each with its source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from perfmodel import resources, units
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import RING_BACKENDS, Backend, Clock, Evidence
from perfmodel.schema.files import looks_like_path, unknown_name
from perfmodel.schema.gate import read_toml
from perfmodel.schema.limits import limits_of
from perfmodel.schema.machine_keys import KEYS
from perfmodel.schema.machine_shape import check_domain
from perfmodel.schema.memory_rates import MEMORY_RATE, above_memory, copied, scaled
from perfmodel.schema.strict import Strict, validated

OVERRIDE_SOURCE = "--set"
_FOLDER = "machines"
_SUFFIX = ".toml"


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
_NOT_VALUES = ("name", "title", "notes", "defaults", "links", "accepted")


class Quantity(Strict):
    """One value with its unit, source, reason and evidence.

    log_sd  spread among its sources, as the standard deviation of the logarithm; None: not stated
    """

    value: float = Field(ge=0, allow_inf_nan=False, strict=True)
    unit: str
    source: Text
    why: Text
    evidence: Evidence
    log_sd: float | None = Field(default=None, ge=0, le=3, allow_inf_nan=False, strict=True)

    def __str__(self) -> str:
        return units.format_quantity(self.value, self.unit)

    @staticmethod
    def what_if(number: float, unit: str, source: str, typed: str) -> Quantity:
        """A value in place of that of a file. typed  as for ``--set``. Limits: impossible -> BadInputError"""
        known = {"unit": unit, "source": source, "why": "a what-if", "evidence": Evidence.ASSUMED}
        return validated(Quantity, {"value": float(number), **known}, source, typed)


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
    originals  values before overrides, by key
    """

    name: Name
    title: Text
    notes: str = ""
    defaults: Defaults = Defaults()
    links: Links = Links()
    accepted: tuple[str, ...] = ()
    values: Mapping[str, Quantity]
    overrides: frozenset[str] = Field(default=frozenset(), exclude=True)
    originals: Mapping[str, Quantity] = Field(default={}, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [key for key in KEYS if KEYS[key].required and key not in self.values]
        if missing:
            raise ValueError(f"values: missing {', '.join(missing)}")
        for key, quantity in self.values.items():
            _check_quantity(key, quantity)
        if unknown := [key for key in self.accepted if key not in KEYS]:
            raise ValueError(f"accepted: {', '.join(unknown)}: not a machine value")
        values = {key: quantity.value for key, quantity in self.values.items()}
        check_domain(values, self.links.scale_up)
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

    def count(self, key: str) -> int:
        """The value of ``key`` as a whole number."""
        return int(self.value(key))

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
        return self.count("gpus_per_node")

    @property
    def nvlink_domain_gpus(self) -> int:
        """GPUs that reach each other over a scale-up link (NVLink, xGMI); 1 without such a link."""
        return self.count("nvlink_domain_gpus")

    @property
    def nodes_per_domain(self) -> int:
        """Nodes that one scale-up domain spans: 18 compute trays of 4 in an NVL72, else 1."""
        return max(1, self.nvlink_domain_gpus // self.gpus_per_node)

    def domain_gpus_of(self, gpus_per_node: int) -> int:
        """GPUs that reach each other without a network card if ``gpus_per_node`` GPUs of each node are used.

        In a DGX: GPUs of the node. In an NVL72 (18 trays of 4): 18 times ``gpus_per_node``, at most the
        domain.
        """
        return gpus_per_node if gpus_per_node > self.gpus_per_node else gpus_per_node * self.nodes_per_domain

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

    @property
    def default_backend(self) -> str:
        """Library that is used unless the user chooses another."""
        return str(self.defaults.backend)

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
        if "gpus_per_node" in given and "nvlink_domain_gpus" not in given:
            follows = self._domain_following(given["gpus_per_node"])
            replaced |= {"nvlink_domain_gpus": follows} if follows else {}
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

    def _domain_following(self, node: Quantity) -> Quantity | None:
        ends_at_node = 1 < self.nvlink_domain_gpus == self.gpus_per_node
        if not ends_at_node:
            return None
        why = f"the {self.links.scale_up} domain of this machine is one node"
        return node.model_copy(update={"why": why})


def _check_quantity(key: str, quantity: Quantity) -> None:
    if key not in KEYS:
        raise ValueError(f"values.{key}: not a machine value; known: {', '.join(KEYS)}")
    KEYS[key].check(key, quantity)
    outside = limits_of("machine")[key].refusal(quantity.value, zero=KEYS[key].zero)
    if outside:
        raise ValueError(f"values.{key}.value: {outside}")


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
    if isinstance(name_or_path, Path) or looks_like_path(text, [_SUFFIX]):
        return read_machine(Path(text))
    found = _shipped(text)
    if found is None:
        raise unknown_name("machine", text, list_machines(), resources.DEFAULT_MACHINE)
    return found


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


_SAME = 1e-9


def read_machine(path: Path) -> Machine:
    """A machine from a TOML file, validated."""
    document: dict[str, Any] = read_toml(path, "machine file")
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
    stated = machine.quantity(MEMORY_RATE).evidence is Evidence.DATASHEET
    faster = above_memory(machine.values)
    if not faster or not (stated or machine.links.like):
        return
    words = ", ".join(f"{key} {machine.quantity(key)}" for key in faster)
    like = _shipped(machine.links.like)
    if like is None:
        hint = "write what the kernels reach of this memory."
    else:
        rates = "; ".join(
            f"[values.{key}] value = {scaled(key, machine.values, like.values):g}"
            for key in dict.fromkeys((*faster, *copied(machine.values, like.values)))
        )
        hint = f"the same part of it as on {like.name}: {rates}"
    raise BadInputError(
        f"machine file {path}: {words}: more than the memory gives, "
        f"{MEMORY_RATE} {machine.quantity(MEMORY_RATE)}.",
        f"correct {MEMORY_RATE}, or lower the rates of the kernels: {hint}",
    )


def copied_rates(machine: Machine) -> tuple[str, dict[str, float]]:
    """(machine that a renamed copy is like, rates that it still shares with it).

    Each rate is rescaled to this machine's memory rate [bytes/s]; rates that the user set are left out.
    Limits: a shipped name, a machine like none, the same memory rate -> no rates
    """
    like = _shipped(machine.links.like)
    if like is None or machine.name in list_machines():
        return "", {}
    own = machine.unchanged().values
    known = [key for key in copied(own, like.values) if key not in machine.overrides]
    return like.name, {key: scaled(key, own, like.values) for key in known}
