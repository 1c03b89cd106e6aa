"""The mapping of tables to the cores of a chip as plain data, beside simpler mappings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import DEFAULT_EFFORT, Budget, Work
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.groups import TablesCutAlike, groups_of
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.search import Searched, search
from perfmodel.onechip.symmetric import Symmetric, best_symmetric, global_memory
from perfmodel.onechip.work import CoreWork, Way
from perfmodel.onechip.work_units import effort_s, ranked
from perfmodel.schema.chip import Chip
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import format_bytes

Array = NDArray[np.float64]

MOST_TABLES = 5_000
"""Most tables of a mapping: a symmetric mapping has a piece of each on every core."""


@dataclass(frozen=True, eq=False)
class ChipAnswer:
    """A mapping of tables to cores, beside simpler mappings.

    global_memory   every core has a slice of the batch of every table, and gathers all rows from global
                    memory
    best_symmetric  the same slices, with the best way to look up each table
    any_order_s     a batch of ``best_symmetric`` if cores do not wait for each other between tables [s]
    searched        the best mapping of the search, in which tables have cores of their own
    symmetric       whether ``best_symmetric`` is faster than ``searched``, and so chosen
    mapping, work   the pieces of the chosen mapping, and their work
    shared_s        time of each shared resource, by name [s];  limit  the busiest resource
    effort          of the search, by name;  stopped  why it ended: ``no improvement``, ``effort``,
                    ``time-limit`` or ``interrupt``;  done  share of the effort that was spent [-]
    """

    cost: ChipCost
    tables: PlanTables
    ids: Distribution
    global_memory: Symmetric
    best_symmetric: Symmetric
    any_order_s: float
    searched: Searched
    mapping: Mapping
    work: CoreWork
    shared_s: dict[str, float]
    limit: str
    symmetric: bool
    effort: str
    stopped: str
    done: float

    @property
    def time_s(self) -> float:
        """Time of a batch [s]."""
        return self.best_symmetric.time_s if self.symmetric else self.searched.seconds

    @property
    def bound_s(self) -> float:
        """Lower bound on the time of all mappings, symmetric or with cores of their own for tables [s]."""
        return min(self.searched.bound_s, self.best_symmetric.time_s)

    @property
    def gap(self) -> float:
        """Time above the bound, as a share of the time [-]."""
        return max(0.0, 1 - self.bound_s / self.time_s)

    @cached_property
    def core_s(self) -> Array:
        """Time that each core is busy if nothing shared slows it [s]."""
        return np.bincount(self.mapping.core, self.work.core_s, self.cost.chip.cores).astype(np.float64)

    @cached_property
    def held_bytes(self) -> Array:
        """Most bytes of its local buffer that each core uses at a time.

        If rows stay there between batches, the bytes of all its pieces are added.
        """
        held = np.zeros(self.cost.chip.cores)
        add = np.add if self.cost.chip.buffers.persist else np.maximum
        add.at(held, self.mapping.core, self.work.local_bytes)
        return held

    @property
    def preload_s(self) -> float:
        """Time to copy the rows that stay in local buffers, once, on the core that copies most [s]."""
        return float(np.bincount(self.mapping.core, self.work.preload_s).max(initial=0.0))

    @cached_property
    def groups(self) -> tuple[TablesCutAlike, ...]:
        """Equal tables with equal cuts, largest time first."""
        return groups_of(self.cost, self.mapping, self.work, None if self.symmetric else self.searched)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values in SI units, as in ``--json``: cores, and tables before and after."""
        chip, names = self.cost.chip, self.tables.names
        return {
            "model": self.tables.model,
            "chip": chip.name,
            "cores": chip.cores,
            "overrides": sorted(chip.overrides),
            "distribution": self.ids.name,
            "batch": int(self.cost.batch),
            "tables": len(self.tables),
            "table_bytes": self.tables.total_bytes,
            "mapping": "symmetric" if self.symmetric else "asymmetric",
            "time_s": self.time_s,
            "limit": self.limit,
            "bound_s": self.bound_s,
            "gap": None if self.symmetric else self.gap,
            "owned_s": self.searched.seconds,
            "mappings_tried": self.searched.tried,
            "effort": self.effort,
            "stopped": self.stopped,
            "global_memory_s": self.global_memory.time_s,
            "best_symmetric_s": self.best_symmetric.time_s,
            "any_order_s": self.any_order_s,
            "speedup": self.global_memory.time_s / self.time_s,
            "speedup_symmetric": self.best_symmetric.time_s / self.time_s,
            "speedup_any_order": self.any_order_s / self.time_s,
            "shared_s": self.shared_s,
            "core_s": self.core_s.tolist(),
            "buffer_bytes": chip.value("local_bytes"),
            "held_bytes": self.held_bytes.tolist(),
            "preload_s": self.preload_s,
            "groups": [self._record(group) for group in self.groups],
            "before": [
                {"table": name, "way": "GM", "time_s": float(time_s), "limit": limit}
                for name, time_s, limit in zip(
                    names, self.global_memory.table_s, self.global_memory.limits, strict=True
                )
            ],
            "after": self._columns(),
        }

    def _record(self, group: TablesCutAlike) -> dict[str, Any]:
        cut = group.cut
        return {
            "tables": [self.tables.names[t] for t in group.tables],
            "ways": [way.label for way in group.ways],
            "first_rows": min(cut.head, int(self.tables.rows[group.tables[0]])) if cut else None,
            "row_parts": cut.row_parts if cut else None,
            "column_parts": cut.col_parts if cut else None,
            "batch_slices": cut.slices if cut else None,
            "cores": None if self.symmetric else group.cores.tolist(),
            "core_s": group.core_s,
            "held_bytes": group.local_bytes,
        }

    def _columns(self) -> list[dict[str, Any]]:
        """For each core, its pieces as plain values."""
        found: list[dict[str, Any]] = [
            {"core": core, "time_s": float(time_s), "held_bytes": float(held), "blocks": []}
            for core, (time_s, held) in enumerate(zip(self.core_s, self.held_bytes, strict=True))
        ]
        times, kept = self.work.core_s.tolist(), self.work.local_bytes.tolist()
        for core, piece, time_s, held in zip(
            self.mapping.core.tolist(), self.mapping.pieces, times, kept, strict=True
        ):
            found[core]["blocks"].append(
                {
                    "table": self.tables.names[piece.table],
                    "way": Way(piece.way).label,
                    "rows": list(piece.rows),
                    "columns": list(piece.columns),
                    "bags": list(piece.bags),
                    "time_s": time_s,
                    "held_bytes": held,
                }
            )
        return found


