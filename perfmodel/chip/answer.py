"""A mapping of tables to the cores of a chip as plain data: why it is so, and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.chip.bound import lower_bound
from perfmodel.chip.cost import ChipCost
from perfmodel.chip.cuts import Cut, Cuts
from perfmodel.chip.ids import popularities
from perfmodel.chip.mapper import Mapped
from perfmodel.chip.mapping import Mapping
from perfmodel.chip.reasons import Reason, reason
from perfmodel.chip.search import search
from perfmodel.chip.symmetric import Symmetric, best_symmetric, global_memory, mapping_of_symmetric, symmetric
from perfmodel.chip.work import Batch, Way, Work
from perfmodel.errors import BadInputError
from perfmodel.plan.tables import PlanTables
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import ONE_ROW, UNIFORM, Distribution, zipf

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

COMPARED = (UNIFORM, zipf(1.05), ONE_ROW)
"""Distributions that a mapping is tried with, besides the one it was made for."""
_MOST_REASONS = 60
MOST_TABLES = 5_000
"""Tables of a mapping: a symmetric one has a piece of each on every core."""


@dataclass(frozen=True, eq=False)
class Group:
    """Equal tables that are cut alike.

    tables  their indices;  cut  None: symmetric;  ways  of their pieces
    core_s  time of all their pieces [s];  local_bytes  of all their pieces;  cores  that have some
    """

    tables: tuple[int, ...]
    cut: Cut | None
    ways: tuple[Way, ...]
    core_s: float
    local_bytes: float
    cores: Ints
    reason: Reason | None


@dataclass(frozen=True)
class Sensed:
    """A batch of other ids: times of the symmetric mappings and of the one found [s], and its limit."""

    ids: Distribution
    global_memory_s: float
    best_symmetric_s: float
    time_s: float
    limit: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """A mapping, why it is so, and what it is compared with.

    global_memory   every core a slice of the batch of every table, all gathered
    best_symmetric  the same with the best way of each table
    in_any_order    the first again, where cores do not wait for each other between tables
    owned_s         a batch where tables have cores of their own, as well as that was found [s]
    mapping, work, batch  the faster one of that and best_symmetric, and its costs;  symmetric  which it is
    robust          made for the worst of the ids in ``sensed``, not for ``ids``
    """

    cost: ChipCost
    tables: PlanTables
    ids: Distribution
    cuts: Cuts
    mapped: Mapped
    global_memory: Symmetric
    best_symmetric: Symmetric
    in_any_order: Batch
    mapping: Mapping
    work: Work
    batch: Batch
    owned_s: float
    symmetric: bool
    robust: bool
    sensed: tuple[Sensed, ...]

    @property
    def time_s(self) -> float:
        """Of a batch [s]."""
        return self.best_symmetric.time_s if self.symmetric else self.batch.seconds

    @property
    def bound_s(self) -> float:
        """No mapping that gives tables cores of their own is faster [s]; a symmetric one, in step, may be."""
        return self.mapped.bound_s

    @property
    def gap(self) -> float:
        """How much could be left to gain, as a share of the time [-]."""
        return max(0.0, 1 - self.bound_s / self.time_s)

    @property
    def core_s(self) -> Array:
        """[N] time of each core alone [s]."""
        return self.best_symmetric.core_s if self.symmetric else self.batch.core_s

    @cached_property
    def held_bytes(self) -> Array:
        """[N] most bytes of its local buffer that each core uses: all together where they persist."""
        held = np.zeros(self.cost.chip.cores)
        if self.cost.chip.buffers.persist:
            np.add.at(held, self.mapping.core, self.work.local_bytes)
        else:
            np.maximum.at(held, self.mapping.core, self.work.local_bytes)
        return held

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Equal tables that are cut alike, those that take most first."""
        return tuple(sorted(self._groups(), key=lambda group: -group.core_s))

    def _groups(self) -> Iterator[Group]:
        table = np.array([piece.table for piece in self.mapping.pieces])
        way = np.array([piece.way for piece in self.mapping.pieces])
        chosen = self.best_symmetric.way if self.symmetric else self.mapped.state.choice
        found: dict[tuple[int, int], list[int]] = {}
        for at, choice in enumerate(chosen):
            found.setdefault((int(self.cuts.choices.kind_of[at]), int(choice)), []).append(at)
        for number, ((_, choice), tables) in enumerate(found.items()):
            mine = np.isin(table, tables)
            told = number < _MOST_REASONS and not self.symmetric
            yield Group(
                tuple(tables),
                None if self.symmetric else self.cuts.cuts[choice],
                tuple(Way(each) for each in np.unique(way[mine])),
                float(self.work.core_s[mine].sum()),
                float(self.work.local_bytes[mine].sum()),
                np.unique(self.mapping.core[mine]),
                reason(self.cuts, self.mapped.state, tables[0]) if told else None,
            )

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
            "mappings_tried": self.mapped.tried,
            "search_s": self.mapped.seconds,
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
            "after": [self._column(core) for core in range(chip.cores)],
        }

    @property
    def limit(self) -> str:
        """What is busiest: a name of ``cost.LIMITS``."""
        if not self.symmetric:
            return self.batch.limit
        return self.best_symmetric.limits[int(np.argmax(self.best_symmetric.table_s))]

    @property
    def preload_s(self) -> float:
        """Longest copy of rows that stay, once [s]."""
        return float(np.bincount(self.mapping.core, self.work.preload_s).max(initial=0.0))

    def _record(self, group: Group) -> dict[str, Any]:
        why = group.reason
        return {
            "tables": [self.tables.names[t] for t in group.tables],
            "ways": [way.label for way in group.ways],
            "first_rows": min(group.cut.head, int(self.tables.rows[group.tables[0]])) if group.cut else None,
            "row_parts": group.cut.row_parts if group.cut else None,
            "column_parts": group.cut.col_parts if group.cut else None,
            "batch_slices": group.cut.slices if group.cut else None,
            "cores": group.cores.tolist(),
            "core_s": group.core_s,
            "held_bytes": group.local_bytes,
            "saves": why.saves if why else None,
            "because": why.because if why else None,
            "next_best": {"way": why.other.way.label, "more_s": why.more_s} if why and why.other else None,
        }

    def _column(self, core: int) -> dict[str, Any]:
        return {
            "core": core,
            "time_s": float(self.core_s[core]),
            "held_bytes": float(self.held_bytes[core]),
            "blocks": [
                {
                    "table": self.tables.names[piece.table],
                    "way": piece.way.label,
                    "rows": list(piece.rows),
                    "columns": list(piece.columns),
                    "bags": list(piece.bags),
                    "time_s": float(self.work.core_s[at]),
                    "held_bytes": float(self.work.local_bytes[at]),
                }
                for at, piece in enumerate(self.mapping.pieces)
                if self.mapping.core[at] == core
            ],
        }


