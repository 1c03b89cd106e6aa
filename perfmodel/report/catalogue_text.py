"""Text of ``perfmodel machines`` and ``perfmodel models``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.machine import Machine
from perfmodel.schema.machine_keys import ALL_KEYS
from perfmodel.schema.workload import TableSet
from perfmodel.units import counted, format_bytes, format_count, format_number

_MOST_TABLE_ROWS = 40


def machines_text(machines: Sequence[Machine]) -> str:
    """One line a machine: what it is and its four numbers that matter most."""
    rows = []
    for machine in machines:
        domain = machine.nvlink_domain_gpus
        rows.append(
            [
                machine.name,
                str(machine.gpus_per_node),
                str(domain) if domain > 1 else "none",
                format_bytes(machine.value("hbm_bytes"), binary=False),
                str(machine.quantity("hbm_bytes_per_s")),
                str(machine.quantity("nvlink_bytes_per_s")) if domain > 1 else "-",
                str(machine.quantity("nic_bytes_per_s")),
            ]
        )
    headers = ["machine", "GPUs/node", "NVLink domain", "HBM", "HBM rate", "NVLink/GPU", "NIC/GPU"]
    titles = facts([(machine.name, machine.title) for machine in machines], indent=1)
    return "\n\n".join(
        [
            table(headers, rows, drop=(4, 1)),
            titles,
            "perfmodel machines NAME shows every value with its source.",
        ]
    )


def machine_text(machine: Machine) -> str:
    """Every value of a machine, with unit, spread of its sources, evidence, source and reason."""
    parts = [paragraph(f"{machine.name}   {machine.title}")]
    if machine.notes:
        parts.append(paragraph(machine.notes, indent=1))
    rows = []
    for key in filter(machine.knows, ALL_KEYS):
        quantity = machine.quantity(key)
        spread = "" if quantity.log_sd is None else f"×÷ {format_number(math.exp(quantity.log_sd))}"
        words = f"{quantity.source}. {quantity.why}"
        rows.append([key, str(quantity), spread, str(quantity.evidence), words])
    parts.append(table(["value", "", "spread", "evidence", "source and reason"], rows, left=(0, 3, 4)))
    return "\n\n".join(parts)


def models_text(models: Sequence[TableSet]) -> str:
    """One line a set of tables."""
    rows = []
    for model in models:
        count = len(model.tables)
        lookups = sum(item.pooling for item in model.tables)
        rows.append(
            [
                model.name,
                format_count(count),
                format_count(sum(item.rows for item in model.tables)),
                format_bytes(model.total_bytes, binary=False),
                format_number(lookups / count),
                _range([item.dim for item in model.tables]),
            ]
        )
    headers = ["model", "tables", "rows", "bytes", "look-ups per bag", "dim"]
    return table(headers, rows, drop=(4,)) + "\n\nperfmodel models NAME shows its source and its tables."


def model_text(model: TableSet) -> str:
    """One set of tables: totals, source, and its largest tables."""
    tables = sorted(model.tables, key=lambda item: -item.rows * item.dim)
    shown = tables[:_MOST_TABLE_ROWS]
    rows = [
        [item.name, format_count(item.rows), str(item.dim), format_number(item.pooling), item.dtype]
        for item in shown
    ]
    size = format_bytes(model.total_bytes, binary=False)
    head = facts(
        [
            (model.name, f"{counted(len(tables), 'table')}, {size}"),
            ("source", model.source),
            ("note", model.note),
        ]
    )
    more = f"\n … and {len(tables) - len(shown)} smaller tables" if len(tables) > len(shown) else ""
    return head + "\n\n" + table(["table", "rows", "dim", "look-ups", "dtype"], rows) + more


def model_record(model: TableSet, *, full: bool) -> dict[str, Any]:
    """One set of tables for JSON; with every table when ``full``."""
    record: dict[str, Any] = {
        "name": model.name,
        "tables": len(model.tables),
        "total_bytes": model.total_bytes,
        "source": model.source,
        "note": model.note,
    }
    if full:
        record["table_list"] = [
            {
                **{"name": t.name, "rows": t.rows, "dim": t.dim, "pooling": t.pooling, "dtype": t.dtype},
                "weighted": t.weighted,
                "distribution": t.distribution.name if t.distribution else None,
            }
            for t in model.tables
        ]
    return record


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} – {high}"
