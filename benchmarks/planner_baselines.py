"""Other planners for benchmarks/planner.py: EMBark's greedy from its description, and random search."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.plan.choices.listing import list_possible_schemes

Array = NDArray[np.float64]

_WORK_RATIO = 4.0  # R_work of EMBark
_ROUNDS = 20
_NARROWEST = 32  # columns are split while a part is wider
_COPY_BYTES = (0.0, 1e5, 1e6, 1e7, 1e8)
"""Tables up to so many bytes are data-parallel: a threshold that EMBark's user types. All are tried."""


@dataclass
class _Shape:
    """How a table is cut for now."""

    rows: int = 1
    columns: int = 1


class Embark:
    """EMBark's greedy (RecSys 2024) for one threshold of data-parallel tables.

    Cost of a bucket: R_work sum h ev / r + R_bw sum ev over its shards, with ev the columns of a shard, h the
    pooling factor, r the row parts, R_bw the bandwidth of memory over that of the network (of NVLink where
    all GPUs are in one domain). Shards go in decreasing order of cost into the cheapest bucket with room;
    then the costliest table is split in two, by columns while they are wider than 32, else by rows; at most
    20 rounds, and the round of least cost is the plan. A table without room is split by rows until it has.
    Partial bags are exchanged and added (its reduction-based cluster).
    """

    def __init__(self, evaluator: Evaluator, limit_bytes: float, copy_bytes: float) -> None:
        self.evaluator, self.limit = evaluator, limit_bytes
        tables, machine = evaluator.tables, evaluator.setting.machine
        network = "nic_bytes_per_s" if evaluator.gpus > evaluator.domain else "nvlink_bytes_per_s"
        self.network_ratio = machine.value("hbm_bytes_per_s") / (machine.value(network) or 1e9)
        size = tables.rows * tables.dim * tables.element_bytes
        self.copied = size <= copy_bytes
        self.shapes = {t: _Shape() for t in np.flatnonzero(~self.copied)}
        copies = evaluator.memories.count_shard(np.flatnonzero(self.copied), 1, 1)
        self.room = limit_bytes - float(np.sum(copies))

    def plan(self) -> Plan | None:
        """The plan of least cost by EMBark's own measure; None where nothing fits."""
        best, best_cost, rounds = None, np.inf, 0
        while rounds <= _ROUNDS:
            ranks, failed, cost = self._place()
            if failed is None:
                rounds += 1
                if cost < best_cost:
                    best, best_cost = self.make_plan(ranks), cost
                split = max(self.shapes, key=self._cost, default=None)
            else:
                split = failed  # a table without room is split until it has some; that is no round
            if split is None or not self._split(split, failed is not None):
                break
        return best

    def _cost(self, t: int) -> float:
        """Of one shard of a table."""
        tables, shape = self.evaluator.tables, self.shapes[t]
        columns = tables.dim[t] / shape.columns
        return float(columns * (_WORK_RATIO * tables.pooling[t] / shape.rows + self.network_ratio))

    def _place(self) -> tuple[dict[int, list[int]], int | None, float]:
        """Ranks of every table's shards, the table that found no room, and the largest cost of a bucket."""
        gpus = self.evaluator.gpus
        cost, room = np.zeros(gpus), np.full(gpus, self.room)
        ranks: dict[int, list[int]] = {}
        for t in sorted(self.shapes, key=self._cost, reverse=True):
            shape = self.shapes[t]
            needs = float(np.sum(self.evaluator.memories.count_shard(t, shape.rows, shape.columns)))
            open_, ranks[t] = room >= needs, []
            for _ in range(shape.rows * shape.columns):
                if not open_.any():
                    return ranks, t, np.inf
                place = int(np.argmin(np.where(open_, cost, np.inf)))
                open_[place] = False  # one shard of a table to a rank
                cost[place] += self._cost(t)
                room[place] -= needs
                ranks[t].append(place)
        return ranks, None, float(cost.max())

    def _split(self, t: int, for_room: bool) -> bool:
        """Split a table in two; False where it cannot be."""
        tables, shape = self.evaluator.tables, self.shapes[t]
        if 2 * shape.rows * shape.columns > self.evaluator.gpus:
            return False
        if tables.dim[t] / shape.columns > _NARROWEST and not for_room:
            shape.columns *= 2
        elif 2 * shape.rows <= tables.rows[t]:
            shape.rows *= 2
        else:
            return False
        return True

    def make_plan(self, ranks: dict[int, list[int]]) -> Plan:
        placements = [
            Placement.of(Scheme(Exchange.DP))
            if self.copied[t]
            else Placement.of(Scheme(Exchange.RB, self.shapes[t].rows, self.shapes[t].columns), ranks[t])
            for t in range(len(self.evaluator.tables))
        ]
        return Plan(self.evaluator.tables, tuple(placements), self.evaluator.gpus, self.evaluator.domain)


