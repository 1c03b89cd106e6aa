"""Assigns look-ups to a chip's cores, as lists of items for ``kernels/one_core.cu``. Pure computation.

An item names the way in which one core (an SM of a GPU) looks up its bags of a table:

    GM     rows are gathered from global memory
    L1     the table is copied into the core's memory once, and gathered there
    GM-UB  the table streams past bags that stay in the core's memory
    L1-UB  as GM-UB, with the first rows of the table kept in the core's memory

A core's memory is reserved for the whole launch. Its items run one after the other, each with all of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, inf

from perfmodel.errors import BadInputError

WAYS = ("GM", "L1", "GM-UB", "L1-UB")
PIECE_BYTES = 16
"""Rows in a core's memory are read in pieces of this size."""

SUM_BYTES = 4
ID_BYTES = 4
MOST_STREAMED_ROWS = 2**30
CHUNK_SHARE = 8
"""The two chunks of a streamed table each get this part of a core's memory: 1/8."""

_STEP = 1.1
_FINEST = 8
"""The finest parts of tables take this part of a core's mean load: 1/8."""

_ROUNDS = 1000


@dataclass(frozen=True)
class TableShape:
    """Shape of a table for a plan: rows, columns (``dim``), bytes of an element, mean ids per bag."""

    rows: int
    dim: int
    element_bytes: int = 4
    pooling: float = 1.0


@dataclass(frozen=True)
class Item:
    """Bags of one table that one core looks up (``pm::Item``); ``way`` is GM, L1, GM-UB or L1-UB.

    table                  number of the table
    first_bag, bags        which samples;  first_column, columns  which columns of the table
    resident_rows          number of rows that stay in the core's memory
    chunk_rows             rows of each of the two buffers through which a table streams
    pass_bags, id_room     most bags, and most ids, for which a table streams past once
    """

    table: int
    way: str
    first_bag: int
    bags: int
    first_column: int
    columns: int
    resident_rows: int = 0
    chunk_rows: int = 0
    pass_bags: int = 0
    id_room: int = 0

    @property
    def passes(self) -> int:
        """How often the table streams past, if the ids of each pass fit; 0 for GM and L1."""
        return ceil(self.bags / self.pass_bags) if self.pass_bags else 0

    def shared_bytes(self, element_bytes: int) -> int:
        """Memory of the core that the item uses [bytes]. Limits: GM -> 0"""
        if self.way == "GM":
            return 0
        row, bag = _pitches(self.columns, element_bytes)
        rows = (self.resident_rows + 2 * self.chunk_rows) * row
        starts = (self.pass_bags + 1) * ID_BYTES if self.pass_bags else 0
        return rows + self.pass_bags * bag + starts + self.id_room * ID_BYTES


Cost = Callable[[TableShape, Item], float]
"""Returns the seconds of an item on one core."""

Whole = Callable[[TableShape, Item], bool]
"""Returns whether L1-UB keeps the whole table for an item, with the bags per pass that then fit."""


@dataclass(frozen=True)
class CorePlan:
    """For each core, the items that it works through, in their order."""

    cores: tuple[tuple[Item, ...], ...]

    def shared_bytes(self, shapes: Sequence[TableShape]) -> int:
        """Memory that a core needs [bytes], for its largest item."""
        every = (
            item.shared_bytes(shapes[item.table].element_bytes) for items in self.cores for item in items
        )
        return max(every, default=0)

    def loads(self, shapes: Sequence[TableShape], cost: Cost) -> tuple[float, ...]:
        """Predicted time of each core [s]; ``cost`` predicts the time of an item."""
        return tuple(sum(cost(shapes[item.table], item) for item in items) for items in self.cores)


