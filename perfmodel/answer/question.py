"""The question of a projection: tables, machine, library, GPUs, batch and pass, as SI values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.inputs import (
    DEFAULT_RESERVE,
    DEFAULTS,
    Room,
    group_equal,
    group_set,
    read_columns,
    share_equally,
)
from perfmodel.engine.basis import HostRows, PassBasis
from perfmodel.engine.grid import Configs, choose_gpus
from perfmodel.engine.schemes import ALL, find_way
from perfmodel.engine.settings import Setting, load_setting
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES, choose_optimizer, is_training
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import (
    ID_DTYPE_BYTES,
    PAYLOADS,
    UNIFORM,
    Distribution,
    TableSet,
    parse_distribution,
)
from perfmodel.units import format_count

Planner = Callable[[Any], Any]
"""Returns the answer of a plan that is faster than the best of a ``Ranking``, or None."""
COLUMNS = ("table_bytes", "gpus", "batch", "table_count", "pooling", "dim", "dtype", "id_bytes")
"""What may differ between the configurations of one question."""
INT32_BYTES, INT32_ROWS = 4, 2**31  # of an id, and the most that it reaches
_OF_COMMANDS = {"total", "max_latency_s", "planner"}
_LOADED = {"setting", "table_set"}
"""Fields of ``Question`` that no argument sets, and those that are set only if they were loaded before."""
_MEANT = {"table_size": "table_bytes", "model": "tables", "id_dtype": "id_bytes", "settings": "overrides"}
"""Arguments by the names of command-line options that are others."""
_TEXTS = ("backend", "distribution", "kernels", "objective", "optimizer", "payload", "rows", "sharding")


def check_ids(rows: float, id_bytes: float | None) -> None:
    """Raise BadInputError if ids of int32 do not reach every row. rows  of the largest table

    id_bytes  of an id; None: the default, int64
    """
    if id_bytes == INT32_BYTES and rows > INT32_ROWS:
        words = f"ids of int32 reach {format_count(INT32_ROWS)} rows, and a table has {rows:.3g}."
        raise BadInputError(words, "leave --set id_dtype out, or give smaller tables.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """The question of one projection, in the names and units of ``perfmodel.project``; None: not given.

    machine    with the user's what-ifs;  backend  its communication library
    tables     a name, a file or a set, which is read once, as ``table_set``
    calibration  a file, or the id of a shipped one
    rows       in host memory; None: in HBM;  unpooled  whether each id's row is in the output
    sharding   a name of ``WAYS``, or ``all``; None: the fastest that TorchRec runs and that fits
    total      samples of all GPUs, ``batch`` of each;  max_latency_s  that ``batch`` was chosen for
    setting    the machine with its libraries, if it was loaded before
    planner    searches a plan of a table set, which leads where it is faster than one sharding for all
    model      name or path of the set of tables; None: equal tables
    training   whether the pass is forward and backward
    """

    machine: Machine
    backend: str
    tables: str | TableSet | None = None
    table_set: TableSet | None = None
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
    payload: str | None = None
    kernels: str | None = None
    distribution: Distribution | None = None
    rows: HostRows | None = None
    unpooled: bool = False
    objective: str = OBJECTIVES[0]
    optimizer: str | None = None
    sharding: str | None = None
    total: int | None = None
    max_latency_s: float | None = None
    setting: Setting | None = None
    planner: Planner | None = None
    model: str | None = field(init=False)
    training: bool = field(init=False)

    def __post_init__(self) -> None:
        name = self.tables.name if isinstance(self.tables, TableSet) else self.tables
        object.__setattr__(self, "model", name)
        object.__setattr__(self, "training", is_training(self.objective))
        node = self.machine.gpus_per_node
        if self.gpus_per_node is not None and not 1 <= self.gpus_per_node <= node:
            raise BadInputError(
                f"gpus_per_node {self.gpus_per_node} cannot be used.",
                f"{self.machine.name} has 1 to {node} in a node.",
            )
        if self.unpooled and self.training:
            raise BadInputError("unpooled rows are modelled in a forward pass.", "pool them.")
        if self.rows and self.training:
            raise BadInputError(
                "rows in host memory and a training step cannot be combined.", "leave one of them out."
            )

    @staticmethod
    def of(workload: object = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any) -> Question:
        """The question in the keywords of ``perfmodel.project``.

        Limits: more than one configuration, an unknown keyword -> BadInputError
        """
        question, columns = read_keywords(workload, machine, **options)
        for name, column in columns.items():
            if column.strides[0] and column.size != 1:
                words = f"{name} has {column.size} values, and one is wanted."
                raise BadInputError(words, "give one value.")
        return replace(question, **{name: column.item() for name, column in columns.items()})

    def prepare(self, columns: Mapping[str, object] | None = None) -> tuple[PassBasis, Configs]:
        """(the pass, its configurations), ready to be costed.

        columns  values of several configurations, beside what the question has: arrays of one length
        Limits: values that cannot be used, or do not fit -> BadInputError;  nothing measured that is like
        the machine -> NoCalibrationError
        """
        basis = PassBasis(
            self.load_setting(),
            self.gpus_per_node,
            self.payload,
            self.training,
            self.optimizer or choose_optimizer(training=self.training),
            rows=self.rows,
            unpooled=self.unpooled,
        )
        node = self.gpus_per_node or self.machine.gpus_per_node
        values = self.given | dict(columns or {})
        tables = load_tables(self.tables) if self.tables and not self.table_set else self.table_set
        room = Room(basis.room_bytes, self.reserve, node, self.training)
        ids = self.distribution or UNIFORM
        work = group_set(tables, values, room, ids) if tables else group_equal(values, room, ids)
        check_ids(float(work.tables.rows.max()), float(work.id_bytes.min()))
        return basis, choose_gpus(basis, replace(work, usable_bytes=room.usable_bytes), node)

    def share_total(self) -> Question:
        """The question with the batch of each GPU, ``total`` divided by the GPUs that the tables need.

        Limits: not divisible -> BadInputError;  fewer GPUs would each have a larger batch, and need more: the
        GPUs are given then
        """
        if self.total is None:
            return self
        # From one GPU up: more GPUs have fewer samples each, hence smaller buffers, until enough are taken.
        gpus, needed = 1, self.gpus or self._count_needed(1)
        while needed > gpus:
            gpus = needed
            needed = self.gpus or self._count_needed(math.ceil(self.total / gpus))
        pinned = gpus if needed < gpus else self.gpus
        return replace(self, batch=share_equally(self.total, gpus), gpus=pinned)

    def _count_needed(self, batch: int) -> int:
        """GPUs that the tables, and the buffers for a batch of this size, need."""
        return int(replace(self, batch=batch).prepare()[1].gpus[0])

    @property
    def given(self) -> dict[str, Any]:
        """The values of the workload that were given, by name."""
        values = {name: getattr(self, name) for name in COLUMNS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def machine_of_rows(self) -> Machine:
        """The machine, as if the memory that holds the rows were its HBM."""
        return self.rows.as_hbm(self.machine) if self.rows else self.machine

    def load_setting(self) -> Setting:
        """The machine with the calibration of its library. Limits: no calibration -> NoCalibrationError"""
        options = self.clock, self.calibration
        return self.setting or load_setting(self.machine, self.backend, *options, kernels=self.kernels)

    def to_dict(self, basis: PassBasis, work: Configs) -> dict[str, object]:
        """Plain values for JSON, counts as integers; None where the tables of a set differ."""
        only = work.tables if self.model is None else None
        ids = {size: name for name, size in ID_DTYPE_BYTES.items()}
        return {
            "model": self.model,
            "table_bytes": float(work.table_bytes[0]),
            "batch": int(work.batch[0]),
            **({"max_latency_s": self.max_latency_s} if self.max_latency_s is not None else {}),
            "tables": int(work.table_count[0]),
            "pooling": float(only.pooling[0, 0]) if only else None,
            "dim": int(only.dim[0, 0]) if only else None,
            "dtype": (self.dtype or DEFAULTS["dtype"]) if only else None,
            "id_dtype": ids[int(work.id_bytes[0])],
            "id_bytes": int(work.id_bytes[0]),
            "machine": self.machine.name,
            "overrides": {key: self.machine.value(key) for key in sorted(self.machine.overrides)},
            "backend": basis.setting.backend,
            "clock": self.clock,
            "payload": basis.payload or PAYLOADS[0],
            "distribution": work.tables.ids_names,
            "reserve": self.reserve,
            "gpus_per_node": basis.gpus_per_node or self.machine.gpus_per_node,
            **({"rows": str(self.rows)} if self.rows else {}),
            **({"unpooled": True} if self.unpooled else {}),
            "objective": OBJECTIVES[basis.training],
            "optimizer": basis.optimizer,
        }


def read_keywords(
    workload: object = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any
) -> tuple[Question, dict[str, NDArray[Any]]]:
    """(the question without the values of ``COLUMNS``, these as arrays of one length), checked.

    workload, options  as of ``perfmodel.project``, in its units
    Limits: tables alone -> no columns: one configuration;  an unknown keyword -> BadInputError
    """
    values = {name: value for name, value in options.items() if value is not None}
    for name in _TEXTS:
        if not isinstance(values.get(name, ""), (str, Distribution, HostRows)):
            raise BadInputError(f"{name} is of type {type(values[name]).__name__}.", "give text.")
    setting = values.get("setting")
    box = load_machine(machine) if isinstance(machine, str) else machine
    if not isinstance(box, Machine):
        raise BadInputError(f"machine is of type {type(box).__name__}.", "give its name, or a Machine.")
    box = box.with_overrides(values.pop("overrides", None) or {})
    values.setdefault("backend", setting.backend if setting else str(box.defaults.backend))
    if isinstance(workload, TableSet):
        values["tables"] = workload
    else:
        values = _read_workload(workload) | values
    names = {field.name for field in fields(Question) if field.init} - _OF_COMMANDS
    if unknown := next((name for name in values if name not in names), None):
        arguments = [*(names - _LOADED), "overrides"]
        raise unknown_name("argument", unknown, arguments, meant=_MEANT.get(unknown, ""))
    columns = {name: values.pop(name) for name in COLUMNS if name in values}
    read_columns(columns)  # raises if a value cannot be used
    readers: dict[str, Callable[[Any], Any]] = {
        "calibration": str,
        "sharding": read_sharding,
        "rows": lambda text: HostRows.of(text) if isinstance(text, str) else text,
        "distribution": lambda ids: parse_distribution(ids) if isinstance(ids, str) else ids,
        "objective": lambda name: OBJECTIVES[is_training(name)],
    }
    values |= {name: read(values[name]) for name, read in readers.items() if name in values}
    table_set = load_tables(values["tables"]) if "tables" in values else None
    question = Question(machine=box, **{"table_set": table_set, **values})
    arrays = np.broadcast_arrays(*map(np.ravel, columns.values()))
    return question, dict(zip(columns, arrays, strict=True))


def _read_workload(workload: Any) -> dict[str, Any]:
    """The values of a mapping or a data frame, by the names of ``COLUMNS``."""
    if not isinstance(workload, Mapping) and not hasattr(workload, "columns") and workload is not None:
        kind = f"the workload is of type {type(workload).__name__}."
        raise BadInputError(kind, "give tables=FILE, a TableSet, a mapping of columns, or a data frame.")
    raw = {} if workload is None else {str(name): workload[name] for name in workload}
    if unknown := next((name for name in raw if name not in COLUMNS), None):
        raise unknown_name("workload column", unknown, COLUMNS)
    return {name: value for name, value in raw.items() if value is not None}


def read_sharding(text: str | None) -> str | None:
    """The name of ``WAYS``, or ``all``, that a text means; None: none given. Limits: unknown -> error"""
    if text is None:
        return None
    return ALL if text.strip().lower() == ALL else find_way(text)