def embark(evaluator: Evaluator, limit_bytes: float) -> Plan | None:
    """EMBark's greedy with the threshold that our model likes best; None where nothing fits."""
    plans = (Embark(evaluator, limit_bytes, copies).plan() for copies in _COPY_BYTES)
    return min((plan for plan in plans if plan), key=lambda plan: evaluator.cost(plan).time_s, default=None)


def random_search(evaluator: Evaluator, limit_bytes: float, seconds: float, seed: int = 0) -> Plan | None:
    """The best plan that random schemes gave in this time of the CPU, at least one try; None: none fits.

    Every try uses data-parallel and one to three other kinds of exchange, for all of them at once never win;
    shards go to the ranks that look up least so far, those of most look-ups first.
    """
    random, until = np.random.default_rng(seed), process_time() + seconds
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    shapes = list(zip(tables.rows.astype(int), tables.dim.astype(int), strict=True))
    listed = {shape: list(list_possible_schemes(*shape, gpus, domain)) for shape in set(shapes)}
    best, best_s = None, np.inf
    while True:
        kinds = {Exchange.DP, *random.choice(np.array(Exchange), size=random.integers(1, 4)).tolist()}
        usable = {shape: [s for s in found if s.kind in kinds] for shape, found in listed.items()}
        plan = deal_tables(
            evaluator, [usable[shape][random.integers(len(usable[shape]))] for shape in shapes]
        )
        loads = evaluator.loads(plan)
        time_s = float(evaluator.estimate_times(loads.most))
        if time_s < best_s and evaluator.memory(plan, loads).total_bytes.max() <= limit_bytes:
            best, best_s = plan, time_s
        if process_time() >= until:
            return best


def deal_tables(evaluator: Evaluator, chosen: list[Scheme]) -> Plan:
    """Tables cut so, on the ranks with least to look up."""
    tables, gpus, domain = evaluator.tables, evaluator.gpus, evaluator.domain
    r, c = (np.array([getattr(scheme, side) for scheme in chosen]) for side in ("row_parts", "col_parts"))
    work = tables.pooling / r * tables.dim / c
    full = np.zeros(gpus)
    placements = [Placement.of(scheme) for scheme in chosen]
    for t in np.argsort(-work, kind="stable"):
        scheme = chosen[t]
        if scheme.kind == Exchange.TWO_LEVEL:
            count = scheme.row_parts // domain
            domains = np.argsort(full.reshape(-1, domain).sum(axis=1), kind="stable")[
                : count * scheme.col_parts
            ]
            parts = domains.reshape(scheme.col_parts, count)[:, :, np.newaxis] * domain + np.arange(domain)
            ranks = parts.reshape(scheme.col_parts, -1).T.reshape(-1)
        else:
            ranks = np.argsort(full, kind="stable")[: scheme.parts]
        full[ranks] += work[t]
        placements[t] = Placement.of(scheme, ranks)
    return Plan(tables, tuple(placements), gpus, domain)
