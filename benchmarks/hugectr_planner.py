"""The plan that MLPerf's reference code makes for its tables: HugeCTR's planner, called as submissions do.

Small tables are replicated. The parts of all others are dealt out, parts with the most ids first, each to the
bucket of least cost so far; a bucket is a GPU, or all GPUs of a node. Then the table with the largest parts
has each of them cut in two by rows, and all parts are dealt again. The best deal is the plan.
Source: mlcommons/training_results_v3.1 and v4.0, NVIDIA, dlrm_dcnv2: sharding/planner.py, generate_plan.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.engine.placement import COPY, Placement, Plan, Scheme
from perfmodel.engine.schemes import SHARDINGS, TABLE_ROW_WISE, TABLE_WISE
from perfmodel.engine.tables import PlanTables

DEALS = 20
WITH_STATE = 2
"""Bytes of a table with Adagrad's state, over the bytes of its weights."""


@dataclass(frozen=True, kw_only=True)
class PlannerCall:
    """The arguments with which a submission calls HugeCTR's planner, and the measured rows that use them.

    rounds, gpus, nodes  rows of these MLPerf rounds and GPUs, with at least so many nodes; () or 1: any
    by_node         True: buckets are nodes, and bags are reduced in a node, then sent across; False: buckets
                    are GPUs
    part_ids        cost of a part in ids per sample, besides the ids that it looks up [-]
    copied_bytes    smaller tables are replicated;  capacity_bytes  of a GPU for tables; both with optimizer
                    state
    """

    part_ids: float
    copied_bytes: float
    capacity_bytes: float
    rounds: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    nodes: int = 1
    by_node: bool = False

    def of(self, round_: str, gpu: str, nodes: int) -> bool:
        """Whether a measured row was planned with this call."""
        fits = (not self.rounds or round_ in self.rounds) and (not self.gpus or gpu in self.gpus)
        return fits and nodes >= self.nodes


def holders(
    ids: Sequence[float], sizes: Sequence[float], buckets: int, capacity: float, part_ids: float
) -> list[list[int]]:
    """Buckets that hold the row parts of each table.

        cost of a bucket = sum over its parts of  ids / parts of the table + part_ids         [-]

    ids  look-ups of each table per sample;  sizes  of each table [bytes];  buckets  their number
    capacity  of a bucket [bytes];  part_ids  as in ``PlannerCall``
    Limits: nothing fits -> every table over all buckets;  one bucket -> all in it
    """
    parts = np.ones(len(ids), dtype=np.int64)
    best_cost, best_deal = np.inf, [list(range(buckets)) for _ in ids]
    for _ in range(DEALS):
        order = sorted(range(len(ids)), key=lambda table: -ids[table] / parts[table])
        held, costs, stuck = deal_parts(order, ids, sizes, parts, np.zeros(buckets), capacity, part_ids)
        if stuck is None and costs.max() < best_cost:
            best_cost, best_deal = float(costs.max()), held
        wanted = order if stuck is None else [stuck]
        cut = next((table for table in wanted if 2 * parts[table] <= buckets), None)
        if cut is None:
            break
        parts[cut] *= 2
    return best_deal


def deal_parts(
    order: Sequence[int],
    ids: Sequence[float],
    sizes: Sequence[float],
    parts: np.ndarray,
    costs: np.ndarray,
    capacity: float,
    part_ids: float,
) -> tuple[list[list[int]], np.ndarray, int | None]:
    """Deals the parts of tables to buckets, tables in the given order.

    Returns (buckets of each table, cost of each bucket, the table that does not fit, or None).
    parts  number of each table's parts;  costs  of the buckets before;  others as in ``holders``
    """
    full, held = np.zeros(costs.size), [list[int]() for _ in ids]
    for table in order:
        size = sizes[table] / parts[table]
        for _ in range(parts[table]):
            free = [
                int(bucket)
                for bucket in np.argsort(costs, kind="stable")
                if bucket not in held[table] and full[bucket] + size <= capacity
            ]
            if not free:
                return held, costs, table
            held[table].append(free[0])
            full[free[0]] += size
            costs[free[0]] += ids[table] / parts[table] + part_ids
    return held, costs, None


def plan_of(tables: PlanTables, gpus: int, per_node: int, call: PlannerCall) -> Plan:
    """The plan that HugeCTR's planner makes with these arguments.

    per_node  GPUs per node. A table with fewer rows than GPUs per node is replicated; HugeCTR cuts it
    """
    share = per_node if call.by_node else 1
    sizes = WITH_STATE * tables.rows * tables.dim * tables.element_bytes
    copied = (sizes < call.copied_bytes) | (tables.rows < share)
    cut = np.flatnonzero(~copied)
    capacity = call.capacity_bytes * share - float(sizes[copied].sum())
    held = holders(tables.pooling[cut].tolist(), sizes[cut].tolist(), gpus // share, capacity, call.part_ids)
    kind = SHARDINGS[TABLE_ROW_WISE if call.by_node else TABLE_WISE].exchange
    placements = [Placement.of(COPY)] * len(tables)
    for table, buckets in zip(cut.tolist(), held, strict=True):
        ranks = [bucket * share + place for bucket in sorted(buckets) for place in range(share)]
        placements[table] = Placement.of(Scheme(kind, len(ranks)), ranks)
    return Plan(tables, tuple(placements), gpus, per_node)