def cost_on(chip: Chip, tables: PlanTables, batch: float, ids: Distribution) -> ChipCost:
    """Costs of tables on a chip whose ids all follow one distribution."""
    return ChipCost(chip, tables, batch, popularities([ids] * len(tables), tables.rows))


def outcome_on(
    chip: Chip,
    tables: PlanTables,
    batch: int,
    ids: Distribution = UNIFORM,
    *,
    time_limit_s: float = 1.0,
    seed: int = 0,
    compared: Sequence[Distribution] = COMPARED,
    robust: bool = False,
) -> Outcome:
    """The best mapping that is found of tables to the cores of a chip, and what it is compared with.

    batch  samples;  ids  which rows they ask for
    time_limit_s  longest search [s];  compared  distributions that the mapping is tried with too
    robust  made for the worst of ``ids`` and ``compared``, not for ``ids`` alone
    Limits: a batch below 1, more than ``MOST_TABLES`` tables -> BadInputError;
            never slower than the best symmetric mapping (robust: each with its worst ids)
    """
    if len(tables) > MOST_TABLES:
        raise BadInputError(
            f"{tables.model} has {len(tables)} tables: too many for one chip.", f"at most {MOST_TABLES}."
        )
    asked = list(dict.fromkeys([ids, *compared]))
    costs = [cost_on(chip, tables, batch, each) for each in asked]
    cost, fitting, gathered = costs[0], best_symmetric(costs[0]), global_memory(costs[0])
    searched = search(costs, robust=robust, time_limit_s=time_limit_s, seed=seed)
    mapped, mapping = searched.mapped, searched.mapping
    owned = [mapping.batch(each).seconds for each in costs]
    if robust:
        mapped = replace(mapped, bound_s=lower_bound(searched.cuts.choices, owned[0]))
    in_step = [symmetric(each, fitting.way).time_s for each in costs]
    worse = max(owned) > max(in_step) if robust else owned[0] > fitting.time_s
    if worse:
        mapping = mapping_of_symmetric(cost, fitting)
    work = mapping.work(cost, lockstep=worse)
    return Outcome(
        cost=cost,
        tables=tables,
        ids=ids,
        cuts=searched.cuts,
        mapped=mapped,
        global_memory=gathered,
        best_symmetric=fitting,
        in_any_order=_without_meeting(cost, gathered),
        mapping=mapping,
        work=work,
        batch=mapping.batch(cost, work),
        owned_s=owned[0],
        symmetric=worse,
        robust=robust,
        sensed=tuple(
            _sensed(each, of, mapping, fitting, worse) for each, of in zip(costs, asked, strict=True)
        ),
    )


def _without_meeting(cost: ChipCost, found: Symmetric) -> Batch:
    """A symmetric mapping whose cores go through the tables in one order, and wait for nobody in between."""
    mapping = mapping_of_symmetric(cost, found)
    return mapping.batch(cost, mapping.work(cost, lockstep=True))


def _sensed(cost: ChipCost, ids: Distribution, mapping: Mapping, fitting: Symmetric, worse: bool) -> Sensed:
    again = symmetric(cost, fitting.way)
    batch = mapping.batch(cost)
    time_s = again.time_s if worse else batch.seconds
    return Sensed(ids, global_memory(cost).time_s, again.time_s, time_s, batch.limit)
