"""Equal tables that are cut alike: one line of an answer each."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Known
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cut, Cuts
from perfmodel.onechip.in_step import slices, slices_of_pairs, two_slices
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.packing import MappingState
from perfmodel.onechip.reasons import MappingReason
from perfmodel.onechip.symmetric import Symmetric
from perfmodel.onechip.work import CoreWork, Way
from perfmodel.onechip.work_units import ranked

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TablesCutAlike:
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
    reason: MappingReason | None


def alike(kind_of: Ints, choice: Ints) -> dict[tuple[int, int], list[int]]:
    """Tables by kind and choice, in the order of the first table of each."""
    found: dict[tuple[int, int], list[int]] = {}
    for at, pair in enumerate(zip(kind_of.tolist(), choice.tolist(), strict=True)):
        found.setdefault(pair, []).append(at)
    return found


def groups_of(
    cuts: Cuts, state: MappingState, mapping: Mapping, work: CoreWork, reasons: Known[int, MappingReason]
) -> tuple[TablesCutAlike, ...]:
    """Of a mapping, those that take most first; reasons  by the first table of a group."""
    return tuple(
        sorted(_groups(cuts, state, mapping, work, reasons), key=lambda group: -ranked(group.core_s))
    )


def _groups(
    cuts: Cuts, state: MappingState, mapping: Mapping, work: CoreWork, reasons: Known[int, MappingReason]
) -> Iterator[TablesCutAlike]:
    table = np.array([piece.table for piece in mapping.pieces])
    way = np.array([piece.way for piece in mapping.pieces])
    found = alike(cuts.choices.kind_of, state.choice)
    group = np.empty(state.choice.size, dtype=np.int64)
    for number, tables in enumerate(found.values()):
        group[tables] = number
    order = np.argsort(group[table], kind="stable")
    pieces = np.split(order, np.searchsorted(group[table][order], np.arange(1, len(found))))
    for ((_, choice), tables), mine in zip(found.items(), pieces, strict=True):
        yield TablesCutAlike(
            tuple(tables),
            cuts.cuts[choice],
            tuple(Way(each) for each in np.unique(way[mine])),
            float(work.core_s[mine].sum()),
            float(work.local_bytes[mine].sum()),
            np.unique(mapping.core[mine]),
            reasons.get(tables[0]),
        )


def groups_of_symmetric(cost: ChipCost, found: Symmetric) -> tuple[TablesCutAlike, ...]:
    """Of a symmetric mapping, those that take most first."""
    bags, cores = two_slices(cost)
    number = np.where(bags > 0, cores, 0)
    everywhere = np.flatnonzero(slices(cost))
    work = slices_of_pairs(cost, cost.kind_of, found.way).work
    core_s, held = work.core_s @ number, work.local_bytes @ number
    groups = [
        TablesCutAlike(
            tuple(tables),
            None,
            (Way(way),),
            float(core_s[tables].sum()),
            float(held[tables].sum()),
            everywhere,
            None,
        )
        for (_, way), tables in alike(cost.kind_of, found.way).items()
    ]
    return tuple(sorted(groups, key=lambda group: -ranked(group.core_s)))
