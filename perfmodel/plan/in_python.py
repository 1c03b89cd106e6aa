"""``perfmodel.plan_tables``: the planner for programs, with tables and answers as pandas frames."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.effort import DEFAULT_EFFORT, EFFORTS
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.arguments import check_kinds, check_names, check_per_node, number, seconds, whole
from perfmodel.plan.choices.constraints import parse_rules
from perfmodel.plan.frames import IN_PYTHON, STOPPED, TablePlan, TableScaling
from perfmodel.plan.question import RESERVE, PlanQuestion, costs_of
from perfmodel.plan.scaling import scale
from perfmodel.question.groups import DEFAULT_MACHINE, is_training
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.table_files import load_tables, tables_from_frame
from perfmodel.schema.workload import UNIFORM, Distribution, TableSet, parse_distribution
from perfmodel.units import counted, format_time

if TYPE_CHECKING:
    import pandas as pd


@IN_PYTHON
def plan_tables(
    tables: pd.DataFrame | TableSet | str | Path,
    gpus: int,
    machine: str | Path | Machine = DEFAULT_MACHINE,
    objective: str = "latency",
    **options: Any,
) -> TablePlan:
    """Which sharding for which table on this number of GPUs, and the time of a pass.

    tables     a frame with the columns of a table file (rows, dim; pooling, dtype, weighted, distribution,
               name, count), a set of tables, the name of a shipped one, or a file
    gpus       how many GPUs hold the tables [-];  machine  a shipped one by name, a file, or a ``Machine``
    objective  latency: the forward pass; throughput: forward and backward, as in training

    Options, by name, with their defaults:

    batch = 1024            samples of one GPU [-]
    distribution = "uniform"  of ids, for tables without one of their own: text such as "zipf:1.05"
    reserve = None          share of each GPU's memory, and of the host memory, that tables may not use [-];
                            None: 0.15, but with max_hbm_bytes none of the GPU's
    max_hbm_bytes = None    memory of each GPU that tables may use [bytes]; None: all but the reserve
    optimizer = None        whose state is counted: "none", "sgd", "rowwise-adagrad", "adagrad", "adam";
                            None: "none", and "rowwise-adagrad" for throughput
    payload = None          type of the bags that are sent: "fp32", "fp16", "bf16", "fp8"; None: "fp32"
    id_dtype = "int64"      type of ids: "int32" or "int64"
    kernels = None          look-up kernels: "fbgemm", "torch" or "perfmodel"; None: fbgemm where timed
    only = ()               rules for what tables may be: "row-wise", "user_*=row-wise,unique", a JSON file of
                            TorchRec's ParameterConstraints, or a list of these
    backend = None          library of collectives: "nccl", "nvshmem", "best"; None: that of the machine
    clock = None            how times were measured: "device", "graph", "stream", "eager"
    gpus_per_node = None    GPUs in use of each node [-]; None: all
    overrides = None        machine values to change, in SI units: {"nvlink_bytes_per_s": 900e9}
    calibration = None      a calibration file, or the id of a shipped one; None: the shipped ones
    for_torchrec = False    True: only shardings that TorchRec has
    effort = "normal"       how much work the search may do: "quick", "normal", "thorough"; it is counted,
                            not timed: the same question has the same answer
    time_limit_s = None     time by the clock that cuts the search short [s]; None: none
    seed = 0                of the search [-]

    The answer has frames: ``tables`` (a row a table), ``steps`` (a row a step), ``gpus`` (a row a GPU) and
    ``what_ifs()``; ``help`` of the answer lists their columns with units.

    Ctrl-C     a search stopped by Ctrl-C gives the best plan so far, with a UserWarning: ``stopped`` is True,
               so that a loop can end; before there is a plan, KeyboardInterrupt
    Limits: values that cannot be used, or tables that do not fit -> BadInputError, as in ``perfmodel plan``
    """
    check_names(options, plan_tables, question_of)
    if np.ndim(gpus):
        raise BadInputError(
            f"gpus {gpus!r} cannot be used: a plan is for one number of GPUs.",
            "perfmodel.scale_tables plans on several.",
        )
    question = question_of(tables, gpus, machine, objective, **options)
    found = TablePlan(question, question.answer())
    if found.stopped:
        of = f"{format_time(found.time_s)} on {counted(found.plan.gpus, 'GPU')}"
        warnings.warn(f"{STOPPED}: the best plan so far takes {of}.", UserWarning, stacklevel=3)
    return found


@IN_PYTHON
def scale_tables(
    tables: pd.DataFrame | TableSet | str | Path,
    gpus: Sequence[int],
    machine: str | Path | Machine = DEFAULT_MACHINE,
    objective: str = "latency",
    **options: Any,
) -> TableScaling:
    """Plan the same tables on several numbers of GPUs (``perfmodel plan --gpus 8,16``), one full search each.

    Ctrl-C  ends all searches: further numbers of GPUs have no plan, and ``stopped`` is True, with a
            UserWarning; before there is a plan, KeyboardInterrupt
    tables, machine, objective, options  as of ``plan_tables``;  gpus  a list of numbers of GPUs [-]
    The answer has ``table``, a frame with one row per number of GPUs, and ``knee``, the number of GPUs beyond
    which more GPUs add little.
    Limits: no number of GPUs, or none on which the tables fit -> BadInputError
    """
    check_names(options, scale_tables, question_of)
    if isinstance(gpus, str) or not hasattr(gpus, "__iter__"):
        raise BadInputError(
            f"gpus {gpus!r} cannot be used: a list of whole numbers is needed, such as [8, 16, 64].",
            "perfmodel.plan_tables plans on one number of GPUs.",
        )
    counts = sorted({whole("gpus", each, "a list of whole numbers from 1 on, e.g. [8, 16]") for each in gpus})
    if not counts:
        raise BadInputError("no number of GPUs is given.", "give at least one, e.g. gpus=[8, 16, 64].")
    found = TableScaling(scale(question_of(tables, counts[0], machine, objective, **options), counts))
    if found.stopped:
        of = f"{len(found.found.planned)} of {len(counts)} numbers of GPUs"
        warnings.warn(f"{STOPPED}: {of} have a plan.", UserWarning, stacklevel=3)
    return found


def question_of(
    tables: pd.DataFrame | TableSet | str | Path,
    gpus: int,
    machine: str | Path | Machine = DEFAULT_MACHINE,
    objective: str = "latency",
    *,
    batch: int = 1024,
    distribution: str | Distribution = UNIFORM,
    reserve: float | None = None,
    max_hbm_bytes: float | None = None,
    optimizer: str | None = None,
    payload: str | None = None,
    id_dtype: str = "int64",
    kernels: str | None = None,
    only: str | Sequence[str] = (),
    backend: str | None = None,
    clock: str | None = None,
    gpus_per_node: int | None = None,
    overrides: Mapping[str, float | str] | None = None,
    calibration: str | Path | None = None,
    for_torchrec: bool = False,
    effort: str = DEFAULT_EFFORT,
    time_limit_s: float | None = None,
    seed: int = 0,
) -> PlanQuestion:
    """The question that ``plan_tables`` asks; its options are described there.

    Limits: an unknown objective, a number below 1, values that cannot be combined -> BadInputError
    """
    gpus, batch = whole("gpus", gpus), whole("batch", batch)
    seed = whole("seed", seed, least=0)
    gpus_per_node = None if gpus_per_node is None else whole("gpus_per_node", gpus_per_node)
    if effort not in EFFORTS:
        raise unknown_name("effort", effort, EFFORTS)
    reserve = (
        None if reserve is None else number("reserve", reserve, "a share from 0 to below 1, such as 0.15.")
    )
    if max_hbm_bytes is not None:
        max_hbm_bytes = number("max_hbm_bytes", max_hbm_bytes, "bytes above 0, such as 60e9.")
    texts = {
        "kernels": kernels,
        "backend": backend,
        "clock": clock,
        "optimizer": optimizer,
        "payload": payload,
    }
    check_kinds(objective=objective, id_dtype=id_dtype, **texts)
    check_kinds(machine=machine, distribution=distribution, for_torchrec=for_torchrec)
    check_kinds(only=only, overrides=overrides)
    training = is_training(objective)
    box = machine if isinstance(machine, Machine) else load_machine(str(machine))
    if overrides:
        box = box.with_overrides(dict(overrides))
    check_per_node(gpus_per_node, box)
    if reserve is None:
        reserve = RESERVE if max_hbm_bytes is None else 0.0
    hbm = box.value("hbm_bytes")
    if not 0 <= reserve < 1 or (max_hbm_bytes is not None and not 0 < max_hbm_bytes <= hbm):
        raise BadInputError(
            f"reserve {reserve:g} with max_hbm_bytes {max_hbm_bytes} cannot be used.",
            f"reserve is at least 0 and below 1; max_hbm_bytes above 0 and at most {hbm:.0f}.",
        )
    ids = parse_distribution(distribution) if isinstance(distribution, str) else distribution
    return PlanQuestion(
        tables=PlanTables.of(_table_set(tables), ids),
        machine=box,
        gpus=gpus,
        batch=batch,
        training=training,
        reserve=reserve,
        most_bytes=max_hbm_bytes,
        rules=parse_rules([only] if isinstance(only, str) else only),
        for_torchrec=for_torchrec,
        effort_s=EFFORTS[effort],
        time_limit_s=seconds(time_limit_s),
        seed=seed,
        costs=costs_of(
            {
                **texts,
                "calibration": calibration,
                "gpus_per_node": gpus_per_node,
                "id_dtype": id_dtype,
            },
            training=training,
        ),
    )


def _table_set(tables: pd.DataFrame | TableSet | str | Path) -> TableSet:
    if isinstance(tables, TableSet):
        return tables
    if isinstance(tables, (str, Path)):
        return load_tables(tables)
    if isinstance(tables, Sequence) or not hasattr(tables, "columns"):
        tables = _frame_of(tables)
    return tables_from_frame(tables)


def _frame_of(tables: Any) -> pd.DataFrame:
    """A pandas frame from a list of records, or from a dict of columns.

    Limits: anything else -> BadInputError
    """
    import pandas as pd

    try:
        return pd.DataFrame(tables)
    except (TypeError, ValueError):
        raise BadInputError(
            f"tables of type {type(tables).__name__} cannot be used.",
            "give a pandas frame, a list of dicts, the name of a shipped set, or a file.",
        ) from None
