"""Which tables TorchRec exchanges and looks up together; without TorchRec, all tables of a rank.

    time of the exchanges = sum over the sharding types s in use of
                            t_splits(8 k G) + t_lengths(S_s) + t_ids(S_s) + t_weights(S_s) + t_bags(S_s)   [s]
    launches of a look-up, of its sort and of its update = number of the groups in use       [-]

    S_s  bytes of the busiest rank in the tables of type s [bytes];  k G  numbers in a splits exchange [-];
         k is one more if bags are weighted
    group  tables of one sharding type and one data type
Source: TorchRec 1.8, ``ShardedEmbeddingBagCollection`` makes one input dist, one lookup and one output dist
        for each sharding type, ``group_tables`` one fused kernel (TBE) of those of one data type;
        tests/plan/test_torchrec_counts.py counts them in real modules
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import DATA_PARALLEL, ROW_WISE, SHARDINGS, TABLE_ROW_WISE, TABLE_WISE
from perfmodel.engine.steps import (
    BY_TYPE,
    SHARDING_TYPES,
    STEPS,
    TOGETHER,
    WEIGHTS,
    WIDTH,
    Resource,
    Step,
    split_by_type,
)
from perfmodel.engine.tables import Array, PlanTables

_BY_EXCHANGE = {cut.exchange: cut.torchrec for cut in (SHARDINGS[ROW_WISE], SHARDINGS[TABLE_ROW_WISE])}
"""Sharding types in an exported plan: whole tables and column parts are one type; all tables with row parts
in a domain are another (``torchrec.sharding_types``)."""


@dataclass(frozen=True)
class ExchangeSets:
    """The sets of tables that exchange together in TorchRec: one for each sharding type.

    types  sharding type of each of T tables, as TorchRec names it, in a plan made elsewhere;
           None: the types in an exported plan, by the exchange of each table
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
        numbers = [number for name in self.shardings for number in BY_TYPE[name].values()]
        return max(numbers, default=Resource.COPIED_LENGTHS) + 1

    @cached_property
    def _place(self) -> NDArray[np.int64]:
        """[T] index of each table's type in ``shardings``; -1 if it has no exchanges of its own."""
        places = {name: place for place, name in enumerate(self.shardings)}
        return np.array([places.get(name, -1) for name in self.types or ()], dtype=np.int64)

    def spread(self, table: NDArray[np.int64], kind: NDArray[Any], loads: Array) -> Array:
        """The loads [..., K], each moved from the resource of all tables to the resource of its table's set.

        table  indices of tables;  kind  their ``Exchange`` codes
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


_WHOLE, _COPIED = SHARDINGS[TABLE_WISE].torchrec, SHARDINGS[DATA_PARALLEL].torchrec


@dataclass(frozen=True, eq=False)
class LookUpGroups:
    """TorchRec's groups of tables that are looked up together.

    Launches are counted for a rank with tables of all groups in use; other ranks launch fewer.
    """

    sets: ExchangeSets
    tables: PlanTables

    @cached_property
    def _of_type(self) -> dict[str, int]:
        """By sharding type, a resource that every rank has if the plan has tables of that type, and only
        then."""
        resources = {_WHOLE: int(Resource.LENGTHS_SENT)}
        resources |= {name: int(BY_TYPE[name][Resource.LENGTHS_SENT]) for name in self.sets.shardings}
        return resources | {_COPIED: int(Resource.COPIED_LENGTHS)}

    @cached_property
    def _code(self) -> NDArray[np.int64]:
        """[T] code of each table's data type."""
        return np.asarray(np.unique(self.tables.dtype, return_inverse=True)[1])

    @property
    def _several(self) -> int:
        """Number of data types that a group may have; 0 if there is only one."""
        types = int(self._code.max()) + 1
        return types if types > 1 else 0

    @property
    def width(self) -> int:
        """K, number of resources: if there are several data types, each group adds one."""
        return WIDTH + len(self._of_type) * self._several if self._several else self.sets.width

    @property
    def resources(self) -> tuple[int, ...]:
        """For each group, the index of a resource that is above 0 on every rank if a plan uses the group."""
        if not self._several:
            return tuple(self._of_type.values())
        return tuple(range(WIDTH, self.width))

    def spread(self, table: NDArray[np.int64], loads: Array, everywhere: bool) -> Array:
        """The loads [..., K] with a column for each launched group of tables: what the group's kernel moves.

        A group is the tables of one sharding type and one data type, which TorchRec looks up in one launch.
        table       indices of the tables whose loads these are
        everywhere  True: every rank has these loads, so they count for the group of their table as well;
                    False: they are of shards, which are counted elsewhere; the groups' columns are 0
        """
        if not self._several:
            return loads
        moved = np.moveaxis(np.zeros((self.width, *loads.shape[:-1])), 0, -1)
        moved[..., : loads.shape[-1]] = loads
        codes = self._code[table]
        place = iter(self.resources)
        for resource, code in product(self._of_type.values(), range(self._several)):
            mask = everywhere & (codes == code)
            moved[..., next(place)] = np.where(mask, loads[..., resource], 0)
        return moved