def cost_on(chip: Chip, tables: PlanTables, batch: float, ids: Distribution) -> ChipCost:
    """The costs of these tables on a chip.

    ids  distribution of the look-ups of all tables;  batch  samples
    """
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
    stop: Callable[[], bool] | None = None,
) -> ChipAnswer:
    """The best mapping of tables to the cores of a chip that a search gives, with comparisons.

    batch  samples;  ids  popularity of the rows
    effort  how much work the search may do: a name of ``EFFORTS``
    time_limit_s  by the clock, which ends the search early [s]; None: no limit
    stop  returns whether to end the search now, with the best so far
    Limits: a batch below 1, more than ``MOST_TABLES`` tables, an unknown effort -> BadInputError;
            never slower than the best symmetric mapping
    """
    if len(tables) > MOST_TABLES:
        raise BadInputError(
            f"{tables.model} has {len(tables)} tables: too many for one chip.", f"at most {MOST_TABLES}."
        )
    cost = cost_on(chip, tables, batch, ids)
    budget = Budget(Work(), effort_s(effort, cost.count.size), time_limit_s, stop)
    fitting, gathered = best_symmetric(cost), global_memory(cost)
    searched = search(cost, budget=budget, seed=seed)
    worse = bool(ranked(searched.seconds) > ranked(fitting.time_s))
    mapping = fitting.mapping(cost) if worse else searched.mapping
    work = mapping.work(cost, lockstep=worse)
    batch_of = mapping.batch(cost, work)
    return ChipAnswer(
        cost=cost,
        tables=tables,
        ids=ids,
        global_memory=gathered,
        best_symmetric=fitting,
        any_order_s=gathered.in_any_order(cost).seconds,
        searched=searched,
        mapping=mapping,
        work=work,
        shared_s=batch_of.shared_s,
        limit=fitting.limit if worse else batch_of.limit,
        symmetric=worse,
        effort=effort,
        stopped=_ended(budget, searched.ended),
        done=budget.share,
    )


def _ended(budget: Budget, spent: bool) -> str:
    """The word for why a search ended. spent  whether one of its stages used up its effort"""
    if budget.cut:
        return "interrupt" if budget.stop is not None and budget.stop() else "time-limit"
    return "effort" if spent else "no improvement"


def too_large(chip: Chip, table_bytes: float) -> list[str]:
    """A note if the tables do not fit global memory, in a list; else an empty list.

    table_bytes  of all tables [bytes]
    Limits: a chip that does not state its memory size (``gm_size_bytes`` 0) -> no note
    """
    size = chip.value("gm_size_bytes")
    if not 0 < size < table_bytes:
        return []
    tables, memory = (format_bytes(value, binary=False) for value in (table_bytes, size))
    return [f"Tables of {tables} do not fit the {memory} of {chip.name}: the time is as if they did."]
