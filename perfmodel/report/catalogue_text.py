"""Text of ``perfmodel show machines`` and ``perfmodel show models``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from perfmodel.engine.tables import PlanTables
from perfmodel.report.columns import Column, attributes, columns_record, columns_text
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.machine import KEYS, Machine
from perfmodel.schema.workload import TableSet
from perfmodel.units import counted, format_bytes, format_count, format_number

_MOST_TABLE_ROWS = 40
_MACHINES = (
    Column("machine", lambda machine: machine.name, left=True),
    Column("GPUs/node", lambda machine: str(machine.gpus_per_node), goes=2),
    Column("scale-up domain", lambda m: str(m.nvlink_domain_gpus) if m.nvlink_domain_gpus > 1 else "none"),
    Column("HBM", lambda machine: format_bytes(machine.value("hbm_bytes"), binary=False)),
    Column("HBM rate, datasheet", lambda machine: str(machine.quantity("hbm_bytes_per_s")), goes=1),
    Column("link/GPU", lambda m: str(m.quantity("nvlink_bytes_per_s")) if m.nvlink_domain_gpus > 1 else "-"),
    Column("NIC/GPU", lambda machine: str(machine.quantity("nic_bytes_per_s"))),
)


def machines_text(machines: Sequence[Machine]) -> str:
    """A table of machines, a line for each: what it is, and the four numbers that matter most."""
    titles = facts([(machine.name, machine.title) for machine in machines], indent=1)
    hint = paragraph("perfmodel show machines NAME shows every value with its source.")
    return "\n\n".join([columns_text(_MACHINES, machines), titles, hint])


def machine_text(machine: Machine) -> str:
    """Every value of a machine, with unit, spread of its sources, evidence, source and reason."""
    rows = []
    for key in filter(machine.knows, KEYS):
        quantity = machine.quantity(key)
        spread = "" if quantity.log_sd is None else f"×÷ {format_number(math.exp(quantity.log_sd))}"
        source = f"{quantity.source}. {quantity.why}"
        rows.append([key, str(quantity), spread, str(quantity.evidence), source])
    values = table(["value", "", "spread", "evidence", "source and reason"], rows, left=(0, 3, 4))
    notes = [paragraph(machine.notes, indent=1)] if machine.notes else []
    return "\n\n".join([paragraph(f"{machine.name}   {machine.title}"), *notes, values])


_MODELS = (
    Column("model", lambda model: model.name, left=True),
    Column("tables", lambda model: format_count(len(model.tables))),
    Column("rows", lambda model: format_count(sum(entry.rows for entry in model.tables))),
    Column("bytes", lambda model: format_bytes(PlanTables.of(model).total_bytes, binary=False)),
    Column("look-ups per bag", lambda m: format_number(fmean(entry.pooling for entry in m.tables)), goes=1),
    Column("dim", lambda model: _format_range([entry.dim for entry in model.tables])),
)
_TABLES = (
    Column("table", lambda entry: entry.name, left=True, data=attributes("name")),
    Column("rows", lambda entry: format_count(entry.rows), data=attributes("rows")),
    Column("dim", lambda entry: str(entry.dim), data=attributes("dim")),
    Column("look-ups", lambda entry: format_number(entry.pooling), data=attributes("pooling")),
    Column("dtype", lambda entry: entry.dtype, data=attributes("dtype")),
    Column("weights", lambda entry: "yes" if entry.weighted else "", data=attributes("weighted")),
    Column(
        "features", lambda each: str(each.features) if each.features > 1 else "", data=attributes("features")
    ),
    Column("buckets", lambda each: str(each.buckets or ""), data=attributes("buckets")),
    Column(
        "ids",
        lambda entry: entry.distribution.name if entry.distribution else "",
        data={"distribution": lambda entry: entry.distribution.name if entry.distribution else None},
    ),
)


def models_text(models: Sequence[TableSet]) -> str:
    """A table of sets of tables, a line for each set."""
    hint = paragraph("perfmodel show models NAME shows its source and its tables.")
    return f"{columns_text(_MODELS, models)}\n\n{hint}"


def model_text(model: TableSet) -> str:
    """A set of tables: totals, source, and its largest tables, without columns that are empty."""
    tables = sorted(model.tables, key=lambda entry: -entry.rows * entry.dim)
    size = f"{counted(len(tables), 'table')}, {format_bytes(PlanTables.of(model).total_bytes, binary=False)}"
    head = facts([(model.name, size), ("source", model.source), ("note", model.note)])
    columns = [column for column in _TABLES if column.text and any(map(column.text, tables))]
    smaller = tables[_MOST_TABLE_ROWS:]
    hint = f"\n … and {len(smaller)} smaller tables" if smaller else ""
    return f"{head}\n\n{columns_text(columns, tables[:_MOST_TABLE_ROWS])}{hint}"


def model_record(model: TableSet) -> dict[str, Any]:
    """A set of tables for JSON."""
    return {
        "name": model.name,
        "tables": len(model.tables),
        "total_bytes": int(PlanTables.of(model).total_bytes),
        "source": model.source,
        "note": model.note,
    }


def full_model_record(model: TableSet) -> dict[str, Any]:
    """A set of tables for JSON, with every table."""
    return model_record(model) | {"table_list": [columns_record(_TABLES, entry) for entry in model.tables]}


def _format_range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} – {high}"
