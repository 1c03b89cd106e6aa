"""The keywords of ``perfmodel.project``, checked: a pass, and the configurations to project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer import inputs
from perfmodel.answer.inputs import DEFAULT_RESERVE, local_memory_work
from perfmodel.engine.basis import HostRows, LocalMemory
from perfmodel.engine.grid import project_grid, sized
from perfmodel.engine.row_wise import REDUCTIONS, Configs, Forward
from perfmodel.engine.schemes import AUTO, usual_reduction
from perfmodel.engine.settings import CLUSTER, Setting, load_setting
from perfmodel.errors import BadInputError
from perfmodel.model import capacity
from perfmodel.question.groups import DEFAULT_MACHINE, OBJECTIVES, default_optimizer, trains
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.distributions import UNIFORM, Distribution, parse_distribution
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine, beside_shipped, load_machine
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import TableSet, Workload, payload_element_bytes

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("table_bytes", "gpus", "batch", "table_count", "pooling", "dim", "dtype", "id_bytes")


def _read(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    *,
    tables: str | TableSet | None = None,
    backend: str | None = None,
    clock: str | None = None,
    reserve: float = DEFAULT_RESERVE,
    gpus_per_node: int | None = None,
    scenario: str = CLUSTER,
    local_memory: LocalMemory | tuple[float, ...] | None = None,
    rows: HostRows | str | None = None,
    unpooled: bool = False,
    overrides: Mapping[str, float | str] | None = None,
    calibration: str | Path | None = None,
    reduction: str = AUTO,
    payload: str | None = None,
    distribution: str | Distribution | None = None,
    kernels: str | None = None,
    objective: str = OBJECTIVES[0],
    optimizer: str | None = None,
    setting: Setting | None = None,
    **values: Any,
) -> tuple[Forward, Configs, int]:
    """Check the arguments; returns (model, configurations before memory is checked, GPUs per node)."""
    unknown = [name for name in values if name not in _COLUMNS]
    if unknown:
        raise unknown_name("argument", unknown[0], _COLUMNS)
    way = usual_reduction(reduction).replace("-", "_")
    if way not in REDUCTIONS:
        raise unknown_name("reduction", reduction, [name.replace("_", "-") for name in REDUCTIONS])
    box = read_machine(machine, overrides, setting, calibration)
    if gpus_per_node is not None and not 1 <= gpus_per_node <= box.gpus_per_node:
        raise BadInputError(
            f"gpus_per_node {gpus_per_node} cannot be used.",
            f"{box.name} has 1 to {box.gpus_per_node} in a node.",
        )
    library = backend or box.default_backend
    chosen = setting or load_setting(box, library, clock, scenario, calibration, kernels=kernels)
    memory = None if local_memory is None else LocalMemory.of(local_memory)
    if payload is not None:
        payload_element_bytes(payload)  # raises if unknown
    ids = parse_distribution(distribution) if isinstance(distribution, str) else distribution or UNIFORM
    training = trains(objective)
    if training and memory is not None:
        raise BadInputError("a training step with all rows in one memory is not modelled.", "leave it out.")
    if unpooled and (training or memory):
        raise BadInputError("unpooled rows are modelled in a forward pass of sharded tables.", "pool them.")
    host = HostRows.of(rows) if isinstance(rows, str) else rows
    if host and (training or memory):
        which = "a training step" if training else "one memory for all tables"
        raise BadInputError(f"rows in host memory and {which} cannot be combined.", "leave one of them out.")
    room = host.as_hbm(chosen.machine) if host else chosen.machine
    kept = optimizer or default_optimizer(training=training)
    forward = Forward(
        chosen, gpus_per_node, payload, training, kept, way, memory, ids, rows=host, unpooled=unpooled
    )
    node = gpus_per_node or box.gpus_per_node
    work = _work(workload, tables, values, room, reserve, node, memory, training=training)
    if memory is None:
        usable = float(capacity.usable_bytes(forward.room_bytes, reserve))
        work = replace(work, usable_bytes=usable, reserve=reserve)
    return forward, work, node


def prepare(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> tuple[Forward, Configs]:
    """Check the arguments; returns (model, configurations), ready to be costed."""
    forward, work, node = _read(workload, machine, **options)
    return forward, work if forward.memory is not None else sized(forward, work, node)


def read_machine(
    machine: str | Machine,
    overrides: Mapping[str, float | str] | None,
    setting: Setting | None = None,
    calibration: str | Path | None = None,
) -> Machine:
    """The machine with what-ifs.

    Where shipped measurements are used, values that differ from the shipped machine with this name are
    what-ifs too.
    """
    box = load_machine(machine) if isinstance(machine, str) else machine
    shipped = setting is None and (calibration is None or str(calibration) in list_calibrations())
    return (beside_shipped(box) if shipped else box).with_overrides(overrides or {})


def _work(
    workload: Any,
    tables: str | TableSet | None,
    values: Mapping[str, Any],
    machine: Machine,
    reserve: float,
    node: int,
    memory: LocalMemory | None,
    *,
    training: bool,
) -> Configs:
    """The configurations: keywords override the workload's own values, which override the defaults."""
    given = _given(workload, tables, values)
    tables = given.pop("tables")
    if memory is not None:
        _check_beside_one_gpu(given, tables)
    if tables is not None:
        known = load_tables(tables) if isinstance(tables, str) else tables
        work = inputs.table_set(known, given, machine, reserve, node, training=training)
    else:
        work = inputs.equal_tables(given, machine, reserve, node, training=training)
    return work if memory is None else local_memory_work(work, memory)


