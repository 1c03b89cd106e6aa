"""Plans that nobody searched: all tables with one sharding, dealt to GPUs in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import SHARDINGS
from perfmodel.engine.tables import PlanTables


def uniform_plan(tables: PlanTables, name: str, gpus: int, domain: int, col_parts: int = 1) -> Plan:
    """Every table with one sharding, dealt to GPUs (or domains) in turn.

    name  of ``SHARDINGS``. Tables with fewer rows than row parts are data-parallel, as in a projection.
    Limits: unknown name -> BadInputError
    """
    placements: list[Placement] = []
    start, again = 0, math.lcm(gpus, max(gpus // domain, 1) * domain)  # turns after which ranks recur
    usual = Scheme.from_name(name, gpus, domain, col_parts=col_parts)
    placed: dict[tuple[Scheme, int], tuple[Placement, int]] = {}
    for rows in tables.rows.tolist():
        scheme = COPY if usual.row_parts > rows else usual
        turn = start % again
        if (scheme, turn) not in placed:
            ranks, step = _deal(name, scheme, turn, gpus, domain)
            placed[scheme, turn] = Placement.of(scheme, ranks), step
        placement, step = placed[scheme, turn]
        placements.append(placement)
        start += step
    return Plan(tables, tuple(placements), gpus, domain)


def _deal(name: str, scheme: Scheme, start: int, gpus: int, domain: int) -> tuple[Sequence[int], int]:
    """(ranks of the shards of the next table, number of ranks by which the dealing moves on).

    start  rank of the table's first shard
    """
    count = scheme.parts
    if scheme.by_domain:
        groups = [(start + j) % (gpus // domain) for j in range(scheme.col_parts)]
        return [d * domain + i for i in range(scheme.row_parts) for d in groups], scheme.col_parts
    if SHARDINGS[name].inside and domain < gpus:
        domains = gpus // domain
        return [start % domains * domain + (start // domains * count + j) % domain for j in range(count)], 1
    return [(start + j) % gpus for j in range(count)], count
