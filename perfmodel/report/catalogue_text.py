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
    Column("scale-up domain", lambda machine: _domain(machine, str(machine.nvlink_domain_gpus), "none")),
    Column("HBM", lambda machine: format_bytes(machine.value("hbm_bytes"), binary=False)),
    Column("HBM rate, datasheet", lambda machine: str(machine.quantity("hbm_bytes_per_s")), goes=1),
    Column("link/GPU", lambda machine: _domain(machine, str(machine.quantity("nvlink_bytes_per_s")), "-")),
    Column("NIC/GPU", lambda machine: str(machine.quantity("nic_bytes_per_s"))),
)


def _domain(machine: Machine, known: str, without: str) -> str:
    return known if machine.nvlink_domain_gpus > 1 else without


def machines_text(machines: Sequence[Machine]) -> str:
    """A table of machines, a line for each: what it is, and the four numbers that matter most."""
    titles = facts([(machine.name, machine.title) for machine in machines], indent=1)
    more = paragraph("perfmodel show machines NAME shows every value with its source.")
    return "\n\n".join([columns_text(_MACHINES, machines), titles, more])


def machine_text(machine: Machine) -> str:
    """Every value of a machine, with unit, spread of its sources, evidence, source and reason."""
    parts = [paragraph(f"{machine.name}   {machine.title}")]
    if machine.notes:
        parts.append(paragraph(machine.notes, indent=1))
    rows = []
    for key in filter(machine.knows, KEYS):
        quantity = machine.quantity(key)
        spread = "" if quantity.log_sd is None else f"×÷ {format_number(math.exp(quantity.log_sd))}"
        words = f"{quantity.source}. {quantity.why}"
        rows.append([key, str(quantity), spread, str(quantity.evidence), words])
    parts.append(table(["value", "", "spread", "evidence", "source and reason"], rows, left=(0, 3, 4)))
    return "\n\n".join(parts)


_MODELS = (
    Column("model", lambda model: model.name, left=True),
    Column("tables", lambda model: format_count(len(model.tables))),
    Column("rows", lambda model: format_count(sum(each.rows for each in model.tables))),
    Column("bytes", lambda model: format_bytes(PlanTables.of(model).total_bytes, binary=False)),
    Column("look-ups per bag", lambda m: format_number(fmean(each.pooling for each in m.tables)), goes=1),
    Column("dim", lambda model: _range([each.dim for each in model.tables])),
)
_TABLES = (
    Column("table", lambda each: each.name, left=True, data=attributes("name")),
    Column("rows", lambda each: format_count(each.rows), data=attributes("rows")),
    Column("dim", lambda each: str(each.dim), data=attributes("dim")),
    Column("look-ups", lambda each: format_number(each.pooling), data=attributes("pooling")),
    Column("dtype", lambda each: each.dtype, data=attributes("dtype")),
    Column("weights", lambda each: "yes" if each.weighted else "", data=attributes("weighted")),
    Column(
        "features", lambda each: str(each.features) if each.features > 1 else "", data=attributes("features")
    ),
    Column("buckets", lambda each: str(each.buckets or ""), data=attributes("buckets")),
    Column(
        "ids",
        lambda each: each.distribution.name if each.distribution else "",
        data={"distribution": lambda each: each.distribution.name if each.distribution else None},
    ),
)


def models_text(models: Sequence[TableSet]) -> str:
    """A table of sets of tables, a line for each set."""
    more = paragraph("perfmodel show models NAME shows its source and its tables.")
    return f"{columns_text(_MODELS, models)}\n\n{more}"


def model_text(model: TableSet) -> str:
    """A set of tables: totals, source, and its largest tables, without columns that are empty."""
    tables = sorted(model.tables, key=lambda item: -item.rows * item.dim)
    shown = tables[:_MOST_TABLE_ROWS]
    size = format_bytes(PlanTables.of(model).total_bytes, binary=False)
    head = facts(
        [
            (model.name, f"{counted(len(tables), 'table')}, {size}"),
            ("source", model.source),
            ("note", model.note),
        ]
    )
    columns = [each for each in _TABLES if each.text and any(map(each.text, tables))]
    more = f"\n … and {len(tables) - len(shown)} smaller tables" if len(tables) > len(shown) else ""
    return head + "\n\n" + columns_text(columns, shown) + more


def model_record(model: TableSet, *, full: bool) -> dict[str, Any]:
    """A set of tables for JSON. full  whether to list every table"""
    record: dict[str, Any] = {
        "name": model.name,
        "tables": len(model.tables),
        "total_bytes": int(PlanTables.of(model).total_bytes),
        "source": model.source,
        "note": model.note,
    }
    if full:
        record["table_list"] = [columns_record(_TABLES, each) for each in model.tables]
    return record


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} – {high}"