def _check_beside_one_gpu(given: dict[str, Any], tables: str | TableSet | None) -> None:
    """Refuse several GPUs with a local memory, which is beside one GPU; remove a redundant ``gpus=1``."""
    if "gpus" not in given:
        return
    gpus = inputs.shaped({"gpus": given["gpus"]})["gpus"]
    if (gpus > 1).any():
        raise BadInputError(
            f"one memory holds the tables whole, and {gpus.max():.0f} GPUs spread them: "
            "the two contradict each other.",
            "leave one of them out; --remote-memory SIZE@RATE,shared:N is read by N GPUs.",
        )
    if tables is not None or given.get("table_bytes") is not None:
        del given["gpus"]


def _given(workload: Any, tables: str | TableSet | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """All given values by name: keywords override the workload's own. ``tables`` may be given either way."""
    if isinstance(workload, TableSet):
        tables, workload = workload, None
    own = {name: value for name, value in values.items() if value is not None}
    return {**workload_values(workload), **own, "tables": tables}


def workload_values(workload: Any) -> dict[str, Any]:
    """The values of a Workload, a mapping or a data frame, by this module's names."""
    if workload is None:
        return {}
    if is_dataclass(workload):
        raw = {field.name: getattr(workload, field.name) for field in fields(workload)}
        raw["table_count"] = raw.pop("tables", None)
    else:
        raw = {str(name): workload[name] for name in workload}
        unknown = [name for name in raw if name not in _COLUMNS]
        if unknown:
            raise unknown_name("workload column", unknown[0], _COLUMNS)
    return {name: value for name, value in raw.items() if value is not None}


def configurations(
    workload: Any, options: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """(values of the configurations, as arrays of one length; options that they share), checked.

    workload, options  as of ``perfmodel.project``.  Limits: tables alone -> no values: one configuration
    """
    tables = options.get("tables")
    own = {name: value for name, value in options.items() if name in _COLUMNS}
    given = _given(workload, tables, own)
    rest = {name: value for name, value in options.items() if name not in _COLUMNS} | {
        "tables": given.pop("tables")
    }
    length = max((array.size for array in inputs.shaped(given).values()), default=1)
    return {name: np.broadcast_to(np.ravel(value), (length,)) for name, value in given.items()}, rest


def project_row_wise(
    workload: Workload | TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    **options: Any,
) -> pd.DataFrame:
    """Each configuration sharded row-wise, all costed together. One row per configuration.

    workload, machine, values  as of ``perfmodel.project``
    options  of ``perfmodel project`` by their names: backend (nccl, nvshmem, best), clock, reserve,
             gpus_per_node, scenario, local_memory (bytes, bytes/s; of a remote memory also its latency in s
             and the GPUs that share it), rows (hbm, host, host-cached:10%), unpooled (True: no bags),
             overrides of machine values, calibration, reduction (how partial bags become bags), payload
             (precision of bags on the wire), distribution (of ids: uniform, zipf:1.05 ...), kernels (fbgemm,
             torch, perfmodel), objective (latency: the forward pass, throughput: a training step), optimizer
             (whose state is kept)

    Columns: the configuration, the columns of ``project_grid`` (s, bytes), evidence, main_evidence, clock.
    Limits: a value that cannot be used, lengths that differ -> BadInputError;  no calibration for the
            machine or the library -> NoCalibrationError
    """
    import pandas as pd

    forward, work = prepare(workload, machine, **options)
    grid = project_grid(forward, work)
    columns: dict[str, Any] = {
        "table_bytes": work.table_bytes,
        "batch": work.batch,
        "id_bytes": work.id_bytes,
    }
    if len(work.groups) == 1:
        only = work.groups[0]
        for name, values in (("table_count", only.count), ("pooling", only.pooling), ("dim", only.dim)):
            columns[name] = np.broadcast_to(values, work.gpus.shape)
    columns |= grid.columns
    words = pd.Index([str(e) for e in Evidence])
    for name in ("evidence", "main_evidence"):
        columns[name] = pd.Categorical.from_codes(columns[name], words, ordered=True)
    names = "+".join(dict.fromkeys(str(c) for c in forward.setting.links.clocks))
    columns["clock"] = pd.Categorical.from_codes(np.zeros(len(work), dtype=np.int8), pd.Index([names]))
    return pd.DataFrame(columns, copy=False)
