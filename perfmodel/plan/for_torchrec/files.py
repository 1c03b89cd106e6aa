"""Reads plan files of all kinds: this program's own, files for TorchRec, and TorchRec's ShardingPlan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field

from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import OF_TORCHREC, by_domain, copied
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.files import check_tables, plan_from
from perfmodel.schema.fields import validated
from perfmodel.schema.files import shown
from perfmodel.schema.gate import MOST_PLANNED_GPUS, read_json
from perfmodel.schema.torchrec_plan import ShardingType, TorchRecPlan, torchrec_plan_from


def read_any_plan(
    path: Path, tables: PlanTables, gpus: int | None, domain_of: Callable[[int], int]
) -> tuple[Plan, ExchangeSets | None]:
    """Reads a plan of these tables from a file of any kind: ours, for TorchRec, or TorchRec's ShardingPlan.

    Returns (plan, the sets of exchanges that TorchRec runs for it); None for a file of this program.
    gpus  of the job, which a ShardingPlan does not say;  domain_of  GPUs of a scale-up domain, by ``gpus``
    Limits: as ``read_plan``
    """
    document = read_json(path, "plan file")
    if isinstance(document, dict) and document.get("kind") == "torchrec-plan":
        file = torchrec_plan_from(document, str(path))
        plan, types = plan_of(file, tables, str(path)), {e.table: e.sharding_type for e in file.tables}
        return plan, ExchangeSets(tuple(types[name] for name in tables.names))
    if _is_sharding_plan(document):
        if gpus is None:
            raise BadInputError(f"plan file {path} does not say on how many GPUs it is.", "give --gpus.")
        return _plan_of_modules(document, tables, gpus, domain_of(gpus), str(path))
    return plan_from(document, tables, str(path)), None


class _Parameter(BaseModel):
    """TorchRec's ParameterSharding of a table: the fields that say what it costs; others are not read."""

    model_config = ConfigDict(frozen=True, strict=True)
    sharding_type: ShardingType
    compute_kernel: Literal["dense", "fused"]
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=MOST_PLANNED_GPUS)]], FailFast()]


def _is_sharding_plan(document: object) -> bool:
    """Whether it has tables by module, and a sharding type for each table."""
    modules = document.values() if isinstance(document, dict) and document else ()
    entries = [entry for tables in modules if isinstance(tables, dict) for entry in tables.values()]
    return bool(entries) and all(isinstance(entry, dict) and "sharding_type" in entry for entry in entries)


def _plan_of_modules(
    document: Any, tables: PlanTables, gpus: int, domain: int, where: str
) -> tuple[Plan, ExchangeSets]:
    """TorchRec's ShardingPlan as our plan, and its sets of exchanges; tables of all modules together.

    Limits: other tables, rows outside GPU memory, shards that no plan has -> BadInputError
    """
    entries = {name: entry for module in document.values() for name, entry in module.items()}
    if wrong := sorted(entries.keys() ^ set(tables.names)):
        raise BadInputError(
            f"table {shown(wrong[0])} is not both in plan file {where} and in {tables.model}.",
            "give the tables of the plan (--model).",
        )
    parameters = [
        validated(_Parameter, entries[name], "ShardingPlan", f"{where}: {name}") for name in tables.names
    ]
    placements = tuple(
        place_shards(name, entry.sharding_type, entry.ranks, gpus, domain)
        for name, entry in zip(tables.names, parameters, strict=True)
    )
    return Plan(tables, placements, gpus, domain), ExchangeSets(tuple(e.sharding_type for e in parameters))


def plan_of(file: TorchRecPlan, tables: PlanTables, where: str = "given") -> Plan:
    """A plan for TorchRec as one of our plans.

    Limits: other tables, or shards that no plan has (two on one rank) -> BadInputError that names the table
    """
    check_tables(file.tables_fingerprint, file.model, tables, f"plan file {where}")
    entries = {entry.table: entry for entry in file.tables}
    if missing := [name for name in tables.names if name not in entries]:
        raise BadInputError(
            f"plan file {where} does not place table {shown(missing[0])}.",
            "the file may have been cut short.",
        )
    placements = tuple(
        place_shards(name, entries[name].sharding_type, entries[name].ranks, file.gpus, file.domain_gpus)
        for name in tables.names
    )
    return Plan(tables, placements, file.gpus, file.domain_gpus)


def place_shards(name: str, kind: ShardingType, ranks: Sequence[int], gpus: int, domain: int) -> Placement:
    """The placement of a table of TorchRec. Limits: row parts that do not fill domains -> BadInputError"""
    cut = OF_TORCHREC[kind]
    if copied(cut.exchange):
        return Placement.of(COPY)
    if by_domain(cut.exchange):
        columns, rest = divmod(len(ranks), domain)
        if rest or not columns:
            raise BadInputError(
                f"table {shown(name)} is {kind} on {len(ranks)} ranks, in domains of {domain}.",
                "its row parts must fill whole domains: write the plan anew.",
            )
        by_row = np.array(ranks).reshape(columns, domain).T.reshape(-1)
        return Placement.of(Scheme(cut.exchange, domain, columns), by_row)
    return Placement.of(Scheme.from_name(cut.name, gpus, domain, col_parts=len(ranks)), ranks)
