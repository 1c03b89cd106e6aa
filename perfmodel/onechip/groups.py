"""Groups equal tables that are cut equally, for an answer with a line per group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cut
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.search import Searched
from perfmodel.onechip.work import CoreWork, Way
from perfmodel.onechip.work_units import ranked

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TablesCutAlike:
    """Equal tables that are cut equally.

    tables  their indices;  cut  None in a symmetric mapping;  ways  in which their pieces are looked up
    core_s  time of all their pieces, added up [s];  local_bytes  bytes that their pieces keep
    cores   cores that have some of their pieces
    """

    tables: tuple[int, ...]
    cut: Cut | None
    ways: tuple[Way, ...]
    core_s: float
    local_bytes: float
    cores: Ints


def groups_of(
    cost: ChipCost, mapping: Mapping, work: CoreWork, searched: Searched | None
) -> tuple[TablesCutAlike, ...]:
    """Groups of the tables of a mapping, largest time first.

    searched  the search's result; None: a symmetric mapping, whose tables are grouped by ``Way``
    """
    table, way = (np.array([getattr(piece, name) for piece in mapping.pieces]) for name in ("table", "way"))
    chosen = np.zeros(cost.kind_of.size, dtype=np.int64)
    chosen[table] = way
    if searched is not None:
        chosen = searched.state.choice
    alike: dict[tuple[int, int], list[int]] = {}
    for at, pair in enumerate(zip(cost.kind_of.tolist(), chosen.tolist(), strict=True)):
        alike.setdefault(pair, []).append(at)
    group = np.empty(chosen.size, dtype=np.int64)
    for number, tables in enumerate(alike.values()):
        group[tables] = number
    order = np.argsort(group[table], kind="stable")
    pieces = np.split(order, np.searchsorted(group[table][order], np.arange(1, len(alike))))
    found = [
        TablesCutAlike(
            tuple(tables),
            searched.cuts.cuts[choice] if searched is not None else None,
            tuple(Way(each) for each in np.unique(way[mine])),
            float(work.core_s[mine].sum()),
            float(work.local_bytes[mine].sum()),
            np.unique(mapping.core[mine]),
        )
        for ((_, choice), tables), mine in zip(alike.items(), pieces, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -ranked(one.core_s)))
