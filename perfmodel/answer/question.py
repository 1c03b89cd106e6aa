"""The question of a projection: tables, machine, library, GPUs, batch and pass, as SI values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfmodel.answer.inputs import DEFAULT_RESERVE, DEFAULTS, shaped
from perfmodel.answer.keywords import prepare, read_machine, workload_values
from perfmodel.engine.basis import HostRows, LocalMemory
from perfmodel.engine.row_wise import Configs, Forward
from perfmodel.engine.schemes import AUTO, BY_ROWS, ROW_WISE, usual_reduction
from perfmodel.engine.settings import CLUSTER, Setting, load_setting
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES, default_optimizer, trains
from perfmodel.schema.distributions import UNIFORM, Distribution, parse_distribution
from perfmodel.schema.machine import Machine, list_machines
from perfmodel.schema.workload import ID_DTYPE_BYTES, PAYLOADS, TableSet
from perfmodel.units import parse_quantity

_WORKLOAD = ("table_bytes", "gpus", "batch", "table_count", "pooling", "dim", "dtype", "id_bytes")
_NOT_OF_A_PASS = ("total", "sharding", "max_latency_s")
_OPTIONS = {"batch": "batch", "table_count": "tables", "pooling": "pooling", "dim": "dim"}

_SUFFIXES_OF = {
    "byte": ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB"),
    "byte/s": ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    "s": ("s", "ms", "us", "ns"),
    "fraction": ("%",),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """The question of one projection, in the names and units of ``perfmodel.project``; None: not given.

    machine    with the user's what-ifs;  backend  its communication library
    tables     a name, a file or a set;  calibration  a file, or the id of a shipped one
    rows       in host memory; None: in HBM;  unpooled  whether each id's row is in the output
    sharding   None: the one that the answer chooses;  total  samples of all GPUs, ``batch`` of each
    max_latency_s  that ``batch`` was chosen for
    setting    the machine with its libraries, if it was loaded before
    """

    machine: Machine
    backend: str
    tables: str | TableSet | None = None
    table_bytes: float | None = None
    gpus: int | None = None
    batch: int | None = None
    table_count: int | None = None
    pooling: float | None = None
    dim: int | None = None
    dtype: str | None = None
    id_bytes: int | None = None
    clock: str | None = None
    calibration: str | None = None
    reserve: float = DEFAULT_RESERVE
    gpus_per_node: int | None = None
    scenario: str = CLUSTER
    payload: str | None = None
    kernels: str | None = None
    distribution: Distribution | None = None
    local_memory: LocalMemory | None = None
    rows: HostRows | None = None
    unpooled: bool = False
    reduction: str = AUTO
    objective: str = OBJECTIVES[0]
    optimizer: str | None = None
    sharding: str | None = None
    total: int | None = None
    max_latency_s: float | None = None
    setting: Setting | None = None

    @staticmethod
    def of(workload: Any = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any) -> Question:
        """The question in the keywords of ``perfmodel.project``.

        Limits: more than one configuration, an unknown keyword -> BadInputError
        """
        given = {name: value for name, value in options.items() if value is not None}
        setting, calibration = given.get("setting"), given.get("calibration")
        box = read_machine(machine, given.pop("overrides", None), setting, calibration)
        given.setdefault("backend", setting.backend if setting else box.default_backend)
        if calibration is not None:
            given["calibration"] = str(calibration)
        if "local_memory" in given:
            given["local_memory"] = LocalMemory.of(given["local_memory"])
        if isinstance(workload, TableSet):
            given["tables"] = workload
        else:
            given = {**workload_values(workload), **given}
        known = {field.name for field in fields(Question)}
        if unknown := {name: value for name, value in given.items() if name not in known}:
            prepare(None, box, **unknown)  # raises with the names that exist
        if isinstance(given.get("rows"), str):
            given["rows"] = HostRows.of(given["rows"])
        if isinstance(given.get("distribution"), str):
            given["distribution"] = parse_distribution(given["distribution"])
        values = {name: given[name] for name in _WORKLOAD if name in given}
        count = max((array.size for array in shaped(values).values()), default=1)
        if count != 1:
            raise BadInputError(
                f"{count} configurations are given.", "a projection in full is of one of them."
            )
        single = {name: np.ravel(np.asarray(value))[0].item() for name, value in values.items()}
        return Question(machine=box, **{**given, **single})

    @property
    def given(self) -> dict[str, Any]:
        """The values of the workload that were given, by name."""
        values = {name: getattr(self, name) for name in _WORKLOAD}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def model(self) -> str | None:
        """Name or path of the set of tables; None: equal tables."""
        return self.tables.name if isinstance(self.tables, TableSet) else self.tables

    @property
    def training(self) -> bool:
        """Whether the pass is forward and backward."""
        return trains(self.objective)

    @property
    def machine_of_rows(self) -> Machine:
        """The machine, as if the memory that holds the rows were its HBM."""
        return self.rows.as_hbm(self.machine) if self.rows else self.machine

    def keywords(self, *without: str) -> dict[str, Any]:
        """The arguments of ``perfmodel.project`` that are given. without  names to leave out"""
        names = (field.name for field in fields(self) if field.name not in (*_NOT_OF_A_PASS, *without))
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def load_setting(self) -> Setting:
        """The machine with the calibration of its library. Limits: no calibration -> NoCalibrationError"""
        options = self.clock, self.scenario, self.calibration
        return self.setting or load_setting(self.machine, self.backend, *options, kernels=self.kernels)

    def to_dict(self, forward: Forward, work: Configs) -> dict[str, Any]:
        """Plain values for JSON, counts as integers; None where the tables of a set differ."""
        only = work.groups[0] if self.model is None else None
        ids = {size: name for name, size in ID_DTYPE_BYTES.items()}
        memory = forward.memory
        return {
            "model": self.model,
            "table_bytes": float(work.table_bytes[0]),
            "batch": int(work.batch[0]),
            **({"max_latency_s": self.max_latency_s} if self.max_latency_s is not None else {}),
            "tables": int(sum(float(group.count.flat[0]) for group in work.groups)),
            "pooling": float(only.pooling.flat[0]) if only else None,
            "dim": int(only.dim.flat[0]) if only else None,
            "dtype": (self.dtype or DEFAULTS["dtype"]) if only else None,
            "id_dtype": ids[int(work.id_bytes[0])],
            "id_bytes": int(work.id_bytes[0]),
            "machine": self.machine.name,
            "overrides": {key: self.machine.value(key) for key in sorted(self.machine.overrides)},
            "backend": forward.setting.backend,
            "clock": self.clock,
            "scenario": forward.setting.scenario,
            "reduction": forward.reduction.replace("_", "-"),
            "payload": forward.payload or PAYLOADS[0],
            "distribution": work.ids_words(forward.ids),
            "reserve": self.reserve,
            "gpus_per_node": forward.gpus_per_node or self.machine.gpus_per_node,
            "local_memory": _memory_record(memory) if memory and not memory.remote else None,
            "remote_memory": _memory_record(memory) if memory and memory.remote else None,
            **({"rows": str(self.rows)} if self.rows else {}),
            **({"unpooled": True} if self.unpooled else {}),
            "objective": OBJECTIVES[forward.training],
            "optimizer": forward.optimizer,
        }

    def arguments(self, machine: str = "", calibration: str = "", backend: str = "") -> list[str]:
        """Command-line options that repeat this question, without options at their defaults.

        machine, calibration  as the user gave them: a name, ``latest``, or the path of a file
        backend               as the user gave it, if it selects one of a run's calibrations
        """
        return [*self._of_the_workload(), *self._of_the_machine(machine, calibration, backend)]

    def _of_the_workload(self) -> Iterator[str]:
        if self.model is not None:
            yield from ("--model", self.model)
        if self.table_bytes is not None:
            yield from ("--table-size", exact_text(self.table_bytes, "byte"))
        if self.gpus is not None:
            yield from ("--gpus", f"{self.gpus:.0f}")
        for name, option in _OPTIONS.items():
            value = getattr(self, name)
            if value is not None and value != DEFAULTS[name]:
                none = "none:" if self.unpooled and name == "pooling" else ""
                yield from (f"--{option}", f"{none}{plain_number(float(value))}")
        if self.unpooled and self.pooling in (None, DEFAULTS["pooling"]):
            yield from ("--pooling", "none")
        if self.dtype not in (None, DEFAULTS["dtype"]):
            yield from ("--dtype", str(self.dtype))
        if self.id_bytes not in (None, DEFAULTS["id_bytes"]):
            yield from ("--id-dtype", "int32")

    def _of_the_machine(self, machine: str, calibration: str, backend: str) -> Iterator[str]:
        where = machine or self.machine.name
        beside = self.calibration is not None and where not in list_machines() and not machine
        if where != DEFAULT_MACHINE and not beside:  # otherwise its file lies beside the calibration
            yield from ("--machine", where)
        values = {key: self.machine.value(key) for key in self.machine.what_ifs}
        if self.gpus_per_node is not None:
            values |= self.machine.values_of_node(self.gpus_per_node)
        for key, value in values.items():
            yield from ("--set", f"{key}={exact_text(value, self.machine.quantity(key).unit)}")
        if self.calibration is not None:
            yield from ("--calibration", calibration or str(self.calibration))
            yield from ("--backend", backend) if backend else ()
        elif self.backend != self.machine.default_backend:
            yield from ("--backend", self.backend)
        yield from self._of_the_pass()

    def _of_the_pass(self) -> Iterator[str]:
        if self.clock is not None:
            yield from ("--clock", self.clock)
        if self.reserve != DEFAULT_RESERVE:
            yield from ("--reserve", plain_number(self.reserve))
        if self.scenario != CLUSTER:
            yield from ("--scenario", self.scenario)
        reduction = usual_reduction(self.reduction)
        if reduction != AUTO:
            yield from ("--sharding", reduction if reduction in BY_ROWS else ROW_WISE)
        if self.payload not in (None, PAYLOADS[0]):
            yield from ("--payload", str(self.payload))
        if self.kernels is not None:
            yield from ("--kernels", self.kernels)
        if self.sharding is not None:
            yield from ("--sharding", self.sharding)
        ids = self.distribution or UNIFORM
        if not ids.uniform:
            yield from ("--distribution", f"zipf:{plain_number(ids.skew)}" if ids.skew else ids.name)
        if self.local_memory is not None:
            yield from (str(self.local_memory), memory_text(self.local_memory))
        if self.rows is not None:
            yield from ("--rows", str(self.rows))
        if self.training:
            yield from ("--objective", OBJECTIVES[1])
        if self.optimizer not in (None, default_optimizer(training=self.training)):
            yield from ("--optimizer", str(self.optimizer))


def _memory_record(memory: LocalMemory) -> dict[str, float]:
    record = {"bytes": memory.capacity_bytes, "bytes_per_s": memory.bytes_per_s}
    more = {"latency_s": memory.latency_s, "gpus": memory.sharers}
    return {**record, **more} if memory.remote else record


def exact_text(value: float, unit: str) -> str:
    """The shortest text with a unit that parses to exactly this value: ``10TB``, ``100GB/s``, ``7.5us``.

    Limits: a count or ratio -> the plain number
    """
    best, fewest = "", math.inf
    for suffix in _SUFFIXES_OF.get(unit, ()):
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
    return best or plain_number(value)


def memory_text(memory: LocalMemory) -> str:
    """Value of the option: ``10TB@3TB/s``, or ``10TB@3TB/s,shared:16,latency:3us``."""
    text = f"{exact_text(memory.capacity_bytes, 'byte')}@{exact_text(memory.bytes_per_s, 'byte/s')}"
    more = f",shared:{memory.sharers},latency:{exact_text(memory.latency_s, 's')}"
    return text + more if memory.remote else text


def plain_number(value: float) -> str:
    """The shortest text of a number that parses to it: ``1024``, ``0.15``."""
    return f"{value:.0f}" if float(value).is_integer() else repr(float(value))