def fitted(shape: TableShape, item: Item, capacity: int, whole: Whole | None = None) -> Item:
    """``item`` with its rows, chunks, bags and ids chosen to fit ``capacity`` bytes of a core's memory.

    whole  says whether L1-UB should keep a whole table that fits; None: never
    The ids of all bags of a pass fit if bags have the mean length. A streamed table makes as few passes as
    possible, with equal numbers of bags; L1-UB keeps the table's first rows in the memory that is left.
    Source: with h resident rows of m and P bags per pass, b bags move h + b (m - h) / P rows: if the table
            does not fit, memory for bags always saves more than memory for rows, so rows get the rest
    Limits: capacity below the smallest need, or below the table for L1 -> BadInputError; all rows fit ->
            L1-UB keeps the whole table and streams nothing
    """
    if item.way == "GM":
        return replace(item, resident_rows=0, chunk_rows=0, pass_bags=0, id_room=0)
    row, bag = _pitches(item.columns, shape.element_bytes)
    if item.way == "L1":
        made = replace(item, resident_rows=shape.rows, chunk_rows=0, pass_bags=0, id_room=0)
        return _checked(shape, made, capacity)
    if shape.rows >= MOST_STREAMED_ROWS:
        raise BadInputError(
            f"a table of {shape.rows} rows cannot stream.", "fewer than 2^30 rows do; use GM."
        )
    chunk = max(1, min(capacity // (CHUNK_SHARE * row), ceil(shape.rows / 2)))
    per_bag = bag + ID_BYTES + ceil(shape.pooling) * ID_BYTES
    beside = (capacity - shape.rows * row - ID_BYTES) // per_bag
    if item.way == "L1-UB" and beside >= 1 and whole is not None and whole(shape, item):
        bags = ceil(item.bags / ceil(item.bags / beside))
        room = max(1, ceil(shape.pooling) * bags)
        return replace(item, resident_rows=shape.rows, chunk_rows=0, pass_bags=bags, id_room=room)
    most = max(1, (capacity - 2 * chunk * row - ID_BYTES) // per_bag)
    bags = ceil(item.bags / ceil(item.bags / most))
    room = max(1, ceil(shape.pooling) * bags)
    made = replace(item, resident_rows=0, chunk_rows=chunk, pass_bags=bags, id_room=room)
    if item.way == "L1-UB":
        left = max(0, capacity - made.shared_bytes(shape.element_bytes))
        made = replace(made, resident_rows=min(shape.rows, left // row))
    return _checked(shape, made, capacity)


def symmetric(
    shapes: Sequence[TableShape],
    ways: Sequence[str],
    batch: int,
    cores: int,
    capacity: int,
    whole: Whole | None = None,
) -> CorePlan:
    """A plan in which every core looks up some of the samples in every table.

    ways   how each table is looked up: GM, L1, GM-UB or L1-UB
    batch  B, number of samples;  capacity  memory of one core [bytes];  whole  as in ``fitted``
    """
    _check(shapes, batch, cores)
    lists: list[tuple[Item, ...]] = []
    for core in range(cores):
        first, end = batch * core // cores, batch * (core + 1) // cores
        items = [
            fitted(shape, Item(table, way, first, end - first, 0, shape.dim), capacity, whole)
            for table, (shape, way) in enumerate(zip(shapes, ways, strict=True))
            if end > first
        ]
        lists.append(tuple(items))
    return CorePlan(tuple(lists))


def asymmetric(
    shapes: Sequence[TableShape],
    batch: int,
    cores: int,
    capacity: int,
    cost: Cost,
    whole: Whole | None = None,
) -> CorePlan:
    """A plan in which cores look up different tables; large tables are cut, by samples or by columns.

    batch  B, number of samples;  capacity  memory of one core [bytes];  whole  as in ``fitted``
    cost   predicts the time of an item [s]
    Tables are cut until no part takes longer than a target, each in its cheapest way; parts are assigned in
    decreasing order of time to the core with the least load (LPT); then parts of the busiest core are moved
    or swapped while that shortens it. The best of several targets is returned. Deterministic.
    """
    _check(shapes, batch, cores)

    @cache
    def parts(table: int, slices: int) -> tuple[float, tuple[Item, ...]]:
        return _cheapest(shapes[table], table, batch, slices, capacity, cost, whole)

    uncut = [parts(table, 1)[0] for table in range(len(shapes))]
    best = inf, CorePlan(())
    for target in _targets(uncut, cores):
        cut = [item for table in range(len(shapes)) for item in _cut(parts, table, min(batch, cores), target)]
        spread = _spread([(cost(shapes[item.table], item), item) for item in cut], cores)
        best = min(best, spread, key=lambda made: made[0])
    return best[1]


def least_time_s(
    shapes: Sequence[TableShape],
    batch: int,
    cores: int,
    capacity: int,
    cost: Cost,
    whole: Whole | None = None,
) -> float:
    """A time that no plan can beat [s], if cutting a table never reduces its total cost."""
    return sum(_cheapest(shape, 0, batch, 1, capacity, cost, whole)[0] for shape in shapes) / cores


def check_covers(plan: CorePlan, shapes: Sequence[TableShape], batch: int) -> None:
    """Raises BadInputError unless every bag of every table and column is looked up exactly once."""
    columns: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
    for item in (item for items in plan.cores for item in items):
        own = columns.setdefault(item.table, {})
        part = item.first_column, item.first_column + item.columns
        own.setdefault(part, []).append((item.first_bag, item.first_bag + item.bags))
    for table in range(max([len(shapes), *(table + 1 for table in columns)])):
        own = columns.get(table, {})
        dim = shapes[table].dim if table < len(shapes) else 0
        if not _tiles(list(own), dim) or not all(_tiles(bags, batch) for bags in own.values()):
            raise BadInputError(
                f"the plan does not look up {batch} bags of {dim} columns of table {table} exactly once.",
                "make plans with symmetric or asymmetric.",
            )


def _tiles(parts: Sequence[tuple[int, int]], end: int) -> bool:
    """Whether ``parts`` (first, end) cover 0 to ``end``, in some order, without gaps or overlaps."""
    at = 0
    for first, last in sorted(parts):
        if first != at or last <= first:
            return False
        at = last
    return at == end


# ---- how plans are made -----------------------------------------------------------------------------------


def _pitches(columns: int, element_bytes: int) -> tuple[int, int]:
    """(bytes of a row, bytes of a bag's sums) with ``columns`` columns, in a core's memory."""
    pieces = ceil(columns * element_bytes / PIECE_BYTES)
    return pieces * PIECE_BYTES, pieces * PIECE_BYTES // element_bytes * SUM_BYTES


def _check(shapes: Sequence[TableShape], batch: int, cores: int) -> None:
    if cores < 1 or batch < 1 or not shapes:
        raise BadInputError(
            f"a plan of {len(shapes)} tables, {batch} samples and {cores} cores has no work.",
            "each must be at least 1.",
        )


def _checked(shape: TableShape, item: Item, capacity: int) -> Item:
    need = item.shared_bytes(shape.element_bytes)
    if need > capacity:
        raise BadInputError(
            f"{item.way} of a table of {shape.rows} rows and {item.columns} columns needs {need} bytes of a "
            f"core's memory, which has {capacity}.",
            "use GM, or fewer columns.",
        )
    return item


def _column_cuts(shape: TableShape, capacity: int) -> Iterator[tuple[str, int]]:
    """Ways to look up a table, as (way, columns per part): with all columns; and L1 with as many as fit."""
    for way in WAYS:
        yield way, shape.dim
    per_piece = PIECE_BYTES // shape.element_bytes
    columns = capacity // (shape.rows * PIECE_BYTES) * per_piece
    if 2 * per_piece <= columns < shape.dim:
        yield "L1", columns


def _cheapest(
    shape: TableShape, table: int, batch: int, slices: int, capacity: int, cost: Cost, whole: Whole | None
) -> tuple[float, tuple[Item, ...]]:
    """(total time, items) of the cheapest way to look up a table, its samples cut into ``slices`` parts."""
    found: tuple[float, tuple[Item, ...]] = (inf, ())
    for way, columns in _column_cuts(shape, capacity):
        try:
            made = tuple(
                fitted(shape, Item(table, way, first, end - first, column, part), capacity, whole)
                for first, end in _ranges(batch, slices)
                for column in range(0, shape.dim, columns)
                for part in [min(columns, shape.dim - column)]
            )
        except BadInputError:
            continue
        time = sum(cost(shape, item) for item in made)
        if time < found[0]:
            found = time, made
    return found


def _ranges(batch: int, slices: int) -> list[tuple[int, int]]:
    return [(batch * part // slices, batch * (part + 1) // slices) for part in range(slices)]


def _targets(whole: Sequence[float], cores: int) -> Iterator[float]:
    """Times that parts may take: from the longest of the uncut tables (``whole``) down to a small share."""
    target = max(whole)
    yield target
    while (target := target / _STEP) > sum(whole) / cores / _FINEST:
        yield target


def _cut(
    parts: Callable[[int, int], tuple[float, tuple[Item, ...]]], table: int, most: int, target: float
) -> tuple[Item, ...]:
    """Items of a table, cut into the fewest slices whose mean time is within ``target``.

    parts  (time, items) of a table by its number and the number of slices;  most  slices at most
    """
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        time, items = parts(table, middle)
        low, high = (low, middle) if time <= target * len(items) else (middle + 1, high)
    return parts(table, low)[1]


def _spread(timed: list[tuple[float, Item]], cores: int) -> tuple[float, CorePlan]:
    """(time of the busiest core, plan): longest items first, each to the core with the least load."""
    order = sorted(timed, key=lambda one: (-one[0], one[1].table, one[1].first_bag, one[1].first_column))
    heap = [(0.0, core) for core in range(cores)]
    held: list[list[tuple[float, Item]]] = [[] for _ in range(cores)]
    for time, item in order:
        load, core = heapq.heappop(heap)
        held[core].append((time, item))
        heapq.heappush(heap, (load + time, core))
    for _ in range(_ROUNDS):
        if not _relieve(held):
            break
    key = lambda one: (one[1].table, one[1].first_column, one[1].first_bag)  # noqa: E731
    lists = tuple(tuple(item for _, item in sorted(items, key=key)) for items in held)
    return max(_load(items) for items in held), CorePlan(lists)


def _load(items: Sequence[tuple[float, Item]]) -> float:
    return sum(time for time, _ in items)


def _relieve(held: list[list[tuple[float, Item]]]) -> bool:
    """Move an item of the busiest core to the idlest, or swap it for a shorter item; False: no gain."""
    loads = [_load(items) for items in held]
    busy, idle = loads.index(max(loads)), loads.index(min(loads))
    gap = loads[busy] - loads[idle]
    best, what = gap * (1 - 1e-9), (-1, -1)
    for give, (time, _) in enumerate(held[busy]):
        for take in range(-1, len(held[idle])):
            moved = time - (held[idle][take][0] if take >= 0 else 0.0)
            if moved > 0 and abs(gap - 2 * moved) < best:
                best, what = abs(gap - 2 * moved), (give, take)
    if what[0] < 0:
        return False
    given = held[busy].pop(what[0])
    if what[1] >= 0:
        held[busy].append(held[idle].pop(what[1]))
    held[idle].append(given)
    return True
