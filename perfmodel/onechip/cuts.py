"""Lists how a table may be cut into pieces: rows, columns and slices of the batch, and the way of each.

A table can be looked up
    in global memory by all cores in any shares,
    in another way, cut into c column parts and k slices of the batch: c k pieces,
    its first h rows in another way, cut into j row parts too, and all other rows in global memory by all
    cores (h may be all rows). Rows are in order of popularity, the hottest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Work
from perfmodel.model.one_chip import read_bytes
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.work import CoreWork, Way
from perfmodel.onechip.work_units import COSTED, KIND
from perfmodel.schema.chip import Chip

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_MANY_KINDS = 64
_AT_ONCE = 16  # kinds whose cuts are costed in one call: each selects its own among all pieces of the call
_MOST_COLUMN_PARTS = 8
_NARROWEST = 4  # columns
_HEADS = (1, 2, 4, 16, 64, 256)  # first rows that are kept: as many as fit a buffer, divided by this
_OF_CHOICES = ("spread_s", "shared_s", "alone_s", "hot_s")
_FEW_SLICES = tuple(2**k for k in range(12))
_SLICES = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)


@dataclass(frozen=True)
class Cut:
    """How a choice cuts a table.

    row_parts, rows  the first rows are cut into so many parts with so many rows each
    way              how these rows are looked up; all others are in global memory, spread over all cores
    col_parts, slices  column parts, and slices of the batch, into which each part is cut further
    Limits: row_parts 0 -> all rows are spread
    """

    way: Way
    rows: int = 0
    row_parts: int = 0
    col_parts: int = 1
    slices: int = 1

    @property
    def head(self) -> int:
        """Number of rows in the parts, which are not spread; it may exceed the table's rows."""
        return self.rows * self.row_parts


@dataclass(frozen=True, eq=False)
class Cuts:
    """The cuts of all tables, one for each choice.

    choices  their costs;  cuts  of each choice
    For each part, that is a set of equal pieces:
    first_row, end_row  its rows;  bags  of one piece;  first_bag  index of the first bag of its first slice
    """

    cost: ChipCost
    choices: Choices
    cuts: tuple[Cut, ...]
    first_row: Ints
    end_row: Ints
    bags: Ints
    first_bag: Ints


def cuts_of(cost: ChipCost, work: Work | None = None) -> Cuts:
    """Every cut of every table that fits, with its costs.

    work  counts the work
    """
    sample, work = cost.sample, work or Work()
    slices = _SLICES if sample.size <= _MANY_KINDS else _FEW_SLICES
    found = []
    for begin in range(0, sample.size, _AT_ONCE):
        some = sample[begin : begin + _AT_ONCE]
        every = [_cuts(cost, one, slices) for one in some.tolist()]
        found.append(_Kinds(cost, some, [[Cut(Way.GM), *own] for own in every]))
        work.add(KIND, some.size)
        work.add(COSTED, len(found[-1].core_s) + 2 * len(found[-1].cuts))
    parts = [at.part for at in found]
    before = np.cumsum([0, *(len(at.cuts) for at in found)])
    of_choice = np.concatenate([at["choice"] + first for at, first in zip(parts, before, strict=False)])
    sizes = np.bincount(np.concatenate([at.kind + _AT_ONCE * k for k, at in enumerate(found)]))
    cuts = tuple(cut for at in found for cut in at.cuts)
    shared = cost.chip.buffers.shared
    persist = cost.chip.buffers.persist
    column = {
        name: np.concatenate([getattr(at, name) for at in found])
        for name in (*_OF_CHOICES, "core_s", "local", "vector")
    }
    choices = Choices(
        cores=cost.chip.cores,
        capacity=cost.chip.value("local_bytes") if persist else np.inf,
        kind_of=cost.kind_of,
        count=cost.count,
        first=np.cumsum([0, *sizes]),
        parts=np.searchsorted(of_choice, np.arange(sizes.sum() + 1)),
        number=np.concatenate([at["number"] for at in parts]),
        **{name: value for name, value in column.items() if name not in ("local", "vector")},
        local=column["local"] if persist else np.zeros(of_choice.size),
        vector=column["vector"] if persist and shared else np.zeros(of_choice.size),
    )
    where = {
        name: np.concatenate([at[name] for at in parts])
        for name in ("first_row", "end_row", "bags", "first_bag")
    }
    return Cuts(cost, choices, cuts, **where)


