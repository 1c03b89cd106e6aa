"""Which shards a rank can hold together, and what that says of how tables may be cut.

A pattern is a set of shards on one rank: all that each step waits for, and their memory, must fit. If so many
shards y_s of each size s are to be on G ranks,

    y_s <= sum over patterns P of n_Ps z_P,     sum_P z_P <= G,     z >= 0

for z_P ranks with pattern P, of which n_Ps shards are of size s. Where that cannot be, the multipliers k >= 0
of the first rows say so: sum_s k_s y_s > G max_P sum_s k_s n_Ps. The same multipliers hold for all tables:

    sum_o k_o parts_o x_o <= G K,      K = max over patterns of sum_s k_s n_Ps

for x_o tables that use option o. A shard of another size counts as much as any shards of known sizes that
would fit in its place, k_o = max of sum_s k_s n_s over n with sum_s n_s size_s <= size_o: put there, they
leave a pattern of known sizes, worth as much. So the row holds for every plan whose ranks have no more room.
Source: cutting stock, Gilmore and Gomory, Operations Research 9 (1961); in several resources, and rows from
their multipliers: Caprara and Toth, Discrete Applied Mathematics 111 (2001)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOST = 20_000  # patterns that are listed
_LIFTING = 400  # of those, worth most, that are put in the place of a shard of another size
_AT_ONCE = 8  # patterns that are added to a program together
_TURNS = 100
_BROKEN = 2e-3  # of the ranks: what a row must exceed them by
_NEAR = 1e-3  # between the multipliers that are taken and the best
_USED = 1e-6  # of a rank
_FULL = 1 + 1e-9  # of a rank
_SAME = 1 + 1e-12  # of a size
_TINY = 1e-300
_WORTH = 0.4  # of the best pattern: those worth less stay out of a row, which then says no more than that


@dataclass(frozen=True, eq=False)
class ShardSizes:
    """m sizes of shards in a solution.

    load    [m, D] what each step waits for, and memory;  kind  [m] of table;  shards  [m] of each size, y
    tables  [m] of the kind: no rank has two shards of one table
    """

    load: Array
    kind: Ints
    shards: Array
    tables: Array


@dataclass(frozen=True, eq=False)
class PatternRow:
    """One row, sum_o worth_o parts_o x_o <= G K(room).

    worth    [n] of one shard of each option
    load, value  [N, D], [N] of the patterns that are worth anything
    room     [D] of the ranks, where the patterns were listed: K is known where there is no more
    """

    worth: Array
    load: Array
    value: Array
    room: Array

    def holds(self, room: Array) -> bool:
        """Whether K is known for this room [D]."""
        return bool((room <= self.room * _FULL).all())


def most_worth(rows: Sequence[PatternRow], room: Array) -> Array:
    """K [n] of rows: what the shards of a rank with this room [D] are worth at most.

    Limits: more room than when its patterns were listed -> infinite
    """
    if not rows:
        return np.zeros(0)
    fits = (np.concatenate([row.load for row in rows]) <= room * _FULL).all(axis=1)
    value = np.where(fits, np.concatenate([row.value for row in rows]), _WORTH)
    first = np.cumsum([0, *(len(row.value) for row in rows[:-1])])
    known = np.array([row.holds(room) for row in rows])
    return np.where(known, np.maximum.reduceat(value, first), np.inf)


@dataclass(frozen=True, eq=False)
class OnRanks:
    """Whether shards can be on the ranks, in shares of patterns.

    row     that they break, None if they can or if that is not known;  most  [D] that a rank has then
    number  [U, m] shards of each size in the patterns of which they are;  ranks  [U] with each pattern
    """

    row: PatternRow | None
    most: Array
    number: Ints
    ranks: Array


def listed(sizes: ShardSizes, room: Array) -> tuple[Array, Ints] | None:
    """All patterns that fit a room [D]: their loads [N, D] and numbers of each size [N, m].

    Limits: more than 20 000 -> None
    """
    different, of = np.unique(sizes.kind, return_inverse=True)
    load, number = np.zeros((1, room.size)), np.zeros((1, of.size), dtype=np.int64)
    kinds = np.zeros((1, different.size))
    for i, (size, kind) in enumerate(zip(sizes.load, of.tolist(), strict=True)):
        more, numbers, of_kind = [load], [number], [kinds]
        while True:
            fits = (more[-1] + size <= room * _FULL).all(axis=1) & (of_kind[-1][:, kind] < sizes.tables[i])
            if not fits.any():
                break
            more.append(more[-1][fits] + size)
            numbers.append(numbers[-1][fits])
            numbers[-1][:, i] += 1
            of_kind.append(of_kind[-1][fits])
            of_kind[-1][:, kind] += 1
            if sum(len(each) for each in more) > _MOST:
                return None
        load, number, kinds = np.concatenate(more), np.concatenate(numbers), np.concatenate(of_kind)
    return load, number


def on_ranks(sizes: ShardSizes, room: Array, ranks: float, others: Array, kind: Ints) -> OnRanks:
    """Whether shards of these sizes can be on so many ranks with this room [D].

    others, kind  [n, D] and [n] of the shards of all options, infinite where an option has none
    Limits: too many patterns -> no row, and the largest shard
    """
    found = listed(sizes, room)
    if found is None:
        return OnRanks(
            None, sizes.load.max(axis=0), np.zeros((0, len(sizes.load)), dtype=np.int64), np.zeros(0)
        )
    load, number = found
    worth, used, share = _multipliers(number.astype(np.float64), sizes.shards)
    held = load[used].max(axis=0, initial=0.0), number[used], share
    if float(sizes.shards @ worth) <= ranks * (1 + _BROKEN):
        return OnRanks(None, *held)
    value = number @ worth
    counted = value > _WORTH
    lifted = _lifted(sizes, room, worth, (load, number, value), others, kind)
    return OnRanks(PatternRow(lifted, load[counted], value[counted], room), *held)


def _multipliers(number: Array, shards: Array) -> tuple[Array, Ints, Array]:
    """k [m] that say most, with K = 1, the patterns that are used, and the ranks with each; of patterns that
    have numbers [N, m] of shards [m].

    The program  min sum z, number' z >= shards  over patterns that are added while they are worth more.
    """
    import highspy

    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
        highs.setOptionValue(name, value)
    m = shards.size
    none = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0)
    highs.addRows(m, shards, np.full(m, highspy.kHighsInf), 0, *none)
    some = np.unique((number * (1 + number.sum(axis=1, keepdims=True))).argmax(axis=0))
    best, most = np.zeros(m), -np.inf
    columns: list[Ints] = []
    known = np.zeros(len(number), dtype=bool)
    for _ in range(_TURNS):
        _add_patterns(highs, number[some])
        known[some] = True
        columns.append(some)
        highs.run()
        dual = np.maximum(np.asarray(highs.getSolution().row_dual), 0)
        value = number @ dual
        largest = float(value.max())
        if largest <= 0:
            break
        now = float(shards @ dual) / largest
        if now > most:
            best, most = dual / largest, now
        some = np.argpartition(-value, min(_AT_ONCE, value.size - 1))[:_AT_ONCE]
        some = some[(value[some] > 1 + _NEAR) & ~known[some]]
        if not some.size or most >= highs.getInfo().objective_function_value * (1 - _NEAR):
            break
    share = np.asarray(highs.getSolution().col_value)
    used = share > _USED
    return best, np.concatenate(columns)[used], share[used]


def _add_patterns(highs: Any, number: Array) -> None:
    """Columns that cost a rank each."""
    row, pattern = np.nonzero(number.T)
    order = np.lexsort((row, pattern))
    row, pattern = row[order], pattern[order]
    count = len(number)
    start = np.searchsorted(pattern, np.arange(count)).astype(np.int32)
    value = number[pattern, row]
    highs.addCols(
        count,
        np.ones(count),
        np.zeros(count),
        np.full(count, np.inf),
        value.size,
        start,
        row.astype(np.int32),
        value,
    )


def _lifted(
    sizes: ShardSizes,
    room: Array,
    worth: Array,
    patterns: tuple[Array, Ints, Array],
    others: Array,
    kind: Ints,
) -> Array:
    """[n] what a shard of each option counts: as much as shards that would fit in its place.

    A rank may hold only so many shards of a kind of table. Where that may matter, a shard stands for one of
    its own kind alone: in its place it leaves as many of the kind.
    """
    load, number, value = patterns
    with np.errstate(over="ignore"):
        whole = np.floor(np.min(room / np.maximum(sizes.load, _TINY), axis=1) * _FULL)
    together = np.bincount(sizes.kind, whole, int(kind.max()) + 1)[sizes.kind]
    free = together <= sizes.tables  # however they are mixed
    lifted = np.zeros(kind.size)
    usable = (number[:, ~free] == 0).all(axis=1) & (value > 0)
    at = np.flatnonzero(usable)
    at = at[np.argsort(-value[at], kind="stable")[:_LIFTING]]
    if at.size:
        fits = np.ones((kind.size, at.size), dtype=bool)
        for d in range(room.size):
            fits &= load[at, d] <= others[:, d, np.newaxis] * _SAME
        lifted = np.where(fits.any(axis=1), value[at[fits.argmax(axis=1)]], 0.0)
    for size, own, k in zip(sizes.load, sizes.kind, worth, strict=True):
        larger = (kind == own) & (others * _SAME >= size).all(axis=1)
        lifted[larger] = np.maximum(lifted[larger], k)
    lifted[~np.isfinite(others).all(axis=1)] = 0
    return lifted
