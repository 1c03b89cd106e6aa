"""Reads plan files of both kinds: this program's own, and files for TorchRec."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import OF_TORCHREC, by_domain, copied
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.files import plan_from, read_document
from perfmodel.schema.files import shown
from perfmodel.schema.torchrec_plan import TorchRecPlan, TorchRecTable, torchrec_plan_from


def read_any_plan(path: Path, tables: PlanTables) -> tuple[Plan, ExchangeSets | None]:
    """Reads a plan of these tables from a file of either kind.

    Returns (plan, the sets of exchanges that TorchRec runs for it); None for a file of this program.
    Limits: as ``read_plan``
    """
    document = read_document(path)
    if isinstance(document, dict) and document.get("kind") == "torchrec-plan":
        file = torchrec_plan_from(document, str(path))
        return plan_of(file, tables, str(path)), ExchangeSets(tuple(_by_name(file, tables, str(path))))
    return plan_from(document, tables, str(path)), None


def plan_of(file: TorchRecPlan, tables: PlanTables, where: str = "given") -> Plan:
    """A plan for TorchRec as one of our plans.

    Limits: other tables, or shards that no plan has (two on one rank) -> BadInputError that names the table
    """
    if file.tables_fingerprint != tables.fingerprint:
        raise BadInputError(
            f"plan file {where} is for the tables of {shown(file.model)}, not for those of {tables.model}.",
            f"use it with {shown(file.model)} as it was, or plan {tables.model} anew.",
        )
    entries = {entry.table: entry for entry in file.tables}
    if missing := [name for name in tables.names if name not in entries]:
        raise BadInputError(
            f"plan file {where} does not place table {shown(missing[0])}.",
            "the file may have been cut short.",
        )
    placements = tuple(_placement(entries[name], file) for name in tables.names)
    return Plan(tables, placements, file.gpus, file.domain_gpus)


def _by_name(file: TorchRecPlan, tables: PlanTables, where: str) -> list[str]:
    """The sharding type of each table, in the order of ``tables``; the file may have another order.

    Limits: as ``plan_of``
    """
    types = {entry.table: entry.sharding_type for entry in file.tables}
    return [types[name] for name in tables.names]


def _placement(entry: TorchRecTable, file: TorchRecPlan) -> Placement:
    kind, ranks, domain = entry.sharding_type, entry.ranks, file.domain_gpus
    cut = OF_TORCHREC[kind]
    if copied(cut.exchange):
        return Placement.of(COPY)
    if by_domain(cut.exchange):
        columns, rest = divmod(len(ranks), domain)
        if rest or not columns:
            raise BadInputError(
                f"table {shown(entry.table)} is {kind} on {len(ranks)} ranks, in domains of {domain}.",
                "its row parts must fill whole domains: write the plan anew.",
            )
        by_row = np.array(ranks).reshape(columns, domain).T.reshape(-1)
        return Placement.of(Scheme(cut.exchange, domain, columns), by_row)
    return Placement.of(Scheme.from_name(cut.name, file.gpus, domain, col_parts=len(ranks)), ranks)