def shared_seconds(chip: Chip, gm_bytes: Array, cache_bytes: Array) -> Array:
    """Time of shared memory and cache to carry these bytes, [..., 2] [s]. Source: ``ChipCost.batch_s``"""
    rates = chip.value("gm_bytes_per_s"), chip.value("cache_bytes_per_s") or np.inf
    return np.stack([gm_bytes / rates[0], cache_bytes / rates[1]], axis=-1)


def hot_seconds(chip: Chip, work: CoreWork) -> Array:
    """Time by which the channel, and the slice, with the hottest row exceed the mean, [..., 2] [s]."""
    many = np.array([chip.value("channels"), chip.value("cache_slices")])
    return np.asarray(shared_seconds(chip, work.total("hot_gm_bytes"), work.total("hot_cache_bytes")) * many)


class _Kinds:
    """The cuts of some tables that fit, with their costs.

    table  indices of the tables;  cuts  for each table;  kind  for each choice, the place of its table in
           ``table``
    """

    def __init__(self, cost: ChipCost, table: Ints, cuts: list[list[Cut]]) -> None:
        every = [cut for own in cuts for cut in own]
        kind = np.repeat(np.arange(table.size), [len(own) for own in cuts])
        part = _parts(cost, table[kind], every)
        at = table[kind[part["choice"]]]
        columns = cost.tables.dim[at] / part.pop("col_parts")
        rows = part["end_row"] - part["first_row"]
        work = cost.work(at, part["way"], rows, columns, part["bags"], part["first_row"])
        fits = np.ones(len(every), dtype=bool)
        fits[part["choice"][~work.fits]] = False
        kept = fits[part["choice"]]
        self.cuts = [cut for cut, fit in zip(every, fits, strict=True) if fit]
        self.kind = kind[fits]
        self.part = {name: value[kept] for name, value in part.items()}
        self.part["choice"] = (np.cumsum(fits) - 1)[self.part["choice"]]
        work = work.take(kept)
        self.core_s, self.local, self.vector = work.core_s, work.local_bytes, work.vector_bytes
        pieces = (
            shared_seconds(cost.chip, work.total("gm_bytes"), work.total("cache_bytes"))
            * self.part["number"][:, np.newaxis]
        )
        head, of = np.array([cut.head for cut in self.cuts], dtype=float), table[self.kind]
        rest = np.maximum(cost.tables.rows[of] - head, 0)
        both = (of, Way.GM, rest, cost.tables.dim[of])
        spread, one_bag = (cost.work(*both, bags, head) for bags in (cost.batch, 1))
        some = rest > 0
        least = np.minimum(spread.core_s, cost.batch * one_bag.core_s)  # the first of rows of MiB is fast
        self.spread_s = np.where(some, least, 0)
        self.alone_s = np.where(some, one_bag.core_s, 0)
        self.hot_s = hot_seconds(cost.chip, spread) * some[:, np.newaxis]
        self.shared_s = (
            shared_seconds(cost.chip, spread.total("gm_bytes"), spread.total("cache_bytes"))
            * some[:, np.newaxis]
        )
        np.add.at(self.shared_s, self.part["choice"], pieces)


