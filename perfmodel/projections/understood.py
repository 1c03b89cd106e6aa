"""The question of one configuration, as the program understood it: recorded in answers, and repeatable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.passes.basis import LocalMemory
from perfmodel.passes.schemes import AUTO, BY_ROWS, ROW_WISE
from perfmodel.passes.settings import CLUSTER
from perfmodel.projections.costs import Forward
from perfmodel.projections.inputs import DEFAULT_RESERVE, DEFAULTS, Configs
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES, default_optimizer
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.schema.workload import ID_DTYPE_BYTES, PAYLOADS, TableSet
from perfmodel.units import parse_quantity

_OPTIONS = {"batch": "batch", "table_count": "tables", "pooling": "pooling", "dim": "dim"}
_SUFFIXES = {
    "byte": ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB"),
    "byte/s": ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "s": ("s", "ms", "us", "ns"),
    "fraction": ("%",),
}


@dataclass(frozen=True)
class Understood:
    """A question as the program understood it.

    given  values of the workload that the user gave;  model  name of the set of tables
    sharding  name of the sharding that the user chose
    """

    machine: Machine  # with the user's changes
    forward: Forward
    work: Configs
    given: Mapping[str, Any]  # given values of the workload, by the names of ``project``
    model: str | None  # name or path of a table set
    clock: str | None
    reserve: float
    calibration: str | Path | None
    sharding: str | None = None  # None: row-wise, the default of a projection

    @property
    def overrides(self) -> dict[str, float]:
        """Machine values that the user gave."""
        return {key: self.machine.value(key) for key in sorted(self.machine.overrides)}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, counts as integers; None where the tables of a set differ."""
        work, only = self.work, self.work.groups[0] if self.model is None else None
        ids = {size: name for name, size in ID_DTYPE_BYTES.items()}
        setting, memory = self.forward.setting, self.forward.memory
        return {
            "model": self.model,
            "table_bytes": float(work.table_bytes[0]),
            "batch": int(work.batch[0]),
            "tables": int(sum(float(group.count.flat[0]) for group in work.groups)),
            "pooling": float(only.pooling.flat[0]) if only else None,
            "dim": int(only.dim.flat[0]) if only else None,
            "dtype": str(self.given.get("dtype", DEFAULTS["dtype"])) if only else None,
            "id_dtype": ids[int(work.id_bytes[0])],
            "id_bytes": int(work.id_bytes[0]),
            "machine": self.machine.name,
            "overrides": self.overrides,
            "backend": setting.backend,
            "clock": self.clock,
            "scenario": setting.scenario,
            "reduction": self.forward.reduction.replace("_", "-"),
            "payload": self.forward.payload or PAYLOADS[0],
            "distribution": work.ids_words(self.forward.ids),
            "reserve": self.reserve,
            "gpus_per_node": self.forward.gpus_per_node or self.machine.gpus_per_node,
            "local_memory": _memory(memory) if memory and not memory.remote else None,
            "remote_memory": _memory(memory) if memory and memory.remote else None,
            "objective": OBJECTIVES[self.forward.training],
            "optimizer": self.forward.optimizer,
        }

    def arguments(self, machine: str = "", calibration: str = "", backend: str = "") -> list[str]:
        """Command-line options that repeat this question, without options at their defaults.

        machine, calibration  as the user gave them: a name, ``latest``, or the path of a file
        backend               as the user gave it, if it selects one of a run's calibrations
        """
        return [*self._of_the_workload(), *self._of_the_machine(machine, calibration, backend)]

    def _of_the_workload(self) -> Iterator[str]:
        given = self.given
        if self.model is not None:
            yield from ("--model", self.model)
        if "table_bytes" in given:
            yield from ("--table-size", exact_text(float(given["table_bytes"]), "byte"))
        if "gpus" in given:
            yield from ("--gpus", f"{float(given['gpus']):.0f}")
        for name, option in _OPTIONS.items():
            if name in given and given[name] != DEFAULTS[name]:
                yield from (f"--{option}", _plain(float(given[name])))
        if str(given.get("dtype", DEFAULTS["dtype"])) != DEFAULTS["dtype"]:
            yield from ("--dtype", str(given["dtype"]))
        if self.work.id_bytes[0] != DEFAULTS["id_bytes"]:
            yield from ("--id-dtype", "int32")

    def _of_the_machine(self, machine: str, calibration: str, backend: str) -> Iterator[str]:
        setting, forward = self.forward.setting, self.forward
        where = machine or self.machine.name
        beside = self.calibration is not None and where not in list_machines() and not machine
        if where != DEFAULT_MACHINE and not beside:  # otherwise its file lies beside the calibration
            yield from ("--machine", where)
        values = {key: self.machine.value(key) for key in self.machine.what_ifs}
        if forward.gpus_per_node is not None:
            values |= self.machine.values_of_node(forward.gpus_per_node)
        for key, value in values.items():
            yield from ("--set", f"{key}={exact_text(value, self.machine.quantity(key).unit)}")
        if self.calibration is not None:
            yield from ("--calibration", calibration or str(self.calibration))
            yield from ("--backend", backend) if backend else ()
        elif setting.backend != self.machine.default_backend:
            yield from ("--backend", setting.backend)
        if self.clock is not None:
            yield from ("--clock", self.clock)
        if self.reserve != DEFAULT_RESERVE:
            yield from ("--reserve", _plain(self.reserve))
        if setting.scenario != CLUSTER:
            yield from ("--scenario", setting.scenario)
        if forward.reduction != AUTO:
            way = forward.reduction.replace("_", "-")
            yield from ("--sharding", way if way in BY_ROWS else ROW_WISE)
        if forward.payload not in (None, PAYLOADS[0]):
            yield from ("--payload", str(forward.payload))
        if setting.asked_kernels is not None:
            yield from ("--kernels", setting.asked_kernels)
        if self.sharding is not None:
            yield from ("--sharding", self.sharding)
        if forward.ids.skew:
            yield from ("--distribution", f"zipf:{_plain(forward.ids.skew)}")
        elif not forward.ids.uniform:
            yield from ("--distribution", forward.ids.name)
        if forward.memory is not None:
            yield from (str(forward.memory), memory_text(forward.memory))
        if forward.training:
            yield from ("--objective", OBJECTIVES[1])
        if forward.optimizer != default_optimizer(training=forward.training):
            yield from ("--optimizer", forward.optimizer)


