"""Which tables are looked up together, and which TorchRec exchanges together; else a rank exchanges all.

    time of the exchanges = sum over the sharding types s in use of
                            t_splits(8 k G) + t_lengths(S_s) + t_ids(S_s) + t_weights(S_s) + t_bags(S_s)   [s]
    launches of a look-up, of its sort and of its update = number of the groups in use       [-]

    S_s  bytes of the busiest rank in the tables of type s [bytes];  k G  numbers in a splits exchange [-];
         k is one more if bags are weighted
    group  tables of one exchange, in a TorchRec file of one sharding type, and of one data type
Source: TorchRec 1.8, ``ShardedEmbeddingBagCollection`` makes one input dist, one lookup and one output dist
        for each sharding type, ``group_tables`` one fused kernel (TBE) of those of one data type;
        tests/plan/test_torchrec_counts.py counts them in real modules
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import OF_TORCHREC, ROW_WISE, SHARDINGS, TABLE_ROW_WISE, Exchange
from perfmodel.engine.steps import (
    BY_TYPE,
    SHARDING_TYPES,
    STEPS,
    TOGETHER,
    WEIGHTS,
    WIDTH,
    Step,
    split_by_type,
)
from perfmodel.engine.tables import Array, Ints

_BY_EXCHANGE = {cut.exchange: cut.torchrec for cut in (SHARDINGS[ROW_WISE], SHARDINGS[TABLE_ROW_WISE])}
"""Sharding types in an exported plan: whole tables and column parts are one type; all tables with row parts
in a domain are another (``torchrec.sharding_types``)."""


@dataclass(frozen=True)
class ExchangeSets:
    """The sets of tables that exchange together in TorchRec: one for each sharding type.

    types  sharding type of each of T tables, as TorchRec names it, in a plan that was read from a file;
           None: the types in a plan that we write, by the exchange of each table
    """

    types: tuple[str, ...] | None = None

    @property
    def shardings(self) -> tuple[str, ...]:
        """Names of the sharding types that may have exchanges of their own."""
        if self.types is None:
            return tuple(_BY_EXCHANGE.values())
        return tuple(name for name in SHARDING_TYPES if name in self.types)

    @property
    def width(self) -> int:
        """K, number of resources: first of all tables together, then of each sharding type."""
        if self.types is not None:
            return WIDTH
        return TOGETHER + sum(len(BY_TYPE[name]) for name in self.shardings)

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        """[T] index of each table's type in ``shardings``; their number if it has no exchanges of its own."""
        places = {name: place for place, name in enumerate(self.shardings)}
        return np.array([places.get(name, len(places)) for name in self.types or ()], dtype=np.int64)

    def spread(self, table: NDArray[np.int64], kind: NDArray[Any], loads: Array) -> Array:
        """The loads of tables, those of exchanges moved to the resources of each table's set [..., width].

        table  indices of tables [...];  kind  their ``Exchange`` codes;  loads  [..., ``TOGETHER``] in bytes
        """
        moved = np.moveaxis(np.zeros((self.width, *loads.shape[:-1])), 0, -1)
        moved[..., :TOGETHER] = loads[..., :TOGETHER]
        for place, name in enumerate(self.shardings):
            mask = kind == _KIND_OF[name] if self.types is None else self._place[table] == place
            for resource, number in BY_TYPE[name].items():
                moved[..., number] = np.where(mask, loads[..., resource], 0)
                moved[..., resource] = np.where(mask, 0, moved[..., resource])
        return moved

    def add_steps(self, steps: tuple[Step, ...], *, weighted: bool) -> tuple[Step, ...]:
        """The steps of a pass with the steps of each set added; gradients of replicas are reduced in place.

        weighted  whether ids have weights, which are exchanged after the ids
        """
        if weighted:
            after = steps.index(STEPS["all_to_all_ids"]) + 1
            steps = (*steps[:after], WEIGHTS, *steps[after:])
        reduced = (replace(step, in_place=step.collective == "all_reduce") for step in steps)
        return split_by_type(tuple(reduced), self.shardings)


_KIND_OF = {name: kind for kind, name in _BY_EXCHANGE.items()}


def list_codes(codes: NDArray[Any]) -> Ints:
    """The different codes in an array, sorted. ``np.unique`` would load numpy's masked arrays for it."""
    return np.flatnonzero(np.bincount(np.ravel(codes).astype(np.int64)))


@dataclass(frozen=True, eq=False)
class LookUpGroups:
    """The groups of tables that are looked up together, each in one launch: N of them.

    A kernel has rows of one data type, and gets the ids of one exchange, or before all exchanges those of
    copies, hot rows among them. On one GPU all tables of a data type are one group.
    Launches are counted for a rank with tables of all groups in use; other ranks launch fewer.
    dtypes  of the tables, as places in ``DTYPES``, sorted, each once
    """

    sets: ExchangeSets | None
    dtypes: Ints

    @property
    def resources(self) -> range:
        """For each group, the index of a resource that is above 0 on every rank if a plan uses the group."""
        first = self.sets.width if self.sets else TOGETHER
        types = len(Exchange) if self._types is None else len(OF_TORCHREC)
        return range(first, first + types * self.dtypes.size)

    @property
    def _types(self) -> tuple[str, ...] | None:
        """TorchRec's sharding type of each table; None: exchanges tell groups apart."""
        return self.sets.types if self.sets else None

    def find(self, table: Ints, kind: Ints, dtype: Array) -> Ints:
        """The group of each table, as its place in ``resources`` [...].

        table  indices of tables;  kind  their ``Exchange`` codes;  dtype  their data types, of ``dtypes``
        """
        of_type = kind
        if self._types is not None:
            names = list(OF_TORCHREC)
            of_type = np.array([names.index(name) for name in self._types])[table]
        return np.asarray(of_type * self.dtypes.size + np.searchsorted(self.dtypes, dtype))
