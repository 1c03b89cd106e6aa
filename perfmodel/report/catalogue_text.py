"""Text of ``perfmodel show machines``, ``chips`` and ``models``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from perfmodel.engine.tables import PlanTables
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.terminal import facts, paragraph
from perfmodel.schema.fields import Hardware
from perfmodel.schema.machine import Chip
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
_CHIPS = (
    Column("chip", lambda chip: chip.name, left=True),
    Column("cores", lambda chip: str(chip.cores)),
    Column("local buffer", lambda chip: format_bytes(chip.value("local_bytes"))),
    Column("vector buffer", lambda chip: format_bytes(chip.value("vector_bytes"))),
    Column("its rows", lambda chip: "stay" if chip.buffers.persist else "copied again", left=True, goes=1),
    Column("memory", lambda chip: str(chip.quantity("gm_bytes_per_s"))),
    Column("cache", lambda chip: format_bytes(chip.value("cache_bytes"), binary=False), goes=2),
)
_VALUES = (
    Column("value", lambda item: item[0], left=True),
    Column("", lambda item: str(item[1])),
    Column("spread", lambda item: f"×÷ {format_number(math.exp(item[1].log_sd))}" if item[1].log_sd else ""),
    Column("evidence", lambda item: str(item[1].evidence), left=True),
    Column("source and reason", lambda item: f"{item[1].source}. {item[1].why}", left=True),
)


def _list_hardware(columns: Sequence[Column], items: Sequence[Hardware]) -> str:
    """A table of machines or of chips, a line for each; below it what each is, in words."""
    titles = facts([(item.name, item.title) for item in items], indent=1)
    hint = paragraph(f"perfmodel show {items[0].kind}s NAME shows every value with its source.")
    return "\n\n".join([columns_text(columns, items), titles, hint])


machines_text = partial(_list_hardware, _MACHINES)
chips_text = partial(_list_hardware, _CHIPS)


def hardware_text(hardware: Hardware) -> str:
    """Every value of a machine or chip, with unit, spread of its sources, evidence, source and reason."""
    notes = [paragraph(hardware.notes, indent=1)] if hardware.notes else []
    if isinstance(hardware, Chip):
        words = "stay from batch to batch" if hardware.buffers.persist else "are copied again for every batch"
        notes.append(paragraph(f"Rows of the buffers {words}. {hardware.buffers.source}.", indent=1))
    values = [(key, hardware.values[key]) for key in hardware.keys if key in hardware.values]
    head = paragraph(f"{hardware.name}   {hardware.title}")
    return "\n\n".join([head, *notes, columns_text(_VALUES, values)])


_MODELS = (
    Column("model", lambda model: model.name, left=True),
    Column("tables", lambda model: format_count(len(model.tables))),
    Column("rows", lambda model: format_count(sum(entry.rows for entry in model.tables))),
    Column("bytes", lambda model: format_bytes(PlanTables.of(model).total_bytes, binary=False)),
    Column("look-ups per bag", lambda m: format_number(fmean(entry.pooling for entry in m.tables)), goes=1),
    Column("least dim", lambda model: str(min(entry.dim for entry in model.tables)), goes=2),
    Column("most dim", lambda model: str(max(entry.dim for entry in model.tables))),
)
_TABLES = (
    Column("table", lambda entry: entry.name, left=True),
    Column("rows", lambda entry: format_count(entry.rows)),
    Column("dim", lambda entry: str(entry.dim)),
    Column("look-ups", lambda entry: format_number(entry.pooling)),
    Column("dtype", lambda entry: entry.dtype),
    Column("weights", lambda entry: "yes" if entry.weighted else ""),
    Column("features", lambda entry: str(entry.features) if entry.features > 1 else ""),
    Column("buckets", lambda entry: str(entry.buckets or "")),
    Column("ids", lambda entry: entry.distribution.name if entry.distribution else ""),
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
    smaller = tables[_MOST_TABLE_ROWS:]
    hint = f"\n … and {len(smaller)} smaller tables" if smaller else ""
    return f"{head}\n\n{columns_text(_TABLES, tables[:_MOST_TABLE_ROWS])}{hint}"


def model_record(model: TableSet) -> dict[str, object]:
    """A set of tables for JSON."""
    record = {"name": model.name, "tables": len(model.tables), "source": model.source, "note": model.note}
    return record | {"total_bytes": int(PlanTables.of(model).total_bytes)}


def full_model_record(model: TableSet) -> dict[str, object]:
    """A set of tables for JSON, with every table."""
    tables = [
        vars(table) | {"distribution": table.distribution.name if table.distribution else None}
        for table in model.tables
    ]
    return model_record(model) | {"table_list": tables}
