"""Tables on the cores of a chip: the fastest mapping that a search gives, beside symmetric mappings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.chip.look_up_options import GM, WAYS, LookUpOptions, TableOnChip
from perfmodel.chip.mapping import CoreMapping, Mapper
from perfmodel.engine.tables import Array, PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.machine import Chip
from perfmodel.units import format_bytes


@dataclass(frozen=True)
class TablePlacement:
    """Where a table is looked up, in equal pieces.

    table, name, rows  its number, its name, its rows
    way         how each core looks rows up; with ``+GM`` where others than the kept rows are gathered
    kept_rows   in local buffers, the hottest ones, over all parts [rows];  held_bytes  of each core [bytes]
    row_parts, batch_slices, cores  how it is cut, and the cores of its pieces
    piece_s, core_s  time of a piece on its core, and of all pieces [s]
    """

    table: int
    name: str
    rows: int
    way: str
    kept_rows: int
    held_bytes: float
    row_parts: int
    batch_slices: int
    cores: list[int]
    piece_s: float
    core_s: float


@dataclass(frozen=True, eq=False)
class ChipPlan:
    """A mapping of tables to the cores of a chip for one batch.

    mapping      option and cores of each table
    bound_s      time that no mapping of these options is below [s]
    baseline_s   symmetric: every core gathers a slice of the batch of every table from global memory; all
                 cores work on one table at a time, as operators that are compiled one by one [s]
    symmetric_s  the same, with the best way of each table that fits the local buffers [s]
    """

    chip: Chip
    tables: PlanTables
    batch: int
    mapping: CoreMapping
    bound_s: float
    baseline_s: float
    symmetric_s: float

    @property
    def time_s(self) -> float:
        """Time of a batch [s]."""
        return self.mapping.time_s

    @property
    def speedup(self) -> float:
        """How many times as fast as the baseline [-]."""
        return self.baseline_s / self.time_s

    @property
    def core_s(self) -> Array:
        """Time that each core is busy [s]."""
        return self.mapping.load_ps[:-2] * 1e-12

    @property
    def busy_s(self) -> dict[str, float]:
        """Time that the busiest ``core``, the global ``memory`` and the ``cache`` are busy [s]."""
        memory, cache = (self.mapping.load_ps[-2:] * 1e-12).tolist()
        return {"core": float(self.core_s.max()), "memory": memory, "cache": cache}

    @property
    def busiest(self) -> str:
        """What a batch waits for: a key of ``busy_s``."""
        return max(self.busy_s, key=lambda name: self.busy_s[name])

    @property
    def placements(self) -> list[TablePlacement]:
        """Where each table is looked up, the table with most time of all cores first."""
        placements = []
        for table, (option, cores) in enumerate(zip(self.mapping.choice, self.mapping.cores, strict=True)):
            o = self.mapping.tables[table].take(int(option))
            rows = int(self.tables.rows[table])
            kept_rows = min(int(o.kept_rows[0] * o.parts[0]), rows)
            piece_s = float(o.piece_ps[0]) * 1e-12
            placement = TablePlacement(
                table=table,
                name=self.tables.names[table],
                rows=rows,
                way=WAYS[int(o.way[0])] + ("+GM" if 0 < kept_rows < rows else ""),
                kept_rows=kept_rows,
                held_bytes=float(o.held_bytes[0]),
                row_parts=int(o.parts[0]),
                batch_slices=int(o.slices[0]),
                cores=cores.tolist(),
                piece_s=piece_s,
                core_s=piece_s * cores.size,
            )
            placements.append(placement)
        return sorted(placements, key=lambda placement: -placement.core_s)

    def time_with(self, tables: PlanTables) -> float:
        """Time of a batch of this mapping with other ids [s]. tables  the same tables with those ids"""
        on_chip = place_tables(self.chip, tables, self.batch)
        chosen = zip(on_chip, self.mapping.tables, self.mapping.choice, strict=True)
        mapping = CoreMapping.empty([t.price(o.take(int(c))) for t, o, c in chosen], self.chip.cores)
        for table, cores in enumerate(self.mapping.cores):
            mapping.put(table, 0, cores)
        return mapping.time_s


def plan_chip(chip: Chip, tables: PlanTables, batch: int) -> ChipPlan:
    """The fastest mapping of tables to cores that a search gives.

    batch  samples of the whole chip
    Limits: a batch below 1, tables larger than global memory -> BadInputError;
            never slower than a symmetric mapping
    """
    on_chip = place_tables(chip, tables, batch)
    room_bytes = chip.value("local_bytes") if chip.buffers.persist else np.inf
    ways = choose_ways([table.symmetric for table in on_chip], room_bytes)
    sliced = [table.symmetric.take(way) for table, way in zip(on_chip, ways, strict=True)]
    options = [table.options.join(even) for table, even in zip(on_chip, sliced, strict=True)]
    start = CoreMapping.empty(options, chip.cores)
    for table, even in enumerate(sliced):
        start.put(table, options[table].way.size - 1, np.arange(even.pieces[0]))
    mapper = Mapper(options, chip.cores, room_bytes)
    baseline_s = sum(float(table.symmetric.alone_ps[GM]) for table in on_chip) * 1e-12
    symmetric_s = sum(float(even.alone_ps[0]) for even in sliced) * 1e-12
    mapping = mapper.run(start).renumber()
    return ChipPlan(chip, tables, batch, mapping, mapper.bound_s, baseline_s, symmetric_s)


def place_tables(chip: Chip, tables: PlanTables, batch: int) -> list[TableOnChip]:
    """Each table with its part of the shared cache: by the bytes of different rows that a batch asks for.

    Limits: no sample, or tables that do not fit in global memory -> BadInputError
    """
    if batch < 1:
        raise BadInputError(f"a batch of {batch} samples has no work.", "give 1 or more.")
    size = chip.value("gm_size_bytes")
    if size and size < tables.total_bytes:
        needs = format_bytes(tables.total_bytes, binary=False)
        excess = format_bytes(tables.total_bytes - size, binary=False)
        has = format_bytes(size, binary=False)
        raise BadInputError(
            f"{tables.model} needs {needs}, {excess} more than the {has} of global memory of {chip.name}.",
            "use a chip with more memory (perfmodel show chips lists them), or fewer or narrower tables.",
        )
    access = chip.value("access_bytes")
    row = access * np.ceil(tables.dim * tables.element_bytes / access)
    distinct = tables.count_unique(batch) * row
    held = chip.value("cache_bytes") * distinct / float(np.sum(distinct))
    examples, kind, _ = tables.kinds  # a table of each kind, and the kind of each table: equal ones once
    columns = np.stack([tables.rows, tables.dim, row, tables.pooling, held, batch * tables.features], axis=1)
    kinds = []
    for table in examples.tolist():
        rows, dim, row_bytes, pooling, cache_bytes, bags = columns[table].tolist()
        law = tables.laws[tables.law[table]]
        kinds.append(TableOnChip(chip, rows, dim, row_bytes, pooling, law, int(bags), cache_bytes))
    return [kinds[index] for index in kind.tolist()]


def choose_ways(symmetric: Sequence[LookUpOptions], room_bytes: float) -> list[int]:
    """The way of each table if every core has a slice of every table: rows stay where that saves most.

    Sorted by time saved for each byte that stays. room_bytes  of a core's local buffer
    """
    ways = [int(np.argmin(np.where(o.held_bytes, np.inf, o.alone_ps))) for o in symmetric]
    savings = [
        ((o.alone_ps[ways[table]] - o.alone_ps[way]) / o.held_bytes[way], table, way)
        for table, o in enumerate(symmetric)
        for way in np.flatnonzero(o.held_bytes).tolist()
    ]
    for saving, table, way in sorted(savings, reverse=True):
        held = symmetric[table].held_bytes
        if saving > 0 and not held[ways[table]] and held[way] <= room_bytes:
            ways[table] = way
            room_bytes -= held[way]
    return ways
