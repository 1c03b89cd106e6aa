"""A mapping of tables to the cores of a chip as plain data: why it is so, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Known
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import DEFAULT_EFFORT, Budget, Work
from perfmodel.errors import BadInputError
from perfmodel.onechip.blocks import CoreBlock, blocks_of, blocks_of_symmetric
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cuts
from perfmodel.onechip.groups import TablesCutAlike, groups_of, groups_of_symmetric
from perfmodel.onechip.in_step import in_any_order, slices_of_pairs
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.packing import MappingState
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.reasons import MappingReason
from perfmodel.onechip.search import search
from perfmodel.onechip.symmetric import Symmetric, best_symmetric, global_memory, symmetric
from perfmodel.onechip.work import Batch, CoreWork
from perfmodel.onechip.work_units import effort_s, ranked
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import ONE_ROW, UNIFORM, Distribution, zipf
from perfmodel.units import counted, format_bytes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

COMPARED = (UNIFORM, zipf(1.05), ONE_ROW)
"""Distributions that a mapping is tried with, besides the one it was made for."""
STOPPED = ("no improvement", "effort", "time-limit", "interrupt")
"""What ends a search."""
MOST_TABLES = 5_000
"""Tables of a mapping: a symmetric one has a piece of each on every core."""


@dataclass(frozen=True)
class Sensed:
    """A batch of other ids: times of the symmetric mappings and of the one found [s], and its limit."""

    ids: Distribution
    global_memory_s: float
    best_symmetric_s: float
    time_s: float
    limit: str


@dataclass(frozen=True, eq=False)
class ChipAnswer:
    """A mapping, why it is so, and what it is compared with.

    global_memory   every core a slice of the batch of every table, all gathered
    best_symmetric  the same with the best way of each table
    in_any_order    the first again, where cores do not wait for each other between tables
    owned_s         a batch where tables have cores of their own, as well as that was found [s]
    owned_bound_s   no mapping where tables have cores of their own is faster [s]
    state, mapping, work  that mapping as it was searched, its pieces, and what they take
    tried           mappings that were looked at
    symmetric       whether best_symmetric is faster, and taken;  batch  of what is taken
    reasons         why tables are cut as they are, by the first of equal ones
    robust          made for the worst of the ids in ``sensed``, not for ``ids``
    effort          that the search had;  stopped  what ended it: one of ``STOPPED``
    done            share of the effort that was spent [-]
    """

    cost: ChipCost
    tables: PlanTables
    ids: Distribution
    cuts: Cuts
    state: MappingState
    owned_bound_s: float
    tried: int
    global_memory: Symmetric
    best_symmetric: Symmetric
    in_any_order: Batch
    mapping: Mapping
    work: CoreWork
    batch: Batch
    owned_s: float
    symmetric: bool
    reasons: Known[int, MappingReason]
    robust: bool
    effort: str
    stopped: str
    done: float
    sensed: tuple[Sensed, ...]

    @property
    def time_s(self) -> float:
        """Of a batch [s]."""
        return self.best_symmetric.time_s if self.symmetric else self.batch.seconds

    @property
    def bound_s(self) -> float | None:
        """No mapping is faster [s]: none that gives tables cores of their own, and no symmetric one.

        Limits: the search ended before all kinds of tables had choices -> None, as none of these count
        """
        return min(self.owned_bound_s, self.best_symmetric.time_s) if self.cuts.complete else None

    @property
    def gap(self) -> float | None:
        """How much could be left to gain, as a share of the time [-].  Limits: no bound -> None"""
        return None if self.bound_s is None else max(0.0, 1 - self.bound_s / self.time_s)

    @property
    def core_s(self) -> Array:
        """[N] time of each core alone [s]."""
        return self.best_symmetric.core_s if self.symmetric else self.batch.core_s

    @cached_property
    def held_bytes(self) -> Array:
        """[N] most bytes of its local buffer that each core uses: all together where they persist."""
        held = np.zeros(self.cost.chip.cores)
        add = np.add if self.cost.chip.buffers.persist else np.maximum
        for block in self.blocks:
            held[block.core] = add(held[block.core], block.held_bytes)
        return held

    @cached_property
    def blocks(self) -> tuple[CoreBlock, ...]:
        """What each core has, by core; of many pieces those of small tables together."""
        if self.symmetric:
            return blocks_of_symmetric(self.cost, self.best_symmetric)
        return blocks_of(self.cost, self.mapping, self.work)

    @cached_property
    def groups(self) -> tuple[TablesCutAlike, ...]:
        """Equal tables that are cut alike, those that take most first."""
        if self.symmetric:
            return groups_of_symmetric(self.cost, self.best_symmetric)
        return groups_of(self.cuts, self.state, self.mapping, self.work, self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """The public schema of ``--json``: SI units; cores as columns, tables as blocks, before and after."""
        chip, table_names = self.cost.chip, self.tables.names
        return {
            "model": self.tables.model,
            "chip": chip.name,
            "cores": chip.cores,
            "overrides": sorted(chip.overrides),
            "distribution": self.ids.name,
            "batch": int(self.cost.batch),
            "tables": len(self.tables),
            "table_bytes": self.tables.total_bytes,
            "robust": self.robust,
            "mapping": "symmetric" if self.symmetric else "asymmetric",
            "time_s": self.time_s,
            "limit": self.limit,
            "bound_s": self.bound_s,
            "gap": None if self.symmetric else self.gap,
            "owned_s": self.owned_s,
            "mappings_tried": self.tried,
            "effort": self.effort,
            "stopped": self.stopped,
            "global_memory_s": self.global_memory.time_s,
            "best_symmetric_s": self.best_symmetric.time_s,
            "any_order_s": self.in_any_order.seconds,
            "speedup": self.global_memory.time_s / self.time_s,
            "speedup_symmetric": self.best_symmetric.time_s / self.time_s,
            "speedup_any_order": self.in_any_order.seconds / self.time_s,
            "shared_s": self.batch.shared_s,
            "core_s": self.core_s.tolist(),
            "buffer_bytes": chip.value("local_bytes"),
            "held_bytes": self.held_bytes.tolist(),
            "preload_s": self.preload_s,
            "groups": [self._record(group) for group in self.groups],
            "sensitivity": [
                {
                    "distribution": each.ids.name,
                    "global_memory_s": each.global_memory_s,
                    "best_symmetric_s": each.best_symmetric_s,
                    "time_s": each.time_s,
                    "limit": each.limit,
                }
                for each in self.sensed
            ],
            "before": [
                {"table": name, "way": "GM", "time_s": float(time_s), "limit": limit}
                for name, time_s, limit in zip(
                    table_names, self.global_memory.table_s, self.global_memory.limits, strict=True
                )
            ],
            "after": self._columns(),
        }

    @property
    def limit(self) -> str:
        """What is busiest: a name of ``cost.LIMITS``."""
        if not self.symmetric:
            return self.batch.limit
        return self.best_symmetric.limit

    @property
    def preload_s(self) -> float:
        """Longest copy of rows that stay, once [s]."""
        if self.symmetric:
            work = slices_of_pairs(self.cost, self.cost.kind_of, self.best_symmetric.way).work
            return float(work.preload_s.sum(axis=0).max())
        return float(np.bincount(self.mapping.core, self.work.preload_s).max(initial=0.0))

    def _record(self, group: TablesCutAlike) -> dict[str, Any]:
        why = group.reason
        return {
            "tables": [self.tables.names[t] for t in group.tables],
            "ways": [way.label for way in group.ways],
            "first_rows": min(group.cut.head, int(self.tables.rows[group.tables[0]])) if group.cut else None,
            "row_parts": group.cut.row_parts if group.cut else None,
            "column_parts": group.cut.col_parts if group.cut else None,
            "batch_slices": group.cut.slices if group.cut else None,
            "cores": None if self.symmetric else group.cores.tolist(),
            "core_s": group.core_s,
            "held_bytes": group.local_bytes,
            "saves": why.saves if why else None,
            "because": why.because if why else None,
            "next_best": (
                {"way": why.other.way.label, "more_s": why.more_s, "estimated": not why.whole}
                if why and why.other
                else None
            ),
        }

    def _columns(self) -> list[dict[str, Any]]:
        """A column for each core, with its blocks."""
        found: list[dict[str, Any]] = [
            {"core": core, "time_s": float(time_s), "held_bytes": float(held), "blocks": []}
            for core, (time_s, held) in enumerate(zip(self.core_s, self.held_bytes, strict=True))
        ]
        for block in self.blocks:
            piece = block.piece
            found[block.core]["blocks"].append(
                {
                    "table": self.name_of(block),
                    "tables": len(block.tables),
                    "way": "+".join(way.label for way in block.ways),
                    "rows": list(piece.rows) if piece else None,
                    "columns": list(piece.columns) if piece else None,
                    "bags": list(piece.bags) if piece else None,
                    "time_s": block.time_s,
                    "held_bytes": block.held_bytes,
                }
            )
        return found

    def name_of(self, block: CoreBlock) -> str:
        """Its table, or how many other ones it is of."""
        if block.piece is not None:
            return self.tables.names[block.tables[0]]
        return counted(len(block.tables), "other table")


def cost_on(chip: Chip, tables: PlanTables, batch: float, ids: Distribution) -> ChipCost:
    """Costs of tables on a chip whose ids all follow one distribution."""
    return ChipCost(chip, tables, batch, popularities([ids] * len(tables), tables.rows))


def answer_on(
    chip: Chip,
    tables: PlanTables,
    batch: int,
    ids: Distribution = UNIFORM,
    *,
    effort: str = DEFAULT_EFFORT,
    time_limit_s: float | None = None,
    seed: int = 0,
    compared: Sequence[Distribution] = COMPARED,
    robust: bool = False,
    stop: Callable[[], bool] | None = None,
) -> ChipAnswer:
    """The best mapping that is found of tables to the cores of a chip, and what it is compared with.

    batch  samples;  ids  which rows they ask for
    effort  how much work the search may do: a name of ``EFFORTS``
    time_limit_s  by the clock, after which it is cut short [s]; None: never
    compared  distributions that the mapping is tried with too
    robust  made for the worst of ``ids`` and ``compared``, not for ``ids`` alone
    stop  whether to end the search now, with the best so far
    Limits: a batch below 1, more than ``MOST_TABLES`` tables, an unknown effort -> BadInputError;
            never slower than the best symmetric mapping (robust: each with its worst ids)
    """
    if len(tables) > MOST_TABLES:
        raise BadInputError(
            f"{tables.model} has {len(tables)} tables: too many for one chip.", f"at most {MOST_TABLES}."
        )
    asked = list(dict.fromkeys([ids, *compared]))
    costs = [cost_on(chip, tables, batch, each) for each in asked]
    cost, fitting, gathered = costs[0], best_symmetric(costs[0]), global_memory(costs[0])
    budget = Budget(Work(), effort_s(effort, cost.count.size), time_limit_s, stop)
    alike = sorted(asked, key=[*compared, ids].index)  # whichever of them the ids are, if robust
    order = [asked.index(each) for each in (alike if robust else asked)]
    searched = search(
        [costs[at] for at in order],
        robust=robust,
        budget=budget,
        seed=seed,
        of=order.index(0),
    )
    mapping = searched.mapping
    work = mapping.work(cost)
    batches = [mapping.batch(cost, work), *(mapping.batch(each) for each in costs[1:])]
    owned = [batch.seconds for batch in batches]
    in_step = [symmetric(each, fitting.way) for each in costs]
    worst = max(each.time_s for each in in_step)
    worse = ranked(max(owned)) > ranked(worst) if robust else ranked(owned[0]) > ranked(fitting.time_s)
    taken = [(each.time_s, each.limit) for each in (in_step if worse else [])]
    taken = taken or [(each.seconds, each.limit) for each in batches]
    return ChipAnswer(
        cost=cost,
        tables=tables,
        ids=ids,
        cuts=searched.cuts,
        state=searched.state,
        owned_bound_s=searched.bound_s,
        tried=searched.tried,
        global_memory=gathered,
        best_symmetric=fitting,
        in_any_order=in_any_order(cost, gathered.way),
        mapping=mapping,
        work=work,
        batch=in_any_order(cost, fitting.way) if worse else batches[0],
        owned_s=owned[0],
        symmetric=worse,
        reasons=searched.reasons,
        robust=robust,
        effort=effort,
        stopped=_ended(budget, searched.ended),
        done=budget.share,
        sensed=tuple(
            Sensed(of, global_memory(each).time_s, still.time_s, *one)
            for of, each, still, one in zip(asked, costs, in_step, taken, strict=True)
        ),
    )


def _ended(budget: Budget, spent: bool) -> str:
    """What ended a search;  spent  whether a stage of it had no effort left."""
    if budget.cut:
        return "interrupt" if budget.stop is not None and budget.stop() else "time-limit"
    return "effort" if spent else "no improvement"


def too_large(chip: Chip, table_bytes: float) -> list[str]:
    """One note where tables do not fit global memory, else none.

    table_bytes  of all tables [bytes]
    Limits: a chip that does not say what its memory holds (``gm_size_bytes`` 0) -> no note
    """
    size = chip.value("gm_size_bytes")
    if not 0 < size < table_bytes:
        return []
    tables, memory = (format_bytes(value, binary=False) for value in (table_bytes, size))
    return [f"Tables of {tables} do not fit the {memory} of {chip.name}: the time is as if they did."]
