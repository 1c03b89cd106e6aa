"""``perfmodel.project`` and ``plan_tables``: answers for programs, as pandas frames."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.question import Question, read_keywords
from perfmodel.answer.ranking import name_gpus
from perfmodel.answer.sweep import MOST_COMPARED, is_compared, sweep_columns
from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.engine.placement import Plan
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import BadInputError, naming_arguments
from perfmodel.plan.outcome import Planned
from perfmodel.plan.plan_files import MadeFor, write_plan
from perfmodel.plan.question import PlanQuestion, plan_quickly
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine
from perfmodel.schema.table_files import load_tables, tables_from_frame
from perfmodel.schema.workload import TableSet
from perfmodel.units import counted, format_time

if TYPE_CHECKING:
    import pandas as pd

STOPPED = "stopped by Ctrl-C"
_TYPED = ("batch", "optimizer", "payload", "kernels", "backend", "clock", "calibration")
"""Options of the question that a plan's file repeats as they are given."""
_OPTIONS = (*_TYPED, "distribution", "id_bytes", "gpus_per_node", "overrides")


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A plan of ``question`` and its cost, as frames. answer  plan, cost and bound (``answer.result``)"""

    question: PlanQuestion
    answer: Planned

    def __repr__(self) -> str:
        """One line: the question and the time."""
        size = f"{counted(len(self.plan.tables), 'table')} on {counted(self.plan.gpus, 'GPU')}"
        stopped = f", {STOPPED}" if self.stopped else ""
        return f"<TablePlan of {size}: {format_time(self.time_s)}{stopped}>"

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the search early: this is the best plan up to then."""
        return self.answer.result.stopped == "interrupt"

    @property
    def plan(self) -> Plan:
        """Which GPUs hold which part of which table."""
        return self.answer.plan

    @property
    def time_s(self) -> float:
        """Time of a pass [s]."""
        return self.answer.costed.time_s

    @property
    def bound_s(self) -> float:
        """Lower bound: no plan of the shardings that were looked at takes less [s]."""
        return self.answer.result.bound_s

    @property
    def tables(self) -> pd.DataFrame:
        """One row a table.

        table, rows [-], dim [-], sharding, exchange, row_parts [-], col_parts [-], hot_rows [-] (on every
        GPU), shard_bytes [bytes of HBM on each GPU with a part], ranks (list; empty: all)
        """
        import pandas as pd

        return pd.DataFrame(self.answer.list_tables())

    @property
    def steps(self) -> pd.DataFrame:
        """One row a step of the pass: the ``steps`` of ``--json``.

        name, label, collective, library, payload_bytes [bytes of the busiest GPU], time_s [s], share [-],
        low_s, high_s, floor_s [s], clock, evidence, limit, mean_bytes [bytes of the mean GPU], rank (the
        busiest), imbalance [-]
        """
        import pandas as pd

        return pd.DataFrame(self.to_dict()["steps"])

    @property
    def gpus(self) -> pd.DataFrame:
        """One row a GPU.

        rank, rows_bytes, optimizer_bytes, buffer_bytes (of exchanges), memory_bytes (all of them) [bytes]
        """
        import pandas as pd

        memory = self.answer.costed.memory
        columns = {"rank": range(self.plan.gpus), "rows_bytes": memory.rows_bytes}
        columns |= {"optimizer_bytes": memory.optimizer_bytes, "buffer_bytes": memory.buffer_bytes}
        return pd.DataFrame({**columns, "memory_bytes": memory.total_bytes})

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of ``perfmodel plan --json`` for this plan, in SI units, without dense layers.

        Its ``changes`` are empty: each is a search of its own, to be asked for by ``plan_tables``.
        """
        calibration = self.question.question.calibration
        file = None if calibration in (None, *list_calibrations()) else calibration
        return {**self.answer.to_dict(), "dense_step": None, "changes": [], "calibration_file": file}

    def write(self, path: str | Path) -> None:
        """Write the plan to a file that ``perfmodel plan --plan`` reads; an existing file is overwritten."""
        write_plan(self.plan, Path(path), self.answer.made_for)


@naming_arguments(
    {
        "--tables": "table_count",
        "--table-size": "table_bytes",
        "--model": "tables",
        "--set id_dtype": "id_bytes",
    }
)
def project(
    workload: TableSet | Mapping[str, Any] | pd.DataFrame | None = None,
    machine: str | Machine = DEFAULT_MACHINE,
    *,
    sharding: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """How much slower is each configuration, and which step takes the time? The answers of ``sweep``.

    workload     a TableSet, or a data frame with its columns; a mapping or data frame of arrays; or None
    machine      a shipped name, the path of a TOML file, or a Machine
    sharding     of all tables, a name of ``perfmodel project --sharding``, or all; None: the fastest that
                 TorchRec runs and that fits, of a table set a plan if it is faster (``planned``)
    table_bytes  size of all tables [bytes];  gpus  ranks [-], None: the fewest whole nodes that hold them
    batch        samples per GPU [-];  table_count  equal tables [-];  pooling  rows per bag [-]
    dim          elements per row [-];  dtype  their type;  id_bytes  size of one id [bytes]
    tables       different tables: a TableSet, its frame, name or file, instead of table_count, pooling, dim
    options      as of ``project_row_wise``

    The numbers are scalars, or arrays of one length (all combinations: ``combine_axes``). Columns:
    configuration (its position, from 0), sharding, and the columns of ``project_row_wise``.
    Limits: a value that cannot be used, lengths that differ, more than ``MOST_COMPARED`` configurations to
            compare shardings of, a sharding that none allows -> BadInputError
    """
    frame = options.get("tables") if workload is None else workload
    if {"rows", "num_embeddings"} & {str(name).casefold() for name in getattr(frame, "columns", ())}:
        workload = _read_table_set(frame)
        options.pop("tables", None)
    question, columns = read_keywords(workload, machine, sharding=sharding, **options)
    question = replace(question, planner=plan_quickly)
    count = len(next(iter(columns.values()))) if columns else 1
    if count > MOST_COMPARED and is_compared(question):
        raise BadInputError(
            f"shardings are compared for at most {MOST_COMPARED} configurations, and these are {count}.",
            f"split them, or give sharding={ROW_WISE!r}.",
        )
    try:
        frame = sweep_columns(question, columns)
    except TooFewGpusError as error:
        point = {name: column[0].item() for name, column in columns.items()}
        raise error if count > 1 else name_gpus(replace(question, **point), error) from None
    if frame.empty:
        raise BadInputError(
            f"none of {count} configurations allows sharding {sharding!r}.",
            "use more GPUs, or another sharding.",
        )
    return frame.rename_axis("configuration").reset_index()


@naming_arguments({"--model": "tables", "--set max_hbm": "max_hbm_bytes"})
def plan_tables(
    tables: pd.DataFrame | TableSet | str | Path,
    gpus: int,
    machine: str | Path | Machine = DEFAULT_MACHINE,
    objective: str = "latency",
    **options: Any,
) -> TablePlan:
    """Which sharding for which table on this number of GPUs, and the time of a pass.

    tables     a frame with the columns of a table file (rows, dim; pooling, dtype, weighted, distribution,
               name, count, features, buckets), a set of tables, the name of a shipped one, or a file
    gpus       how many GPUs hold the tables [-];  machine  a shipped one by name, a file, or a ``Machine``
    objective  latency: the forward pass; throughput: forward and backward, as in training

    Options, by name, with their defaults:

    reserve = None          share of each GPU's memory that tables may not use [-]; None: 0.15, but 0 with
                            max_hbm_bytes
    max_hbm_bytes = None    memory of each GPU that tables may use [bytes]; None: all but the reserve
    only = ()               rules for what tables may be: "row-wise", "user_*=row-wise,unique", a JSON file of
                            TorchRec's ParameterConstraints, or a list of these
    for_torchrec = False    True: only shardings that TorchRec has
    effort = "normal"       how much work the search may do: "quick", "normal", "thorough"; it is counted,
                            not timed: the same question has the same answer

    and those of ``perfmodel.project``: batch (samples of one GPU), distribution (of ids, for tables without
    one of their own), optimizer, payload, id_bytes, kernels, backend, clock, gpus_per_node, overrides (of
    machine values), calibration.

    The answer has frames ``tables``, ``steps`` and ``gpus``; ``help`` of it lists their columns with units.

    Ctrl-C     a search stopped by Ctrl-C gives the best plan so far, with a UserWarning: ``stopped`` is True,
               so that a loop can end; before there is a plan, KeyboardInterrupt
    Limits: values that cannot be used, or tables that do not fit -> BadInputError, as in ``perfmodel plan``
    """
    question = build_question(tables, gpus, machine, objective, **options)
    plan = TablePlan(question, question.plan())
    if plan.stopped:
        size = f"{format_time(plan.time_s)} on {counted(plan.plan.gpus, 'GPU')}"
        warnings.warn(f"{STOPPED}: the best plan so far takes {size}.", UserWarning, stacklevel=3)
    return plan


def build_question(
    tables: pd.DataFrame | TableSet | str | Path,
    gpus: int,
    machine: str | Path | Machine = DEFAULT_MACHINE,
    objective: str = "latency",
    *,
    reserve: float | None = None,
    max_hbm_bytes: float | None = None,
    only: str | Sequence[str] = (),
    for_torchrec: bool = False,
    effort: str = DEFAULT_EFFORT,
    **options: Any,
) -> PlanQuestion:
    """The question of ``plan_tables``, whose arguments these are; ``PlanQuestion.plan`` answers it."""
    if unknown := next((name for name in options if name not in _OPTIONS), None):
        names = inspect.signature(build_question).parameters
        raise unknown_name("argument", unknown, [*list(names)[:-1], *_OPTIONS])
    if reserve is None:
        reserve = 0.15 if max_hbm_bytes is None else 0.0
    _check_number("reserve", reserve, 0.0, 0.999)
    if max_hbm_bytes is not None:
        _check_number("max_hbm_bytes", max_hbm_bytes, 1.0, 1e18)
    question = Question.of(
        _read_table_set(tables),
        machine if isinstance(machine, Machine) else str(machine),
        gpus=gpus,
        objective=objective,
        reserve=float(reserve),
        **options,
    )
    made_for: MadeFor = {"machine": question.machine.name, "objective": objective}
    made_for |= {name: str(options[name]) for name in _TYPED if options.get(name) is not None}
    made_for |= {"distribution": getattr(ids, "name", ids)} if (ids := options.get("distribution")) else {}
    made_for |= {"id_dtype": f"int{8 * options['id_bytes']}"} if options.get("id_bytes") else {}
    made_for |= {"max_hbm": f"{max_hbm_bytes:.15g}B"} if max_hbm_bytes is not None else {}
    made_for["reserve"] = f"{reserve:.15g}"
    values = options.get("overrides") or {}
    settings = [f"{key}={value}" for key, value in values.items()]
    settings += [f"accepted={','.join(values)}"] if values else []  # however unusual they are
    if (per_node := options.get("gpus_per_node")) is not None:
        settings.append(f"gpus_per_node={per_node}")
    made_for |= {"settings": settings} if settings else {}
    return PlanQuestion.build(
        question,
        only=list(map(str, only if isinstance(only, (list, tuple)) else [only])),
        effort=str(effort),
        most_bytes=max_hbm_bytes,
        for_torchrec=for_torchrec,
        made_for=made_for,
    )


def _check_number(name: str, value: object, least: float, most: float) -> None:
    """Raise BadInputError if the argument of this name is no number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise BadInputError(f"{name} {value!r} cannot be used.", f"a number from {least:g} to {most:g}.")


def _read_table_set(tables: Any) -> TableSet:
    """The tables of a set, a name, a file, a frame, or what pandas makes one of; else BadInputError."""
    import pandas as pd

    if isinstance(tables, (TableSet, str, Path)):
        return load_tables(tables)
    try:
        return tables_from_frame(pd.DataFrame(tables))
    except (TypeError, ValueError):
        raise BadInputError(
            f"tables of type {type(tables).__name__} cannot be used.",
            "give a pandas frame, a list of dicts, the name of a shipped set, or a file.",
        ) from None