def _cuts(cost: ChipCost, table: int, slices: tuple[int, ...]) -> Iterator[Cut]:
    """Cuts of one table to try, besides all rows in global memory; some may not fit.

    slices  numbers of slices of the batch to try
    """
    rows, dim = int(cost.tables.rows[table]), int(cost.tables.dim[table])
    element, value = float(cost.tables.element_bytes[table]), cost.chip.value
    cores, bags = cost.chip.cores, int(cost.batch)
    fair = cores // cost.tables.rows.size
    usual = sorted({k for k in slices if k < cores} | {cores, -(-cores // 2), -(-cores // 3)})
    most = max(1, min(_MOST_COLUMN_PARTS, dim // _NARROWEST))
    held = {
        c: int(value("local_bytes") // read_bytes(dim // c * element, value("access_bytes")))
        for c in range(1, most + 1)
        if dim % c == 0
    }
    for way in (Way.L1, Way.GM_UB, Way.L1_UB):
        resident = way != Way.GM_UB
        for c, has_room in held.items():
            if not resident or rows <= has_room:
                yield from (Cut(way, rows, 1, c, k) for k in usual if k <= bags and c * k <= cores)
        stays = way == Way.L1
        several = held[1] if stays else int(value("local_bytes") // (dim * element))
        for head, parts in _heads(rows, several, cores, fair, stays):
            yield from (
                Cut(way, head, parts, 1, k)
                for k in _few(usual, cores, fair // parts)
                if k <= bags and k * parts <= cores
            )


def _few(slices: list[int], cores: int, fair: int) -> list[int]:
    """Numbers of slices to try for cuts by rows: of ``slices`` the powers of two and all cores, and ``fair``.

    fair  cores per table and part, if all tables have equally many
    """
    return sorted({k for k in slices if k & (k - 1) == 0 or k == cores} | {max(1, fair)})


def _heads(rows: int, held: int, cores: int, fair: int, stays: bool) -> Iterator[tuple[int, int]]:
    """(rows, row parts) to try: the first rows that fit a buffer, fractions of them,
    or several buffers of them.

    Also all rows, in as many parts as fit and in more: each core then keeps, or streams, fewer rows.
    rows  of the table;  held  rows that fit a buffer;  stays  whether a part must fit
    fair  cores per table, if all tables have equally many
    """
    if held < 1:
        return
    full = min(held, rows)
    heads = dict.fromkeys([*(max(1, full // part) for part in _HEADS), 1])
    yield from ((head, 1) for head in heads if head < rows)
    whole = -(-rows // held)
    several = [2**k for k in range(1, cores.bit_length()) if 2**k <= cores]
    yield from ((held, parts) for parts in several if parts < whole)
    least = whole if stays else 2
    divisors = [parts for parts in range(2, fair + 1) if fair % parts == 0]
    every = {parts for parts in (*several, whole, *divisors) if max(2, least) <= parts <= cores}
    each = ((-(-rows // parts), parts) for parts in sorted(every))
    yield from ((most, parts) for most, parts in each if most * (parts - 1) < rows)


def _parts(cost: ChipCost, table: Ints, cuts: list[Cut]) -> dict[str, Ints]:
    """For every cut, its row parts as columns of numbers, each twice: with slices of b + 1 bags,
    and of b bags.

    b  bags per slice, rounded down;  table, cuts  of each choice
    """
    column = {
        name: np.array([getattr(cut, name) for cut in cuts], dtype=np.int64)
        for name in ("way", "rows", "row_parts", "col_parts", "slices")
    }
    choice = np.repeat(np.arange(len(cuts)), column["row_parts"])
    before = np.cumsum(column["row_parts"]) - column["row_parts"]
    first_row = (np.arange(choice.size) - before[choice]) * column["rows"][choice]
    end_row = np.minimum(first_row + column["rows"][choice], cost.tables.rows[table][choice].astype(np.int64))
    slices = column["slices"][choice]
    bags, longer = int(cost.batch) // slices, int(cost.batch) % slices
    both = {
        name: np.repeat(value, 2)
        for name, value in (("choice", choice), ("first_row", first_row), ("end_row", end_row))
    }
    both["way"], both["col_parts"] = (column[name][both["choice"]] for name in ("way", "col_parts"))
    both["bags"] = np.column_stack([bags + 1, bags]).reshape(-1)
    number = np.column_stack([longer, slices - longer]).reshape(-1)
    both["number"] = number * both["col_parts"]
    both["first_bag"] = np.column_stack([np.zeros_like(longer), longer * (bags + 1)]).reshape(-1)
    some = (number > 0) & (both["bags"] > 0) & (both["end_row"] > both["first_row"])
    return {name: value[some] for name, value in both.items()}