def understood(
    machine: Machine,
    forward: Forward,
    work: Configs,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Understood:
    """The question of one configuration, from checked inputs.

    machine  with the user's overrides only;  given  values of the workload;  options  of ``project``
    """
    values = {name: np.asarray(value).reshape(-1)[0] for name, value in given.items() if value is not None}
    tables = values.pop("tables", None)
    model = tables.name if isinstance(tables, TableSet) else None if tables is None else str(tables)
    clock, calibration = options.get("clock"), options.get("calibration")
    reserve = float(options.get("reserve", DEFAULT_RESERVE))
    return Understood(machine, forward, work, values, model, clock, reserve, calibration)


def exact_text(value: float, unit: str) -> str:
    """The shortest text with a unit that parses to exactly this value: ``10TB``, ``100GB/s``, ``7.5us``.

    Limits: a count or ratio -> the plain number
    """
    best, fewest = "", math.inf
    for suffix in _SUFFIXES.get(unit, ()):
        one = parse_quantity(f"1{suffix}", unit)
        text = f"{value / one:.12g}{suffix}"
        digits = len(text.removesuffix(suffix).replace(".", ""))
        if "e" in text.removesuffix(suffix) or digits > fewest or (best and value < one):
            continue
        try:
            if math.isclose(parse_quantity(text, unit), value, rel_tol=1e-12):
                best, fewest = text, digits
        except BadInputError:
            continue
    return best or _plain(value)


def memory_text(memory: LocalMemory) -> str:
    """Text of the option: ``10TB@3TB/s``, or ``10TB@3TB/s,shared:16,latency:3us``."""
    text = f"{exact_text(memory.capacity_bytes, 'byte')}@{exact_text(memory.bytes_per_s, 'byte/s')}"
    more = f",shared:{memory.sharers},latency:{exact_text(memory.latency_s, 's')}"
    return text + more if memory.remote else text


def _memory(memory: LocalMemory) -> dict[str, float]:
    found = {"bytes": memory.capacity_bytes, "bytes_per_s": memory.bytes_per_s}
    return {**found, "latency_s": memory.latency_s, "gpus": memory.sharers} if memory.remote else found


def _plain(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else repr(float(value))
