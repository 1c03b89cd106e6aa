"""A plan as records, one per table, for CSV, frames and pages."""

from __future__ import annotations

from typing import Any

from perfmodel.plan.outcome import Planned


def table_records(answer: Planned) -> list[dict[str, Any]]:
    """One record per table, in the order of the model.

    Keys: table, rows, dim, sharding, exchange, row_parts, col_parts, hot_rows, shard_bytes (in HBM,
    on each GPU that holds a part), ranks (a list; empty: all)
    """
    e = answer.evaluator
    memory = {t: group.memory_bytes for group in answer.groups for t in group.tables}
    shardings = {t: group.sharding for group in answer.groups for t in group.tables}
    return [
        {
            "table": e.tables.names[t],
            "rows": int(e.tables.rows[t]),
            "dim": int(e.tables.dim[t]),
            "sharding": shardings[t],
            "exchange": placement.scheme.kind.name.lower(),
            "row_parts": placement.scheme.row_parts,
            "col_parts": placement.scheme.col_parts,
            "hot_rows": placement.scheme.hot_rows,
            "shard_bytes": round(memory[t]),
            "ranks": placement.ranks.tolist(),
        }
        for t, placement in enumerate(answer.plan.placements)
    ]
